"""Every variant over sizes, types, masks and tiles: right, with exactly the modelled bytes, and without a bank conflict."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash.emu import EmuParams
from rawflash.problem import Problem
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100, VARIANTS, mismatches, run

SIZES = [(1, 1), (1, 20), (16, 16), (17, 33), (40, 7), (64, 64), (65, 97), (130, 70)]

# Each row is one compilation per variant: dtype, mask, d, (Br, Bc).
QUICK = [
    ("fp32", "none", 32, (16, 16)),
    ("fp16", "bottom_right", 64, (32, 64)),
    # bf16, other masks, heads side by side: test_masks_and_layouts.py
]
MORE = [
    ("bf16", "top_left", 64, (64, 32)),
    ("fp16", "none", 64, (64, 64)),
    ("fp16", "none", 64, (128, 128)),
    ("fp32", "bottom_right", 128, (64, 64)),
    ("fp16", "top_left", 96, (32, 48)),
    ("bf16", "none", 128, (16, 128)),
    ("fp32", "top_left", 64, (128, 16)),
    ("bf16", "bottom_right", 32, (48, 80)),
    ("fp16", "bottom_right", 8, (16, 32)),
    ("fp32", "bottom_right", 40, (16, 16)),
    ("fp16", "none", 256, (16, 32)),
]
CONFIGS = [pytest.param(*row, id="-".join(map(str, row[:3]))) for row in QUICK]
CONFIGS += [pytest.param(*row, id="-".join(map(str, (*row[:3], *row[3]))), marks=pytest.mark.exhaustive) for row in MORE]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("dtype", "causal", "d", "tile"), CONFIGS)
def test_right_with_the_modelled_bytes(name: str, dtype: str, causal: str, d: int, tile: tuple[int, int]) -> None:
    for N, Nkv in SIZES:
        problem = Problem(B=2, H=4, Hkv=2, N=N, Nkv=Nkv, d=d, dtype=dtype, causal=causal, seed=N)
        result = run(name, problem, Tiling(*tile))
        assert not mismatches(result), (N, Nkv)
        assert result.metrics["smem/bank_conflicts"] == 0, (N, Nkv)
        assert not np.isnan(result.outputs["LSE"]).any()


def test_fa1_with_long_key_tiles() -> None:
    for N, Nkv in ((20, 300), (70, 257), (33, 12)):
        result = run("fa1", Problem(B=1, H=2, N=N, Nkv=Nkv, d=8, causal="bottom_right", seed=N), Tiling(16, 256))
        assert not mismatches(result), (N, Nkv)
        assert result.metrics["smem/bank_conflicts"] == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_sectors_for_aligned_inputs(name: str) -> None:
    """Every sector that Q, K, V or O touches is used in full (LSE is written row by row in two of the kernels)."""
    result = run(name, Problem(B=1, H=2, N=64, Nkv=128, d=64), Tiling(64, 64))
    for tensor in result.tensors:
        if tensor.name in "QKVO":
            assert 32 * tensor.read_sectors == tensor.counted_read, tensor.name
            assert 32 * tensor.write_sectors == tensor.counted_write, tensor.name


@pytest.mark.parametrize("name", VARIANTS)
def test_same_bits_in_any_order_and_no_race(name: str) -> None:
    problem = Problem(B=1, H=2, N=49, Nkv=70, d=32, dtype="fp32", causal="bottom_right")
    tiling = Tiling(16, 16)
    first = run(name, problem, tiling).outputs
    for params in (EmuParams(racecheck=True), *(EmuParams(order_seed=seed) for seed in range(10))):
        again = run(name, problem, tiling, params).outputs
        assert first["O"].tobytes() == again["O"].tobytes() and first["LSE"].tobytes() == again["LSE"].tobytes()


def test_variants_agree_bit_for_bit_where_they_do_the_same() -> None:
    """With one key tile fa1 and fa2 differ in when they divide, and in nothing else: LSE is the same number."""
    problem = Problem(B=1, H=1, N=64, Nkv=64, d=64)
    results = [run(name, problem, Tiling(64, 64)).outputs["LSE"].tobytes() for name in ("fa1", "fa2")]
    assert results[0] == results[1]


@pytest.mark.parametrize("name", VARIANTS)
def test_scaling_of_the_bytes_with_N(name: str) -> None:
    """Counted on one head, times B*H: the same integer as the model of the whole problem."""
    tiling = Tiling(64, 64, num_splits=2)
    one = run(name, Problem(B=1, H=1, N=128, d=64), tiling)
    whole = LADDER[name].io(Problem(B=64, H=16, N=128, d=64), tiling)
    assert {t.name: (1024 * t.counted_read, 1024 * t.counted_write) for t in one.tensors} == whole


@pytest.mark.parametrize("name", VARIANTS)
def test_smem_of_the_plan_is_what_the_gpu_is_asked_for(name: str) -> None:
    problem, tiling = Problem(B=1, H=1, N=64, d=64), Tiling(64, 64)
    result = run(name, problem, tiling)
    assert result.metrics["res/smem_bytes"] == LADDER[name].smem_bytes(problem, tiling) <= A100.smem_block_bytes
    assert result.metrics["res/spill_bytes"] == 0


def test_rows_of_scores_that_do_not_fit_are_read_three_times() -> None:
    problem = Problem(B=1, H=1, N=3, Nkv=12_290, d=8, dtype="fp32", causal="bottom_right")
    result = run("naive", problem, Tiling(16, 16))
    moved = {t.name: (t.counted_read, t.counted_write) for t in result.tensors}
    assert moved["S"] == (3 * 4 * 3 * 12_290, 4 * 3 * 12_290) and not mismatches(result)
