"""Modifiers in another order than the manual's: ptxas takes them in any order, and libraries and people write them so."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module

# the manual's spelling with its operands, and spellings that ptxas 13 accepts for it
SPELLINGS = [
    ("setp.lt.s32 %p1, %r2, %r3", ["setp.s32.lt %p1, %r2, %r3"]),
    ("cvt.rn.f32.s32 %r9, %r2", ["cvt.f32.rn.s32 %r9, %r2", "cvt.f32.s32.rn %r9, %r2"]),
    ("cvt.rn.f16x2.f32 %r9, %r2, %r3", ["cvt.f16x2.rn.f32 %r9, %r2, %r3"]),
    ("fma.rn.ftz.f32 %r9, %r2, %r3, %r2", ["fma.ftz.rn.f32 %r9, %r2, %r3, %r2", "fma.f32.rn.ftz %r9, %r2, %r3, %r2"]),
    ("shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1", ["shfl.bfly.sync.b32 %r9, %r2, 1, 31, -1", "shfl.sync.b32.bfly %r9, %r2, 1, 31, -1"]),
    ("atom.relaxed.gpu.global.add.u32 %r9, [%d4], 5", [
        "atom.add.relaxed.gpu.global.u32 %r9, [%d4], 5", "atom.global.add.u32.relaxed.gpu %r9, [%d4], 5",
        "atom.add.global.relaxed.gpu.u32 %r9, [%d4], 5"]),
    ("red.release.cta.global.max.s32 [%d4], 7", ["red.max.release.cta.global.s32 [%d4], 7", "red.global.max.s32.release.cta [%d4], 7"]),
    ("ld.relaxed.gpu.global.b32 %r9, [%d4]", ["ld.global.relaxed.gpu.b32 %r9, [%d4]", "ld.global.b32.relaxed.gpu %r9, [%d4]"]),
    ("ld.global.v2.b32 {%r9, %r8}, [%d4]", ["ld.v2.global.b32 {%r9, %r8}, [%d4]", "ld.b32.v2.global {%r9, %r8}, [%d4]"]),
    ("st.release.gpu.global.b32 [%d4], %r3", ["st.global.release.gpu.b32 [%d4], %r3", "st.b32.global.release.gpu [%d4], %r3"]),
    ("fence.acq_rel.gpu", ["fence.gpu.acq_rel"]),
]  # fmt: skip
ROWS = [(manual, other) for manual, others in SPELLINGS for other in others]


def results(line: str) -> list[np.ndarray]:
    """What ``line`` leaves in %r8, %r9, %p1 and in memory, for 32 lanes."""
    body = f"""
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, 8, %p_x;
  mad.wide.u32 %d4, %r1, 8, %p_cells;
  mad.wide.u32 %d3, %r1, 32, %p_out;
  ld.global.v2.b32 {{%r2, %r3}}, [%d1];
  mov.u32 %r8, 0;
  mov.u32 %r9, 0;
  setp.ne.u32 %p1, %r9, %r9;
  {line};
  selp.u32 %r7, 1, 0, %p1;
  st.global.v4.b32 [%d3], {{%r7, %r8, %r9, %r1}};"""
    x = np.random.default_rng(4).integers(0, 2**31, 64).astype(np.uint32)
    cells, out = emu.asarray(np.arange(64, dtype=np.uint32)), emu.asarray(np.zeros((32, 8), np.uint32))
    launch(module(entry("order", ["x", "cells", "out"], body)), "order", 1, 32, emu.asarray(x), cells, out)
    return [np.array(out), np.array(cells)]


@pytest.mark.parametrize(("manual", "other"), ROWS, ids=[other.split()[0] for _, other in ROWS])
def test_another_order_means_the_same(manual: str, other: str) -> None:
    for got, want in zip(results(other), results(manual), strict=True):
        assert np.array_equal(got, want)
