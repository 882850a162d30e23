"""Which registers an instruction writes and reads, from its shape alone."""

from __future__ import annotations

from collections.abc import Iterator

from rawflash.emu.ptx.tree import Address, Instruction, NotPred, Operand, PredicatePair, Reg, Tuple, Vector

# Opcodes without a destination register. Everything else writes its first operand.
NO_DESTINATION = frozenset(
    "st red bar barrier bra brx ret exit trap brkpt membar fence prefetch prefetchu discard applypriority pmevent nanosleep call stmatrix "
    "stackrestore griddepcontrol setmaxnreg createpolicy_none".split()
)
_BARRIER_WITH_RESULT = "red"
_MBARRIER_WITH_RESULT = ("arrive", "arrive_drop", "test_wait", "try_wait", "pending_count")


def has_destination(i: Instruction) -> bool:
    """Whether the first operand is written."""
    if i.opcode in ("bar", "barrier"):
        return _BARRIER_WITH_RESULT in i.mods
    if i.opcode == "mbarrier":
        return i.mods[0] in _MBARRIER_WITH_RESULT
    if i.opcode == "cp" or (i.opcode == "wmma" and i.mods[0] == "store"):
        return False
    return i.opcode not in NO_DESTINATION


def registers(operand: Operand | None) -> Iterator[str]:
    """Names of all registers inside an operand."""
    if isinstance(operand, Reg):
        yield operand.name
    elif isinstance(operand, NotPred):
        yield operand.reg.name
    elif isinstance(operand, Vector | Tuple):
        for item in operand.items:
            yield from registers(item)
    elif isinstance(operand, PredicatePair):
        yield from registers(operand.first)
        yield from registers(operand.second)
    elif isinstance(operand, Address):
        yield from registers(operand.base)


def defs(i: Instruction) -> list[str]:
    """Registers written."""
    return list(registers(i.operands[0])) if i.operands and has_destination(i) else []


def uses(i: Instruction) -> list[str]:
    """Registers read, the guard included."""
    sources = i.operands[1:] if has_destination(i) else i.operands
    found = [name for operand in sources for name in registers(operand)]
    if i.guard is not None:
        found.append(i.guard)
    if i.opcode in ("addc", "subc", "madc") or "cc" in i.mods:
        found.append("%cc")
    return found
