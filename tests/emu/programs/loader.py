"""The programs of this folder as modules, compiled once per set of options."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tests.emu.harness import cuda

FOLDER = Path(__file__).parent


def text(name: str) -> str:
    """The source of ``<name>.cu``."""
    return (FOLDER / f"{name}.cu").read_text()


@cache
def program(name: str, *options: str, **kwargs: Any) -> Any:
    """``<name>.cu`` compiled for the emulator."""
    return cuda(text(name), *options, **kwargs)
