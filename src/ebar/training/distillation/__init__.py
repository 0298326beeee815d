"""Distillation: draws of p ∝ P, written to a file that a model can be trained on."""

from ebar.training.distillation.distil import distil
from ebar.training.distillation.distilled import Distilled

__all__ = ["Distilled", "distil"]
