"""Files as MLflow's UI can show them: it decides by the ending, and knows neither .cu nor .ptx."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["shown_as", "viewable"]

# Endings that the UI shows as text, Markdown, pages or pictures; every other file gets .txt behind its name.
_KNOWN = {".txt", ".log", ".yaml", ".json", ".md", ".html", ".csv", ".png", ".svg"}
_SOURCES = {".cu", ".cuh"}


def shown_as(name: str) -> str:
    """Where a file of a run's folder goes: fa2.cu is source/fa2.cu.txt, kernel.ptx is kernel.ptx.txt, traffic.md stays."""
    ending = Path(name).suffix
    name = name if ending in _KNOWN else f"{name}.txt"
    return f"source/{name}" if ending in _SOURCES else name


@contextlib.contextmanager
def viewable(folder: Path) -> Iterator[Path]:
    """A temporary copy of the files in `folder` under names that can be looked at in a browser."""
    with tempfile.TemporaryDirectory() as made:
        for path in folder.iterdir():
            if path.is_file():
                target = Path(made, shown_as(path.name))
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target)
        yield Path(made)
