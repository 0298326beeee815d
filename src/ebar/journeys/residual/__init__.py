"""Residual models: draws on disk, training in stages, and what their text is like."""
