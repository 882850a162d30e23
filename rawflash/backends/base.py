"""What the two backends share: the launch loop, what a run returns, and what a backend must offer.

A backend's module object is CuPy's interface (get_function, kernel(grid, cta, args, shared_mem=)) on either side, so the code
that launches a plan is written once, here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawflash.compile import CompiledSource
from rawflash.errors import LaunchError
from rawflash.roofline import Gpu

if TYPE_CHECKING:
    from rawflash.variants import Plan

__all__ = [
    "Backend",
    "BoundLaunch",
    "Execution",
    "KernelCounters",
    "LineCounts",
    "TensorTraffic",
    "Timer",
    "Timing",
    "bind_plan",
    "launch_plan",
]

# Dynamic + static shared memory that a CTA gets without asking: beyond it the kernel's attribute must be raised (CUDA guide).
DEFAULT_SMEM_BYTES = 48 * 1024


# ------------------------------------------------------------------------------------------------------------- launching
@dataclass(frozen=True)
class BoundLaunch:
    """One launch with everything looked up: calling it enqueues the kernel and returns what the backend's kernel returns."""

    entry: str
    kernel: Any
    grid: tuple[int, int, int]
    cta: tuple[int, int, int]
    args: tuple[Any, ...]
    shared_bytes: int

    def __call__(self) -> Any:
        return self.kernel(self.grid, self.cta, self.args, shared_mem=self.shared_bytes)


def bind_plan(module: Any, plan: Plan, arrays: Mapping[str, Any]) -> list[BoundLaunch]:
    """Look up kernels and arguments of all launches of a plan, and raise the shared-memory limit where a launch needs it.

    `arrays` maps tensor names to the backend's arrays. A launch argument is a tensor name or a NumPy scalar; a bare Python
    number is refused, because CuPy would pass an int as 64 bits and a float as a double whatever the kernel declares.
    """
    bound = []
    for launch in plan.launches:
        kernel = module.get_function(launch.entry)
        if launch.shared_bytes + kernel.shared_size_bytes > DEFAULT_SMEM_BYTES:
            kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
        args = tuple(_argument(launch.entry, argument, arrays) for argument in launch.args)
        bound.append(BoundLaunch(launch.entry, kernel, launch.grid, launch.cta, args, launch.shared_bytes))
    return bound


def _argument(entry: str, argument: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(argument, np.number):
        return argument
    if argument in arrays:
        return arrays[argument]
    raise LaunchError(f"{entry}: the launch argument {argument!r} is neither a NumPy scalar nor one of the tensors {', '.join(arrays)}")


def launch_plan(module: Any, plan: Plan, arrays: Mapping[str, Any]) -> list[Any]:
    """Launch every kernel of a plan in order; returns what each launch returned (a report on the emulator, None on a GPU)."""
    return [launch() for launch in bind_plan(module, plan, arrays)]


# --------------------------------------------------------------------------------------------------------------- results
@dataclass(frozen=True)
class TensorTraffic:
    """Bytes and 32-byte sectors that the kernels asked of HBM for one tensor."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_sectors: int = 0
    write_sectors: int = 0

    def __add__(self, other: TensorTraffic) -> TensorTraffic:
        return TensorTraffic(
            self.read_bytes + other.read_bytes,
            self.write_bytes + other.write_bytes,
            self.read_sectors + other.read_sectors,
            self.write_sectors + other.write_sectors,
        )


# A floating-point type anywhere in the opcode tells arithmetic on numbers from arithmetic on addresses.
_FLOAT_TYPES = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"))


def is_float(opcode: str) -> bool:
    """True for an opcode that computes on floating-point numbers ("mul.ftz.f32", not "mul.wide.s32")."""
    return not _FLOAT_TYPES.isdisjoint(opcode.split("."))


@dataclass(frozen=True)
class LineCounts:
    """What one line of a .cu did: executed thread instructions by opcode, HBM bytes, shared-memory wavefronts and conflicts."""

    opcodes: dict[str, int]
    read_bytes: int = 0
    write_bytes: int = 0
    wavefronts: int = 0
    bank_conflicts: int = 0


@dataclass(frozen=True)
class KernelCounters:
    """Exact counts over all launches of one run.

    opcodes   full PTX opcode -> executed thread instructions
    lines     (file, line of the .cu) -> LineCounts
    notes     warnings of the emulator and what the kernels printed
    pipes     pipe of an SM -> warp instructions issued to it
    flops     kind -> floating-point operations ("f32", "special", "mma.f16", ...)
    ctas      CTAs of all launches
    """

    tensors: dict[str, TensorTraffic]
    hbm: TensorTraffic
    smem_bytes: int
    smem_requests: int
    smem_wavefronts: int
    smem_bank_conflicts: int
    opcodes: dict[str, int]
    warp_instructions: int
    thread_instructions: int
    barriers: int
    lines: dict[tuple[str, int], LineCounts] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pipes: dict[str, int] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    ctas: int = 0

    def count(self, *classes: str) -> int:
        """Executed floating-point thread instructions whose opcode starts with one of `classes` ("fma", "mul", ...)."""
        return sum(n for opcode, n in self.opcodes.items() if opcode.split(".")[0] in classes and is_float(opcode))

    def count_on_lines(self, lines: Iterable[tuple[str, int]], kind: str) -> int:
        """The same for one class, but only on the given (file name, line) pairs."""
        wanted = set(lines)
        return sum(
            n
            for (file, line), counts in self.lines.items()
            if (PurePath(file).name, line) in wanted
            for opcode, n in counts.opcodes.items()
            if opcode.split(".")[0] == kind and is_float(opcode)
        )

    @property
    def lane_efficiency(self) -> float:
        """Thread instructions / (32 * warp instructions): 1 when every lane of every warp takes part."""
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else 0.0


@dataclass(frozen=True)
class Timing:
    """Measured GPU times in ms of all launches of a plan together, each with a flushed L2; raw samples kept.

    empty_ms is an empty kernel by the same protocol; sensors are clocks, power and temperature just after (may be empty).
    """

    samples_ms: tuple[float, ...]
    median_ms: float
    p20_ms: float
    p80_ms: float
    empty_ms: float
    sensors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Execution:
    """One run of a plan: counted (emulator) or timed later by bench (GPU). host_s is this machine's wall clock, no GPU time."""

    counters: KernelCounters | None
    timing: Timing | None
    host_s: float


# -------------------------------------------------------------------------------------------------------------- protocols
class Timer(Protocol):
    """The device's clock, for bench.py."""

    def time_ms(self, work: Callable[[], object]) -> float:
        """Flush L2, then the time of `work` between two events on the current stream; waits for the end."""

    def empty(self) -> None:
        """Launch an empty kernel."""

    def sensors(self) -> dict[str, float]:
        """Clocks, power, temperature under their metric names; empty when they cannot be read."""


class Backend(Protocol):
    """Where a compiled source runs. Arrays are the backend's own; `to_device` and `to_host` cross over."""

    name: str

    def describe(self) -> dict[str, str]:
        """Tags: backend, device, driver, ..."""

    def gpu(self, wanted: Gpu) -> Gpu:
        """The GPU whose limits hold: `wanted` on the emulator, the device at hand on a real one."""

    def free_host_bytes(self) -> int | None:
        """Free memory of this host, when it is there that arrays live (each byte twice); None when they live elsewhere."""

    def compile(self, source: CompiledSource, plan: Plan) -> Any:
        """A module object with get_function, its kernels ready for the plan's launches. Raises LaunchError or Unsupported."""

    def to_device(self, array: NDArray[Any]) -> Any:
        """A copy of a NumPy array."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A new array filled with NaN patterns (and, on the emulator, tracked as not initialised)."""

    def poison(self, array: Any) -> None:
        """Fill an array with NaN patterns again."""

    def to_host(self, array: Any) -> NDArray[Any]:
        """A NumPy copy of an array."""

    def run(self, module: Any, plan: Plan, arrays: Mapping[str, Any]) -> Execution:
        """Launch the plan and wait for it. Raises LaunchError, or Unsupported when the backend cannot execute it."""

    def timing(self) -> AbstractContextManager[Timer] | None:
        """A timer that holds the device for itself while it is open; None when this backend measures no GPU time."""
