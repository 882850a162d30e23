"""The maths library's functions within the errors NVIDIA documents, and half, bfloat16, fp8 and bit operations exactly."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import launch, zeros
from tests.emu.programs.loader import program

RNG = np.random.default_rng(41)
LARGE = np.concatenate(
    [RNG.uniform(-10, 10, 300), RNG.standard_normal(100) * 1e4, RNG.uniform(-1, 1, 100), [0.0, 1.0, -1.0, 105615.0, 1e30, -3e22]]
)
POSITIVE = np.concatenate([np.exp(RNG.uniform(-60, 60, 400)), RNG.uniform(0.5, 2, 100), [1.0]])
SMALL = np.concatenate([RNG.uniform(-80, 80, 400), RNG.uniform(-0.1, 0.1, 100)])
Reference = Callable[[np.ndarray], np.ndarray]


def lifted(function: Callable[[float], float]) -> Reference:
    return lambda x: np.array([function(float(v)) for v in x])


# name, reference in more precision, inputs, documented error in ulp
FLOAT: list[tuple[str, Reference, np.ndarray, float]] = [
    ("f_exp", np.exp, SMALL, 2), ("f_log", np.log, POSITIVE, 1), ("f_sin", np.sin, LARGE, 2), ("f_cos", np.cos, LARGE, 2),
    ("f_tan", np.tan, LARGE, 4), ("f_tanh", np.tanh, SMALL, 2), ("f_erf", lifted(math.erf), SMALL, 2),
    ("f_cbrt", np.cbrt, LARGE, 1), ("f_atan", np.arctan, LARGE, 2), ("f_exp2", np.exp2, SMALL, 2),
    ("f_log1p", np.log1p, POSITIVE, 1), ("f_expm1", np.expm1, SMALL, 1), ("f_rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE, 2),
    ("f_sqrt", np.sqrt, POSITIVE, 0), ("f_recip", lambda x: 1 / x, POSITIVE, 0), ("f_rint", np.rint, LARGE, 0),
    ("f_round", lambda x: np.trunc(x + np.copysign(0.5, x)), SMALL, 0), ("f_floor", np.floor, LARGE, 0),
    ("f_trunc", np.trunc, LARGE, 0), ("f_pow", lambda x: np.abs(x) ** float(np.float32(1.7)), SMALL, 4),
    ("f_fmod", lambda x: np.fmod(x, float(np.float32(0.7))), SMALL, 0),
    ("f_frexp", lambda x: np.frexp(x)[0] + np.frexp(x)[1].astype(np.float32), POSITIVE, 0),
    ("f_ldexp", lambda x: np.ldexp(x, np.arange(x.size) % 9 - 4), SMALL, 0),
]  # fmt: skip
DOUBLE: list[tuple[str, Reference, np.ndarray, float]] = [
    ("d_exp", np.exp, SMALL, 1), ("d_log", np.log, POSITIVE, 1), ("d_sin", np.sin, LARGE, 2), ("d_cos", np.cos, LARGE, 2),
    ("d_tanh", np.tanh, SMALL, 2), ("d_sqrt", np.sqrt, POSITIVE, 0), ("d_recip", lambda x: 1 / x, POSITIVE, 0),
    ("d_pow", lambda x: np.abs(x) ** np.longdouble(1.7), SMALL, 2), ("d_floor", np.floor, LARGE, 0),
    ("d_fma", lambda x: x * x - 1, SMALL, 0),
]  # fmt: skip


def run(name: str, x: np.ndarray) -> np.ndarray:
    out = emu.empty(x.shape, x.dtype)
    launch(program("numeric"), name, -(-x.size // 128), 128, emu.asarray(x), out, np.int32(x.size))
    return np.array(out)


def ulp_error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the correctly rounded result; NaN where one side only is NaN or infinite."""
    nearest = want.astype(got.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(want.dtype) - want) / np.spacing(np.abs(nearest)).astype(want.dtype)
    return np.where((got == nearest) | (np.isnan(got) & np.isnan(nearest)), 0, error)


@pytest.mark.parametrize(("name", "reference", "inputs", "bound"), FLOAT, ids=[row[0] for row in FLOAT])
def test_float_functions(name: str, reference: Reference, inputs: np.ndarray, bound: float) -> None:
    x = inputs.astype(np.float32)
    error = ulp_error(run(name, x), reference(x.astype(np.float64)))
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    assert error[worst] <= bound + 0.5, f"{name}({x[worst]!r}) is {error[worst]} ulp off"


@pytest.mark.parametrize(("name", "reference", "inputs", "bound"), DOUBLE, ids=[row[0] for row in DOUBLE])
def test_double_functions(name: str, reference: Reference, inputs: np.ndarray, bound: float) -> None:
    error = ulp_error(run(name, inputs), reference(inputs.astype(np.longdouble)))
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    assert error[worst] <= bound + 0.5, f"{name}({inputs[worst]!r}) is {error[worst]} ulp off"


def test_double_erf() -> None:
    got, want = run("d_erf", SMALL), lifted(math.erf)(SMALL)
    assert (np.abs(got - want) <= 3 * np.spacing(np.abs(want))).all()


@pytest.mark.parametrize("name", ["f_exp", "f_log", "f_sin", "f_tanh", "f_sqrt", "f_rsqrt", "f_recip", "f_exp2", "f_erf"])
def test_special_values(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
    reference = {row[0]: row[1] for row in FLOAT}[name]
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64)).astype(np.float32)
    got = run(name, x)
    exact = ~np.isfinite(want) | (want == 0)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(got[exact & ~np.isnan(want)], want[exact & ~np.isnan(want)])
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_half2_arithmetic() -> None:
    a, b = (RNG.standard_normal((64, 2)).astype(np.float16) for _ in range(2))
    out, scalar = emu.empty((64, 2), np.float16), emu.empty(64, np.float16)
    launch(program("numeric"), "half_math", 1, 64, emu.asarray(a), emu.asarray(b), out, scalar)
    square = (a * a).astype(np.float64)  # the product rounds to half, then the fma rounds once
    v = (a.astype(np.float64) * b + square).astype(np.float16)
    v = np.maximum(v, np.array([-1, 0.25], np.float16))
    assert np.array_equal(out, v + -b)
    s = a[:, 0] - b[:, 1]
    high = s > 0.5
    assert np.array_equal(scalar[~high], (s / np.float16(3))[~high])
    exact = np.exp2(s.astype(np.float64))
    assert (np.abs(scalar - exact)[high] <= 2.0**-9.9 * exact[high]).all()


def test_bfloat162_arithmetic() -> None:
    a, b = (RNG.standard_normal((64, 2)).astype(ml_dtypes.bfloat16) for _ in range(2))
    out, wide = emu.empty((64, 2), np.uint16), emu.empty(64, np.float32)
    launch(program("numeric"), "bfloat_math", 1, 64, emu.asarray(a.view(np.uint16)), emu.asarray(b.view(np.uint16)), out, wide)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    v = (a64 * b64 + b64).astype(ml_dtypes.bfloat16)  # exact in float64: 16-bit products of nearby exponents
    assert np.array_equal(out.view(ml_dtypes.bfloat16).astype(np.float32), np.minimum(v, a).astype(np.float32))
    assert np.array_equal(wide, (a64[:, 0] * 3 + b64[:, 1]).astype(np.float32))


def test_first_element_is_the_lower_half() -> None:
    out = zeros(2, np.uint32)
    launch(program("numeric"), "pack_order", 1, 1, out)
    assert [hex(v) for v in out.tolist()] == ["0x40003c00", "0x40003f80"]


def test_fp8_conversions_of_the_header() -> None:
    """The header's conversion saturates to the largest finite number."""
    x = np.concatenate([RNG.standard_normal(40) * 10, RNG.standard_normal(20) * 0.01, [448.0, 464.0, 1e6, -1e6]]).astype(np.float32)
    e4m3, e5m2, back = emu.empty(64, np.uint8), emu.empty(64, np.uint8), emu.empty(64, np.float32)
    launch(program("numeric"), "fp8_round_trip", 1, 64, emu.asarray(x), e4m3, e5m2, back)
    want4 = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    want5 = np.clip(x, -57344, 57344).astype(ml_dtypes.float8_e5m2)
    assert np.array_equal(e4m3, want4.view(np.uint8)) and np.array_equal(e5m2, want5.view(np.uint8))
    assert np.array_equal(back, want4.astype(np.float32) + want5.astype(np.float32))


def test_bit_tricks() -> None:
    a, b = (RNG.integers(0, 2**32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    a[:4], b[:4] = [0, 1, 0xFFFFFFFF, 0x80000000], [0, 0, 1, 0xFFFFFFFF]
    out = emu.empty((10, 64), np.uint32)
    launch(program("numeric"), "bit_tricks", 1, 64, emu.asarray(a), emu.asarray(b), out)
    assert out.T.tolist() == [bit_tricks(i, x, y) for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True))]


def bit_tricks(i: int, x: int, y: int) -> list[int]:
    """The kernel of that name for one thread."""

    def signed(v: int, bits: int = 32) -> int:
        return v - (1 << bits) if v >> bits - 1 else v

    both = (x | y << 32).to_bytes(8, "little")
    xs, ys = x.to_bytes(4, "little"), y.to_bytes(4, "little")
    first_set = (x & -x).bit_length()
    return [
        int(f"{x:032b}"[::-1], 2),
        int.from_bytes(bytes(both[0x3715 >> 4 * k & 7] for k in range(4)), "little"),
        ((y << 32 | x) << (i & 31) >> 32) & 0xFFFFFFFF,
        x * y >> 32,
        first_set + 64 * (32 - y.bit_length()) + 4096 * (x ^ y).bit_count(),
        (sum(signed(p, 8) * signed(q, 8) for p, q in zip(xs, ys, strict=True)) + 7) & 0xFFFFFFFF,
        int.from_bytes(bytes((p + q) & 255 for p, q in zip(xs, ys, strict=True)), "little"),
        (abs(x - y) + 5) & 0xFFFFFFFF,
        (x & y) | (~x & 0x0F0F0F0F),
        (signed(x) * signed(y) >> 20) & 0xFFFFFFFF,
    ]
