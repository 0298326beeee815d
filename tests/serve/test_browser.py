"""The page in Chromium, driven by playwright: all checks of `browser`, in a process of their own."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = {"gradio": "pip install 'ebar[web]'", "playwright": "pip install playwright"}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium on this machine")
def test_the_page_does_in_a_browser_what_it_says() -> None:
    for package, way in NEEDED.items():
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: {way}")
    # Packages of the page and of the browser warn of their own future, and leave sockets to the end of the process.
    words = [sys.executable, "-W", "ignore", "-m", "tests.serve.browser"]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    failures = json.loads(done.stdout.splitlines()[-1])
    assert failures == {}, "\n".join(failures.values())
