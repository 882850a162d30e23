"""What compiling a variant costs on this host, pass by pass, from nothing and from the disk cache. Wall clock, not GPU times."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash import emu
from rawflash.backends.base import launch_plan
from rawflash.compile import compile_source
from rawflash.emu.jit import optimise_and_emit
from rawflash.emu.lower.runtime import runtime_module
from rawflash.problem import Problem, to_f64
from rawflash.source import read_source
from rawflash.tables import Column, Table
from rawflash.tiling import Tiling
from rawflash.variants import LADDER, Plan

__all__ = ["PASSES", "RUNTIME", "Emulated", "Pass", "pass_table", "passes"]

ARCH = "80"
RUNTIME = "(runtime)"
PASSES = ("nvrtc", "parse", "lower", "optimise", "codegen", "load")


@dataclass(frozen=True)
class Pass:
    """Seconds of each pass for one kernel; `cached`: everything but the parser's work came from the disk. NVRTC compiles a file once."""

    kernel: str
    dtype: str
    cached: bool
    seconds: dict[str, float]


class Emulated:
    """One variant on one problem, compiled and with its arrays in place; a call runs its launches once."""

    def __init__(self, variant: str, problem: Problem, tiling: Tiling, params: emu.EmuParams) -> None:
        start = time.perf_counter()
        self.plan: Plan = LADDER[variant].plan(problem, tiling)
        compiled = compile_source(read_source(LADDER[variant].file), self.plan.defines, ARCH)
        parsing = time.perf_counter()
        self.module = emu.RawModule(code=compiled.ptx, arch=ARCH, params=params)
        done = time.perf_counter()
        self.passes = {"nvrtc": parsing - start, "parse": done - parsing}
        self.kernels = {n.entry: self.module.get_function(n.entry).compile(n.cta).seconds for n in self.plan.launches}
        self.compile_s = time.perf_counter() - start
        self.problem = problem
        self.arrays: dict[str, Any] = {}

    def __call__(self) -> None:
        launch_plan(self.module, self.plan, self.arrays)

    def prepare(self, inputs: dict[str, NDArray[Any]]) -> None:
        """Inputs and buffers into the emulator's memory."""
        self.arrays = {name: emu.asarray(x) for name, x in inputs.items()}
        self.arrays |= {name: emu.empty(shape, dtype) for name, (shape, dtype) in self.plan.buffers.items()}

    def output(self) -> NDArray[np.float64]:
        """O as numbers, [B, H, N, d]."""
        return to_f64(np.array(self.arrays["O"]), self.problem.dtype)


def passes(problem: Problem, tiling: Tiling) -> list[Pass]:
    """Every kernel that takes the problem's type, from nothing and then from the disk cache, with all default counters and checks."""
    rows = [_runtime(problem.dtype)]
    for name in (name for name, variant in LADDER.items() if problem.dtype in variant.dtypes):
        with _empty_cache():
            for cached in (False, True):
                run = Emulated(name, problem, tiling, emu.EmuParams())
                shared = dict(run.passes)
                for entry, seconds in run.kernels.items():
                    rows.append(Pass(entry, problem.dtype, cached, shared | seconds))
                    shared = {}
    return rows


def _runtime(dtype: str) -> Pass:
    """What all kernels share, compiled once per machine."""
    start = time.perf_counter()
    text = runtime_module()
    seconds = {"lower": time.perf_counter() - start}
    optimise_and_emit(text, seconds=seconds)
    return Pass(RUNTIME, dtype, False, seconds)


@contextlib.contextmanager
def _empty_cache() -> Iterator[None]:
    before = os.environ.get("RAWFLASH_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="rawflash-speed-") as folder:
        os.environ["RAWFLASH_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["RAWFLASH_CACHE_DIR"]
            else:
                os.environ["RAWFLASH_CACHE_DIR"] = before


def pass_table(rows: Sequence[Pass]) -> Table:
    """One row per kernel and kind of start, seconds of each pass."""
    columns = [Column(title, key=True) for title in ("kernel", "dtype", "start")]
    columns += [Column(title) for title in (*PASSES, "total")]
    cells = []
    for r in rows:
        figures = [f"{r.seconds[name]:.3f}" if name in r.seconds else "" for name in PASSES]
        cells.append((r.kernel, r.dtype, "cached" if r.cached else "cold", *figures, f"{sum(r.seconds.values()):.3f}"))
    for cached in (False, True):
        chosen = [r for r in rows if r.cached is cached]
        sums = [sum(r.seconds.get(name, 0.0) for r in chosen) for name in PASSES]
        cells.append(("all", "", "cached" if cached else "cold", *(f"{x:.3f}" for x in sums), f"{sum(sums):.3f}"))
    note = "NVRTC and the parser work once per .cu; their time stands at its first kernel. lower: graph, analysis, LLVM IR."
    shared = f"{RUNTIME}: what all kernels share, compiled once per cache folder."
    return Table("Compile passes, seconds", tuple(columns), tuple(cells), (note, shared))
