"""ebar's own claims about itself."""
