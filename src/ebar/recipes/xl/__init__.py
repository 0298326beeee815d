"""Dai 2019 (thesis), chapter 3, and Dai et al. 2019: Transformer-XL."""
