"""Tokens → hidden vectors."""

from ebar.backbones.lstm import Lstm

BACKBONES = {"lstm": Lstm}
