"""Control of a pretrained language model: constraints on its text, draws that keep them, a model that has learnt them.

GAM's own successors: GDC (Khalifa et al. 2021, arXiv:2012.11635) for constraints and π, DPG for what moves π.
"""
