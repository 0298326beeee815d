"""Networks that others have trained: how they are read, and what is learnt beside their weights."""
