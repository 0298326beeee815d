"""Models of labelled tasks: an encoder that reads a text both ways, and a head for each task."""
