r"""`ebar residual train`: the base, the text, which energy, and how it is trained.

Train an energy on top of a language model, by telling text from the model's own continuations of the same prefixes.
Chunks, draws, warm-up and training are each kept: run it again to go on where it was stopped.

Example:
    ebar residual train --name unit --base runs/text --energy.kind unit --data.prefix 60 --data.continuation 20
    ebar residual train --name mine --base HuggingFaceTB/SmolLM2-135M --data.train novels.txt \
        --energy.kind pretrained --energy.encoder sentence-transformers/all-MiniLM-L6-v2 --energy.lora 8
    ebar residual train --name bit --base runs/text --energy.warm_up 5 --negatives.refresh true
"""

from dataclasses import dataclass, field
from typing import Literal

from ebar.bounds import Location, Seed
from ebar.config.reader import Chosen, Manual, choice
from ebar.data.chunks import ChunksData
from ebar.energies.kinds import ENERGIES
from ebar.errors import UserError
from ebar.journeys.residual.settings import Fitting, Measuring, NegativesDraws

MANUAL = Manual.of(__doc__, defaults={"name": "residual"})


@dataclass(frozen=True, kw_only=True)
class ResidualConfig:
    """Everything that decides the result."""

    base: Location
    """Folder of a text run of ebar's, or a causal language model: a Hugging Face folder or hub name, a .gguf file, a
    .bin file of llama2.c."""
    seed: Seed = 0
    """Of weights, order, dropout and draws."""
    device: str = "cpu"
    """Where to compute: auto, cpu, cuda or mps; auto is cuda where there is one."""
    precision: Literal["float32", "bfloat16", "float16", "8bit"] = "float32"
    """Of a pretrained base's weights."""
    data: ChunksData = field(default_factory=ChunksData)
    energy: Chosen = choice(ENERGIES, "bit")
    negatives: NegativesDraws = field(default_factory=NegativesDraws)
    training: Fitting = field(default_factory=Fitting)
    evaluation: Measuring = field(default_factory=Measuring)

    def __post_init__(self) -> None:
        draws, wanted = self.negatives.draws, self.training.negatives
        if draws is not None and draws < wanted:
            raise UserError(f"negatives.draws is {draws}, fewer than the {wanted} of training.negatives: give more.")
