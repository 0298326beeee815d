"""How fast a Transformer is sampled: ebar's, with its cache, against Hugging Face's GPT-2 and its `generate`.

    python benchmarks/generation.py --json

The same weights, 4 layers × 256 over 8,000 tokens, the same batch of 32 and 128 new tokens each, in float32 with
torch's default threads; the time is that of everything, from weights to tokens. ebar's also has the draws'
log-probabilities, which the other has not. The two take turns and each counts with its best of 5, so that a busy
machine slows both or neither.

- `speedup`: the time of `generate` (pure sampling, with its cache), with whichever is faster of two ways to compute
  its activation (its own, and torch's), divided by the time of ebar's sampler.
- `small_speedup`: the same over a vocabulary of 500, where drawing a token costs `generate` less.
- `tokens_per_second`: of ebar's sampler.
"""

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from command import run
from torch import Generator

from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import teacher_forced
from ebar.testing.gpt2 import from_gpt2
from ebar.types import Space

ROWS, LENGTH, LAYERS, WIDTH, HEADS = 32, 128, 4, 256, 4
ROUNDS = 5


def seconds(function: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def theirs(vocabulary: int, activation: str) -> Any:
    """A GPT-2 of random weights, without an end: every draw has all its tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=LENGTH + 1, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        activation_function=activation, initializer_range=0.1, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model: Any = GPT2LMHeadModel
    return model(config).eval()


@torch.no_grad()
def ours(gpt2: Any) -> Autoregressive:
    """The same weights in ebar."""
    vocabulary = gpt2.config.vocab_size
    head = Softmax(WIDTH, vocabulary)
    head.linear.weight.copy_(gpt2.lm_head.weight)
    return Autoregressive(from_gpt2(gpt2.transformer), head, Space(vocabulary, LENGTH)).eval()


@torch.inference_mode()
def measure_over(vocabulary: int) -> dict[str, float]:
    """Best times over one vocabulary, once both have been seen to say the same."""
    generator = Generator().manual_seed(0)
    models = {name: theirs(vocabulary, name) for name in ("gelu_new", "gelu_pytorch_tanh")}
    model = ours(models["gelu_new"])
    begin = torch.zeros(ROWS, 1, dtype=torch.long)

    def generate(name: str) -> Any:
        return models[name].generate(
            begin, attention_mask=torch.ones_like(begin), do_sample=True, top_k=0, top_p=1.0, use_cache=True,
            max_new_tokens=LENGTH,
        )  # fmt: skip

    variants: dict[str, Callable[[], object]] = {name: lambda name=name: generate(name) for name in models}  # type: ignore[misc]
    variants["ebar"] = lambda: model.sample_with_log_prob(ROWS, generator=generator)
    check(model, models, begin)
    best = dict.fromkeys(variants, math.inf)
    for function in variants.values():
        function()  # warm caches
    for _ in range(ROUNDS):
        for name, function in variants.items():
            best[name] = min(best[name], seconds(function))
    return best


def check(model: Autoregressive, models: dict[str, Any], begin: torch.Tensor) -> None:
    """A sampler that is fast and wrong would be no news."""
    x, log_q = model.sample_with_log_prob(ROWS, generator=Generator().manual_seed(1))
    torch.testing.assert_close(model.log_prob(x) / LENGTH, log_q / LENGTH, rtol=0, atol=1e-5)
    logits = teacher_forced(model, x.tokens)
    for other in models.values():
        wanted = other(torch.cat([begin, x.tokens[:, :-1]], 1)).logits
        torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)


def measure() -> dict[str, float]:
    """The figures, and the times they come from."""
    logging.disable(logging.WARNING)
    large, small = measure_over(8000), measure_over(500)
    return {
        "speedup": min(value for name, value in large.items() if name != "ebar") / large["ebar"],
        "small_speedup": min(value for name, value in small.items() if name != "ebar") / small["ebar"],
        "tokens_per_second": ROWS * LENGTH / large["ebar"],
        "threads": torch.get_num_threads(),
        **{f"seconds of {name}": value for name, value in large.items()},
        **{f"seconds of {name}, small": value for name, value in small.items()},
    }


if __name__ == "__main__":
    run(__doc__, measure)
