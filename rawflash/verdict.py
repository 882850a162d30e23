"""Is one run better than another in one metric? A rule per kind of number, and no verdict where there can be none.

    counted, modelled, checked   numbers that do not scatter: they are compared exactly
    measured, with samples       the 95 % bootstrap interval of the ratio of the two medians (or percentiles):
                                     all of it below 1, and the ratio at most 1 - MARGIN     lower
                                     all of it above 1, and the ratio at least 1 + MARGIN    higher
                                     all of it within 1 +- MARGIN                            same
                                     else                                                    too noisy to tell
    measured, without samples    too noisy to tell
    measured, neither better nor worse (clocks, temperatures, host times)    no verdict

The interval knows the scatter within a run, not that between two runs (clocks, temperature); MARGIN is what may be due to
those. Bootstrap: B. Efron, R. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13 (percentile intervals).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rawflash.metrics import Metric

__all__ = ["LEAST_SAMPLES", "MARGIN", "RULE", "Verdict", "Word", "judge", "ratio_interval"]

Word = Literal["better", "worse", "same", "too noisy to tell", "lower", "higher", ""]

MARGIN = 0.01
LEAST_SAMPLES = 8
RESAMPLES = 2000
RULE = (
    f"counted, modelled and checked numbers are compared exactly; measured ones by the 95 % bootstrap interval of the ratio of their "
    f"samples' medians: apart from 1 by {MARGIN:.0%} and more is better or worse, all within {MARGIN:.0%} is same, else too noisy to tell"
)
# Which percentile of the samples a metric is, and whether it goes with the time (+1) or against it (-1).
_OF_SAMPLES = {
    "time/gpu_ms_median": (50, 1),
    "time/gpu_ms_p20": (20, 1),
    "time/gpu_ms_p80": (80, 1),
    "perf/tflops": (50, -1),
    "perf/gb_s": (50, -1),
}


@dataclass(frozen=True)
class Verdict:
    """`word` "" when there is no verdict; `ratio` is value / baseline (None when it has none); `interval` its 95 % interval.

    For a metric that is neither better nor worse (a clock rate), a difference is told as lower or higher.
    """

    word: Word
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    why: str = ""


def judge(m: Metric, value: float | None, base: float | None, samples: Sequence[float] = (), base_samples: Sequence[float] = ()) -> Verdict:
    """Compare `value` with `base` in the metric `m`. Samples in ms belong to the two runs, for metrics that come from them."""
    if value is None or base is None:
        return Verdict("", why="" if value is base else "only one of the two has it")
    if not (math.isfinite(value) and math.isfinite(base)):
        return Verdict("", why="not a finite number")
    ratio = value / base if base else (1.0 if value == base else None)
    if m.provenance != "measured":
        return Verdict("same" if value == base else _word(m, value < base), ratio)
    if m.better == "neither":
        return Verdict("", ratio)
    if m.name not in _OF_SAMPLES:
        return Verdict("too noisy to tell", ratio, why="it is read once")
    if min(len(samples), len(base_samples)) < LEAST_SAMPLES:
        return Verdict("too noisy to tell", ratio, why=f"fewer than {LEAST_SAMPLES} samples are stored")
    return _timed(m, ratio, samples, base_samples)


def _word(m: Metric, lower: bool) -> Word:
    if m.better == "neither":
        return "lower" if lower else "higher"
    return "better" if lower == (m.better == "lower") else "worse"


def _timed(m: Metric, ratio: float | None, samples: Sequence[float], base_samples: Sequence[float]) -> Verdict:
    percentile, power = _OF_SAMPLES[m.name]
    low, high = ratio_interval(samples, base_samples, percentile)
    times = float(np.percentile(samples, percentile) / np.percentile(base_samples, percentile))
    shown = (low, high) if power > 0 else (1 / high, 1 / low)
    if high < 1 and times <= 1 - MARGIN:
        return Verdict(_word(m, power > 0), ratio, shown)
    if low > 1 and times >= 1 + MARGIN:
        return Verdict(_word(m, power < 0), ratio, shown)
    if low >= 1 - MARGIN and high <= 1 + MARGIN:
        return Verdict("same", ratio, shown)
    return Verdict("too noisy to tell", ratio, shown, f"the ratio of the times lies in {low:.3f} to {high:.3f}")


def ratio_interval(samples: Sequence[float], base_samples: Sequence[float], percentile: float = 50) -> tuple[float, float]:
    """95 % bootstrap interval of percentile(samples) / percentile(base_samples). Deterministic: its own generator, seed 0."""
    draw = np.random.default_rng(0)
    both = []
    for values in (np.asarray(samples, float), np.asarray(base_samples, float)):
        both.append(np.percentile(values[draw.integers(0, len(values), (RESAMPLES, len(values)))], percentile, axis=1))
    low, high = np.percentile(both[0] / both[1], (2.5, 97.5))
    return float(low), float(high)
