"""Control that is not a way out of a block (PTX ISA 9.7.12, 9.7.19): nanosleep, breakpoints, and the calls that need the host."""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.hostcall import host_call
from rawflash.emu.ptx.tree import Instruction


@op("nanosleep.u32", "pmevent", "pmevent.mask", "griddepcontrol.launch_dependents", "griddepcontrol.wait", "brkpt")
def nothing(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Time and debuggers do not exist here: no effect on any value."""


@op("bra", "bra.uni", "brx.idx", "brx.idx.uni", "ret", "ret.uni", "exit", "trap")
def way_out(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    raise AssertionError("ways out of a block are lowered in lower/kernel.py")


@op("rf.printf", "rf.assert", varying=True)
def host(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    host_call(b, i)


@op("rf.malloc", "rf.free", varying=True)
def heap(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    raise b.unsupported("the device heap (malloc/free in a kernel) is not emulated; allocate on the host")


@op("rf.badcall")
def bad_call(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """A call through a pointer that matches no function."""
    b.fail_if(b.cmp("icmp ne", b.lane_mask(), b.i32(0)), "call")
