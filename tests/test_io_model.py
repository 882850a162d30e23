"""Closed-form HBM bytes: against the papers' figures, against the kernels' own headers, against brute force."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from rawflash.errors import UsageError
from rawflash.io_model import HBM, hbm_bytes, total_bytes
from rawflash.problem import Problem
from rawflash.source import read_source
from rawflash.splits import cut_keys
from rawflash.tiling import Tiling, softmax_warps
from rawflash.variants import LADDER

PROBLEMS = [
    Problem(B=2, H=4, N=128, d=64),
    Problem(B=1, H=3, N=100, Nkv=77, d=40, dtype="fp32"),
    Problem(B=1, H=2, N=65, Nkv=200, d=32, causal="bottom_right"),
    Problem(B=1, H=2, N=200, Nkv=65, d=32, causal="bottom_right"),
    Problem(B=1, H=2, N=200, Nkv=65, d=32, causal="top_left", dtype="bf16"),
    Problem(B=1, H=4, Hkv=1, N=33, Nkv=129, d=96, causal="top_left"),
    Problem(B=1, H=1, N=1, Nkv=20000, d=8),
    Problem(B=1, H=2, N=200, Nkv=300, d=32, window_left=40, window_right=3, softcap=20.0),
    Problem(B=1, H=1, N=90, Nkv=33, d=16, causal="top_left", window_left=7),
    Problem(B=2, H=3, N=70, Nkv=50, d=24, dv=72, layout="bnhd"),
    Problem(B=1, H=1, N=99, Nkv=33, d=16, causal="bottom_right", window_left=50),
    Problem(B=1, H=2, N=20, Nkv=50, d=8, causal="top_left", dropout_p=0.1),
]
TILINGS = [Tiling(16, 16), Tiling(64, 32), Tiling(48, 128), Tiling(16, 16, num_splits=3, scale_pass=True)]
_LINE = re.compile(r"^// +(\S+) +(read|write|smem) += +(.+?)(?: {2,}.*)?$", re.M)


def header_formulas(name: str) -> dict[tuple[str, str], str]:
    """(tensor or kernel, read | write | smem) -> the expression in the header of the variant's .cu."""
    return {(what, kind): formula for what, kind, formula in _LINE.findall(read_source(LADDER[name].file).text)}


@cache
def visible_mask(p: Problem) -> np.ndarray:
    """[N, Nkv] bool from the definition, one condition at a time."""
    i, j = np.indices((p.N, p.Nkv))
    right = j - (i if p.causal == "top_left" else i + p.Nkv - p.N)  # how far right of the diagonal
    seen = np.full(right.shape, True) if p.causal == "none" else right <= 0
    seen &= True if p.window_left is None else -right <= p.window_left
    return seen & (True if p.window_right is None else right <= p.window_right)


def letters(p: Problem, t: Tiling) -> dict[str, Any]:
    """What the letters of the headers mean."""
    ceil = lambda a, b: -(-int(a) // b)  # noqa: E731

    def met(i: int) -> range:
        """The key tiles with a key that some row of query tile i sees: one comparison per row and key."""
        tiles = np.flatnonzero(visible_mask(p)[i * t.Br : (i + 1) * t.Br].any(0)) // t.Bc
        return range(int(tiles[0]), int(tiles[-1]) + 1) if len(tiles) else range(0)

    n, s = (lambda i: met(i).stop), (lambda i: met(i).start)

    # splitkv: rows of all query heads of a kv head, those of one query after those of the one before
    G = p.H // p.Hkv
    splits, packed = cut_keys(p, t).splits, visible_mask(p).repeat(G, axis=0)

    def tiles(i: int) -> range:
        keys = np.flatnonzero(packed[i * t.Br : (i + 1) * t.Br].any(0)) // t.Bc
        return range(int(keys[0]), int(keys[-1]) + 1) if len(keys) else range(0)

    def kg(i: int) -> int:
        return min(tiles(i).stop * t.Bc, p.Nkv) - tiles(i).start * t.Bc

    def parts(i: int) -> int:
        return min(splits, len(tiles(i)))

    def live(i: int) -> int:
        """Pairs of a row of tile i and a split of it with a key that the row sees."""
        rows, share, n = packed[i * t.Br : (i + 1) * t.Br], parts(i), len(tiles(i))
        cuts = [(tiles(i).start + n * split // share) * t.Bc for split in range(share + 1)] if share else []
        return sum(int(rows[:, low:high].any(1).sum()) for low, high in pairwise(cuts))

    Tg = ceil(G * p.N, t.Br)
    return {
        **{"G": G, "Tg": Tg, "rg": lambda i: min(t.Br, G * p.N - i * t.Br), "kg": kg, "parts": parts, "splits": splits},
        **{"live": sum(map(live, range(Tg)))},
        **{name: getattr(p, name) for name in ("B", "H", "Hkv", "N", "Nkv", "d", "dv")},
        **{"w": p.itemsize, "Br": t.Br, "Bc": t.Bc, "Tr": ceil(p.N, t.Br), "Tc": ceil(p.Nkv, t.Bc)},
        **{"Bp": ceil(t.Bc, 32) * 32, "D": ceil(p.d, 16) * 16, "DV": ceil(p.dv, 16) * 16},
        **{"n": n, "s": s, "v": lambda i: max(1, n(i) - s(i)), "rows": lambda i: min(t.Br, p.N - i * t.Br)},
        **{"pairs": p.visible_pairs(), "s_reads": 1 if softmax_warps(p) else 3, "warps": softmax_warps(p)},
        **{"capped": int(p.softcap is not None), "masked": int(p.masked), "dropped": int(p.dropout_p > 0), "scaled": int(t.scale_pass)},
        **{"sum": sum, "min": min, "max": max, "range": range},
    }


def value(formula: str, p: Problem, t: Tiling) -> int:
    return int(eval(formula, {"__builtins__": {}, **letters(p, t)}))


@pytest.mark.parametrize("name", LADDER)
def test_the_headers_say_the_same(name: str) -> None:
    formulas = header_formulas(name)
    for p in PROBLEMS:
        for t in TILINGS:
            stated: dict[str, tuple[int, int]] = {}
            for (tensor, kind), formula in formulas.items():
                if kind != "smem":
                    read, write = stated.get(tensor, (0, 0))
                    moved = value(formula, p, t)
                    stated[tensor] = (moved, write) if kind == "read" else (read, moved)
            moved_at_all = {tensor: moved for tensor, moved in stated.items() if any(moved)}
            assert moved_at_all == hbm_bytes(name, p, t), (p, t)


@pytest.mark.parametrize("name", LADDER)
def test_the_headers_state_the_shared_memory_of_the_plan(name: str) -> None:
    formulas = header_formulas(name)
    for p in PROBLEMS:
        for t in TILINGS:
            for launch in LADDER[name].plan(p, t).launches:
                assert value(formulas[launch.entry, "smem"], p, t) == launch.shared_bytes


@pytest.mark.parametrize(("block", "total"), [(64, 6_576_668_672), (128, 3_355_443_200), (256, 1_744_830_464), (512, 939_524_096)])
def test_figure_2_middle_of_flash_attention(block: int, total: int) -> None:
    """fp16, B=64, H=16, N=1024, d=64: 2*B*H*N*d*(3*Tc + 1) bytes; the paper plots 6.577, 3.355, 1.744 and 0.939 GB."""
    p = Problem(B=64, H=16, N=1024, d=64)
    io = hbm_bytes("fa1", p, Tiling(block, block))
    assert sum(sum(io[tensor]) for tensor in "QKVO") == total == 2 * 64 * 16 * 1024 * 64 * (3 * (1024 // block) + 1)


@pytest.mark.parametrize("name", LADDER)
def test_doubling_N(name: str) -> None:
    small, large = (hbm_bytes(name, Problem(B=1, H=1, N=n, d=64), Tiling(64, 64)) for n in (1024, 2048))
    growth = {tensor: sum(large[tensor]) / sum(small[tensor]) for tensor in small}
    if name == "naive":
        assert growth["S"] == growth["P"] == 4
    if name in ("fa2", "online"):
        assert growth["Q"] == growth["O"] == 2 and growth["K"] == growth["V"] == 4


@pytest.mark.parametrize("name", LADDER)
def test_heads_that_share_keys_read_them_all_the_same(name: str) -> None:
    """Every query head reads them for itself, save in splitkv, where the heads that share a kv head read them together."""
    alone, shared = (hbm_bytes(name, Problem(B=2, H=8, Hkv=g, N=64, d=32), Tiling(64, 32)) for g in (8, 2))
    assert name == "splitkv" or alone == shared
    few, many = (hbm_bytes(name, Problem(B=2, H=8, Hkv=g, N=8, Nkv=256, d=32), Tiling(32, 32)) for g in (8, 2))
    for tensor in "KV":
        assert few[tensor][0] == (4 if name == "splitkv" else 1) * many[tensor][0]


def test_a_mask_saves_half_of_fa2_and_nothing_of_naive() -> None:
    """N = Nkv, square tiles: the causal triangle has Tr*(Tr + 1)/2 of Tr*Tr tiles."""
    t = Tiling(64, 64)
    free, masked = (Problem(B=1, H=1, N=1024, d=64, causal=c) for c in ("none", "bottom_right"))
    assert hbm_bytes("fa2", masked, t)["K"][0] * 32 == hbm_bytes("fa2", free, t)["K"][0] * 17
    assert hbm_bytes("naive", masked, t) == hbm_bytes("naive", free, t)


def test_empty_problems_move_nothing_and_unknown_variants_are_refused() -> None:
    assert total_bytes(hbm_bytes("fa2", Problem(N=0), Tiling(64, 64))) == 0
    assert set(HBM) == set(LADDER)
    with pytest.raises(UsageError, match="no IO model of 'fa9'"):
        hbm_bytes("fa9", Problem(), Tiling(64, 64))
