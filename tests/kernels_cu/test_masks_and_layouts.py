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

TILING = Tiling(32, 16, num_splits=2)
# All at once in one compilation per variant: a band that cuts both ends, capped scores, heads side by side, dv beside d, shared keys.
ALL: dict[str, Any] = {"window_left": 3, "window_right": 2, "softcap": 0.75, "layout": "bnhd", "dv": 24, "dtype": "bf16"}
# A window that late rows have left; one behind the causal diagonal, dv below d.
LEFT: dict[str, Any] = {"causal": "top_left", "window_left": 9}
BEHIND: dict[str, Any] = {"causal": "bottom_right", "window_left": 21, "d": 32, "dv": 8}
CONFIGS = [
    pytest.param(ALL, id="all"),
    pytest.param(LEFT, id="left", marks=pytest.mark.exhaustive),
    pytest.param(BEHIND, id="behind", marks=pytest.mark.exhaustive),
]
SIZES = [(1, 1), (1, 20), (17, 33), (40, 7), (33, 90), (90, 40)]
every_variant = pytest.mark.parametrize("name", LADDER)
few = pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name != "fa2_pipe")) for name in LADDER])


def small(N: int, Nkv: int, **more: Any) -> Problem:
    return Problem(**{"B": 2, "H": 4, "Hkv": 2, "N": N, "Nkv": Nkv, "d": 16, **more})


@every_variant
@pytest.mark.parametrize("config", CONFIGS)
def test_right_with_the_modelled_bytes(name: str, config: dict[str, Any]) -> None:
    for N, Nkv in SIZES:
        problem = small(N, Nkv, **config, seed=N)
        result = run(name, problem, TILING)
        assert not mismatches(result), (N, Nkv)
        assert result.metrics["smem/bank_conflicts"] == 0, (N, Nkv)
        blind = problem.visible_keys() == 0
        assert (result.outputs["LSE"][0, 0] == -np.inf).tolist() == blind.tolist()
        assert (to_f64(result.outputs["O"], problem.dtype)[0, 0, blind] == 0).all()


@every_variant
@pytest.mark.parametrize("wild", [np.nan, np.inf])
def test_keys_outside_of_the_window_reach_nothing(name: str, wild: float) -> None:
    """Left of it and right of it, in tiles that are met all the same: rows that do not see a wild key keep their bits."""
    problem = small(40, 40, **ALL)
    clean = make_inputs(problem)
    dirty = {tensor: x.copy() for tensor, x in clean.items()}
    dirty["K"][:, :, 21] = dirty["V"][:, :, 21] = 0x7FC0 if np.isnan(wild) else 0x7F80
    with np.errstate(invalid="ignore", over="ignore"):
        was, now = (run(name, problem, TILING, inputs=inputs).outputs for inputs in (clean, dirty))
    begin, end = problem.visible()
    hidden = (begin > 21) | (end <= 21)
    for tensor in ("O", "LSE"):
        assert was[tensor][:, :, hidden].tobytes() == now[tensor][:, :, hidden].tobytes()
    assert not np.isfinite(to_f64(now["O"], "bf16")[:, :, ~hidden]).any()


@every_variant
@pytest.mark.parametrize(("N", "config", "hidden"), [(1, ALL, 34), (33, ALL, 34), pytest.param(1, LEFT, 3, marks=pytest.mark.exhaustive)])
def test_a_lone_row_does_not_see_the_rest_of_its_tile(name: str, N: int, config: dict[str, Any], hidden: int) -> None:
    """A tile of keys that all rows of a tile, one, see in part: a NaN beside the interval."""
    problem = small(N, 40, **config)
    inputs = {tensor: x.copy() for tensor, x in make_inputs(problem).items()}
    inputs["V"][:, :, hidden] = 0x7FC0 if problem.dtype == "bf16" else np.nan
    O = to_f64(run(name, problem, TILING, inputs=inputs).outputs["O"], problem.dtype)
    assert np.isfinite(O[:, :, N - 1]).all()


@every_variant
def test_edges_with_all_of_it(name: str) -> None:
    """Scales of any sign, 0, and what ftz makes 0, below a softcap; no query, no key."""
    for scale in (-2.0, 0.0, 1e-40):
        run(name, small(17, 33, **ALL, softmax_scale=scale), TILING)
    for N, Nkv in ((0, 3), (3, 0)):
        assert run(name, small(N, Nkv, **ALL), TILING).outputs["O"].shape == (2, 4, N, 24)


@few
def test_both_layouts_give_the_same_bits(name: str) -> None:
    """A stride in the epilogue is the tensor's own (and of no other: three heads, dv beside d)."""
    one, other = (run(name, small(33, 20, **{**ALL, "H": 3, "Hkv": 3, "layout": x}), TILING).outputs for x in ("bhnd", "bnhd"))
    assert all(one[key].tobytes() == other[key].tobytes() for key in ("O", "LSE"))


@every_variant
def test_side_by_side_heads_that_no_vector_load_can_read(name: str) -> None:
    """One element off: a scalar path in every tensor, the same bits."""
    problem, device = small(33, 90, **ALL), backend()
    views = {}
    for key, x in make_inputs(problem).items():
        stored = problem.stored(x)
        views[key] = device.to_device(np.zeros(x.size + 1, x.dtype))[1:].reshape(stored.shape)
        views[key][...] = stored
    aligned, found = run(name, problem, TILING).outputs, launch(name, problem, views, TILING)
    assert problem.stored(found["O"]).tobytes() == aligned["O"].tobytes() and found["LSE"].tobytes() == aligned["LSE"].tobytes()


@few
def test_no_race(name: str) -> None:
    assert run(name, small(49, 70, **{**ALL, "B": 1}), TILING, EmuParams(racecheck=True)).ok


@every_variant
def test_a_window_that_hides_nothing_is_no_window(name: str) -> None:
    free, wide = (LADDER[name].plan(small(9, 20, **more), TILING) for more in ({}, {"window_left": 19, "window_right": 8}))
    assert free.defines == wide.defines
    narrow = LADDER[name].plan(small(9, 20, window_left=18, window_right=7), TILING).defines
    assert (narrow["RF_WINDOW_LEFT"], narrow["RF_WINDOW_RIGHT"]) == (18, 7)


SLIPS = [
    ("rf_mask.cuh", "facing(i) - LEFT, Nkv", "facing(i) - LEFT + 1, Nkv"),
    ("rf_score.cuh", "CAP * tanhf", "tanhf"),
    ("rf_layout.cuh", "+ bh % H", "+ 0"),
    ("rf_mask.cuh", "+ 1 + RIGHT)", "+ RIGHT)"),
    ("rf_mask.cuh", "begin(first) / Bc * Bc", "begin(last) / Bc * Bc"),
    ("rf_mask.cuh", "? max(0, mask.begin(row(r)) - key0) : 0", "? 0 : 0"),
]


@pytest.mark.parametrize(
    ("header", "right", "wrong"), [pytest.param(*slip, marks=[pytest.mark.exhaustive] * (n > 2)) for n, slip in enumerate(SLIPS)]
)
def test_a_slip_in_a_shared_header_is_noticed(header: str, right: str, wrong: str, tmp_path: Path) -> None:
    copy = shutil.copytree(kernels_dir(), tmp_path / "kernels_cu")
    slip = copy / "include" / header
    text = slip.read_text("utf-8")
    assert text.count(right) == 1
    slip.write_text(text.replace(right, wrong), "utf-8")
    problem = small(33, 90, **ALL)
    inputs = {key: np.ascontiguousarray(problem.stored(x)) for key, x in make_inputs(problem).items()}
    good, bad = (launch("fa2_mma", problem, inputs, TILING, source=read_source("fa2_mma.cu", x)) for x in (None, copy))
    assert good["LSE"].tobytes() != bad["LSE"].tobytes()
