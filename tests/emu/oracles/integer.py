"""Integer, logic and shift instructions on unsigned Python integers (PTX ISA, "Integer Arithmetic", "Logic and Shift")."""

from __future__ import annotations

from collections.abc import Callable

Function = Callable[..., int]


def bits_of(kind: str) -> int:
    """32 for "u32"."""
    return int(kind[1:])


def signed(value: int, bits: int) -> int:
    """Two's complement value of the low ``bits``."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def read(value: int, kind: str) -> int:
    """The number that the bits stand for in type ``kind``."""
    bits = bits_of(kind)
    return signed(value, bits) if kind[0] == "s" else value & (1 << bits) - 1


def wrap(value: int, bits: int) -> int:
    return value & (1 << bits) - 1


def clamp(value: int, kind: str) -> int:
    """Nearest value of the type, as bits."""
    bits = bits_of(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return wrap(min(max(value, low), high), bits)


def arithmetic(function: Callable[..., int], kind: str, result_bits: int = 0) -> Function:
    """Operands read as ``kind``, exact result, wrapped."""
    bits = result_bits or bits_of(kind)
    return lambda *operands: wrap(function(*(read(x, kind) for x in operands)), bits)


def high(kind: str) -> Function:
    """Upper half of the product."""
    bits = bits_of(kind)
    return lambda a, b: wrap(read(a, kind) * read(b, kind) >> bits, bits)


def mad(part: str, kind: str) -> Function:
    """``mad.lo/hi/wide``: the addend of wide is twice as wide."""
    bits = bits_of(kind)
    if part == "wide":
        return lambda a, b, c: wrap(read(a, kind) * read(b, kind) + c, 2 * bits)
    shift = bits if part == "hi" else 0
    return lambda a, b, c: wrap((read(a, kind) * read(b, kind) >> shift) + c, bits)


def mad_hi_sat(a: int, b: int, c: int) -> int:
    return clamp((signed(a, 32) * signed(b, 32) >> 32) + signed(c, 32), "s32")


def product24(part: str, kind: str) -> Callable[[int, int], int]:
    """The 48-bit product of the low 24 bits: its low 32 bits, or its high 32 (bits 16 to 47)."""

    def product(a: int, b: int) -> int:
        x, y = (signed(v, 24) if kind[0] == "s" else v & 0xFFFFFF for v in (a, b))
        return x * y >> (16 if part == "hi" else 0)

    return product


def mul24(part: str, kind: str) -> Function:
    product = product24(part, kind)
    return lambda a, b: wrap(product(a, b), 32)


def mad24(part: str, kind: str, sat: bool = False) -> Function:
    product = product24(part, kind)
    if sat:
        return lambda a, b, c: clamp(signed(product(a, b), 32) + signed(c, 32), "s32")
    return lambda a, b, c: wrap(product(a, b) + c, 32)


def quotient(kind: str, remainder: bool) -> Callable[[int, int], int | None]:
    """Truncating division; open for a zero divisor and for the most negative number over -1."""
    bits = bits_of(kind)

    def divide(a: int, b: int) -> int | None:
        x, y = read(a, kind), read(b, kind)
        if y == 0 or (kind[0] == "s" and x == -(1 << bits - 1) and y == -1):
            return None
        q = abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
        return wrap(x - q * y if remainder else q, bits)

    return divide


def popc(a: int) -> int:
    return a.bit_count()


def clz(bits: int) -> Function:
    return lambda a: bits - a.bit_length()


def brev(bits: int) -> Function:
    return lambda a: int(f"{a:0{bits}b}"[::-1], 2)


def bfind(kind: str, shiftamt: bool = False) -> Function:
    """Position of the highest set bit (of the highest non-sign bit for signed types), or all ones."""
    bits = bits_of(kind)

    def find(a: int) -> int:
        x = read(a, kind)
        magnitude = ~x if x < 0 else x
        if magnitude == 0:
            return 0xFFFFFFFF
        position = magnitude.bit_length() - 1
        return bits - 1 - position if shiftamt else position

    return find


def bfe(kind: str) -> Function:
    """Field of ``c & 255`` bits at ``b & 255``; sign of the field (or of the top bit where it sticks out) fills a signed result."""
    bits = bits_of(kind)
    top = bits - 1

    def extract(a: int, b: int, c: int) -> int:
        position, length = b & 255, c & 255
        sign = a >> min(position + length - 1, top) & 1 if kind[0] == "s" and length else 0
        found = 0
        for i in range(bits):
            bit = a >> position + i & 1 if i < length and position + i <= top else sign
            found |= bit << i
        return found

    return extract


def bfi(bits: int) -> Function:
    """``a``'s low bits inserted into ``b``."""

    def insert(a: int, b: int, c: int, d: int) -> int:
        position, length = c & 255, d & 255
        found = b
        for i in range(length):
            if position + i >= bits:
                break
            found = found & ~(1 << position + i) | (a >> i & 1) << position + i
        return found

    return insert


def shift_left(bits: int) -> Function:
    return lambda a, b: wrap(a << b, bits) if b < bits else 0


def shift_right(kind: str) -> Function:
    bits = bits_of(kind)
    return lambda a, b: wrap(read(a, kind) >> min(b, bits), bits)


def funnel(direction: str, mode: str) -> Function:
    """``shf``: shift of the 64 bits b:a; left takes the upper, right the lower half."""

    def shift(a: int, b: int, c: int) -> int:
        n = min(c, 32) if mode == "clamp" else c & 31
        both = b << 32 | a
        return wrap(both << n >> 32, 32) if direction == "l" else wrap(both >> n, 32)

    return shift


def lop3(table: int) -> Function:
    def look_up(a: int, b: int, c: int) -> int:
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))

    return look_up


_PRMT = {
    "f4e": ((3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)),
    "b4e": ((5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)),
    "rc16": ((1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)),
}


def prmt(mode: str | None) -> Function:
    """Bytes of b:a picked by nibbles of c (bit 3 of a nibble repeats the byte's sign), or by the mode's table (high byte first)."""

    def permute(a: int, b: int, c: int) -> int:
        both = (b << 32 | a).to_bytes(8, "little")
        if mode:
            return int.from_bytes(bytes(both[i] for i in reversed(_PRMT[mode][c & 3])), "little")
        picked = bytearray()
        for i in range(4):
            nibble = c >> 4 * i & 15
            byte = both[nibble & 7]
            picked.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
        return int.from_bytes(picked, "little")

    return permute


def dot(kind_a: str, kind_b: str, second: str | None = None) -> Function:
    """``dp4a`` (four bytes by four bytes) and ``dp2a`` (two halves by the low or high two bytes)."""

    def lanes(value: int, size: int, kind: str) -> list[int]:
        parts = [value >> size * i & (1 << size) - 1 for i in range(32 // size)]
        return [signed(p, size) if kind[0] == "s" else p for p in parts]

    def add_products(a: int, b: int, c: int) -> int:
        right = lanes(b, 8, kind_b)
        if second is not None:
            right = right[2:] if second == "hi" else right[:2]
        left = lanes(a, 8 if second is None else 16, kind_a)
        return wrap(sum(x * y for x, y in zip(left, right, strict=True)) + c, 32)

    return add_products


def packed(function: Callable[[int, int], int], kind: str) -> Function:
    """A 16x2 operation from one on 16-bit numbers of ``kind``."""

    def both(a: int, b: int) -> int:
        return sum(wrap(function(read(a >> s, kind), read(b >> s, kind)), 16) << s for s in (0, 16))

    return both


def bmsk(mode: str) -> Function:
    """``b`` ones from bit ``a``: wrap takes both modulo 32, clamp cuts both at 32."""

    def mask(a: int, b: int) -> int:
        position, length = (a & 31, b & 31) if mode == "wrap" else (min(a, 32), min(b, 32))
        return wrap((1 << length) - 1 << position, 32)

    return mask


def szext(mode: str, kind: str) -> Function:
    """Sign or zero extension of the low ``b`` bits."""

    def extend(a: int, b: int) -> int:
        n = b & 31 if mode == "wrap" else min(b, 32)
        if n == 0:
            return 0
        return wrap(signed(a, n), 32) if kind[0] == "s" else a & (1 << n) - 1

    return extend


def fns(mask: int, base: int, offset: int) -> int | None:
    """Position of the n-th set bit counted from ``base`` upwards (n > 0), downwards (n < 0), or at base (n = 0)."""
    if base > 31:
        return None
    n = signed(offset, 32)
    if n == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = range(base, 32) if n > 0 else range(base, -1, -1)
    found = [i for i in places if mask >> i & 1]
    return found[abs(n) - 1] if abs(n) <= len(found) else 0xFFFFFFFF
