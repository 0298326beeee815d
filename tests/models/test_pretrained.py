"""Hugging Face's models as stepwise ones: against their own plain forward pass, and by enumeration."""

import math
from typing import Any

import pytest
import torch

from ebar.errors import UserError
from ebar.models.drawing import Advances
from ebar.models.pretrained import Pretrained
from ebar.models.pretrained_stepper import PretrainedStepper
from ebar.models.stepwise import ancestral_by_token, by_advancing, token_log_probs
from ebar.testing.enumeration import whole_space
from ebar.types import Context, SamplesWithLogProb, Sequences, Space, Stepwise
from tests.models.pretrained_examples import (
    ENDING,
    FIXED,
    NETWORKS,
    SPACES,
    network_of,
    pretrained,
    ragged,
    transformers,
)

SHARING = ["gpt2", "llama"]
# Llama and its kin take norms in single precision whatever the weights are in, Gemma its softmax too.
ROUNDING = {"gpt2": 1e-10, "llama": 1e-6, "window": 1e-6, "capped": 1e-5, "convolution": 1e-6}


def plain_log_probs(model: Any, given: list[int], x: list[int]) -> torch.Tensor:
    """By one forward pass over beginning, prefix and continuation, of the first three logits."""
    read = torch.tensor([[4, *given, *x]])
    logits = model.network(input_ids=read, use_cache=False).logits[0, len(given) : -1, :3]
    return torch.log_softmax(logits, -1)[torch.arange(len(x)), x]


@pytest.mark.parametrize("kind", NETWORKS)
@torch.no_grad()
def test_log_probabilities_are_those_of_one_plain_pass_per_row(kind, generator):
    """Prefixes of unequal lengths read together are worth what each is alone."""
    model, context = pretrained(kind), ragged()
    assert isinstance(model, Stepwise)
    assert isinstance(model, SamplesWithLogProb)
    tokens = torch.randint(0, 3, (8, 4), generator=generator)
    x = Sequences(tokens, torch.full((8,), 4))
    got = token_log_probs(model, x, context)
    for row in range(8):
        wanted = plain_log_probs(model, context.given.prefix(row // 2), x.prefix(row))
        torch.testing.assert_close(got[row], wanted, rtol=0, atol=ROUNDING[kind])


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
@torch.no_grad()
def test_step_by_step_at_once_and_teacher_forced_are_the_same(kind, conditional, generator):
    model = pretrained(kind, ENDING)
    context = ragged().select(torch.arange(3)) if conditional else None
    for rows in (3, 6):  # each its own prefix; two to a prefix
        tokens = torch.randint(0, 3, (rows, 4), generator=generator)
        together = by_advancing(model, tokens, context)
        torch.testing.assert_close(model.teacher_forced(tokens, context), together, rtol=0, atol=ROUNDING[kind])
        logits, state = model.start(rows, context)
        for place in range(4):
            torch.testing.assert_close(logits, together[:, place], rtol=0, atol=ROUNDING[kind])
            after, state = model.advance(tokens[:, place : place + 1], state)
            logits = after[:, 0]


@pytest.mark.parametrize("kind", NETWORKS)
@torch.no_grad()
def test_a_state_is_a_value(kind, generator):
    """Going on from it, by advancing or by drawing, leaves it as it was; selecting reorders, drops and repeats."""
    model = pretrained(kind)
    tokens = torch.randint(0, 3, (4, 2), generator=generator)
    _, begun = model.start(4, ragged())
    _, state = model.advance(tokens, begun)
    following = torch.tensor([[0], [1], [2], [2]])
    once, _ = model.advance(following, state)
    stepper = model.stepper(state)
    for _ in range(2):
        stepper.step(torch.ones(4, dtype=torch.long))
    torch.testing.assert_close(model.advance(following, state)[0], once, rtol=0, atol=0)
    assert (begun.place, state.place) == (0, 2)
    again, _ = model.advance(torch.cat([tokens, following], 1), begun)
    torch.testing.assert_close(again[:, 2:], once, rtol=0, atol=ROUNDING[kind])
    rows = torch.tensor([3, 0, 0])
    picked, _ = model.advance(following[rows], state.select(rows))
    torch.testing.assert_close(picked, once[rows], rtol=0, atol=ROUNDING[kind])


@pytest.mark.parametrize("kind", NETWORKS)
@torch.no_grad()
def test_the_quick_step_is_the_plain_one(kind):
    """From prefixes of unequal lengths and unequal numbers of rows, some of which end and some go on as several."""
    model = pretrained(kind, Space(3, 9))
    _, state = model.start(4, ragged())
    state = state.select(torch.tensor([2, 0, 1, 2, 2, 3, 0]))
    quick, plain = model.stepper(state), Advances(model, state)
    assert isinstance(quick, PretrainedStepper) == (kind in {*SHARING, "capped"})
    kept = [[0, 1, 2, 3, 4, 5], [5, 4, 0, 1, 3], [0, 1], [1, 1, 0, 1], None, [3, 0], None]
    rows = 7
    for place, rows_kept in enumerate(kept):
        tokens = (torch.arange(rows) + place) % 3
        torch.testing.assert_close(quick.step(tokens), plain.step(tokens), rtol=0, atol=ROUNDING[kind])
        if rows_kept is not None:
            quick.keep(torch.tensor(rows_kept))
            plain.keep(torch.tensor(rows_kept))
            rows = len(rows_kept)
    assert (getattr(quick, "plain", quick) is None) == (kind in SHARING)  # a cap on scores is none of ours


@torch.no_grad()
def test_rows_that_end_before_the_first_step_are_left_out_of_a_network_that_cannot_share():
    model = pretrained("capped", Space(3, 9))
    _, state = model.start(4, ragged())
    quick, plain = model.stepper(state), Advances(model, state)
    for stepper in (quick, plain):
        stepper.keep(torch.tensor([3, 1]))
    torch.testing.assert_close(quick.step(torch.tensor([0, 2])), plain.step(torch.tensor([0, 2])))


@torch.no_grad()
def test_there_is_room_for_more_than_a_few_steps():
    model = pretrained("llama", Space(3, 40))
    model.network.config.max_position_embeddings = 64
    _, state = model.start(2)
    quick, plain = model.stepper(state), Advances(model, state)
    for place in range(39):
        tokens = torch.tensor([place % 3, place % 2])
        torch.testing.assert_close(quick.step(tokens), plain.step(tokens), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
def test_what_is_drawn_is_worth_what_it_is_said_to_be(kind, space, conditional, generator):
    context = ragged() if conditional else None
    for dtype, tolerance in ((torch.float64, ROUNDING[kind]), (torch.float32, 1e-5)):
        if kind == "capped" and dtype == torch.float64:
            continue
        whole = pretrained(kind, SPACES[space], dtype=dtype)
        for model in (whole, whole.truncated(temperature=0.7, top_k=2)):
            x, drawn = ancestral_by_token(model, 8, context, generator=generator)
            with torch.no_grad():
                scored = token_log_probs(model, x, context)
            torch.testing.assert_close(drawn, scored, rtol=0, atol=tolerance)
    total = whole.sample_with_log_prob(5, context, generator=generator)
    torch.testing.assert_close(whole.log_prob(total[0], context).detach(), total[1], rtol=0, atol=1e-5)
    assert whole.sample(5, context, generator=generator).tokens.shape[0] == len(total[1])


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("space", SPACES)
@torch.no_grad()
def test_probabilities_of_the_whole_space_add_up_to_one(kind, space):
    model, context = pretrained(kind, SPACES[space]), ragged()
    log_probs = model.log_prob(whole_space(model.space, context), context).reshape(4, -1)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(4, dtype=log_probs.dtype))


@pytest.mark.parametrize("kind", SHARING)
def test_a_prefix_is_read_once_however_many_go_on_from_it(kind, generator):
    model = pretrained(kind)
    read = []
    model.network.register_forward_hook(
        lambda module, _, given, output: read.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    model.sample(50, ragged(), generator=generator)
    assert read == [(3, 5)] + 3 * [(200, 1)]  # three different prefixes, the longest of 4 tokens after the beginning


def test_sampling_has_no_dropout_and_leaves_the_mode_and_the_attention(generator):
    model = pretrained("gpt2").train()
    x, drawn = model.sample_with_log_prob(20, ragged(), generator=generator)
    assert model.network.training
    assert model.network.config._attn_implementation == "sdpa"
    with torch.no_grad():
        torch.testing.assert_close(model.eval().log_prob(x, ragged()), drawn)


def test_no_draws_are_an_empty_batch(generator):
    x, log_q = pretrained("llama").sample_with_log_prob(0, generator=generator)
    assert x.tokens.shape[0] == x.lengths.shape[0] == log_q.shape[0] == 0


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_gradient_of_the_total_probability_is_zero(kind):
    """Σ p = 1, so Σ p·∇log p = 0; prefixes padded on their left included."""
    model = pretrained(kind)
    everything = whole_space(FIXED, ragged())
    log_probs = model.log_prob(everything, ragged())
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    total = torch.autograd.grad((log_probs.detach().exp() * log_probs).sum(), weights, allow_unused=True)
    assert max(float(g.abs().max()) for g in total if g is not None) < 100 * ROUNDING[kind]
    rows = torch.tensor([0, 100, 200, 300])
    alone = model.log_prob(everything.select(rows), ragged())  # in one pass, but for the two that share a prefix
    single = torch.autograd.grad(alone.sum(), weights, allow_unused=True)
    shared = torch.autograd.grad(model.log_prob(everything, ragged())[rows].sum(), weights, allow_unused=True)
    for one, other in zip(single, shared, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=100 * ROUNDING[kind])
    assert max(float(g.abs().max()) for g in single if g is not None) > 1e-3


@torch.no_grad()
def test_logits_past_the_vocabulary_are_left_out():
    """Two of three logits: e¹ and e² of them, whatever the third."""
    model = pretrained("gpt2", Space(2, 1))
    model.network.forward = None
    logits = torch.tensor([[[1.0, 2.0, 9.0, 9.0, 9.0]]])
    shown = torch.log_softmax(model._used(logits), -1)[0, 0]
    torch.testing.assert_close(shown.exp(), torch.tensor([1 / (1 + math.e), math.e / (1 + math.e)]))


@torch.no_grad()
def test_half_precision_gives_single_precision_logits(generator):
    model = pretrained("llama", dtype=torch.bfloat16)
    x, drawn = model.sample_with_log_prob(10, ragged(), generator=generator)
    assert drawn.dtype == torch.float32
    torch.testing.assert_close(model.log_prob(x, ragged()), drawn, rtol=0, atol=0.2)


@torch.no_grad()
def test_without_a_beginning_there_must_be_a_prefix():
    model = pretrained("gpt2", beginning=None)
    x = Sequences(torch.tensor([[0, 1, 2, 0]]), torch.tensor([4]))
    with pytest.raises(UserError, match="GPT2LMHeadModel has no token that begins a text: give a prefix"):
        model.log_prob(x)
    empty = Context(Sequences(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.long)))
    with pytest.raises(UserError, match="no token that begins"):
        model.log_prob(x, empty)
    given = Context(Sequences(torch.tensor([[4]]), torch.tensor([1])))
    torch.testing.assert_close(model.log_prob(x, given), pretrained("gpt2").log_prob(x))
    torch.testing.assert_close(pretrained("gpt2").log_prob(x, empty), pretrained("gpt2").log_prob(x))


@torch.no_grad()
def test_a_network_with_an_attention_of_its_own_is_drawn_from_without_sharing(generator):
    torch.manual_seed(11)
    config = transformers.BloomConfig(vocab_size=5, hidden_size=16, n_layer=2, n_head=4, initializer_range=0.5)
    model = Pretrained(transformers.BloomForCausalLM(config).double().eval(), FIXED, beginning=4)
    context = Context(Sequences(torch.tensor([[0, 2], [1, 1]]), torch.full((2,), 2)))
    x, drawn = model.sample_with_log_prob(5, context, generator=generator)
    torch.testing.assert_close(model.log_prob(x, context), drawn)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["llama", "window"])
def test_prefixes_that_do_not_fit_are_read_a_few_at_a_time(kind, monkeypatch, generator):
    model = pretrained(kind)
    context = Context(Sequences(torch.tensor([[0, 2], [1, 1], [2, 2], [0, 1], [1, 2]]), torch.full((5,), 2)))
    x, drawn = model.sample_with_log_prob(3, context, generator=generator)
    whole = model.log_prob(x, context)
    assert model.prefixes_at_once(2) > 1000
    monkeypatch.setattr("ebar.models.pretrained.MEMORY", 2 * 7 * model._kept_of_a_token())  # two of 1 + 2 + 4 tokens
    assert model.prefixes_at_once(2) == 2
    read = list[int]()
    prefixes = model._prefixes

    def counted(rows: int, some: Any) -> Any:
        read.append(some.rows)
        return prefixes(rows, some)

    monkeypatch.setattr(model, "_prefixes", counted)
    torch.testing.assert_close(model.log_prob(x, context), whole)
    assert max(read) <= 2
    torch.testing.assert_close(whole, drawn)


@torch.no_grad()
def test_a_beginning_that_stands_for_an_empty_prefix_only():
    """Beside an empty prefix, [4] and [0, 2] are read as they are: the same as without any beginning."""
    model = pretrained("gpt2")
    model.begins = False
    tokens = torch.tensor([[9, 9], [4, 9], [0, 2]])  # 9: padding may hold anything
    context = Context(Sequences(tokens, torch.tensor([0, 1, 2])))
    x = Sequences(torch.tensor([[0, 1, 2, 0]] * 3), torch.full((3,), 4))
    none, four, two = model.log_prob(x, context)
    torch.testing.assert_close(none, four)  # 4 is the beginning
    plain = pretrained("gpt2", beginning=None)
    alone = plain.log_prob(x.select(torch.tensor([2])), Context(context.given.select(torch.tensor([2]))))
    torch.testing.assert_close(two[None], alone)
    assert (model.read_before(0), model.read_before(3)) == (1, 3)


@torch.no_grad()
def test_what_is_longer_than_the_positions_is_refused_with_the_numbers():
    fits = Context(Sequences(torch.zeros(1, 12, dtype=torch.long), torch.tensor([12])))
    long = Context(Sequences(torch.zeros(1, 13, dtype=torch.long), torch.tensor([13])))
    x = Sequences(torch.zeros(1, 4, dtype=torch.long), torch.tensor([4]))
    assert math.isfinite(pretrained("gpt2").log_prob(x, fits))  # 1 + 12 + 3: the last token is not read
    with pytest.raises(
        UserError, match=r"prefix of 13 tokens and a continuation of 4 .* would read 17 and can read 16"
    ):
        pretrained("gpt2").log_prob(x, long)


def test_a_network_without_keys_and_values_is_refused():
    with pytest.raises(ValueError, match="Linear keeps no keys and values"):
        Pretrained(torch.nn.Linear(2, 2), FIXED, beginning=0)


def test_contexts_that_cannot_be_shared_evenly_are_refused():
    x = Sequences(torch.zeros(3, 4, dtype=torch.long), torch.full((3,), 4))
    with pytest.raises(ValueError, match="3 sequences cannot be shared evenly among 4 contexts"):
        pretrained("llama").log_prob(x, ragged())


def test_rows_at_once_fit_in_the_memory_they_may_take():
    """2 layers of 2 heads of 4 numbers, keys and values of 8 bytes, 4 tokens; 3 logits: 1,072 bytes a row."""
    model = pretrained("llama")
    assert model.rows_at_once == 2**30 // 1072
    assert network_of("llama").config.num_key_value_heads == 2
