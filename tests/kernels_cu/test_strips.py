"""fa2_pipe with two strips of 16 rows per warp: the bits of one strip, fewer reads of SMEM; tensor cores bind on an A100."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawflash.compile import compile_source
from rawflash.config import gpu_values
from rawflash.emu import EmuParams
from rawflash.extend import extended_counts
from rawflash.light import speed_of_light
from rawflash.problem import Problem, make_inputs
from rawflash.roofline import Gpu
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from rawflash.work import work_from
from tests.kernels_cu.ladder import A100, backend, mismatches, run
from tests.kernels_cu.mma import bits, small

PIPE = LADDER["fa2_pipe"]
ONE, TWO = Tiling(32, 16, warps=2), Tiling(32, 16, warps=1)
MASK: dict[str, Any] = {"causal": "bottom_right", "window_left": 9, "softmax_scale": -0.7}  # cuts tiles on both sides; Q changes its sign
SIZES = [(1, 1), (1, 20), (16, 16), (17, 33), (40, 7), (65, 97)]


@pytest.mark.parametrize("more", [{}, MASK], ids=["open", "masked"])
def test_two_strips_give_the_bits_of_one(more: dict[str, Any]) -> None:
    for N, Nkv in SIZES:
        problem = small(N, Nkv, seed=N, **more)
        one, two = run("fa2_pipe", problem, ONE), run("fa2_pipe", problem, TWO)
        assert not mismatches(two), (N, Nkv)
        assert bits(one.outputs) == bits(two.outputs), (N, Nkv)
        assert two.metrics["smem/bank_conflicts"] == 0
        assert two.metrics["smem/requests"] <= one.metrics["smem/requests"]
        assert (one.tags["warps"], two.tags["warps"]) == ("2", "1")
    assert two.metrics["smem/requests"] < one.metrics["smem/requests"]


def test_two_strips_race_with_nobody() -> None:
    for more in ({}, MASK):
        problem = small(49, 70, **more)
        first = bits(run("fa2_pipe", problem, TWO).outputs)
        for params in (EmuParams(racecheck=True), *(EmuParams(order_seed=seed) for seed in range(3))):
            assert bits(run("fa2_pipe", problem, TWO, params=params).outputs) == first


def test_a_wild_value_reaches_the_rows_of_both_strips_that_see_it() -> None:
    problem = small(32, 32, **MASK)
    inputs = make_inputs(problem)
    inputs["V"][0, 0, 5, 3], inputs["V"][0, 0, 20, 2] = np.inf, np.nan
    O = run("fa2_pipe", problem, TWO, inputs=inputs).outputs["O"][0, 0].astype(np.float32)
    assert not np.isfinite(O[5:15, 3]).any() and np.isnan(O[20:30, 2]).all()
    O[5:15, 3] = O[20:30, 2] = 0
    assert np.isfinite(O).all()


def test_a_number_of_warps_that_owns_no_whole_strips_is_refused() -> None:
    assert PIPE.invalid_reason(small(1, 1), Tiling(64, 16, warps=3), A100) == (
        "kernel.warps=3 is not supported: Br=64 takes 4 or 2, or auto"
    )
    assert "Br=48 takes 3, or auto" in str(PIPE.invalid_reason(small(1, 1), Tiling(48, 16, warps=2), A100))
    assert PIPE.invalid_reason(small(1, 1), Tiling(64, 16, warps=2), A100) is None


@pytest.mark.parametrize(
    ("d", "Br", "Bc", "warps"),
    [
        (64, 64, 64, 4),
        (128, 128, 32, 4),
        (128, 128, 64, 4),
        (128, 128, 80, 8),
        (64, 128, 128, 8),
        (64, 128, 64, 4),
        (256, 128, 16, 8),
        (64, 96, 64, 6),
    ],
)
def test_how_many_warps_it_takes_by_itself(d: int, Br: int, Bc: int, warps: int) -> None:
    """Two strips each where four warps remain and O and S fit in registers without spills."""
    plan = PIPE.plan(Problem(d=d), Tiling(Br, Bc))
    assert plan.launches[0].cta == (32 * warps, 1, 1) and plan.chosen == {"warps": warps} and plan.defines["RF_WARPS"] == warps


def test_fa2_lazy_keeps_to_one_strip_where_two_spill() -> None:
    assert LADDER["fa2_lazy"].plan(Problem(d=128), Tiling(128, 64)).chosen == {"warps": 8}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["80", "90"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"causal": "bottom_right"},
        {"layout": "bnhd"},
        {"softcap": 3.0},
        {"dtype": "bf16", "causal": "top_left", "window_left": 5},
        {"causal": "bottom_right", "window_left": 100, "softcap": 20.0, "Hkv": 2, "layout": "bnhd"},
    ],
    ids=lambda more: "-".join(more) or "open",
)
def test_two_strips_of_128_columns_do_not_spill(more: dict[str, Any], arch: str) -> None:
    """O and S leave 63 of a thread's 255 registers to everything else."""
    plan = PIPE.plan(Problem(d=128, **more), Tiling(128, 64))
    (used,) = compile_source(read_source(PIPE.file), plan.defines, arch).resources.values()
    assert plan.chosen == {"warps": 4} and used.spill_bytes == 0


@pytest.mark.slow
def test_tensor_cores_bind_on_an_a100() -> None:
    """d = 128, Br = 128, Bc = 64, 4 warps, fp16, no mask: 2 clocks of the SM's tensor cores per mma, 1.5 wavefronts, 4 slots at most."""
    problem, tiling = Problem(B=1, H=1, N=8192, Nkv=512, d=128), Tiling(128, 64)
    gpu = Gpu.from_dict(gpu_values("a100_80gb"))
    found = extended_counts(PIPE, problem, tiling, gpu, backend(EmuParams(memcheck=False, initcheck=False)))
    assert found.exact and found.counts["flops/mma.f16"] == problem.flops()
    light = speed_of_light(work_from(found.counts, problem, PIPE.plan(problem, tiling), gpu), gpu)
    assert light.binding == "tensor"
    assert 0.7 < light.share("smem") < 0.85 and light.share("issue") < 0.6 and light.share("hbm") < 0.5
    mma = found.counts["pipe/tensor"]
    assert sum(n for name, n in found.counts.items() if name.startswith("pipe/")) / mma - 1 <= 4
    assert found.counts["wavefronts"] / mma == pytest.approx(1.5, abs=0.15)  # Q and O move once
