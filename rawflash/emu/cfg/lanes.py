"""What can be known of a value from the way threads are numbered.

When ``ntid.x`` is a multiple of 32 (or the CTA is one-dimensional), ``tid.x = 32 w + lane`` in every warp. So ``tid.x >> 5`` and
``tid.x & ~31`` are the same for all lanes, and so is what is derived from ``tid.x`` plus a multiple of 32. A ``shfl.idx`` from one
lane gives all lanes that lane's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.defuse import defs, uses
from rawflash.emu.ptx.tree import Imm, Instruction, Operand, PredicatePair, Reg, Vector


@dataclass
class LaneKnowledge:
    """``numbered``: registers that hold 32 w + lane for some w; ``same``: registers derived from nothing that varies between
    lanes; ``multiples``: those of them that hold a multiple of 32."""

    rows: bool
    constants: dict[str, Imm]
    numbered: set[str] = field(default_factory=set)
    multiples: set[str] = field(default_factory=set)
    same: set[str] = field(default_factory=set)

    def constant(self, operand: Operand) -> int | None:
        if isinstance(operand, Imm) and operand.kind == "int":
            return operand.value
        if isinstance(operand, Reg) and operand.name in self.constants:
            return self.constants[operand.name].value
        return None

    def is_numbered(self, operand: Operand) -> bool:
        return isinstance(operand, Reg) and (operand.name in self.numbered or (self.rows and operand.name == "%tid.x"))

    def is_multiple(self, operand: Operand) -> bool:
        value = self.constant(operand)
        if value is not None:
            return value % 32 == 0
        return isinstance(operand, Reg) and operand.name in self.multiples

    def same_for_all_lanes(self, i: Instruction) -> bool:
        """Whether the result is uniform although an operand varies with the lane."""
        if i.guard is not None or len(i.operands) < 3:
            return False
        if i.opcode == "shr" and self.is_numbered(i.operands[1]):
            amount = self.constant(i.operands[2])
            return amount is not None and amount >= 5
        if i.opcode == "and" and "pred" not in i.mods:
            for value, mask in (i.operands[1:3], i.operands[2:0:-1]):
                known = self.constant(mask)
                if self.is_numbered(value) and known is not None and known & 31 == 0:
                    return True
        return self.is_broadcast(i)

    def is_broadcast(self, i: Instruction) -> bool:
        """shfl.idx over the whole warp from a lane that is known now."""
        if i.opcode != "shfl" or "idx" not in i.mods or i.guard is not None:
            return False
        lane, clamp = self.constant(i.operands[2]), self.constant(i.operands[3])
        return lane is not None and clamp is not None and clamp & 0x1F1F == 31


def lane_knowledge(blocks: list[Block], rows: bool, constants: dict[str, Imm]) -> LaneKnowledge:
    """Follow tid.x and multiples of 32 through registers with one definition. ``rows``: tid.x = 32 w + lane holds."""
    known = LaneKnowledge(rows, constants)
    definitions: dict[str, list[Instruction]] = {}
    for b in blocks:
        for i in b.instructions:
            for name in defs(i):
                definitions.setdefault(name, []).append(i)
        if b.instruction is not None:
            for name in defs(b.instruction):
                definitions.setdefault(name, []).append(b.instruction)
    single = {name: found[0] for name, found in definitions.items() if len(found) == 1 and found[0].guard is None}
    changed = True
    while changed:
        changed = False
        for name, i in single.items():
            if isinstance(i.operands[0], Vector | PredicatePair):
                continue
            if name not in known.same and _is_same(known, i):
                known.same.add(name)
                changed = True
            if name not in known.multiples and name in known.same and _is_multiple(known, i):
                known.multiples.add(name)
                changed = True
            if name not in known.numbered and _is_numbered(known, i):
                known.numbered.add(name)
                changed = True
    return known


_PLAIN = frozenset("mov add sub mul mad shl shr and or xor not neg min max cvt ld".split())
_VARYING = ("%tid", "%laneid", "%lanemask", "%clock", "%globaltimer")


def _is_same(k: LaneKnowledge, i: Instruction) -> bool:
    """Computed from constants, parameters and CTA-wide registers alone, or by dropping the lane from tid.x."""
    if k.same_for_all_lanes(i):
        return i.opcode != "shfl"
    if i.opcode not in _PLAIN or (i.opcode == "ld" and "param" not in i.mods):
        return False
    read = uses(i)
    if i.opcode == "ld":
        return not read
    return all(name in k.same or (name.startswith("%") and "." in name and not name.startswith(_VARYING)) for name in read)


def _is_32_bit(i: Instruction) -> bool:
    return i.mods[-1:] in (("u32",), ("s32",), ("b32",))


def _is_multiple(k: LaneKnowledge, i: Instruction) -> bool:
    if not _is_32_bit(i) or len(i.operands) < 2:
        return False
    o = i.operands
    if i.opcode == "mov":
        return k.is_multiple(o[1])
    if i.opcode == "shl":
        amount = k.constant(o[2])
        return amount is not None and amount >= 5
    if i.opcode == "mul" and "lo" in i.mods:
        return k.is_multiple(o[1]) or k.is_multiple(o[2])
    if i.opcode in ("add", "sub", "or", "xor"):
        return k.is_multiple(o[1]) and k.is_multiple(o[2])
    if i.opcode == "and":
        return k.is_multiple(o[1]) or k.is_multiple(o[2])
    if i.opcode == "mad" and "lo" in i.mods:
        return (k.is_multiple(o[1]) or k.is_multiple(o[2])) and k.is_multiple(o[3])
    return False


def _is_numbered(k: LaneKnowledge, i: Instruction) -> bool:
    if not _is_32_bit(i) or len(i.operands) < 2:
        return False
    o = i.operands
    if i.opcode == "mov":
        return k.is_numbered(o[1])
    if i.opcode in ("add", "or"):
        return (k.is_numbered(o[1]) and k.is_multiple(o[2])) or (k.is_multiple(o[1]) and k.is_numbered(o[2]))
    if i.opcode == "mad" and "lo" in i.mods:
        return (k.is_multiple(o[1]) or k.is_multiple(o[2])) and k.is_numbered(o[3])
    return False
