"""Every knob of the emulator, in one frozen dataclass."""

from __future__ import annotations

import os
from dataclasses import dataclass

LINE_BYTES = 128  # of every NVIDIA L2


@dataclass(frozen=True)
class L2Params:
    """A modelled L2 cache (machine/l2.py says what the model is and what it is not).

    Attributes:
        size_bytes: capacity, a multiple of ``associativity`` lines of 128 bytes.
        associativity: lines that share a set; the least recently used one gives way.
        keep: the cache outlives the launch, until ``emu.l2_reset()``. Otherwise every launch starts with an empty one.
        resident_ctas: CTAs under way at a time. They take turns; a turn lasts until every warp of the CTA meets a barrier or ends.
    """

    size_bytes: int
    associativity: int = 16
    keep: bool = False
    resident_ctas: int = 1

    def __post_init__(self) -> None:
        if self.associativity < 1 or self.size_bytes < 1 or self.size_bytes % (LINE_BYTES * self.associativity):
            raise ValueError(
                f"an L2 of {self.size_bytes} bytes and associativity {self.associativity} has no whole number of sets: "
                f"take a positive multiple of {LINE_BYTES} * associativity bytes"
            )
        if self.resident_ctas < 1:
            raise ValueError(f"resident_ctas = {self.resident_ctas}: at least one CTA must be under way")

    @property
    def sets(self) -> int:
        return self.size_bytes // (LINE_BYTES * self.associativity)


@dataclass(frozen=True)
class EmuParams:
    """How a launch is executed and watched. Counters and checks that are switched off cost nothing: they are not compiled in.

    Attributes:
        count: count bytes, sectors, wavefronts, bank conflicts and instructions.
        memcheck: bounds, alignment, null and read-only checks. Off, a stray access may crash the process.
        initcheck: report loads of bytes that nothing has written (shared, local and ``emu.empty`` memory).
        racecheck: report unordered accesses to the same bytes: shared memory between threads of a CTA within one barrier
            interval, global memory between CTAs. Costs 5 to 50 times the run time, so it is off by default. CTAs then run one after
            the other, so that those which wait for later ones end in a deadlock.
        synccheck: report barriers and warp-synchronous instructions executed by the wrong set of lanes.
        threads: worker threads that execute CTAs; 0 means one per available core. More are started when CTAs wait for CTAs that
            have not begun.
        order_seed: None runs CTAs and warps in ascending order; an integer runs both in an order drawn from that seed.
        max_loop_iterations: back edges that the warps of one CTA may take together before the launch is stopped as hung; a wait at
            a barrier counts as 1024 of them.
        opt_level: LLVM optimisation level of the generated code (1-3).
        disk_cache: keep compiled code on disk, keyed by content.
        l2: simulate an L2 cache, which gives modelled DRAM bytes. One worker thread then executes everything and looks up every
            sector: no slower where shared memory does the work, up to 20 times slower where global loads do.
    """

    count: bool = True
    memcheck: bool = True
    initcheck: bool = True
    racecheck: bool = False
    synccheck: bool = True
    threads: int = 0
    order_seed: int | None = None
    max_loop_iterations: int = 1 << 33
    opt_level: int = 2
    disk_cache: bool = True
    l2: L2Params | None = None

    def __post_init__(self) -> None:
        if self.racecheck and self.l2 is not None and self.l2.resident_ctas > 1:
            raise ValueError("racecheck needs CTAs that run one after another: set l2.resident_ctas to 1, or check races apart")

    def worker_count(self) -> int:
        """Number of worker threads: ``threads``, or the cores this process may use; one where the order of all accesses matters."""
        if self.racecheck or self.l2 is not None:
            return 1
        if self.threads > 0:
            return self.threads
        return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)

    def codegen_key(self) -> tuple[object, ...]:
        """The part of the parameters that changes the generated code."""
        return (self.count, self.memcheck, self.initcheck, self.racecheck, self.synccheck, self.opt_level, self.l2 is not None)


DEFAULT = EmuParams()
