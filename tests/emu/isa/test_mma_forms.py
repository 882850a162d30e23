"""Every form of mma.sync: one-hot sweeps and integers over all shapes and types, the documented order of sums, and who may execute it."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from rawflash import emu
from rawflash.emu.isa import load_all
from rawflash.emu.isa.registry import spellings, supported_forms
from tests.emu.isa.tile_text import BITS, Spelling, run
from tests.emu.oracles import softfloat as sf

RNG = np.random.default_rng(77)
FP8 = ("e4m3", "e5m2")
FORMS = [
    *(Spelling(s, d, t, t, d) for s in ("m16n8k8", "m16n8k16") for t, d in (("f16", "f16"), ("f16", "f32"), ("bf16", "f32"))),
    *(Spelling(s, "f32", "tf32", "tf32", "f32") for s in ("m16n8k4", "m16n8k8")),
    *(Spelling(s, d, a, b, d) for s in ("m16n8k16", "m16n8k32") for d in ("f32", "f16") for a in FP8 for b in FP8),
    *(Spelling(s, "f64", "f64", "f64", "f64") for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
    *(Spelling(s, "s32", a, b, "s32") for s in ("m8n8k16", "m16n8k16", "m16n8k32") for a in ("s8", "u8") for b in ("s8", "u8")),
    *(Spelling(s, "s32", a, b, "s32") for s in ("m8n8k32", "m16n8k32", "m16n8k64") for a in ("s4", "u4") for b in ("s4", "u4")),
    *(
        Spelling(s, "s32", "b1", "b1", "s32", after=f".{logic}.popc")
        for s in ("m8n8k128", "m16n8k128", "m16n8k256") for logic in ("xor", "and")
    ),
]  # fmt: skip
NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "tf32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def encode(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Numbers -> bit patterns in uint64."""
    if kind in NUMPY:
        return numbers.astype(NUMPY[kind]).view(f"u{np.dtype(NUMPY[kind]).itemsize}").astype(np.uint64)
    return numbers.astype(np.int64).astype(np.uint64) & np.uint64((1 << BITS[kind]) - 1)


def decode(bits: np.ndarray, kind: str) -> np.ndarray:
    """Bit patterns of an accumulator -> float64 or int64."""
    if kind == "s32":
        return bits.astype(np.uint32).view(np.int32).astype(np.int64)
    return bits.astype(f"u{BITS[kind] // 8}").view(NUMPY[kind]).astype(np.float64)


def limits(kind: str) -> tuple[int, int]:
    """Integers that every product sum of the type holds exactly."""
    full = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
    return full.get(kind, (-3, 4) if kind == "e5m2" else (-8, 9))


def product(form: Spelling, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if form.a != "b1":
        return a @ b + c
    pairs = a[..., :, :, None] & b[..., None, :, :] if ".and." in form.after else a[..., :, :, None] ^ b[..., None, :, :]
    return pairs.sum(axis=-2) + c


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_integers(form: Spelling) -> None:
    m, n, k = form.dims
    count = 3
    a, b = RNG.integers(*limits(form.a), (count, m, k)), RNG.integers(*limits(form.b), (count, k, n))
    c = RNG.integers(-90, 90, (count, m, n)) if form.c != "f16" else RNG.integers(-8, 8, (count, m, n))
    if form.d == "f16":
        a, b = a // 4, b // 4  # sums stay where f16 is exact
    d = run(form, encode(a, form.a), encode(b, form.b), encode(c, form.c))
    assert np.array_equal(decode(d, form.d), product(form, a, b, c))


@pytest.mark.parametrize("form", [f for f in FORMS if f.a != "b1"], ids=str)
def test_one_hot(form: Spelling) -> None:
    """Case P20: A = e_i e_k', B = e_k e_j'. All i, j, k up to 4096 products, else a random choice of them."""
    m, n, k = form.dims
    picks = np.arange(m * n * k)
    if picks.size > 4096:
        picks = RNG.choice(picks, 4096, replace=False)
    i, j, kk = np.unravel_index(picks, (m, n, k))
    each = np.arange(picks.size)
    a, b, c = (np.zeros((picks.size, *shape), np.int64) for shape in ((m, k), (k, n), (m, n)))
    a[each, i, kk] = b[each, kk, j] = 1
    d = decode(run(form, encode(a, form.a), encode(b, form.b), encode(c, form.c)), form.d)
    c[each, i, j] = 1
    assert np.array_equal(d, c)


def test_accumulator_layout_of_case_p20() -> None:
    """Register j of a lane is element (j & 1) + 2 * (lane % 4) + 8 * (lane / 4) + 64 * (j >> 1) of the 16x8 result."""
    fragment = Spelling("m16n8k16", "f32", "f16", "f16", "f32").fragment("d")
    lane, j = np.indices((32, 4))
    assert np.array_equal(fragment.row * 8 + fragment.col, (j & 1) + 2 * (lane % 4) + 8 * (lane // 4) + 64 * (j >> 1))


ORDERED = [f for f in FORMS if f.d in ("f32", "f16", "f64") and f.dims[2] <= 16 and (f.a == f.b or f.d == "f32")]


@pytest.mark.parametrize("form", ORDERED, ids=str)
def test_sums_go_up_in_k_with_one_rounding_each(form: Spelling) -> None:
    """The documented order, bit for bit, on numbers of very different size; f16 accumulators round once at the end."""
    m, n, k = form.dims
    scale = 2.0 ** RNG.integers(-3, 4, (1, m, k)) if form.d == "f16" else 2.0 ** RNG.integers(-6, 7, (1, m, k))
    a, b = RNG.standard_normal((1, m, k)) * scale, RNG.standard_normal((1, k, n))
    ab, bb, cb = encode(a, form.a), encode(b, form.b), encode(RNG.standard_normal((1, m, n)), form.c)
    if form.a == "tf32":
        ab, bb = (x & np.uint64(0xFFFFE000) for x in (ab, bb))
    d = run(form, ab, bb, cb)
    wide = sf.F64 if form.d == "f64" else sf.F32
    fa, fb, fc = (sf.FORMATS[{"tf32": "f32"}.get(kind, kind)] for kind in (form.a, form.b, form.c))
    for row in range(m):
        for col in (0, 3, 6):
            total = sf.convert(int(cb[0, row, col]), fc, wide)
            for step in range(k):
                x, y = sf.convert(int(ab[0, row, step]), fa, wide), sf.convert(int(bb[0, step, col]), fb, wide)
                total = sf.fma(x, y, total, wide)
            assert int(d[0, row, col]) == sf.convert(total, wide, sf.FORMATS[form.d])


@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "e5m2"])
def test_special_values(kind: str) -> None:
    """Infinity (where the type has one), NaN and subnormals of an operand."""
    form = Spelling("m16n8k16", "f32", kind, kind, "f32")
    f = sf.FORMATS[kind]
    a, b = np.full((1, 16, 16), f.one, np.uint64), np.full((1, 16, 8), f.one, np.uint64)
    a[0, 1, 2], a[0, 2, 5], a[0, 3, 7] = f.nan, f.sign_bit | f.nan, 1
    if not f.finite_only:
        a[0, 4, 0], a[0, 5, 0], a[0, 5, 9] = f.inf, f.inf, f.sign_bit | f.inf
    d = decode(run(form, a, b, np.zeros((1, 16, 8), np.uint64)), "f32")[0]
    assert np.isnan(d[1:3]).all() and (d[0] == 16).all() and (d[6:] == 16).all()
    assert (d[3] == np.float32(15 + sf.to_float(1, f))).all()
    if not f.finite_only:
        assert np.isposinf(d[4]).all() and np.isnan(d[5]).all()


@pytest.mark.parametrize("form", [Spelling("m8n8k16", "s32", "u8", "u8", "s32"), Spelling("m16n8k64", "s32", "s4", "u4", "s32")], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_satfinite_and_wrap_around(form: Spelling, sign: int) -> None:
    m, n, k = form.dims
    a, b = np.full((1, m, k), 7 * (sign if form.a == "s4" else 1)), np.full((1, k, n), 15)
    c = np.full((1, m, n), sign * (2**31 - 1) if form.a == "s4" else 2**31 - 1)
    operands = encode(a, form.a), encode(b, form.b), encode(c, "s32")
    total = int(c[0, 0, 0]) + 7 * 15 * k * (sign if form.a == "s4" else 1)
    assert (decode(run(form, *operands), "s32") == (total + 2**31) % 2**32 - 2**31).all()
    for place in ("before", "after"):
        clamped = replace(form, **{place: ".satfinite"})
        assert (decode(run(clamped, *operands), "s32") == max(-(2**31), min(2**31 - 1, total))).all()


HALF = Spelling("m16n8k16", "f32", "f16", "f16", "f32")


def ones() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.full((1, *shape), bits, np.uint64) for shape, bits in (((16, 16), 0x3C00), ((16, 8), 0x3C00), ((16, 8), 0)))  # type: ignore[return-value]


def test_a_warp_that_lost_lanes_is_an_error() -> None:
    with pytest.raises(emu.BadMask, match="all 32 lanes"):
        run(HALF, *ones(), guard="  setp.ne.u32 %p1, %r1, 7;")


def test_a_short_warp_is_an_error() -> None:
    with pytest.raises(emu.BadMask, match="all 32 lanes"):
        run(HALF, *ones(), block=24)


@pytest.mark.parametrize(("limit", "want"), [(0, 0.0), (32, 16.0)])
def test_a_guard_that_is_the_same_for_all(limit: int, want: float) -> None:
    """Every lane or none is fine; without it the destination keeps its zeros."""
    d = run(HALF, *ones(), guard=f"  setp.lt.u32 %p1, %r1, {limit};")
    assert (decode(d, "f32") == want).all()


@pytest.mark.parametrize("kind", ["f16", "e4m3", "e5m2"])
def test_subnormal_operands_where_fp32_is_flushed(kind: str) -> None:
    """A kernel whose fp32 instructions all say .ftz flushes fp32 subnormals; those of narrower types are fp32 normals."""
    form, f = Spelling("m16n8k16", "f32", kind, kind, "f32"), sf.FORMATS[kind]
    a, b = np.full((1, 16, 16), 1, np.uint64), np.full((1, 16, 8), f.one, np.uint64)
    guard = "  .reg .f32 %q;\n  cvt.rn.f32.u32 %q, %r1;\n  add.ftz.f32 %q, %q, %q;\n  setp.ge.ftz.f32 %p1, %q, 0f00000000;"
    d = decode(run(form, a, b, np.zeros((1, 16, 8), np.uint64), guard=guard), "f32")
    assert (d == 16 * sf.to_float(1, f)).all()


def test_every_registered_form_is_tested() -> None:
    load_all()
    registered = {s for form in supported_forms() if form.opcode == "mma" for s in spellings(form.pattern)}
    assert {str(form) for form in FORMS} == {s for s in registered if ".satfinite" not in s and ".rn" not in s}
