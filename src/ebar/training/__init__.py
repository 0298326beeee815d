"""The loop, who learns, and runs that cannot be lost."""
