"""Statements -> basic blocks. A barrier ends a block, because the warp leaves the machine code there and comes back later."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rawflash.emu.errors import PtxSyntaxError, UnsupportedInstruction
from rawflash.emu.ptx.tree import BranchTargets, Instruction, Label, Reg, Statement, Symbol, Vector


@dataclass
class Block:
    """A basic block: straight instructions, then one way out.

    ``kind``: jump (one successor), branch (taken, fall-through; ``guard``), barrier (``instruction`` suspends the warp, then
    one successor), yield (the warp may be suspended here, then one successor; see spins.py), brx (``instruction`` selects a
    successor), exit, trap. Of a yield block ``poll`` is the instruction that its loop watches memory with, and ``stores`` says
    whether the loop stores as well.
    """

    index: int
    instructions: list[Instruction] = field(default_factory=list)
    kind: str = "exit"
    successors: list[int] = field(default_factory=list)
    guard: str | None = None
    negated: bool = False
    instruction: Instruction | None = None
    poll: Instruction | None = None
    stores: bool = False

    @property
    def trivial_exit(self) -> bool:
        return self.kind == "exit" and not self.instructions


_ENDS = {"ret", "exit"}


def is_suspending(i: Instruction) -> bool:
    """Whether the warp must leave the machine code at this instruction."""
    return i.opcode in ("bar", "barrier") and "warp" not in i.mods and "arrive" not in i.mods


def build_blocks(statements: list[Statement], function: str) -> list[Block]:
    """Basic blocks in layout order; block 0 is the entry. Labels are resolved to block indices."""
    cutter = _Cutter(statements, function)
    for s in statements:
        if isinstance(s, Label):
            cutter.place_label(s.name)
        elif isinstance(s, Instruction):
            cutter.add(s)
    cutter.resolve()
    return _reachable(cutter.blocks)


class _Cutter:
    """Cuts statements into blocks. The last block is under way; ``closed`` says that it has its way out already."""

    def __init__(self, statements: list[Statement], function: str):
        self.function = function
        self.tables = {s.name: s.targets for s in statements if isinstance(s, BranchTargets)}
        self.blocks: list[Block] = [Block(0)]
        self.labels: dict[str, int] = {}
        self.jumps: list[tuple[Block, list[str], bool]] = []  # block, label names, falls through as well
        self.closed = False

    def open(self) -> Block:
        self.blocks.append(Block(len(self.blocks)))
        self.closed = False
        return self.blocks[-1]

    def place_label(self, name: str) -> None:
        """A label begins a block, unless one without instructions and label has just been opened; the entry stays by itself."""
        old = self.blocks[-1]
        if old.instructions or self.closed or len(self.blocks) == 1 or old.index in self.labels.values():
            falls = not self.closed
            new = self.open()
            if falls:
                old.kind, old.successors = "jump", [new.index]
        self.labels[name] = self.blocks[-1].index

    def add(self, s: Instruction) -> None:
        if self.closed:
            self.open()
        if s.opcode == "bra":
            self._branch(s)
        elif s.opcode not in _ENDS and s.opcode not in ("trap", "brx") and not is_suspending(s):
            self.blocks[-1].instructions.append(s)
        elif s.guard is None:
            self._way_out(s)
        else:
            self._guarded_way_out(s)

    def _branch(self, s: Instruction) -> None:
        current, target = self.blocks[-1], s.operands[0]
        if not isinstance(target, Symbol | Reg):
            raise PtxSyntaxError(f"'bra' needs a label in {self.function}", line=s.line)
        current.instruction = s
        self.jumps.append((current, [target.name], s.guard is not None))
        if s.guard is None:
            current.kind = "jump"
            self.closed = True
        else:
            current.kind, current.guard, current.negated = "branch", s.guard, s.guard_negated
            self.open()

    def _way_out(self, s: Instruction) -> None:
        current = self.blocks[-1]
        if is_suspending(s):
            current.kind, current.instruction = "barrier", s
            current.successors = [self.open().index]
            return
        if s.opcode in _ENDS:
            current.kind = "exit"
        else:
            current.kind, current.instruction = s.opcode, s
            if s.opcode == "brx":
                self.jumps.append((current, _brx_targets(s, self.tables, self.function), False))
        self.closed = True

    def _guarded_way_out(self, s: Instruction) -> None:
        """It becomes a branch around it."""
        current = self.blocks[-1]
        current.kind, current.guard, current.negated = "branch", s.guard, s.guard_negated
        current.instruction = s
        inner = self.open()
        after_label = f"$guard{inner.index}"
        current.successors = [inner.index]
        self.jumps.append((current, [after_label], False))
        self._way_out(replace(s, guard=None, guard_negated=False))
        if self.closed:
            self.open()
        self.labels[after_label] = self.blocks[-1].index

    def resolve(self) -> None:
        """Labels to block indices, as further successors of the blocks that jump."""
        for block, names, falls in self.jumps:
            for name in names:
                if name not in self.labels:
                    raise PtxSyntaxError(
                        f"branch to an unknown label '{name}' in {self.function}", line=block.instruction.line if block.instruction else 0
                    )
                block.successors.append(self.labels[name])
            if falls:
                block.successors.append(block.index + 1)


def _brx_targets(s: Instruction, tables: dict[str, tuple[str, ...]], function: str) -> list[str]:
    last = s.operands[-1]
    if isinstance(last, Vector):
        return [item.name for item in last.items if isinstance(item, Symbol)]
    if isinstance(last, Symbol) and last.name in tables:
        return list(tables[last.name])
    raise UnsupportedInstruction(s.spelling, ptx_line=s.line, loc=s.loc, hint=f"brx.idx in {function} needs a .branchtargets list")


def _reachable(blocks: list[Block]) -> list[Block]:
    """Drop blocks that nothing reaches, and renumber."""
    seen, work = {0}, [0]
    while work:
        for successor in blocks[work.pop()].successors:
            if successor not in seen:
                seen.add(successor)
                work.append(successor)
    order = [b for b in blocks if b.index in seen]
    number = {b.index: n for n, b in enumerate(order)}
    for b in order:
        b.successors = [number[s] for s in b.successors]
        b.index = number[b.index]
    return order
