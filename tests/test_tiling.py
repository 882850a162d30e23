"""Tile counts against brute force; sizes that are no sizes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rawflash.errors import UsageError
from rawflash.problem import Problem
from rawflash.tiling import Tiling


@pytest.mark.parametrize("causal", ["none", "bottom_right", "top_left"])
@pytest.mark.parametrize("window", [(None, None), (5, 3), (40, None), (None, 0)])
@pytest.mark.parametrize(("N", "Nkv"), [(1, 1), (33, 70), (70, 33), (64, 64), (17, 200)])
def test_key_tiles_are_those_that_some_row_sees(causal: str, window: tuple[int | None, int | None], N: int, Nkv: int) -> None:
    for tiling in (Tiling(16, 16), Tiling(32, 48), Tiling(64, 16)):
        problem = Problem(N=N, Nkv=Nkv, causal=causal, window_left=window[0], window_right=window[1])
        begin, end = problem.visible()
        seen = (np.arange(Nkv) >= begin[:, None]) & (np.arange(Nkv) < end[:, None])
        for i, (first, past, rows) in enumerate(zip(*tiling.key_tiles(problem), tiling.rows(problem), strict=True)):
            mine = seen[i * tiling.Br : (i + 1) * tiling.Br]
            touched = {j // tiling.Bc for j in np.flatnonzero(mine.any(axis=0))}
            assert touched == set(range(first, past)) and rows == len(mine)
        assert tiling.Tr(problem) == len(tiling.rows(problem)) and tiling.Tc(problem) == -(-Nkv // tiling.Bc)


def test_scores_are_as_wide_as_whole_warps() -> None:
    assert [Tiling(16, Bc).Bp for Bc in (16, 32, 48, 64, 128)] == [32, 32, 64, 64, 128]


@pytest.mark.parametrize("value", [0, -16, 1.5, "64", True, None])
def test_tilings_are_made_of_positive_integers(value: object) -> None:
    with pytest.raises(UsageError, match="not the side of a tile"):
        Tiling(Br=value, Bc=16)  # type: ignore[arg-type]
    assert dataclasses.astuple(Tiling(np.int64(16), 32))[:2] == (16, 32)  # type: ignore[arg-type]
