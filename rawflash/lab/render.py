"""From rows to tables, Markdown, CSV and JSON. Nothing here computes a number.

    results/<experiment>.md     claim, verdicts, tables, notes, pictures, and the line that says who made it
    results/<experiment>.csv    one line per cell
    results/<experiment>.json   everything, exact; read_report reads it back

A page for browsers is made by rawflash.page from the same tables.

Units and provenance stand in the head of a column, or in its cells where they differ.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rawflash.lab.cells import PROVENANCES, Cell, Row, Verdict
from rawflash.lab.experiment import Experiment
from rawflash.results import plain_json
from rawflash.tables import Column, Table, markdown

__all__ = ["Report", "cell_text", "csv_text", "json_text", "markdown_text", "read_report", "report_tables", "summary", "verdict_counts"]


@dataclass
class Report:
    """One experiment's outcome. `pictures`: file name -> title; `made`: command, commit, versions, date; `failed`: cases in error."""

    name: str
    title: str
    claim: str
    source: str
    rows: list[Row]
    notes: tuple[str, ...] = ()
    pictures: dict[str, str] = field(default_factory=dict)
    made: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    failed: int = 0

    @classmethod
    def of(cls, name: str, experiment: Experiment) -> Report:
        """An empty report."""
        return cls(name, experiment.title, experiment.claim, experiment.source, [], experiment.notes)


def verdict_counts(rows: Sequence[Row]) -> dict[Verdict, int]:
    """How many rows have each verdict; verdicts that none has are left out."""
    found = Counter(row.verdict for row in rows if row.verdict is not None)
    return {verdict: found[verdict] for verdict in Verdict if found[verdict]}


def counts_text(rows: Sequence[Row]) -> str:
    """ "3 REPRODUCED, 1 DIFFERS", or "no claim to check"."""
    return ", ".join(f"{n} {verdict}" for verdict, n in verdict_counts(rows).items()) or "no claim to check"


# --------------------------------------------------------------------------------------------------------------- tables
_LONG = 48  # characters: a longer reason stands below its table


def cell_text(cell: Cell) -> str:
    """The value alone, as a person reads it; a missing one by its note."""
    value = cell.value
    if value is None:
        return cell.note
    if isinstance(value, str):
        return value
    if value == int(value) if abs(value) < 1e15 else False:
        whole = f"{int(value):,}"
        if cell.digits is None or len(whole.replace(",", "")) <= cell.digits:
            return whole
    text = f"{value:,.{cell.digits or 4}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e9 else text


def _columns(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    keys = list(dict.fromkeys(key for row in rows for key in row.keys))
    return keys, list(dict.fromkeys(title for row in rows for title in row.cells))


def _shared(rows: Sequence[Row], title: str, name: str) -> str:
    """The unit or provenance that all numbers of a column have, else ""."""
    found = {getattr(row.cells[title], name) for row in rows if title in row.cells and row.cells[title].value is not None}
    found = found or {getattr(row.cells[title], name) for row in rows if title in row.cells}
    return found.pop() if len(found) == 1 else ""


def _full_text(cell: Cell, unit: str, kind: str) -> str:
    """A cell with what its column's head does not say."""
    text = cell_text(cell)
    if cell.value is None:
        return text
    text += f" {cell.unit}" if cell.unit and cell.unit != unit else ""
    return text + (f" ({cell.provenance})" if cell.provenance and cell.provenance != kind else "")


def _table(rows: Sequence[Row], title: str) -> Table:
    keys, titles = _columns(rows)
    judged, told = any(row.verdict for row in rows), any(row.reason for row in rows)
    units = {t: _shared(rows, t, "unit") for t in titles}
    kinds = {t: _shared(rows, t, "provenance") for t in titles}
    columns = [Column(key, key=True) for key in keys]
    columns += [Column(f"{t}, {units[t]}" if units[t] else t, kinds[t]) for t in titles]
    columns += [Column("verdict", key=True)] * judged + [Column("why")] * told
    cells, notes = [], list(dict.fromkeys(row.reason for row in rows if len(row.reason) > _LONG))
    for row in rows:
        texts = [str(row.keys.get(key, "")) for key in keys]
        texts += [_full_text(row.cells[t], units[t], kinds[t]) if t in row.cells else "" for t in titles]
        why = f"note {notes.index(row.reason) + 1}" if row.reason in notes else row.reason
        cells.append((*texts, *[row.verdict or ""] * judged, *[why] * told))
    return Table(title, tuple(columns), tuple(cells), tuple(f"note {i}: {note}" for i, note in enumerate(notes, 1)))


def _by_row(rows: Sequence[Row]) -> Sequence[Row]:
    """Rows that are of one kind each, in columns that are not: the kind becomes a key and the cells words, so that it is said once."""
    kinds = [{cell.provenance for cell in row.cells.values()} for row in rows]
    columns = [{row.cells[title].provenance for row in rows if title in row.cells} for title in _columns(rows)[1]]
    if all(len(column) == 1 for column in columns) or any(len(kind) != 1 for kind in kinds):
        return rows
    return [
        replace(
            row,
            keys={**row.keys, "kind": kind.pop()},
            cells={title: Cell(_full_text(c, "", c.provenance)) for title, c in row.cells.items()},
        )
        for row, kind in zip(rows, kinds, strict=True)
    ]


def report_tables(report: Report) -> list[Table]:
    """One table per `Row.table`, in the order in which they were met."""
    groups: dict[str, list[Row]] = {}
    for row in report.rows:
        groups.setdefault(row.table, []).append(row)
    return [_table(_by_row(rows), title or report.title) for title, rows in groups.items()]


def summary(reports: Sequence[Report]) -> Table:
    """One row per experiment: its verdicts, and the file that holds its tables."""
    columns = (Column("experiment", key=True), *(Column(verdict.lower()) for verdict in Verdict), Column("tables"))
    counts = [verdict_counts(report.rows) for report in reports]
    rows = [
        (report.name, *(str(found.get(verdict, "")) for verdict in Verdict), f"{report.name}/{report.name}.md")
        for report, found in zip(reports, counts, strict=True)
    ]
    return Table("Rows by verdict", columns, tuple(rows))


# ---------------------------------------------------------------------------------------------------------------- texts
def _legend(rows: Sequence[Row]) -> list[str]:
    used = {cell.provenance for row in rows for cell in row.cells.values()}
    notes = dict.fromkeys(
        f"{title} {' '.join(map(str, row.keys.values()))}: {cell.note}"
        for row in rows
        for title, cell in row.cells.items()
        if cell.note and cell.value is not None
    )
    return [*notes, *(f"{kind}: {meaning}" for kind, meaning in PROVENANCES.items() if kind in used)]


def markdown_text(report: Report) -> str:
    """The result file that people read."""
    lines = [f"# {report.name}: {report.title}", "", f"Claim ({report.source}): {report.claim}", "", f"**{counts_text(report.rows)}**", ""]
    for file, caption in report.pictures.items():
        lines += [f"![{caption}]({file})", ""]
    for table in report_tables(report):
        lines += [markdown(table), ""]
    lines += [f"- {note}" for note in (*report.notes, *_legend(report.rows))]
    return "\n".join([*lines, "", report.made, ""])


def csv_text(report: Report) -> str:
    """One line per cell: table, keys, column, value, unit, provenance, note, verdict, why."""
    keys = _columns(report.rows)[0]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", *keys, "column", "value", "unit", "provenance", "note", "verdict", "why"])
    for row in report.rows:
        head = [row.table, *(row.keys.get(key, "") for key in keys)]
        for title, cell in row.cells.items():
            value = "" if cell.value is None else cell.value
            writer.writerow([*head, title, value, cell.unit, cell.provenance, cell.note, row.verdict or "", row.reason])
    return out.getvalue()


def json_text(report: Report) -> str:
    """Everything, with exact numbers."""
    return json.dumps(plain_json({"format": 1, **asdict(report)}), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def read_report(path: Path) -> Report:
    """The report of a .json that json_text wrote."""
    told = json.loads(path.read_text("utf-8"))
    told.pop("format")
    told["rows"] = [_row(entry) for entry in told["rows"]]
    told["notes"] = tuple(told["notes"])
    return Report(**told)


_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # as plain_json writes what JSON has no number for


def _row(entry: Mapping[str, Any]) -> Row:
    cells = {title: Cell(**{**cell, "value": _ODD.get(cell["value"], cell["value"])}) for title, cell in entry["cells"].items()}
    verdict = Verdict(entry["verdict"]) if entry["verdict"] else None
    return Row(entry["keys"], cells, verdict, entry["reason"], entry["table"])
