"""Windows, softcap, layouts and dv on every variant: right, with exactly the modelled bytes; what is hidden reaches nothing; no race."""

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
from tests.kernels_cu.ladder import backend, mismatches, run
from tests.kernels_cu.mma import launch

# Each row is one compilation per variant: a band that cuts both ends; a window that late rows have left, in the other layout, dv beside d;
# a window behind the causal diagonal.
BAND: dict[str, Any] = {"window_left": 3, "window_right": 2, "softcap": 0.75}
SIDE_BY_SIDE: dict[str, Any] = {"causal": "top_left", "window_left": 9, "dtype": "bf16", "layout": "bnhd", "dv": 40}
BEHIND: dict[str, Any] = {"causal": "bottom_right", "window_left": 21, "dv": 8, "d": 32}
CONFIGS = [pytest.param(BAND, id="band"), pytest.param(SIDE_BY_SIDE, id="bnhd"), pytest.param(BEHIND, id="behind", marks=pytest.mark.slow)]
SIZES = [(1, 1), (1, 20), (17, 33), (40, 7), (33, 90), (90, 40)]
every_variant = pytest.mark.parametrize("name", LADDER)


def small(N: int, Nkv: int, **more: Any) -> Problem:
    return Problem(**{"B": 2, "H": 4, "Hkv": 2, "N": N, "Nkv": Nkv, "d": 16, "dtype": "fp16", **more})


@every_variant
@pytest.mark.parametrize("config", CONFIGS)
def test_right_with_the_modelled_bytes(name: str, config: dict[str, Any]) -> None:
    for N, Nkv in SIZES:
        problem = small(N, Nkv, **config, seed=N)
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
    problem = small(40, 40, **BAND)
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


@pytest.mark.parametrize("name", ["naive", "fa1", "fa2_pipe"])
def test_no_race(name: str) -> None:
    assert run(name, small(49, 70, B=1, **BAND), Tiling(32, 16), EmuParams(racecheck=True)).ok


@every_variant
def test_side_by_side_heads_that_no_vector_load_can_read(name: str) -> None:
    """One element off: a scalar path in every tensor, the same bits."""
    problem, tiling, device = small(33, 40, **SIDE_BY_SIDE), Tiling(32, 16), backend()
    views = {}
    for key, x in make_inputs(problem).items():
        stored = problem.stored(x)
        views[key] = device.to_device(np.zeros(x.size + 1, x.dtype))[1:].reshape(stored.shape)
        views[key][...] = stored
    aligned, found = run(name, problem, tiling).outputs, launch(name, problem, views, tiling)
    assert problem.stored(found["O"]).tobytes() == aligned["O"].tobytes() and found["LSE"].tobytes() == aligned["LSE"].tobytes()


@every_variant
def test_a_window_that_hides_nothing_is_no_window(name: str) -> None:
    free, wide = (LADDER[name].plan(small(9, 20, **more), Tiling(32, 16)) for more in ({}, {"window_left": 19, "window_right": 8}))
    assert free.defines == wide.defines
    narrow = LADDER[name].plan(small(9, 20, window_left=18, window_right=7), Tiling(32, 16)).defines
    assert (narrow["RF_WINDOW_LEFT"], narrow["RF_WINDOW_RIGHT"]) == (18, 7)


@pytest.mark.parametrize(
    ("name", "header", "right", "wrong", "config"),
    [
        ("fa2", "rf_mask.cuh", "facing(i) - LEFT, Nkv", "facing(i) - LEFT + 1, Nkv", BAND),
        ("fa2", "rf_mask.cuh", "+ 1 + RIGHT)", "+ RIGHT)", BAND),
        ("fa2_mma", "rf_mask.cuh", "begin(first) / Bc * Bc", "begin(last) / Bc * Bc", BAND),
        ("fa2_pipe", "rf_mask.cuh", "? max(0, mask.begin(row0 + r) - key0) : 0", "? 0 : 0", BAND),
        ("fa2_pipe", "rf_score.cuh", "CAP * tanhf", "tanhf", BAND),
        ("fa2_mma", "rf_layout.cuh", "+ bh % H", "+ 0", SIDE_BY_SIDE),
    ],
)
def test_a_slip_in_a_shared_header_is_noticed(
    name: str, header: str, right: str, wrong: str, config: dict[str, Any], tmp_path: Path
) -> None:
    copy = shutil.copytree(kernels_dir(), tmp_path / "kernels_cu")
    slip = copy / "include" / header
    text = slip.read_text("utf-8")
    assert text.count(right) == 1
    slip.write_text(text.replace(right, wrong), "utf-8")
    problem = small(33, 90, **config)
    inputs = {key: np.ascontiguousarray(problem.stored(x)) for key, x in make_inputs(problem).items()}
    good, bad = (launch(name, problem, inputs, Tiling(32, 16), source=read_source(LADDER[name].file, x)) for x in (None, copy))
    assert good["LSE"].tobytes() != bad["LSE"].tobytes()
