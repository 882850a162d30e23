"""The tensor-core rungs, which take fp16 and bf16 only: refusals, bytes, conflicts, barriers, order, issue slots."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rawflash.compile import compile_source
from rawflash.emu import EmuParams
from rawflash.errors import InvalidConfiguration
from rawflash.execute import run_variant
from rawflash.problem import Problem, make_inputs
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100, SMALL, backend, mismatches, run
from tests.kernels_cu.mma import RUNGS, bits, every_rung

SIZES = [(1, 1), (1, 20), (16, 16), (17, 33), (40, 7), (64, 64), (65, 97), (130, 70)]
QUICK = [("fp16", "none", 64, (32, 32)), ("bf16", "bottom_right", 32, (16, 16))]
MORE = [
    ("fp16", "top_left", 40, (32, 16)),
    ("fp16", "bottom_right", 64, (64, 64)),
    ("bf16", "none", 64, (128, 64)),
    ("fp16", "none", 128, (64, 128)),
    ("bf16", "top_left", 96, (32, 48)),
    ("fp16", "bottom_right", 128, (128, 32)),
    ("bf16", "bottom_right", 16, (48, 80)),
    ("fp16", "bottom_right", 8, (16, 32)),
    ("bf16", "bottom_right", 256, (16, 32)),
]
CONFIGS = [pytest.param(*row, id="-".join(map(str, row[:3]))) for row in QUICK]
CONFIGS += [pytest.param(*row, id="-".join(map(str, row[:3])), marks=pytest.mark.exhaustive) for row in MORE]


# ------------------------------------------------------------------------------------------------------------------ refusals
@every_rung
def test_fp32_is_a_row_with_a_sentence(name: str) -> None:
    problem = Problem(N=32, d=64, dtype="fp32")
    result = run_variant(LADDER[name], problem, SMALL, A100, backend())
    assert result.status == "INVALID" and result.sentence.startswith("dtype=fp32")
    with pytest.raises(InvalidConfiguration):
        run(name, problem)


# ------------------------------------------------------------------------------------------------- right, with these bytes
@every_rung
@pytest.mark.parametrize(("dtype", "causal", "d", "tile"), CONFIGS)
def test_right_with_the_modelled_bytes(name: str, dtype: str, causal: str, d: int, tile: tuple[int, int]) -> None:
    for N, Nkv in SIZES:
        problem = Problem(B=2, H=4, Hkv=2, N=N, Nkv=Nkv, d=d, dtype=dtype, causal=causal, seed=N)
        result = run(name, problem, Tiling(*tile))
        assert not mismatches(result), (N, Nkv)
        assert result.metrics["smem/bank_conflicts"] == 0, (N, Nkv)
        assert not np.isnan(result.outputs["LSE"]).any()


@every_rung
def test_whole_sectors_counted_work_and_shared_memory(name: str) -> None:
    """Aligned inputs: every sector in full. Work: so many mma, exponentials and rescale multiplications per tile."""
    problem, tiling = Problem(B=1, H=2, N=64, Nkv=96, d=64), Tiling(32, 32)
    result = run(name, problem, tiling)
    for tensor in result.tensors:
        assert 32 * tensor.read_sectors == tensor.counted_read and 32 * tensor.write_sectors == tensor.counted_write, tensor.name
    warp_tiles = 2 * (64 // 16) * (96 // 32)  # heads, strips of 16 rows, key tiles
    if name != "fa2_lazy":  # what that saves: test_fa2_lazy.py
        assert result.metrics["ops/ex2"] == warp_tiles * (16 * 32 + 2 * 32)
        assert result.metrics["ops/rescale_mul"] == warp_tiles * (16 * 64 + 2 * 32)
    assert result.metrics["res/spill_bytes"] == 0
    assert result.metrics["res/smem_bytes"] == LADDER[name].smem_bytes(problem, tiling)


@every_rung
def test_same_bits_in_any_order_and_no_race(name: str) -> None:
    problem = Problem(B=1, H=2, N=49, Nkv=70, d=32, causal="bottom_right")
    first = bits(run(name, problem).outputs)
    for params in (EmuParams(racecheck=True), *(EmuParams(order_seed=seed) for seed in range(10))):
        assert bits(run(name, problem, params=params).outputs) == first


# ------------------------------------------------------------------------------------------------------------- issue slots
@every_rung
def test_operands_of_mma_are_registers_that_follow_each_other(name: str) -> None:
    """Both registers of B come from one ldmatrix, as its first or its last two: else ptxas copies them, once per mma and register."""
    plan = LADDER[name].plan(Problem(), Tiling(32, 32))
    ptx = compile_source(read_source(LADDER[name].file), plan.defines, A100.arch).ptx
    loaded = [re.findall(r"%r\d+", destination) for destination in re.findall(r"ldmatrix\S+ \{([^}]*)\}", ptx)]
    pairs = {tuple(registers[half : half + 2]) for registers in loaded for half in (0, 2)}
    used = [tuple(re.findall(r"%r\d+", b)) for b in re.findall(r"mma\.sync\S+ \{[^}]*\}, \{[^}]*\}, \{([^}]*)\}", ptx)]
    assert len(used) >= 32 and set(used) <= pairs


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layout"), [*((name, "bhnd") for name in RUNGS), ("fa2_pipe", "bnhd")])
def test_issue_slots_beside_the_products(name: str, layout: str) -> None:
    """d = 128, Br = 128, no mask: instructions of any kind per mma, from the difference of 8 and 4 key tiles."""
    tiling, params = Tiling(128, 64), EmuParams(memcheck=False, initcheck=False)
    issued = []
    for keys in (256, 512):
        problem = Problem(B=1, H=1, N=128, Nkv=keys, d=128, layout=layout)
        plan, device = LADDER[name].plan(problem, tiling), backend(params)
        compiled = compile_source(read_source(LADDER[name].file), plan.defines, A100.arch)
        arrays = {key: device.empty(shape, np.dtype(kind)) for key, (shape, kind) in plan.buffers.items()}
        arrays.update({key: device.to_device(x) for key, x in make_inputs(problem).items()})
        counters = device.run(device.compile(compiled, plan), plan, arrays).counters
        assert counters is not None and counters.smem_bank_conflicts == 0
        issued.append((counters.count("mma") / 32, counters.warp_instructions))
    (few, less), (many, more) = issued
    assert many == 2 * few == 8 * 8 * 128
    assert (more - less) / (many - few) - 1 <= 4
