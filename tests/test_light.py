"""The speed of light, by hand: each resource at its own rate, the slowest binds, a measurement below a strict one is wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rawflash.config import gpu_values
from rawflash.light import RESOURCES, Light, Work, faster_than_light, speed_of_light
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.variants import Launch, Plan
from rawflash.work import least_hbm_bytes, work_from

# 10 SMs at 1 GHz: 1e7 SM clocks in a millisecond.
GPU = Gpu(
    *("toy", "80", 10, 1024, 1024),
    **{"hbm_gb_s": 1.0, "l2_gb_s": 4.0, "l2_bytes": 1000, "boost_mhz": 1000, "fp16_tflops": 2.0, "bf16_tflops": 1.0},
    **{"fma_per_clk_sm": 64, "sfu_per_clk_sm": 16, "smem_bytes_per_clk_sm": 64, "lsu_per_clk_sm": 32},
)
A100 = Gpu.from_dict(gpu_values("a100_80gb"))


@pytest.mark.parametrize(
    ("work", "resource", "ms"),
    [
        (Work(hbm_bytes=3e6), "hbm", 3),
        (Work(l2_bytes=8e6), "l2", 2),
        (Work(smem_wavefronts=1e7), "smem", 2),  # 128 bytes each through 64 bytes per clock
        (Work(tensor_flops={"fp16": 4e9}), "tensor", 2),
        (Work(tensor_flops={"fp16": 2e9, "bf16": 2e9}), "tensor", 3),
        (Work(pipes={"fma": 1e7, "imad": 5e6, "fp16": 5e6}), "fma", 1),  # 32 lanes each, 64 per clock
        (Work(pipes={"alu": 2e7}), "alu", 1),
        (Work(pipes={"sfu": 1e7}), "sfu", 2),
        (Work(pipes={"lsu": 1e7, "shuffle": 1e7}), "lsu", 2),
        (Work(pipes={"branch": 4e7, "other": 1e9}), "issue", 1),  # four schedulers; moves are renamed away
    ],
)
def test_each_resource_takes_its_time(work: Work, resource: str, ms: float) -> None:
    light = speed_of_light(work, GPU)
    assert tuple(light.ms) == RESOURCES
    assert light.ms[resource] == pytest.approx(ms)
    assert (light.binding, light.least_ms, light.share(resource)) == (resource, light.ms[resource], 1)


def test_a_rate_that_is_not_known_bounds_nothing() -> None:
    light = speed_of_light(
        Work(hbm_bytes=1, l2_bytes=1, tensor_flops={"fp8": 1}, pipes={"alu": 1}), Gpu("blank", "80", 1, 1, 1, boost_mhz=1)
    )
    assert set(light.ms) == {"alu", "issue"}
    assert speed_of_light(Work(), GPU).binding == Light({}).binding == "none"
    assert Light({}).least_ms == Light({}).share("hbm") == 0


def test_faster_than_light_is_an_error_of_measurement() -> None:
    light = speed_of_light(Work(hbm_bytes=2e6, tensor_flops={"fp16": 2e9}, smem_wavefronts=1e8), GPU)
    assert light.binding == "smem"
    assert faster_than_light(2.0, light, GPU) is None  # shared memory is no strict bound: ptxas may join loads
    sentence = faster_than_light(1.99, light, GPU)
    assert sentence is not None and sentence.startswith("error of measurement: 1.99 ms is faster than light, hbm of toy alone needs 2 ms")
    assert faster_than_light(0.0, Light({}), GPU) is None


def test_an_mma_keeps_a_subcore_of_an_a100_busy_for_eight_clocks() -> None:
    """m16n8k16 is 4096 operations; an A100 has four sub-cores per SM."""
    light = speed_of_light(Work(tensor_flops={"fp16": 4096.0 * 4 * A100.sms}, pipes={"alu": 4.0 * A100.sms}), A100)
    clock_ms = 1 / (A100.boost_mhz * 1e3)
    assert light.ms["tensor"] == pytest.approx(8 * clock_ms, rel=1e-3)
    assert light.ms["issue"] == pytest.approx(clock_ms)


# --------------------------------------------------------------------------------------------------------- bytes of HBM
P = Problem(B=1, H=1, N=4, Nkv=8, d=8, dtype="fp16")  # Q and O 64 bytes, K and V 128
O, S = ((1, 1, 4, 8), np.dtype(np.float16)), ((1, 1, 4, 8), np.dtype(np.float32))  # 64 and 128 bytes
LAUNCH = Launch("k", (1, 1, 1), (32, 1, 1), 0, ())
COUNTS = {"hbm/Q/read": 640, "hbm/K/read": 1280, "hbm/V/read": 64, "hbm/O/write": 64, "hbm/S/write": 128, "hbm/S/read": 384, "sectors": 7}


def test_inputs_cross_once_and_results_beyond_l2() -> None:
    fused = Plan({}, {"O": O}, (LAUNCH,))
    assert least_hbm_bytes(COUNTS, P, fused, 0) == 64 + 128 + 64 + 64  # of V a half is read
    assert least_hbm_bytes(COUNTS, P, fused, 40) == 256 + 24
    assert least_hbm_bytes(COUNTS, P, fused, 10**6) == 256


def test_what_a_later_kernel_reads_comes_back_beyond_l2() -> None:
    three = Plan({}, {"O": O, "S": S}, (LAUNCH, LAUNCH, LAUNCH))
    assert least_hbm_bytes(COUNTS, P, three, 0) == 256 + 64 + 128 + 128
    assert least_hbm_bytes(COUNTS, P, three, 100) == 256 + (64 + 128 - 100) + 28
    assert least_hbm_bytes(COUNTS, P, dataclasses.replace(three, launches=(LAUNCH,)), 100) == 256 + 92


def test_work_sums_what_shares_a_rate() -> None:
    counts = {**COUNTS, "flops/mma.e4m3": 1, "flops/mma.e5m2": 2, "flops/mma.bf16": 4, "flops/f32": 9, "pipe/fma": 3, "wavefronts": 5}
    work = work_from(counts, P, Plan({}, {"O": O}, (LAUNCH,)), GPU)
    assert work == Work(256, 7 * 32, 5, {"fp8": 3, "bf16": 4}, {"fma": 3})
