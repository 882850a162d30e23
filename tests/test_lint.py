"""Style and types of the whole tree, so that the tests alone say whether a change is clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("command", [("ruff", "check", "."), pytest.param(("mypy",), marks=pytest.mark.slow)], ids=lambda c: c[0])
def test_nothing_to_complain_about(command: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
