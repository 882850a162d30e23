"""The launch report: bytes by argument and line, instructions by opcode and line, lane efficiency, barriers, sums of reports."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import cuda, launch, line_of, zeros

SOURCE = """
extern "C" __global__ void axpy(const float* x, const float4* y, float* out, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float u = x[i];  // read x
        float v = y[i].x;  // read y
        out[i] = fmaf(a, u, v);  // write out
    }
}
extern "C" __global__ void staged(const float* x, float* out) {
    __shared__ float s[128];
    s[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];  // stage
    __syncthreads();
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += s[(threadIdx.x + 32 * k) & 127];  // sum up
    __syncthreads();
    out[blockIdx.x * 128 + threadIdx.x] = sum * 0.25f;
}
extern "C" __global__ void halves(float* out) {
    if (threadIdx.x & 1) out[threadIdx.x] = sqrtf(out[threadIdx.x]) / 3.f;
}
extern "C" __global__ void spill(const int* x, int* out, int n) {
    int buffer[32];
    for (int k = 0; k < 32; ++k) buffer[k] = x[k];
    for (int k = 0; k < n; ++k) buffer[(x[k] + k) & 31] += k;  // scatter
    out[threadIdx.x] = buffer[threadIdx.x & 31];
}
"""


@cache
def module(count: bool = True) -> Any:
    return cuda(SOURCE, params=emu.EmuParams(count=count))


def axpy(n: int, shift: int = 0) -> Any:
    x, y = emu.asarray(np.ones(n + shift, np.float32)), emu.asarray(np.ones((n, 4), np.float32))
    return launch(module(), "axpy", -(-n // 64), 64, x[shift:], y, zeros(n, np.float32), np.float32(2), np.int32(n))


def of_line(report: Any, tag: str) -> Any:
    """The counts of the tagged line."""
    found = [counts for (_, line), counts in report.lines.items() if line == line_of(SOURCE, tag)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("n", [64, 200, 1])
def test_bytes_and_sectors_by_argument(n: int) -> None:
    report = axpy(n)
    x, y, out = report.arguments[:3]
    assert [a.index for a in report.arguments] == [0, 1, 2]
    assert (x.read_bytes, x.write_bytes, x.read_sectors) == (4 * n, 0, -(-n // 8))
    assert (y.read_bytes, y.read_sectors) == (4 * n, -(-n // 2))  # one word of every 16 bytes: two per sector
    assert (out.read_bytes, out.write_bytes, out.write_sectors) == (0, 4 * n, -(-n // 8))
    requests = -(-n // 32)
    assert (x.read_requests, y.read_requests, out.write_requests) == (requests,) * 3
    assert report.global_.read_bytes == x.read_bytes + y.read_bytes and report.global_.write_bytes == out.write_bytes
    assert report.global_.sectors == x.read_sectors + y.read_sectors + out.write_sectors


def test_an_offset_argument_costs_a_sector_a_request() -> None:
    assert axpy(256, 1).arguments[0].read_sectors == 8 * 5
    assert axpy(256, 8).arguments[0].read_sectors == 8 * 4


def test_bytes_and_instructions_by_line() -> None:
    report = axpy(200)
    read, other, write = (of_line(report, tag) for tag in ("read x", "read y", "write out"))
    assert (read.global_.read_bytes, other.global_.read_bytes, write.global_.write_bytes) == (800, 800, 800)
    assert sum(n for spelling, n in write.opcodes.items() if spelling.startswith("fma")) == 200
    assert sum(n for spelling, n in read.opcodes.items() if spelling.startswith("ld.global")) == 200
    assert sum(line.global_.read_bytes for line in report.lines.values()) == report.global_.read_bytes
    total = sum((line.opcodes for line in report.lines.values()), start=type(report.opcodes)())
    assert all(total[spelling] <= count for spelling, count in report.opcodes.items())


def test_instruction_counts_are_active_lanes() -> None:
    report = axpy(200)
    assert report.count("fma") == report.count("st") == 200 and report.count("ld", "global") == 400
    assert report.warp_count("fma") == 7  # 6 full warps and one of 8 lanes; the eighth warp skips
    assert report.count("fma", "f32", "rn") == 200 and report.count("fma", "f64") == 0
    assert 0.9 < report.lane_efficiency < 1
    assert report.thread_instructions == sum(report.opcodes.values())


def test_divergence_lowers_lane_efficiency() -> None:
    out = emu.asarray(np.arange(64, dtype=np.float32))
    report = launch(module(), "halves", 1, 64, out)
    assert report.count("sqrt") == 32 and report.warp_count("sqrt") == 2
    assert report.count("div") == 32
    assert report.lane_efficiency < 0.8
    assert np.allclose(out[1::2], np.sqrt(np.arange(1, 64, 2)) / 3, rtol=1e-6)


def test_shared_memory_and_barriers() -> None:
    ctas = 3
    x = emu.asarray(np.arange(ctas * 128, dtype=np.float32))
    report = launch(module(), "staged", ctas, 128, x, zeros(ctas * 128, np.float32))
    assert report.shared.write_bytes == ctas * 512 and report.shared.read_bytes == 4 * ctas * 512
    assert report.shared.requests == ctas * (4 + 16) == report.shared.wavefronts and report.shared.bank_conflicts == 0
    assert of_line(report, "sum up").shared.read_bytes == 4 * ctas * 512
    assert of_line(report, "stage").global_.read_bytes == of_line(report, "stage").shared.write_bytes == ctas * 512
    assert report.barriers == 2 * 4 * ctas  # warps that executed a barrier
    assert (report.ctas, report.warps) == (ctas, 4 * ctas)


def test_local_memory_is_counted_apart() -> None:
    x, out = emu.asarray(np.arange(32, dtype=np.int32)), zeros(64, np.int32)
    report = launch(module(), "spill", 1, 64, x, out, np.int32(5))
    assert of_line(report, "scatter").local.write_bytes == 64 * 5 * 4
    assert of_line(report, "scatter").local.read_bytes == 64 * 5 * 4
    assert report.local.write_bytes == 64 * (32 + 5) * 4
    assert report.arguments[1].write_bytes == 256


def test_reports_add_up() -> None:
    one, two = axpy(64), axpy(200)
    both = one + two
    assert both.count("fma") == 264
    assert both.global_.read_bytes == one.global_.read_bytes + two.global_.read_bytes
    assert of_line(both, "write out").global_.write_bytes == 4 * 264
    assert both.ctas == one.ctas + two.ctas
    assert one.count("fma") == 64  # the parts keep their own numbers


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("seed", [None, 9])
def test_counts_do_not_depend_on_threads_or_order(threads: int, seed: int | None) -> None:
    x, y, n = emu.asarray(np.ones(5000, np.float32)), emu.asarray(np.ones((5000, 4), np.float32)), 5000
    mod = cuda(SOURCE, params=emu.EmuParams(threads=threads, order_seed=seed))
    report = launch(mod, "axpy", -(-n // 64), 64, x, y, zeros(n, np.float32), np.float32(2), np.int32(n))
    plain = axpy(n)
    assert report.opcodes == plain.opcodes and report.global_ == plain.global_ and report.arguments == plain.arguments


def test_counting_off_computes_the_same() -> None:
    x = emu.asarray(np.arange(256, dtype=np.float32))
    results = []
    for count in (True, False):
        out = zeros(256, np.float32)
        report = launch(module(count), "staged", 2, 128, x, out)
        results.append(np.array(out))
    assert np.array_equal(*results)
    assert report.global_.read_bytes == 0 and report.count("fma") == 0


def test_a_report_shows_itself_in_a_line() -> None:
    assert repr(launch(module(), "staged", 2, 128, zeros(256, np.float32), zeros(256, np.float32))).startswith(
        "<LaunchReport staged: 2 CTAs, 8 warps, "
    )
    shown = str(axpy(1000))
    assert "global 8000 B read, 4000 B written" in shown and "\n" not in shown


def test_the_kernel_keeps_its_last_report() -> None:
    kernel = module().get_function("halves")
    report = kernel((1, 1, 1), (32, 1, 1), (emu.asarray(np.ones(32, np.float32)),))
    assert kernel.last_report is report and report.kernel == "halves"
