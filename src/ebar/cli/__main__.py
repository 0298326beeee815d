"""`python -m ebar.cli` is `ebar`."""

from ebar.cli import entry

entry()
