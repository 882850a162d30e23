"""Better, worse, same or too noisy to tell: the rule, on numbers made for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rawflash.metrics import METRICS
from rawflash.verdict import LEAST_SAMPLES, judge, ratio_interval

BYTES, FLOPS, TIME, RATE = (METRICS[n] for n in ("io/hbm_total_bytes", "ops/flops", "time/gpu_ms_median", "perf/tflops"))


def samples(median: float, scatter: float, count: int = 50, seed: int = 0) -> list[float]:
    """Times with a given median, and quartiles `scatter` (relative) apart from it."""
    return list(median * (1 + scatter * np.random.default_rng(seed).standard_normal(count)))


@pytest.mark.parametrize(
    ("name", "value", "base", "word", "ratio"),
    [
        ("io/hbm_total_bytes", 8650752.0, 8650752.0, "same", 1.0),
        ("io/hbm_total_bytes", 8650751.0, 8650752.0, "better", 8650751 / 8650752),
        ("io/hbm_total_bytes", 8650753.0, 8650752.0, "worse", 8650753 / 8650752),
        ("io/sector_efficiency", 0.9, 0.8, "better", 1.125),
        ("ops/flops", 3.0, 2.0, "higher", 1.5),
        ("err/ratio", 0.5, 0.4, "worse", 1.25),
        ("smem/bank_conflicts", 0.0, 0.0, "same", 1.0),
        ("smem/bank_conflicts", 5.0, 0.0, "worse", None),
        ("smem/bank_conflicts", 0.0, 5.0, "better", 0.0),
        ("gpu/sm_clock_mhz", 1400.0, 1980.0, "", 1400 / 1980),
        ("host/compile_s", 1.0, 2.0, "", 0.5),
    ],
)
def test_numbers_that_do_not_scatter_compare_exactly(name: str, value: float, base: float, word: str, ratio: float | None) -> None:
    found = judge(METRICS[name], value, base)
    assert (found.word, found.ratio) == (word, ratio)


@pytest.mark.parametrize(("value", "base"), [(None, 1.0), (1.0, None), (math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (1.0, -math.inf)])
def test_m18_what_is_absent_or_no_number_has_no_verdict(value: float | None, base: float | None) -> None:
    found = judge(BYTES, value, base)
    assert found.word == "" and found.ratio is None and found.why


@pytest.mark.parametrize(
    ("factor", "scatter", "time", "rate"),
    [
        (0.9, 0.02, "better", "better"),
        (1.1, 0.02, "worse", "worse"),
        (1.0, 0.001, "same", "same"),
        (1.002, 0.001, "same", "same"),  # surely slower, by less than the clocks may account for
        (1.0, 0.2, "too noisy to tell", "too noisy to tell"),
        (1.03, 0.3, "too noisy to tell", "too noisy to tell"),
    ],
)
def test_times_are_judged_by_their_samples(factor: float, scatter: float, time: str, rate: str) -> None:
    mine, theirs = samples(factor, scatter, seed=1), samples(1.0, scatter, seed=2)
    medians = float(np.median(mine)), float(np.median(theirs))
    found = judge(TIME, *medians, mine, theirs)
    assert found.word == time and found.interval is not None and found.interval[0] <= medians[0] / medians[1] <= found.interval[1]
    speed = judge(RATE, 1 / medians[0], 1 / medians[1], mine, theirs)
    assert speed.word == rate and speed.interval is not None
    assert speed.interval == pytest.approx((1 / found.interval[1], 1 / found.interval[0]))


def test_few_samples_tell_nothing() -> None:
    few = samples(1.0, 0.001, LEAST_SAMPLES - 1)
    found = judge(TIME, 2.0, 1.0, [2 * x for x in few], few)
    assert (found.word, found.ratio) == ("too noisy to tell", 2.0) and "fewer than" in found.why
    assert judge(TIME, 2.0, 1.0).word == "too noisy to tell"


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    """40 pairs of samples whose true medians are in the ratio 1.05; two of them may be missed on average, ten never are."""
    hits = 0
    for seed in range(40):
        low, high = ratio_interval(samples(1.05, 0.1, 30, 2 * seed), samples(1.0, 0.1, 30, 2 * seed + 1))
        hits += low <= 1.05 <= high
    assert hits >= 34
    assert ratio_interval([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == ratio_interval([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
