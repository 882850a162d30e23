"""Tables as data, and three ways to write them: aligned plain text, Markdown, and rich for a terminal.

A column says what kind of number it holds (counted, modelled, measured, checked); every rendering shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Column", "Table", "fit", "markdown", "plain", "print_rich", "si"]

GAP = 2
_DITTO = '"'
_MIND = ("INVALID", "DIFFERS", "NOT COMPARABLE", "NEEDS GPU")  # words that ask for attention, but tell no failure


@dataclass(frozen=True)
class Column:
    """`kind` is the provenance of the numbers ("" for names); `key` columns are repeated when a table is split."""

    title: str
    kind: str = ""
    key: bool = False


@dataclass(frozen=True)
class Table:
    """Cells are finished texts, "" where there is nothing to say. `notes` stand below."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def widths(self) -> list[int]:
        """Characters that each column needs."""
        heads = [max(len(c.title), len(k)) for c, k in zip(self.columns, _kinds(self.columns), strict=True)]
        return [max([head, *(len(row[i]) for row in self.rows)]) for i, head in enumerate(heads)]

    def take(self, indices: Sequence[int], title: str, notes: tuple[str, ...]) -> Table:
        """The table of some columns only."""
        rows = tuple(tuple(row[i] for i in indices) for row in self.rows)
        return replace(self, title=title, columns=tuple(self.columns[i] for i in indices), rows=rows, notes=notes)


def si(value: float, unit: str = "", digits: int = 3) -> str:
    """`value` with a decimal prefix (k = 1e3, M = 1e6, G = 1e9), `digits` significant digits: 1.05 MB, 524k. Small integers stay whole."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor * (1 - 0.5 * 10.0**-digits):
            return f"{_digits(value / factor, digits)}{' ' if unit else ''}{prefix}{unit}"
    text = str(int(value)) if value == int(value) else _digits(value, digits)
    return f"{text} {unit}" if unit else text


def _digits(value: float, digits: int) -> str:
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 1
    return f"{value:.{max(0, digits - whole)}f}"


def fit(table: Table, width: int) -> list[Table]:
    """Split a table that is wider than `width` characters into several, each with the key columns."""
    keys = [i for i, c in enumerate(table.columns) if c.key]
    others = [i for i, c in enumerate(table.columns) if not c.key]
    size = table.widths
    base = sum(size[i] + GAP for i in keys) - GAP
    parts: list[list[int]] = [[]]
    for i in others:
        if parts[-1] and base + sum(size[j] + GAP for j in [*parts[-1], i]) > width:
            parts.append([])
        parts[-1].append(i)
    last = len(parts) - 1
    return [
        table.take([*keys, *part], table.title if n == 0 else f"{table.title} (continued)", table.notes if n == last else ())
        for n, part in enumerate(parts)
    ]


def plain(table: Table) -> str:
    """Aligned text without colours: title, header, provenance, rows, notes."""
    widths = table.widths
    lines = [table.title, "", _line([c.title for c in table.columns], widths, table)]
    if any(c.kind for c in table.columns):
        lines.append(_line(_kinds(table.columns), widths, table))
    lines.append((" " * GAP).join("-" * w for w in widths))
    lines += [_line(row, widths, table) for row in table.rows]
    lines += ["", *table.notes] if table.notes else []
    return "\n".join(lines) + "\n"


def markdown(table: Table) -> str:
    """A Markdown table; the provenance stands in each header."""
    heads = [f"{c.title} ({c.kind})" if c.kind else c.title for c in table.columns]
    rules = [":--" if c.key else "--:" for c in table.columns]
    lines = [f"### {table.title}", ""]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (heads, rules, *table.rows)]
    lines += ["", *(f"- {_plain_stars(note)}" for note in table.notes)] if table.notes else []
    return "\n".join(lines) + "\n"


def _plain_stars(text: str) -> str:
    """Markdown would take the stars of 2*B*H*(d + dv) for emphasis."""
    return text.replace("*", "\\*")


def print_rich(table: Table, console: Console) -> None:
    """Print to a terminal, split where it is too narrow."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    for part in fit(table, console.width):
        console.print(Text(part.title, style="bold"), soft_wrap=True)
        grid = RichTable(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False)
        kinds = _kinds(part.columns)
        for column, kind in zip(part.columns, kinds, strict=True):
            head = Text(column.title, style="bold")
            if any(kinds):
                head.append(f"\n{kind}", style="not bold dim")
            grid.add_column(head, justify="left" if column.key else "right", no_wrap=True)
        for row in part.rows:
            grid.add_row(*(Text(cell, style=_style(cell)) for cell in row))
        console.print(grid)
        console.print()
    for note in table.notes:
        console.print(Text(note, style="dim"), soft_wrap=True)


def _style(cell: str) -> str:
    return "green" if cell in ("OK", "REPRODUCED") else "yellow" if cell in _MIND else "red" if cell.isupper() and len(cell) > 6 else ""


def _kinds(columns: Sequence[Column]) -> list[str]:
    """The provenance line: each kind once, then ditto marks."""
    marks: list[str] = []
    for i, column in enumerate(columns):
        again = i > 0 and column.kind and columns[i - 1].kind == column.kind
        marks.append(_DITTO if again else column.kind)
    return marks


def _line(cells: Sequence[str], widths: Sequence[int], table: Table) -> str:
    padded = [cell.ljust(w) if c.key else cell.rjust(w) for cell, w, c in zip(cells, widths, table.columns, strict=True)]
    return (" " * GAP).join(padded).rstrip()
