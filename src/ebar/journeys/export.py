"""The weights of a model for others to use: as transformers saves models, or as one file of safetensors.

For transformers a folder holds config.json, model.safetensors and the files of the tokenizer, which
`AutoModelForCausalLM` and `AutoTokenizer` read with no code but their own.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Generator, nn

from ebar.backbones.transformer import Transformer
from ebar.backbones.xlnet import XlNet
from ebar.data.as_hugging_face import hugging_face_tokenizer
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.hugging_face import quiet, read_pretrained, transformers
from ebar.journeys.train import Trained
from ebar.models.construction import Autoregressive, save_pretrained
from ebar.models.gpt2_weights import to_gpt2, why_not_gpt2
from ebar.models.pretrained import Pretrained
from ebar.models.stepwise import teacher_forced
from ebar.models.xlnet_weights import save_as_hugging_face
from ebar.modes import evaluation_mode
from ebar.store.writing import TEMPORARY, replace_folder, saving
from ebar.training.run import packed as packed

To = Literal["hf", "safetensors"]
WEIGHTS = "model.safetensors"
Made = TypeVar("Made")
CHECKED = 64  # tokens of each of two texts, on which both models are asked for their logits


class Exported(NamedTuple):
    """What was written."""

    folder: Path
    to: str
    tokenizer: bool  # whether its files are there too
    difference: float | None = None  # the largest between logits of ours and theirs, where that was asked


def export(model: Any, folder: Path | str, *, to: To = "hf", tokeniser: Tokeniser | None = None) -> Exported:
    """Writes a model, or what `train` or `load` gave, to a folder, complete or not at all.

    For transformers (`hf`) it may be a Transformer of ebar's with a softmax, which becomes a GPT-2; an XLNet, which
    becomes one; or what was a Hugging Face model all along, low-rank adapters merged. Any other is refused; as
    `safetensors` every module can be written, under the names of its `state_dict`.
    """
    folder = Path(folder)
    check_place(folder)
    if isinstance(model, Trained):
        model, tokeniser = model.model, tokeniser or model.data.tokeniser
    if to == "safetensors":
        written_folder(folder, {WEIGHTS: packed(model.state_dict())})
        return Exported(folder, to, tokenizer=False)
    has_tokenizer, difference = saved_folder(folder, lambda place: _saved(model, place, tokeniser))
    return Exported(folder, to, has_tokenizer, difference)


def saved_folder(folder: Path, save: Callable[[Path], Made]) -> Made:
    """What `save` writes file by file, as a folder that is complete or not there at all."""
    temporary = folder.with_name(TEMPORARY + folder.name)
    with saving(str(folder)):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.parent.mkdir(parents=True, exist_ok=True)
    try:
        made = save(temporary)
        written_folder(folder, {path.name: path.read_bytes() for path in temporary.iterdir() if path.is_file()})
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return made


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something else than an earlier export."""
    if (folder / "checkpoints").exists():
        raise UserError(f"{folder} is a run of its own: choose a folder that is new or empty.")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not any(folder.glob("*.safetensors"))):
        raise UserError(f"{folder} holds something else: choose a folder that is new or empty.")


def written_folder(folder: Path, files: dict[str, bytes]) -> None:
    """A folder of these files, complete or not at all."""
    with saving(str(folder)):
        folder.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(folder, files)


def _saved(model: Any, folder: Path, tokeniser: Tokeniser | None) -> tuple[bool, float | None]:
    """Whether there is a tokenizer, and how far logits are apart."""
    if isinstance(model, Pretrained):
        save_pretrained(model, folder)
        return model.tokeniser is not None, None
    backbone = getattr(model, "backbone", None)
    if isinstance(backbone, XlNet):
        own = tokeniser or model.tokeniser
        save_as_hugging_face(model, folder, own)
        return own is not None, None
    if not isinstance(backbone, Transformer) or why_not_gpt2(model) is not None:
        raise UserError(
            f"This model cannot be exported for transformers, since {why_not_gpt2(model)}: a transformer with the head "
            "softmax, an xlnet and what was a Hugging Face model can, and any other as safetensors."
        )
    assert isinstance(model, Autoregressive)
    made = to_gpt2(model)
    tokenizer = None
    if tokeniser is not None:
        tokenizer = hugging_face_tokenizer(tokeniser, model.space, longest=made.config.n_positions)
    with quiet():
        made.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    theirs = read_pretrained(transformers().AutoModelForCausalLM, folder, "a causal language model", dtype="auto")
    return tokenizer is not None, logit_difference(model, theirs)


@torch.no_grad()
def logit_difference(model: Autoregressive, network: nn.Module) -> float:
    """The largest between the logits of a model and those of the GPT-2 that it became, over random texts."""
    vocabulary, device = model.space.vocabulary, next(model.parameters()).device
    length = max(1, min(CHECKED, model.space.length - (model.space.end is not None)))
    tokens = torch.randint(vocabulary, (2, length), generator=Generator().manual_seed(0)).to(device)
    before = torch.cat([torch.full_like(tokens[:, :1], vocabulary), tokens[:, :-1]], 1)
    with evaluation_mode(model):
        ours = teacher_forced(model, tokens)
    theirs = network.to(device).eval()(before).logits[..., :vocabulary]
    return float((ours - theirs).abs().max())
