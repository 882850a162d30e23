"""Where a paper's own numbers do not agree with themselves, found by counting and recomputing; and what was checked and agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rawflash.experiments import _traps_fa1 as fa1
from rawflash.experiments import _traps_later as later
from rawflash.lab import Experiment, Lab, Row

__all__ = ["CHECKS", "EXPERIMENT"]

Check = Callable[[Lab], Iterable[Row]]
_FUNCTIONS: tuple[Check, ...] = (
    *(fa1.fig2_flops, fa1.fig2_time, fa1.fig8, fa1.repeats, fa1.fig1),
    *(later.algorithm1, later.training, later.top_rates, later.halves, later.hopper, later.blackwell, later.sparse),
)
CHECKS: dict[str, Check] = {function.__name__: function for function in _FUNCTIONS}


def _cases(lab: Lab) -> Sequence[Any]:
    return list(CHECKS)


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    yield from CHECKS[case](lab)


EXPERIMENT = Experiment(
    title="Where papers disagree with themselves",
    claim="Every printed number follows from the others that the same paper prints.",
    source="FlashAttention, -2, -3 and -4, and data sheets",
    rows=_rows,
    cases=_cases,
    notes=("DIFFERS: a contradiction, whose explanation stands beside it. REPRODUCED: recomputed, and it agrees.",),
)
