"""Labelled data: classes, numbers, spans, grades and choices, in the formats people have them in."""

from ebar.data.labelled.corpus import LabelledCorpus, LabelledData, answer_text
from ebar.data.labelled.encoding import Encoded, Encoding, Inputs, Labelled
from ebar.data.labelled.examples import Answer, Example, Task

__all__ = [
    "Answer", "Encoded", "Encoding", "Example", "Inputs", "Labelled", "LabelledCorpus", "LabelledData", "Task",
    "answer_text",
]  # fmt: skip
