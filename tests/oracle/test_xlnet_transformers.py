"""XLNet against transformers' own, and weights both ways."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

pytest.importorskip("transformers")

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    XLNetConfig,
    XLNetLMHeadModel,
    XLNetModel,
)

import ebar
from ebar.backbones.xlnet import XlNetMemory
from ebar.data.built_tokeniser import Bpe
from ebar.data.specials import specials_of, vocabulary_with_specials
from ebar.data.tokenisers import Alphabet
from ebar.errors import UserError
from ebar.models.construction import Autoregressive, assemble
from ebar.models.xlnet_weights import save_as_hugging_face
from ebar.types import Space

VOCABULARY, ROWS = 17, 4
TOLERANCE = 1e-9


def xlnet_from_hugging_face(where: Any, **settings: Any) -> Any:
    """Its backbone is known to be an XlNet here, and its tokeniser to be there."""
    return ebar.xlnet_from_hugging_face(where, **settings)


def network_of(seed: int = 0, **settings: Any) -> Any:
    """transformers' XLNet with a head in double precision, every parameter far from where it was set."""
    made: dict[str, Any] = {"d_model": 12, "n_head": 3, "n_layer": 2, "d_inner": 20, "mem_len": 0}
    network: Any = XLNetLMHeadModel(XLNetConfig(vocab_size=VOCABULARY, **{**made, **settings})).double().eval()
    generator = Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    body = network.transformer
    sinusoids = body.relative_positional_encoding  # in single precision whatever the network's, which einsum refuses
    body.relative_positional_encoding = lambda *some, **named: sinusoids(*some, **named).double()
    return network


class Text:
    """A batch with everything that an XLNet can be told about it, for them and for us."""

    def __init__(self, length: int, predicted: int, generator: Generator, *, padded: bool, segments: bool):
        def draw(high: int, *shape: int) -> Tensor:
            return torch.randint(0, high, shape, generator=generator)

        self.tokens, self.labels = draw(VOCABULARY, ROWS, length), draw(VOCABULARY, ROWS, predicted)
        self.lengths = length - draw(length - predicted, ROWS) if padded else torch.full((ROWS,), length)
        self.inside = torch.arange(length) < self.lengths[:, None]
        self.segments = draw(3, ROWS, length) if segments else None
        rank = torch.rand(ROWS, length, generator=generator).argsort(1)
        self.hidden_from = (rank[:, :, None] <= rank[:, None]) & (
            torch.rand(ROWS, 1, length, generator=generator) < 0.7
        )
        self.hidden_from |= torch.eye(length, dtype=torch.bool)
        order = torch.rand(ROWS, length, generator=generator).masked_fill(~self.inside, 2.0).argsort(1)
        self.targets = order[:, :predicted]

    def theirs(self, network: Any, memory: Any, **settings: Any) -> Any:
        return network(
            self.tokens, attention_mask=self.inside.double(), token_type_ids=self.segments, mems=memory,
            perm_mask=self.hidden_from.double(), use_mems=True, output_hidden_states=True,
            target_mapping=F.one_hot(self.targets, self.tokens.shape[1]).double(), **settings,
        )  # fmt: skip

    def ours(self, model: Any, memory: XlNetMemory | None, **settings: Any) -> Any:
        return model.backbone(
            self.tokens, inside=self.inside, segments=self.segments, hidden_from=self.hidden_from,
            targets=self.targets, memory=memory, **settings,
        )  # fmt: skip

    def blind(self) -> Tensor:
        """Which queries see no key of the text."""
        return (self.hidden_from | ~self.inside[:, None]).all(2).gather(1, self.targets)


def assert_same(ours: Tensor, theirs: Tensor, where: Tensor) -> None:
    assert bool(where.any())
    torch.testing.assert_close(ours[where], theirs[where], rtol=0, atol=TOLERANCE)


@settings(max_examples=25)
@given(
    heads=st.integers(1, 3), size=st.integers(1, 3), layers=st.integers(1, 3), feedforward=st.integers(1, 9),
    clamp=st.sampled_from([-1, 1, 3]), memory=st.integers(1, 9), reuse=st.integers(1, 7), both_ways=st.booleans(),
    activation=st.sampled_from(["gelu", "relu", "gelu_new"]), length=st.integers(5, 9), predicted=st.integers(1, 4),
    padded=st.booleans(), segments=st.booleans(), epsilon=st.sampled_from([1e-12, 1e-3]), seed=st.integers(0, 999),
)  # fmt: skip
def test_both_streams_memory_and_loss_are_those_of_transformers(
    heads, size, layers, feedforward, clamp, memory, reuse, both_ways, activation, length, predicted, padded, segments,
    epsilon, seed,
):  # fmt: skip
    network = network_of(
        seed, d_model=2 * heads * size, n_head=heads, n_layer=layers, d_inner=feedforward, clamp_len=clamp,
        mem_len=memory, reuse_len=reuse, bi_data=both_ways, ff_activation=activation, layer_norm_eps=epsilon,
    )  # fmt: skip
    model, generator = xlnet_from_hugging_face(network), Generator().manual_seed(seed)
    backwards = torch.arange(ROWS) >= ROWS // 2 if both_ways else None
    remembered, mems = None, None
    with torch.no_grad():
        for call in range(3):
            text = Text(length, predicted, generator, padded=padded, segments=segments)
            theirs = text.theirs(network, mems)
            ours = text.ours(model, remembered, reuse=reuse, backwards=backwards)
            sees = ~text.blind() if call == 0 else torch.ones_like(text.targets, dtype=torch.bool)
            assert_same(ours.content, theirs.hidden_states[-2], text.inside)
            if bool(sees.any()):
                assert_same(ours.query, theirs.hidden_states[-1], sees)
                assert_same(model.head(ours.query), theirs.logits, sees)
                loss = F.cross_entropy(theirs.logits[sees], text.labels[sees])
                torch.testing.assert_close(
                    F.cross_entropy(model.head(ours.query)[sees], text.labels[sees]), loss, rtol=0, atol=TOLERANCE
                )
            remembered, mems = ours.memory, theirs.mems
            filled = int(remembered.filled.max())
            assert filled == mems[0].shape[0] == int(remembered.filled.min())
            # Padding is read as token 0 here, and as whatever stands there by transformers.
            kept = remembered.inputs[:, :, memory - filled :]
            if not padded:
                torch.testing.assert_close(kept, torch.stack(mems).permute(2, 0, 1, 3), rtol=0, atol=TOLERANCE)
            else:
                mems = tuple(kept.permute(1, 2, 0, 3))


def test_the_loss_is_that_of_transformers():
    network = network_of()
    model, text = xlnet_from_hugging_face(network), Text(8, 3, Generator().manual_seed(4), padded=False, segments=True)
    assert not bool(text.blind().any())
    loss = F.cross_entropy(model.head(text.ours(model, None).query).flatten(0, 1), text.labels.flatten())
    torch.testing.assert_close(loss, text.theirs(network, None, labels=text.labels).loss, rtol=0, atol=TOLERANCE)
    torch.autograd.backward(loss)
    torch.autograd.backward(text.theirs(network, None, labels=text.labels).loss)
    for ours, theirs in ((model.backbone.mask, "mask_emb"), (model.backbone.embedding, "word_embedding.weight")):
        gradient = dict(network.transformer.named_parameters())[theirs].grad.view_as(ours)
        torch.testing.assert_close(ours.grad, gradient, rtol=0, atol=TOLERANCE)


def test_left_to_right_attention_is_that_of_transformers():
    network, left_to_right = network_of(), network_of(attn_type="uni")
    model, tokens = xlnet_from_hugging_face(network), torch.randint(0, VOCABULARY, (ROWS, 7))
    later = torch.ones(7, 7, dtype=torch.bool).triu(1).expand(ROWS, -1, -1)
    with torch.no_grad():
        theirs = left_to_right(tokens, use_mems=False, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(model.backbone(tokens, hidden_from=later).content, theirs, rtol=0, atol=TOLERANCE)
    with pytest.raises(UserError, match="left to right only"):
        xlnet_from_hugging_face(left_to_right)


def test_a_query_that_sees_nothing_is_the_one_difference():
    """There it is a mean over everything, its own content included; here it is nothing."""
    network = network_of(n_layer=1)
    model = xlnet_from_hugging_face(network)
    text = Text(6, 1, Generator().manual_seed(0), padded=False, segments=False)
    text.hidden_from = torch.ones(ROWS, 6, 6, dtype=torch.bool)
    with torch.no_grad():
        ours, theirs = text.ours(model, None).query, text.theirs(network, None).hidden_states[-1]
        layer = model.backbone.layers[0]
        nothing = layer.attention_norm(model.backbone.mask)
        nothing = layer.feedforward_norm(nothing + layer.narrow(layer.activation(layer.wide(nothing))))
        torch.testing.assert_close(ours, nothing.expand_as(ours), rtol=0, atol=TOLERANCE)
        before = text.theirs(network, None).hidden_states[-1]
        text.tokens = text.tokens.scatter(1, text.targets, (text.tokens.gather(1, text.targets) + 1) % VOCABULARY)
        assert float((text.theirs(network, None).hidden_states[-1] - before).abs().max()) > 1e-3  # a leak
        assert torch.equal(text.ours(model, None).query, ours)
    assert float((ours - theirs).abs().max()) > 1e-3


def saved(folder: Path, **settings: Any) -> Any:
    """In single precision, which transformers reads matrices of attention in, whatever is asked for."""
    network = network_of(**settings).float()
    network.transformer.relative_positional_encoding = type(network.transformer).relative_positional_encoding.__get__(
        network.transformer
    )
    network.save_pretrained(folder)
    return network


def spoken(model: Any, tokens: Tensor) -> Tensor:
    return model.head(model.backbone(tokens).content)  # type: ignore[no-any-return]


def test_weights_are_read_from_a_folder_and_saved_again(tmp_path):
    network = saved(tmp_path / "theirs", mem_len=5, clamp_len=4, ff_activation="relu")
    model = xlnet_from_hugging_face(tmp_path / "theirs", length=9)
    tokens = torch.randint(0, VOCABULARY, (3, 9))
    assert model.space == Space(VOCABULARY, 9)
    assert model.tokeniser is None
    assert (model.backbone.memory, model.backbone.clamp_length) == (5, 4)
    with torch.no_grad():
        logits = network(tokens).logits
        torch.testing.assert_close(spoken(model, tokens), logits, rtol=0, atol=1e-5)
        ebar.save_as_hugging_face(model, tmp_path / "ours")
        for reader in (XLNetLMHeadModel, AutoModelForCausalLM):
            back = reader.from_pretrained(tmp_path / "ours").eval()
            assert torch.equal(back(tokens).logits, logits)
        again = xlnet_from_hugging_face(tmp_path / "ours")
    assert {name: value.tolist() for name, value in again.state_dict().items()} == {
        name: value.tolist() for name, value in model.state_dict().items()
    }
    assert sorted(file.name for file in (tmp_path / "ours").iterdir())[:3] == [
        "config.json", "generation_config.json", "model.safetensors",
    ]  # fmt: skip


def test_a_body_alone_predicts_by_its_input_vectors():
    body: Any = network_of().transformer
    assert isinstance(body, XLNetModel)
    model = xlnet_from_hugging_face(body)
    vectors = torch.randn(2, 12, dtype=torch.float64)
    torch.testing.assert_close(model.head(vectors), vectors @ body.word_embedding.weight.t())


def made_with(tokeniser: Any, **settings: Any) -> Autoregressive:
    torch.manual_seed(0)
    options = {"layers": 1, "hidden": 8, "heads": 2, **settings}
    return assemble(Space(vocabulary_with_specials(tokeniser), 12), "xlnet", options, "softmax", {"tied": True}).eval()


def test_a_tokeniser_goes_along_with_its_special_tokens(tmp_path):
    tokeniser = Bpe.train(["a cat sat on a mat, a cat sat"] * 3, 270)
    model, specials = made_with(tokeniser), specials_of(tokeniser)
    save_as_hugging_face(model, tmp_path, tokeniser)
    written: Any = AutoTokenizer.from_pretrained(tmp_path)
    plain = [tokeniser.encode(text) for text in ("a cat", "a mat")]
    assert written("a cat")["input_ids"] == [*plain[0], specials.separator, specials.classification]
    pair = written("a cat", "a mat")
    assert pair["input_ids"] == [*plain[0], specials.separator, *plain[1], specials.separator, specials.classification]
    assert pair["token_type_ids"] == [0] * (len(plain[0]) + 1) + [1] * (len(plain[1]) + 1) + [2]
    assert (written.mask_token_id, written.pad_token_id) == (specials.mask, specials.padding)
    back = xlnet_from_hugging_face(tmp_path)
    assert specials_of(back.tokeniser) == specials
    assert back.tokeniser.encode("a cat sat") == tokeniser.encode("a cat sat")
    tokens = torch.tensor([written("a cat", "a mat")["input_ids"]])
    torch.testing.assert_close(spoken(back, tokens), spoken(model, tokens), rtol=0, atol=0)
    save_as_hugging_face(back, tmp_path / "again")
    assert AutoTokenizer.from_pretrained(tmp_path / "again")("a cat")["input_ids"] == written("a cat")["input_ids"]


def test_what_does_not_belong_together_is_refused_in_one_sentence(tmp_path):
    tokeniser = Bpe.train(["a cat"], 258)
    with pytest.raises(UserError, match=r"The tokeniser has 26\d tokens, .*XLNetLMHeadModel knows 17: they do not"):
        xlnet_from_hugging_face(network_of(), tokeniser=tokeniser)
    with pytest.raises(UserError, match="they do not belong together"):
        save_as_hugging_face(made_with(Alphabet("ab")), tmp_path, tokeniser)
    with pytest.raises(UserError, match="Alphabet"):
        save_as_hugging_face(made_with(Alphabet("ab")), tmp_path, Alphabet("ab"))
    with pytest.raises(UserError, match="local"):
        save_as_hugging_face(made_with(tokeniser, chunk=4), tmp_path, tokeniser)
    with pytest.raises(UserError, match="head_size"):
        save_as_hugging_face(made_with(tokeniser, head_size=3), tmp_path, tokeniser)
    untied = assemble(Space(9, 5), "xlnet", {"layers": 1, "hidden": 8, "heads": 2})
    with pytest.raises(UserError, match="tied"):
        save_as_hugging_face(untied, tmp_path)
    with pytest.raises(UserError, match="Only an XlNet"):
        save_as_hugging_face(assemble(Space(9, 5), "lstm", {}), tmp_path)
    with pytest.raises(UserError, match="no XLNet"):
        xlnet_from_hugging_face(BertModel(BertConfig(hidden_size=12, num_attention_heads=2, vocab_size=9)))
    with pytest.raises(UserError, match="activation"):
        xlnet_from_hugging_face(network_of(ff_activation="silu"))
    BertModel(BertConfig(hidden_size=12, num_attention_heads=2, vocab_size=9)).save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match="no XLNet"):
        xlnet_from_hugging_face(tmp_path / "bert")
    (tmp_path / "pickle").mkdir()
    network_of().config.save_pretrained(tmp_path / "pickle")
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UserError, match="pickle"):
        xlnet_from_hugging_face(tmp_path / "pickle")


def test_the_same_weights_attend_to_neighbours(tmp_path):
    network, tokens = network_of(), torch.randint(0, VOCABULARY, (2, 9))
    local = xlnet_from_hugging_face(network, chunk=2)
    assert local.backbone.chunks == [2, 2]
    wide = xlnet_from_hugging_face(network, chunk=9)
    with torch.no_grad():
        torch.testing.assert_close(spoken(wide, tokens), network(tokens).logits, rtol=0, atol=TOLERANCE)
        assert float((spoken(local, tokens) - network(tokens).logits).abs().max()) > 1e-3
