"""``cvt`` between integers and floats, and the packed and narrow conversions."""

from __future__ import annotations

from collections.abc import Callable

from tests.emu.oracles import floating, integer
from tests.emu.oracles import softfloat as sf
from tests.emu.oracles.softfloat import Format

Function = Callable[..., int | None]
TO_INTEGER = {"rni": sf.RN, "rzi": sf.RZ, "rmi": sf.RM, "rpi": sf.RP}


def int_to_int(target: str, source: str, sat: bool) -> Function:
    """The source's low bits as a number; clamped or cut to the target, then extended to 32 bits by the target's sign."""

    def run(a: int) -> int:
        value = integer.read(a, source)
        bits = integer.clamp(value, target) if sat else integer.wrap(value, integer.bits_of(target))
        return integer.wrap(integer.read(bits, target), max(32, integer.bits_of(target)))

    return run


def float_to_int(target: str, f: Format, mode: str, ftz: bool = False) -> Function:
    """Out of range clamps; NaN gives 0, except from f64 or to 64 bits: then only the top bit of the target is set."""
    bits = integer.bits_of(target)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target[0] == "s" else (0, (1 << bits) - 1)

    def run(a: int) -> int | None:
        a = sf.flush(a, f) if ftz else a
        if sf.is_nan(a, f):
            if f is sf.F64 or bits == 64:
                return None if bits < 32 else 1 << bits - 1
            return 0
        if sf.is_inf(a, f):
            value = low if a & f.sign_bit else high
        else:
            sign, m, e = sf.decode(a, f)
            magnitude = sf.round_integer(m, -e, False, sign, TO_INTEGER[mode])
            value = min(max(-magnitude if sign else magnitude, low), high)
        return integer.wrap(value, max(32, bits))

    return run


def int_to_float(f: Format, source: str, mode: str, sat: bool = False) -> Function:
    def run(a: int) -> int:
        value = integer.read(a, source)
        return sf.encode(int(value < 0), abs(value), 0, f, mode)

    return floating.saturated(run, f) if sat else run


def float_to_float(target: Format, source: Format, mode: str = sf.RN, ftz: bool = False, sat: bool = False, relu: bool = False) -> Function:
    """``.ftz`` flushes single-precision operands and results only."""

    def run(a: int) -> int:
        a = sf.flush(a, source) if ftz and source is sf.F32 else a
        result = sf.convert(a, source, target, mode)
        return sf.flush(result, target) if ftz and target is sf.F32 else result

    found: Function = run
    if sat:
        found = floating.saturated(found, target)
    return floating.rectified(found, target) if relu else found


def to_integral(f: Format, mode: str, ftz: bool = False, sat: bool = False) -> Function:
    """``cvt.rni.f32.f32`` and its kin: rounded to an integer in the same format, the sign of zero kept."""

    def run(a: int) -> int:
        a = sf.flush(a, f) if ftz else a
        if sf.is_nan(a, f):
            return f.nan
        if sf.is_inf(a, f):
            return a
        sign, m, e = sf.decode(a, f)
        return sf.encode(sign, sf.round_integer(m, -e, False, sign, TO_INTEGER[mode]), 0, f)

    return floating.saturated(run, f) if sat else run


def narrow(target: Format, source: Format, mode: str = sf.RN, relu: bool = False, satfinite: bool = False) -> Function:
    """One element of a packed conversion; ``satfinite`` keeps NaN and stops infinities at the largest finite number."""
    return _relu(lambda a: sf.convert(a, source, target, mode, saturate=satfinite), target, relu)


def _relu(function: Function, f: Format, relu: bool) -> Function:
    return floating.rectified(function, f) if relu else function


def pair(element: Function, bits: int) -> Function:
    """``cvt.x2 d, a, b``: a goes to the upper part."""

    def run(a: int, b: int) -> int | None:
        high, low = element(a), element(b)
        return None if high is None or low is None else high << bits | low

    return run


def unpair(element: Function, bits: int, result_bits: int) -> Function:
    """A packed source, element by element."""

    def run(a: int) -> int | None:
        low, high = element(a & (1 << bits) - 1), element(a >> bits)
        return None if high is None or low is None else high << result_bits | low

    return run


def pack(target: str) -> Function:
    """``cvt.pack.sat``: a and b clamped to the target, a above b; narrower targets push c's low bits up."""
    bits = integer.bits_of(target)

    def element(a: int) -> int:
        return integer.clamp(integer.signed(a, 32), target)

    def run(a: int, b: int, c: int = 0) -> int:
        return integer.wrap(c << 2 * bits | element(a) << bits | element(b), 32)

    return run
