"""IEEE arithmetic on bit patterns with Python's integers: exact values first, one rounding at the end.

Nothing here shares code or method with the emulator: values are (sign, integer, exponent), products and sums are exact,
quotients and roots carry a sticky flag, and ``encode`` rounds once. NaN results are the format's canonical NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

RN, RNA, RZ, RM, RP = "rn", "rna", "rz", "rm", "rp"


@dataclass(frozen=True)
class Format:
    """A binary floating-point format. ``finite_only`` marks e4m3: no infinity, one NaN per sign."""

    name: str
    exp_bits: int
    man_bits: int
    finite_only: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exp_bits + self.man_bits

    @property
    def bias(self) -> int:
        return (1 << self.exp_bits - 1) - 1

    @property
    def sign_bit(self) -> int:
        return 1 << self.bits - 1

    @property
    def min_exp(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def inf(self) -> int:
        return ((1 << self.exp_bits) - 1) << self.man_bits

    @property
    def max_finite(self) -> int:
        return self.inf | (1 << self.man_bits) - 2 if self.finite_only else self.inf - 1

    @property
    def nan(self) -> int:
        """The canonical NaN of PTX: all exponent and mantissa bits set (f64: the usual quiet NaN)."""
        return self.inf | (1 << self.man_bits - 1) if self.name == "f64" else self.inf | (1 << self.man_bits) - 1

    @property
    def one(self) -> int:
        return self.bias << self.man_bits


F16 = Format("f16", 5, 10)
BF16 = Format("bf16", 8, 7)
TF32 = Format("tf32", 8, 10)
F32 = Format("f32", 8, 23)
F64 = Format("f64", 11, 52)
E5M2 = Format("e5m2", 5, 2)
E4M3 = Format("e4m3", 4, 3, finite_only=True)
FORMATS = {f.name: f for f in (F16, BF16, TF32, F32, F64, E5M2, E4M3)}

Exact = tuple[int, int, int]  # (-1)**sign * integer * 2**exponent


def is_nan(x: int, f: Format) -> bool:
    magnitude = x & ~f.sign_bit
    return magnitude == f.nan if f.finite_only else magnitude > f.inf


def is_inf(x: int, f: Format) -> bool:
    return not f.finite_only and x & ~f.sign_bit == f.inf


def is_subnormal(x: int, f: Format) -> bool:
    return 0 < x & ~f.sign_bit < 1 << f.man_bits


def flush(x: int, f: Format) -> int:
    """Subnormal to zero of the same sign."""
    return x & f.sign_bit if is_subnormal(x, f) else x


def decode(x: int, f: Format) -> Exact:
    """The exact value of a finite number."""
    sign, field, man = x >> f.bits - 1, x >> f.man_bits & (1 << f.exp_bits) - 1, x & (1 << f.man_bits) - 1
    if field == 0:
        return sign, man, f.min_exp - f.man_bits
    return sign, man | 1 << f.man_bits, field - f.bias - f.man_bits


def round_integer(m: int, shift: int, sticky: bool, sign: int, mode: str) -> int:
    """``m / 2**shift`` (plus a positive speck if ``sticky``) rounded to an integer; ``sign`` directs rm and rp."""
    if shift <= 0:
        if sticky:  # keep the speck below the last bit
            return round_integer((m << 2 - shift) | 1, 2, False, sign, mode)
        return m << -shift
    quotient, rest = m >> shift, m & (1 << shift) - 1
    half = 1 << shift - 1
    inexact = rest != 0 or sticky
    if mode == RN:
        up = rest > half or (rest == half and (sticky or quotient & 1 == 1))
    elif mode == RNA:
        up = rest >= half
    else:
        up = inexact and mode == (RM if sign else RP)
    return quotient + up


def encode(sign: int, m: int, e: int, f: Format, mode: str = RN, sticky: bool = False, saturate: bool = False) -> int:
    """Round ``m * 2**e`` to the format. Overflow goes where the mode says; ``saturate`` stops at the largest finite number."""
    top = f.sign_bit if sign else 0
    if m == 0 and not sticky:
        return top
    lsb = max(m.bit_length() - 1 + e, f.min_exp) - f.man_bits
    q = round_integer(m, lsb - e, sticky, sign, mode)
    if q >> f.man_bits + 1:
        q, lsb = q >> 1, lsb + 1
    if q >> f.man_bits == 0:
        return top | q  # subnormal or zero
    bits = (lsb + f.man_bits + f.bias << f.man_bits) + (q & (1 << f.man_bits) - 1)
    if bits <= f.max_finite:
        return top | bits
    if saturate or mode == RZ or mode == (RP if sign else RM):
        return top | f.max_finite
    return top | (f.nan if f.finite_only else f.inf)


def _zero_sum_sign(a: int, b: int, mode: str) -> int:
    return a if a == b else int(mode == RM)


def add(x: int, y: int, f: Format, mode: str = RN) -> int:
    if is_nan(x, f) or is_nan(y, f):
        return f.nan
    if is_inf(x, f) or is_inf(y, f):
        if is_inf(x, f) and is_inf(y, f):
            return x if x == y else f.nan
        return x if is_inf(x, f) else y
    return _sum(decode(x, f), decode(y, f), f, mode)


def _sum(a: Exact, b: Exact, f: Format, mode: str) -> int:
    e = min(a[2], b[2])
    total = (a[1] << a[2] - e) * (-1) ** a[0] + (b[1] << b[2] - e) * (-1) ** b[0]
    if total == 0:
        return f.sign_bit if _zero_sum_sign(a[0], b[0], mode) else 0
    return encode(int(total < 0), abs(total), e, f, mode)


def sub(x: int, y: int, f: Format, mode: str = RN) -> int:
    return add(x, y if is_nan(y, f) else y ^ f.sign_bit, f, mode)


def _product_special(x: int, y: int, f: Format) -> int | None:
    """NaN or infinity of a product, None if it is finite."""
    if is_nan(x, f) or is_nan(y, f):
        return f.nan
    sign = (x ^ y) & f.sign_bit
    if is_inf(x, f) or is_inf(y, f):
        other = y if is_inf(x, f) else x
        return f.nan if other & ~f.sign_bit == 0 else sign | f.inf
    return None


def mul(x: int, y: int, f: Format, mode: str = RN) -> int:
    special = _product_special(x, y, f)
    if special is not None:
        return special
    a, b = decode(x, f), decode(y, f)
    return encode(a[0] ^ b[0], a[1] * b[1], a[2] + b[2], f, mode)


def fma(x: int, y: int, z: int, f: Format, mode: str = RN) -> int:
    special = _product_special(x, y, f)
    if special == f.nan or is_nan(z, f):
        return f.nan
    if special is not None:
        return f.nan if is_inf(z, f) and z != special else special
    if is_inf(z, f):
        return z
    a, b = decode(x, f), decode(y, f)
    return _sum((a[0] ^ b[0], a[1] * b[1], a[2] + b[2]), decode(z, f), f, mode)


def div(x: int, y: int, f: Format, mode: str = RN) -> int:
    if is_nan(x, f) or is_nan(y, f):
        return f.nan
    sign = (x ^ y) & f.sign_bit
    a_inf, b_inf = is_inf(x, f), is_inf(y, f)
    a_zero, b_zero = x & ~f.sign_bit == 0, y & ~f.sign_bit == 0
    if (a_inf and b_inf) or (a_zero and b_zero):
        return f.nan
    if a_inf or b_zero:
        return sign | f.inf
    if b_inf or a_zero:
        return sign
    a, b = decode(x, f), decode(y, f)
    shift = 2 * f.man_bits + 8
    quotient, rest = divmod(a[1] << shift, b[1])
    return encode(int(sign != 0), quotient, a[2] - b[2] - shift, f, mode, sticky=rest != 0)


def sqrt(x: int, f: Format, mode: str = RN) -> int:
    if is_nan(x, f) or (x & f.sign_bit and x != f.sign_bit):
        return f.nan
    if is_inf(x, f) or x & ~f.sign_bit == 0:
        return x
    _, m, e = decode(x, f)
    shift = 2 * f.man_bits + 8
    shift += (e - shift) & 1
    root = math.isqrt(m << shift)
    return encode(0, root, (e - shift) // 2, f, mode, sticky=root * root != m << shift)


def to_float(x: int, f: Format) -> float:
    """The value as a Python float (every format but NaN payloads fits)."""
    if is_nan(x, f):
        return math.nan
    sign = -1.0 if x & f.sign_bit else 1.0
    if is_inf(x, f):
        return sign * math.inf
    _, m, e = decode(x, f)
    return sign * math.ldexp(m, e)


def convert(x: int, source: Format, target: Format, mode: str = RN, saturate: bool = False) -> int:
    """Format to format. NaN becomes the target's canonical NaN; ``saturate`` takes infinity and overflow to the largest finite."""
    if is_nan(x, source):
        return target.nan
    sign = x >> source.bits - 1
    if is_inf(x, source):
        top = target.sign_bit if sign else 0
        return top | (target.max_finite if saturate else target.nan if target.finite_only else target.inf)
    _, m, e = decode(x, source)
    return encode(sign, m, e, target, mode, saturate=saturate)


def less(x: int, y: int, f: Format) -> bool:
    """``x < y`` of two numbers, -0 == +0."""
    return to_order(x, f) < to_order(y, f)


def to_order(x: int, f: Format) -> int:
    """An integer that orders numbers as their values do (both zeros are 0)."""
    magnitude = x & ~f.sign_bit
    return -magnitude if x & f.sign_bit else magnitude
