"""FlashAttention-2, Figure 4: rates on an A100, beside the speed of light of the forward kernel here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rawflash.experiments._rates import panel_row, series_of
from rawflash.lab import Axis, Chart, Experiment, Lab, Picture, Row, Series

__all__ = ["EXPERIMENT", "NOTES", "cases", "pictures", "rows"]

NOTES = (
    "Rates are nominal: 4 N^2 d per head, half of it under a causal mask, times 3.5 for forward and backward.",
    "Speed of light: counted on a few tiles, extended, over the data sheet; nothing waits, so a real kernel stays below it.",
    "16384 tokens, hidden size 2048, fp16. The kernel here is a forward one; a printed rate of forward and backward is another quantity.",
)


def cases(lab: Lab) -> Sequence[Any]:
    """Every length of every panel."""
    return [(panel, N) for panel in lab.options["panels"] for N in lab.options["N"]]


def rows(lab: Lab, case: Any) -> Iterable[Row]:
    """One row per case."""
    panel, N = case
    yield panel_row(lab, panel, N, "")


def pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    """A chart for forward, one for forward and backward: printed rates as points, the speed of light as dashed lines."""
    o = lab.options
    for passes in dict.fromkeys(str(row.keys["passes"]) for row in rows):
        mine = [row for row in rows if row.keys["passes"] == passes]
        points = [Series(f"{panel}: paper", N, y, kind="points", color=c) for c, (panel, N, y) in enumerate(series_of(mine, "paper"))]
        light = enumerate(series_of(mine, f"{o['kernel']}, speed of light"))
        lines = [Series(f"{panel}: {o['kernel']}, speed of light", N, y, kind="theory", color=c) for c, (panel, N, y) in light]
        yield Chart(
            f"{o['picture']}_{passes.replace(' ', '_')}",
            f"{o['title']}: {passes}",
            Axis("N (queries = keys)", "2", o["N"]),
            Axis("nominal TFLOP/s, published and modelled", limits=(0, o["top"])),
            [*points, *lines],
            f"Points: published. Dashed: modelled for {o['kernel']}, forward, from counts and the data sheet of {o['gpu']}.",
            legend=True,
        )


EXPERIMENT = Experiment(
    title="Rates on an A100",
    claim="FlashAttention-2 reaches up to 73% of an A100's tensor peak forward, and 203 TFLOP/s forward and backward.",
    source="FlashAttention-2, Figure 4",
    rows=rows,
    cases=cases,
    pictures=pictures,
    notes=NOTES,
)
