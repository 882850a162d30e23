"""What a sweep shows along its axes: curves for MLflow's charts, and pictures, both chosen from the rows alone.

    no swept key                bars: one per variant
    one number                  curves: one per variant, log-log where the values span more than a factor of 3
    one word                    groups of bars
    two keys                    a heat map per variant
    three keys                  a heat map per variant and value of the third, while there are at most MOST
    more                        none, and a sentence

Variants whose curves are the same are drawn as one line with all their names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from rawflash.lab import Axis, Bars, Chart, HeatMap, Picture, Series
from rawflash.metrics import METRICS, metric, series_name
from rawflash.report import swept
from rawflash.results import Row

__all__ = ["MOST", "Key", "curves", "keys", "pictures"]

MOST = 12  # pictures of one metric
_CURVES = ("io/times_ideal", "io/hbm_total_bytes", "ops/ex2", "time/gpu_ms_median", "perf/tflops")
_MOST_CURVES = 60
_PICTURED = ("io/hbm_total_bytes", "time/gpu_ms_median", "perf/tflops")
_STAND_INS = {"io/hbm_total_bytes": "io/model_bytes"}
_WIDE = 3.0  # values that span more than this factor get a logarithmic axis
_LABEL = 26  # characters of a line's label
_TICKS = 10  # values that are all written below the axis


@dataclass(frozen=True)
class Key:
    """One swept key: its values as they were written, in the order of the sweep, and as numbers (None when one is none)."""

    name: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] | None

    @property
    def short(self) -> str:
        """The last part of the name: problem.N is N."""
        return self.name.rpartition(".")[2]


def keys(rows: Sequence[Row]) -> list[Key]:
    """The keys that the rows vary, apart from the variant; numbers in rising order, words as they came."""
    found = []
    for name in swept(rows):
        values = list(dict.fromkeys(row.point.get(name, "") for row in rows))
        numbers = [_number(value) for value in values]
        if None in numbers:
            found.append(Key(name, tuple(values), None))
        else:
            ranked = sorted(zip(numbers, values, strict=True))  # type: ignore[type-var]
            found.append(Key(name, tuple(v for _, v in ranked), tuple(float(n) for n, _ in ranked)))  # type: ignore[arg-type]
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ------------------------------------------------------------------------------------------------------------------ curves
def curves(rows: Sequence[Row]) -> tuple[dict[str, list[tuple[int, float]]], str]:
    """(name -> (step, value) pairs, a sentence on what a step is); ({}, "") when no number is swept.

    The step is the swept number; of several, the one with most values. Other swept keys are told in the curve's name.
    """
    axes = [key for key in keys(rows) if key.numbers is not None]
    if not axes:
        return {}, ""
    main = max(axes, key=lambda key: len(key.values))
    steps, told = _steps(main)
    others = [key for key in keys(rows) if key.name != main.name]
    found: dict[str, dict[int, float]] = {}
    for wanted in _CURVES:
        name = wanted if _has(rows, wanted) else _STAND_INS.get(wanted, wanted)
        for row in rows:
            if row.ok and math.isfinite(row.metrics.get(name, math.nan)):
                label = " ".join([row.variant, *(f"{key.short} {row.point.get(key.name, '')}" for key in others)])
                found.setdefault(series_name(name, label), {})[steps[row.point[main.name]]] = row.metrics[name]
        if len(found) > _MOST_CURVES:
            break
    shown = {name: sorted(points.items()) for name, points in list(found.items())[:_MOST_CURVES]}
    return shown, told


def _steps(key: Key) -> tuple[dict[str, int], str]:
    """Value -> step of MLflow's charts, which are whole numbers."""
    assert key.numbers is not None
    if all(number == int(number) and abs(number) < 2**53 for number in key.numbers):
        return {v: int(n) for v, n in zip(key.values, key.numbers, strict=True)}, f"the step is {key.name}"
    told = ", ".join(f"{i}: {value}" for i, value in enumerate(key.values))
    return {value: i for i, value in enumerate(key.values)}, f"the step numbers the values of {key.name} ({told})"


# ---------------------------------------------------------------------------------------------------------------- pictures
def pictures(rows: Sequence[Row], title: str) -> tuple[list[Picture], str]:
    """(pictures of bytes, and of time and speed where they were measured; a sentence when some or all are left out)."""
    found: list[Picture] = []
    told = ""
    axes = keys(rows)
    for wanted in _PICTURED:
        name = wanted if _has(rows, wanted) else _STAND_INS.get(wanted, wanted)
        if not _has(rows, name):
            continue
        figure = _figure(name, rows)
        if not axes:
            found.append(_bars(figure, None, title))
        elif len(axes) == 1:
            found.append((_chart if axes[0].numbers is not None else _bars)(figure, axes[0], title))
        else:
            maps, told = _maps(figure, axes, title)
            found += maps
    return found, told


def _has(rows: Sequence[Row], name: str) -> bool:
    return any(row.ok and math.isfinite(row.metrics.get(name, math.nan)) for row in rows)


@dataclass(frozen=True)
class _Figure:
    """A metric as it is drawn: `head` names it with unit and provenance, `values` are one per row of `rows`, in that unit."""

    name: str
    head: str
    rows: tuple[Row, ...]
    values: tuple[float, ...]

    def only(self, wanted: Sequence[Row]) -> _Figure:
        """The same for some of the rows."""
        kept = [(row, value) for row, value in zip(self.rows, self.values, strict=True) if row in wanted]
        return replace(self, rows=tuple(row for row, _ in kept), values=tuple(value for _, value in kept))


def _figure(name: str, rows: Sequence[Row]) -> _Figure:
    """The right rows that have a finite value; bytes in the decimal unit that suits the largest."""
    m = metric(name)
    shown = tuple(row for row in rows if row.ok and math.isfinite(row.metrics.get(name, math.nan)))
    values = tuple(row.metrics[name] for row in shown)
    unit, scale = m.unit, 1.0
    if unit == "bytes":
        unit, scale = next(((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if max(values) >= f), ("B", 1.0))
    what = {
        "io/hbm_total_bytes": "HBM bytes, read + written",
        "io/model_bytes": "HBM bytes, read + written",
        "time/gpu_ms_median": "median time",
    }
    return _Figure(name, f"{what.get(name, name)} ({unit}), {m.provenance}", shown, tuple(value / scale for value in values))


def _file(name: str, *words: str) -> str:
    """The stem of the file: hbm_total_bytes_fa2."""
    return "_".join([name.rpartition("/")[2], *("".join(c if c.isalnum() or c in ".-" else "_" for c in word) for word in words)])


def _variants(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.variant for row in rows))


def _chart(figure: _Figure, key: Key, title: str) -> Chart:
    places = dict(zip(key.values, key.numbers or (), strict=True))
    lines: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for variant in _variants(figure.rows):
        points = [(places[row.point[key.name]], v) for row, v in zip(figure.rows, figure.values, strict=True) if row.variant == variant]
        lines.setdefault(tuple(sorted(points)), []).append(variant)
    series = [Series(_together(names), [x for x, _ in points], [y for _, y in points]) for points, names in lines.items()]
    x = Axis(key.name, log="2" if _wide(key.numbers or ()) else "", ticks=(key.numbers or ()) if len(key.values) <= _TICKS else ())
    y = Axis(figure.head, log="10" if _wide(figure.values) else "")
    equal = "; ".join(", ".join(names) for names in lines.values() if len(names) > 1)
    caption = f"{title}. The same line: {equal}." if equal else f"{title}."
    return Chart(_file(figure.name), f"{figure.head}, over {key.name}", x, y, series, caption)


def _wide(values: Sequence[float]) -> bool:
    """True when a logarithmic axis suits."""
    return bool(values) and min(values) > 0 and max(values) > _WIDE * min(values)


def _together(names: Sequence[str]) -> str:
    whole = ", ".join(names)
    return whole if len(whole) <= _LABEL else f"{names[0]} and {len(names) - 1} more"


def _bars(figure: _Figure, key: Key | None, title: str) -> Bars:
    variants = _variants(figure.rows)
    cells = {(row.variant, row.point.get(key.name, "") if key else ""): v for row, v in zip(figure.rows, figure.values, strict=True)}
    y = Axis(figure.head, log="10" if _wide(figure.values) else "")
    if key is None:
        return Bars(_file(figure.name), figure.head, variants, y, [figure.head], [[cells[v, ""] for v in variants]], f"{title}.")
    values = [[cells.get((variant, value)) for value in key.values] for variant in variants]
    return Bars(_file(figure.name), f"{figure.head}, by {key.name}", key.values, y, variants, values, f"{title}.")


def _maps(figure: _Figure, axes: Sequence[Key], title: str) -> tuple[list[Picture], str]:
    """One heat map per variant and combination of the keys beyond the two with most values."""
    down, across = sorted(sorted(axes, key=lambda key: -len(key.values))[:2], key=axes.index)
    rest = [key for key in axes if key.name not in (across.name, down.name)]
    combinations = list(product(_variants(figure.rows), *(key.values for key in rest)))
    if len(rest) > 1 or len(combinations) > MOST:
        names = ", ".join(key.name for key in axes)
        return [], (
            f"No pictures: {len(axes)} swept keys ({names}) and {len(_variants(figure.rows))} variants would take {len(combinations)} "
            "heat maps; open the parallel-coordinates chart of the UI, or sweep fewer keys at once."
        )
    found: list[Picture] = []
    for variant, *fixed in combinations:
        here = dict(zip([key.name for key in rest], fixed, strict=True))
        mine = [r for r in figure.rows if r.variant == variant and all(r.point.get(k) == v for k, v in here.items())]
        if mine:
            found.append(_map(figure.only(mine), across, down, here, title))
    return found, ""


def _map(figure: _Figure, across: Key, down: Key, here: Mapping[str, str], title: str) -> HeatMap:
    places = [(row.point.get(down.name, ""), row.point.get(across.name, "")) for row in figure.rows]
    cells = dict(zip(places, figure.values, strict=True))
    mark, told = None, "A dash: not valid, or not right."
    # Between problems of different size there is no best one.
    if not any(key.name.startswith("problem.") for key in (across, down)):
        best = (min if METRICS[figure.name].better == "lower" else max)(cells, key=lambda place: cells[place])
        mark, told = (down.values.index(best[0]), across.values.index(best[1])), f"Framed: the best. {told}"
    variant, fixed = figure.rows[0].variant, [f"{key.rpartition('.')[2]}={value}" for key, value in here.items()]
    return HeatMap(
        name=_file(figure.name, variant, *fixed),
        title=f"{' '.join([variant, *fixed])}: {figure.head}",
        x=Axis(across.name),
        y=Axis(down.name),
        columns=across.values,
        rows=down.values,
        values=[[cells.get((d, a)) for a in across.values] for d in down.values],
        texts=[[f"{cells[d, a]:.3g}" if (d, a) in cells else "-" for a in across.values] for d in down.values],
        unit=figure.head,
        caption=f"{title}. {told}",
        mark=mark,
    )
