"""Low-rank adaptation (Hu et al. 2021), by peft: W + (α/r)·B·A, where only A and B learn."""

import copy
from typing import Any, Literal

from torch import nn

from ebar.errors import UserError
from ebar.hugging_face import peft, quiet


def with_lora(
    network: nn.Module, *, rank: int = 8, alpha: float | None = None, dropout: float = 0.0,
    kind: Literal["causal", "encoder"] = "causal",
) -> nn.Module:  # fmt: skip
    """The network with matrices of low rank beside all its linear layers, only those learning; B is 0 at first.

    α is 2·rank where none is given, so that the rank does not change the size of a step.
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1, not {rank}")
    library = peft()
    configuration = library.LoraConfig(
        r=rank, lora_alpha=2 * rank if alpha is None else alpha, lora_dropout=dropout, target_modules="all-linear",
        task_type="CAUSAL_LM" if kind == "causal" else "FEATURE_EXTRACTION",
    )  # fmt: skip
    try:
        with quiet():
            made: nn.Module = library.get_peft_model(network, configuration)
    except ValueError as error:
        raise UserError(f"{type(network).__name__} cannot have low-rank matrices beside its own: {error}.") from None
    return made


def merged(network: nn.Module) -> nn.Module:
    """A network without adapters that computes the same; the given one stays as it is."""
    if not hasattr(network, "merge_and_unload"):
        return network
    with quiet():
        twin: Any = copy.deepcopy(network)
        made: nn.Module = twin.merge_and_unload()
    return made
