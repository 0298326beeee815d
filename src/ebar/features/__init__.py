"""φ(x): what a user may want to be true of a whole sequence."""

from ebar.features.accepted import Accepted
from ebar.features.expression import Expression
from ebar.features.length import Length
from ebar.features.motif import Motif
from ebar.features.ngram_count import NgramCount
from ebar.features.predicate import Predicate
from ebar.features.starts_with import StartsWith

FEATURES = {
    "accepted": Accepted,
    "expression": Expression,
    "length": Length,
    "motif": Motif,
    "ngram_count": NgramCount,
    "predicate": Predicate,
    "starts_with": StartsWith,
}
