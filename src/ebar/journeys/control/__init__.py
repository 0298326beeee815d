"""Constraints on the text of a language model, draws that satisfy them, and a model that has learnt them.

The successors of GAM: GDC (Khalifa et al. 2021, arXiv:2012.11635) for constraints and π, DPG for how π is trained.
"""
