"""How long work ends early."""


class Interrupted(KeyboardInterrupt):
    """A stage was asked to stop. What it has done is saved: the same call goes on."""
