"""What the tests of this folder share: run a variant on the emulator, with inputs of the test's own."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.backends.emulated import EmulatedBackend
from rawflash.compile import CompiledSource
from rawflash.emu import EmuParams
from rawflash.execute import RunResult, run_variant
from rawflash.problem import Problem, round_to, to_f64
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER, Plan

A100 = Gpu(name="A100", arch="80", sms=108, smem_block_bytes=166912, smem_sm_bytes=167936)
# The tensor-core rungs take no fp32, in which most tests of this folder speak: theirs are in test_fa2_mma.py and test_mma_edge_cases.py.
VARIANTS = tuple(name for name, variant in LADDER.items() if "fp32" in variant.dtypes)
SMALL = Tiling(16, 16)


class _Remembering(EmulatedBackend):
    """Keeps the modules of a session: many tests run one compilation on different numbers."""

    def __init__(self, params: EmuParams | None) -> None:
        super().__init__(params)
        self.modules: dict[tuple[Any, ...], Any] = {}

    def compile(self, source: CompiledSource, plan: Plan) -> Any:
        key = (source.ptx, source.arch, tuple((launch.entry, launch.cta) for launch in plan.launches))
        if key not in self.modules:
            self.modules[key] = super().compile(source, plan)
        return self.modules[key]


@cache
def backend(params: EmuParams | None = None) -> EmulatedBackend:
    """One backend per set of parameters."""
    return _Remembering(params)


def run(
    name: str, problem: Problem, tiling: Tiling = SMALL, params: EmuParams | None = None, inputs: dict[str, NDArray[Any]] | None = None
) -> RunResult:
    """Run, check against the float64 reference (raises CheckFailed) and return everything, outputs included."""
    return run_variant(LADDER[name], problem, tiling, A100, backend(params), inputs=inputs, keep_outputs=True, raise_errors=True)


def outputs(name: str, problem: Problem, q: Any, k: Any, v: Any, tiling: Tiling = SMALL) -> tuple[NDArray[Any], NDArray[Any]]:
    """O (as float64) and LSE of a variant on inputs that are broadcast to the problem's shapes; checked against the reference."""
    shapes = {"Q": problem.shape_q, "K": problem.shape_k, "V": problem.shape_v}
    given = {"Q": q, "K": k, "V": v}
    inputs = {
        tensor: np.ascontiguousarray(round_to(np.broadcast_to(np.asarray(given[tensor], np.float32), shape), problem.dtype))
        for tensor, shape in shapes.items()
    }
    found = run(name, problem, tiling, inputs=inputs).outputs
    return to_f64(found["O"], problem.dtype), found["LSE"]


def column(values: Any, d: int) -> NDArray[np.float32]:
    """[len, d]: the values in component 0, zeros elsewhere. A dot product with column([1], d) reads them back."""
    out = np.zeros((len(values), d), np.float32)
    out[:, 0] = values
    return out


def mismatches(result: RunResult) -> list[str]:
    """Tensors whose counted bytes differ from the modelled ones."""
    return [
        f"{t.name}: counted {t.counted_read}/{t.counted_write}, modelled {t.modelled_read}/{t.modelled_write}"
        for t in result.tensors
        if (t.counted_read, t.counted_write) != (t.modelled_read, t.modelled_write)
    ]
