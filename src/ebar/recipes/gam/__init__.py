"""Parshakova et al. 2019: global autoregressive models."""
