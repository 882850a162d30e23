"""What lowering notes down about memory accesses: where they are in the code, how their addresses are made, which ones go together."""

from __future__ import annotations

from dataclasses import dataclass, field

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.ptx.tree import Instruction


@dataclass(frozen=True)
class AccessSite:
    """One memory access in the code, for counters and error messages."""

    index: int
    instruction: Instruction
    space: str
    write: bool
    size: int
    offset: int = 0  # from the address register, for members of a group
    leader: int = -1  # site of the group's first access, -1 outside groups
    narrow: bool = False  # of a leader: the register has 32 bits


@dataclass(frozen=True)
class Place:
    """An address that is a register plus a constant."""

    register: str
    value: Value
    offset: int

    def whole(self, b: IRWriter, narrow: bool = False) -> Value:
        """The address, which wraps at 32 bits when the register has 32; i64, unless a ``narrow`` one may stay as it is."""
        v = self.value if self.value.ty == "i32" else b.resize(self.value, "i64")
        if self.offset:
            v = b.bin("add", v, b.const(v.ty, self.offset))
        return v if narrow else b.resize(v, "i64")


@dataclass(eq=False)
class Group:
    """Accesses of a block through one register (groups.py): space, site of the first, the register of the first active lane (i64)."""

    space: str
    leader: int
    base: Value
    uniform: bool
    last_load: int = -1


@dataclass
class KernelCode:
    """What lowering learns about a kernel besides its IR."""

    sites: list[AccessSite] = field(default_factory=list)
    uses_host: bool = False
    copies: bool = False  # cp.async
