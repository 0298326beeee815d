"""XLNet: pretrained by permutations of the order, fine-tuned on tasks (Yang et al. 2019)."""
