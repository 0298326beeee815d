"""Hidden vectors → scores of the next token."""

from ebar.heads.softmax import Softmax

HEADS = {"softmax": Softmax}
