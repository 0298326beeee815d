"""An entry of a table, made from its options."""

from collections.abc import Mapping
from typing import Any

from ebar.config.reader import Chosen
from ebar.errors import UserError, choose


def make(table: Mapping[str, Any], chosen: Chosen, what: str, **provided: Any) -> Any:
    """An entry of a table, with its options and what only we can provide; a value it refuses is a user's error."""
    try:
        return choose(table, chosen.kind, what)(**provided, **chosen.options)
    except (ValueError, RuntimeError, OverflowError) as error:
        raise UserError(f"The {what} {chosen.kind} cannot be made: {error}.") from None
