"""Fine-tuning: from a network that has learnt from text to one that does a labelled task."""
