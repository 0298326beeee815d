"""Hidden vectors → scores of the next token."""

from ebar.heads.softmax import Softmax
from ebar.tables import Table

HEADS = Table("head", {"softmax": Softmax}, given=("vocabulary", "width"))
