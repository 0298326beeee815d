"""Documents 001 and 003: a model trained as its own energy model."""
