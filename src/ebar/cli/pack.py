r"""`ebar pack`: the tokens of a text that is larger than memory, on disk.

Make the tokeniser of a text and write its tokens to the folder data.cache, where `ebar train` with the same data finds
them: a text is cut into shards that many processes encode. Run it again to go on where it was stopped. The result is
the same on any number of processes.

Example:
    ebar pack --data.train big.txt --data.tokeniser bpe --data.cache packed --backend joblib
    ebar train --data.kind text --data.train big.txt --data.validation small.txt --data.cache packed \
        --data.tokeniser_file packed/tokeniser/tokeniser.json --training.shuffle_block 1024
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ebar.cli.show import show_json
from ebar.config.reader import Answer, Chosen, Manual, choice, read
from ebar.data import DATA
from ebar.data.text import TextData, pack
from ebar.errors import UserError
from ebar.progress import shown
from ebar.shards import Workers

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class PackConfig(Answer, Workers):
    """Which text, and where it is encoded."""

    data: Chosen = choice(DATA, "text")


def main(words: Sequence[str]) -> int:
    """The tokeniser, then the tokens; what is there already is read."""
    config = read(words, MANUAL, PackConfig)
    data = DATA.make(config.data.kind, config.data.options)
    if not isinstance(data, TextData):
        raise UserError(f"Only data of kind text are packed beforehand, not {config.data.kind}: leave out data.kind.")
    begun = time.monotonic()
    with shown(not config.json):
        packed, tokeniser = pack(data, workers=config)
    if config.json:
        about = {"folder": str(packed.folder), "windows": len(packed), "tokeniser": str(tokeniser)}
        show_json({**about, "seconds": time.monotonic() - begun})
    else:
        sys.stdout.write(f"{len(packed):,} windows of {packed.length:,} tokens in {packed.folder}\n{tokeniser}\n")
    return 0
