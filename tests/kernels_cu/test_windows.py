"""Sliding windows and softcap on every variant: right, with exactly the modelled bytes, what is hidden reaches nothing, and no race."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawflash.emu import EmuParams
from rawflash.paths import kernels_dir
from rawflash.problem import Problem, make_inputs, to_f64
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import mismatches, run
from tests.kernels_cu.mma import launch

# Each row is one compilation per variant: a band that cuts both ends, a window behind the causal diagonal, one that late rows have left.
MASKS: list[dict[str, Any]] = [
    {"window_left": 3, "window_right": 2, "softcap": 0.75},
    {"causal": "bottom_right", "window_left": 21},
    {"causal": "top_left", "window_left": 9, "dtype": "bf16"},
]
SIZES = [(1, 1), (1, 20), (17, 33), (40, 7), (33, 90), (90, 40)]
every_variant = pytest.mark.parametrize("name", LADDER)


def small(N: int, Nkv: int, **more: Any) -> Problem:
    return Problem(**{"B": 1, "H": 2, "Hkv": 1, "N": N, "Nkv": Nkv, "d": 16, "dtype": "fp16", **more})


@every_variant
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: "-".join(map(str, mask.values())))
def test_right_with_the_modelled_bytes(name: str, mask: dict[str, Any]) -> None:
    for N, Nkv in SIZES:
        problem = small(N, Nkv, **mask, seed=N)
        result = run(name, problem, Tiling(32, 16))
        assert not mismatches(result), (N, Nkv)
        assert result.metrics["smem/bank_conflicts"] == 0, (N, Nkv)
        blind = problem.visible_keys() == 0
        assert (result.outputs["LSE"][0, 0] == -np.inf).tolist() == blind.tolist()
        assert (to_f64(result.outputs["O"], problem.dtype)[0, 0, blind] == 0).all()


@every_variant
@pytest.mark.parametrize("wild", [np.nan, np.inf])
def test_keys_outside_of_the_window_reach_nothing(name: str, wild: float) -> None:
    """Left of it and right of it, in tiles that are met all the same: rows that do not see a wild key keep their bits."""
    problem = small(40, 40, window_left=3, window_right=2, softcap=0.75)
    clean = make_inputs(problem)
    dirty = {tensor: x.copy() for tensor, x in clean.items()}
    dirty["K"][0, 0, 21], dirty["V"][0, 0, 21] = wild, wild
    with np.errstate(invalid="ignore", over="ignore"):
        was, now = (run(name, problem, Tiling(32, 16), inputs=inputs).outputs for inputs in (clean, dirty))
    begin, end = problem.visible()
    hidden = (begin > 21) | (end <= 21)
    for tensor in ("O", "LSE"):
        assert was[tensor][:, :, hidden].tobytes() == now[tensor][:, :, hidden].tobytes()
    assert np.isnan(now["O"][:, :, ~hidden]).all() if np.isnan(wild) else not np.isfinite(now["O"][:, :, ~hidden]).any()


@every_variant
@pytest.mark.parametrize("N", [1, 33])
def test_a_lone_row_does_not_see_the_rest_of_its_tile(name: str, N: int) -> None:
    """A tile that all rows see, and see only in part: one row, on either side of its interval a wild value."""
    problem = small(N, 40, causal="top_left", window_left=0)
    inputs = {tensor: x.copy() for tensor, x in make_inputs(problem).items()}
    inputs["V"][0, 0, [x for x in (N - 2, N) if x >= 0]] = np.nan
    O = to_f64(run(name, problem, Tiling(32, 16), inputs=inputs).outputs["O"], "fp16")
    assert np.isfinite(O[:, :, N - 1]).all()


@every_variant
def test_same_bits_in_any_order_and_no_race(name: str) -> None:
    problem = small(49, 70, window_left=3, window_right=2, softcap=0.75)
    first = run(name, problem, Tiling(32, 16)).outputs
    for params in (EmuParams(racecheck=True), EmuParams(order_seed=1), EmuParams(order_seed=2)):
        again = run(name, problem, Tiling(32, 16), params).outputs
        assert all(first[key].tobytes() == again[key].tobytes() for key in ("O", "LSE"))


@every_variant
def test_a_window_that_hides_nothing_is_no_window(name: str) -> None:
    free, wide = (LADDER[name].plan(small(9, 20, **more), Tiling(32, 16)) for more in ({}, {"window_left": 19, "window_right": 8}))
    assert free.defines == wide.defines
    narrow = LADDER[name].plan(small(9, 20, window_left=18, window_right=7), Tiling(32, 16)).defines
    assert (narrow["RF_WINDOW_LEFT"], narrow["RF_WINDOW_RIGHT"]) == (18, 7)


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [
        ("rf_mask.cuh", "facing(i) - LEFT, Nkv", "facing(i) - LEFT + 1, Nkv"),
        ("rf_mask.cuh", "+ 1 + RIGHT)", "+ RIGHT)"),
        ("rf_mask.cuh", "begin(first) / Bc * Bc", "begin(last) / Bc * Bc"),
        ("rf_mask.cuh", "? max(0, mask.begin(row0 + r) - key0) : 0", "? 0 : 0"),
        ("rf_score.cuh", "CAP * tanhf", "tanhf"),
    ],
)
@pytest.mark.parametrize("name", ["fa2", "fa2_pipe"])
def test_a_wrong_mask_or_score_is_noticed(name: str, header: str, right: str, wrong: str, tmp_path: Path) -> None:
    """The problem of the grid above, on headers with one slip each."""
    copy = shutil.copytree(kernels_dir(), tmp_path / "kernels_cu")
    slip = copy / "include" / header
    text = slip.read_text("utf-8")
    assert text.count(right) == 1
    slip.write_text(text.replace(right, wrong), "utf-8")
    problem = small(33, 90, **MASKS[0])
    good, bad = (
        launch(name, problem, make_inputs(problem), Tiling(32, 16), source=read_source(LADDER[name].file, x)) for x in (None, copy)
    )
    assert good["LSE"].tobytes() != bad["LSE"].tobytes()
