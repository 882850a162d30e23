"""What an invocation shows besides its tables: summary.html, and for a sweep pictures over the swept keys.

A picture that cannot be drawn (no matplotlib) costs the picture, not the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rawflash.lab import plots
from rawflash.page import page
from rawflash.report import tables
from rawflash.results import Row, write_text
from rawflash.swept import pictures

__all__ = ["PAGE", "show_rows"]

PAGE = "summary.html"


def show_rows(folder: Path, rows: Sequence[Row], title: str, made_by: str) -> list[Path]:
    """Write summary.html, and for several points pictures; returns the paths. `made_by`: where the numbers come from."""
    images, told = _draw(folder, rows, title) if len({tuple(row.point.items()) for row in rows}) > 1 else ([], "")
    text = page(title, tables(rows, title), images, " ".join(filter(None, [told, made_by])))
    write_text(folder / PAGE, text)
    return [folder / PAGE, *images]


def _draw(folder: Path, rows: Sequence[Row], title: str) -> tuple[list[Path], str]:
    """(PNG files, why there are none or fewer)."""
    usable, why = plots.usable()
    if not usable:
        return [], f"{why[0].upper()}{why[1:]}."
    found, told = pictures(rows, title)
    for picture in found:
        plots.draw(picture, folder / f"{picture.name}.png")
    return [folder / f"{picture.name}.png" for picture in found], told
