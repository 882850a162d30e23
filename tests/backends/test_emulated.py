"""The emulator as a backend: counts by tensor name, poisoned outputs, errors in rawflash's own types."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rawflash.backends import emulated
from rawflash.backends.base import Execution, TensorTraffic
from rawflash.backends.emulated import EmulatedBackend, usable
from rawflash.compile import compile_source
from rawflash.emu.errors import NvrtcMissing
from rawflash.errors import BackendUnavailable, LaunchError, Race, Unsupported
from rawflash.source import read_source, tagged_lines

KERNELS = """
extern "C" __global__ void scale(const float* __restrict__ X, float* __restrict__ Y, const int n, const float f) {
    __shared__ float s[256];
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) s[threadIdx.x] = X[i];
    __syncthreads();
    if (i < n) Y[i] = s[threadIdx.x] * f;  // [rescale]
}
extern "C" __global__ void outside(float* Y) { Y[threadIdx.x] = 1.0f; }
extern "C" __global__ void unwritten(const float* Y, float* Z) { Z[threadIdx.x] = Y[threadIdx.x]; }
extern "C" __global__ void alien(unsigned* Y) {  // a video instruction
    asm volatile("vadd4.u32.u32.u32 %0, %0, %0, %0;" : "+r"(Y[0]));
}
extern "C" __global__ void racy(float* Y) {
    __shared__ volatile float s;
    s = threadIdx.x;
    Y[threadIdx.x] = s;  // whose?
}
"""
N = 600


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(backend, compiled source) of KERNELS, with a cache folder of their own."""
    folder = tmp_path_factory.mktemp("emulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAWFLASH_CACHE_DIR", str(folder / "cache"))
        (folder / "k.cu").write_text(KERNELS)
        yield EmulatedBackend(), compile_source(read_source("k.cu", folder), {}, "80")


def launch(entry: str, *args: Any, threads: int = 256) -> Any:
    one = SimpleNamespace(entry=entry, grid=(3, 1, 1) if entry == "scale" else (1, 1, 1), cta=(threads, 1, 1), shared_bytes=0, args=args)
    return SimpleNamespace(launches=(one,))


def start(backend: EmulatedBackend, compiled: Any, plan: Any, arrays: dict[str, Any]) -> Execution:
    return backend.run(backend.compile(compiled, plan), plan, arrays)


def scaled(backend: EmulatedBackend, compiled: Any) -> tuple[Execution, np.ndarray]:
    arrays = {"X": backend.to_device(np.arange(N, dtype=np.float32)), "Y": backend.empty((N,), np.dtype(np.float32))}
    execution = start(backend, compiled, launch("scale", "X", "Y", np.int32(N), np.float32(0.5)), arrays)
    return execution, backend.to_host(arrays["Y"])


def test_usable_and_described() -> None:
    ok, sentence = usable()
    assert ok and "NVRTC" in sentence
    assert EmulatedBackend().describe()["driver"] == "none"


def test_without_nvrtc_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise NvrtcMissing("no NVRTC library was found; install it with pip")

    monkeypatch.setattr(emulated.nvrtc, "find_library", missing)
    assert usable() == (False, "no NVRTC library was found; install it with pip")
    with pytest.raises(BackendUnavailable, match="install it with pip"):
        EmulatedBackend()


def test_a_run_counts_by_tensor_name(ready: Any) -> None:
    backend, compiled = ready
    execution, Y = scaled(backend, compiled)
    np.testing.assert_array_equal(Y, np.arange(N) * 0.5)
    c = execution.counters
    assert c is not None and execution.timing is None and execution.host_s > 0
    assert c.tensors == {"X": TensorTraffic(4 * N, 0, N // 8, 0), "Y": TensorTraffic(0, 4 * N, 0, N // 8)}
    assert (c.hbm.read_bytes, c.hbm.write_bytes) == (4 * N, 4 * N)
    assert c.smem_bytes == 2 * 4 * N and c.smem_bank_conflicts == 0
    assert c.count("mul") == N
    assert c.count_on_lines(tagged_lines(compiled.source, "rescale"), "mul") == N
    assert c.barriers == 3 * 8


def test_outputs_start_poisoned_and_can_be_poisoned_again() -> None:
    backend = EmulatedBackend()
    array = backend.empty((3, 5), np.dtype(np.float16))
    assert np.isnan(backend.to_host(array)).all()
    array[...] = 1
    backend.poison(array)
    host = backend.to_host(array)
    assert np.isnan(host).all() and type(host) is np.ndarray


@pytest.mark.parametrize(
    ("entry", "args", "words"),
    [
        ("outside", ("Y",), r"k\.cu:9"),
        ("unwritten", ("Y", "Z"), r"uninitialised.*k\.cu:10"),
        ("scale", ("X", "Y", np.int64(N), np.float32(1)), "argument"),
        ("scale", ("X", "Y"), "argument"),
    ],
)
def test_faults_become_launch_errors_that_name_the_line(ready: Any, entry: str, args: tuple[Any, ...], words: str) -> None:
    backend, compiled = ready
    arrays = {
        "X": backend.to_device(np.zeros(N, np.float32)),
        "Y": backend.empty((100,), np.dtype(np.float32)),
        "Z": backend.empty((256,), np.dtype(np.float32)),
    }
    with pytest.raises(LaunchError, match=words):
        start(backend, compiled, launch(entry, *args), arrays)


def test_an_instruction_that_the_emulator_lacks_is_unsupported(ready: Any) -> None:
    backend, compiled = ready
    with pytest.raises(Unsupported, match="vadd4"):
        start(backend, compiled, launch("alien", "Y"), {"Y": backend.empty((256,), np.dtype(np.float32))})


def test_a_race_is_found_on_request(ready: Any) -> None:
    from rawflash.choose import choose_backend
    from rawflash.errors import UsageError

    _, compiled = ready
    careful, _ = choose_backend("auto", racecheck=True)
    assert isinstance(careful, EmulatedBackend)
    with pytest.raises(Race, match=r"data race.*k\.cu:16"):
        start(careful, compiled, launch("racy", "Y"), {"Y": careful.empty((256,), np.dtype(np.float32))})
    with pytest.raises(UsageError, match=r"backend\.racecheck=true is the emulator's"):
        choose_backend("cupy", racecheck=True)


def test_the_parameters_reach_the_emulator(ready: Any, tmp_path: Path) -> None:
    from rawflash.emu import EmuParams

    _, compiled = ready
    quiet = EmulatedBackend(EmuParams(order_seed=7, threads=1))
    np.testing.assert_array_equal(scaled(quiet, compiled)[1], np.arange(N) * 0.5)
