"""The .approx functions: exact special values, and the error PTX documents elsewhere.

An oracle returns the exact value as a Python float (references in double precision, far better than any bound here), or
special bits in a ``Bits``. ``accepts`` compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tests.emu.oracles import softfloat as sf
from tests.emu.oracles.softfloat import Format


@dataclass(frozen=True)
class Bits:
    """A result that PTX fixes exactly; NaN stands for any NaN."""

    value: int


@dataclass(frozen=True)
class Near:
    """A result within ``absolute`` + ``relative`` * |exact| + ``steps`` units of the format's spacing at the exact value."""

    exact: float
    relative: float = 0.0
    absolute: float = 0.0
    steps: float = 0.0
    zero_too: bool = False


Expected = Bits | Near | None


def accepts(f: Format, ftz: bool = False) -> Callable[[int, Expected], bool]:
    """Whether result bits satisfy what is expected; with ``ftz`` subnormal results must have become zeros."""

    def run(got: int, want: Expected) -> bool:
        if want is None:
            return True
        if isinstance(want, Bits):
            return got == want.value or (sf.is_nan(got, f) and sf.is_nan(want.value, f))
        if sf.is_nan(got, f):
            return False
        tiny = math.ldexp(1.0, f.min_exp)
        if ftz and sf.is_subnormal(got, f):
            return False
        value = sf.to_float(got, f)
        if want.zero_too and value == 0.0:
            return True
        if ftz and value == 0.0 and abs(want.exact) <= tiny * (1 + 2 * want.relative):
            return True
        exponent = max(math.frexp(want.exact)[1] - 1, f.min_exp) if want.exact else f.min_exp
        spacing = math.ldexp(1.0, exponent - f.man_bits)
        bound = want.absolute + want.relative * abs(want.exact) + want.steps * spacing
        largest = sf.to_float(f.max_finite, f)
        if math.isinf(value):
            return math.copysign(1, value) == math.copysign(1, want.exact) and abs(want.exact) + bound >= largest
        return abs(value - want.exact) <= bound

    return run


def _special(f: Format, x: int, ftz: bool) -> tuple[int, float | None]:
    """Flushed bits and, if finite, their value."""
    x = sf.flush(x, f) if ftz else x
    return x, None if sf.is_nan(x, f) or sf.is_inf(x, f) else sf.to_float(x, f)


def upper_word(oracle: Callable[[int], Expected]) -> Callable[[int], Expected]:
    """The f64 functions that read the upper 32 bits only: a NaN that sits in the lower ones alone is left open."""
    return lambda x: None if x >> 32 & 0x7FFFFFFF == 0x7FF00000 and x & 0xFFFFFFFF else oracle(x)


def _signed(f: Format, x: int, magnitude: int) -> Bits:
    return Bits(magnitude | x & f.sign_bit)


def rcp(f: Format, ftz: bool, steps: float = 1.0, relative: float = 0.0) -> Callable[[int], Expected]:
    def run(x: int) -> Expected:
        x, value = _special(f, x, ftz)
        if value is None:
            return Bits(f.nan) if sf.is_nan(x, f) else _signed(f, x, 0)
        if value == 0.0:
            return _signed(f, x, f.inf)
        if abs(value) < math.ldexp(1.0, f.min_exp - 2) and f.name != "f64":
            return Near(1.0 / value, steps=steps)  # overflow or nearly so
        return Near(1.0 / value, relative, steps=steps) if abs(value) > 2.0**-1022 else None

    return run


def sqrt(f: Format, ftz: bool) -> Callable[[int], Expected]:
    def run(x: int) -> Expected:
        x, value = _special(f, x, ftz)
        if sf.is_nan(x, f) or (x & f.sign_bit and x != f.sign_bit):
            return Bits(f.nan)
        if value is None or value == 0.0:
            return Bits(x)
        return Near(math.sqrt(value), relative=2.0**-23)

    return run


def rsqrt(f: Format, ftz: bool, relative: float = 2.0**-22.9) -> Callable[[int], Expected]:
    def run(x: int) -> Expected:
        x, value = _special(f, x, ftz)
        if x & ~f.sign_bit == 0:
            return _signed(f, x, f.inf)
        if sf.is_nan(x, f) or x & f.sign_bit:
            return Bits(f.nan)
        return Bits(0) if value is None else Near(1.0 / math.sqrt(value), relative)

    return run


def sine(name: str, f: Format, ftz: bool) -> Callable[[int], Expected]:
    def run(x: int) -> Expected:
        x, value = _special(f, x, ftz)
        if value is None:
            return Bits(f.nan)
        if value == 0.0:
            return Bits(x if name == "sin" else f.one)
        exact = math.sin(value) if name == "sin" else math.cos(value)
        if abs(value) <= 2 * math.pi:
            return Near(exact, absolute=2.0**-20.5)
        return Near(exact, absolute=2.0**-14.7) if abs(value) <= 100 * math.pi else Near(0.0, absolute=1.0)

    return run


def lg2(f: Format, ftz: bool) -> Callable[[int], Expected]:
    def run(x: int) -> Expected:
        x, value = _special(f, x, ftz)
        if x & ~f.sign_bit == 0:
            return Bits(f.inf | f.sign_bit)
        if sf.is_nan(x, f) or x & f.sign_bit:
            return Bits(f.nan)
        if value is None:
            return Bits(f.inf)
        exact = math.log2(value)
        return Near(exact, absolute=2.0**-22) if 0.5 <= value <= 2.0 else Near(exact, relative=2.0**-22)

    return run


def ex2(f: Format, ftz: bool, relative: float = 2.0**-22) -> Callable[[int], Expected]:
    """Powers of two at integers exactly."""

    def run(x: int) -> Expected:
        x, value = _special(f, x, ftz)
        if value is None:
            return Bits(f.nan) if sf.is_nan(x, f) else Bits(0 if x & f.sign_bit else f.inf)
        if value > f.bias + 1:
            return Bits(f.inf)
        if value < f.min_exp - f.man_bits - 2:
            return Bits(0)
        if value == int(value) and f.min_exp <= value <= f.bias:
            return Bits(sf.encode(0, 1, int(value), f))
        exact = 2.0**value
        return Near(exact, relative, steps=0.5 if f is not sf.F32 else 1.0 if value < f.min_exp else 0.0)

    return run


def tanh(f: Format, relative: float, absolute: float = 0.0) -> Callable[[int], Expected]:
    def run(x: int) -> Expected:
        x, value = _special(f, x, False)
        if value is None:
            return Bits(f.nan) if sf.is_nan(x, f) else _signed(f, x, f.one)
        if value == 0.0:
            return Bits(x)
        return Near(math.tanh(value), relative, absolute, steps=0.5)

    return run


def div(f: Format, ftz: bool, full: bool) -> Callable[[int, int], Expected]:
    """2 ulp. ``div.approx`` by a magnitude over 2**126 may give 0 (NaN for an infinite numerator), by one below 2**-126 is open."""

    def run(a: int, b: int) -> Expected:
        a, x = _special(f, a, ftz)
        b, y = _special(f, b, ftz)
        ieee = sf.div(a, b, f)
        if x is None or y is None or x == 0.0 or y == 0.0:
            huge = not full and y is not None and abs(y) > 2.0**126
            return None if huge and x is None else Bits(ieee)
        if not full and abs(y) < 2.0**-126:
            return None
        return Near(x / y, steps=2.0, zero_too=not full and abs(y) > 2.0**126)

    return run
