"""The joint automaton of everything an energy follows along the prefix, and of the last few tokens."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.features.feature import Feature, Followed
from ebar.types import Space

LARGEST_TABLE = 2**26  # states × classes or × places: half a gigabyte of float64
LARGEST_MEMORY = 2**22  # the same, where remembering recent classes is what makes it large: a choice, not a need
SMALL_VOCABULARY = 64  # up to here every token is a class of its own


@dataclass(frozen=True, slots=True)
class JointStates:
    """States are what matters of a prefix: where each feature's automaton stands, and the last `order` classes.

    A class holds the tokens that move every automaton alike, so tables are as wide as there are classes, not as
    the vocabulary. In a small vocabulary each token is its own class, so that an n-gram over classes is one over
    tokens; the end token always is. State 0 is the start. Only states reachable within the space's length exist.
    """

    space: Space
    features: tuple[Feature, ...]  # those followed
    order: int  # how many of the last classes a state remembers
    class_of: Int[Tensor, " vocabulary"]
    successor: Int[Tensor, "states classes"]  # of the end class: the state itself, nothing comes after
    accepted: Float[Tensor, "features states"]  # φ, were the sequence to stop here
    recent: Int[Tensor, " states"]  # the last `order` classes, read in base 1 + classes, 0 for none
    reach: int | None = None  # where there are gaps: tokens of the longest text, given ones between them included

    @property
    def end_class(self) -> int | None:
        return None if self.space.end is None else int(self.class_of[self.space.end])

    @property
    def class_sizes(self) -> Int[Tensor, " classes"]:
        """How many tokens there are in each class."""
        return torch.bincount(self.class_of, minlength=self.successor.shape[1])

    def scores(self, energy: Linear) -> Float[Tensor, " states"]:
        """Σ λφ over the followed features, were the sequence to stop in this state."""
        total = torch.zeros(len(self.recent), dtype=torch.float64, device=self.recent.device)
        for feature, coefficient in _terms(energy):
            if feature in self.features:
                accepted = self.accepted[self.features.index(feature)]
                total = total + torch.where(accepted == 0, 0.0, coefficient * accepted)
        return total

    def open(self, energy: Linear) -> Bool[Tensor, "places states"]:
        """Whether what follows still matters to Σ λφ, for 0 … length tokens that have been read; never after the last.

        It does wherever a feature is not followed; else where two ends that can be reached have different scores. A
        motif that has come decides 'contains' and nothing else; of several features all must be decided.
        """
        length, end = self.space.length, self.end_class
        shape = (length + 1, len(self.recent))
        found = torch.ones(shape, dtype=torch.bool, device=self.recent.device)
        found[length] = False
        if any(feature not in self.features for feature in energy.features.features):
            return found
        scores = self.scores(energy)
        least = most = scores
        for place in reversed(range(length)):
            nexts = [table[self.successor] for table in (least, most)]
            if end is not None:
                for table in nexts:
                    table[:, end] = scores  # the text may stop here
                if place == length - 1:
                    nexts = [table[:, end : end + 1] for table in nexts]
            least, most = nexts[0].amin(1), nexts[1].amax(1)
            found[place] = least < most
        return found

    def others_bound(self, energy: Linear) -> float:
        """The least upper bound of Σ λφ over the features not followed that their ranges allow."""
        others = [(feature, coefficient) for feature, coefficient in _terms(energy) if feature not in self.features]
        return math.fsum(0.0 if c == -math.inf else max(c * f.low, c * f.high) for f, c in others)


def joint_states(
    energy: Linear, space: Space, *, order: int, device: torch.device, reach: int | None = None
) -> JointStates:
    """The joint automaton of the energy's features, with as much of `order` as its table has room for.

    `reach`: how many tokens are read at most, where given ones stand between those of the space.
    """
    longest = space.length if reach is None else reach
    features: tuple[Feature, ...] = ()
    for feature in energy.features.features:
        if isinstance(feature, Followed) and feature not in features:
            features += (feature,)
    if not features:
        raise UserError(
            "Looking ahead needs a feature that an automaton can follow, such as a motif or a regular expression: "
            "add one, or use importance."
        )
    automata = [feature.automaton for feature in features if isinstance(feature, Followed)]
    read = [_read(automaton, space, feature.name) for feature, automaton in zip(features, automata, strict=True)]
    class_of, moves = _classes([(letter.to(device), table.to(device)) for letter, table in read], space)
    starts = torch.tensor([automaton.start for automaton in automata], device=device)
    end_class = None if space.end is None else int(class_of[space.end])
    classes = moves[0].shape[1]
    while order > 0 and classes**order * max(classes, longest) > LARGEST_MEMORY:
        order -= 1
    while (walked := _reachable(moves, starts, longest, order, end_class)) is None:
        if order == 0:
            raise UserError(
                f"The joint automaton of {len(features)} features has over {LARGEST_TABLE:,} entries in a table of "
                "states by places or kinds of tokens: follow fewer features, or simpler ones."
            )
        order -= 1
    places, successor = walked
    accepted = [automaton.accepting.to(device)[places[:, column]].double() for column, automaton in enumerate(automata)]
    return JointStates(space, features, order, class_of, successor, torch.stack(accepted), places[:, -1], reach)


def no_states(space: Space, device: torch.device) -> JointStates:
    """One state, where no automaton follows anything; the end is a class of its own."""
    class_of = torch.zeros(space.vocabulary, dtype=torch.long, device=device)
    if space.end is not None:
        class_of[space.end] = 1
    successor = torch.zeros(1, 1 + (space.end is not None), dtype=torch.long, device=device)
    return JointStates(
        space, (), 0, class_of, successor, torch.zeros(0, 1, dtype=torch.float64, device=device), successor[:, 0]
    )


def _terms(energy: Linear) -> list[tuple[Feature, float]]:
    return list(zip(energy.features.features, energy.coefficients.tolist(), strict=True))


Read = tuple[Int[Tensor, " vocabulary"], Int[Tensor, "states letters"]]  # an automaton: letters of tokens, moves


def _read(automaton: Dfa, space: Space, name: str) -> Read:
    """With a letter for the end token, which is no part of a string, where the automaton has none."""
    letter, moves = (torch.from_numpy(part).long() for part in automaton.compressed())
    if space.end == len(letter) == space.vocabulary - 1:
        still = torch.arange(len(moves))[:, None]
        return torch.cat([letter, torch.tensor([moves.shape[1]])]), torch.cat([moves, still], 1)
    if len(letter) != space.vocabulary:
        raise UserError(
            f"Feature {name!r} reads {len(letter)} tokens but the model has {space.vocabulary}: "
            "build the feature over the model's vocabulary."
        )
    return letter, moves


def _classes(read: list[Read], space: Space) -> tuple[Int[Tensor, " vocabulary"], list[Int[Tensor, "_ classes"]]]:
    """The class of every token, and where each class leads each automaton."""
    tokens = torch.arange(space.vocabulary, device=read[0][0].device)
    if space.vocabulary <= SMALL_VOCABULARY:
        return tokens, [moves[:, letter] for letter, moves in read]
    code = (tokens == space.end).long() if space.end is not None else torch.zeros_like(tokens)
    for letter, moves in read:
        code = torch.unique(code * moves.shape[1] + letter, return_inverse=True)[1]
    # Tokens of one code are alike; codes may be alike, too, and classes are in the order of their columns.
    token = torch.zeros(int(code.max()) + 1, dtype=torch.long, device=tokens.device).scatter(0, code, tokens)
    columns = [moves[:, letter[token]] for letter, moves in read]
    ends = [(token == space.end).long()[None]] if space.end is not None else []
    distinct, class_of = torch.unique(torch.cat([*columns, *ends]), dim=1, return_inverse=True)
    return class_of[code], list(distinct[: sum(map(len, columns))].split([len(column) for column in columns]))


def _reachable(
    moves: list[Int[Tensor, "_ classes"]],
    starts: Int[Tensor, " automata"],
    length: int,
    order: int,
    end_class: int | None,
) -> tuple[Int[Tensor, "states automata_and_recent"], Int[Tensor, "states classes"]] | None:
    """Breadth first from the start, a whole frontier at a time; None when there are too many states."""
    classes = moves[0].shape[1]
    radix = (classes + 1) ** order
    sizes = [len(table) for table in moves] + [radix]
    if math.prod(sizes) >= 2**62:
        return None
    digit = torch.arange(classes, device=starts.device)

    def encode(where: Tensor) -> Tensor:
        code = torch.zeros_like(where[..., 0])
        for column, size in enumerate(sizes):
            code = code * size + where[..., column]
        return code

    frontier = torch.cat([starts, starts.new_zeros(1)])[None]
    found, known = frontier, encode(frontier)  # in order of discovery
    successors = []
    for _ in range(length):
        followers = [table[frontier[:, column]] for column, table in enumerate(moves)]
        followers.append((frontier[:, -1:] * (classes + 1) + digit + 1) % radix)
        after = torch.stack(followers, -1)
        if end_class is not None:
            after[:, end_class] = frontier
        codes = encode(after)
        successors.append(codes)
        fresh = torch.unique(codes)
        fresh = fresh[~torch.isin(fresh, known)]
        if len(fresh) == 0:
            break
        known = torch.cat([known, fresh])
        if len(known) * max(classes, length) > (LARGEST_MEMORY if order else LARGEST_TABLE):
            return None
        frontier = _decode(fresh, sizes)
        found = torch.cat([found, frontier])
    else:
        # The last frontier stands after the last token: where it would go from there is never asked.
        successors.append(encode(frontier)[:, None].expand(-1, classes))
    ranked, order_of = known.sort()
    codes = torch.cat(successors)
    return found, order_of[torch.searchsorted(ranked, codes)]


def _decode(codes: Int[Tensor, " states"], sizes: list[int]) -> Int[Tensor, "states digits"]:
    digits = []
    for size in reversed(sizes):
        digits.append(codes % size)
        codes = codes // size
    return torch.stack(digits[::-1], 1)
