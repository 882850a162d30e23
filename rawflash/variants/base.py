"""What a variant is: a source, a launch plan, limits, and a closed form of its HBM bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rawflash.io_model import TensorIO, hbm_bytes
from rawflash.problem import DTYPES, Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling

__all__ = ["Launch", "Plan", "Variant"]

# A rule looks at (problem, tiling, gpu) and says in one sentence why the variant cannot run it, or None.
Rule = Callable[[Problem, Tiling, Gpu], str | None]

MOST_CTAS = 2**31 - 1  # grid.x of every CUDA GPU


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `args` are tensor names or NumPy scalars, in the order of the kernel's parameters."""

    entry: str
    grid: tuple[int, int, int]
    cta: tuple[int, int, int]
    shared_bytes: int
    args: tuple[str | np.generic, ...]


@dataclass(frozen=True)
class Plan:
    """How to run a variant once.

    defines   macros for the compiler
    buffers   name -> (shape, dtype) of what must be allocated: O, LSE and workspaces; nothing needs to be cleared
    launches  in order, on one stream
    chosen    fields of the tiling that the plan chose by itself, and what they became
    S_roundings  how often the scores are rounded to the storage type: 0 where they stay float
    """

    defines: dict[str, str | int]
    buffers: dict[str, tuple[tuple[int, ...], np.dtype]]
    launches: tuple[Launch, ...]
    S_roundings: int = 0
    chosen: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """A rung of the ladder. `changed` says what is new since the rung above and what it does to the bytes.

    dtypes       storage types of Q, K, V and O that the kernels take
    packs_heads  the query heads of a kv head are worked on together, so that they are no multiple of one alone
    knobs        fields of Tiling that it heeds besides Br and Bc
    """

    name: str
    file: str
    title: str
    changed: str
    entry_points: tuple[str, ...]
    make_plan: Callable[[Problem, Tiling], Plan]
    rules: tuple[Rule, ...]
    dtypes: tuple[str, ...] = tuple(DTYPES)
    packs_heads: bool = False
    knobs: tuple[str, ...] = ()

    def plan(self, problem: Problem, tiling: Tiling) -> Plan:
        """Launches, macros and buffers for a problem that invalid_reason accepts and that needs a launch."""
        return self.make_plan(problem, tiling)

    def io(self, problem: Problem, tiling: Tiling) -> TensorIO:
        """Modelled HBM bytes: {tensor: (read, written)}."""
        return hbm_bytes(self.name, problem, tiling)

    def smem_bytes(self, problem: Problem, tiling: Tiling) -> int:
        """Shared-memory bytes per CTA, most of all kernels of the variant."""
        return max(launch.shared_bytes for launch in self.plan(problem, tiling).launches)

    def invalid_reason(self, problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
        """One sentence that says why this cannot run on `gpu` and what would, or None when it can."""
        if problem.dtype not in self.dtypes:
            return (
                f"dtype={problem.dtype} is not supported: {self.name} takes {' or '.join(self.dtypes)}; set one of them or another kernel"
            )
        for rule in self.rules:
            reason = rule(problem, tiling, gpu)
            if reason:
                return reason
        return None if problem.needs_no_launch else self._launch_limit(problem, tiling, gpu)

    def _launch_limit(self, problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
        for launch in self.plan(problem, tiling).launches:
            if launch.shared_bytes > gpu.smem_block_bytes:
                return (
                    f"{launch.entry} needs {launch.shared_bytes} bytes of shared memory per CTA for Br={tiling.Br}, Bc={tiling.Bc}, "
                    f"d={problem.d}, dv={problem.dv}; {gpu.name} offers {gpu.smem_block_bytes}: take a smaller block_size"
                )
            if launch.grid[0] > MOST_CTAS:
                return (
                    f"{launch.entry} needs a grid of {launch.grid[0]} CTAs, CUDA allows {MOST_CTAS}: "
                    "take a larger block_size or split the batch"
                )
        return None
