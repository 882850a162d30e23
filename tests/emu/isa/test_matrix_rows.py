"""ldmatrix and stmatrix as memory accesses: what they count, what they check, whose addresses matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawflash import emu
from rawflash.emu import fragments
from tests.emu.harness import entry, launch, module
from tests.emu.oracles import traffic

RNG = np.random.default_rng(8)
TILE = 32 * 256
CHECKED = emu.EmuParams(threads=1)
FILL = f"""
  mov.u32 %r2, tile;
  mov.u32 %r5, 0;
fill:
  shl.b32 %r6, %r5, 7;
  mad.lo.u32 %r6, %r1, 4, %r6;
  add.u32 %r7, %r2, %r6;
  cvt.u64.u32 %d6, %r6;
  add.u64 %d7, %p_data, %d6;
  ld.global.b32 %r8, [%d7];
  st.shared.b32 [%r7], %r8;
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p2, %r5, {TILE // 128};
  @%p2 bra fill;
  bar.warp.sync 0xffffffff;"""


def group(count: int) -> str:
    return "{" + ", ".join(f"%r{20 + n}" for n in range(count)) + "}"


def kernel(access: str, count: int, fill: bool = True, generic: bool = False) -> str:
    """``rows(data, at, out)``: the tile is filled from ``data``, lane l's row starts at byte ``at[l]`` of it."""
    window = "\n  cvt.u64.u32 %d9, %r4;\n  cvta.shared.u64 %d9, %d9;" if generic else ""
    stores = "\n".join(f"  st.global.b32 [%d3+{128 * n}], %r{20 + n};" for n in range(count))
    body = f"""
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
{FILL if fill else ""}
  mad.wide.u32 %d2, %r1, 4, %p_at;
  ld.global.b32 %r3, [%d2];
  add.u32 %r4, %r2, %r3;{window}
  {access}
  mad.wide.u32 %d3, %r1, 4, %p_out;
{stores}"""
    return entry("rows", ["data", "at", "out"], body, f"  .shared .align 128 .b8 tile[{TILE}];")


def load_text(count: int, trans: str = "", address: str = "%r4", space: str = ".shared") -> str:
    return f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {group(count)}, [{address}];"


def run(text: str, at: np.ndarray, count: int, **kwargs: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """(bytes of the tile, registers (32, count), report)."""
    data = RNG.integers(0, 256, TILE, dtype=np.uint8)
    out = emu.asarray(np.zeros((max(count, 1), 32), np.uint32))
    report = launch(module(text, **kwargs), "rows", 1, 32, emu.asarray(data), emu.asarray(at.astype(np.uint32)), out)
    return data, np.array(out).T, report


def held(data: np.ndarray, at: np.ndarray, count: int, trans: bool) -> np.ndarray:
    matrices = np.stack([data[a : a + 16].view(np.uint16) for a in at[: 8 * count]]).reshape(count, 8, 8)
    matrix, row, col = fragments.ldmatrix(count, trans)
    return fragments.pack(matrices[matrix, row, col].reshape(32, -1))


def swizzled(pitch: int, xor: bool) -> np.ndarray:
    """Rows of a tile of ``pitch`` bytes a row, the 16-byte chunks permuted by the row number or not; matrix i is column i."""
    lane = np.arange(32)
    row, chunk = lane % 8, lane // 8
    return row * pitch + 16 * ((chunk ^ row) % (pitch // 16) if xor else chunk)


LAYOUTS = {
    "128-byte rows": (swizzled(128, False), 8),
    "128-byte rows, XOR swizzle": (swizzled(128, True), 1),
    "256-byte rows": (swizzled(256, False), 8),
    "256-byte rows, XOR swizzle": (swizzled(256, True), 1),
    "64-byte rows": (swizzled(64, False), 4),
    "padded rows": (swizzled(144, False), 1),
    "one row eight times": (np.arange(32) // 8 * 16, 1),
    "rows in pairs": (swizzled(128, False) // 256 * 256, 4),
    "any order": (RNG.permutation(TILE // 16)[:32] * 16, 0),
}


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_values_and_wavefronts(name: str, count: int, trans: str) -> None:
    """Each matrix is served alone: as many wavefronts as rows share a bank group, whatever other matrices hold."""
    at, per_matrix = LAYOUTS[name]
    data, got, report = run(kernel(load_text(count, trans), count), at, count)
    assert np.array_equal(got, held(data, at, count, bool(trans)))
    want = traffic.ldmatrix_wavefronts(at.tolist(), count)
    assert per_matrix in (0, want // count)
    fill = TILE // 128  # each a conflict-free store
    assert (report.shared.wavefronts - fill, report.shared.bank_conflicts) == (want, want - count)
    assert report.shared.read_bytes == 16 * len(set(at[: 8 * count].tolist()))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_wavefronts(count: int) -> None:
    body = f"stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [%r4], {group(count)};"
    for xor, per_matrix in ((False, 8), (True, 1)):
        _, _, report = run(kernel(body, 0, fill=False), swizzled(128, xor), 0)
        assert (report.shared.wavefronts, report.shared.bank_conflicts) == (count * per_matrix, count * (per_matrix - 1))
        assert report.shared.write_bytes == 128 * count


@pytest.mark.parametrize("order", ["x4.trans.m8n8.shared", "m8n8.x4.shared.trans", "x4.m8n8.shared::cta", "x4.m8n8.shared"])
def test_order_of_modifiers(order: str) -> None:
    """CUTLASS writes the number of matrices before the shape."""
    at = swizzled(128, True)
    data, got, _ = run(kernel(f"ldmatrix.sync.aligned.{order}.b16 {group(4)}, [%r4];", 4), at, 4)
    assert np.array_equal(got, held(data, at, 4, "trans" in order))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_generic_addresses(count: int) -> None:
    at = swizzled(128, True)
    data, got, _ = run(kernel(load_text(count, address="%d9", space=""), count, generic=True), at, count)
    assert np.array_equal(got, held(data, at, count, False))


def test_addresses_of_other_lanes_are_not_used() -> None:
    at = swizzled(128, True)
    at[8:] = 1 << 20
    data, got, _ = run(kernel(load_text(1), 1), at, 1)
    assert np.array_equal(got, held(data, at, 1, False))


@pytest.mark.parametrize(("lane", "place", "error"), [(5, TILE, emu.OutOfBounds), (5, TILE - 8, emu.Misaligned), (0, 24, emu.Misaligned)])
@pytest.mark.parametrize("access", [load_text(1), f"stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {group(1)};"], ids=["ld", "st"])
def test_bad_addresses(access: str, lane: int, place: int, error: type[Exception]) -> None:
    at = swizzled(128, True)
    at[lane] = place
    with pytest.raises(error):
        run(kernel(access, 1), at, 1)


def test_rows_that_nobody_wrote() -> None:
    with pytest.raises(emu.UninitializedRead):
        run(kernel(load_text(2), 2, fill=False), swizzled(128, True), 2, params=CHECKED)


def test_stmatrix_initialises_what_it_writes() -> None:
    store = f"mov.b32 %r20, %r1;\n  mov.b32 %r21, -1;\n  stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r4], {group(2)};\n"
    at = swizzled(128, True)
    _, got, _ = run(kernel(store + "  bar.warp.sync 0xffffffff;\n  " + load_text(2), 2, fill=False), at, 2, params=CHECKED)
    assert np.array_equal(got, np.stack([np.arange(32), np.full(32, 0xFFFFFFFF)], 1))
    with pytest.raises(emu.UninitializedRead):
        run(kernel(store + "  bar.warp.sync 0xffffffff;\n  " + load_text(4), 4, fill=False), at, 4, params=CHECKED)


@pytest.mark.parametrize("access", [load_text(4), "movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r1;"], ids=["ldmatrix", "movmatrix"])
def test_a_warp_that_lost_lanes(access: str) -> None:
    with pytest.raises(emu.BadMask, match="all 32 lanes"):
        run(kernel(f"setp.ne.u32 %p1, %r1, 9;\n  @%p1 {access}", 1), swizzled(128, True), 1)


def test_patterns_that_change_are_counted_each() -> None:
    """One site that sees a conflict-free and a conflicting pattern in turn, by CTA."""
    body = kernel(load_text(4), 4, fill=False).replace("mad.wide.u32 %d2, %r1, 4, %p_at;",
        "mov.u32 %r9, %ctaid.x;\n  and.b32 %r9, %r9, 1;\n  mad.lo.u32 %r9, %r9, 32, %r1;\n  mad.wide.u32 %d2, %r9, 4, %p_at;")  # fmt: skip
    at = np.concatenate([swizzled(128, True), swizzled(128, False)])
    params = emu.EmuParams(initcheck=False)
    out, data = emu.asarray(np.zeros((4, 32), np.uint32)), emu.asarray(np.zeros(TILE, np.uint8))
    report = launch(module(body, params=params), "rows", 10, 32, data, emu.asarray(at.astype(np.uint32)), out)
    assert (report.shared.wavefronts, report.shared.bank_conflicts) == (5 * (4 + 32), 5 * 28)
