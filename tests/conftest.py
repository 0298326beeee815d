"""Under pytest, every shape in a signature is checked while the code runs."""

import gc
import os

from tests.shape_checks import install

# Some virtual machines announce tile instructions (AMX) and then forbid them: bfloat16 would kill the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Importing makes a million objects and no garbage: it is not looked for until all tests are collected, nor in these.
gc.disable()

# The hook must be in place before anything of ebar is imported.
install("ebar")

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from torch import Generator  # noqa: E402

# How busy the machine is must not decide a test: no generated case has a deadline, nor is generating one too slow.
# Continuous integration must not fail for what a change did not touch: there the generated cases are always the same.
# Everywhere else they are new ones every time.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("new"), derandomize=True, print_blob=True)
settings.load_profile("same" if os.environ.get("CI") else "new")

# Several test processes share the cores: one thread each, or they fight over them.
torch.set_num_threads(int(os.environ.get("EBAR_TEST_THREADS", "1")))


# What takes long as a whole comes first: last, it would leave the other processes idle.
FIRST = ("tests/test_what_a_user_writes.py", "tests/test_documentation.py", "tests/training", "tests/recipes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(
        700, 10, 100
    )  # old objects are looked through a tenth as often as usual: it takes a tenth of a second
    gc.enable()


@pytest.fixture
def generator() -> Generator:
    return Generator().manual_seed(20190915)
