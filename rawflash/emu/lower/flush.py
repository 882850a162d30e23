"""Subnormals. PTX says flush-to-zero per instruction; x86 has one switch per thread.

When every fp32 instruction of a kernel that could tell the difference says ``.ftz`` and nothing computes in fp64 or bf16 (whose
subnormals are fp32's), the switch is thrown for the whole kernel and costs nothing. Otherwise ``.ftz`` instructions flush explicitly.
"""

from __future__ import annotations

import platform

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.ptx.tree import Instruction

_FP32_ARITHMETIC = frozenset("add sub mul fma mad div rcp sqrt rsqrt ex2 lg2 sin cos tanh min max neg abs setp set cvt slct".split())


def _is_fp32(i: Instruction) -> bool:
    return i.opcode in _FP32_ARITHMETIC and ("f32" in i.mods or "f32x2" in i.mods)


def needs_explicit_flush(blocks: list[Block]) -> tuple[bool, bool]:
    """(flush explicitly at each .ftz instruction, throw the processor's switch)."""
    fp32 = [i for b in blocks for i in b.instructions if _is_fp32(i)]
    wide = any("f64" in i.mods for b in blocks for i in b.instructions if i.opcode not in ("ld", "st", "mov"))
    bf16 = any(i.opcode in _FP32_ARITHMETIC - {"cvt"} and ("bf16" in i.mods or "bf16x2" in i.mods) for b in blocks for i in b.instructions)
    # atomics that keep subnormals: fp32 in shared memory, halves anywhere
    atomics = [i for b in blocks for i in b.instructions if i.opcode in ("atom", "red")]
    strict = any(("f32" in i.mods and "global" not in i.mods) or "noftz" in i.mods for i in atomics)
    some = any("ftz" in i.mods for i in fp32)
    # an fp32 cvt to or from an integer has no subnormal to flush; one to a half reads fp32 without .ftz by definition
    plain = [i for i in fp32 if "ftz" not in i.mods and not (i.opcode == "cvt" and _cvt_is_indifferent(i))]
    if not some:
        return False, False
    on_x86 = platform.machine().lower() in ("x86_64", "amd64")
    if on_x86 and not plain and not wide and not bf16 and not strict:
        return False, True
    return True, False


def _cvt_is_indifferent(i: Instruction) -> bool:
    types = [m for m in i.mods if m[0] in "sufb" and m[1:2].isdigit()]
    return any(t[0] in "su" for t in types) or "f16" in types or "f16x2" in i.mods or "bf16" in i.mods or "bf16x2" in i.mods
