"""Draws that have been on disk give the same numbers as before."""

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.estimators.log_z import log_z
from ebar.estimators.moments import moments
from ebar.features.counts import Length
from ebar.features.feature import Features
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.samplers.files import load_draws, save_draws
from tests.samplers.worlds import ENDING, linear_world


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "ancestral"])
@pytest.mark.parametrize("conditions", [1, 3])
def test_estimates_from_a_file_are_those_from_the_draws(name, conditions, tmp_path, generator: Generator):
    small = linear_world(ENDING, conditions=conditions)
    drawn = draw(SAMPLERS[name](), small.target, 200, context=small.conditional, generator=generator)
    save_draws(drawn, tmp_path / "draws")
    loaded = load_draws(tmp_path / "draws")
    features = Features([Length(longest=ENDING.length, end=ENDING.end)])
    plain = drawn._replace(target=None)
    assert moments(loaded, features) == moments(plain, features)
    if drawn.estimates_z:
        assert log_z(loaded) == log_z(plain)
    else:
        with pytest.raises(UserError, match="nothing of Z"):
            log_z(loaded)


def test_a_file_of_anything_else_is_refused_with_a_sentence(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(UserError, match="cannot be read as a file of draws"):
        load_draws(tmp_path / "nothing")
    save_file({"tokens": torch.zeros(1)}, str(tmp_path / "other"))
    with pytest.raises(UserError, match="holds no draws"):
        load_draws(tmp_path / "other")
