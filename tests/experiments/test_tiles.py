"""The choice of a tile: whole waves, the tolerance, what breaks ties, the paper's rule; and one real point of the grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rawflash.experiments import tiles
from rawflash.experiments._light import Judged, sheet
from rawflash.lab import HeatMap, Picture, Row
from rawflash.light import Light
from rawflash.occupancy import Occupancy
from rawflash.problem import Problem
from rawflash.tiling import Tiling

A100 = sheet("a100_80gb")


def judged(ms: float, *, warps: int = 4, ctas: int = 1, smem: int = 1000, waves: float = 4.0, spills: int = 0) -> Judged:
    held = Occupancy(ctas, warps * ctas, warps * ctas / 64, {"registers": ctas}, ("registers",), 0, smem)
    return Judged(Light({"hbm": ms / 2, "tensor": ms}), True, 10**9, 0, held, 100, spills, smem, warps, waves)


GRID: dict[tuple[int, int], Judged] = {
    (32, 32): judged(5.0),
    (32, 64): judged(4.0, waves=2.5),  # 4.8 in whole waves
    (64, 32): judged(4.05, ctas=2),  # within 2 % of the fastest, with twice its warps
    (64, 64): judged(4.0),
}


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch, run_experiment: Callable[..., Any]) -> Callable[..., tuple[list[Row], list[Picture]]]:
    """Run the experiment on GRID instead of real kernels."""
    monkeypatch.setattr(tiles, "judge_on", lambda lab, kernel, problem, t, gpu: GRID[t.Br, t.Bc])
    sides = {"Br": [32, 64], "Bc": [32, 64]}
    return lambda **more: run_experiment("tiles", **{"sides": {"fa2_pipe": sides, "fa2": sides}, **more})


def test_the_tile_is_chosen_by_time_then_by_warps(grid: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    rows, (picture,) = grid()
    choice = {row.keys["GPU"]: row for row in rows if row.table == tiles.CHOICE}
    row = choice[A100.name]
    assert row.cells["tile"].value == "64x32, 4 warps" and row.cells["time"].number == 4.05
    assert row.reason == (
        "most warps per SM of 2 tiles within 2 %; tensor binds, next is hbm with 50 %; 2 CTAs of 4 warps per SM (registers)"
    )
    assert row.cells["rule of the paper"].value == "128x163" and row.cells["nearest to it"].value == "64x64, 4 warps"
    assert isinstance(picture, HeatMap) and picture.mark == (1, 0) and picture.rows == ["32, 4 warps", "64, 4 warps"]
    assert picture.values == [[5.0, pytest.approx(4.8)], [4.05, 4.0]] and picture.texts[1][0] == "4.05 tensor\n1 GB, 12.5 %"
    assert choice["T4"].keys["kernel"] == "fa2" and len(choice) == 10


def test_a_tolerance_of_nothing_takes_the_fastest(grid: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    row = next(row for row in grid(tolerance=0)[0] if row.table == tiles.CHOICE and row.keys["GPU"] == A100.name)
    assert row.cells["tile"].value == "64x64, 4 warps" and row.reason.startswith("alone at the top; tensor binds")


def test_a_tile_that_spills_is_not_recommended(
    grid: Callable[..., tuple[list[Row], list[Picture]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRID, (64, 64), judged(1.0, spills=8))
    row = next(row for row in grid()[0] if row.table == tiles.CHOICE and row.keys["GPU"] == A100.name)
    assert row.cells["tile"].value == "64x32, 4 warps"


def test_what_does_not_fit_says_why(grid: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    t4 = [row for row in grid(d=256)[0] if row.keys["GPU"] == "T4"]
    notes = [row.cells["time"].note for row in t4 if row.table != tiles.CHOICE]
    assert all("bytes of shared memory per CTA" in note and "T4 offers 65536" in note for note in notes) and len(notes) == 4
    assert next(row for row in t4 if row.table == tiles.CHOICE).reason == "no tile of the grid fits"


def test_the_rule_of_the_paper() -> None:
    """M = 83456 elements of 16 bits on an A100: ceil(M / 512) = 163 for d = 128, and twice that for d = 64."""
    assert tiles.paper_rule(A100, Problem(d=128)) == (128, 163)
    assert tiles.paper_rule(A100, Problem(d=64)) == (64, 326)
    assert tiles.paper_rule(A100, Problem(d=64, dtype="fp32")) == (64, 163)


def test_a_point_of_the_grid_is_that_of_the_kernel(rows_of: Callable[..., list[Row]]) -> None:
    """A tile that tests/test_extend.py compiles as well."""
    sides = {"fa2_mma": {"Br": [32], "Bc": [16]}, "fa2": {"Br": [], "Bc": []}}
    rows = rows_of("tiles", kernels=["fa2_mma", "fa2"], sides=sides, N=320, d=16, B=2, H=3)
    cells = next(row for row in rows if row.table == tiles.GRID).cells
    problem, tiling = Problem(B=2, H=3, N=320, d=16), Tiling(32, 16)
    from rawflash.io_model import hbm_bytes, total_bytes

    assert cells["HBM asked"].number * 1e9 == total_bytes(hbm_bytes("fa2_mma", problem, tiling))
    assert cells["warps"].number == 2 and cells["SMEM"].number * 1024 == 2 * (32 + 2 * 16) * 16
