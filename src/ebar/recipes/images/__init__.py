"""Images of many levels."""
