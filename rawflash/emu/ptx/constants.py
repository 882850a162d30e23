"""Literals and constant expressions of PTX (ISA manual, "Constants"): 64-bit integers with C's precedence, and floats."""

from __future__ import annotations

import re
import struct

from rawflash.emu.ptx.lexer import Tokens
from rawflash.emu.ptx.tree import Imm

_MASK64 = (1 << 64) - 1
_FLOAT = re.compile(r"\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+")
_SIGN_BIT = {"f32": 1 << 31, "f64": 1 << 63}
_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip

Value = tuple[int, bool]  # (value, is unsigned)


def literal(token: str) -> Imm | None:
    """The literal a token spells, or None: decimal, octal ``017``, ``0x``, ``0b``, suffix U, ``0f``, ``0d``, ``1.5e3``."""
    if not token or not token[0].isdigit():
        return None
    head = token[:2].lower()
    try:
        if head == "0f" and len(token) == 10:
            return Imm(int(token[2:], 16), "f32")
        if head == "0d" and len(token) == 18:
            return Imm(int(token[2:], 16), "f64")
        if _FLOAT.fullmatch(token):
            return Imm(float_bits(float(token), "f64"), "f64")
        digits = token.rstrip("U")
        if head in ("0x", "0b"):
            return Imm(int(digits, 0))
        return Imm(int(digits, 8) if len(digits) > 1 and digits[0] == "0" else int(digits))
    except ValueError:
        return None


def negated(value: Imm) -> Imm:
    """``-x``: integers change sign, floats flip their sign bit."""
    return Imm(-value.value) if value.kind == "int" else Imm(value.value ^ _SIGN_BIT[value.kind], value.kind)


def float_bits(value: float, kind: str) -> int:
    """Bit pattern of a float as "f32" or "f64"."""
    if kind == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000


def as_kind(value: Imm, kind: str) -> Imm:
    """`value` as an "f32" or "f64" literal (ints and the other float kind are converted)."""
    if value.kind == kind:
        return value
    if value.kind == "int":
        return Imm(float_bits(float(value.value), kind), kind)
    if value.kind == "f64":
        number = struct.unpack("<d", struct.pack("<Q", value.value))[0]
    else:
        number = struct.unpack("<f", struct.pack("<I", value.value))[0]
    return Imm(float_bits(number, kind), kind)


def constant(tokens: Tokens) -> Imm:
    """Consume a constant expression: a float with an optional sign, or an integer expression."""
    start = tokens.index
    minus = False
    while sign := tokens.accept("-", "+"):
        minus ^= sign == "-"
    value = literal(tokens.peek())
    if value is not None and value.kind != "int":
        tokens.next()
        return negated(value) if minus else value
    tokens.index = start
    return Imm(_ternary(tokens)[0])


def integer(tokens: Tokens, what: str) -> int:
    """Consume a constant expression that must be an integer."""
    value = constant(tokens)
    if value.kind != "int":
        raise tokens.error(f"{what} must be an integer")
    return value.value


def _wrap(value: int, unsigned: bool) -> Value:
    value &= _MASK64
    return (value if unsigned or value < 1 << 63 else value - (1 << 64)), unsigned


def _ternary(tokens: Tokens) -> Value:
    condition = _binary(tokens, 1)
    if not tokens.accept("?"):
        return condition
    yes = _ternary(tokens)
    tokens.expect(":")
    no = _ternary(tokens)
    return yes if condition[0] else no


def _binary(tokens: Tokens, lowest: int) -> Value:
    left = _unary(tokens)
    while (precedence := _PRECEDENCE.get(tokens.peek(), 0)) >= lowest:
        operator = tokens.next()
        left = _apply(tokens, operator, left, _binary(tokens, precedence + 1))
    return left


def _unary(tokens: Tokens) -> Value:
    operator = tokens.accept("-", "+", "~", "!")
    if operator:
        value, unsigned = _unary(tokens)
        if operator == "!":
            return int(not value), False
        return _wrap({"-": -value, "+": value, "~": ~value}[operator], unsigned)
    if tokens.accept("("):
        if cast := tokens.accept(".s64", ".u64"):
            tokens.expect(")")
            return _wrap(_unary(tokens)[0], cast == ".u64")
        inside = _ternary(tokens)
        tokens.expect(")")
        return inside
    token = tokens.peek()
    if token == "WARP_SZ":
        tokens.next()
        return 32, False
    found = literal(token)
    if found is None or found.kind != "int":
        raise tokens.error(f"expected an integer constant and found {tokens.shown()}")
    tokens.next()
    return found.value, token.endswith("U") or found.value >= 1 << 63


def _apply(tokens: Tokens, operator: str, left: Value, right: Value) -> Value:
    a, b = left[0], right[0]
    unsigned = left[1] or right[1]
    if operator in ("/", "%"):
        if b == 0:
            raise tokens.error("division by zero in a constant expression")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return _wrap(quotient if operator == "/" else a - b * quotient, unsigned)
    if operator in ("<<", ">>"):
        return _wrap(a << (b & 63) if operator == "<<" else a >> (b & 63), left[1])
    if operator in ("+", "-", "*", "&", "|", "^"):
        return _wrap({"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[operator], unsigned)
    truth = {
        "||": bool(a or b), "&&": bool(a and b), "==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b,
    }  # fmt: skip
    return int(truth[operator]), False
