"""An error record written by generated code -> the typed exception with names and places."""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu import errors
from rawflash.emu.lower import mbarriers
from rawflash.emu.lower.kernel import Lowered
from rawflash.emu.lower.layout import CONST_WINDOW, ERRORS, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SHIFT, Worker
from rawflash.emu.lower.races import CTA_SHIFT, LANE_SHIFT, READ_AFTER_WRITE, SITE_BITS, WARP_SHIFT, WRITE_AFTER_READ, WRITE_AFTER_WRITE
from rawflash.emu.machine.arena import Arena
from rawflash.emu.machine.arguments import Bound
from rawflash.emu.machine.records import Bytes, Geometry, get

KINDS: dict[str, type[errors.KernelFault]] = {
    "out_of_bounds": errors.OutOfBounds,
    "misaligned": errors.Misaligned,
    "read_only": errors.ReadOnlyWrite,
    "uninitialized": errors.UninitializedRead,
    "hung": errors.Deadlock,
    "deadlock": errors.Deadlock,
    "divergent_barrier": errors.DivergentBarrier,
    "bad_mask": errors.BadMask,
    "bad_shuffle": errors.BadMask,
    "trap": errors.Trap,
    "assert": errors.DeviceAssert,
    "race": errors.RaceHazard,
    "window": errors.OutOfBounds,
    "host": errors.Trap,
    "call": errors.Trap,
    "bad_barrier": errors.SyncError,
    "bad_mbarrier": errors.SyncError,
    "bad_copy": errors.MemoryFault,
    "spin": errors.Deadlock,
}


def fault(lowered: Lowered, record: Bytes, g: Geometry, text: list[str], arena: Arena, bound: Bound, note: str) -> errors.KernelFault:
    """The exception for a worker that failed. ``text``: lines of the PTX; ``note``: what the host call left behind."""
    kind = ERRORS.get(get(record, Worker.ERR_KIND, "i"), "trap")
    site_index = get(record, Worker.ERR_SITE, "i")
    lane = get(record, Worker.ERR_LANE, "i") & 31
    warp = get(record, Worker.ERR_WARP, "i")
    address = get(record, Worker.ERR_ADDR, "Q")
    aux, aux2 = get(record, Worker.ERR_AUX, "Q"), get(record, Worker.ERR_AUX2, "q")
    ctaid = tuple(get(record, Worker.CTAID + 4 * k, "i") for k in range(3))
    site = lowered.sites[site_index] if 0 <= site_index < len(lowered.sites) else None
    thread = min(32 * warp + lane, g.threads - 1)
    tid = (thread % g.cta[0], thread // g.cta[0] % g.cta[1], thread // (g.cta[0] * g.cta[1]))
    scheduler = site is None
    instruction = site.instruction if site is not None else None
    is_memory = kind in ("out_of_bounds", "misaligned", "read_only", "uninitialized", "race")
    cls = KINDS[kind]
    space = site.space if site is not None and is_memory else None
    detail = _detail(kind, aux, aux2, lowered, g, note, address if is_memory else 0, site.write if site else False, arena, bound, space)
    if kind == "out_of_bounds" and space == "global":
        if address < 4096:
            cls = errors.NullPointer
        elif address >> WINDOW_SHIFT == CONST_WINDOW >> WINDOW_SHIFT and site is not None and site.write:
            cls = errors.ReadOnlyWrite
    loc = instruction.loc if instruction is not None else None
    line = instruction.line if instruction is not None else 0
    return cls(
        detail,
        kernel=lowered.name,
        ptx_line=line,
        ptx_text=text[line - 1] if 0 < line <= len(text) else "",
        file=loc.file if loc is not None else None,
        cu_line=loc.line if loc is not None else None,
        ctaid=ctaid,  # type: ignore[arg-type]
        tid=None if scheduler else tid,
        space=space,
        address=address if is_memory else None,
        size=site.size if site is not None and is_memory else None,
    )


def _detail(
    kind: str,
    aux: int,
    aux2: int,
    lowered: Lowered,
    g: Geometry,
    note: str,
    address: int,
    write: bool,
    arena: Arena,
    bound: Bound,
    space: str | None,
) -> str:
    if kind in ("assert", "host"):
        return note
    if kind in SENTENCES:
        return SENTENCES[kind]
    if kind in ABOUT_A_NUMBER:
        return ABOUT_A_NUMBER[kind](aux)
    if kind == "spin":
        return _spinning(aux, aux2)
    if kind == "race":
        return race_detail(aux, aux2, lowered, g, space)
    if kind == "out_of_bounds" and space == "global":
        return _outside_global(address, write, arena, bound)
    return "write" if write and kind == "out_of_bounds" else ""


# Kinds of which there is one thing to say.
SENTENCES = {
    "hung": "a loop went on beyond EmuParams.max_loop_iterations",
    "deadlock": "every warp that has not finished waits at a barrier that the others will never reach",
    "window": "an atomic in memory that is neither global nor shared",
    "bad_shuffle": "the source lane does not execute the shuffle, so its value is undefined",
    "call": "a call through a pointer that is no function of the expected signature",
}


def _bad_barrier(aux: int) -> str:
    """``aux``: the thread count, or what else is wrong, as -2 and -1 of 64 bits."""
    if aux == (1 << 64) - 2:
        return "another warp waits at this barrier for another number of threads"
    if aux == (1 << 64) - 1:
        return "the barrier number must be 0 to 15"
    return f"a thread count of {aux} is not a positive multiple of 32"


def _bad_mbarrier(aux: int) -> str:
    return {
        mbarriers.UNDERFLOW: "more arrivals than the phase of this mbarrier still expects",
        mbarriers.COMPLETED: "an arrive.noComplete that completes the phase",
    }.get(aux, f"an mbarrier expects 1 to {mbarriers.MOST} arrivals")


def _bad_mask(aux: int) -> str:
    return {
        1: "this lane executes the instruction but its bit is not in the mask",
        3: "the instruction needs all 32 lanes of the warp, and this one does not execute it",
    }.get(aux, "the mask names this lane, which does not execute the instruction")


# Kinds that the number in the record tells more about.
ABOUT_A_NUMBER: dict[str, Callable[[int], str]] = {
    "bad_barrier": _bad_barrier,
    "bad_mbarrier": _bad_mbarrier,
    "bad_mask": _bad_mask,
    "bad_copy": lambda size: f"the source size {size} is larger than the copy",
    "divergent_barrier": lambda lanes: f"lanes {_lanes(lanes)} of the warp are elsewhere",
}


def _outside_global(address: int, write: bool, arena: Arena, bound: Bound) -> str:
    """A global access that no allocation holds: an address of another space, or how far off it is."""
    window = {SHARED_WINDOW: "shared", LOCAL_WINDOW: "local", CONST_WINDOW: "constant"}.get(address >> WINDOW_SHIFT << WINDOW_SHIFT)
    if window is not None:
        return f"a generic address of {window} memory used as a global one"
    return ("write " if write else "read ") + _nearest(address, arena, bound)


def _spinning(mask: int, others: int) -> str:
    """``mask``: lanes in the loop; ``others``: lanes of the warp that wait for them behind it."""
    text = "every warp that has not finished spins or waits at a barrier, and nobody is left who could change what the loop reads"
    if others:
        text += (
            f"; lanes {_lanes(mask)} spin while lanes {_lanes(others)} of the warp wait for them behind the loop, in lock step: "
            "if one of those should release them, let it do so inside the loop"
        )
    return text


def race_detail(other: int, kind: int, lowered: Lowered, g: Geometry, space: str | None) -> str:
    """The second access of a race, from its packed record (lower/races.py)."""
    what = {READ_AFTER_WRITE: "read after write", WRITE_AFTER_READ: "write after read", WRITE_AFTER_WRITE: "write after write"}[kind]
    site = lowered.sites[other & ((1 << SITE_BITS) - 1)]
    if space == "global":
        thread = other >> 14 & 1023
        linear = other >> CTA_SHIFT & ((1 << 28) - 1)
        cta = (linear % g.grid[0], linear // g.grid[0] % g.grid[1], linear // (g.grid[0] * g.grid[1]))
        whose = f"CTA {cta}, "
    else:
        thread = (other >> WARP_SHIFT & 31) * 32 + (other >> LANE_SHIFT & 31)
        whose = ""
    tid = (thread % g.cta[0], thread // g.cta[0] % g.cta[1], thread // (g.cta[0] * g.cta[1]))
    loc = site.instruction.loc
    where = f"{loc.file}:{loc.line}" if loc is not None else f"PTX line {site.instruction.line}"
    return f"{what}, unordered with the {'write' if site.write else 'read'} at {where} by {whose}thread {tid}"


def _lanes(bits: int) -> str:
    numbers = [str(n) for n in range(32) if bits >> n & 1]
    return ", ".join(numbers[:8]) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")


def _nearest(address: int, arena: Arena, bound: Bound) -> str:
    """Where an address lies relative to the closest allocation."""
    best = None
    for a in arena.live():
        distance = a.lo - address if address < a.lo else address - a.hi if address >= a.hi else 0
        if best is None or distance < best[0]:
            best = (distance, a)
    if best is None or best[0] > 1 << 20:
        return "outside every allocation"
    a = best[1]
    index, name = bound.pointers.get(a.lo, (-1, ""))
    whose = f"argument {index} '{name}'" if index >= 0 else "an allocation"
    size = a.hi - a.lo
    if address < a.lo:
        return f"{a.lo - address} bytes before {whose} ({size} bytes)"
    return f"at byte {address - a.lo} of {whose} ({size} bytes)"
