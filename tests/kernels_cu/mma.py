"""What the tests of the tensor-core rungs share: which they are, small problems that fit them, launches of altered sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rawflash.backends.base import launch_plan
from rawflash.compile import compile_source
from rawflash.emu import EmuParams
from rawflash.problem import Problem
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100, backend

RUNGS = ("fa2_mma", "fa2_pipe", "fa2_lazy")
every_rung = pytest.mark.parametrize("name", RUNGS)


def small(N: int, Nkv: int, **more: Any) -> Problem:
    """One head, d = 16: all tests that can use it share one compilation per type and mask."""
    return Problem(**{"B": 1, "H": 1, "N": N, "Nkv": Nkv, "d": 16, "dtype": "fp16", "softmax_scale": 1.0, **more})


def bits(found: dict[str, NDArray[Any]], rows: Any = slice(None)) -> tuple[bytes, bytes]:
    return found["O"][0, 0, rows].tobytes(), found["LSE"][0, 0, rows].tobytes()


def launch(name: str, problem: Problem, inputs: Any, tiling: Tiling, params: EmuParams | None = None, source: Any = None) -> Any:
    """Run a source that may differ from the variant's own, on arrays that may be views."""
    plan, device = LADDER[name].plan(problem, tiling), backend(params)
    module = device.compile(compile_source(source or read_source(LADDER[name].file), plan.defines, A100.arch), plan)
    arrays = {key: device.empty(shape, np.dtype(kind)) for key, (shape, kind) in plan.buffers.items()}
    arrays.update({key: x if getattr(x, "base", None) is not None else device.to_device(x) for key, x in inputs.items()})
    launch_plan(module, plan, arrays)
    return {key: np.array(arrays[key]) for key in ("O", "LSE")}
