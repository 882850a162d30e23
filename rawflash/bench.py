"""The timing protocol: check, then warm up, then time with a flushed L2, then refuse what cannot be true.

Every sample is all launches of one run between two CUDA events, with twice the L2 size written before the first event. Reported are
the median and the 20th and 80th percentiles, with the raw samples; beside them the time of an empty kernel, so that a number
that is mostly launch overhead can be told. Outputs are poisoned before every sample (untimed), so that the check after timing
judges what the last timed sample wrote. A result faster than the device's roofline is refused, not reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rawflash.backends.base import Timer, Timing
from rawflash.errors import LaunchError, UsageError
from rawflash.problem import Problem
from rawflash.roofline import Gpu, floor_ms

__all__ = ["TimingConfig", "measure", "refuse_impossible"]


@dataclass(frozen=True)
class TimingConfig:
    """How often: `warmup` runs that are thrown away, then `repeats` samples."""

    warmup: int = 10
    repeats: int = 50

    def __post_init__(self) -> None:
        if self.warmup < 1 or self.repeats < 1:
            raise UsageError(
                f"timing needs at least one warm-up run and one sample, not warmup={self.warmup} and repeats={self.repeats}: "
                "a first run holds module loading and page faults"
            )


def measure(work: Callable[[], object], timer: Timer, config: TimingConfig, prepare: Callable[[], object] = lambda: None) -> Timing:
    """Time `work` (which enqueues all launches of one run) on `timer`; `prepare` runs before each sample, untimed."""

    def sample() -> float:
        prepare()
        return timer.time_ms(work)

    for _ in range(config.warmup):
        sample()
    samples = tuple(sample() for _ in range(config.repeats))
    sensors = timer.sensors()
    for _ in range(config.warmup):
        timer.time_ms(timer.empty)
    empty = float(np.median([timer.time_ms(timer.empty) for _ in range(config.repeats)]))
    if not all(np.isfinite(samples)) or min(samples) <= 0:
        raise LaunchError(f"the GPU's events gave a time of {min(samples)} ms, so they did not enclose the kernels; nothing was timed")
    p20, median, p80 = (float(x) for x in np.percentile(samples, (20, 50, 80)))
    return Timing(samples, median, p20, p80, empty, sensors)


def refuse_impossible(timing: Timing, problem: Problem, gpu: Gpu) -> None:
    """Raise LaunchError when the median is below what the device could do at its peak rates."""
    floor = floor_ms(problem, gpu)
    if timing.median_ms < floor:
        raise LaunchError(
            f"measured {timing.median_ms:.4g} ms, but {gpu.name} cannot do this problem in less than {floor:.4g} ms at peak rates: "
            "the kernels did not do their work, or the gpu description is not that of this device"
        )
