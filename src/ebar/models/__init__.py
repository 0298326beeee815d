"""Distributions over sequences, and what an energy makes of them."""
