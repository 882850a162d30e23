"""run_variant from plan to result: statuses, metrics, tables and artifacts, on a backend whose kernels are NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rawflash import paths
from rawflash.backends.base import Execution, KernelCounters, LineCounts, TensorTraffic
from rawflash.backends.cupy_gpu import CupyBackend
from rawflash.bench import TimingConfig
from rawflash.check import inputs_and_expected
from rawflash.errors import (
    CheckFailed,
    CompileError,
    InvalidConfiguration,
    LaunchError,
    OutOfMemory,
    Race,
    RawflashError,
    Unsupported,
    UsageError,
)
from rawflash.execute import RunResult, run_variant
from rawflash.metrics import METRICS
from rawflash.problem import Problem, make_inputs, round_to
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import Plan
from tests.backends.fake_cupy import FakeCupy

GPU = Gpu("A100", "80", 108, 166912, 167936)
TILING = Tiling(16, 16)
PROBLEM = Problem(H=1, N=24, d=16, dtype="fp32")
KERNEL = """extern "C" __global__ void copy(const float* Q, float* O) {
    __shared__ float s[TILE];
    s[threadIdx.x] = Q[threadIdx.x];  // HBM -> SMEM
    __syncthreads();
    O[threadIdx.x] = s[threadIdx.x] * 2.0f;  // [rescale]
}
"""


@pytest.fixture(autouse=True)
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel folder with one file, and a cache folder of the test's own."""
    monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "kernels_cu"
    (folder / "include").mkdir(parents=True)
    (folder / "copy.cu").write_text(KERNEL)
    monkeypatch.setattr(paths, "kernels_dir", lambda: folder)
    return folder


@dataclass
class FakeVariant:
    """Duck-types rawflash.variants.Variant: one launch of copy.cu's kernel on Q and O."""

    name: str = "copy"
    file: str = "copy.cu"
    entry: str = "copy"
    shared_bytes: int = 0
    threads: int = 32
    reason: str | None = None

    def invalid_reason(self, problem: Problem, tiling: Any, gpu: Gpu) -> str | None:
        return self.reason

    def plan(self, problem: Problem, tiling: Any) -> Any:
        launch = SimpleNamespace(
            entry=self.entry, grid=(1, 1, 1), cta=(self.threads, 1, 1), shared_bytes=self.shared_bytes, args=("Q", "O", "LSE")
        )
        buffers = {"O": (problem.shape_q, problem.numpy_dtype), "LSE": (problem.shape_lse, np.float32)}
        return Plan({"TILE": 32}, buffers, (launch,))

    def io(self, problem: Problem, tiling: Any) -> dict[str, tuple[int, int]]:
        return {"Q": (1536, 0), "O": (0, 1536)}


def right(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    expected = inputs_and_expected(problem)[1]
    return round_to(expected.O, problem.dtype), expected.LSE.astype(np.float32)


COUNTERS = KernelCounters(
    tensors={"Q": TensorTraffic(1536, 0, 48, 0), "O": TensorTraffic(0, 1536, 0, 96)},
    hbm=TensorTraffic(1536, 1536, 48, 96),
    smem_bytes=256,
    smem_requests=2,
    smem_wavefronts=3,
    smem_bank_conflicts=1,
    opcodes={"mul.ftz.f32": 32, "ld.global.f32": 32, "ex2.approx.ftz.f32": 5},
    warp_instructions=10,
    thread_instructions=320,
    barriers=1,
    lines={("/x/copy.cu", 3): LineCounts({}, 1536, 0), ("/x/copy.cu", 5): LineCounts({"mul.ftz.f32": 32}, 0, 1536)},
)


@dataclass
class FakeBackend:
    """Writes what `answer` returns into O and LSE; counts COUNTERS; has no timer."""

    answer: Callable[[Problem], tuple[np.ndarray, np.ndarray]] = right
    problem: Problem = PROBLEM
    error: RawflashError | None = None
    name: str = "emu"
    ran: list[Any] = field(default_factory=list)
    free: int | None = None

    def describe(self) -> dict[str, str]:
        return {"backend": "emu", "device": "none"}

    def gpu(self, wanted: Gpu) -> Gpu:
        return wanted

    def free_host_bytes(self) -> int | None:
        return self.free

    def compile(self, source: Any, plan: Any) -> Any:
        return source

    def to_device(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.full(shape, np.nan, dtype)

    def poison(self, array: np.ndarray) -> None:
        array[...] = np.nan

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array

    def run(self, module: Any, plan: Any, arrays: Mapping[str, Any]) -> Execution:
        self.ran.append(plan)
        if self.error is not None:
            raise self.error
        arrays["O"][...], arrays["LSE"][...] = self.answer(self.problem)
        return Execution(COUNTERS, None, 0.25)

    def timing(self) -> None:
        return None


def run(variant: Any = None, backend: Any = None, problem: Problem = PROBLEM, gpu: Gpu = GPU, **options: Any) -> RunResult:
    return run_variant(variant or FakeVariant(), problem, TILING, gpu, backend or FakeBackend(), **options)


def test_a_good_run_fills_everything() -> None:
    result = run(keep_outputs=True)
    assert (result.status, result.sentence, result.ok, result.backend) == ("OK", "", True, "emu")
    m = result.metrics
    assert set(m) <= set(METRICS)
    assert (m["io/hbm_read_bytes"], m["io/hbm_write_bytes"], m["io/hbm_total_bytes"]) == (1536, 1536, 3072)
    assert m["io/times_ideal"] == 3072 / PROBLEM.ideal_bytes()
    assert m["io/sector_efficiency"] == 3072 / (32 * 144)
    assert (m["io/tensor/Q_read_bytes"], m["io/tensor/O_write_bytes"], m["io/model_bytes"]) == (1536, 1536, 3072)
    assert (m["ops/mul"], m["ops/ex2"], m["ops/rescale_mul"], m["ops/lane_efficiency"]) == (32, 5, 32, 1.0)
    assert (m["smem/wavefronts"], m["smem/bank_conflicts"], m["host/emulate_s"]) == (3, 1, 0.25)
    assert (m["res/smem_bytes"], m["res/spill_bytes"]) == (128, 0) and m["res/registers"] > 0
    assert m["err/ratio"] <= 1 and m["ops/flops"] == PROBLEM.flops()
    assert not any(name.startswith(("time/", "perf/")) for name in m)
    assert result.resources["copy"]["threads"] == 32
    assert [(t.name, t.counted_read, t.modelled_read, t.counted_write) for t in result.tensors] == [("Q", 1536, 1536, 0), ("O", 0, 0, 1536)]
    assert (
        len(result.tags["ptx_hash"]) == 16
        and result.tags["arch"] == "80"
        and "-lineinfo" in result.tags["options"]
        and len(result.tags["source_hash"]) == 16
    )
    assert set(result.texts) == {"copy.cu", "kernel.ptx", "nvrtc.log", "traffic.md"}
    assert result.outputs["O"].shape == PROBLEM.shape_q
    assert run().outputs == {}


def test_the_traffic_table_tells_equal_from_not_and_quotes_the_source() -> None:
    text = run().texts["traffic.md"]
    assert "| Q | 1,536 | 1,536 | 0 | 0 | 48 | 0 | yes |" in text
    assert "| copy.cu:3 | 1,536 | 0 | `s[threadIdx.x] = Q[threadIdx.x];  // HBM -> SMEM` |" in text
    wrong = FakeVariant()
    wrong.io = lambda problem, tiling: {"Q": (1000, 0), "O": (0, 1536), "S": (7, 7)}  # type: ignore[method-assign]
    text = run(wrong).texts["traffic.md"]
    assert "| Q | 1,536 | 1,000 | 0 | 0 | 48 | 0 | NO |" in text and "| S | 0 | 7 | 0 | 7 | 0 | 0 | NO |" in text


def test_invalid_is_a_row_with_the_reason_or_an_error() -> None:
    backend = FakeBackend()
    result = run(FakeVariant(reason="d=48 is not supported: choose 32 or 64"), backend)
    assert (result.status, result.sentence) == ("INVALID", "d=48 is not supported: choose 32 or 64")
    assert backend.ran == [] and result.metrics == {}
    with pytest.raises(InvalidConfiguration, match="copy: d=48"):
        run(FakeVariant(reason="d=48 is not supported"), raise_errors=True)


@pytest.mark.parametrize(
    ("gpu", "variant", "words"),
    [
        (Gpu("small", "80", 1, 100, 100), FakeVariant(shared_bytes=64), "copy needs 192 bytes of shared memory per CTA, small offers 100"),
        (Gpu("few", "80", 1, 9999, 9999, regs_sm=256), FakeVariant(threads=1024), r"registers per CTA .*1024 threads.*few has 256"),
        (Gpu("old", "60", 1, 9999, 9999), FakeVariant(), "gpu.arch=60 is not an architecture"),
    ],
)
def test_what_the_gpu_would_refuse_is_invalid_before_launch(gpu: Gpu, variant: FakeVariant, words: str) -> None:
    backend = FakeBackend()
    result = run(variant, backend, gpu=gpu)
    assert result.status == "INVALID" and backend.ran == []
    with pytest.raises((InvalidConfiguration, UsageError), match=words):
        run(variant, backend, gpu=gpu, raise_errors=True)


def test_what_this_hosts_memory_cannot_hold_is_invalid_before_any_work() -> None:
    arrays = 4 * 24 * 16 * 4 + 4 * 24  # Q, K, V, O and LSE in fp32, each byte with a shadow
    need = 2 * arrays + 8 * 6 * 24 * 16
    assert run(backend=FakeBackend(free=need)).ok
    backend = FakeBackend(free=need - 1)
    result = run(backend=backend)
    assert result.status == "INVALID" and backend.ran == []
    assert result.sentence == (
        "emulating and checking this problem takes about 0.0 GB of memory, and 0.0 GB are free: "
        "take a smaller problem.B, H or N, or a kernel without workspaces such as fa2"
    )
    with pytest.raises(InvalidConfiguration, match="GB are free"):
        run(backend=backend, raise_errors=True)


def test_memory_that_runs_out_all_the_same_is_a_row_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MemoryError("Unable to allocate 153. GiB")

    monkeypatch.setattr(FakeBackend, "empty", full)
    result = run()
    assert result.status == "OOM"
    assert result.sentence == "memory ran out (Unable to allocate 153. GiB): take a smaller problem.B, H or N"
    with pytest.raises(OutOfMemory, match="memory ran out"):
        run(raise_errors=True)


def test_a_source_that_does_not_compile(kernels: Path) -> None:
    (kernels / "copy.cu").write_text(KERNEL.replace("__syncthreads();", "__syncthreads()"))
    result = run()
    assert result.status == "COMPILE_ERROR" and "copy.cu:5:" in result.sentence
    assert "error" in result.texts["nvrtc.log"] and "copy.cu" in result.texts
    with pytest.raises(CompileError):
        run(raise_errors=True)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LaunchError("out of bounds, k.cu:7"), "RUNTIME_ERROR"),
        (Unsupported("no wgmma"), "UNSUPPORTED"),
        (Race("data race, k.cu:7"), "RACE"),
        (OutOfMemory("the tensors do not fit into GPU memory"), "OOM"),
    ],
)
def test_a_run_that_stops(error: RawflashError, status: str) -> None:
    result = run(backend=FakeBackend(error=error))
    assert (result.status, result.sentence) == (status, str(error))
    assert "kernel.ptx" in result.texts and result.metrics["res/registers"] > 0


def test_a_missing_kernel_is_named() -> None:
    result = run(FakeVariant(entry="fa9"))
    assert result.status == "RUNTIME_ERROR" and "copy.cu has no kernel 'fa9'; it has copy" in result.sentence


def test_a_wrong_result_is_incorrect_and_keeps_its_counts() -> None:
    def shifted(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        O, LSE = right(problem)
        return np.roll(O, 1, axis=2), LSE

    result = run(backend=FakeBackend(shifted))
    assert result.status == "INCORRECT" and "copy is wrong: O[" in result.sentence
    assert result.metrics["err/ratio"] > 1 and result.metrics["io/hbm_total_bytes"] == 3072
    with pytest.raises(CheckFailed):
        run(backend=FakeBackend(shifted), raise_errors=True)


def test_outputs_that_nobody_wrote_are_incorrect() -> None:
    result = run(backend=FakeBackend(lambda p: (np.full(p.shape_q, np.nan, np.float32), right(p)[1])))
    assert result.status == "INCORRECT" and math.isinf(result.metrics["err/ratio"])


@pytest.mark.parametrize("empty", [{"N": 0}, {"B": 0}, {"Nkv": 0}, {"H": 0}])
def test_an_empty_problem_launches_nothing_and_is_right(empty: dict[str, int]) -> None:
    problem = Problem(**{"H": 2, "N": 3, "d": 16, **empty})
    backend = FakeBackend()
    result = run(backend=backend, problem=problem, keep_outputs=True)
    assert result.ok and backend.ran == [] and "nothing to launch" in result.sentence
    assert (result.outputs["O"] == 0).all() and result.outputs["O"].shape == problem.shape_q
    assert np.isneginf(result.outputs["LSE"]).all() and result.outputs["LSE"].shape == problem.shape_lse
    assert result.metrics["io/hbm_total_bytes"] == 0


def test_given_inputs_replace_the_problems_own() -> None:
    inputs = {name: np.zeros_like(x) for name, x in make_inputs(PROBLEM).items()}
    zeros = FakeBackend(lambda p: (np.zeros(p.shape_q, np.float32), np.full(p.shape_lse, np.log(24), np.float32)))
    assert run(backend=zeros, inputs=inputs).ok
    assert not run(backend=zeros).ok


def test_inputs_of_another_form_are_refused_and_views_are_copied() -> None:
    good = make_inputs(PROBLEM)
    for name, wrong in (("V", good["V"][..., :8]), ("K", good["K"].astype(np.float64)), ("Q", None), ("Q", [1.0])):
        with pytest.raises(UsageError, match=f"the input {name} is"):
            run(inputs={**good, name: wrong}, raise_errors=True)
    view = np.ascontiguousarray(good["Q"].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    assert not view.flags.c_contiguous or PROBLEM.H == 1
    assert run(inputs={**good, "Q": view}).ok


# ---------------------------------------------------------------------------------------- timing, through the stand-in for CuPy
def on_fake_gpu(elapsed_ms: float = 5.0, wrong_after: int | None = None, problem: Problem = PROBLEM) -> tuple[RunResult, FakeCupy]:
    """Run on CupyBackend over FakeCupy; the kernel writes nothing any more after `wrong_after` launches."""
    launches: list[int] = []

    def kernel(Q: np.ndarray, O: np.ndarray, LSE: np.ndarray) -> None:
        launches.append(1)
        if wrong_after is None or len(launches) <= wrong_after:
            O[...], LSE[...] = right(problem)

    fake = FakeCupy({"copy": kernel}, elapsed_ms)
    return run(backend=CupyBackend(0, fake), problem=problem, timing=TimingConfig(warmup=2, repeats=3)), fake


def test_a_timed_run_reports_measured_figures_and_no_counts() -> None:
    result, fake = on_fake_gpu()
    assert result.ok, result.sentence
    m = result.metrics
    assert (m["time/gpu_ms_median"], m["time/gpu_ms_p20"], m["time/gpu_ms_p80"], m["time/gpu_ms_empty"]) == (5, 5, 5, 5)
    assert m["perf/tflops"] == pytest.approx(PROBLEM.flops() / 5e-3 / 1e12)
    assert m["perf/gb_s"] == pytest.approx(3072 / 5e-3 / 1e9)
    assert result.samples_ms == [5.0, 5.0, 5.0]
    assert "io/hbm_total_bytes" not in m and "ops/fma" not in m and result.tensors == []
    assert fake.log.count(("launch", "copy")) == 1 + 2 + 3
    assert result.tags["device"] == "Fake GPU 0" and result.tags["gpu"] == "Fake GPU 0"


@pytest.mark.parametrize("good_launches", [1, 3, 5])  # the check run, + warm-up, + all samples but the last
def test_what_the_last_sample_wrote_is_checked(good_launches: int) -> None:
    result, _ = on_fake_gpu(wrong_after=good_launches)
    assert result.status == "INCORRECT" and "time/gpu_ms_median" not in result.metrics and result.samples_ms == []


def test_an_impossible_time_is_refused() -> None:
    result, _ = on_fake_gpu(elapsed_ms=1e-9)
    assert result.status == "RUNTIME_ERROR" and "at peak rates" in result.sentence
    assert "time/gpu_ms_median" not in result.metrics
