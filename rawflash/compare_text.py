"""A comparison as text: tables for people (plain, rich, Markdown), CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from rawflash.side_by_side import Group, Line, best, labels
from rawflash.stored import StoredRun
from rawflash.tables import Column, Table
from rawflash.verdict import RULE, Verdict

__all__ = ["as_csv", "as_json", "as_tables"]

_WORDS = ("better", "worse", "same", "too noisy to tell")
_LONG = 48  # characters of a param or tag in a table; JSON has it all


def as_tables(groups: Sequence[Group], notes: Sequence[str], details: bool, everything: bool) -> list[Table]:
    """The verdicts in one table; with `details` two more per group: what differs, and every metric that is not the same.

    `everything` shows the metrics that are the same as well.
    """
    tables = [_summary(groups, notes if details else [*notes, "Params and metrics one by one: --details."])]
    for group in groups if details else ():
        heads = [Column(label) for label in labels(group.runs)]
        if group.differs:
            cells = [(name, *(_cut(value) for value in values)) for name, values in group.differs.items()]
            tables.append(Table(f"What differs: {group.title}", (Column("param or tag", key=True), *heads), tuple(cells)))
        tables.append(_metrics(group, everything))
    return tables


def _summary(groups: Sequence[Group], notes: Sequence[str]) -> Table:
    columns = [Column(title, key=True) for title in ("compared", "run", "id", "status")]
    columns += [Column(title) for title in (*_WORDS, "first to look at")]
    rows: list[tuple[str, ...]] = []
    told = list(notes)
    for group in groups:
        rows.append((group.title, *_who(group.runs[0]), "", "", "", "", "baseline"))
        for index, run in enumerate(group.runs[1:], 1):
            words = group.count(index)
            rows.append(("", *_who(run), *(str(words[word]) for word in _WORDS), _first(group, index)))
        prefix = f"{group.title}: " if len(groups) > 1 else ""
        told += [prefix + note for note in group.notes]
        name, winners = best(group)
        if name and len(group.runs) > 1:
            told.append(f"{prefix}least {name}: {', '.join(run.name for run in winners)}.")
    return Table("Verdicts", tuple(columns), tuple(rows), (*told, f"{RULE[0].upper()}{RULE[1:]}."))


def _who(run: StoredRun) -> tuple[str, str, str]:
    return run.name, run.run_id[:8], run.status or run.state


def _first(group: Group, index: int) -> str:
    """The one or two metrics that a reader wants first: time and bytes, else the largest change."""
    lines = [line for line in group.lines if line.verdicts[index - 1].ratio not in (None, 1.0)]
    wanted = [line for name in ("time/gpu_ms_median", "io/hbm_total_bytes") for line in lines if line.metric.name == name]
    rest = sorted((line for line in lines if line.verdicts[index - 1].word in ("worse", "better")), key=lambda line: -_size(line, index))
    return ", ".join(f"{line.metric.name} {_times(line.verdicts[index - 1])}" for line in [*wanted, *rest[: 1 - len(wanted)]][:2])


def _size(line: Line, index: int) -> float:
    ratio = line.verdicts[index - 1].ratio
    return abs(math.log(ratio)) if ratio and ratio > 0 else math.inf


def _times(verdict: Verdict) -> str:
    if verdict.ratio is None:
        return verdict.word
    digits = 3 if abs(verdict.ratio - 1) >= 0.005 else 6
    return f"x{verdict.ratio:.{digits}g} {verdict.word}".rstrip()


def _metrics(group: Group, everything: bool) -> Table:
    names = labels(group.runs)
    shown = [line for line in group.lines if everything or any(v.word != "same" for v in line.verdicts) or not line.verdicts]
    cells = []
    for line in shown:
        others = zip(line.values[1:], line.verdicts, strict=True)
        texts = ["-" if value is None else f"{_number(value)}{_aside(verdict)}" for value, verdict in others]
        base = "-" if line.values[0] is None else _number(line.values[0])
        cells.append((line.metric.name, line.metric.unit, line.metric.provenance, base, *texts))
    columns = [Column(title, key=True) for title in ("metric", "unit", "kind")]
    columns += [Column(f"{names[0]} (baseline)"), *(Column(name) for name in names[1:])]
    same = len(group.lines) - len(shown)
    notes = [f"{same} more metrics are the same in all of them (--all shows them)."] if same else []
    reasons = dict.fromkeys(v.why for line in shown for v in line.verdicts if v.word == "too noisy to tell" and v.why)
    notes += [f"Too noisy to tell: {'; '.join(reasons)}."] if reasons else []
    return Table(f"Metrics: {group.title}", tuple(columns), tuple(cells), tuple(notes))


def _aside(verdict: Verdict) -> str:
    said = verdict.word if verdict.word == "same" else _times(verdict)
    return f" ({said})" if said else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) and value == int(value) else f"{value:.4g}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


def as_csv(groups: Sequence[Group]) -> str:
    """One line per group, run and metric; numbers in full."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow("compared run_id run variant status metric unit kind value baseline_run_id baseline_value ratio verdict why".split())
    for group in groups:
        for line in group.lines:
            base = group.runs[0]
            for run, value, verdict in zip(group.runs, line.values, (Verdict("", why="baseline"), *line.verdicts), strict=True):
                m = line.metric
                who = (group.title, run.run_id, run.name, run.variant, run.status or run.state, m.name, m.unit, m.provenance)
                out.writerow(
                    [*who, *map(_exact, (value,)), base.run_id, _exact(line.values[0]), _exact(verdict.ratio), verdict.word, verdict.why]
                )
    return text.getvalue()


def _exact(value: float | None) -> str:
    return "" if value is None else repr(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def as_json(groups: Sequence[Group], notes: Sequence[str], about: dict[str, Any]) -> str:
    """Everything, as one document; NaN and infinities are the texts "nan", "inf" and "-inf"."""
    document = {"format": 1, **about, "rule": RULE, "notes": list(notes), "groups": [_group_json(group) for group in groups]}
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _group_json(group: Group) -> dict[str, Any]:
    name, winners = best(group)
    return {
        "title": group.title,
        "baseline": group.runs[0].run_id,
        "best": {"metric": name, "runs": [run.run_id for run in winners]},
        "notes": list(group.notes),
        "runs": [
            {
                "run_id": r.run_id,
                "name": r.name,
                "variant": r.variant,
                "status": r.status or r.state,
                "started": r.started.isoformat(),
                "params": r.params,
            }
            for r in group.runs
        ],
        "differs": {name: list(values) for name, values in group.differs.items()},
        "metrics": [_line_json(line) for line in group.lines],
    }


def _line_json(line: Line) -> dict[str, Any]:
    m = line.metric
    verdicts = [
        {"verdict": v.word, "ratio": _plain(v.ratio), "interval": v.interval and [_plain(x) for x in v.interval], "why": v.why}
        for v in line.verdicts
    ]
    head = {"name": m.name, "unit": m.unit, "kind": m.provenance, "better": m.better}
    return {**head, "values": [_plain(value) for value in line.values], "verdicts": verdicts}


def _plain(value: float | None) -> float | int | str | None:
    if value is None or (math.isfinite(value) and value != int(value)):
        return value
    return int(value) if math.isfinite(value) else str(value)
