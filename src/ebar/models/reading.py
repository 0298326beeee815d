"""How the tokens of a model spell text, so that features need not be bound by hand."""

from collections.abc import Sequence
from typing import Any

from ebar.automata.reading import Reading
from ebar.features.feature import Feature, Features, bind


def reading_of(model: Any) -> Reading | None:
    """Known of a model that was made for data or is pretrained, and of whatever is made of one: tilted, truncated."""
    while model is not None:
        if (reading := getattr(model, "reading", None)) is not None:
            found: Reading = reading
            return found
        model = next((getattr(model, name) for name in ("base", "model") if hasattr(model, name)), None)
    return None


def bound_features(features: Features | Sequence[Feature], model: Any) -> Features:
    """The features for a model's tokens; where its reading is not known, only such as are bound already can be used."""
    if isinstance(features, Features):
        return features
    reading = reading_of(model)
    return Features([feature if reading is None else bind(feature, reading) for feature in features])
