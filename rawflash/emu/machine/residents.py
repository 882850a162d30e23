"""CTAs that are under way together and take turns, one worker record each: the order of accesses that the simulated L2 sees."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from rawflash.emu.lower.layout import DONE, FAILED, YIELD, Worker
from rawflash.emu.machine.records import WorkerMemory, get
from rawflash.emu.machine.stalls import Stalls

BEGIN_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
ROUND_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def run_residents(
    workers: Sequence[WorkerMemory], addresses: dict[str, int], kernel: int, total: int, stalls: Stalls
) -> list[WorkerMemory]:
    """Run all ``total`` CTAs. A turn lasts until every warp of a CTA meets a barrier, spins or ends; the next CTA takes the place of one
    that has ended. Returns the workers that failed; CTAs later in the order are then dropped, earlier ones brought to their end.
    """
    begin, advance = BEGIN_TYPE(addresses["rf_begin"]), ROUND_TYPE(addresses["rf_round"])
    positions = iter(range(total))
    failed: list[WorkerMemory] = []

    def start(w: WorkerMemory) -> bool:
        position = next(positions, None)
        return position is not None and begin(w.record.ctypes.data, position) != DONE

    def turn(w: WorkerMemory) -> bool:
        code = advance(w.record.ctypes.data, kernel)
        if code == FAILED:
            failed.append(w)
        return code == YIELD or (code == DONE and start(w))

    under_way = [w for w in workers if start(w)]
    for w in under_way:
        stalls.enter(w)
    while under_way:
        under_way = [w for w in under_way if turn(w) or stalls.leave(w)]
        if failed:
            first = min(map(_position, failed))
            under_way = [w for w in under_way if _position(w) < first or stalls.leave(w)]
    return failed


def _position(w: WorkerMemory) -> int:
    return get(w.record, Worker.POSITION, "q")
