"""Operands for instruction tests: pools of bit patterns by type, special values first."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tests.emu.oracles import softfloat
from tests.emu.oracles.softfloat import FORMATS, Format

COUNT = 1536
SPECIALS = 24
OPERANDS = 4
WIDTH = {
    **{f"{sign}{bits}": bits for sign in "usb" for bits in (16, 32, 64)},
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "e4m3x2": 16, "e5m2x2": 16, "tf32": 32,
}  # fmt: skip


def _integers(bits: int) -> list[int]:
    top = 1 << bits
    half, quarter = top >> 1, bits // 2
    base = [0, 1, 2, 3, top - 1, top - 2, half, half - 1, half + 1, bits - 1, bits, bits + 1, 2 * bits - 1, 255, 128]
    base += [1 << quarter, (1 << quarter) - 1, 1 << quarter - 1, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0x123456789ABCDEF0, 7, 31, 64]
    return [v % top for v in base][:SPECIALS]


def _floats(f: Format) -> list[int]:
    """+-: zero, smallest and largest subnormal, smallest normal, 1, next after 1, 1.5, largest, infinity; NaNs; others."""
    one = f.one
    half_step = one - (1 << f.man_bits)  # 0.5
    positive = [0, 1, (1 << f.man_bits) - 1, 1 << f.man_bits, one, one + 1, one | 1 << f.man_bits - 1, f.max_finite, f.inf, half_step]
    signed = [*positive, *(p | f.sign_bit for p in positive)]
    nans = [f.nan, f.inf | 1 << f.man_bits - 1, f.inf | 1] if not f.finite_only else [f.nan]
    return [*signed, *nans, one + (2 << f.man_bits) + 3][:SPECIALS]


@cache
def specials(kind: str) -> tuple[int, ...]:
    """The special values of a type."""
    if kind.endswith("x2"):
        f = FORMATS[kind.removesuffix("x2")]
        single = _floats(f)
        return tuple(v | single[(7 * i + 3) % len(single)] << f.bits for i, v in enumerate(single))
    if kind in FORMATS:
        f = FORMATS[kind]
        return tuple(v << 13 for v in _floats(f)) if kind == "tf32" else tuple(_floats(f))
    return tuple(_integers(WIDTH[kind]))


@cache
def pool(kind: str) -> NDArray:
    """(OPERANDS, COUNT) bit patterns, as unsigned integers of the type's width."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    special = np.array(specials(kind), np.uint64)
    count = len(special)
    bits = WIDTH[kind]
    random = rng.integers(0, 2**63, (OPERANDS, COUNT), dtype=np.uint64) * np.uint64(2) + rng.integers(
        0, 2, (OPERANDS, COUNT), dtype=np.uint64
    )
    rows = random & np.uint64((1 << bits) - 1)
    rows = np.where(rng.random((OPERANDS, COUNT)) < 0.5, _moderate(kind, rows, rng), rows)
    rows = np.where(rng.random((OPERANDS, COUNT)) < 0.25, rng.choice(special, (OPERANDS, COUNT)), rows)
    pairs = np.arange(count * count)[:COUNT]
    rows[0, : pairs.size] = special[pairs // count]
    rows[1, : pairs.size] = special[pairs % count]
    rows[2, : pairs.size] = rng.choice(special, pairs.size)
    return rows.astype(f"u{bits // 8}")


def _moderate(kind: str, rows: NDArray, rng: np.random.Generator) -> NDArray:
    """Values that meet each other: floats with exponents near 1, integers below 100 in magnitude."""
    if kind.endswith("x2"):
        f = FORMATS[kind.removesuffix("x2")]
        low, high = (_moderate(f.name, rows, rng) for _ in range(2))
        return low | high << np.uint64(f.bits)
    if kind in FORMATS:
        f = FORMATS[kind]
        spread = min(4, (1 << f.exp_bits) // 4)
        offsets = rng.integers(-spread << f.man_bits, spread << f.man_bits, rows.shape)
        signs = rng.integers(0, 2, rows.shape, dtype=np.uint64) * np.uint64(f.sign_bit)
        found = (f.one + offsets).astype(np.uint64) | signs
        return found << np.uint64(13) if kind == "tf32" else found
    small = rng.integers(-100, 100, rows.shape)
    return small.astype(np.uint64) & np.uint64((1 << WIDTH[kind]) - 1)


@cache
def operand(kind: str, index: int) -> tuple[int, ...]:
    """Operand ``index`` of every thread as Python integers; a predicate is bit 0 of the b32 pool."""
    if kind == "pred":
        return tuple(int(v) & 1 for v in pool("b32")[index])
    return tuple(int(v) for v in pool(kind)[index])


def as_float(bits: int, kind: str) -> float:
    """The number a bit pattern stands for."""
    return softfloat.to_float(bits, FORMATS[kind])
