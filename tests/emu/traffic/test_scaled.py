"""One head, scaled, is every head: the whole report, on the kernels of the ladder."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from rawflash import emu
from rawflash.backends.base import launch_plan
from rawflash.compile import compile_source
from rawflash.problem import Problem, make_inputs
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.emu.harness import cuda, launch, zeros

TILING = Tiling(32, 32)


@cache
def ptx(name: str, dtype: str, causal: str) -> str:
    plan = LADDER[name].plan(Problem(N=96, d=32, dtype=dtype, causal=causal), TILING)
    return compile_source(read_source(LADDER[name].file), plan.defines, "80").ptx


def count(name: str, problem: Problem, params: emu.EmuParams | None = None) -> Any:
    """The added-up report of a plan."""
    plan = LADDER[name].plan(problem, TILING)
    arrays = {key: emu.asarray(x) for key, x in make_inputs(problem).items()}
    arrays |= {key: emu.empty(shape, dtype) for key, (shape, dtype) in plan.buffers.items()}
    module = emu.RawModule(code=ptx(name, problem.dtype, problem.causal), params=params)
    first, *rest = launch_plan(module, plan, arrays)
    return sum(rest, first)


@pytest.mark.parametrize(("dtype", "causal"), [("fp32", "none"), ("fp16", "bottom_right")])
@pytest.mark.parametrize("name", ["naive", "fa1", "fa2"])
def test_one_head_scaled_is_the_full_count(name: str, dtype: str, causal: str) -> None:
    shape = {"N": 96, "d": 32, "dtype": dtype, "causal": causal}
    one = count(name, Problem(B=1, H=1, **shape))  # type: ignore[arg-type]
    full = count(name, Problem(B=2, H=3, **shape))  # type: ignore[arg-type]
    scaled = one.scaled(6)
    assert (one.scale, full.scale, scaled.scale) == (1, 1, 6)
    assert any("counted for one of 6 equal parts and multiplied by 6" in warning for warning in scaled.warnings)
    assert full.global_.read_bytes > 0 and full.lines and full.barriers > 0
    assert replace(scaled, scale=1, warnings=full.warnings) == full
    assert scaled.flops() == full.flops() and scaled.pipes() == full.pipes()
    assert scaled.lane_efficiency == one.lane_efficiency


@cache
def store_kernel() -> Any:
    code = 'extern "C" __global__ void fill(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }'
    return cuda(code, params=emu.EmuParams(l2=emu.L2Params(4096, 4)))


def test_what_does_not_scale_is_left_out_and_said() -> None:
    report = launch(store_kernel(), "fill", 2, 64, zeros(128, np.float32))
    assert report.l2 is not None
    scaled = report.scaled(3)
    assert scaled.l2 is None
    assert "does not scale and is left out" in scaled.warnings[-1]
    assert (scaled.ctas, scaled.warps, scaled.arguments[0].index, scaled.arguments[0].write_bytes) == (6, 12, 0, 1536)
    assert report.l2 is not None and report.scale == 1 and report.ctas == 2, "the original is untouched"


def test_scales_multiply_and_sums_keep_the_label() -> None:
    report = launch(store_kernel(), "fill", 2, 64, zeros(128, np.float32))
    assert report.scaled(2).scaled(5).scale == 10
    assert report.scaled(2).scaled(5).opcodes == report.scaled(10).opcodes
    total = report.scaled(4) + report
    assert (total.scale, total.ctas, total.warnings) == (4, 10, report.scaled(4).warnings)
    assert report.scaled(1).opcodes == report.opcodes


@pytest.mark.parametrize("factor", [0, -1, 2.5, None])
def test_factors_without_a_meaning(factor: Any) -> None:
    report = launch(store_kernel(), "fill", 2, 64, zeros(128, np.float32))
    with pytest.raises(ValueError, match="positive whole number"):
        report.scaled(factor)
