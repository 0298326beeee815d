"""Dai 2019 (thesis), chapter 5: Local-XL."""
