"""The whole path of a launch, from arguments to report. Read this file to see how the rooms fit together.

compile_kernel:  PTX tree -> lower/kernel.py -> LLVM IR -> jit.py -> machine code     (cached, per kernel and parameters)
launch:          limits -> arguments -> records -> worker threads run rf_run -> faults or report
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from rawflash.emu import jit
from rawflash.emu.cfg.uniformity import CtaShape
from rawflash.emu.lower.kernel import Lowered, lower_kernel
from rawflash.emu.lower.layout import Alloc, Launch, Worker
from rawflash.emu.lower.runtime import runtime_module
from rawflash.emu.lower.signatures import SIGNATURES
from rawflash.emu.machine.arena import Arena, device_memory
from rawflash.emu.machine.arguments import Bound, bind_arguments, release, write_back
from rawflash.emu.machine.crew import Crew
from rawflash.emu.machine.faults import fault
from rawflash.emu.machine.hostcalls import HostCalls
from rawflash.emu.machine.l2 import l2_cache
from rawflash.emu.machine.records import (
    Bytes,
    Dim3,
    Geometry,
    WorkerMemory,
    alloc_table,
    blank_memos,
    get,
    launch_record,
    put,
    worker_memory,
)
from rawflash.emu.machine.residents import run_residents
from rawflash.emu.machine.stalls import Stalls
from rawflash.emu.params import EmuParams, L2Params
from rawflash.emu.ptx.tree import Module
from rawflash.emu.traffic.collect import Tally, collect
from rawflash.emu.traffic.l2 import L2Traffic
from rawflash.emu.traffic.report import LaunchReport


@dataclass
class Compiled:
    """Machine code of one kernel and what is known about it.

    ``seconds``: wall clock of the passes: "lower" (graph, analysis, IR), "optimise" and "codegen" (LLVM), which a kernel from the disk
    cache does not have, and "load" (the cache, linking).
    """

    lowered: Lowered
    library: jit.Library
    params: EmuParams
    seconds: dict[str, float] = field(default_factory=dict)

    @functools.cached_property
    def tally(self) -> Tally:
        """Where its counters belong."""
        return Tally(self.lowered)

    @functools.cached_property
    def memos(self) -> Bytes:
        """Its memos when nothing is remembered yet."""
        return blank_memos(self.lowered, self.params.count)

    @property
    def address(self) -> int:
        return self.library.addresses["kernel"]


_runtime: jit.Library | None = None
_runtime_lock = threading.Lock()
_counter = 0


def runtime_library(params: EmuParams) -> jit.Library:
    """The code shared by all kernels, loaded once."""
    global _runtime
    with _runtime_lock:
        if _runtime is None:
            image = jit.cached(("runtime",), lambda: jit.optimise_and_emit(runtime_module()), params.disk_cache)
            _runtime = jit.Library("rf_runtime", image, ["rf_run", "rf_begin", "rf_round", *SIGNATURES])
        return _runtime


def compile_kernel(module: Module, name: str, params: EmuParams, shape: CtaShape) -> Compiled:
    """Lower and compile one entry, or fetch it from the disk cache."""
    global _counter
    runtime = runtime_library(params)
    seconds: dict[str, float] = {}
    begin = time.perf_counter()

    def build() -> tuple[Lowered, bytes]:
        start = time.perf_counter()
        lowered = lower_kernel(module, name, params, shape)
        seconds["lower"] = time.perf_counter() - start
        image = jit.optimise_and_emit(lowered.ir, params.opt_level, seconds)
        lowered.ir = ""
        return lowered, image

    lowered, image = jit.cached((module.text, name, params.codegen_key(), shape), build, params.disk_cache)
    with _runtime_lock:
        _counter += 1
        label = f"kernel_{_counter}"
    imports = {symbol: runtime.addresses[symbol] for symbol in SIGNATURES}
    library = jit.Library(label, image, ["kernel"], imports)
    seconds["load"] = time.perf_counter() - begin - sum(seconds.values())
    return Compiled(lowered, library, params, seconds)


def launch(
    compiled: Compiled,
    module: Module,
    symbol_table: np.ndarray,  # type: ignore[type-arg]
    grid: Dim3,
    cta: Dim3,
    args: tuple[object, ...],
    dynamic_shared: int,
    params: EmuParams,
) -> LaunchReport:
    """Execute a grid and return what was counted. Raises a KernelFault for the first fault found."""
    lowered = compiled.lowered
    arena = device_memory()
    bound = bind_arguments(lowered.name, lowered.symbols, args, arena)
    block = arena.allocate(max(1, len(bound.block)), initialised=True)
    block.read_only = True
    arena.view(block)[: len(bound.block)] = np.frombuffer(bytes(bound.block), np.uint8)
    try:
        run = _Run(compiled, grid, cta, dynamic_shared, params, arena, bound, symbol_table, block.lo)
        try:
            run.execute()
        finally:
            write_back(bound)
        run.raise_fault(module)
        return run.report()
    finally:
        arena.free(block.lo)
        release(bound, arena)


class _Run:
    """One launch in progress."""

    def __init__(
        self,
        compiled: Compiled,
        grid: Dim3,
        cta: Dim3,
        dynamic: int,
        params: EmuParams,
        arena: Arena,
        bound: Bound,
        symbol_table: np.ndarray,  # type: ignore[type-arg]
        param_block: int,
    ):
        self.compiled, self.lowered, self.params, self.arena, self.bound = compiled, compiled.lowered, params, arena, bound
        symbols = self.lowered.symbols
        dynamic_start = max((at for kind, at in symbols.places.values() if kind == "dynamic"), default=symbols.static_shared)
        slots = {lo: n + 1 for n, lo in enumerate(bound.pointers)}
        self.slots = {slots[lo]: argument for lo, argument in bound.pointers.items()}
        self.geometry = Geometry(grid, cta, dynamic_start + dynamic, dynamic, len(slots) + 1)
        rows = []
        for a in arena.live():
            flags = Alloc.READ_ONLY if a.read_only or not bound.writable.get(a.lo, True) else 0
            rows.append((a.lo, a.hi, slots.get(a.lo, 0), flags))
        self.allocs = alloc_table(rows)
        stride = -(-(symbols.local_bytes + 64) // 16) * 16 if symbols.local_bytes else 0
        self.local_stride = stride
        self.record = launch_record(self.geometry, self.lowered.warp_bytes, stride, param_block, self.allocs, len(rows), arena.shadow_delta)
        put(self.record, Launch.SYMBOLS, "Q", symbol_table.ctypes.data)
        put(self.record, Launch.MAX_ITERATIONS, "q", params.max_loop_iterations)
        self.host = HostCalls(stride)
        put(self.record, Launch.HOST_CALL, "Q", ctypes.cast(self.host.callback, ctypes.c_void_p).value or 0)
        self._orders()
        total = self.geometry.n_ctas
        self.n_workers = max(1, min(params.l2.resident_ctas if params.l2 is not None else params.worker_count(), total))
        chunk = 1 if self.lowered.spins else max(1, min(1024, total // (self.n_workers * 8)))
        run = jit.RUN_TYPE(runtime_library(params).addresses["rf_run"])
        limit = 1 if params.racecheck else total  # with racecheck one worker, so that what is reported does not depend on timing
        self.crew = Crew(self.record, total, chunk, lambda w, first, count: run(w, compiled.address, first, count), self._hire, limit)
        self.rows = rows
        self.l2: L2Traffic | None = None
        if params.racecheck:
            self.races = np.zeros(16 * arena.used_bytes, np.uint8)

    def _hire(self) -> WorkerMemory:
        w = worker_memory(self.lowered, self.compiled.memos, self.geometry, self.record, self.local_stride, self.params.racecheck)
        if self.params.racecheck:
            put(w.record, Worker.GLOBAL_RACE, "Q", self.races.ctypes.data)
            put(w.record, Worker.GLOBAL_ORIGIN, "Q", self.arena.base)
        return w

    def _listen(self, stalls: Stalls) -> None:
        """Let CTAs that only spin be heard."""
        if self.lowered.spins:
            put(self.record, Launch.STALLED, "Q", ctypes.cast(stalls.callback, ctypes.c_void_p).value or 0)

    def _orders(self) -> None:
        if self.params.order_seed is None:
            return
        rng = np.random.default_rng(self.params.order_seed)
        self.cta_order = rng.permutation(self.geometry.n_ctas).astype(np.int64)
        self.warp_order = rng.permutation(self.geometry.n_warps).astype(np.int32)
        put(self.record, Launch.CTA_ORDER, "Q", self.cta_order.ctypes.data)
        put(self.record, Launch.WARP_ORDER, "Q", self.warp_order.ctypes.data)

    def execute(self) -> None:
        if self.params.l2 is not None:
            self._execute_with_l2(self.params.l2)
            return
        self._listen(self.crew.stalls)
        self.crew.execute(self.n_workers)

    def _execute_with_l2(self, l2: L2Params) -> None:
        """One thread, so that the order of accesses is the same every time."""
        workers = self.crew.workers = [self._hire() for _ in range(self.n_workers)]
        stalls = Stalls(self.record, lambda: False, threaded=False)
        self._listen(stalls)
        with l2_cache(l2, self.arena.base) as cache:
            cache.start(self.rows, self.geometry.n_slots)
            cache.place_local(workers, self.geometry, self.local_stride)
            put(self.record, Launch.L2, "Q", cache.record.ctypes.data)
            addresses = runtime_library(self.params).addresses
            self.crew.failures = run_residents(workers, addresses, self.compiled.address, self.geometry.n_ctas, stalls)
            if not l2.keep:
                cache.flush()
            self.l2 = cache.traffic(self.slots)

    def raise_fault(self, module: Module) -> None:
        if self.crew.failures:
            first = min(self.crew.failures, key=lambda w: get(w.record, Worker.POSITION, "q"))
            raise fault(self.lowered, first.record, self.geometry, module.text.splitlines(), self.arena, self.bound, self.host.note)

    def report(self) -> LaunchReport:
        r = collect(self.compiled.tally, self.crew.workers, self.slots, self.geometry.n_warps)
        r.output = "".join(self.host.output)
        r.l2 = self.l2
        return r
