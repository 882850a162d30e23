"""Floating-point instructions of one format: what the modifiers .ftz, .sat, .relu, .NaN and .xorsign.abs add to IEEE arithmetic."""

from __future__ import annotations

from collections.abc import Callable

from tests.emu.oracles import softfloat as sf
from tests.emu.oracles.softfloat import Format

Function = Callable[..., int | None]


def flushed(function: Function, f: Format) -> Function:
    """``.ftz``: subnormal operands and results become zeros of their sign."""

    def run(*operands: int) -> int | None:
        result = function(*(sf.flush(x, f) for x in operands))
        return None if result is None else sf.flush(result, f)

    return run


def saturated(function: Function, f: Format) -> Function:
    """``.sat``: clamp to [0, 1], NaN gives +0. The sign of a zero that comes out of a negative zero is left open."""

    def run(*operands: int) -> int | None:
        result = function(*operands)
        if result is None or result == f.sign_bit:
            return None
        if sf.is_nan(result, f) or result & f.sign_bit:
            return 0
        return min(result, f.one)

    return run


def rectified(function: Function, f: Format) -> Function:
    """``.relu``: negative results become 0, NaN becomes the canonical NaN; the sign of a zero is left open."""

    def run(*operands: int) -> int | None:
        result = function(*operands)
        if result is None or result == f.sign_bit:
            return None
        return f.nan if sf.is_nan(result, f) else 0 if result & f.sign_bit else result

    return run


def packed(function: Function, f: Format) -> Function:
    """Two halves of a register, each through ``function``."""
    mask = (1 << f.bits) - 1

    def run(*operands: int) -> int | None:
        low = function(*(x & mask for x in operands))
        high = function(*(x >> f.bits for x in operands))
        return None if low is None or high is None else low | high << f.bits

    return run


def rounded(name: str, f: Format, mode: str = sf.RN) -> Function:
    """add, sub, mul, fma, div, sqrt or rcp."""
    if name == "rcp":
        return lambda a: sf.div(f.one, a, f, mode)
    function = getattr(sf, {"mad": "fma"}.get(name, name))
    return lambda *operands: function(*operands, f, mode)


def minmax(name: str, f: Format, nan: bool = False, xorsign: bool = False) -> Function:
    """The other operand if one is NaN (the canonical NaN with .NaN, or if both are); -0 is less than +0."""

    def pick(a: int, b: int) -> int:
        if sf.is_nan(a, f) or sf.is_nan(b, f):
            if nan or (sf.is_nan(a, f) and sf.is_nan(b, f)):
                return f.nan
            return b if sf.is_nan(a, f) else a
        first = (sf.to_order(a, f), not a & f.sign_bit) < (sf.to_order(b, f), not b & f.sign_bit)
        return (a if first else b) if name == "min" else (b if first else a)

    if not xorsign:
        return pick
    magnitude = ~f.sign_bit & (1 << f.bits) - 1

    def with_sign(a: int, b: int) -> int:
        found = pick(a & magnitude, b & magnitude)
        return found if sf.is_nan(found, f) else found | (a ^ b) & f.sign_bit

    return with_sign


def absolute(f: Format) -> Function:
    return lambda a: a & ~f.sign_bit


def negated(f: Format) -> Function:
    return lambda a: a ^ f.sign_bit


def copysign(f: Format) -> Function:
    """The sign of a on the magnitude of b."""
    return lambda a, b: b & ~f.sign_bit | a & f.sign_bit


def testp(test: str, f: Format) -> Callable[[int], int]:
    tests: dict[str, Callable[[int], bool]] = {
        "finite": lambda a: not sf.is_nan(a, f) and not sf.is_inf(a, f),
        "infinite": lambda a: sf.is_inf(a, f),
        "number": lambda a: not sf.is_nan(a, f),
        "notanumber": lambda a: sf.is_nan(a, f),
        "normal": lambda a: not sf.is_nan(a, f) and not sf.is_inf(a, f) and (a & ~f.sign_bit) >> f.man_bits != 0,
        "subnormal": lambda a: sf.is_subnormal(a, f),
    }
    return lambda a: int(tests[test](a))


def compare(name: str, f: Format, ftz: bool = False) -> Callable[[int, int], bool]:
    """The comparison of setp and set: ordered ones are false on NaN, the ones ending in u are true on NaN."""
    orders: dict[str, Callable[[int, int], bool]] = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
    }  # fmt: skip

    def run(a: int, b: int) -> bool:
        if ftz:
            a, b = sf.flush(a, f), sf.flush(b, f)
        unordered = sf.is_nan(a, f) or sf.is_nan(b, f)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u")
        return orders[name.removesuffix("u")](sf.to_order(a, f), sf.to_order(b, f))

    return run
