"""Every metric that rawflash writes: name, unit, provenance, meaning. No other module invents a metric name.

Provenance keeps four kinds of number apart:

    measured    a clock or a sensor of a GPU, or (group host/) this machine's wall clock
    counted     exact, from executing the kernel's PTX in the emulator, or read from the compiler
    modelled    a formula: closed-form IO, nominal FLOPs
    checked     error against the float64 reference

Names have slash groups and end in their unit. A modelled time never appears under time/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rawflash.errors import RawflashError

__all__ = ["METRICS", "PIPES", "SAMPLES", "TENSORS", "Better", "Metric", "metric", "series_name", "tensor_metrics", "validate"]

Provenance = Literal["measured", "counted", "modelled", "checked"]
Better = Literal["lower", "higher", "neither"]

# Tensors that a variant may move through HBM: inputs, outputs, workspaces.
TENSORS = ("Q", "K", "V", "O", "LSE", "S", "P", "P_drop", "Z", "m", "l", "O_part", "ml_part")
# Execution pipes of an SM, by the emulator's table (rawflash/emu/traffic/pipes.py).
PIPES = ("tensor", "fma", "fp16", "fp64", "imad", "alu", "sfu", "cvt", "lsu", "shuffle", "branch", "barrier", "other")


@dataclass(frozen=True)
class Metric:
    """One number of a run. `unit` is "" for a plain count or a ratio."""

    name: str
    unit: str
    provenance: Provenance
    meaning: str

    @property
    def better(self) -> Better:
        """Which way this number is better, other things equal; "neither" for what describes the request or the machine."""
        return _BETTER_APART.get(self.name, _BETTER[self.name.partition("/")[0]])


# Which way is better: by group, then the names that are apart from their group.
_BETTER: dict[str, Better] = {
    **dict.fromkeys(("io", "smem", "ops", "slots", "err", "res", "time"), "lower"),
    "perf": "higher",
    **dict.fromkeys(("gpu", "host"), "neither"),  # what the machine was doing
}
_BETTER_APART: dict[str, Better] = {
    **dict.fromkeys(("io/sector_efficiency", "ops/lane_efficiency"), "higher"),
    **dict.fromkeys(("io/ideal_bytes", "ops/flops", "err/baseline", "err/tolerance", "err/lse_tolerance", "time/gpu_ms_empty"), "neither"),
}
# The series of raw samples behind time/gpu_ms_median: step = number of the sample.
SAMPLES = "time/gpu_ms_sample"

_ROWS: tuple[tuple[str, str, Provenance, str], ...] = (
    ("io/hbm_read_bytes", "bytes", "counted", "bytes the kernels ask of HBM, reads (the papers' model: no cache)"),
    ("io/hbm_write_bytes", "bytes", "counted", "bytes the kernels ask of HBM, writes"),
    ("io/hbm_total_bytes", "bytes", "counted", "io/hbm_read_bytes + io/hbm_write_bytes"),
    ("io/times_ideal", "", "counted", "io/hbm_total_bytes / io/ideal_bytes"),
    ("io/read_sectors", "sectors", "counted", "32-byte sectors touched by read requests"),
    ("io/write_sectors", "sectors", "counted", "32-byte sectors touched by write requests"),
    ("io/sector_efficiency", "", "counted", "bytes asked / (32 * sectors): 1 when every touched sector is used once in full"),
    ("io/ideal_bytes", "bytes", "modelled", "Q, K, V read once and O written once"),
    ("io/model_bytes", "bytes", "modelled", "the variant's closed-form HBM bytes, reads + writes"),
    ("smem/bytes", "bytes", "counted", "shared-memory bytes read + written by the threads"),
    ("smem/requests", "requests", "counted", "warp-wide shared-memory instructions"),
    ("smem/wavefronts", "wavefronts", "counted", "passes through shared memory that these requests took"),
    ("smem/bank_conflicts", "wavefronts", "counted", "wavefronts beyond the ideal"),
    ("ops/flops", "flop", "modelled", "nominal 2*B*H*(d + dv)*visible_pairs (masked pairs not counted)"),
    ("ops/fma", "ops", "counted", "fused multiply-adds, thread instructions"),
    ("ops/mul", "ops", "counted", "multiplications, thread instructions"),
    ("ops/add", "ops", "counted", "additions and subtractions, thread instructions"),
    ("ops/ex2", "ops", "counted", "exponentials (ex2.approx), thread instructions"),
    ("ops/div", "ops", "counted", "divisions, thread instructions"),
    ("ops/rcp", "ops", "counted", "reciprocals, thread instructions"),
    ("ops/cvt", "ops", "counted", "conversions, thread instructions"),
    ("ops/rescale_mul", "ops", "counted", "multiplications on .cu lines tagged // [rescale], thread instructions"),
    ("ops/instructions", "ops", "counted", "all thread instructions"),
    ("ops/barriers", "barriers", "counted", "barriers passed, per warp"),
    ("ops/lane_efficiency", "", "counted", "thread instructions / (32 * warp instructions)"),
    ("err/max_abs", "", "checked", "max |O - float64 reference|"),
    ("err/baseline", "", "checked", "max |naive in the same dtype - float64 reference|"),
    ("err/tolerance", "", "checked", "2 * err/baseline + 1e-5: the most that err/max_abs may be"),
    ("err/ratio", "", "checked", "err/max_abs / err/tolerance: above 1 fails"),
    ("err/lse_max_abs", "", "checked", "max |LSE - float64 reference| over rows that see a key"),
    ("err/lse_tolerance", "", "checked", "the most that err/lse_max_abs may be"),
    ("res/registers", "registers", "counted", "registers per thread by ptxas, most of all kernels of the variant"),
    ("res/smem_bytes", "bytes", "counted", "static + dynamic shared memory per CTA, most of all kernels of the variant"),
    ("res/spill_bytes", "bytes", "counted", "spill stores + spill loads by ptxas, summed over the kernels of the variant"),
    ("res/stack_bytes", "bytes", "counted", "stack frame per thread by ptxas, most of all kernels of the variant"),
    ("time/gpu_ms_median", "ms", "measured", "median time of all launches of the variant between two CUDA events, L2 flushed before"),
    ("time/gpu_ms_p20", "ms", "measured", "20th percentile of the same samples"),
    ("time/gpu_ms_p80", "ms", "measured", "80th percentile of the same samples"),
    (SAMPLES, "ms", "measured", "the samples of time/gpu_ms_median one by one: step = number of the sample (a list shows the last)"),
    ("time/gpu_ms_empty", "ms", "measured", "median of an empty kernel by the same protocol: what a launch alone costs"),
    ("perf/tflops", "TFLOP/s", "measured", "ops/flops / time/gpu_ms_median"),
    ("perf/gb_s", "GB/s", "measured", "io/model_bytes / time/gpu_ms_median (modelled bytes over measured time)"),
    ("gpu/sm_clock_mhz", "MHz", "measured", "SM clock just after timing"),
    ("gpu/mem_clock_mhz", "MHz", "measured", "memory clock just after timing"),
    ("gpu/power_w", "W", "measured", "board power just after timing"),
    ("gpu/temperature_c", "C", "measured", "GPU temperature just after timing"),
    ("gpu/throttle_reasons", "bits", "measured", "NVML's throttle reasons just after timing, as a bit mask (0: none)"),
    ("host/emulate_s", "s", "measured", "wall clock of the emulated launches on this CPU (no GPU time)"),
    ("host/cpu_s", "s", "measured", "CPU time of this process for the reference, compiling, running and checking, all threads"),
    ("host/compile_s", "s", "measured", "wall clock from source to loaded module on this CPU (tag compile_cached tells a cached one)"),
)


def _tensor_rows() -> list[Metric]:
    return [
        Metric(f"io/tensor/{tensor}_{verb}_bytes", "bytes", "counted", f"bytes of {tensor} that the kernels {verb} in HBM")
        for tensor in TENSORS
        for verb in ("read", "write")
    ]


def _pipe_rows() -> list[Metric]:
    return [
        Metric(f"slots/{pipe}", "slots", "counted", f"issue slots: warp instructions of PTX that the pipe {pipe} executes")
        for pipe in PIPES
    ]


METRICS: dict[str, Metric] = {row.name: row for row in [*(Metric(*row) for row in _ROWS), *_tensor_rows(), *_pipe_rows()]}


def metric(name: str) -> Metric:
    """The metric called `name`. Raises RawflashError for a name that is not in METRICS."""
    if name not in METRICS:
        raise RawflashError(f"no metric is called {name!r}; every metric has a row in rawflash/metrics.py, add one there")
    return METRICS[name]


def tensor_metrics(tensor: str) -> tuple[str, str]:
    """Names of a tensor's (read, write) byte metrics. Raises RawflashError for a tensor that is not in TENSORS."""
    names = (f"io/tensor/{tensor}_read_bytes", f"io/tensor/{tensor}_write_bytes")
    if tensor not in TENSORS:
        raise RawflashError(f"no metric counts the bytes of a tensor called {tensor!r}; add the name to TENSORS in rawflash/metrics.py")
    return names


def series_name(name: str, label: str) -> str:
    """Name of the curve of a metric over a swept number in a sweep's parent run: io/times_ideal/fa2, or .../fa2 fp16.

    `label` says which curve; what MLflow takes in no name becomes "-". Raises RawflashError for a name that is not in METRICS.
    """
    return f"{metric(name).name}/{re.sub(r'[^A-Za-z0-9_. :-]', '-', label)}"[:250]


def validate(values: dict[str, float]) -> dict[str, float]:
    """Return `values` unchanged if every key is a metric; raise RawflashError otherwise."""
    for name in values:
        metric(name)
    return values
