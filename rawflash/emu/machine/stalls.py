"""Deciding whether CTAs that only spin can still be helped, or are in a deadlock.

A worker whose CTA does nothing but spin, with no register and no memory of its own changing, reports it (lower/scheduler.py), and goes on
reporting while that lasts. The first report after anything else is *fresh*. When all workers have reported, they start over; when all
have reported again and no report was fresh, then each has looked at everything the others had done, and nobody moved: a deadlock.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from rawflash.emu.lower.layout import Launch, Worker
from rawflash.emu.lower.scheduler import GIVE_UP, LEAVE, WAIT
from rawflash.emu.machine.records import Bytes, WorkerMemory, get

STALLED_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
NEVER = (1 << 63) - 1
NAP_S, LONG_NAP_S = 0.0002, 0.005


class Stalls:
    """The reports of one launch's workers.

    ``grow`` starts a CTA that has not been started, if there is one and there is room, and says whether it did. ``threaded``: every
    worker has a thread of its own, which sleeps here until the others have reported too, or for a moment.
    """

    def __init__(self, record: Bytes, grow: Callable[[], bool], threaded: bool):
        self.callback = STALLED_TYPE(self._report)
        self._record, self._grow, self._threaded = record, grow, threaded
        self._working: dict[int, WorkerMemory] = {}  # by the address of the worker's record
        self._reported: set[int] = set()
        self._naps: dict[int, int] = {}  # how often in a row a worker has waited in vain
        self._moved = True  # something happened since all had reported
        self._round = 0
        self._dead = False
        self._changed = threading.Condition(threading.RLock())

    def enter(self, w: WorkerMemory) -> None:
        """The worker takes part from now on."""
        with self._changed:
            self._working[w.record.ctypes.data] = w
            self._moved = True

    def leave(self, w: WorkerMemory) -> bool:
        """The worker has nothing more to do. Returns False."""
        with self._changed:
            del self._working[w.record.ctypes.data]
            self._reported.discard(w.record.ctypes.data)
            self._moved = True
        return False

    def _report(self, worker: int, fresh: int) -> int:
        """Called by generated code: what the worker shall do (see lower/scheduler.py)."""
        try:
            with self._changed:
                if self._dead:
                    return LEAVE if fresh else GIVE_UP
                if get(self._record, Launch.STOP, "q") != NEVER:
                    return LEAVE  # another CTA has failed, and that is what is told
                if self._grow():
                    return WAIT
                if fresh:
                    self._moved = True
                    self._naps[worker] = 0
                self._reported.add(worker)
                if len(self._reported) == len(self._working):
                    return self._all_reported()
                if self._threaded:
                    self._sleep(worker)
                return GIVE_UP if self._dead else WAIT
        except Exception:  # must not travel through machine code; without an answer the launch cannot go on
            return GIVE_UP

    def _all_reported(self) -> int:
        moved = self._moved or any(get(w.record, Worker.FRESH, "i") for w in self._working.values())
        self._dead, self._moved = not moved, False
        self._reported.clear()
        self._round += 1
        self._changed.notify_all()
        return GIVE_UP if self._dead else WAIT

    def _sleep(self, worker: int) -> None:
        """Until all have reported, or for a moment, after which the worker looks again whether anything has changed."""
        naps = self._naps[worker] = self._naps.get(worker, 0) + 1
        now = self._round
        self._changed.wait_for(lambda: self._round != now, min(NAP_S * naps, LONG_NAP_S))
        if self._round == now:
            self._reported.discard(worker)
