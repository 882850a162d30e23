"""The oracles against NumPy, ml_dtypes and the fractions module: two independent answers before either is trusted."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.emu.oracles import softfloat as sf

NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "e5m2": ml_dtypes.float8_e5m2,
         "e4m3": ml_dtypes.float8_e4m3fn}  # fmt: skip


def patterns(f: sf.Format, count: int = 400) -> list[int]:
    """Bit patterns: every boundary of the format and its neighbours, then random ones."""
    rng = np.random.default_rng(f.bits)
    edges = [0, 1, f.one, (1 << f.man_bits) - 1, 1 << f.man_bits, f.max_finite, f.inf, f.nan, f.one + 1, f.one - 1]
    random = [int(v) % (1 << f.bits) for v in rng.integers(0, 2**63, count)]
    near_one = [f.one + int(v) for v in rng.integers(-(3 << f.man_bits), 3 << f.man_bits, count // 2)]
    return [p % (1 << f.bits) for e in edges for p in (e, e | f.sign_bit)] + random + near_one


def as_numpy(bits: list[int], f: sf.Format) -> np.ndarray:
    return np.array(bits, dtype=f"u{f.bits // 8}").view(NUMPY[f.name])


def same(got: list[int], want: np.ndarray, f: sf.Format) -> bool:
    want_bits = want.view(f"u{f.bits // 8}")
    return all(g == int(w) or (sf.is_nan(g, f) and sf.is_nan(int(w), f)) for g, w in zip(got, want_bits, strict=True))


@pytest.mark.parametrize("f", [sf.F16, sf.F32, sf.F64], ids=lambda f: f.name)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "sqrt"])
def test_round_to_nearest_equals_numpy(op: str, f: sf.Format) -> None:
    x, y = patterns(f), patterns(f)[::-1]
    a, b = as_numpy(x, f), as_numpy(y, f)
    with np.errstate(all="ignore"):
        if op == "sqrt":
            want, got = np.sqrt(a), [sf.sqrt(p, f) for p in x]
        else:
            want = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}[op]
            got = [getattr(sf, op)(p, q, f) for p, q in zip(x, y, strict=True)]
    assert same(got, want, f)


def test_fma_f32_equals_exact_product_in_f64_where_that_is_exact() -> None:
    """With small integers times powers of two the f64 sum is exact, so its rounding to f32 is fma's."""
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-(2**22), 2**22, 500).astype(np.float32) * np.float32(2.0**k) for k in (-3, 2, 1))
    want = (a.astype(np.float64) * b + c).astype(np.float32)
    got = [sf.fma(int(x), int(y), int(z), sf.F32) for x, y, z in zip(*(v.view(np.uint32) for v in (a, b, c)), strict=True)]
    assert same(got, want, sf.F32)


@pytest.mark.parametrize("f", [sf.E4M3, sf.E5M2, sf.F16], ids=lambda f: f.name)
def test_directed_rounding_against_fractions(f: sf.Format) -> None:
    """Products in all modes are the neighbours of the exact value on the side the mode names."""
    numbers = sorted((p for p in range(f.max_finite + 1)), key=lambda p: sf.to_order(p, f))
    values = [Fraction(sf.to_float(p, f)) for p in numbers]
    rng = np.random.default_rng(1)
    picks = rng.choice(len(numbers), (60, 2))
    for i, j in picks.tolist():
        exact = values[i] * values[j]
        if exact > values[-1]:
            continue
        below = max(p for p, v in zip(numbers, values, strict=True) if v <= exact)
        above = min(p for p, v in zip(numbers, values, strict=True) if v >= exact)
        assert sf.mul(numbers[i], numbers[j], f, sf.RZ) == sf.mul(numbers[i], numbers[j], f, sf.RM) == below
        assert sf.mul(numbers[i], numbers[j], f, sf.RP) == above
        assert sf.mul(numbers[i] | f.sign_bit, numbers[j], f, sf.RM) == above | f.sign_bit
        nearest = sf.to_float(sf.mul(numbers[i], numbers[j], f, sf.RN), f)
        assert abs(Fraction(nearest) - exact) == min(exact - Fraction(sf.to_float(below, f)), Fraction(sf.to_float(above, f)) - exact)


@pytest.mark.parametrize("target", ["f16", "bf16", "e5m2", "e4m3", "f64"])
def test_conversion_from_f32_equals_numpy(target: str) -> None:
    f = sf.FORMATS[target]
    x = patterns(sf.F32, 2000)
    with np.errstate(all="ignore"):
        want = as_numpy(x, sf.F32).astype(NUMPY[target])
    assert same([sf.convert(p, sf.F32, f) for p in x], want, f)


@pytest.mark.parametrize("source", ["f16", "bf16", "e5m2", "e4m3"])
def test_every_widening_is_exact(source: str) -> None:
    f = sf.FORMATS[source]
    x = list(range(1 << f.bits))
    assert same([sf.convert(p, f, sf.F32) for p in x], as_numpy(x, f).astype(np.float32), sf.F32)


def test_ties_and_specks() -> None:
    assert [sf.round_integer(m, 1, False, 0, sf.RN) for m in (1, 3, 5)] == [0, 2, 2]
    assert [sf.round_integer(m, 1, False, 0, sf.RNA) for m in (1, 3, 5)] == [1, 2, 3]
    assert sf.round_integer(1, 1, True, 0, sf.RN) == 1
    assert sf.round_integer(4, 0, True, 0, sf.RP) == 5 and sf.round_integer(4, 0, True, 1, sf.RP) == 4
    assert sf.add(sf.F32.one, 0x33000000 - (1 << 23), sf.F32, sf.RP) == 0x3F800001  # 1 + 2**-26
    assert sf.add(sf.F32.one, 0x33000000, sf.F32, sf.RM) == sf.F32.one


def test_signed_zero_of_sums() -> None:
    minus = sf.F32.sign_bit
    for x, y, mode in itertools.product((0, minus), (0, minus), (sf.RN, sf.RZ, sf.RM, sf.RP)):
        want = minus if x and y else 0 if not (x or y) else minus * (mode == sf.RM)
        assert sf.add(x, y, sf.F32, mode) == want
