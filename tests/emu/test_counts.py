"""Sectors, wavefronts and bank conflicts (cases P24 and P25): tables by hand, then random patterns against a slow model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module
from tests.emu.oracles import traffic

LANE = np.arange(32)
EXTENT = 16384
VECTORS = {1: ("b8", 1), 2: ("b16", 1), 4: ("b32", 1), 8: ("v2.b32", 2), 16: ("v4.b32", 4)}
QUIET = emu.EmuParams(initcheck=False)


def access_text(space: str, size: int, store: bool) -> str:
    """A kernel in which every lane of warp 0 loads or stores ``size`` bytes at its own offset, lanes with -1 excepted."""
    kind, count = VECTORS[size]
    registers = [f"%h{i}" if size < 4 else f"%r{10 + i}" for i in range(count)]
    group = registers[0] if count == 1 else "{" + ", ".join(registers) + "}"
    zero = "\n".join(f"  mov.b{16 if size < 4 else 32} {r}, 0;" for r in registers)
    base = "mov.u64 %d1, tile;\n  cvta.shared.u64 %d2, %d1;" if space == "shared" else "mov.u64 %d1, %p_data;"
    action = f"st.{space}.{kind} [%d4], {group}" if store else f"ld.{space}.{kind} {group}, [%d4]"
    body = f"""
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d3, %r1, 4, %p_offsets;
  ld.global.s32 %r2, [%d3];
  setp.ge.s32 %p1, %r2, 0;
  {base}
{zero}
  cvt.s64.s32 %d5, %r2;
  add.s64 %d4, %d1, %d5;
  @%p1 {action};"""
    registers_text = f"  .shared .align 16 .b8 tile[{EXTENT}];" if space == "shared" else ""
    return entry("access", ["data", "offsets"], body, registers_text)


@cache
def access_module(space: str, size: int, store: bool) -> Any:
    return module(access_text(space, size, store), params=QUIET)


def measure(space: str, size: int, offsets: np.ndarray, store: bool = False, shift: int = 0) -> Any:
    data = emu.asarray(np.zeros(EXTENT + 64, np.uint8))
    lanes = emu.asarray(np.asarray(offsets, np.int32))
    return launch(access_module(space, size, store), "access", 1, len(lanes), data[shift:], lanes)


def every(stride: int, size: int) -> np.ndarray:
    return LANE * stride * size


SECTOR_TABLE = [
    ("32 floats in a row", 4, every(1, 4), 0, 4),
    ("the same, base moved by 4 bytes", 4, every(1, 4), 4, 5),
    ("stride 2", 4, every(2, 4), 0, 8),
    ("stride 32", 4, every(32, 4), 0, 32),
    ("one address", 4, every(0, 4), 0, 1),
    ("reversed order", 4, every(1, 4)[::-1], 0, 4),
    ("float4 in a row", 16, every(1, 16), 0, 16),
    ("8 active lanes", 4, np.where(LANE < 8, every(1, 4), -1), 0, 1),
    ("half in a row", 2, every(1, 2), 0, 2),
    ("bytes in a row", 1, every(1, 1), 0, 1),
    ("float2 in a row", 8, every(1, 8), 0, 8),
    ("nobody", 4, np.full(32, -1), 0, 0),
]


@pytest.mark.parametrize("store", [False, True], ids=["load", "store"])
@pytest.mark.parametrize(("label", "size", "offsets", "shift", "want"), SECTOR_TABLE, ids=[row[0] for row in SECTOR_TABLE])
def test_sector_table(label: str, size: int, offsets: np.ndarray, shift: int, want: int, store: bool) -> None:
    assert traffic.sectors([int(o) + shift if o >= 0 else -1 for o in offsets], size) == want
    report = measure("global", size, offsets, store, shift)
    argument = report.arguments[0]
    counted = (argument.write_sectors, argument.write_bytes) if store else (argument.read_sectors, argument.read_bytes)
    assert counted == (want, traffic.distinct_bytes(offsets.tolist(), size))
    assert (argument.write_requests if store else argument.read_requests) == int((offsets >= 0).any())
    assert (argument.read_bytes if store else argument.write_bytes) == 0


BANK_TABLE = [
    ("column of [32][32]", 4, every(32, 4), 32, 31),
    ("column of [32][33]", 4, every(33, 4), 1, 0),
    ("s[2 * lane]", 4, every(2, 4), 2, 1),
    ("one address", 4, every(0, 4), 1, 0),
    ("half s[lane]", 2, every(1, 2), 1, 0),
    ("float2 s[lane]", 8, every(1, 8), 2, 0),
    ("float4 s[lane]", 16, every(1, 16), 4, 0),
    ("float4 s[2 * lane]", 16, every(2, 16), 8, 4),
    ("float4 column of [32][64]", 16, every(16, 16), 32, 28),
    ("bytes s[lane]", 1, every(1, 1), 1, 0),
    ("float2 one address", 8, every(0, 8), 1, 0),
    ("float2 s[lane / 2]", 8, LANE // 2 * 8, 1, 0),
    ("float2 pairs two apart", 8, (LANE // 4 * 2 + LANE % 2) * 8, 1, 0),
    ("float4 one address", 16, every(0, 16), 2, 0),
    ("float4 one address per half-warp", 16, LANE // 16 * 32, 2, 0),
    ("float4 s[lane / 2]", 16, LANE // 2 * 16, 2, 0),
    ("float4, 8 active lanes", 16, np.where(LANE < 8, every(1, 16), -1), 1, 0),
    ("float2, upper half active", 8, np.where(LANE >= 16, every(1, 8), -1), 1, 0),
    ("two lanes, one bank", 4, np.where(LANE < 2, LANE * 128, -1), 2, 1),
]


@pytest.mark.parametrize(("label", "size", "offsets", "want", "excess"), BANK_TABLE, ids=[row[0] for row in BANK_TABLE])
def test_bank_table(label: str, size: int, offsets: np.ndarray, want: int, excess: int) -> None:
    assert traffic.wavefronts(offsets.tolist(), size) == want
    assert traffic.bank_conflicts(offsets.tolist(), size) == excess
    shared = measure("shared", size, offsets).shared
    assert (shared.wavefronts, shared.bank_conflicts) == (want, excess)
    assert shared.requests == 1
    assert (shared.read_bytes, shared.write_bytes) == (traffic.distinct_bytes(offsets.tolist(), size), 0)
    assert shared.read_lane_bytes == size * int((offsets >= 0).sum())


def _random_cases(seed: int, size: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed * 100 + size)
    return [traffic.random_offsets(rng, size, EXTENT) for _ in range(count)]


def _compare(size: int, cost: Callable[[Any], Any], space: str, model: Callable[[list[int], int], Any]) -> None:
    for seed, store in ((1, False), (2, True)):
        for offsets in _random_cases(seed, size, 30):
            got, want = cost(measure(space, size, offsets, store)), model(offsets.tolist(), size)
            assert got == want, f"{'store' if store else 'load'} of {size} bytes at {offsets.tolist()}: counted {got}, model {want}"


@pytest.mark.parametrize("size", sorted(VECTORS))
def test_random_sectors(size: int) -> None:
    _compare(size, lambda r: r.arguments[0].read_sectors + r.arguments[0].write_sectors, "global", traffic.sectors)


@pytest.mark.parametrize("size", sorted(VECTORS))
def test_random_wavefronts(size: int) -> None:
    def model(offsets: list[int], size: int) -> tuple[int, int]:
        return traffic.wavefronts(offsets, size), traffic.bank_conflicts(offsets, size)

    _compare(size, lambda r: (r.shared.wavefronts, r.shared.bank_conflicts), "shared", model)


def test_repeated_patterns_add_up() -> None:
    """Counts of many CTAs that use different patterns at one access site are the sum of the patterns' counts, in any order."""
    patterns = _random_cases(3, 16, 24)
    order = np.random.default_rng(0).choice(len(patterns), 200)
    body = access_text("shared", 16, False).replace("mov.u32 %r1, %tid.x;", "mov.u32 %r3, %ctaid.x;\n  mov.u32 %r4, %tid.x;\n"
                                                    "  mad.lo.u32 %r1, %r3, 32, %r4;")  # fmt: skip
    lanes = emu.asarray(np.concatenate([patterns[i] for i in order]))
    report = launch(module(body, params=QUIET), "access", len(order), 32, emu.asarray(np.zeros(16, np.uint8)), lanes)
    assert report.shared.wavefronts == sum(traffic.wavefronts(patterns[i].tolist(), 16) for i in order)
    assert report.shared.bank_conflicts == sum(traffic.bank_conflicts(patterns[i].tolist(), 16) for i in order)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("pitch", [16, 32, 64, 80, 128, 144, 256])
def test_ldmatrix_wavefronts(count: int, pitch: int) -> None:
    """Rows of 16 bytes at a pitch: 128-byte rows conflict eightfold, a pitch of 144 bytes not at all."""
    group = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
    body = f"""
  mov.u32 %r1, %tid.x;
  mul.lo.u32 %r2, %r1, {pitch};
  mov.u32 %r3, tile;
  add.u32 %r4, %r3, %r2;
  ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {group}, [%r4];"""
    text = entry("access", ["data"], body, f"  .shared .align 128 .b8 tile[{32 * 256}];")
    report = launch(module(text, params=QUIET), "access", 1, 32, emu.asarray(np.zeros(16, np.uint8)))
    want = traffic.ldmatrix_wavefronts([lane * pitch for lane in range(32)], count)
    assert (report.shared.wavefronts, report.shared.bank_conflicts) == (want, want - count)
    assert report.shared.read_bytes == count * 128
