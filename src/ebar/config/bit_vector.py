"""Document 000's seven features of a motif, chosen by the bit vector ft."""

from ebar.errors import UserError

NAMES = ("m", "m+0", "m/2", "d0", "d1", "d2", "d3")


def terms_of(motif: str, bits: str) -> list[str]:
    """The features F = {m, m₊₀, m_/2, d₀ … d₃} whose bit is 1, as terms; each is 0 where it is present, as there.

    The "random" strings d₁ … d₃ are fixed and periodic, and d₀ is 0 where the string starts with 1 (the document's
    text says 0), both as in the authors' code.
    """
    if len(bits) != len(NAMES) or set(bits) - {"0", "1"} or "1" not in bits:
        raise UserError(
            f"ft is {len(NAMES)} bits, one for each of {', '.join(NAMES)}, at least one of them 1: {bits!r}."
        )
    if set(motif) - {"0", "1"}:
        raise UserError(f"ft names features of a motif over 0 and 1, which {motif!r} is not: give features instead.")
    size = len(motif)
    features = [
        f"!motif:{motif}",
        f"!motif:{motif}0",
        f"!motif:{motif[: size // 2]}",
        "!starts_with:1",
        f"!motif:{_periodic('10101', size)}",
        f"!motif:{_periodic('1001001', size + 2)}",
        f"!motif:{_periodic('00110011', size // 2)}",
    ]
    return [feature for feature, bit in zip(features, bits, strict=True) if bit == "1"]


def _periodic(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]
