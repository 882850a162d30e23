"""What the rows of a run say, as tables: one row per variant, bytes per tensor, growth along a swept size.

Numbers come from rows alone (rawflash.results.Row), so that a report can be made again from a results.json.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rawflash.metrics import TENSORS
from rawflash.results import Row
from rawflash.tables import Column, Table, markdown, si

__all__ = ["comparison", "growth", "report_markdown", "tables", "tensor_bytes"]

_BASELINE = "naive"


@dataclass(frozen=True)
class _Figure:
    """One column of the comparison. `value` takes the row and the baseline row of its point (None when there is none).

    `stand_in` names the column that this one replaces where that one has nothing: a modelled figure for a counted one.
    """

    title: str
    kind: str
    value: Callable[[Row, Row | None], float | None]
    text: Callable[[float], str]
    stand_in: str = ""


def _metric(name: str) -> Callable[[Row, Row | None], float | None]:
    return lambda row, base: row.metrics.get(name)


def _sum(*names: str) -> Callable[[Row, Row | None], float | None]:
    def total(row: Row, base: Row | None) -> float | None:
        present = [row.metrics[name] for name in names if name in row.metrics]
        return sum(present) if present else None

    return total


def _over(name: str, below: str) -> Callable[[Row, Row | None], float | None]:
    return lambda row, base: row.metrics[name] / row.metrics[below] if name in row.metrics and row.metrics.get(below) else None


def _to_baseline(name: str, inverse: bool = False) -> Callable[[Row, Row | None], float | None]:
    def ratio(row: Row, base: Row | None) -> float | None:
        mine, theirs = row.metrics.get(name), base.metrics.get(name) if base else None
        return None if not mine or not theirs else theirs / mine if inverse else mine / theirs

    return ratio


def _bytes(value: float) -> str:
    return si(value, "B")


def _ratio(value: float) -> str:
    return f"{value:#.3g}" if abs(value) < 100 else f"{value:.0f}"


_FIGURES = (
    _Figure("HBM read", "counted", _metric("io/hbm_read_bytes"), _bytes),
    _Figure("HBM write", "counted", _metric("io/hbm_write_bytes"), _bytes),
    _Figure("HBM r+w", "modelled", _metric("io/model_bytes"), _bytes, stand_in="HBM read"),
    _Figure("x ideal", "counted", _metric("io/times_ideal"), _ratio),
    _Figure("x ideal", "modelled", _over("io/model_bytes", "io/ideal_bytes"), _ratio, stand_in="HBM read"),
    _Figure("/ naive", "counted", _to_baseline("io/hbm_total_bytes"), _ratio),
    _Figure("/ naive", "modelled", _to_baseline("io/model_bytes"), _ratio, stand_in="HBM read"),
    _Figure("ex2", "counted", _metric("ops/ex2"), si),
    _Figure("div", "counted", _sum("ops/div", "ops/rcp"), si),
    _Figure("rescale", "counted", _metric("ops/rescale_mul"), si),
    _Figure("confl", "counted", _metric("smem/bank_conflicts"), si),
    _Figure("regs", "counted", _metric("res/registers"), si),
    _Figure("SMEM", "counted", _metric("res/smem_bytes"), lambda v: f"{v / 1024:.4g}Ki"),
    _Figure("FLOP", "modelled", _metric("ops/flops"), si),
    _Figure("err", "checked", _metric("err/ratio"), _ratio),
    _Figure("ms", "measured", _metric("time/gpu_ms_median"), lambda v: f"{v:#.4g}"),
    _Figure("TFLOP/s", "measured", _metric("perf/tflops"), _ratio),
    _Figure("GB/s", "measured", _metric("perf/gb_s"), _ratio),
    _Figure("speedup", "measured", _to_baseline("time/gpu_ms_median", inverse=True), _ratio),
)

_NOTES = {
    "counted": "counted: exact, by executing the kernels' PTX (regs and SMEM: by the compiler); confl = SMEM bank conflicts",
    "modelled": "modelled: a formula (FLOP = 2*B*H*(d + dv)*visible pairs)",
    "checked": "checked: err = error against float64 / tolerance, right when <= 1",
    "measured": "measured: on the GPU; GB/s = modelled bytes / measured time",
}


def swept(rows: Sequence[Row]) -> list[str]:
    """Names of the inputs that differ between points, in the order in which they were given; the variant is not one."""
    names: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.point.items():
            names.setdefault(name, set()).add(value)
    return [name for name, values in names.items() if len(values) > 1]


def _point(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(row.point.get(name, "") for name in names)


def _baseline(row: Row, rows: Sequence[Row]) -> Row | None:
    """The naive row to compare with: the one of the same point, else (naive refuses this tile) another one on the same problem."""

    def problem(r: Row) -> dict[str, str]:
        return {name: value for name, value in r.params.items() if name.startswith(("problem.", "gpu.", "backend."))}

    right = [r for r in rows if r.variant == _BASELINE and r.ok and problem(r) == problem(row)]
    return next((r for r in right if r.point == row.point), right[0] if right else None)


def comparison(rows: Sequence[Row], title: str) -> Table:
    """One row per variant and point; columns that no row fills are left out."""
    names = swept(rows)
    bases = [_baseline(row, rows) for row in rows]
    values = [[figure.value(row, base) if row.metrics else None for row, base in zip(rows, bases, strict=True)] for figure in _FIGURES]
    known = [(figure, column) for figure, column in zip(_FIGURES, values, strict=True) if any(v is not None for v in column)]
    counted = {figure.title for figure, _ in known if not figure.stand_in}
    shown = [(figure, column) for figure, column in known if figure.stand_in not in counted]
    columns = [Column("variant", key=True), *(Column(_short(n), key=True) for n in names), Column("status", key=True)]
    columns += [Column(figure.title, figure.kind) for figure, _ in shown]
    cells = [
        (row.variant, *_point(row, names), row.status, *("" if column[i] is None else figure.text(column[i]) for figure, column in shown))  # type: ignore[arg-type]
        for i, row in enumerate(rows)
    ]
    kinds = dict.fromkeys(figure.kind for figure, _ in shown)
    notes = [f"{row.status} {_label(row, names)}: {row.sentence}" for row in rows if not row.ok]
    return Table(title, tuple(columns), tuple(cells), (*notes, *(_NOTES[kind] for kind in kinds)))


def tensor_bytes(rows: Sequence[Row]) -> Table | None:
    """HBM bytes (read + written) per tensor: counted and modelled side by side; None when no row moved anything."""
    names = swept(rows)
    rows = [row for row in rows if row.tensors]
    present = [t for t in TENSORS if any(entry["name"] == t for row in rows for entry in row.tensors)]
    if not present:
        return None
    columns = [Column("variant", key=True), *(Column(_short(n), key=True) for n in names), Column("bytes", key=True)]
    cells: list[tuple[str, ...]] = []
    for row in rows:
        counted, modelled = ({e["name"]: _total(e, kind) for e in row.tensors} for kind in ("counted", "modelled"))
        lines = [("counted = modelled", counted)] if counted == modelled else [("counted", counted), ("modelled", modelled)]
        for label, amounts in lines:
            known = [v for v in amounts.values() if v is not None]
            if known:
                texts = ["" if amounts.get(t) is None else f"{amounts[t]:,}" for t in present]
                cells.append((row.variant, *_point(row, names), label, *texts, f"{sum(known):,}"))
    return Table("HBM bytes per tensor (read + written)", (*columns, *(Column(t) for t in present), Column("total")), tuple(cells))


def growth(rows: Sequence[Row]) -> Table | None:
    """Along one swept size: how often the bytes of each tensor grew from one point to the next. None for any other sweep."""
    names = [name for name in swept(rows) if name.startswith("problem.")]
    if len(swept(rows)) != 1 or len(names) != 1:
        return None
    present = [t for t in TENSORS if any(entry["name"] == t for row in rows for entry in row.tensors)]
    cells: list[tuple[str, ...]] = []
    for variant in dict.fromkeys(row.variant for row in rows):
        mine = [row for row in rows if row.variant == variant and row.ok and row.tensors]
        for before, after in pairwise(mine):
            old, new = ({e["name"]: _best(e) for e in row.tensors} for row in (before, after))
            ratios = ["" if not old.get(t) or t not in new else f"{new[t] / old[t]:.4g}" for t in present]
            total = f"{sum(new.values()) / sum(old.values()):.4g}" if sum(old.values()) else ""
            cells.append((variant, f"{before.point[names[0]]} -> {after.point[names[0]]}", *ratios, total))
    columns = (Column("variant", key=True), Column(_short(names[0]), key=True), *(Column(t) for t in present), Column("total"))
    return Table(f"Growth of the bytes with {names[0]} (times)", columns, tuple(cells)) if cells else None


def tables(rows: Sequence[Row], title: str) -> list[Table]:
    """Everything that a run prints."""
    return [table for table in (comparison(rows, title), tensor_bytes(rows), growth(rows)) if table is not None]


def report_markdown(rows: Sequence[Row], title: str, made_by: str) -> str:
    """All tables as one Markdown document; its last line, `made_by`, says where the numbers come from."""
    return "\n".join([*(markdown(table) for table in tables(rows, title)), made_by, ""])


def _total(entry: dict[str, int | None], kind: str) -> int | None:
    read, write = entry.get(f"{kind}_read"), entry.get(f"{kind}_write")
    return None if read is None and write is None else (read or 0) + (write or 0)


def _best(entry: dict[str, int | None]) -> int:
    counted = _total(entry, "counted")
    return (_total(entry, "modelled") or 0) if counted is None else counted


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _label(row: Row, names: Sequence[str]) -> str:
    return " ".join([row.variant, *(f"{_short(n)}={row.point.get(n, '')}" for n in names)])
