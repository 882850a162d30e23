"""A stand-in for the few parts of CuPy that backends.cupy_gpu uses: NumPy arrays, a log of what happened in which order.

Kernels are Python functions given by name; an event that is asked for its time before it was recorded and waited for is an error,
as it is on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

ATTRIBUTES = {
    "MultiProcessorCount": 108,
    "ClockRate": 1410000,
    "MemoryClockRate": 1593000,
    "GlobalMemoryBusWidth": 5120,
    "MaxSharedMemoryPerBlockOptin": 166912,
    "MaxSharedMemoryPerMultiprocessor": 167936,
    "MaxRegistersPerMultiprocessor": 65536,
    "MaxThreadsPerMultiProcessor": 2048,
    "MaxBlocksPerMultiprocessor": 32,
    "ReservedSharedMemoryPerBlock": 1024,
    "L2CacheSize": 41943040,
}


class DriverError(RuntimeError):
    """Stands for CUDADriverError."""


class RuntimeApiError(RuntimeError):
    """Stands for CUDARuntimeError."""


class OutOfMemory(MemoryError):
    """Stands for OutOfMemoryError."""


class CompileException(Exception):
    """Stands for CompileException."""


def _runtime(count: int) -> SimpleNamespace:
    """cupy.cuda.runtime of a machine with `count` GPUs."""
    return SimpleNamespace(
        CUDARuntimeError=RuntimeApiError,
        getDeviceCount=lambda: count,
        driverGetVersion=lambda: 13000,
        getDeviceProperties=lambda index: {"name": f"Fake GPU {index}".encode()},
    )


class FakeCupy:
    """Pass it to CupyBackend(cupy=...). `log` lists what happened; `elapsed_ms` is what events measure."""

    __version__ = "14.2.0"

    def __init__(self, kernels: dict[str, Callable[..., None]] | None = None, elapsed_ms: float = 5.0, count: int = 1) -> None:
        self.kernels = {"rf_empty": lambda: None, **(kernels or {})}
        self.elapsed_ms = elapsed_ms
        self.log: list[Any] = []
        self.devices: list[int] = []  # contexts entered, innermost last
        self.stream = SimpleNamespace(synchronize=lambda: self.log.append("stream.synchronize"))
        log = self.log

        class Array(np.ndarray):
            @property
            def data(self) -> Any:  # type: ignore[override]
                return SimpleNamespace(memset_async=lambda value, size, stream: log.append(("memset", value, size)))

        class Event:
            state = "new"

            def record(self, stream: Any) -> None:
                assert stream is outer.stream
                self.state = "recorded"
                log.append("record")

            def synchronize(self) -> None:
                assert self.state == "recorded"
                self.state = "done"

        class Device:
            def __init__(self, index: int) -> None:
                self.id = index
                self.attributes, self.compute_capability, self.pci_bus_id = ATTRIBUTES, "80", f"0000:0{index}:00.0"

            def __enter__(self) -> None:
                outer.devices.append(self.id)

            def __exit__(self, *_: object) -> None:
                outer.devices.pop()

        outer = self
        self._array = Array
        self.cuda = SimpleNamespace(
            Device=Device,
            Event=Event,
            get_current_stream=lambda: self.stream,
            get_elapsed_time=self._elapsed,
            driver=SimpleNamespace(CUDADriverError=DriverError),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemory),
            compiler=SimpleNamespace(CompileException=CompileException),
            runtime=_runtime(count),
        )

    def _elapsed(self, start: Any, end: Any) -> float:
        assert start.state in ("recorded", "done") and end.state == "done", "cudaErrorNotReady"
        return self.elapsed_ms

    def _on_device(self) -> None:
        assert self.devices, "memory was touched outside the device's context"

    def asarray(self, array: np.ndarray) -> Any:
        self._on_device()
        assert array.flags.c_contiguous
        return array.copy().view(self._array)

    def empty(self, shape: Any, dtype: Any) -> Any:
        self._on_device()
        return np.zeros(shape, dtype).view(self._array)  # a pool that happens to hand back zeros

    def asnumpy(self, array: Any) -> np.ndarray:
        self._on_device()
        return np.array(array, subok=False)

    def RawModule(self, code: str, options: tuple[str, ...] = ()) -> Any:
        self._on_device()
        assert isinstance(options, tuple)
        self.log.append(("module", options))
        return SimpleNamespace(compile=lambda: self.log.append("compile"), get_function=self._function)

    def _function(self, name: str) -> Any:
        return FakeKernel(self, name)


class FakeKernel:
    """One kernel: refuses what CUDA would refuse about dynamic shared memory, logs, and calls the Python function."""

    shared_size_bytes = 16

    def __init__(self, cupy: FakeCupy, name: str) -> None:
        self._cupy, self._name = cupy, name
        self.max_dynamic_shared_size_bytes = 48 * 1024 - self.shared_size_bytes

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        self._cupy._on_device()
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise DriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self._cupy.log.append(("launch", self._name))
        self._cupy.kernels[self._name](*args)
