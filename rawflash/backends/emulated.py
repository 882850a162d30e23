"""The emulator as a backend: executes the PTX that NVRTC emitted on this CPU and counts what it moves. No GPU time, ever."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawflash import emu
from rawflash.backends.base import Execution, KernelCounters, LineCounts, TensorTraffic, bind_plan
from rawflash.compile import CompiledSource
from rawflash.emu import nvrtc
from rawflash.emu.errors import EmuError, NvrtcError, RaceHazard, UnsupportedInstruction
from rawflash.errors import BackendUnavailable, LaunchError, Race, Unsupported
from rawflash.roofline import Gpu

if TYPE_CHECKING:
    from rawflash.variants import Plan

__all__ = ["EmulatedBackend", "usable"]


def usable() -> tuple[bool, str]:
    """(True, what was found) or (False, what is missing and how to get it). Never raises."""
    try:
        found = nvrtc.find_library()
        return True, f"the emulator compiles with NVRTC {nvrtc.version_text()} ({found})"
    except NvrtcError as error:
        return False, str(error)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the emulator's errors into rawflash's, message unchanged."""
    try:
        yield
    except UnsupportedInstruction as error:
        raise Unsupported(str(error)) from error
    except RaceHazard as error:
        raise Race(str(error)) from error
    except EmuError as error:
        raise LaunchError(str(error)) from error


class EmulatedBackend:
    """See backends.base.Backend. `params` are the emulator's knobs (checks, counting, threads, order)."""

    name = "emu"

    def __init__(self, params: emu.EmuParams | None = None) -> None:
        ok, sentence = usable()
        if not ok:
            raise BackendUnavailable(sentence)
        self.params = params

    def describe(self) -> dict[str, str]:
        """Tags that say that no GPU took part."""
        return {"backend": "emu", "device": f"emulator on {platform.machine()} CPU", "driver": "none"}

    def gpu(self, wanted: Gpu) -> Gpu:
        """The emulator takes any description."""
        return wanted

    def free_host_bytes(self) -> int | None:
        """What Linux calls available; None where it does not say."""
        try:
            lines = Path("/proc/meminfo").read_text("ascii").splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
        except (OSError, StopIteration):
            return None

    def compile(self, source: CompiledSource, plan: Plan) -> Any:
        """PTX to machine code. Raises Unsupported for an instruction that the emulator lacks, LaunchError for PTX it cannot read."""
        with _translated():
            module = emu.RawModule(code=source.ptx, arch=source.arch, params=self.params)
            for launch in plan.launches:
                module.get_function(launch.entry).compile(launch.cta)
        return module

    def to_device(self, array: NDArray[Any]) -> Any:
        """An initialised copy in the emulator's memory."""
        return emu.asarray(array)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Poisoned, and a read before the first write stops the run."""
        return emu.empty(shape, dtype)

    def poison(self, array: Any) -> None:
        """Fill with NaN patterns."""
        array.view(np.uint8)[...] = 0xFF

    def to_host(self, array: Any) -> NDArray[Any]:
        """A plain NumPy copy."""
        return np.array(array, copy=True, subok=False)

    def run(self, module: Any, plan: Plan, arrays: Mapping[str, Any]) -> Execution:
        """Execute every launch and add up the counters, argument traffic by tensor name."""
        started = time.perf_counter()
        tensors: dict[str, TensorTraffic] = {}
        total: Any = None
        with _translated():
            for launch, bound in zip(plan.launches, bind_plan(module, plan, arrays), strict=True):
                report = bound()
                total = report if total is None else total + report
                for moved in report.arguments:
                    name = str(launch.args[moved.index])
                    tensors[name] = tensors.get(name, TensorTraffic()) + TensorTraffic(
                        moved.read_bytes, moved.write_bytes, moved.read_sectors, moved.write_sectors
                    )
        return Execution(_counters(total, tensors), None, time.perf_counter() - started)

    def timing(self) -> None:
        """The emulator measures no GPU time."""
        return None


def _counters(report: Any, tensors: dict[str, TensorTraffic]) -> KernelCounters | None:
    """The summed LaunchReport of a plan in rawflash's own words."""
    if report is None:
        return None
    lines = {
        place: LineCounts(
            dict(line.opcodes), line.global_.read_bytes, line.global_.write_bytes, line.shared.wavefronts, line.shared.bank_conflicts
        )
        for place, line in report.lines.items()
    }
    sectors = sum(tensors.values(), TensorTraffic())
    return KernelCounters(
        tensors=tensors,
        hbm=TensorTraffic(report.global_.read_bytes, report.global_.write_bytes, sectors.read_sectors, sectors.write_sectors),
        smem_bytes=report.shared.read_bytes + report.shared.write_bytes,
        smem_requests=report.shared.requests,
        smem_wavefronts=report.shared.wavefronts,
        smem_bank_conflicts=report.shared.bank_conflicts,
        opcodes=dict(report.opcodes),
        warp_instructions=report.warp_instructions,
        thread_instructions=report.thread_instructions,
        barriers=report.barriers,
        lines=lines,
        notes=(*report.warnings, *report.output.splitlines()),
        pipes=report.pipes(),
        flops=report.flops(),
        ctas=report.ctas,
    )
