"""Wang et al. 2022 (E-ARM): a model trained as its own energy model."""
