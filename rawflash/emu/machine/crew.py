"""The worker threads of a launch: each takes CTAs in launch order and executes them, one at a time.

On a GPU many CTAs are resident together, and one may wait for what another does (a flag, a lock, a barrier of the whole grid). So when
the CTAs under way only spin (stalls.py) and others have not been started, another worker starts one beside them, up to RESIDENT.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rawflash.emu.lower.layout import Launch
from rawflash.emu.machine.records import Bytes, WorkerMemory, get
from rawflash.emu.machine.stalls import Stalls

RESIDENT = 256


class Crew:
    """Workers of one launch. ``run(worker record address, first CTA, count)`` executes CTAs and is negative after a fault.

    ``hire`` makes the buffers of one more worker; ``limit``: most workers, however many CTAs wait for each other.
    """

    def __init__(
        self, record: Bytes, n_ctas: int, chunk: int, run: Callable[[int, int, int], int], hire: Callable[[], WorkerMemory], limit: int
    ):
        self.record, self.n_ctas, self.chunk, self.run, self.hire = record, n_ctas, chunk, run, hire
        self.limit = min(limit, n_ctas, RESIDENT)
        self.workers: list[WorkerMemory] = []
        self.failures: list[WorkerMemory] = []
        self.stalls = Stalls(record, self._grow, threaded=True)
        self._next = 0
        self._at_work = 0
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()

    def execute(self, n_workers: int) -> None:
        """Run all CTAs on ``n_workers`` threads, this one included."""
        first = self._enlist()
        for _ in range(n_workers - 1):
            self._start()
        try:
            self._work(first)
        finally:
            while self._threads:
                self._threads.pop().join()

    def _enlist(self) -> WorkerMemory:
        worker = self.hire()
        with self._lock:
            self.workers.append(worker)
            self._at_work += 1
        self.stalls.enter(worker)
        return worker

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, args=(self._enlist(),), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _grow(self) -> bool:
        """Start a CTA beside those that wait, unless all have been started or there is no room."""
        if self._next >= self.n_ctas or self._at_work >= self.limit:
            return False
        self._start()
        return True

    def _work(self, w: WorkerMemory) -> None:
        try:
            while True:
                with self._lock:
                    first = self._next
                    self._next += self.chunk
                if first >= self.n_ctas or first > get(self.record, Launch.STOP, "q"):
                    return
                if self.run(w.record.ctypes.data, first, min(self.chunk, self.n_ctas - first)) < 0:
                    with self._lock:
                        self.failures.append(w)
                    return
        finally:
            with self._lock:
                self._at_work -= 1
            self.stalls.leave(w)
