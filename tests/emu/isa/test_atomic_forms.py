"""atom and red beyond one cell per lane: vectors, both spaces in one instruction, what is counted, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module, zeros
from tests.emu.oracles import softfloat as sf

RNG = np.random.default_rng(91)
FORMATS = {"f32": (sf.F32, 32), "f16": (sf.F16, 16), "bf16": (sf.BF16, 16), "f16x2": (sf.F16, 32), "bf16x2": (sf.BF16, 32)}


def run(body: str, *arrays: Any, names: str = "x out", block: int = 32, grid: int = 1, **params: Any) -> Any:
    """%r1 is tid; ``names`` are the pointer parameters."""
    text = entry("k", names.split(), "\n  mov.u32 %r1, %tid.x;" + body, "  .shared .align 16 .b8 s[4096];")
    return launch(module(text, params=emu.EmuParams(**params)), "k", grid, block, *arrays)


VECTORS = [
    ("add.v2.f32", "f32", 2), ("add.v4.f32", "f32", 4), ("v4.f32.add", "f32", 4),
    *((f"{o}.noftz.v{n}.{t}", t, n) for o in ("add", "min", "max") for t in ("f16", "bf16") for n in (2, 4, 8)),
    *((f"{o}.noftz.v{n}.{t}", t, n) for o in ("add", "min", "max") for t in ("f16x2", "bf16x2") for n in (2, 4)),
    ("v2.f16.max.noftz", "f16", 2), ("v4.bf16x2.add.noftz", "bf16x2", 4),
]  # fmt: skip


@pytest.mark.parametrize("red", [False, True], ids=["atom", "red"])
@pytest.mark.parametrize(("name", "kind", "count"), VECTORS, ids=[v[0] for v in VECTORS])
def test_vectors(name: str, kind: str, count: int, red: bool) -> None:
    """Every lane updates a row of its own; the results are those of the scalar operation on each number."""
    fmt, bits = FORMATS[kind]
    size = bits // 8 * count
    prefix, reg = ("%h", "b16") if bits == 16 else ("%r", "b32")
    x, old = ([f"{prefix}{base + k}" for k in range(count)] for base in (10, 30))
    loads = "\n".join(f"  ld.global.{reg} {r}, [%d1+{k * bits // 8}];" for k, r in enumerate(x))
    stores = "\n".join(f"  st.global.{reg} [%d3+{k * bits // 8}], {r};" for k, r in enumerate(old))
    rows, returned = "{" + ", ".join(x) + "}", "{" + ", ".join(old) + "}"
    action = f"red.global.{name} [%d2], {rows};" if red else f"atom.global.{name} {returned}, [%d2], {rows};"
    start = "\n".join(f"  mov.{reg} {r}, 0;" for r in old)
    body = f"""
  mad.wide.u32 %d1, %r1, {size}, %p_x;
  mad.wide.u32 %d2, %r1, {size}, %p_cells;
  mad.wide.u32 %d3, %r1, {size}, %p_old;
{start}
{loads}
  {action}
{stores}"""
    numbers = RNG.standard_normal((2, 32, size // (2 if fmt is not sf.F32 else 4))).astype(np.float32) * 8
    numbers[:, :, 0] = numbers[0, :, 0]  # some pairs are equal
    if fmt is sf.F32:
        raw = numbers.view(np.uint32)
    elif fmt is sf.F16:
        raw = numbers.astype(np.float16).view(np.uint16)
    else:
        raw = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    before, new = emu.asarray(raw[0]), emu.asarray(raw[1])
    cells, seen = emu.asarray(raw[0]), emu.asarray(np.zeros_like(raw[0]))
    run(body, new, cells, seen, names="x cells old")
    operation = next(o for o in ("add", "min", "max") if o in name)
    wide = [decode(np.array(a), fmt) for a in (before, new)]
    want = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation](*wide)
    assert np.array_equal(np.array(cells), encode(want, fmt))
    assert np.array_equal(np.array(seen), np.zeros_like(raw[0]) if red else raw[0])


def decode(raw: np.ndarray, fmt: sf.Format) -> np.ndarray:
    """The numbers as float64, in which one addition of 16-bit numbers is exact."""
    if fmt is sf.F32:
        return raw.view(np.float32)
    return raw.view(np.float16).astype(np.float64) if fmt is sf.F16 else (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def encode(values: np.ndarray, fmt: sf.Format) -> np.ndarray:
    if fmt is sf.F32:
        return values.astype(np.float32).view(np.uint32)
    if fmt is sf.F16:
        return values.astype(np.float16).view(np.uint16)
    bits = values.astype(np.float32).view(np.uint32)  # exact: sums of two bf16 numbers of like size fit into float32
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


@pytest.mark.parametrize(("action", "start", "after"), [("exch.b128 %q2, [%p_x], %q1", 5, 9), ("cas.b128 %q2, [%p_x], %q3, %q1", 5, 9)])
def test_128_bits(action: str, start: int, after: int) -> None:
    cell = emu.asarray(np.array([start, start + 1, 0, 0], np.uint64))
    body = f"""
  .reg .b128 %q<9>;
  mov.b64 %d1, {after};
  mov.b64 %d2, {start};
  mov.b64 %d3, {start + 1};
  mov.b128 %q1, {{%d1, %d1}};
  mov.b128 %q3, {{%d2, %d3}};
  atom.global.{action};
  mov.b128 {{%d4, %d5}}, %q2;
  st.global.v2.b64 [%p_x+16], {{%d4, %d5}};"""
    run(body, cell, cell, block=1)
    assert cell.tolist() == [after, after, start, start + 1]


def test_generic_addresses_of_both_spaces_in_one_warp() -> None:
    """Even lanes add to global, odd lanes to shared memory."""
    body = """
  mov.u32 %r2, s;
  mad.lo.u32 %r2, %r1, 4, %r2;
  st.shared.u32 [%r2], %r1;
  cvt.u64.u32 %d1, %r2;
  cvta.shared.u64 %d1, %d1;
  mad.wide.u32 %d2, %r1, 4, %p_x;
  and.b32 %r3, %r1, 1;
  setp.eq.u32 %p1, %r3, 0;
  selp.b64 %d3, %d2, %d1, %p1;
  atom.add.u32 %r4, [%d3], 1000;
  mad.wide.u32 %d4, %r1, 4, %p_out;
  st.global.u32 [%d4], %r4;
  ld.shared.u32 %r5, [%r2];
  st.global.u32 [%d4+128], %r5;"""
    x, out = emu.asarray(np.arange(500, 532, dtype=np.uint32)), zeros(64, np.uint32)
    report = run(body, x, out)
    t = np.arange(32)
    even = t % 2 == 0
    assert np.array_equal(x, 500 + t + 1000 * even)
    assert np.array_equal(out[:32], np.where(even, 500 + t, t))
    assert np.array_equal(out[32:], t + 1000 * ~even)
    assert report.arguments[0].write_bytes == 64 and report.shared.write_bytes == 128 + 64


def test_an_atomic_in_local_memory_is_refused() -> None:
    body = """
  .local .align 4 .b8 l[8];
  mov.u64 %d1, l;
  cvta.local.u64 %d1, %d1;
  red.add.u32 [%d1], 1;"""
    with pytest.raises(emu.OutOfBounds, match="neither global nor shared"):
        run(body, zeros(1, np.uint32), zeros(1, np.uint32))


def test_shared_float_additions_keep_subnormals_whatever_else_flushes() -> None:
    """Global additions flush them. The flushing add beside them must not change that."""
    tiny = np.array([3e-40, 2e-40], np.float32)
    body = """
  mov.u32 %r2, s;
  ld.global.f32 %f1, [%p_x];
  ld.global.f32 %f2, [%p_x+4];
  st.shared.f32 [%r2], %f1;
  red.shared.add.f32 [%r2], %f2;
  ld.shared.f32 %f3, [%r2];
  st.global.f32 [%p_out], %f3;
  red.global.add.f32 [%p_x+8], %f2;
  add.ftz.f32 %f4, %f1, %f2;
  st.global.f32 [%p_out+4], %f4;"""
    x, out = emu.asarray(np.array([*tiny, tiny[0]], np.float32)), zeros(2, np.float32)
    run("\n  .reg .f32 %f<9>;" + body, x, out, block=1)
    assert out[0] == tiny.sum() and out[1] == 0.0 and x[2] == 0.0


@pytest.mark.parametrize("kind", ["atom", "red"])
def test_what_is_counted(kind: str) -> None:
    """One write request for the warp; 32 cells are 4 sectors. Only atom brings bytes back."""
    action = "atom.global.add.u32 %r2, [%d1], 1;" if kind == "atom" else "red.global.add.u32 [%d1], 1;"
    x = zeros(256, np.uint32)
    report = run(f"\n  mad.wide.u32 %d1, %r1, 4, %p_x;\n  {action}", x, x, block=64)
    a = report.arguments[0]
    back = 256 if kind == "atom" else 0
    assert (a.write_bytes, a.write_sectors, a.write_requests) == (256, 8, 2)
    assert (a.read_bytes, a.read_sectors, a.read_requests) == (back, back // 32, 0)
    one = run(f"\n  {action.replace('[%d1]', '[%p_x]')}", x, x, block=64).arguments[0]
    assert (one.write_bytes, one.write_sectors, one.read_bytes) == (8, 2, 8 if kind == "atom" else 0)


def test_shared_atomics_count_wavefronts_once() -> None:
    body = """
  mov.u32 %r2, s;
  mad.lo.u32 %r3, %r1, 8, %r2;
  st.shared.u32 [%r3], 0;
  atom.shared.add.u32 %r4, [%r3], 1;"""
    report = run(body, zeros(1, np.uint32), zeros(1, np.uint32))
    assert report.shared.wavefronts == 2 + 2 and report.shared.bank_conflicts == 2
    assert report.shared.write_bytes == 256 and report.shared.read_bytes == 128


@pytest.mark.parametrize("action", ["red.global.add.u32 [%p_x], 1;", "atom.global.cas.b32 %r2, [%p_x], 0, 1;"])
def test_an_atomic_reads_what_it_updates(action: str) -> None:
    """Memory that nothing has written cannot be counted up."""
    with pytest.raises(emu.UninitializedRead) as caught:
        run(f"\n  {action}", emu.empty(4, np.uint32), zeros(1, np.uint32))
    assert caught.value.space == "global" and caught.value.tid == (0, 0, 0)


def test_an_exchange_whose_result_nobody_reads_is_a_store() -> None:
    x = emu.empty(4, np.uint32)
    run("\n  atom.global.exch.b32 %r2, [%p_x], 7;\n  ld.global.u32 %r3, [%p_x];\n  st.global.u32 [%p_out], %r3;", x, zeros(1, np.uint32))
    with pytest.raises(emu.UninitializedRead):
        run("\n  atom.global.exch.b32 %r2, [%p_x+4], 7;\n  st.global.u32 [%p_out], %r2;", x, zeros(1, np.uint32))


@pytest.mark.parametrize(("offset", "error"), [(16, emu.OutOfBounds), (2, emu.Misaligned)])
def test_addresses_are_checked(offset: int, error: type[emu.EmuError]) -> None:
    with pytest.raises(error):
        run(f"\n  red.global.add.u32 [%p_x+{offset}], 1;", zeros(4, np.uint32), zeros(1, np.uint32))


def test_read_only_arrays_refuse_atomics() -> None:
    x = np.zeros(4, np.uint32)
    x.flags.writeable = False
    with pytest.raises(emu.ReadOnlyWrite):
        run("\n  red.global.add.u32 [%p_x], 1;", x, zeros(1, np.uint32))


def test_guarded_and_divergent_lanes_stay_away() -> None:
    body = """
  setp.lt.u32 %p1, %r1, 5;
  @%p1 red.global.add.u32 [%p_x], 1;
  @!%p1 bra REST;
  red.global.add.u32 [%p_x+4], 10;
  bra.uni DONE;
REST:
  red.global.add.u32 [%p_x+8], 100;
DONE:"""
    x = zeros(4, np.uint32)
    run(body, x, x, block=48)
    assert x.tolist() == [5, 50, 4300, 0]


def test_orders_are_no_races() -> None:
    """A release and an acquire order plain accesses: the race detector stays silent, and speaks without them."""
    flag = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra OUT;
  mov.u32 %r2, %ctaid.x;
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra READ;
  st.global.u32 [%p_x], 5;
  red.release.gpu.global.add.u32 [%p_x+8], 1;
  bra.uni OUT;
READ:
  atom.acquire.gpu.global.add.u32 %r3, [%p_x+8], 0;
  ld.global.u32 %r4, [%p_x];
OUT:"""
    x = zeros(4, np.uint32)
    run(flag, x, x, grid=2, racecheck=True)
    with pytest.raises(emu.RaceHazard):
        run(flag.replace(".release.gpu", "").replace(".acquire.gpu", ""), x, x, grid=2, racecheck=True)
