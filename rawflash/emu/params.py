"""Every knob of the emulator, in one frozen dataclass."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class EmuParams:
    """How a launch is executed and watched. Counters and checks that are switched off cost nothing: they are not compiled in.

    Attributes:
        count: count bytes, sectors, wavefronts, bank conflicts and instructions.
        memcheck: bounds, alignment, null and read-only checks. Off, a stray access may crash the process.
        initcheck: report loads of bytes that nothing has written (shared, local and ``emu.empty`` memory).
        racecheck: report unordered accesses to the same bytes: shared memory between threads of a CTA within one barrier
            interval, global memory between CTAs. Costs several times the run time, so it is off by default.
        synccheck: report barriers and warp-synchronous instructions executed by the wrong set of lanes.
        threads: worker threads that execute CTAs; 0 means one per available core.
        order_seed: None runs CTAs and warps in ascending order; an integer runs both in an order drawn from that seed.
        max_loop_iterations: back edges one warp may take between two barriers before the launch is stopped as hung.
        opt_level: LLVM optimisation level of the generated code (1-3).
        disk_cache: keep compiled code on disk, keyed by content.
    """

    count: bool = True
    memcheck: bool = True
    initcheck: bool = True
    racecheck: bool = False
    synccheck: bool = True
    threads: int = 0
    order_seed: int | None = None
    max_loop_iterations: int = 1 << 31
    opt_level: int = 2
    disk_cache: bool = True

    def worker_count(self) -> int:
        """Number of worker threads: ``threads``, or the cores this process may use."""
        if self.threads > 0:
            return self.threads
        return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)

    def codegen_key(self) -> tuple[object, ...]:
        """The part of the parameters that changes the generated code."""
        return (self.count, self.memcheck, self.initcheck, self.racecheck, self.synccheck, self.opt_level)


DEFAULT = EmuParams()
