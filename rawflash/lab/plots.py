"""Pictures to PNG files: the one module that imports matplotlib, and not before a picture is drawn.

Colours are Okabe and Ito's, which people with any colour vision tell apart; markers and dashes say the same again in black and
white. Lines are labelled where they end. The file carries a hash of its data, so that a test can tell an old picture.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rawflash.lab.pictures import Axis, Bars, Chart, HeatMap, Picture, Series

__all__ = ["draw", "picture_hash", "stored_hash", "usable"]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
SIZE, DPI = (7.2, 4.6), 150
_FONT = 9.0
_CAPTION_CHARACTERS, _TITLE_CHARACTERS, _TICK_CHARACTERS = 128, 76, 70


def usable() -> tuple[bool, str]:
    """(True, "") or (False, how to get matplotlib)."""
    from importlib.util import find_spec

    if find_spec("matplotlib"):
        return True, ""
    return False, "pictures are not drawn: matplotlib is not installed (`pip install matplotlib`, or the extra rawflash[plots])"


def picture_hash(picture: Picture) -> str:
    """16 hex digits over everything that the picture shows."""
    return hashlib.sha256(repr(picture).encode()).hexdigest()[:16]


def stored_hash(path: Path) -> str:
    """The hash of the picture that a PNG file was drawn from; "" for any other file."""
    data = path.read_bytes()
    start = data.find(b"rawflash:")
    return data[start + 9 : start + 25].decode("ascii", "replace") if start >= 0 else ""


def draw(picture: Picture, path: Path) -> None:
    """Write `picture` as a PNG of 1080 x 690 dots or a little higher."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    caption, title = textwrap.fill(picture.caption, _CAPTION_CHARACTERS), textwrap.fill(picture.title, _TITLE_CHARACTERS)
    below = 0.125 * (caption.count("\n") + 1) + 0.1
    figure = Figure(figsize=(SIZE[0], SIZE[1] + below), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    above = 0.4 + 0.17 * title.count("\n")
    room = 0.55 + (0.14 * max(group.count("\n") for group in picture.groups) if isinstance(picture, Bars) else 0)
    axes = figure.add_axes((0.105, (below + room) / figure.get_figheight(), 0.865, 1 - (below + room + above) / figure.get_figheight()))
    axes.tick_params(labelsize=_FONT - 1)
    axes.set_title(title, fontsize=_FONT + 2, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if isinstance(picture, Chart):
        _chart(axes, picture)
    elif isinstance(picture, Bars):
        _bars(axes, picture)
    else:
        _heat_map(axes, picture)
    figure.text(0.02, 0.06 / figure.get_figheight(), caption, fontsize=_FONT - 2, color="#444444", va="bottom")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None, "Description": f"rawflash:{picture_hash(picture)}"})


def _axis(axes: Any, which: str, axis: Axis) -> None:
    getattr(axes, f"set_{which}label")(axis.label, fontsize=_FONT)
    if axis.log:
        getattr(axes, f"set_{which}scale")("log", base=int(axis.log))
    if axis.ticks:
        getattr(axes, f"set_{which}ticks")(
            list(axis.ticks), [f"{tick:,.0f}" if tick >= 1e5 else f"{tick:,g}" for tick in axis.ticks], minor=False
        )
        getattr(axes, f"{which}axis").minorticks_off()
    if axis.limits:
        getattr(axes, f"set_{which}lim")(*axis.limits)


# --------------------------------------------------------------------------------------------------------------- charts
def _chart(axes: Any, chart: Chart) -> None:
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    ends = []
    for number, series in enumerate(chart.series):
        index = (number if series.color is None else series.color) % len(COLORS)
        color, marker = COLORS[index], MARKERS[index]
        style: dict[str, Any] = {"color": color, "label": series.label}
        if series.kind == "theory":
            style |= {"linestyle": (0, (4, 3)), "linewidth": 1.0, "alpha": 0.9}
        else:
            style |= {"marker": marker, "markersize": 5, "linewidth": 1.8 if series.kind == "line" else 0}
        axes.plot(list(series.x), list(series.y), **style)
        for x, y, word in zip(series.x, series.y, series.labels, strict=False):
            axes.annotate(word, (x, y), (5, 4), textcoords="offset points", fontsize=_FONT - 2, color=color)
        if len(series.x) and series.label and series.kind != "points":
            ends.append((series, color))
    _axis(axes, "x", chart.x)
    _axis(axes, "y", chart.y)
    if chart.legend:
        axes.legend(fontsize=_FONT - 1, frameon=False)
    else:
        _label_ends(axes, ends)


def _label_ends(axes: Any, ends: Sequence[tuple[Series, str]]) -> None:
    """Write each label to the right of its line's last point, moved apart where they would overlap."""
    position = axes.get_position()
    longest = max((len(series.label) for series, _ in ends), default=0)
    axes.set_position((position.x0, position.y0, position.width - min(0.34, 0.012 * longest), position.height))
    place = axes.transData.transform
    spots = sorted(
        ([place((s.x[-1], s.y[-1]))[1], s, color, place((s.x[-1], s.y[-1]))[0]] for s, color in ends), key=lambda spot: float(spot[0])
    )
    _apart(spots, (_FONT + 1.5) * DPI / 72, axes.bbox.y0, axes.bbox.y1)
    for y, series, color, x in spots:
        real = place((series.x[-1], series.y[-1]))
        offset = (8 + (axes.bbox.x1 - x) * 72 / DPI, (y - real[1]) * 72 / DPI)
        line = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3} if abs(offset[1]) > 6 else None
        axes.annotate(
            series.label, (series.x[-1], series.y[-1]), offset, textcoords="offset points", va="center", fontsize=_FONT - 1, color=color,
            arrowprops=line, annotation_clip=False,
        )  # fmt: skip


def _apart(spots: list[Any], height: float, low: float, high: float) -> None:
    """Move the first entries of `spots`, which are sorted, until neighbours are `height` apart; within low .. high if there is room."""
    for _ in range(200):
        for lower, upper in pairwise(spots):
            push = (height - (upper[0] - lower[0])) / 2
            if push > 0:
                lower[0], upper[0] = lower[0] - push, upper[0] + push
        if spots:
            spots[0][0], spots[-1][0] = max(spots[0][0], low), min(spots[-1][0], high)


# ----------------------------------------------------------------------------------------------------------------- bars
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "--")


def _bars(axes: Any, bars: Bars) -> None:
    width = 0.8 / max(1, len(bars.series))
    for number, (name, values) in enumerate(zip(bars.series, bars.values, strict=True)):
        xs = [g + (number - (len(bars.series) - 1) / 2) * width for g, v in enumerate(values) if v is not None]
        ys = [v for v in values if v is not None]
        look = {"color": COLORS[number % len(COLORS)], "hatch": _HATCHES[number % len(_HATCHES)], "edgecolor": "white", "linewidth": 0.5}
        drawn = axes.bar(xs, ys, width * 0.92, label=name, **look)
        axes.bar_label(drawn, [f"{y:,.3g}" for y in ys], fontsize=_FONT - 2, padding=1)
    axes.set_xticks(range(len(bars.groups)), list(bars.groups), fontsize=_FONT - 1)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(y=0.06 + 0.06 * len(bars.series))  # room for the legend
    _axis(axes, "y", bars.y)
    axes.legend(fontsize=_FONT - 1, frameon=False)


# ------------------------------------------------------------------------------------------------------------- heat map
def _heat_map(axes: Any, heat: HeatMap) -> None:
    import numpy as np
    from matplotlib.patches import Rectangle

    position = axes.get_position()  # row names need room on the left, the colour bar with its words on the right
    left = min(0.4, 0.07 + 0.0095 * max(map(len, heat.rows), default=0))
    axes.set_position((left, position.y0, 0.91 - left, position.height))
    values = np.array([[np.nan if v is None else v for v in row] for row in heat.values], float)
    image = axes.imshow(values, cmap="cividis", aspect="auto")
    low, high = np.nanmin(values), np.nanmax(values)
    for i, row in enumerate(heat.texts):
        for j, text in enumerate(row):
            dark = np.isfinite(values[i, j]) and values[i, j] < (low + high) / 2
            axes.text(j, i, text, ha="center", va="center", fontsize=_FONT - 2, color="white" if dark else "black")
    crowded = max(map(len, heat.columns), default=0) * len(heat.columns) > _TICK_CHARACTERS
    axes.set_xticks(range(len(heat.columns)), list(heat.columns), fontsize=_FONT - (2.5 if crowded else 1))
    axes.set_yticks(range(len(heat.rows)), list(heat.rows))
    _axis(axes, "x", heat.x)
    _axis(axes, "y", heat.y)
    if heat.mark is not None:
        axes.add_patch(Rectangle((heat.mark[1] - 0.5, heat.mark[0] - 0.5), 1, 1, fill=False, edgecolor=COLORS[1], linewidth=2.5))
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(heat.unit, fontsize=_FONT - 1)
    bar.ax.tick_params(labelsize=_FONT - 2)
