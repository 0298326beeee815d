"""How a journey ends early."""


class Interrupted(Exception):  # noqa: N818 — nothing went wrong
    """A stage was asked to stop. What it has done is saved: the same call goes on."""
