"""BiT* of Deng et al. 2020: a pretrained network reads the text that q's tokens spell, in tokens of its own.

Pretrained encoders, for energies that read text.
"""

import math
from collections.abc import Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from ebar.automata.lift import without_end
from ebar.backbones.pretrained.reading import Precision, positions_in_table, read_network
from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.tokenisers import Tokeniser
from ebar.energies.neural import Encoded, Pool, joined
from ebar.errors import UserError
from ebar.modes import evaluation_mode
from ebar.types import Context, Sequences, context_rows


class Reread(NamedTuple):
    """One text in the network's tokens, its special ones included."""

    ids: list[int]
    counts: list[bool]  # which are pooled


class Reencoded(nn.Module):
    """A Hugging Face network (an encoder, or the body of a causal model) over text: an `Encoder` for `Neural`.

    q's tokens of C and of [C; x] are spelt by q's tokeniser; an end token spells nothing and is left out. A token of
    the network that holds a character of x's, be it the last of a word that C begins, is one of the continuation.
    Where there is none (blanks alone, say), all tokens are pooled, the special ones too. Text that takes more tokens
    than the network has positions is refused; with `cut_prefix` the beginning of the prefix is left out instead, and
    `cut` counts how often.
    """

    def __init__(
        self, network: nn.Module, tokenizer: Any, spelling: Tokeniser, *, end: int | None = None,
        cut_prefix: bool = False,
    ):  # fmt: skip
        """`tokenizer` is the network's own, ebar's, transformers' (a fast one) or a plain one; `spelling` is q's."""
        super().__init__()
        self.network = network
        self.tokenizer = _own(tokenizer)
        self.spelling, self.end, self.cut_prefix, self.cut = spelling, end, cut_prefix, 0
        config: Any = network.config
        self.width = int(config.hidden_size)
        self.padding = int(getattr(config, "pad_token_id", None) or 0)
        self.positions = _positions(network)
        known, tokens = int(network.get_input_embeddings().num_embeddings), self.tokenizer.get_vocab_size()  # type: ignore[operator]
        if tokens > known:
            raise UserError(
                f"The encoder's tokeniser has {tokens:,} tokens and the network knows {known:,}: they do not belong"
                " together."
            )

    def forward(self, x: Sequences, context: Context | None, pool: Pool) -> Encoded:
        rows = self.reread(x, context, pool)
        width = max(len(row.ids) for row in rows)
        device = next(self.network.parameters()).device
        ids = torch.tensor([row.ids + [self.padding] * (width - len(row.ids)) for row in rows], device=device)
        lengths = torch.tensor([len(row.ids) for row in rows], device=device)
        counts = torch.tensor([row.counts + [False] * (width - len(row.ids)) for row in rows], device=device)
        return Encoded(self._hidden(ids, Sequences(ids, lengths).mask()), counts)

    @torch.no_grad()
    def last_norm(self) -> nn.LayerNorm | None:
        """The layer norm whose output the hidden vectors are, found by reading one token; None where there is none."""
        outputs: dict[nn.LayerNorm, Tensor] = {}
        norms = [part for part in self.network.modules() if isinstance(part, nn.LayerNorm)]
        hooks = [norm.register_forward_hook(lambda norm, _, out: outputs.__setitem__(norm, out)) for norm in norms]
        try:
            with evaluation_mode(self.network):
                one = torch.full((1, 1), self.padding, device=next(self.network.parameters()).device)
                hidden = self._hidden(one, torch.ones_like(one, dtype=torch.bool))
        finally:
            for hook in hooks:
                hook.remove()
        found = [
            norm
            for norm, out in outputs.items()
            if out.shape[-1] == self.width and torch.equal(out.view_as(hidden), hidden)
        ]
        return found[-1] if found else None

    def reread(self, x: Sequences, context: Context | None, pool: Pool = "continuation") -> list[Reread]:
        """Each row in the network's tokens."""
        if context is not None and context.order is not None:
            return self._reread_arranged(x, context, pool)
        given = [[]] if context is None else context.given.rows()
        draws = len(x.lengths) // context_rows(context)
        before = [prefix for prefix in given for _ in range(draws)]
        spelt = [text for text in map(self._text, given) for _ in range(draws)]
        texts = [self._text(prefix + without_end(row, self.end)) for prefix, row in zip(before, x.rows(), strict=True)]
        encodings = self.tokenizer.encode_batch(texts)
        return [
            self._reread(encoding, [(0 if pool == "all" else _shared(prefix, text), math.inf)])
            for encoding, prefix, text in zip(encodings, spelt, texts, strict=True)
        ]

    def _reread_arranged(self, x: Sequences, context: Context, pool: Pool) -> list[Reread]:
        """The same of texts that given tokens and x make together."""
        whole, comes = joined(x, context)
        texts: list[str] = []
        spans: list[list[tuple[int, float]]] = []
        for row, own in zip(whole.rows(), comes.tolist(), strict=True):
            texts.append(self._text(row))
            runs = [list(run) for new, run in groupby(range(len(row)), own.__getitem__) if new or pool == "all"]
            cuts = [(run[0], run[-1] + 1) for run in runs]
            spans.append([(self._spelt(row, low, texts[-1]), self._spelt(row, high, texts[-1])) for low, high in cuts])
        encodings = self.tokenizer.encode_batch(texts)
        return [self._reread(encoding, own) for encoding, own in zip(encodings, spans, strict=True)]

    def _spelt(self, tokens: list[int], first: int, text: str) -> int:
        """How many characters of the text the first tokens spell."""
        return _shared(self._text(tokens[:first]), text)

    def _reread(self, encoding: Any, spans: Sequence[tuple[int, float]]) -> Reread:
        """`spans`: from which character of the text to which it is pooled, the last not included."""
        ids, special = list(encoding.ids), encoding.special_tokens_mask
        if not ids:
            raise UserError(
                "The encoder's tokeniser makes no token of a text, not even a special one, so there is nothing to"
                " read: take the tokeniser that was made for this encoder."
            )
        counts = [
            not mark and any(ends > low and starts < high for low, high in spans)
            for mark, (starts, ends) in zip(special, encoding.offsets, strict=True)
        ]
        excess = 0 if self.positions is None else len(ids) - self.positions
        if excess > 0:
            prefix = [at for at, (mark, counted) in enumerate(zip(special, counts, strict=True)) if not mark | counted]
            if not self.cut_prefix or len(prefix) < excess:
                raise UserError(
                    f"A prefix with its continuation takes {len(ids):,} of the encoder's tokens, {sum(counts):,} of"
                    f" them the continuation's, and the encoder has {self.positions:,} positions: make"
                    f" {'the continuation' if self.cut_prefix else 'the prefix'} shorter, or take an encoder with more."
                )
            self.cut += 1
            gone = set(prefix[:excess])
            ids = [token for at, token in enumerate(ids) if at not in gone]
            counts = [counted for at, counted in enumerate(counts) if at not in gone]
        return Reread(ids, counts if any(counts) else [True] * len(ids))

    def _text(self, tokens: list[int]) -> str:
        try:
            return self.spelling.decode(tokens)
        except UserError as error:
            raise UserError(f"The encoder reads text, and these tokens do not spell any: {error}") from None

    def _hidden(self, ids: Int[Tensor, "rows places"], inside: Bool[Tensor, "rows places"]) -> Tensor:
        out = self.network(input_ids=ids, attention_mask=inside.long())
        hidden: Tensor | None = getattr(out, "last_hidden_state", None)
        if hidden is None:
            raise UserError(
                f"{type(self.network).__name__} gives no hidden vectors: take its body alone (network.base_model)."
            )
        return hidden


def _own(tokenizer: Any) -> Any:
    """A copy that neither cuts nor pads: a tokeniser's file may say that it does, and others may tell it to."""
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if isinstance(backend, PretrainedTokeniser):
        own = Tokenizer.from_str(backend.model)
    elif isinstance(backend, Tokenizer):
        own = Tokenizer.from_str(backend.to_str())
    else:
        raise UserError(f"{type(tokenizer).__name__} does not say which characters a token has: take a fast tokeniser.")
    own.no_truncation()
    own.no_padding()
    own.encode_special_tokens = True  # that is: what text spells as a special token is text
    return own


def _positions(network: nn.Module) -> int | None:
    """How many tokens it can read; None where there is no limit, which transformers' XLNet writes as −1."""
    limit: int | None = getattr(network.config, "max_position_embeddings", None)
    if limit is None or limit < 1:
        return None
    known = positions_in_table(network)
    return limit if known is None else known


def _shared(prefix: str, whole: str) -> int:
    """How many characters the prefix has in the whole; the last may change where a character is cut in two."""
    if whole.startswith(prefix):
        return len(prefix)
    return next(at for at, pair in enumerate(zip_longest(prefix, whole)) if pair[0] != pair[1])


class LoadedEncoder(NamedTuple):
    """A network that gives a vector for each token, and its tokeniser."""

    network: nn.Module
    tokeniser: PretrainedTokeniser


def load_encoder(
    where: str | Path, *, device: str | None = None, dtype: Precision | None = None, trust_remote_code: bool = False
) -> LoadedEncoder:
    """The body of an encoder (BERT and its kin) or of a causal model, without its head."""
    network, tokenizer = read_network("AutoModel", where, device, dtype, trust_remote_code)
    return LoadedEncoder(network, PretrainedTokeniser.of(tokenizer))


def keep_layers(network: nn.Module, layers: int) -> None:
    """The lowest layers alone: a smaller encoder with the same beginnings."""
    stack = _layers(network, layers, "kept")
    del stack[layers:]
    config: Any = network.config
    config.num_hidden_layers = layers


def freeze(network: nn.Module, layers: int) -> None:
    """The embeddings and the lowest layers learn no more: cheaper, and less to learn by heart."""
    stack = _layers(network, layers, "frozen")
    network.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
    for part in (*([network.embeddings] if hasattr(network, "embeddings") else []), *stack[:layers]):
        part.requires_grad_(False)


def _layers(network: nn.Module, wanted: int, what: str) -> nn.ModuleList:
    """The stack of a network's layers, which has as many as are wanted."""
    stacks = [part for part in network.modules() if isinstance(part, nn.ModuleList)]
    count = len(stacks[0]) if stacks else 0
    if wanted > count or not stacks:
        raise UserError(f"The encoder has {count} layers, so {wanted} of them cannot be {what}.")
    return stacks[0]
