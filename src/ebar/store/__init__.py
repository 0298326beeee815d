"""One way to keep things: locks, descriptions, stages, atomic writing."""
