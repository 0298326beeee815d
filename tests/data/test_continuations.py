import pytest
import torch

from ebar.data.chunks import continuations
from ebar.errors import UserError


def test_ten_tokens_are_two_chunks_of_three_and_one_and_a_rest():
    x, context = continuations(torch.arange(10), prefix=3, continuation=1)
    assert context.given.tokens.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert x.tokens.tolist() == [[3], [7]]
    assert context.given.lengths.tolist() == [3, 3]
    assert x.lengths.tolist() == [1, 1]


def test_no_token_stands_in_two_chunks_and_each_continuation_follows_its_prefix():
    stream = torch.arange(1000)
    x, context = continuations(stream, prefix=12, continuation=4)
    chunks = torch.cat([context.given.tokens, x.tokens], 1)
    assert chunks.flatten().tolist() == stream[: 62 * 16].tolist()


@pytest.mark.parametrize("length", [0, 1, 15])
def test_a_text_without_a_whole_chunk_is_told_so(length):
    with pytest.raises(UserError, match=rf"has {length} tokens, too few for one chunk of 12 \+ 4: give more text"):
        continuations(torch.zeros(length, dtype=torch.long), prefix=12, continuation=4)


def test_a_chunk_without_a_prefix_or_a_continuation_is_refused():
    for prefix, continuation in ((0, 4), (4, 0), (-1, 4)):
        with pytest.raises(UserError, match="a token or more"):
            continuations(torch.arange(100), prefix=prefix, continuation=continuation)
