"""What one update by E-ARM costs, in updates by maximum likelihood: same model, batch and machine.

    python benchmarks/earm.py --json

Two models, in float32 with torch's default threads, dropout 0.1 and Adam; an update is the loss, its gradient and the
optimiser's step. Variants take turns and each counts with its best of 7, so that a busy machine slows all of them or
none. The model cannot end a sequence before the longest real one does: there are at least as many fake tokens as real.

- `ratio_translation`: an encoder–decoder of 3 + 3 layers of 256 over 4,000 BPE tokens, on a batch of at most 4,096
  tokens of Tatoeba's German–English pairs (lengths like theirs where the corpus is not at hand).
- `ratio_window_50`: a Transformer of 4 layers of 256 over 4,000 tokens, on 80 windows of 50 tokens.
- `…_langevin_20`: the same where the negatives come from 20 steps of Langevin dynamics.
- `…_scheduled`: scheduled sampling at an even chance, for comparison.
- `… seconds`: of the updates, and of sampling, forward and backward in the one by E-ARM.

By operations, backward being two forwards, it is (3 + 3 + 1)/3 = 2.33. The papers have 5.3, and 23 for
Langevin dynamics.
"""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from command import run
from torch import Generator

from ebar.backbones.transformer import EncoderDecoder, Transformer
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.objectives.earm import Earm
from ebar.objectives.scheduled_sampling import MaximumLikelihood, ScheduledSampling
from ebar.types import Clock, Context, Objective, Sequences, Space

VOCABULARY, HIDDEN, TOKENS, ROUNDS = 4000, 256, 4096, 7


def tatoeba() -> tuple[Sequences, Context]:
    """A batch of real pairs, of a length that many have."""
    folder = Path(os.environ["EBAR_DATA"]) / "tatoeba-deu-eng"
    from ebar.data.built_tokeniser import Bpe
    from ebar.data.parallel import pairs, read_pairs
    from ebar.training.batches import Budgeted

    sentences = list(pairs(folder / "valid.tsv.xz", source_column=1, target_column=0))
    tokeniser = Bpe.train([text for pair in sentences for text in pair], VOCABULARY - 1)
    batches = list(Budgeted(data=read_pairs(sentences, tokeniser, tokeniser), tokens=TOKENS, shuffle=False).at(0, 0))
    x, context = batches[len(batches) // 2]
    return x, context


def like_tatoeba(generator: Generator) -> tuple[Sequences, Context]:
    """Random tokens, of such lengths."""
    sides = []
    for _ in range(2):
        lengths = torch.randint(9, 12, (TOKENS // 11,), generator=generator)
        tokens = torch.randint(VOCABULARY - 1, (len(lengths), 11), generator=generator)
        sides.append(Sequences(tokens.scatter(1, lengths[:, None] - 1, VOCABULARY - 1), lengths))
    return sides[0], Context(sides[1])


def translation(generator: Generator) -> tuple[Autoregressive, tuple[Sequences, Context]]:
    """The model, and a batch for it."""
    batch = tatoeba() if "EBAR_DATA" in os.environ else like_tatoeba(generator)
    space = Space(VOCABULARY, 64, end=VOCABULARY - 1)
    head = Softmax(HIDDEN, VOCABULARY)
    model = Autoregressive(EncoderDecoder(VOCABULARY, hidden=HIDDEN), head, space)
    with torch.no_grad():
        head.linear.bias[space.end] = -50.0
    return model, batch


def windows(generator: Generator) -> tuple[Autoregressive, Sequences]:
    """The model, and a batch for it."""
    tokens = torch.randint(VOCABULARY, (TOKENS // 50, 50), generator=generator)
    model = Autoregressive(Transformer(VOCABULARY, hidden=HIDDEN), Softmax(HIDDEN, VOCABULARY), Space(VOCABULARY, 50))
    return model, Sequences(tokens, torch.full((len(tokens),), 50))


def update(
    objective: Objective, batch: Any, optimiser: torch.optim.Optimizer, generator: Generator
) -> dict[str, float]:
    """One, with the seconds that each part of it takes."""
    begin = time.perf_counter()
    (loss,) = objective.losses(batch, Clock(50_000, 0), generator=generator)
    forward = time.perf_counter()
    loss.value.backward()  # type: ignore[no-untyped-call]
    backward = time.perf_counter()
    optimiser.step()
    optimiser.zero_grad()
    return {"update": time.perf_counter() - begin, "forward": forward - begin, "backward": backward - forward}


def drawing(objective: Earm, batch: Any, generator: Generator) -> int:
    """The fakes alone; how many tokens they have."""
    x, context = (batch, None) if isinstance(batch, Sequences) else batch
    return int(objective._fakes(x, context, 0, x.tokens.shape[1], generator).lengths.sum())


def compared(name: str, model: Autoregressive, batch: Any, generator: Generator, rounds: int) -> dict[str, float]:
    """Ratios, and the seconds they come from."""
    earm = Earm(model=model, length_ratio=None)
    objectives: dict[str, Objective] = {
        "": earm,
        "maximum_likelihood": MaximumLikelihood(model=model),
        "scheduled": ScheduledSampling(model=model),
        "langevin_20": Earm(model=model, negatives="langevin"),
    }
    model.train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-6)
    x = batch if isinstance(batch, Sequences) else batch[0]
    figures = {f"{name} real tokens": int(x.lengths.sum()), f"{name} fake tokens": drawing(earm, batch, generator)}
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for kind, objective in objectives.items():
            for part, value in update(objective, batch, optimiser, generator).items():
                if number:  # the first warms the caches
                    best[f"{kind} {part}"] = min(best.get(f"{kind} {part}", math.inf), value)
        begin = time.perf_counter()
        drawing(earm, batch, generator)
        best["sampling"] = min(best.get("sampling", math.inf), time.perf_counter() - begin)
    whole = best["maximum_likelihood update"]
    ratios = {f"ratio_{name}{'_' if kind else ''}{kind}": best[f"{kind} update"] / whole
              for kind in objectives if kind != "maximum_likelihood"}  # fmt: skip
    return {
        **ratios,
        **figures,
        f"{name} seconds, maximum likelihood": whole,
        f"{name} seconds, maximum likelihood forward": best["maximum_likelihood forward"],
        f"{name} seconds, maximum likelihood backward": best["maximum_likelihood backward"],
        f"{name} seconds, E-ARM": best[" update"],
        f"{name} seconds, E-ARM sampling": best["sampling"],
        f"{name} seconds, E-ARM forward": best[" forward"] - best["sampling"],
        f"{name} seconds, E-ARM backward": best[" backward"],
    }


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """The figures, and the times they come from."""
    torch.manual_seed(0)
    generator = Generator().manual_seed(0)
    cases: dict[str, Callable[[Generator], tuple[Autoregressive, Any]]]
    cases = {"translation": translation, "window_50": windows}
    figures: dict[str, float] = {"threads": torch.get_num_threads()}
    for name, case in cases.items():
        figures |= compared(name, *case(generator), generator, rounds)
    return figures


if __name__ == "__main__":
    run(__doc__, measure)
