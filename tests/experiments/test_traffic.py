"""What grows how with N: the verdicts, on short rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rawflash.experiments import traffic
from rawflash.lab import Chart, Picture, Row, Verdict

SHORT = {"N": [64, 256], "kernels": ["naive", "fa2"], "d": 32, "block": 32, "l2_kib": 64, "l2_N": [64, 256]}


def test_scores_grow_16_times_tiles_too_and_the_least_4_times(rows_of: Callable[..., list[Row]]) -> None:
    rows = rows_of("traffic", **SHORT)
    growth = {str(row.keys["what"]): row for row in rows if row.table == traffic.GROWTH}
    assert growth["naive: S and P"].cells["times"].number == 16
    assert growth["least possible: Q, K, V read, O written"].cells["times"].number == 4
    fa2 = growth["fa2: all HBM bytes"]
    tiles = {N: 2 * N * N * 32 * 2 / 32 + 2 * N * 32 * 2 + 4 * N for N in (64, 256)}
    assert fa2.cells["times"].number == tiles[256] / tiles[64] > 8
    assert (fa2.verdict, fa2.cells["times"].provenance) == (
        Verdict.DIFFERS,
        "counted",
    ) and "a smaller factor, not a smaller power" in fa2.reason
    assert growth["fa2: DRAM bytes behind an L2 of 64 KiB"].verdict is Verdict.REPRODUCED
    flops = [row for row in rows if row.table == traffic.FLOPS]
    assert len({row.cells["multiply-adds"].number for row in flops}) == 1
    assert {row.verdict for row in rows if row.table in (traffic.BYTES, traffic.FLOPS)} == {Verdict.REPRODUCED}


def test_the_leading_terms_are_those_of_the_closed_forms(run_experiment: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    """At large N each dashed line is the closed form to a few percent."""
    from rawflash.io_model import hbm_bytes, total_bytes
    from rawflash.problem import Problem
    from rawflash.tiling import Tiling

    for kernel, leading in traffic._LEADING.items():
        N, d, block = 8192, 64, 64
        form = total_bytes(hbm_bytes(kernel, Problem(1, 1, N, d), Tiling(block, block)))
        assert leading(d, 2, block) * N * N == pytest.approx(form, rel=0.02), kernel
    _, (chart,) = run_experiment("traffic", **SHORT)
    assert isinstance(chart, Chart)
    assert [s.label.split()[0] for s in chart.series if s.label] == ["naive", "fa2", "least"]
