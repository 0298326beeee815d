"""What a run is made of: YAML and flags in, frozen dataclasses out."""
