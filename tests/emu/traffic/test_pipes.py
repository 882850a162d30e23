"""Pipes and floating-point operations: the tables, and what kernels add up to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rawflash import emu
from rawflash.emu.isa import load_all
from rawflash.emu.isa.registry import spellings, supported_forms
from rawflash.emu.traffic.flops import flops, matrix_flops, scalar_flops
from rawflash.emu.traffic.pipes import PIPES, TABLE, by_pipe, pipe_of
from tests.emu.harness import cuda, entry, launch, line_of, module, zeros

load_all()


def test_every_opcode_of_the_registry_is_in_the_table() -> None:
    assert {form.opcode for form in supported_forms()} <= set(TABLE)


@pytest.mark.parametrize("form", supported_forms(), ids=lambda f: f.pattern[:40])
def test_every_form_has_a_pipe_and_operations(form: object) -> None:
    for spelling in itertools.islice(spellings(form.pattern), 300):  # type: ignore[attr-defined]
        assert pipe_of(spelling) in PIPES
        assert (scalar_flops(spelling)[1] > 0) + (matrix_flops(spelling)[1] > 0) <= 1


@pytest.mark.parametrize(
    ("spelling", "pipe"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "tensor"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16", "tensor"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "lsu"),
        ("fma.rn.ftz.f32", "fma"), ("add.f32", "fma"), ("mul.ftz.f32", "fma"), ("add.rn.ftz.f32x2", "fma"),
        ("fma.rn.f16x2", "fp16"), ("add.rn.bf16", "fp16"),
        ("fma.rn.f64", "fp64"), ("setp.lt.f64", "fp64"), ("div.rn.f64", "fp64"), ("max.f64", "fp64"),
        ("mad.lo.s32", "imad"), ("mul.wide.u32", "imad"), ("dp4a.s32.s32", "imad"), ("mad.rn.f32", "fma"),
        ("add.s64", "alu"), ("max.ftz.f32", "alu"), ("setp.gt.f32", "alu"), ("selp.f32", "alu"), ("lop3.b32", "alu"), ("div.s32", "alu"),
        ("neg.f32", "alu"), ("min.f16x2", "alu"),
        ("ex2.approx.ftz.f32", "sfu"), ("div.full.ftz.f32", "sfu"), ("sqrt.rn.f32", "sfu"), ("rcp.approx.ftz.f64", "sfu"),
        ("cvt.rn.f16.f32", "cvt"),
        ("ld.global.nc.v4.f32", "lsu"), ("st.shared.f32", "lsu"), ("atom.global.add.f32", "lsu"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "lsu"),
        ("cp.async.cg.shared.global", "lsu"), ("cp.async.commit_group", "barrier"), ("cp.async.wait_group", "barrier"),
        ("cp.async.mbarrier.arrive.shared.b64", "barrier"), ("mbarrier.arrive.shared.b64", "barrier"), ("bar.sync", "barrier"),
        ("shfl.sync.bfly.b32", "shuffle"), ("vote.sync.ballot.b32", "shuffle"),
        ("bra.uni", "branch"), ("ret", "branch"),
        ("ld.param.u64", "other"), ("ld.param::entry.u64", "other"), ("mov.b32", "other"), ("cvta.to.global.u64", "other"),
    ],
)  # fmt: skip
def test_pipe_of(spelling: str, pipe: str) -> None:
    assert pipe_of(spelling) == pipe


def test_an_unknown_opcode_is_an_error() -> None:
    with pytest.raises(emu.EmuError, match=r"no pipe is known for the opcode 'wgmma'.*pipes.py"):
        by_pipe({"fma.rn.f32": 1, "wgmma.mma_async": 2})


@pytest.mark.parametrize(
    ("spelling", "want"),
    [
        ("fma.rn.ftz.f32", ("f32", 2)), ("fma.rn.bf16x2", ("bf16", 4)), ("add.rn.ftz.f32x2", ("f32", 2)), ("mul.f64", ("f64", 1)),
        ("sub.f16", ("f16", 1)),
        ("add.s32", ("", 0)), ("max.f32", ("", 0)), ("cvt.rn.f16.f32", ("", 0)), ("neg.f32", ("", 0)),
        ("mul.lo.s32", ("", 0)), ("rem.u32", ("", 0)),
        ("ex2.approx.ftz.f16x2", ("special", 2)), ("rcp.approx.ftz.f32", ("special", 1)), ("div.rn.f64", ("special", 1)),
        ("div.s32", ("", 0)),
    ],
)  # fmt: skip
def test_scalar_flops(spelling: str, want: tuple[str, int]) -> None:
    assert scalar_flops(spelling) == want


@pytest.mark.parametrize(
    ("spelling", "want"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ("mma.f16", 4096)),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", ("mma.tf32", 2048)),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", ("mma.e4m3", 8192)),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn", ("mma.f64", 512)),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", ("", 0)),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", ("", 0)),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16", ("mma.f16", 8192)),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32", ("mma.bf16", 8192)),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", ("", 0)),
        ("fma.rn.f32", ("", 0)),
    ],
)
def test_matrix_flops(spelling: str, want: tuple[str, int]) -> None:
    assert matrix_flops(spelling) == want


def test_kinds_add_up() -> None:
    threads = {"fma.rn.f32": 64, "add.f32": 32, "ex2.approx.ftz.f32": 32, "mov.b32": 9}
    warps = {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 3, "fma.rn.f32": 2}
    assert flops(threads, warps) == {"f32": 160, "mma.f16": 3 * 4096, "special": 32}


DIVERGENT = """
extern "C" __global__ void saxpy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        for (int k = 0; k < 10; ++k) v = fmaf(v, 1.5f, 2.0f);  // chain
        y[i] = v;
    }
}
"""


def test_a_kernel_by_pipe_and_by_line() -> None:
    """Two warps, the second with 8 lanes inside the bounds."""
    report = launch(cuda(DIVERGENT), "saxpy", 1, 64, zeros(40, np.float32), zeros(40, np.float32), np.int32(40))
    pipes = report.pipes()
    assert list(pipes) == list(PIPES)
    assert sum(pipes.values()) == report.warp_instructions
    assert (pipes["fma"], pipes["lsu"], pipes["tensor"]) == (20, 4, 0)
    assert report.flops() == {"f32": 2 * 10 * 40}
    efficiency = report.pipe_efficiency()
    assert (efficiency["fma"], efficiency["lsu"]) == (40 / 64, 40 / 64)
    assert "tensor" not in efficiency
    assert efficiency["fma"] < report.lane_efficiency < 1
    chain = next(line for (_, number), line in report.lines.items() if number == line_of(DIVERGENT, "chain"))
    assert chain.lane_efficiency == 40 / 64
    assert chain.warp_opcodes["fma.rn.ftz.f32"] == 20
    assert sum(line.warp_opcodes.total() for line in report.lines.values()) <= report.warp_instructions
    assert np.isnan(emu.LineCounts().lane_efficiency)


def test_matrix_instructions_of_a_kernel() -> None:
    group = "{%r1, %r2}"
    zeros_first = "\n".join(f"  mov.b32 %r{n}, 0;" for n in range(1, 9))
    body = zeros_first + f"\n  mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {group}, {group}, {{%r5}}, {group};"
    report = launch(module(entry("one", ["out"], body)), "one", 3, 64, zeros(1, np.int32))
    assert report.flops() == {"mma.f16": 3 * 2 * 2048}
    assert report.pipes()["tensor"] == 6
