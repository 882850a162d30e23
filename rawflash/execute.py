"""One variant on one problem, from plan to result: the path that every number of rawflash takes.

    refuse -> plan -> compile -> arrays -> run -> check -> count -> time -> check again -> refuse what cannot be true

A bad point of a sweep is a result with a status and a sentence, not a crash; `raise_errors=True` gives the typed error instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawflash import metrics
from rawflash.backends.base import Backend, KernelCounters, TensorTraffic, bind_plan
from rawflash.bench import TimingConfig, measure, refuse_impossible
from rawflash.check import CheckResult, Expected, compare, expect, inputs_and_expected
from rawflash.compile import CompiledSource, Resources, compile_source
from rawflash.counted import TensorBytes, counter_metrics, tensor_table, traffic_markdown
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
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.source import Source, read_source

if TYPE_CHECKING:
    from rawflash.tiling import Tiling
    from rawflash.variants import Launch, Plan, Variant

__all__ = ["RunResult", "invalid_reason", "run_variant"]

# The first class that fits decides the status.
_STATUS: tuple[tuple[type[RawflashError], str], ...] = (
    (InvalidConfiguration, "INVALID"),
    (UsageError, "INVALID"),
    (CompileError, "COMPILE_ERROR"),
    (Unsupported, "UNSUPPORTED"),
    (Race, "RACE"),
    (OutOfMemory, "OOM"),
    (LaunchError, "RUNTIME_ERROR"),
    (CheckFailed, "INCORRECT"),
)


@dataclass
class RunResult:
    """What one run of one variant gave.

    status     OK, INVALID, INCORRECT, COMPILE_ERROR, RUNTIME_ERROR, RACE, OOM or UNSUPPORTED; `sentence` says why it is not OK,
               or that nothing had to be launched
    metrics    names of rawflash.metrics only; what a backend cannot know is absent, never zero
    tensors    bytes per tensor, counted beside modelled
    resources  kernel -> registers, static and dynamic shared memory, spills, stack
    texts      file name -> text: the .cu and its headers, kernel.ptx, nvrtc.log, traffic.md, emulator.log if it said anything
    outputs    O and LSE, kept on request only
    """

    variant: str
    problem: Problem
    tiling: Tiling
    backend: str
    status: str = "OK"
    sentence: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    tensors: list[TensorBytes] = field(default_factory=list)
    samples_ms: list[float] = field(default_factory=list)
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == "OK"


def invalid_reason(variant: Variant, problem: Problem, tiling: Tiling, gpu: Gpu, backend: Backend) -> str | None:
    """Why `variant` cannot run this here, in a sentence that names the way out, or None: its own word, then this host's memory."""
    free = backend.free_host_bytes()
    inputs, O = sum(map(math.prod, (problem.shape_q, problem.shape_k, problem.shape_v))), math.prod(problem.shape_o)
    # Storage type twice, here and in the emulator; float64: Q, K, V, and O of the reference, the baseline and the result.
    needed = 2 * inputs * problem.itemsize + 8 * (inputs + 3 * O)
    if free is None or problem.needs_no_launch or needed <= free:  # else not even a plan is made: it may hold arrays of length N
        reason = variant.invalid_reason(problem, tiling, gpu)
        if reason or free is None or problem.needs_no_launch:
            return reason
        buffers = variant.plan(problem, tiling).buffers.values()
        needed += 2 * sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in buffers)
        if needed <= free:
            return None
    return (
        f"emulating and checking this problem takes about {needed / 1e9:,.1f} GB of memory, "
        f"and {free / 1e9:,.1f} GB are free: take a smaller problem.B, H or N, or a kernel without workspaces such as fa2"
    )


def run_variant(
    variant: Variant,
    problem: Problem,
    tiling: Tiling,
    gpu: Gpu,
    backend: Backend,
    *,
    timing: TimingConfig | None = None,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    keep_outputs: bool = False,
    raise_errors: bool = False,
) -> RunResult:
    """Run `variant` on `problem` and report everything that can be known about it.

    `gpu` gives the limits and the architecture on the emulator; a real device answers for itself. `inputs` (Q, K, V in storage
    type) replaces the problem's own. With `raise_errors` a failure is raised as its RawflashError instead of told by the status.
    BackendUnavailable is always raised: it is not about this point.
    """
    gpu, started = backend.gpu(gpu), time.process_time()
    run = _Run(variant, problem, replace(tiling, sms=gpu.sms), gpu, backend)
    try:
        run.refuse()
        run.prepare(dict(inputs) if inputs is not None else None)
        if problem.needs_no_launch:
            run.without_launch()
        else:
            run.compile()
            run.execute()
            run.time(timing or TimingConfig())
    except MemoryError as error:
        short = OutOfMemory(f"memory ran out ({error}): take a smaller problem.B, H or N")
        if raise_errors:
            raise short from error
        run.result.status, run.result.sentence = "OOM", str(short)
    except tuple(kind for kind, _ in _STATUS) as error:
        if raise_errors:
            raise
        run.result.status = next(status for kind, status in _STATUS if isinstance(error, kind))
        run.result.sentence = error.reason if isinstance(error, InvalidConfiguration) else str(error)
        if isinstance(error, CompileError):
            run.result.texts["nvrtc.log"] = error.log
    if run.result.metrics:
        run.result.metrics["host/cpu_s"] = time.process_time() - started
    if keep_outputs:
        run.result.outputs = run.outputs
    metrics.validate(run.result.metrics)
    return run.result


class _Run:
    """The steps of run_variant; each one writes what it learns into `result`, so that a failure keeps what came before."""

    def __init__(self, variant: Variant, problem: Problem, tiling: Tiling, gpu: Gpu, backend: Backend) -> None:
        self.variant, self.problem, self.tiling, self.gpu, self.backend = variant, problem, tiling, gpu, backend
        self.result = RunResult(variant.name, problem, tiling, backend.name)
        self.outputs: dict[str, NDArray[Any]] = {}
        self.o_writes = 1.0
        self.S_roundings = 0
        self.plan: Plan
        self.source: Source
        self.inputs: dict[str, NDArray[Any]]
        self.expected: Expected

    def refuse(self) -> None:
        """Tags and modelled figures, then the variant's own word on this configuration."""
        self.result.tags.update(self.backend.describe(), arch=self.gpu.arch, gpu=self.gpu.name)
        reason = invalid_reason(self.variant, self.problem, self.tiling, self.gpu, self.backend)
        if reason:
            raise InvalidConfiguration(self.variant.name, reason)
        self.source = read_source(self.variant.file)
        self.result.tags["source_hash"] = self.source.hash
        self.result.texts[self.source.name] = self.source.text
        self.result.texts.update({path.name: text for path, text in self.source.includes})

    def prepare(self, inputs: dict[str, NDArray[Any]] | None) -> None:
        """Inputs, and what a right variant would return on them."""
        if inputs is None:
            self.inputs, self.expected = inputs_and_expected(self.problem)
        else:
            self._check_form(inputs)
            self.inputs, self.expected = inputs, expect(self.problem, inputs)
        self.result.metrics["ops/flops"] = float(self.problem.flops())
        self.result.metrics["io/ideal_bytes"] = float(self.problem.ideal_bytes())

    def _check_form(self, inputs: dict[str, NDArray[Any]]) -> None:
        """UsageError when given inputs do not have the problem's shapes and storage type. Views are fine: they are copied."""
        for name, shape in (("Q", self.problem.shape_q), ("K", self.problem.shape_k), ("V", self.problem.shape_v)):
            x = inputs.get(name)
            if not isinstance(x, np.ndarray) or x.shape != shape or x.dtype != self.problem.numpy_dtype:
                got = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
                raise UsageError(f"the input {name} is {got}; this problem takes {self.problem.numpy_dtype} of shape {shape}")

    def without_launch(self) -> None:
        """No output row or no key: the result is known, and no grid of zero CTAs is launched."""
        O = np.zeros(self.problem.shape_o, self.problem.numpy_dtype)
        self._check(O, np.full(self.problem.shape_lse, -np.inf, np.float32))
        self._count(KernelCounters({}, TensorTraffic(), 0, 0, 0, 0, {}, 0, 0, 0), {})
        self.result.sentence = "nothing to launch: the problem has no query, no head or no key"

    def compile(self) -> None:
        """Source -> PTX -> module, with resource figures."""
        started = time.perf_counter()
        self.plan = self.variant.plan(self.problem, self.tiling)
        self.result.tags.update((name, str(value)) for name, value in self.plan.chosen.items())
        compiled = compile_source(self.source, self.plan.defines, self.gpu.arch)
        self.result.texts["kernel.ptx"] = compiled.ptx
        self.result.texts["nvrtc.log"] = compiled.log
        self.result.tags.update(
            nvrtc=compiled.nvrtc,
            options=" ".join(compiled.options),
            ptx_hash=compiled.ptx_hash,
            compile_cached=str(compiled.cached).lower(),
        )
        self._resources(compiled)
        self.module = self.backend.compile(compiled, self.plan)
        self.result.metrics["host/compile_s"] = time.perf_counter() - started

    def _resources(self, compiled: CompiledSource) -> None:
        """Registers, shared memory and spills per kernel; refuse what the GPU would refuse at launch."""
        for launch in self.plan.launches:
            figures = compiled.resources.get(launch.entry)
            if figures is None:
                known = ", ".join(compiled.resources) or "none"
                raise LaunchError(f'{self.source.name} has no kernel {launch.entry!r}; it has {known} (is it extern "C"?)')
            reason = _does_not_fit(launch, figures, self.gpu)
            if reason:
                raise InvalidConfiguration(self.variant.name, reason)
            self.result.resources[launch.entry] = {
                "registers": figures.registers,
                "smem_static": figures.smem_bytes,
                "smem_dynamic": launch.shared_bytes,
                "spills": figures.spill_bytes,
                "stack": figures.stack_bytes,
                "threads": math.prod(launch.cta),
            }
        rows = list(self.result.resources.values())
        self.result.metrics["res/registers"] = float(max(row["registers"] for row in rows))
        self.result.metrics["res/smem_bytes"] = float(max(row["smem_static"] + row["smem_dynamic"] for row in rows))
        self.result.metrics["res/spill_bytes"] = float(sum(row["spills"] for row in rows))
        self.result.metrics["res/stack_bytes"] = float(max(row["stack"] for row in rows))

    def execute(self) -> None:
        """Run once on poisoned outputs; count, then check."""
        self.arrays = {name: self.backend.to_device(np.ascontiguousarray(self.problem.stored(x))) for name, x in self.inputs.items()}
        self.arrays.update({name: self.backend.empty(shape, np.dtype(dtype)) for name, (shape, dtype) in self.plan.buffers.items()})
        self.S_roundings = self.plan.S_roundings
        execution = self.backend.run(self.module, self.plan, self.arrays)
        modelled = self.variant.io(self.problem, self.tiling)
        self.o_writes = modelled.get("O", (0, 0))[1] / (math.prod(self.problem.shape_o) * self.problem.itemsize)
        self.result.metrics["io/model_bytes"] = float(sum(read + write for read, write in modelled.values()))
        if execution.counters is not None:
            self.result.metrics["host/emulate_s"] = execution.host_s
            self._count(execution.counters, modelled)
        self._check_outputs()

    def _count(self, counters: KernelCounters, modelled: Mapping[str, tuple[int, int]]) -> None:
        self.result.metrics.update(counter_metrics(counters, self.problem, self.source))
        if counters.notes:
            self.result.texts["emulator.log"] = "\n".join(counters.notes) + "\n"
        self.result.tensors = tensor_table(counters, modelled)
        self.result.texts["traffic.md"] = traffic_markdown(
            self.variant.name, self.problem, self.tiling, self.result.tensors, counters, self.source
        )

    def _poison_outputs(self) -> None:
        for name in ("O", "LSE"):
            self.backend.poison(self.arrays[name])

    def _check_outputs(self) -> None:
        O = self.problem.stored(self.backend.to_host(self.arrays["O"]))
        self._check(O, self.backend.to_host(self.arrays["LSE"]))

    def _check(self, O: NDArray[Any], LSE: NDArray[Any]) -> None:
        """Compare with the reference; the errors become metrics whether or not they pass."""
        self.outputs = {"O": O, "LSE": LSE}
        found: CheckResult = compare(O, LSE, self.problem, expected=self.expected, o_writes=self.o_writes, S_roundings=self.S_roundings)
        self.result.metrics.update(
            {
                "err/max_abs": found.err,
                "err/baseline": found.baseline_err,
                "err/tolerance": found.tol,
                "err/ratio": found.ratio,
                "err/lse_max_abs": found.lse_err,
                "err/lse_tolerance": found.lse_tol,
            }
        )
        if not found.ok:
            raise CheckFailed(f"{self.variant.name} is wrong: {found.sentence}")

    def time(self, config: TimingConfig) -> None:
        """Time on a device that has a clock; outputs are poisoned before each sample, and what the last one wrote is checked."""
        opened = self.backend.timing()
        if opened is None:
            return
        with opened as timer:
            launches = bind_plan(self.module, self.plan, self.arrays)
            found = measure(lambda: [launch() for launch in launches], timer, config, self._poison_outputs)
        self._check_outputs()
        refuse_impossible(found, self.problem, self.gpu)
        self.result.samples_ms = list(found.samples_ms)
        seconds = found.median_ms / 1e3
        self.result.metrics.update(
            {
                "time/gpu_ms_median": found.median_ms,
                "time/gpu_ms_p20": found.p20_ms,
                "time/gpu_ms_p80": found.p80_ms,
                "time/gpu_ms_empty": found.empty_ms,
                "perf/tflops": self.problem.flops() / seconds / 1e12,
                "perf/gb_s": self.result.metrics["io/model_bytes"] / seconds / 1e9,
                **found.sensors,
            }
        )


def _does_not_fit(launch: Launch, figures: Resources, gpu: Gpu) -> str | None:
    """Why one CTA of this launch does not fit on an SM of `gpu`, in a sentence, or None: known only after compilation."""
    threads, smem = math.prod(launch.cta), figures.smem_bytes + launch.shared_bytes
    # Registers are handed out to warps, in units of 256 (CUDA occupancy rules for compute capability 7.0 and later).
    registers = -(-figures.registers * 32 // 256) * 256 * -(-threads // 32)
    if registers > gpu.regs_sm:
        return (
            f"{launch.entry} needs {registers} registers per CTA ({figures.registers} for each of {threads} threads), "
            f"{gpu.name} has {gpu.regs_sm}: take a smaller block_size"
        )
    if smem > gpu.smem_block_bytes:
        return (
            f"{launch.entry} needs {smem} bytes of shared memory per CTA, {gpu.name} offers {gpu.smem_block_bytes}: "
            "take a smaller block_size"
        )
    return None
