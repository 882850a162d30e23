"""A CUDA GPU through CuPy: the same sources, the same options, the same launch code, timed for real.

Not yet run on hardware: the launch and timing code below is exercised in tests through a stand-in for CuPy only.

CuPy is imported when a backend is built, never before. `usable` first asks for the driver's library, so that on a machine
without a GPU nothing of CuPy is loaded. Launches and events use the current stream; arrays live on one device, chosen once.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawflash import paths
from rawflash.backends.base import Execution, launch_plan
from rawflash.compile import CompiledSource
from rawflash.errors import BackendUnavailable, LaunchError, OutOfMemory
from rawflash.roofline import Gpu

if TYPE_CHECKING:
    from rawflash.variants import Plan

__all__ = ["CupyBackend", "usable"]

_DRIVERS = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
_INSTALL = 'install it with `pip install "rawflash[cuda13]"` (or `rawflash[cuda12]` for a driver older than 580)'
_EMPTY_KERNEL = 'extern "C" __global__ void rf_empty() {}'
# FMA lanes of one SM by compute capability (CUDA programming guide, arithmetic throughput table).
_FMA_LANES = {"70": 64, "75": 64, "80": 64, "86": 128, "87": 128, "89": 128, "90": 128, "100": 128, "103": 128, "120": 128, "121": 128}

# Rates that no attribute of the device tells: known only when the data sheet in use is that of the chip.
_TENSOR_RATES = ("fp16_tflops", "bf16_tflops", "fp8_tflops", "tensor_mhz", "tensor_flop_per_clk_sm")
_NO_ATTRIBUTE = (*_TENSOR_RATES, "memory_bytes", "l2_gb_s", "sfu_per_clk_sm", "smem_bytes_per_clk_sm", "lsu_per_clk_sm")


def usable(device: int = 0) -> tuple[bool, str]:
    """(True, name of the GPU) or (False, what is missing and how to get it). Never raises."""
    if "cupy" not in sys.modules:
        if find_spec("cupy") is None:
            return False, f"CuPy is not installed; {_INSTALL}"
        if not _driver_present():
            return False, "no NVIDIA driver was found on this machine (libcuda cannot be loaded)"
    try:
        cupy = importlib.import_module("cupy")
        count = int(cupy.cuda.runtime.getDeviceCount())
        if device >= count:
            return False, f"GPU {device} was asked for, but the driver sees {count}"
        return True, _text(cupy.cuda.runtime.getDeviceProperties(device)["name"])
    except Exception as error:  # CuPy raises ImportError, RuntimeError and its own types; all of them mean: not usable
        return False, f"CuPy cannot use a GPU here ({type(error).__name__}: {_first_line(error)})"


def _driver_present() -> bool:
    for library in _DRIVERS:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


class CupyBackend:
    """See backends.base.Backend. `cupy` may be given (a test's stand-in); otherwise it is imported."""

    name = "cupy"

    def __init__(self, device: int = 0, cupy: Any = None) -> None:
        if cupy is None:
            ok, sentence = usable(device)
            if not ok:
                raise BackendUnavailable(f"backend=cupy cannot run: {sentence}. Use backend=emu to emulate, or backend=auto")
            cupy = importlib.import_module("cupy")
        self.cupy = cupy
        self.device = cupy.cuda.Device(device)

    def describe(self) -> dict[str, str]:
        """Tags: device, driver, CuPy, compute capability, throttle reasons where they can be read."""
        runtime = self.cupy.cuda.runtime
        driver = int(runtime.driverGetVersion())
        return {
            "backend": "cupy",
            "device": _text(runtime.getDeviceProperties(self.device.id)["name"]),
            "driver": f"CUDA {driver // 1000}.{driver % 1000 // 10}" + _nvml_driver(),
            "cupy": str(self.cupy.__version__),
            "pci_bus_id": _text(self.device.pci_bus_id),
        }

    def gpu(self, wanted: Gpu) -> Gpu:
        """The device at hand: limits from its attributes; peak rates computed, tensor rate from `wanted` if it is the same chip."""
        attributes = self.device.attributes
        arch = str(self.device.compute_capability)
        sms = int(attributes["MultiProcessorCount"])
        clock_khz, memory_khz = int(attributes["ClockRate"]), int(attributes["MemoryClockRate"])
        same_chip = (wanted.arch, wanted.sms) == (arch, sms)
        return Gpu(
            name=_text(self.cupy.cuda.runtime.getDeviceProperties(self.device.id)["name"]),
            arch=arch,
            sms=sms,
            smem_block_bytes=int(attributes["MaxSharedMemoryPerBlockOptin"]),
            smem_sm_bytes=int(attributes["MaxSharedMemoryPerMultiprocessor"]),
            regs_sm=int(attributes["MaxRegistersPerMultiprocessor"]),
            threads_sm=int(attributes["MaxThreadsPerMultiProcessor"]),
            ctas_sm=int(attributes["MaxBlocksPerMultiprocessor"]),
            smem_reserved_bytes=int(attributes["ReservedSharedMemoryPerBlock"]),
            hbm_gb_s=2 * memory_khz * int(attributes["GlobalMemoryBusWidth"]) / 8 / 1e6,
            fp32_tflops=2 * _FMA_LANES.get(arch, 0) * sms * clock_khz / 1e9,
            l2_bytes=int(attributes["L2CacheSize"]),
            boost_mhz=clock_khz / 1e3,
            fma_per_clk_sm=_FMA_LANES.get(arch, 0),
            source="attributes of the device" + f"; peak rates of {wanted.name}" * same_chip,
            **{rate: getattr(wanted, rate) for rate in _NO_ATTRIBUTE if same_chip},
        )

    def free_host_bytes(self) -> None:
        """Arrays live on the device, and CuPy says when it is full."""
        return None

    # -- arrays and launches -------------------------------------------------------------------------------------------
    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Enter the device; turn CuPy's errors into LaunchError."""
        try:
            with self.device:
                yield
        except (self.cupy.cuda.driver.CUDADriverError, self.cupy.cuda.runtime.CUDARuntimeError) as error:
            raise LaunchError(f"the GPU refused or stopped the work: {_first_line(error)}") from error
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(f"the tensors do not fit into GPU memory: {_first_line(error)}") from error
        except self.cupy.cuda.compiler.CompileException as error:
            raise LaunchError(f"CuPy could not compile what NVRTC compiled before: {_first_line(error)}") from error

    def compile(self, source: CompiledSource, plan: Plan) -> Any:
        """A cupy.RawModule of the same text and options as the PTX; CuPy appends compile.cupy_appends by itself."""
        with self._on_device():
            module = self.cupy.RawModule(code=source.source.text, options=source.options)
            module.compile()  # now, not inside the first launch
        return module

    def to_device(self, array: NDArray[Any]) -> Any:
        """A copy on the device, C-contiguous."""
        with self._on_device():
            return self.cupy.asarray(np.ascontiguousarray(array))

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A new array full of NaN patterns: CuPy's memory pool would hand back yesterday's right answer."""
        with self._on_device():
            array = self.cupy.empty(shape, dtype)
        self.poison(array)
        return array

    def poison(self, array: Any) -> None:
        """Every byte 0xFF, which is NaN in fp32, fp16 and bf16."""
        with self._on_device():
            array.view(np.uint8)[...] = 0xFF

    def to_host(self, array: Any) -> NDArray[Any]:
        """A NumPy copy; waits for the work of the current stream."""
        with self._on_device():
            return self.cupy.asnumpy(array)

    def run(self, module: Any, plan: Plan, arrays: Mapping[str, Any]) -> Execution:
        """Launch the plan once on the current stream and wait for it."""
        started = time.perf_counter()
        with self._locked(), self._on_device():
            launch_plan(module, plan, arrays)
            self.cupy.cuda.get_current_stream().synchronize()
        return Execution(None, None, time.perf_counter() - started)

    @contextmanager
    def timing(self) -> Iterator[EventTimer]:
        """The device's timer, with the device locked against other rawflash processes while it is open."""
        with self._locked(), self._on_device():
            yield EventTimer(self.cupy, self.device)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other rawflash process launches on this device meanwhile: kernels beside a timed one would make its time wrong."""
        bus = _text(self.device.pci_bus_id).replace(":", "-").replace("/", "-")
        with (paths.cache_dir("locks") / f"gpu-{bus}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits for its turn; released when the file is closed, also by a crash
            yield


class EventTimer:
    """CUDA events on the current stream, with L2 flushed outside them. See backends.base.Timer."""

    def __init__(self, cupy: Any, device: Any) -> None:
        self._cupy = cupy
        self._device = device
        self._junk = cupy.empty(2 * int(device.attributes["L2CacheSize"]), np.uint8)
        self._empty = cupy.RawModule(code=_EMPTY_KERNEL).get_function("rf_empty")
        self._start, self._end = cupy.cuda.Event(), cupy.cuda.Event()

    def time_ms(self, work: Callable[[], object]) -> float:
        """Milliseconds of `work` between two events; the flush is enqueued before the first and so is not timed."""
        stream = self._cupy.cuda.get_current_stream()
        self._junk.data.memset_async(0, self._junk.nbytes, stream)
        self._start.record(stream)
        work()
        self._end.record(stream)
        self._end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(self._start, self._end))

    def empty(self) -> None:
        """Launch a kernel that does nothing."""
        self._empty((1,), (32,), ())

    def sensors(self) -> dict[str, float]:
        """Clocks, power and temperature through nvidia-ml-py; {} when that is not installed or refuses."""
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            handle = nvml.nvmlDeviceGetHandleByPciBusId(_text(self._device.pci_bus_id))
            return {
                "gpu/sm_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                "gpu/mem_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
                "gpu/power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
                "gpu/temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                "gpu/throttle_reasons": float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            }
        except Exception:  # optional figures: a missing package, an old driver or a container without rights
            return {}


def _nvml_driver() -> str:
    """ " (driver 580.65.06)" when nvidia-ml-py can tell, else ""."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return f" (driver {_text(nvml.nvmlSystemGetDriverVersion())})"
    except Exception:  # optional
        return ""
