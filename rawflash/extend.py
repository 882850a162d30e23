"""Counts of problems that are too long to execute: executed on a few tiles, extended by the polynomial that they must follow.

A head without a mask does the same work for every query tile, so each count is a line in N: two points give it, a third tests it. With a
mask and N = Nkv it is at most a parabola in the number of tiles, from where the problem is longer than the window: three points, a fourth
for the test. Heads are alike. Where the test fails (work that depends on the data, or on whole rows as in naive's masked softmax), the
result says that it is not exact. What a plan chooses by itself is chosen for the whole problem. Kernels are executed, not checked:
execute.py does that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from rawflash.compile import Resources, compile_source
from rawflash.errors import InvalidConfiguration, UsageError
from rawflash.problem import Problem, make_inputs
from rawflash.source import read_source
from rawflash.tiling import Tiling, ceil_div
from rawflash.work import Counts, flat_counts

if TYPE_CHECKING:
    from rawflash.backends.base import Backend
    from rawflash.roofline import Gpu
    from rawflash.variants import Variant

__all__ = ["Extended", "count_head", "extended_counts"]

_FIRST_MASKED = 2  # a single tile has no tile left of the diagonal


@dataclass(frozen=True)
class Extended:
    """Counts of all heads of a problem. `exact`: executed, or extended by a polynomial that the test point confirms.

    resources   kernel -> what ptxas says of it
    """

    counts: Counts
    exact: bool
    executed_N: tuple[int, ...]
    resources: dict[str, Resources]


def count_head(variant: Variant, problem: Problem, tiling: Tiling, gpu: Gpu, backend: Backend) -> tuple[Counts, dict[str, Resources]]:
    """Execute one head of `problem`, or the heads that `variant` packs, and count. Raises InvalidConfiguration when it refuses them."""
    reason = variant.invalid_reason(problem, tiling, gpu)
    if reason:
        raise InvalidConfiguration(variant.name, reason)
    head = replace(problem, B=1, H=_together(variant, problem), Hkv=1)
    plan = variant.plan(head, tiling)
    compiled = compile_source(read_source(variant.file), plan.defines, gpu.arch)
    module = backend.compile(compiled, plan)
    arrays = {name: backend.to_device(x) for name, x in make_inputs(head).items()}
    arrays |= {name: backend.empty(shape, np.dtype(dtype)) for name, (shape, dtype) in plan.buffers.items()}
    counters = backend.run(module, plan, arrays).counters
    if counters is None:
        raise UsageError(f"backend={backend.name} counts nothing: take backend=emu")
    return flat_counts(counters), compiled.resources


def extended_counts(variant: Variant, problem: Problem, tiling: Tiling, gpu: Gpu, backend: Backend) -> Extended:
    """Counts of `problem`, executed in full when it is short. Raises UsageError for a long one whose N no tile divides."""
    if reason := variant.invalid_reason(problem, tiling, gpu):
        raise InvalidConfiguration(variant.name, reason)
    tiling = replace(tiling, **variant.plan(problem, replace(tiling, sms=gpu.sms)).chosen)
    heads = problem.B * problem.H // _together(variant, problem)
    points = _points(problem, tiling)
    found: dict[int, Counts] = {}
    resources: dict[str, Resources] = {}
    for N in points or (problem.N,):
        found[N], resources = count_head(variant, _shortened(problem, N), tiling, gpu, backend)
    if not points:
        return Extended(_times(found[problem.N], heads), True, (problem.N,), resources)
    *base, test = points
    exact = _through(base, found, test) == found[test]
    counts = _through(base if exact else points[-len(base) :], found, problem.N)
    return Extended(_times(counts, heads), exact, points, resources)


def _together(variant: Variant, problem: Problem) -> int:
    """Query heads that are worked on together."""
    return problem.H // problem.Hkv if variant.packs_heads else 1


def _shortened(problem: Problem, N: int) -> Problem:
    return replace(problem, N=N, Nkv=N if problem.masked else problem.Nkv)


def _points(problem: Problem, tiling: Tiling) -> tuple[int, ...]:
    """Values of N to execute, the last one for the test; () to execute the problem itself."""
    masked = problem.masked
    step = math.lcm(tiling.Br, tiling.Bc) if masked else tiling.Br
    first, base = (_FIRST_MASKED + ceil_div(sum(limit or 0 for limit in problem.limits), step), 3) if masked else (1, 2)
    points = tuple(step * (first + i) for i in range(base + 1))
    if points[-1] >= problem.N:
        return ()
    if problem.N % step:
        raise UsageError(
            f"problem.N={problem.N} is too long to execute and no multiple of {step}, so its counts cannot be extended: "
            f"take N={problem.N // step * step}"
        )
    if masked and problem.Nkv != problem.N:
        raise UsageError(f"with a mask counts are extended where N = Nkv only, not N={problem.N}, Nkv={problem.Nkv}: take a shorter one")
    return points


def _through(points: Sequence[int], found: dict[int, Counts], N: int) -> Counts:
    """Value at N of the polynomials through the counts at `points` (Lagrange, in whole numbers)."""
    names = dict.fromkeys(name for point in points for name in found[point])
    weights = {a: math.prod((Fraction(N - b, a - b) for b in points if b != a), start=Fraction(1)) for a in points}
    return {name: round(sum(weight * found[a].get(name, 0) for a, weight in weights.items())) for name in names}


def _times(counts: Counts, heads: int) -> Counts:
    return {name: n * heads for name, n in counts.items()}
