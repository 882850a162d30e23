"""What an experiment's function is handed: options, the emulator, the GPU if there is one, published numbers, and a memory.

    lab.options                     the entries of conf/experiment/<name>.yaml, as changed on the command line
    lab.run(kernel, problem, tile)  execute and count a kernel of the ladder (checked against float64; remembered)
    lab.time(kernel, problem, tile) a cell: milliseconds on the GPU, or NEEDS GPU
    lab.launch(file, plan, arrays)  execute any launch plan: buffers afterwards and counters (not remembered)
    lab.remember(question, make)    any other JSON value that takes long
    lab.published(id)               one entry of experiments/published.yaml

Whatever `run`, `time` or `launch` cannot do here is raised as a RawflashError, which the runner turns into a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawflash.backends.base import Backend, KernelCounters
from rawflash.choose import choose_backend
from rawflash.compile import compile_source
from rawflash.config import Settings
from rawflash.emu import nvrtc
from rawflash.errors import BackendUnavailable, LaunchError
from rawflash.execute import RunResult, TensorBytes, run_variant
from rawflash.lab.cells import Cell, measured
from rawflash.lab.memo import Memo
from rawflash.lab.options import options_of
from rawflash.lab.papers import published_entry
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER, Plan

if TYPE_CHECKING:
    from rawflash.bench import TimingConfig

__all__ = ["Lab", "lab_for", "open_device"]

_KEPT = ("status", "sentence", "metrics", "tensors", "resources", "tags")


@dataclass
class Lab:
    """See the module. `device` is the GPU's backend or None; `gpu` the description whose limits hold; `tags` what took part;
    `threads` of the emulator (0: chosen by it).

    `problem` and `tiling` are those of the command line, for experiments that take them.
    """

    options: Mapping[str, Any]
    gpu: Gpu
    problem: Problem = field(default_factory=Problem)
    tiling: Tiling = field(default_factory=lambda: Tiling(64, 64))
    device: Backend | None = None
    timing: TimingConfig | None = None
    memo: Memo = field(default_factory=Memo)
    tags: dict[str, str] = field(default_factory=dict)
    threads: int = 0

    @cached_property
    def emulator(self) -> Backend:
        """The emulator. Raises BackendUnavailable where NVRTC or the CUDA headers are missing."""
        return choose_backend("emu", self.threads)[0]

    def run(self, kernel: str, problem: Problem, tiling: Tiling | None = None, *, raise_errors: bool = True) -> RunResult:
        """Execute a kernel of the ladder on the emulator: counted metrics, bytes per tensor, errors. Texts and outputs are not kept.

        Raises the RawflashError of a kernel that refuses or is wrong; with raise_errors=False the result's status tells it.
        """
        tile = tiling or self.tiling
        variant = LADDER[kernel]

        def make() -> dict[str, Any]:
            made = run_variant(variant, problem, tile, self.gpu, self.emulator, raise_errors=raise_errors)
            kept = {name: value for name, value in asdict(made).items() if name in _KEPT}
            kept["metrics"] = {name: value for name, value in made.metrics.items() if not name.startswith("host/")}
            return kept

        told = self.memo.get(("run", kernel, repr(problem), repr(tile), repr(self.gpu), raise_errors), [variant.file], make)
        told["tensors"] = [TensorBytes(**entry) for entry in told["tensors"]]
        result = RunResult(kernel, problem, tile, "emu", **told)
        self.note(result.tags)
        return result

    def time(self, kernel: str, problem: Problem, tiling: Tiling | None = None) -> Cell:
        """Milliseconds of a kernel on the GPU (never remembered). Without one a cell that says so."""
        if self.device is None:
            return measured(None, "ms", note="NEEDS GPU")
        result = run_variant(LADDER[kernel], problem, tiling or self.tiling, self.gpu, self.device, timing=self.timing)
        self.note(result.tags)
        if not result.ok:
            return measured(None, "ms", note=f"{result.status}: {result.sentence}")
        return measured(result.metrics["time/gpu_ms_median"], "ms")

    def launch(self, file: str, plan: Plan, arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], KernelCounters]:
        """Execute a launch plan of kernels_cu/`file` on the emulator. `arrays`: the inputs by name, in storage type.

        Returns the plan's buffers afterwards and the counters. Raises LaunchError or CompileError.
        """
        compiled = compile_source(read_source(file), plan.defines, self.gpu.arch)
        module = self.emulator.compile(compiled, plan)
        placed = {name: self.emulator.to_device(x) for name, x in arrays.items()}
        placed |= {name: self.emulator.empty(shape, np.dtype(kind)) for name, (shape, kind) in plan.buffers.items()}
        counters = self.emulator.run(module, plan, placed).counters
        if counters is None:
            raise LaunchError(f"{file}: the plan launches nothing, so nothing was counted")
        self.note({**self.emulator.describe(), "nvrtc": compiled.nvrtc})
        return {name: self.emulator.to_host(placed[name]) for name in plan.buffers}, counters

    def remember(self, question: Sequence[Any], make: Callable[[], Any], files: Sequence[str] = ()) -> Any:
        """The JSON value of `make()`, from disk when nothing changed: `question` (numbers, texts), kernel sources `files`,
        the module that `make` stands in, the code that makes numbers, the compiler.
        """
        code = hashlib.sha256(Path(make.__code__.co_filename).read_bytes()).hexdigest()[:16]
        if files:
            self.note({**self.emulator.describe(), "nvrtc": nvrtc.version_text()})
        return self.memo.get((code, *question), files, make)

    def published(self, entry: str) -> dict[str, Any]:
        """One entry of experiments/published.yaml. Raises UsageError for an id that is not there."""
        return published_entry(entry)

    def note(self, tags: Mapping[str, str]) -> None:
        """Remember backend, device, driver and NVRTC for the line below the tables."""
        for name in ("backend", "device", "driver", "nvrtc"):
            if tags.get(name) and tags[name] not in self.tags.get(name, ""):
                self.tags[name] = ", ".join(filter(None, (self.tags.get(name), tags[name])))


def lab_for(name: str, settings: Settings, device: Backend | None, memo: Memo, *, alone: bool) -> Lab:
    """The lab of an experiment: options of one that runs `alone` come from the command line, those of several from their files."""
    options = settings.options if alone and settings.options else options_of(name)
    gpu = device.gpu(settings.sheet) if device else settings.sheet
    return Lab(options, gpu, settings.problem, settings.tiling, device, settings.timing, memo, threads=settings.threads)


def open_device(name: str) -> tuple[Backend | None, str]:
    """The GPU's backend for backend=`name` (None: none) and the line that says why. An asked-for GPU must be there."""
    try:
        backend, told = choose_backend(name)
    except BackendUnavailable as error:
        if name == "cupy":
            raise
        return None, f"{error}; only what needs no kernel can be computed."
    return (backend if backend.name == "cupy" else None), told
