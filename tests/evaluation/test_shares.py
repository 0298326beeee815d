"""A share of tokens is one of tokens, however they fall into sentences."""

import pytest
import torch

from ebar.evaluation.exposure_bias import share


def test_sentences_count_by_their_tokens():
    # One of one, none of three: 1 of 4 tokens, though the mean of the sentences' shares is a half.
    found = share(torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert found.value == pytest.approx(0.25)
