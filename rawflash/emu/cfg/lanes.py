"""What can be known of a value from the way threads are numbered.

When ``ntid.x`` is a multiple of 32 (or the CTA is one-dimensional), ``tid.x = 32 w + lane`` in every warp. So ``tid.x >> 5`` and
``tid.x & ~31`` are the same for all lanes, a comparison of ``tid.x`` with a multiple of 32 comes out alike in all of them, and the
same holds for what is made from ``tid.x`` by adding multiples of 32. A ``shfl.idx`` from one lane gives all lanes that lane's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.defuse import defs, uses
from rawflash.emu.ptx.tree import Imm, Instruction, Operand, PredicatePair, Reg, Vector

_ORDERS = {"lt": 0, "ge": 0, "lo": 0, "hs": 0, "gt": 31, "le": 31, "hi": 31, "ls": 31}  # bound modulo 32 that no warp straddles


@dataclass
class LaneKnowledge:
    """``numbered``: registers that hold 32 w + lane, w the same in all lanes; ``multiples``: those that hold multiples of 32.

    Both shrink as the uniformity analysis finds more varying registers and divergent blocks; ``refine`` recomputes them.
    """

    rows: bool
    constants: dict[str, Imm]
    nearby: dict[tuple[int, str], Imm] = field(default_factory=dict)  # (id of an instruction, register) -> set earlier in its block
    numbered: set[str] = field(default_factory=set)
    multiples: set[str] = field(default_factory=set)
    varying: set[str] = field(default_factory=set)
    _definitions: dict[str, list[tuple[Instruction, int]]] = field(default_factory=dict)

    def constant(self, operand: Operand, at: Instruction | None = None) -> int | None:
        """The integer that an operand holds, if it is known; ``at``: the instruction that reads it."""
        if isinstance(operand, Imm) and operand.kind == "int":
            return operand.value
        if isinstance(operand, Reg):
            found = self.constants.get(operand.name)
            if found is None and at is not None:
                found = self.nearby.get((id(at), operand.name))
            return found.value if found is not None else None
        return None

    def is_numbered(self, operand: Operand) -> bool:
        return isinstance(operand, Reg) and (operand.name in self.numbered or (self.rows and operand.name == "%tid.x"))

    def is_multiple(self, operand: Operand, remainder: int = 0) -> bool:
        """Congruent to ``remainder`` modulo 32 (0 for registers)."""
        value = self.constant(operand)
        if value is not None:
            return value % 32 == remainder
        return remainder == 0 and isinstance(operand, Reg) and operand.name in self.multiples

    def is_step(self, operand: Operand) -> bool:
        """A multiple of 32 that is the same for all lanes."""
        return self.is_multiple(operand) and not (isinstance(operand, Reg) and operand.name in self.varying)

    def same_for_all_lanes(self, i: Instruction) -> bool:
        """Whether the result is uniform although an operand varies with the lane."""
        if i.guard is not None or len(i.operands) < 3:
            return False
        o = i.operands
        if i.opcode == "shr" and _is_32_bit(i) and self.is_numbered(o[1]):
            amount = self.constant(o[2])
            return amount is not None and amount >= 5
        if i.opcode == "and" and "pred" not in i.mods:
            pairs = ((o[1], o[2]), (o[2], o[1]))
            return any(self.is_numbered(v) and (known := self.constant(mask)) is not None and known & 31 == 0 for v, mask in pairs)
        if i.opcode == "setp" and len(i.mods) == 2 and i.mods[0] in _ORDERS and i.mods[1] in ("s32", "u32"):
            bound = _ORDERS[i.mods[0]]
            return self.is_numbered(o[1]) and self.is_multiple(o[2], bound) and not (isinstance(o[2], Reg) and o[2].name in self.varying)
        return self.is_broadcast(i)

    def is_broadcast(self, i: Instruction) -> bool:
        """shfl.idx over the whole warp from a lane that is known now."""
        if i.opcode != "shfl" or "idx" not in i.mods or i.guard is not None:
            return False
        lane, clamp = self.constant(i.operands[2], i), self.constant(i.operands[3], i)
        return lane is not None and clamp is not None and clamp & 0x1F1F == 31

    def refine(self, varying: set[str], divergent: set[int], local: set[str]) -> None:
        """Drop what no longer holds. A register written where lanes are split may have another w in every lane."""
        self.varying = varying
        changed = True
        while changed:
            changed = False
            for known, rule in ((self.multiples, _is_multiple), (self.numbered, _is_numbered)):
                for name in list(known):
                    definitions = self._definitions[name]
                    split = known is self.numbered and name not in local and any(block in divergent for _, block in definitions)
                    if split or not all(rule(self, i) for i, _ in definitions):
                        known.remove(name)
                        changed = True


def lane_knowledge(blocks: list[Block], rows: bool, constants: dict[str, Imm]) -> LaneKnowledge:
    """Start from the assumption that every 32-bit result is both numbered and a multiple; ``refine`` cuts it down."""
    known = LaneKnowledge(rows, constants, _nearby_constants(blocks))
    unfit: set[str] = set()
    for b in blocks:
        body = [*b.instructions, b.instruction] if b.instruction is not None else b.instructions
        for i in body:
            for name in defs(i):
                known._definitions.setdefault(name, []).append((i, b.index))
                if i.guard is not None or not _is_32_bit(i) or isinstance(i.operands[0], Vector | PredicatePair):
                    unfit.add(name)
    candidates = set(known._definitions) - unfit
    known.numbered, known.multiples = set(candidates) if rows else set(), set(candidates)
    known.refine(set(), set(), set())
    return known


def _nearby_constants(blocks: list[Block]) -> dict[tuple[int, str], Imm]:
    """Registers that hold a literal where an instruction reads them, because the same block moved it there."""
    found: dict[tuple[int, str], Imm] = {}
    for b in blocks:
        held: dict[str, Imm] = {}
        for i in [*b.instructions, b.instruction] if b.instruction is not None else b.instructions:
            for name in uses(i):
                if name in held:
                    found[id(i), name] = held[name]
            for name in defs(i):
                held.pop(name, None)
            source = i.operands[1] if len(i.operands) > 1 else None
            if i.opcode == "mov" and i.guard is None and isinstance(source, Imm) and isinstance(i.operands[0], Reg):
                held[i.operands[0].name] = source
    return found


def _is_32_bit(i: Instruction) -> bool:
    return i.mods[-1:] in (("u32",), ("s32",), ("b32",))


def _is_multiple(k: LaneKnowledge, i: Instruction) -> bool:
    o = i.operands
    if len(o) < 2:
        return False
    if i.opcode == "mov":
        return k.is_multiple(o[1])
    if len(o) < 3:
        return False
    if i.opcode == "shl":
        amount = k.constant(o[2])
        return (amount is not None and amount >= 5) or k.is_multiple(o[1])
    if i.opcode == "mul" and "lo" in i.mods:
        return k.is_multiple(o[1]) or k.is_multiple(o[2])
    if i.opcode in ("add", "sub", "or", "xor") and len(i.mods) == 1:
        return k.is_multiple(o[1]) and k.is_multiple(o[2])
    if i.opcode == "and":
        return k.is_multiple(o[1]) or k.is_multiple(o[2])
    if i.opcode == "mad" and i.mods[0] == "lo" and "cc" not in i.mods:
        return (k.is_multiple(o[1]) or k.is_multiple(o[2])) and k.is_multiple(o[3])
    return False


def _is_numbered(k: LaneKnowledge, i: Instruction) -> bool:
    o = i.operands
    if len(o) < 2:
        return False
    if i.opcode == "mov":
        return k.is_numbered(o[1])
    if len(o) < 3:
        return False
    if i.opcode in ("add", "or") and len(i.mods) == 1:
        return (k.is_numbered(o[1]) and k.is_step(o[2])) or (k.is_step(o[1]) and k.is_numbered(o[2]))
    if i.opcode == "mad" and i.mods[0] == "lo" and "cc" not in i.mods:
        factors = o[1:3]
        uniform = not any(isinstance(f, Reg) and f.name in k.varying for f in factors)
        return uniform and any(k.is_multiple(f) for f in factors) and k.is_numbered(o[3])
    return False
