"""Accesses through one address register are checked ahead and counted together; nobody may notice."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module, zeros

LANE = "mov.u32 %r1, %tid.x;\n mul.wide.u32 %d1, %r1, 4;\n add.u64 %d2, %p_x, %d1;\n add.u64 %d3, %p_y, %d1;\n"
SHARED = ".shared .align 16 .b8 tile[4096];\n"


def _counts(report: emu.LaunchReport) -> list[object]:
    return [report.global_, report.shared, sorted(report.opcodes.items())]


@pytest.mark.parametrize("guard", ["", "@%p9 "])
def test_a_group_counts_what_single_accesses_count(guard: str) -> None:
    """With a guard that is always true the accesses are taken one by one."""
    loads = "".join(f"{guard}ld.global.f32 %f{k}, [%d2+{128 * k}];\n" for k in range(4))
    stores = "".join(f"{guard}st.global.f32 [%d3+{128 * k}], %f{k};\n" for k in range(4))
    body = LANE + "setp.lt.u32 %p9, %r1, 64;\n" + loads + stores
    x, y = emu.asarray(np.arange(160, dtype=np.float32)), zeros(160, np.float32)
    report = launch(module(entry("k", ["x", "y"], body, ".reg .f32 %f<9>;")), "k", 1, 32, x, y)
    assert np.array_equal(y[:128], x[:128])
    assert (report.global_.read_bytes, report.global_.write_bytes) == (512, 512)
    assert (report.global_.requests, report.global_.sectors) == (8, 32)
    assert [a.read_bytes for a in report.arguments] == [512, 0] and [a.write_bytes for a in report.arguments] == [0, 512]


def test_counts_follow_a_pattern_that_changes_from_pass_to_pass() -> None:
    """Stride 1, then 2, then 3 words: the same two sites cost 4, 8 and 12 sectors each."""
    body = """
  mov.u32 %r1, %tid.x; mov.u32 %r2, 1;
again:
  mul.lo.u32 %r3, %r1, %r2; mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %p_x, %d1;
  ld.global.f32 %f1, [%d2]; ld.global.f32 %f2, [%d2+1024];
  add.f32 %f3, %f1, %f2;
  add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, 3;
  @%p1 bra again;
  mul.wide.u32 %d3, %r1, 4; add.u64 %d4, %p_y, %d3; st.global.f32 [%d4], %f3;
"""
    x, y = emu.asarray(np.arange(512, dtype=np.float32)), zeros(32, np.float32)
    report = launch(module(entry("k", ["x", "y"], body, ".reg .f32 %f<9>;")), "k", 1, 32, x, y)
    assert report.global_.read_requests == 6
    assert report.global_.read_cost == 2 * (4 + 8 + 12)
    assert report.global_.read_bytes == 6 * 128
    assert np.array_equal(y, x[:96:3] + x[256:352:3])


def test_a_follower_out_of_bounds_is_named() -> None:
    body = LANE + "ld.global.f32 %f1, [%d2];\nld.global.f32 %f2, [%d2+64];\nst.global.f32 [%d3], %f2;\n"
    text = entry("k", ["x", "y"], body, ".reg .f32 %f<9>;")
    with pytest.raises(emu.OutOfBounds) as caught:
        launch(module(text), "k", 1, 32, emu.asarray(np.zeros(32, np.float32)), zeros(32, np.float32))
    assert caught.value.tid == (16, 0, 0)
    assert "[%d2+64]" in module(text).ptx.splitlines()[caught.value.ptx_line - 1]


@pytest.mark.parametrize("second", ["ld.shared.u32 %r5, [%r2+128];", "ld.shared.u32 %r5, [%r2+128]; st.shared.u32 [%r2+128], %r1;"])
def test_a_follower_that_reads_what_no_one_wrote_is_named(second: str) -> None:
    """Also when the same block writes it afterwards: the loaded values are looked at before the store."""
    body = SHARED + LANE + f"shl.b32 %r2, %r1, 2;\n st.shared.u32 [%r2], %r1;\n bar.sync 0;\n ld.shared.u32 %r4, [%r2];\n {second}\n"
    text = entry("k", ["x", "y"], body)
    with pytest.raises(emu.UninitializedRead) as caught:
        launch(module(text), "k", 1, 32, zeros(32, np.float32), zeros(32, np.float32))
    assert caught.value.tid == (0, 0, 0)
    assert "[%r2+128]" in module(text).ptx.splitlines()[caught.value.ptx_line - 1]


def test_a_read_after_the_write_that_makes_it_good_is_not_blamed() -> None:
    """The first load brings the poison's bit pattern legitimately, so everything is looked up; the last one is not due yet."""
    body = (
        SHARED
        + LANE
        + """
  shl.b32 %r2, %r1, 2; mov.u32 %r3, -1;
  st.shared.u32 [%r2], %r3;
  ld.shared.u32 %r4, [%r2];
  st.shared.u32 [%r2+128], %r4;
  ld.shared.u32 %r5, [%r2+128];
  st.global.u32 [%d3], %r5;
"""
    )
    y = zeros(32, np.uint32)
    launch(module(entry("k", ["x", "y"], body)), "k", 1, 32, zeros(32, np.float32), y)
    assert (y == 0xFFFFFFFF).all()


def test_a_register_that_is_written_again_begins_a_new_group() -> None:
    body = (
        LANE
        + """
  ld.global.f32 %f1, [%d2];
  add.u64 %d2, %d2, 128;
  ld.global.f32 %f2, [%d2];
  sub.u64 %d2, %d2, 64;
  ld.global.f32 %f3, [%d2];
  add.f32 %f1, %f1, %f2; fma.rn.f32 %f1, %f3, 1000.0, %f1;
  st.global.f32 [%d3], %f1;
"""
    )
    x, y = emu.asarray(np.arange(64, dtype=np.float32)), zeros(32, np.float32)
    report = launch(module(entry("k", ["x", "y"], body, ".reg .f32 %f<9>;")), "k", 1, 32, x, y)
    assert np.array_equal(y, x[:32] + x[32:64] + 1000 * x[16:48])
    assert report.global_.read_bytes == 3 * 128


def test_a_load_into_its_own_address_register() -> None:
    body = """
  ld.global.u64 %d1, [%p_x+8];
  mov.u64 %d2, %p_x;
  ld.global.u64 %d2, [%d2];
  ld.global.u64 %d3, [%p_x+16];
  st.global.u64 [%p_y], %d2; st.global.u64 [%p_y+8], %d1; st.global.u64 [%p_y+16], %d3;
"""
    x, y = emu.asarray(np.arange(7, 10, dtype=np.uint64)), zeros(3, np.uint64)
    launch(module(entry("k", ["x", "y"], body)), "k", 1, 32, x, y)
    assert y.tolist() == [7, 8, 9]


def test_32_bit_shared_addresses_wrap() -> None:
    """The register alone lies 64 bytes before the window; the offset brings the sum back in."""
    body = (
        SHARED
        + LANE
        + """
  shl.b32 %r2, %r1, 2; st.shared.u32 [%r2], %r1; bar.sync 0;
  sub.u32 %r3, %r2, 64;
  ld.shared.u32 %r4, [%r3+64];
  st.global.u32 [%d3], %r4;
"""
    )
    y = zeros(32, np.uint32)
    report = launch(module(entry("k", ["x", "y"], body)), "k", 1, 32, zeros(32, np.float32), y)
    assert np.array_equal(y, np.arange(32))
    assert report.shared.bank_conflicts == 0


@pytest.mark.parametrize("threads", [32, 20, 1])
def test_a_warp_that_is_not_full(threads: int) -> None:
    body = LANE + "ld.global.f32 %f1, [%d2];\nld.global.f32 %f2, [%d2+80];\nadd.f32 %f1, %f1, %f2;\nst.global.f32 [%d3], %f1;\n"
    x, y = emu.asarray(np.arange(20 + threads, dtype=np.float32)), zeros(32, np.float32)
    report = launch(module(entry("k", ["x", "y"], body, ".reg .f32 %f<9>;")), "k", 1, threads, x, y)
    assert np.array_equal(y[:threads], x[:threads] + x[20:])
    assert report.global_.read_bytes == 2 * 4 * threads
