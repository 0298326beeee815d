"""A process of its own for what is to be killed or interrupted: forked, for to import torch takes seconds."""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NamedTuple


class Ended(NamedTuple):
    """How a process ended, and what it printed."""

    code: int  # minus the signal that killed it, as `subprocess` has it
    out: str
    error: str


def in_a_process_of_its_own(function: Callable[[], int | None]) -> Ended:
    """The function in a copy of this process, whose exit code is what it returns, 0 for None."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(error.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                code = function() or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, error):
            file.seek(0)
            texts.append(file.read().decode())
    return Ended(code, *texts)
