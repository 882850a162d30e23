"""FlashAttention-2, -3 and -4: formulas, counts and verdicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rawflash.experiments import _rates, fa2_fig4, fa2_work, fa3_tab3, fa4_cycles, fa4_lazy
from rawflash.lab import Verdict
from rawflash.problem import Problem
from rawflash.tiling import Tiling
from tests.experiments.labs import A100, Timed, lab_of, rows_of


def test_work_besides_the_products_falls_from_fa1_to_fa2(tmp_path: Path) -> None:
    lab = lab_of(
        "fa2_work",
        tmp_path,
        kernels=["fa1", "fa2"],
        sizes=[[64, 32]],
        block=16,
        causal_kernels=["fa2"],
        causal_sizes=[[128, 32]],
        tolerance=0.1,
    )
    work, skipped = ([row for row in rows_of("fa2_work", lab) if row.table == table] for table in (fa2_work.WORK, fa2_work.SKIPPED))
    other = {row.keys["kernel"]: row.cells["other"].number for row in work}
    assert other["fa2"] < other["fa1"] and [row.verdict for row in work] == [None, Verdict.REPRODUCED]
    rescale = {row.keys["kernel"]: row.cells["rescale"].value for row in work}
    assert rescale["fa2"] == 64 * 4 * (32 + 4)  # each of 4 key tiles: 32 elements of O, and l in the 4 lanes that hold a row
    assert skipped[0].cells["tiles, causal"].value == 36 and skipped[0].verdict is Verdict.REPRODUCED


def test_causal_tiles() -> None:
    assert fa2_work.causal_tiles(16384, Tiling(128, 128)) == (128 * 128, 128 * 129 // 2)
    assert fa2_work.causal_tiles(256, Tiling(64, 32)) == (32, 2 + 4 + 6 + 8)


def test_nominal_rates_count_half_under_a_mask() -> None:
    full, half = (_rates.nominal_flops(_rates.grid_problem(512, 64, causal)) for causal in (False, True))
    assert full == 4 * 16384 * 512 * 2048 == 2 * half


def test_figures_of_rates_wait_for_a_gpu(tmp_path: Path) -> None:
    panel = lab_of("fa2_fig4", tmp_path).options["panels"][0]
    forward = {**panel, "passes": "forward", "tile": [32, 32]}
    lab = lab_of("fa2_fig4", tmp_path, N=[512], panels=[{**panel, "tile": [32, 32]}, forward])
    rows = rows_of("fa2_fig4", lab)
    assert [row.verdict for row in rows] == [Verdict.NEEDS_GPU] * 2
    assert all(0 < row.cells["fa2_pipe, speed of light"].number <= 312 for row in rows)
    timed = rows_of("fa2_fig4", Timed(lab.options, A100, memo=lab.memo))
    assert [row.verdict for row in timed] == [Verdict.NOT_COMPARABLE, Verdict.DIFFERS]
    assert timed[0].cells["fa2_pipe, forward"].value == pytest.approx(4 * 16384 * 512 * 2048 / 1e9)
    (chart, forward_chart) = fa2_fig4.pictures(lab, rows)
    assert chart.name == "fa2_fig4_forward_and_backward" and forward_chart.name == "fa2_fig4_forward"
    assert [series.kind for series in forward_chart.series] == ["points", "theory"]


def test_outliers_are_one_in_a_thousand() -> None:
    p = Problem(B=1, H=2, N=256, d=64, seed=3)
    drawn = fa3_tab3.outliers(p)
    plain = np.random.default_rng([3, 0]).standard_normal(p.shape_q)
    wild = drawn["Q"] != plain
    assert 0.0005 < wild.mean() < 0.002 and 7 < (drawn["Q"] - plain)[wild].std() < 13
    assert fa3_tab3.rmse(np.array([1.0, 3.0]), np.array([0.0, 0.0])) == pytest.approx(np.sqrt(5))


def test_fp32_softmax_errs_less_than_the_baseline(tmp_path: Path) -> None:
    lab = lab_of("fa3_tab3", tmp_path, N=128, H=1, d=32, block=16, kernels=["unfused", "fa2_mma"], dtypes=["fp16"])
    rows = {row.keys["kernel"]: row for row in rows_of("fa3_tab3", lab)}
    assert rows["fa2_mma"].verdict is Verdict.REPRODUCED
    assert rows["unfused"].verdict is rows["FlashAttention-3"].verdict is Verdict.NOT_COMPARABLE
    for row in (rows["unfused"], rows["fa2_mma"]):
        assert 0 < row.cells["RMSE, kernel"].number < row.cells["RMSE, whole"].number < 1e-3


def test_cycles_are_the_printed_ones() -> None:
    assert fa4_cycles.forward_cycles(128, 128, 128) == {"MMA": 1024, "shared memory": 768, "exponential": 1024}
    assert fa4_cycles.forward_cycles(256, 128, 128) == {"MMA": 2048, "shared memory": 1536, "exponential": 2048}
    one, two = (list(fa4_cycles.backward_cycles(128, 128, 128, ctas).values()) for ctas in (1, 2))
    assert one == [2560, 2048, 256, 1024, 1024] and two == [2560, 1536, 256, 512, 1024]


def test_the_polynomial_is_as_good_as_its_coefficients() -> None:
    printed, _ = fa4_cycles.polynomial_error([1, 0.6951, 0.2276, 0.0771], 1 << 12)
    kernel, mean = fa4_cycles.polynomial_error([1, 0.6951461434, 0.2275643945, 0.0771190897], 1 << 12)
    assert printed == pytest.approx(1.0e-4, rel=0.01) and kernel == pytest.approx(8.77e-5, rel=0.01) and mean < kernel


def test_a_tile_of_fa2_pipe_needs_one_exponential_per_score(tmp_path: Path) -> None:
    lab = lab_of("fa4_cycles", tmp_path, d=16, side=32)
    ours = {row.keys["resource"]: row for row in fa4_cycles._ours(lab)}
    assert ours["exponential"].cells["per tile"].value == 32 * 32 + 4 * 32  # alpha, in the 4 lanes that hold a row


def test_lazy_rescaling_skips_and_polynomials_move(tmp_path: Path) -> None:
    options = {
        "N": 128,
        "d": 16,
        "block": 16,
        "distributions": ["randn"],
        "thresholds": [None, 8],
        "shares": [0.0, 0.5],
        "degrees": [3],
    }
    rows = rows_of("fa4_lazy", lab_of("fa4_lazy", tmp_path, **options, as_good=0.6))
    rescale = [row.cells["rescale multiplications"].value for row in rows if row.table == fa4_lazy.RESCALE]
    assert rescale[0] == 128 * 8 * (16 + 4) and rescale[1] == 0
    assert [row.cells["ex2"].value for row in rows if row.table == fa4_lazy.POLY] == [128 * 128, 128 * 128 // 2]
    assert [row.verdict for row in rows] == [None, Verdict.REPRODUCED, None, Verdict.REPRODUCED, Verdict.REPRODUCED]
    assert rows[-1].cells["FMAs per exponential"].number == pytest.approx(3, abs=0.1)
    (strict,) = [r for r in rows_of("fa4_lazy", lab_of("fa4_lazy", tmp_path, **options, as_good=0)) if r.table == fa4_lazy.DEGREE]
    assert strict.verdict is Verdict.DIFFERS
