"""Floating-point operations, from the executed instructions.

A kind is the type that is computed with: "f16", "bf16", "f32", "f64" for scalar code, "mma.f16", "mma.tf32", "mma.e4m3", ... (the type of
A) for the tensor cores, and "special" for the functions that the special-function unit starts. The conventions are Nsight Compute's:

    add, sub, mul            1 per thread, 2 when packed (f16x2, bf16x2, f32x2)
    fma, mad                 twice that
    mma, wmma.mma            2 m n k per warp
    div rcp sqrt rsqrt ex2 lg2 sin cos tanh     1 each, kind "special" (Nsight Compute leaves them out)

Comparisons, min, max, abs, neg, conversions, atomics and integer operations, the tensor cores' included, are not floating-point
operations. An instruction that a predicate switches off in some lanes counts for all lanes of its basic block, as in the opcodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from rawflash.emu.fragments import parse_shape

OPERATIONS = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}
SPECIAL = frozenset("div rcp sqrt rsqrt ex2 lg2 sin cos tanh".split())
_SCALAR = re.compile(r"(b?f(?:16|32|64))(x2)?")
_SHAPE = re.compile(r"m\d+n\d+k\d+")
_ELEMENT = re.compile(r"b?f\d+|tf32|e\dm\d|[su]\d+|b1")
_FLOATING = re.compile(r"b?f\d+|tf32|e\dm\d")


def flops(opcodes: Mapping[str, int], warp_opcodes: Mapping[str, int]) -> dict[str, int]:
    """Operations by kind, of thread-instructions (scalar code) and warp-instructions (matrix instructions); zeros are left out."""
    found: Counter[str] = Counter()
    for spelling, n in opcodes.items():
        kind, each = scalar_flops(spelling)
        found[kind] += n * each
    for spelling, n in warp_opcodes.items():
        kind, each = matrix_flops(spelling)
        found[kind] += n * each
    return {kind: n for kind, n in sorted(found.items()) if n}


def scalar_flops(spelling: str) -> tuple[str, int]:
    """(kind, operations per thread) of ``fma.rn.f16x2``: ("f16", 4). Nothing counts as ("", 0)."""
    opcode, *mods = spelling.split(".")
    matched = next((m for mod in mods if (m := _SCALAR.fullmatch(mod))), None)
    if matched is None or opcode not in OPERATIONS.keys() | SPECIAL:
        return "", 0
    wide = 2 if matched[2] else 1
    return ("special", wide) if opcode in SPECIAL else (matched[1], wide * OPERATIONS[opcode])


def matrix_flops(spelling: str) -> tuple[str, int]:
    """(kind, operations per warp) of ``mma...m16n8k16...f32.f16.f16.f32``: ("mma.f16", 4096)."""
    opcode, *mods = spelling.split(".")
    if opcode != "mma" and mods[:1] != ["mma"]:
        return "", 0
    m, n, k = parse_shape(next(mod for mod in mods if _SHAPE.fullmatch(mod)))
    types = [mod for mod in mods if _ELEMENT.fullmatch(mod)]
    a = types[1] if len(types) > 2 else "f16"  # wmma.mma of f16 names D and C only
    return (f"mma.{a}", 2 * m * n * k) if _FLOATING.fullmatch(a) else ("", 0)
