"""Pictures as data: what rawflash.lab.plots draws. An experiment makes these and never meets the plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Axis", "Bars", "Chart", "HeatMap", "Picture", "Series"]


@dataclass(frozen=True)
class Axis:
    """`label` with its unit and provenance: "HBM bytes, counted (MiB)". `ticks` are written as they are; none: automatic."""

    label: str
    log: Literal["", "2", "10"] = ""
    ticks: Sequence[float] = field(default=())
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Series:
    """One set of points, labelled beside its last point ("": not labelled).

    kind    line (markers on a line: counted, measured), theory (thin dashed line without markers: modelled), points (markers alone)
    color   index into the palette; series that belong together share one. None: the next one
    labels  a word beside each point (optional, as many as points)
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: Literal["line", "theory", "points"] = "line"
    color: int | None = None
    labels: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Chart:
    """Lines and points. `caption` stands below: where the numbers come from. `legend`: a box instead of labels at the lines."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    caption: str
    legend: bool = False


@dataclass(frozen=True)
class Bars:
    """Groups of bars: values[series][group]; a number is written on each bar. None leaves a gap."""

    name: str
    title: str
    groups: Sequence[str]
    y: Axis
    series: Sequence[str]
    values: Sequence[Sequence[float | None]]
    caption: str


@dataclass(frozen=True)
class HeatMap:
    """values[row][column], each with its text; None is an empty field (not feasible). `mark` frames one field (row, column)."""

    name: str
    title: str
    x: Axis
    y: Axis
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]
    unit: str
    caption: str
    mark: tuple[int, int] | None = None


Picture = Chart | Bars | HeatMap
