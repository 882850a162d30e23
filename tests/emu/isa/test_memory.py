"""Loads and stores: every type, vector and state space, extension into wider registers, cache and order modifiers."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import VERSION, entry, launch, module
from tests.emu.oracles import integer

SIZES = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
}
RNG = np.random.default_rng(3)
LANES = 64


def place(space: str, size: int) -> str:
    """%d10: where this thread's cell of ``size`` bytes lies in the space; %d1, %d2, %d3: its places in ``x``, ``y`` and ``out``."""
    own = {
        "global": "mov.b64 %d10, %d2;", "": "mov.b64 %d10, %d2;",
        "shared": f"mov.u64 %d9, cells;\n  mad.wide.u32 %d10, %r1, {size}, %d9;",
        "local": "mov.u64 %d10, mine;",
    }[space]  # fmt: skip
    return f"""
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, {size}, %p_x;
  mad.wide.u32 %d2, %r1, {size}, %p_y;
  mad.wide.u32 %d3, %r1, 128, %p_out;
  {own}"""


def run(body: str, x: np.ndarray, size: int, prefix: str = "") -> tuple[np.ndarray, np.ndarray]:
    """(out as (LANES, 16) of u64, y as bytes)."""
    variables = f"  .shared .align 32 .b8 cells[{LANES * 32}];\n  .local .align 32 .b8 mine[64];"
    y, out = emu.asarray(np.zeros(LANES * size, np.uint8)), emu.asarray(np.zeros((LANES, 16), np.uint64))
    text = VERSION + prefix + entry("copy", ["x", "y", "out"], body, variables)
    launch(module(text), "copy", 1, LANES, emu.asarray(x), y, out)
    return np.array(out), np.array(y)


def dotted(*parts: str) -> str:
    return ".".join(p for p in parts if p)


def expected(data: np.ndarray, kind: str, register_bits: int) -> np.ndarray:
    """What a load of ``kind`` leaves in a register: signed types extend their sign."""
    bits = 8 * SIZES[kind]
    raw = data.view(f"u{SIZES[kind]}").astype(np.uint64)
    if kind[0] != "s":
        return raw
    return np.array([integer.wrap(integer.signed(int(v), bits), register_bits) for v in raw.ravel()], np.uint64).reshape(raw.shape)


CASES = [(kind, vector) for kind in SIZES for vector in (1, 2, 4) if SIZES[kind] * vector <= 16]


@pytest.mark.parametrize("space", ["global", "shared", "local", ""], ids=["global", "shared", "local", "generic"])
@pytest.mark.parametrize(("kind", "vector"), CASES)
def test_store_and_load_back(kind: str, vector: int, space: str) -> None:
    """x -> registers -> own cell in the space -> registers -> out."""
    size = SIZES[kind] * vector
    letter, bits = ("d", 64) if SIZES[kind] == 8 else ("r", 32)
    first, second = ([f"%{letter}{start + i}" for i in range(vector)] for start in (20, 30))
    group = ["{" + ", ".join(regs) + "}" if vector > 1 else regs[0] for regs in (first, second)]
    spelled = dotted(f"v{vector}" if vector > 1 else "", kind)
    outs = "\n".join(f"  st.global.b{bits} [%d3+{8 * i}], {register};" for i, register in enumerate(second))
    generic = f"cvta.{'global' if space == '' else space}.u64 %d10, %d10;" if space == "" else ""
    body = f"""{place(space, size)}
  {generic}
  ld.global.{spelled} {group[0]}, [%d1];
  {dotted("st", space, spelled)} [%d10], {group[0]};
  {dotted("ld", space, spelled)} {group[1]}, [%d10];
{outs}"""
    x = RNG.integers(0, 256, LANES * size).astype(np.uint8)
    out, y = run(body, x, size)
    assert np.array_equal(out[:, :vector], expected(x.reshape(LANES, size), kind, bits))
    if space in ("global", ""):
        assert np.array_equal(y, x)


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16", "u32", "s32", "b8", "b16", "b32"])
def test_extension_into_64_bits(kind: str) -> None:
    size = SIZES[kind]
    body = f"{place('global', size)}\n  ld.global.{kind} %d20, [%d1];\n  st.global.b64 [%d3], %d20;\n  st.global.{kind} [%d2], %d20;"
    x = RNG.integers(0, 256, LANES * size).astype(np.uint8)
    out, y = run(body, x, size)
    assert np.array_equal(out[:, 0], expected(x.reshape(LANES, size), kind, 64)[:, 0])
    assert np.array_equal(y, x)


@pytest.mark.parametrize("load", [
    "ld.global.ca.b32", "ld.global.cg.b32", "ld.global.cs.b32", "ld.global.lu.b32", "ld.global.cv.b32", "ld.volatile.global.b32",
    "ld.relaxed.gpu.global.b32", "ld.acquire.cta.global.b32", "ld.acquire.sys.global.b32", "ld.weak.global.b32", "ld.global.nc.b32",
    "ld.global.nc.L1::no_allocate.b32", "ld.global.L1::evict_last.b32", "ld.global.L2::128B.b32", "ld.global.nc.L2::256B.b32",
    "ldu.global.b32", "ld.volatile.b32", "ld.relaxed.sys.b32",
])  # fmt: skip
def test_load_modifiers(load: str) -> None:
    x = RNG.integers(0, 256, LANES * 4).astype(np.uint8)
    out, _ = run(f"{place('global', 4)}\n  {load} %r20, [%d1];\n  st.global.b32 [%d3], %r20;", x, 4)
    assert np.array_equal(out[:, 0], x.view(np.uint32))


@pytest.mark.parametrize("store", [
    "st.global.wb.b32", "st.global.cg.b32", "st.global.cs.b32", "st.global.wt.b32", "st.volatile.global.b32", "st.relaxed.gpu.global.b32",
    "st.release.cta.global.b32", "st.release.sys.global.b32", "st.weak.global.b32", "st.global.L1::no_allocate.b32", "st.volatile.b32",
])  # fmt: skip
def test_store_modifiers(store: str) -> None:
    x = RNG.integers(0, 256, LANES * 4).astype(np.uint8)
    _, y = run(f"{place('global', 4)}\n  ld.global.b32 %r20, [%d1];\n  {store} [%d2], %r20;", x, 4)
    assert np.array_equal(y, x)


def test_prefetch_and_fences_change_nothing() -> None:
    hints = """
  prefetch.global.L1 [%d1];
  prefetch.global.L2 [%d1];
  prefetch.L1 [%d1];
  prefetchu.L1 [%d1];
  membar.cta;
  membar.gl;
  membar.sys;
  fence.sc.gpu;
  fence.acq_rel.cta;
  fence.gpu;
  fence.proxy.async;
  prefetch.global.L2::evict_last [%d1];
  prefetch.tensormap [%d1];
  discard.global.L2 [%p_y], 128;
  applypriority.global.L2::evict_normal [%d1], 128;"""
    x = RNG.integers(0, 256, LANES * 4).astype(np.uint8)
    out, _ = run(f"{place('global', 4)}{hints}\n  ld.global.b32 %r20, [%d1+0];\n  st.global.b32 [%d3], %r20;", x, 4)
    assert np.array_equal(out[:, 0], x.view(np.uint32))


def test_sinks_and_b128() -> None:
    body = f"""{place("global", 16)}
  .reg .b128 %q;
  ld.global.v4.b32 {{_, %r20, _, %r21}}, [%d1];
  st.global.b32 [%d3], %r20;
  st.global.b32 [%d3+8], %r21;
  ld.global.b128 %q, [%d1];
  st.global.b128 [%d2], %q;"""
    x = RNG.integers(0, 256, LANES * 16).astype(np.uint8)
    out, y = run(body, x, 16)
    assert np.array_equal(out[:, :2], x.view(np.uint32).reshape(LANES, 4)[:, 1::2])
    assert np.array_equal(y, x)


def test_constant_bank_and_initialised_globals() -> None:
    """Initialisers of every kind: numbers, floats, a short list padded with zeros, an address of another variable."""
    prefix = """
.const .align 4 .f32 factor = 0f40490FDB;
.const .align 2 .u16 short_list[6] = {1, 2, 65535};
.global .align 8 .f64 doubles[2] = {0d3FF8000000000000, 0d4000000000000000};
.global .align 4 .s32 numbers[4] = {-1, 0x10, 7};
.global .align 8 .u64 pointer[1] = {generic(numbers)};
"""
    body = f"""{place("global", 4)}
  ld.const.f32 %r20, [factor];
  st.global.b32 [%d3], %r20;
  ld.const.u16 %r21, [short_list+4];
  st.global.b32 [%d3+8], %r21;
  ld.const.u16 %r22, [short_list+10];
  st.global.b32 [%d3+16], %r22;
  ld.global.f64 %d20, [doubles+8];
  st.global.b64 [%d3+24], %d20;
  ld.global.u64 %d21, [pointer];
  ld.s32 %r23, [%d21];
  st.global.b32 [%d3+32], %r23;
  and.b32 %r24, %r1, 3;
  mul.wide.u32 %d22, %r24, 2;
  mov.u64 %d23, short_list;
  add.s64 %d24, %d23, %d22;
  ld.const.u16 %r25, [%d24];
  st.global.b32 [%d3+40], %r25;"""
    out, _ = run(body, np.zeros(LANES * 4, np.uint8), 4, prefix)
    assert out[0, :5].tolist() == [0x40490FDB, 65535, 0, 0x4000000000000000, 0xFFFFFFFF]
    assert out[:, 5].tolist() == [1, 2, 65535, 0] * (LANES // 4)


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_negative_and_odd_offsets(offset: int) -> None:
    x = RNG.integers(0, 256, LANES * 4).astype(np.uint8)
    body = f"{place('global', 4)}\n  add.s64 %d4, %d1, 64;\n  ld.global.s8 %r20, [%d4+{offset - 64}];\n  st.global.b32 [%d3], %r20;"
    out, _ = run(body, x, 4)
    assert np.array_equal(out[:, 0], x.view(np.int8)[offset::4].astype(np.int32).view(np.uint32))
