"""mma.sync, ldmatrix, stmatrix, movmatrix and wmma: exact on integers, one-hot sweeps (case P20), rounding of real products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rawflash import emu
from rawflash.emu import fragments
from tests.emu.harness import entry, launch, module
from tests.emu.isa import matrix_text as m

RNG = np.random.default_rng(31)
COUNT = 6
MMA = [
    ("m16n8k8", "f16", "f16", "f32"), ("m16n8k16", "f16", "f16", "f32"), ("m16n8k8", "f16", "f16", "f16"),
    ("m16n8k16", "f16", "f16", "f16"), ("m16n8k8", "bf16", "bf16", "f32"), ("m16n8k16", "bf16", "bf16", "f32"),
    ("m16n8k4", "tf32", "tf32", "f32"), ("m16n8k8", "tf32", "tf32", "f32"), ("m8n8k4", "f64", "f64", "f64"),
    *((shape, a, b, "s32") for shape in ("m8n8k16", "m16n8k16", "m16n8k32") for a in ("s8", "u8") for b in ("s8", "u8")),
    *((shape, a, b, "s32") for shape in ("m8n8k32", "m16n8k32", "m16n8k64") for a in ("s4", "u4") for b in ("s4", "u4")),
    *(("m16n8k32", a, b, c) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for c in ("f32", "f16")),
    ("m16n8k16", "e4m3", "e5m2", "f32"), ("m16n8k16", "e5m2", "e4m3", "f16"),
    ("m16n8k4", "f64", "f64", "f64"), ("m16n8k8", "f64", "f64", "f64"), ("m16n8k16", "f64", "f64", "f64"),
]  # fmt: skip


def integers(shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Small integers that every type holds exactly, so that sums are exact in any order."""
    low = 0 if kind[0] == "u" else -6
    return RNG.integers(low, 7, shape).astype(m.NUMPY[kind])


def ids(row: tuple[str, ...]) -> str:
    return "-".join(row)


@pytest.mark.parametrize("row", MMA, ids=ids)
def test_mma_on_integers(row: tuple[str, str, str, str]) -> None:
    shape, a_type, b_type, c_type = row
    rows, cols, depth = fragments.parse_shape(shape)
    a, b = integers((COUNT, rows, depth), a_type), integers((COUNT, depth, cols), b_type)
    c = integers((COUNT, rows, cols), c_type)
    d = m.run_mma(row, a, b, c)
    assert np.array_equal(d.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64))


@pytest.mark.parametrize("row", [MMA[1], MMA[5], MMA[7], ("m16n8k32", "s8", "s8", "s32")], ids=ids)
def test_one_hot_products(row: tuple[str, str, str, str]) -> None:
    """A = e_i e_k, B = e_k e_j for all i, j, k: D has a single 1, at (i, j)."""
    shape, a_type, b_type, c_type = row
    rows, cols, depth = fragments.parse_shape(shape)
    i, j, k = (index.ravel() for index in np.indices((rows, cols, depth)))
    each = np.arange(i.size)
    a, b = np.zeros((i.size, rows, depth), m.NUMPY[a_type]), np.zeros((i.size, depth, cols), m.NUMPY[b_type])
    a[each, i, k] = b[each, k, j] = 1
    d = m.run_mma(row, a, b, np.zeros((i.size, rows, cols), m.NUMPY[c_type])).astype(np.float64)
    want = np.zeros_like(d)
    want[each, i, j] = 1
    assert np.array_equal(d, want)


REAL = [("m16n8k16", "f16", "f16", "f32"), ("m16n8k8", "f16", "f16", "f16"), ("m16n8k16", "bf16", "bf16", "f32"),
        ("m16n8k8", "tf32", "tf32", "f32"), ("m8n8k4", "f64", "f64", "f64"), ("m16n8k32", "e4m3", "e5m2", "f32")]  # fmt: skip


@pytest.mark.parametrize("row", REAL, ids=ids)
def test_mma_on_real_numbers(row: tuple[str, str, str, str]) -> None:
    """Products are exact and sums err by at most a unit of the accumulator per term."""
    shape, a_type, b_type, c_type = row
    rows, cols, depth = fragments.parse_shape(shape)
    a = m.quantised(RNG.standard_normal((COUNT, rows, depth)), a_type)
    b = m.quantised(RNG.standard_normal((COUNT, depth, cols)), b_type)
    c = m.quantised(RNG.standard_normal((COUNT, rows, cols)), c_type)
    d = m.run_mma(row, a, b, c).astype(np.float64)
    wide = [x.astype(np.float64) for x in (a, b, c)]
    unit = {"f32": 2.0**-23, "f16": 2.0**-10, "f64": 2.0**-52}[c_type]
    bound = unit * (depth + 1) * (np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2]))
    assert (np.abs(d - (wide[0] @ wide[1] + wide[2])) <= bound).all()


@pytest.mark.parametrize("shape", ["m8n8k4", "m16n8k16"])
def test_double_mma_with_its_rounding_spelled_out(shape: str) -> None:
    rows, cols, depth = fragments.parse_shape(shape)
    a, b, c = integers((2, rows, depth), "f64"), integers((2, depth, cols), "f64"), integers((2, rows, cols), "f64")
    assert np.array_equal(m.run_mma((shape, "f64", "f64", "f64"), a, b, c, ".rn"), a @ b + c)


def test_mma_with_infinities_and_nan() -> None:
    row = MMA[1]
    a, b = np.ones((1, 16, 16), np.float16), np.ones((1, 16, 8), np.float16)
    a[0, 2, 3], a[0, 5, 1], b[0, 4, 6] = np.inf, np.nan, 0
    a[0, 9, 4] = np.inf
    d = m.run_mma(row, a, b, np.zeros((1, 16, 8), np.float32))[0]
    assert np.isposinf(d[2]).all() and np.isnan(d[5]).all()
    assert np.isnan(d[9, 6]) and np.isposinf(np.delete(d[9], 6)).all()
    assert np.array_equal(d[0], [16, 16, 16, 16, 16, 16, 15, 16])


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_mma_wraps_or_saturates(saturate: bool) -> None:
    a, b = np.full((1, 16, 32), 127, np.int8), np.full((1, 32, 8), 127, np.int8)
    c = np.full((1, 16, 8), 2**31 - 1000, np.int32)
    d = m.run_mma(("m16n8k32", "s8", "s8", "s32"), a, b, c, ".satfinite" * saturate)
    total = 2**31 - 1000 + 32 * 127 * 127
    assert (d == (2**31 - 1 if saturate else total - 2**32)).all()


@pytest.mark.parametrize("logic", ["xor", "and"])
@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
def test_one_bit_mma(shape: str, logic: str) -> None:
    """Every product is the number of bits in which a row and a column differ (xor) or are both set (and)."""
    rows, cols, depth = fragments.parse_shape(shape)
    a, b = RNG.integers(0, 2, (COUNT, rows, depth)).astype(np.uint8), RNG.integers(0, 2, (COUNT, depth, cols)).astype(np.uint8)
    c = RNG.integers(-99, 99, (COUNT, rows, cols)).astype(np.int32)
    d = m.run_mma((shape, "b1", "b1", "s32"), a, b, c, f".{logic}.popc")
    wide = a[:, :, :, None].astype(np.int32), b[:, None].astype(np.int32)
    count = (wide[0] ^ wide[1] if logic == "xor" else wide[0] & wide[1]).sum(2)
    assert np.array_equal(d, count + c)


def test_tf32_operands_ignore_the_low_bits() -> None:
    """A tf32 operand register is read without its 13 low bits."""
    row = ("m16n8k8", "tf32", "tf32", "f32")
    a, b = np.ones((1, 16, 8), np.float32), np.ones((1, 8, 8), np.float32)
    d = m.run_mma(row, (a.view(np.uint32) | 0x7).view(np.float32), b, np.zeros((1, 16, 8), np.float32))
    assert (d == 8).all()


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count: int, trans: bool) -> None:
    """Rows at shuffled places of shared memory; lanes beyond 8 * count name places that must not be touched."""
    rows = RNG.permutation(64)[:32]
    words = RNG.integers(0, 2**16, (64, 8), dtype=np.uint32).astype(np.uint16)
    group = "{" + ", ".join(f"%r{20 + i}" for i in range(count)) + "}"
    stores = "\n".join(f"  st.global.b32 [%d3+{4 * i}], %r{20 + i};" for i in range(count))
    dot = ".trans" * trans
    body = f"""
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, 32, %p_words;
  ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d1];
  ld.global.v4.b32 {{%r14, %r15, %r16, %r17}}, [%d1+16];
  mov.u32 %r2, tile;
  mad.lo.u32 %r3, %r1, 32, %r2;
  st.shared.v4.b32 [%r3], {{%r10, %r11, %r12, %r13}};
  st.shared.v4.b32 [%r3+16], {{%r14, %r15, %r16, %r17}};
  bar.warp.sync 0xffffffff;
  mad.wide.u32 %d2, %r1, 4, %p_rows;
  ld.global.b32 %r4, [%d2];
  mad.lo.u32 %r5, %r4, 16, %r2;
  ldmatrix.sync.aligned.m8n8.x{count}{dot}.shared.b16 {group}, [%r5];
  mad.wide.u32 %d3, %r1, 16, %p_out;
{stores}
  mov.u32 %r6, back;
  mad.lo.u32 %r7, %r4, 16, %r6;
  mov.b32 %r8, 0;
  mad.lo.u32 %r9, %r1, 32, %r6;
  st.shared.v4.b32 [%r9], {{%r8, %r8, %r8, %r8}};
  st.shared.v4.b32 [%r9+16], {{%r8, %r8, %r8, %r8}};
  bar.warp.sync 0xffffffff;
  stmatrix.sync.aligned.m8n8.x{count}{dot}.shared.b16 [%r7], {group};
  bar.warp.sync 0xffffffff;
  ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r9];
  ld.shared.v4.b32 {{%r14, %r15, %r16, %r17}}, [%r9+16];
  mad.wide.u32 %d4, %r1, 32, %p_back;
  st.global.v4.b32 [%d4], {{%r10, %r11, %r12, %r13}};
  st.global.v4.b32 [%d4+16], {{%r14, %r15, %r16, %r17}};"""
    shared = "  .shared .align 16 .b8 tile[1024];\n  .shared .align 16 .b8 back[1024];"
    out, back = emu.asarray(np.zeros((32, 4), np.uint32)), emu.asarray(np.zeros((64, 8), np.uint16))
    text = entry("moves", ["words", "rows", "out", "back"], body, shared)
    launch(module(text), "moves", 1, 32, emu.asarray(words), emu.asarray(rows.astype(np.uint32)), out, back)
    matrices = words[rows].reshape(4, 8, 8)
    matrix, row, col = fragments.ldmatrix(count, trans)
    held = fragments.pack(matrices[matrix, row, col].reshape(32, -1))
    assert np.array_equal(out[:, :count], held)
    want = np.zeros_like(words)
    want[rows[: 8 * count]] = words[rows[: 8 * count]]
    assert np.array_equal(back, want)


def test_movmatrix() -> None:
    held = RNG.integers(0, 2**32, 32, dtype=np.uint64).astype(np.uint32)
    body = """
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, 4, %p_x;
  ld.global.b32 %r2, [%d1];
  movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;
  st.global.b32 [%d1], %r3;"""
    x = emu.asarray(held)
    launch(module(entry("turn", ["x"], body)), "turn", 1, 32, x)
    want = fragments.pack(fragments.movmatrix(fragments.unpack(held[:, None], np.uint16)))
    assert np.array_equal(x, want[:, 0])


WMMA = [
    *((shape, "f16", c, d) for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for c, d in (("f32", "f32"), ("f16", "f16"), ("f16", "f32"))),
    *((shape, "bf16", "f32", "f32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16")),
    *((shape, t, "s32", "s32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for t in ("s8", "u8")),
    ("m16n16k8", "tf32", "f32", "f32"), ("m8n8k4", "f64", "f64", "f64"),
]  # fmt: skip


LAYOUTS = [("row", "col", "row"), ("col", "row", "col"), ("row", "row", "row")]


@pytest.mark.parametrize("index", range(len(WMMA)), ids=lambda index: ids(WMMA[index]))
def test_wmma(index: int) -> None:
    """load, mma and store with strides beyond the tile, in one of three combinations of layouts."""
    row, layouts = WMMA[index], LAYOUTS[index % 3]
    shape, ab, c_type, _ = row
    rows, cols, depth = fragments.parse_shape(shape)
    a, b, c = integers((rows, depth), ab), integers((depth, cols), ab), integers((rows, cols), c_type)
    d = m.run_wmma(row, layouts, a, b, c)
    assert np.array_equal(d.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64))


def test_half_accumulators_round_to_half() -> None:
    a, b = np.full((1, 16, 16), 1.0, np.float16), np.full((1, 16, 8), 2.0**-11, np.float16)
    d = m.run_mma(("m16n8k16", "f16", "f16", "f16"), a, b, np.ones((1, 16, 8), np.float16))
    assert d.dtype == np.float16 and (np.abs(d.astype(np.float64) - (1 + 2.0**-7)) <= 2.0**-10).all()


def test_ml_dtypes_agree_with_the_register_widths() -> None:
    for kind, dtype in m.NUMPY.items():
        bits = np.dtype(dtype).itemsize * 8
        assert kind in m.NARROW or bits * fragments.ELEMENTS_PER_REGISTER[kind] in (32, 64)
    assert np.dtype(ml_dtypes.bfloat16).itemsize == 2
