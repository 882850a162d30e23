"""The GPU backend's launch and timing code, through a stand-in for CuPy: there is no hardware in these tests.

A test marked gpu runs the same backend for real where there is a device.
"""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rawflash.backends import cupy_gpu
from rawflash.backends.cupy_gpu import CupyBackend, usable
from rawflash.bench import TimingConfig, measure
from rawflash.errors import BackendUnavailable, LaunchError
from rawflash.execute import run_variant
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.backends.fake_cupy import ATTRIBUTES, CompileException, DriverError, FakeCupy, OutOfMemory

A100 = Gpu("A100", "80", 108, 166912, 167936, fp16_tflops=312.0, sfu_per_clk_sm=16)


def launch(entry: str, *args: Any, shared_bytes: int = 0) -> SimpleNamespace:
    return SimpleNamespace(entry=entry, grid=(1, 1, 1), cta=(32, 1, 1), shared_bytes=shared_bytes, args=args)


def plan(*launches: SimpleNamespace) -> Any:
    return SimpleNamespace(launches=launches)


def double(x: np.ndarray, o: np.ndarray, n: np.int32) -> None:
    o[...] = 2 * x


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(tmp_path))


def test_not_usable_says_why_and_how_without_raising(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(cupy_gpu, "find_spec", lambda name: None)
    ok, sentence = usable()
    assert not ok and sentence.startswith('CuPy is not installed; install it with `pip install "rawflash[cuda13]"`')
    monkeypatch.setattr(cupy_gpu, "find_spec", lambda name: object())
    monkeypatch.setattr(cupy_gpu, "_DRIVERS", ("no-such-library.so",))
    ok, sentence = usable()
    assert not ok and "no NVIDIA driver" in sentence
    with pytest.raises(BackendUnavailable, match=r"backend=cupy cannot run: no NVIDIA driver.*backend=emu"):
        CupyBackend()


# Case C15.
def test_without_a_driver_cupy_is_not_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; from rawflash.backends import cupy_gpu\n"
        "cupy_gpu._DRIVERS = ('no-such-library.so',)\n"
        "print(cupy_gpu.usable()[0], 'cupy' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]


def test_usable_reports_what_cupy_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    assert usable() == (True, "Fake GPU 0")
    assert usable(3) == (False, "GPU 3 was asked for, but the driver sees 1")

    def insufficient() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient\nmore")

    fake.cuda.runtime.getDeviceCount = insufficient
    ok, sentence = usable()
    assert not ok and sentence.endswith("(RuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient)")


def test_describe_and_gpu_come_from_the_device() -> None:
    backend = CupyBackend(1, FakeCupy(count=2))
    assert backend.describe()["device"] == "Fake GPU 1" and backend.describe()["driver"].startswith("CUDA 13.0")
    gpu = backend.gpu(A100)
    assert (gpu.threads_sm, gpu.ctas_sm, gpu.smem_reserved_bytes) == (2048, 32, 1024)
    assert (gpu.name, gpu.arch, gpu.sms, gpu.smem_block_bytes) == ("Fake GPU 1", "80", 108, 166912)
    assert gpu.hbm_gb_s == pytest.approx(2039, rel=1e-3)
    assert gpu.fp32_tflops == pytest.approx(19.5, rel=1e-3)
    assert gpu.fp16_tflops == 312.0
    assert backend.gpu(Gpu("H100", "90", 132, 232448, 233472, fp16_tflops=989)).fp16_tflops == 0


def test_outputs_are_poisoned_whatever_the_pool_holds() -> None:
    backend = CupyBackend(0, FakeCupy())
    for dtype in (np.float32, np.float16):
        assert np.isnan(backend.to_host(backend.empty((2, 3), np.dtype(dtype)))).all()
    assert (backend.to_host(backend.empty((4,), np.dtype(np.uint16))) == 0xFFFF).all()


# Case C03.
def test_a_view_is_copied_before_it_goes_to_the_device() -> None:
    backend = CupyBackend(0, FakeCupy())
    x = np.arange(10.0).reshape(2, 5)[:, :4]
    np.testing.assert_array_equal(backend.to_host(backend.to_device(x)), x)


# Cases C13 and C14.
def test_run_launches_with_the_source_and_the_options_and_waits() -> None:
    fake = FakeCupy({"twice": double})
    backend = CupyBackend(0, fake)
    compiled = SimpleNamespace(source=SimpleNamespace(text="code"), options=("-lineinfo", "-DX=1"))
    work = plan(launch("twice", "X", "O", np.int32(4), shared_bytes=98304))
    module = backend.compile(compiled, work)  # type: ignore[arg-type]
    arrays = {"X": backend.to_device(np.ones(4, np.float32)), "O": backend.empty((4,), np.dtype(np.float32))}
    execution = backend.run(module, work, arrays)
    assert (execution.counters, execution.timing) == (None, None)
    assert backend.to_host(arrays["O"]).tolist() == [2, 2, 2, 2]
    assert fake.log == [("module", ("-lineinfo", "-DX=1")), "compile", ("launch", "twice"), "stream.synchronize"]
    assert fake.devices == []


@pytest.mark.parametrize("error", [DriverError("CUDA_ERROR_ILLEGAL_ADDRESS"), OutOfMemory("out of memory"), CompileException("bad")])
def test_errors_of_the_device_become_launch_errors(error: Exception) -> None:
    def fail() -> None:
        raise error

    fake = FakeCupy({"bad": fail})
    backend = CupyBackend(0, fake)
    with backend._on_device():
        module = fake.RawModule(code="")
    with pytest.raises(LaunchError, match=str(error)):
        backend.run(module, plan(launch("bad")), {})


# Cases B02, B04 and C14.
def test_the_flush_lies_outside_the_events_and_one_sample_holds_all_launches() -> None:
    fake = FakeCupy({"a": lambda: None, "b": lambda: None})
    backend = CupyBackend(0, fake)
    with backend._on_device():
        module = fake.RawModule(code="")
    with backend.timing() as timer:
        fake.log.clear()
        kernels = [module.get_function("a"), module.get_function("b")]
        assert timer.time_ms(lambda: [k((1,), (1,), ()) for k in kernels]) == 5.0
    flush = ("memset", 0, 2 * 41943040)
    assert fake.log == [flush, "record", ("launch", "a"), ("launch", "b"), "record"]


# Case B09.
def test_measuring_on_the_device_timer() -> None:
    fake = FakeCupy({"a": lambda: None})
    backend = CupyBackend(0, fake)
    with backend.timing() as timer:
        kernel = fake.RawModule(code="").get_function("a")
        found = measure(lambda: kernel((1,), (1,), ()), timer, TimingConfig(warmup=2, repeats=3))
    assert found.samples_ms == (5.0, 5.0, 5.0) and found.empty_ms == 5.0
    assert fake.log.count(("launch", "a")) == 5


# Case B07.
def test_sensors_are_read_through_nvml_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlDeviceGetClockInfo=lambda handle, which: 1000 * which,
        nvmlDeviceGetPowerUsage=lambda handle: 250500,
        nvmlDeviceGetTemperature=lambda handle, which: 61,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 4,
        nvmlSystemGetDriverVersion=lambda: "580.65.06",
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    backend = CupyBackend(0, FakeCupy())
    assert backend.describe()["driver"] == "CUDA 13.0 (driver 580.65.06)"
    with backend.timing() as timer:
        sensors = timer.sensors()
    assert sensors == {
        "gpu/sm_clock_mhz": 1000.0,
        "gpu/mem_clock_mhz": 2000.0,
        "gpu/power_w": 250.5,
        "gpu/temperature_c": 61.0,
        "gpu/throttle_reasons": 4.0,
    }
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]
    with backend.timing() as timer:
        assert timer.sensors() == {}


def test_one_process_times_at_a_time(tmp_path: Path) -> None:
    code = (
        "import fcntl, sys\n"
        "try: fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: print('held')\n"
        "else: print('free')"
    )
    lock = tmp_path / "locks" / "gpu-0000-00-00.0.lock"
    with CupyBackend(0, FakeCupy()).timing():
        assert subprocess.check_output([sys.executable, "-c", code, str(lock)], text=True) == "held\n"
    assert subprocess.check_output([sys.executable, "-c", code, str(lock)], text=True) == "free\n"
    held: list[str] = []
    fake = FakeCupy({"a": lambda: held.append(subprocess.check_output([sys.executable, "-c", code, str(lock)], text=True))})
    backend = CupyBackend(0, fake)
    with backend._on_device():
        module = fake.RawModule(code="")
    backend.run(module, plan(launch("a")), {})
    assert held == ["held\n"], "an untimed launch waits for its turn too"


def test_the_names_that_the_backend_uses_exist_in_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed, so its names cannot be looked up")
    names = """RawModule RawModule.compile RawModule.get_function RawKernel.shared_size_bytes RawKernel.max_dynamic_shared_size_bytes
        empty asarray asnumpy ndarray.view ndarray.data ndarray.nbytes cuda.Device.attributes cuda.Device.compute_capability
        cuda.Device.pci_bus_id cuda.Device.id cuda.Device.__enter__ cuda.MemoryPointer.memset_async cuda.Event.record
        cuda.Event.synchronize cuda.get_elapsed_time cuda.get_current_stream cuda.Stream.synchronize cuda.driver.CUDADriverError
        cuda.runtime.CUDARuntimeError cuda.runtime.getDeviceCount cuda.runtime.getDeviceProperties cuda.runtime.driverGetVersion
        cuda.memory.OutOfMemoryError cuda.compiler.CompileException"""
    for name in names.split():
        thing = cupy
        for part in name.split("."):
            assert hasattr(thing, part), f"cupy.{name}"
            thing = getattr(thing, part)
    for attribute in ATTRIBUTES:
        assert hasattr(cupy.cuda.runtime, f"cudaDevAttr{attribute}"), attribute


@pytest.mark.gpu
@pytest.mark.skipif(not usable()[0], reason=f"needs a CUDA GPU: {usable()[1]}")
@pytest.mark.parametrize("name", list(LADDER))
def test_a_rung_on_the_device_is_right_and_timed(name: str) -> None:
    problem, tiling = Problem(H=4, N=300, d=64, causal="bottom_right"), Tiling(64, 64)
    result = run_variant(LADDER[name], problem, tiling, A100, CupyBackend(), timing=TimingConfig(warmup=3, repeats=5))
    assert result.ok, result.sentence
    assert result.metrics["time/gpu_ms_median"] >= result.metrics["time/gpu_ms_p20"] > 0
    assert len(result.samples_ms) == 5
