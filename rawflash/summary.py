"""What an invocation leaves behind in its folder: one table over all rows, and the rows again in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rawflash.gallery import show_rows
from rawflash.provenance import about, made_by
from rawflash.report import report_markdown
from rawflash.results import RESULTS, TABLE, Row, write_results, write_text

__all__ = ["write_summary"]


def write_summary(folder: Path, rows: Sequence[Row], title: str, arguments: Sequence[str], backend: dict[str, str]) -> list[Path]:
    """results.json, table.md and what there is to look at, of a whole invocation; returns the paths."""
    write_results(folder / RESULTS, rows, about(arguments, backend))
    made = made_by(arguments, [row.tags for row in rows])
    write_text(folder / TABLE, report_markdown(rows, title, made))
    return [folder / RESULTS, folder / TABLE, *show_rows(folder, rows, title, made)]
