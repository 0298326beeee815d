"""Reading Hugging Face's files quietly and safely: weights in safetensors only, no code of theirs unless asked."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ebar.errors import UserError

PATIENCE = 10.0  # seconds for a first answer of the hub
TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "spiece*", "merges.txt")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def transformers() -> Any:
    """The package, or a sentence that says how to get it."""
    return _package("transformers", "Pretrained models need")


def peft() -> Any:
    """The package, or a sentence that says how to get it."""
    return _package("peft", "Low-rank adaptation needs")


def tokenizers() -> Any:
    """The package, or a sentence that says how to get it."""
    return _package("tokenizers", "This tokeniser needs")


def _package(name: str, who: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UserError(f"{who} the package {name}: install it with pip install 'ebar[hf]'.") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' bars and remarks: what matters is raised."""
    logging = transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    gguf = import_module("transformers.modeling_gguf_pytorch_utils")
    bar = getattr(gguf, "tqdm", None)  # which asks no setting
    gguf.tqdm = lambda items, **_: items  # type: ignore[attr-defined]
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        gguf.tqdm = bar  # type: ignore[attr-defined]
        if bars:
            logging.enable_progress_bar()


def hub_answers() -> bool:
    """Whether the hub can be asked: else each file of a model is asked for again and again, for half a minute."""
    hub = import_module("huggingface_hub")
    if hub.constants.HF_HUB_OFFLINE:
        return False
    try:
        hub.get_session().head(hub.constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of whatever library it asks with
        return False
    return True


def read_pretrained(reader: Any, where: str | Path, what: str, **options: Any) -> Any:
    """`reader.from_pretrained`, whose errors become one sentence."""
    try:
        with quiet():
            return reader.from_pretrained(str(where), **options)
    except UserError:
        raise
    except Exception as error:  # of the network, of the hub, of its file formats: there is no common class
        cause = " ".join(str(error).split()) or type(error).__name__
        cause = cause if len(cause) <= 300 else cause[:300] + "…"
        if Path(where).exists():
            raise UserError(f"{where} cannot be read as {what}: {cause}") from error
        raise UserError(
            f"{where} is no folder or file here, and the hub did not give it: download it elsewhere, save it with "
            f"save_pretrained, and give that folder ({cause})."
        ) from error


def check_folder(folder: Path) -> None:
    """A folder of safetensors; one of pickles is refused, since reading a pickle runs whatever code it holds."""
    if not (folder / "config.json").exists():
        raise UserError(f"{folder} has no config.json: give a folder that save_pretrained wrote.")
    adapter = (folder / "adapter_config.json").exists() and not (folder / "adapter_model.safetensors").exists()
    if adapter or not any(folder.glob("*.safetensors")):
        pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES)
        if pickles:
            raise UserError(refusal(folder / pickles[0]))
        raise UserError(f"{folder} has no weights: there is no .safetensors file in it.")


def check_tokenizer(folder: Path) -> None:
    """A model without its tokenizer reads no text."""
    if not any(file.is_file() for name in TOKENIZERS for file in folder.glob(name)):
        raise UserError(
            f"{folder} has no tokenizer: save the model's own there too, by tokenizer.save_pretrained({str(folder)!r})."
        )


def refusal(pickle: Path) -> str:
    """Why a pickle is not read."""
    return (
        f"{pickle} is a pickle, which can run any code when it is read: convert it to safetensors "
        "(save_pretrained writes them) and give that folder."
    )
