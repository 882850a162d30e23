"""The timing protocol on a clock that the test controls, and the refusal of impossible results."""

from collections.abc import Callable, Iterator

import pytest

from rawflash.backends.base import Timing
from rawflash.bench import TimingConfig, measure, refuse_impossible
from rawflash.errors import LaunchError, UsageError
from rawflash.problem import Problem
from rawflash.roofline import Gpu, floor_ms

GPU = Gpu("A100", "80", 108, 166912, 167936, hbm_gb_s=2000, fp16_tflops=312, fp32_tflops=19.5)


class Clock:
    """A Timer that hands out given milliseconds and counts what was run."""

    def __init__(self, work_ms: Iterator[float], empty_ms: float = 0.002) -> None:
        self.work_ms, self.empty_ms, self.empties = work_ms, empty_ms, 0

    def time_ms(self, work: Callable[[], object]) -> float:
        before = self.empties
        work()
        return self.empty_ms if self.empties > before else next(self.work_ms)

    def empty(self) -> None:
        self.empties += 1

    def sensors(self) -> dict[str, float]:
        return {"gpu/sm_clock_mhz": 1410.0}


# Case B05.
def test_warm_up_is_thrown_away_and_samples_are_kept() -> None:
    runs = []
    found = measure(lambda: runs.append(1), Clock(iter([215.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0])), TimingConfig(warmup=2, repeats=5))
    assert found.samples_ms == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert (found.median_ms, found.p20_ms, found.p80_ms) == (3.0, pytest.approx(1.8), pytest.approx(4.2))
    assert (found.empty_ms, found.sensors, len(runs)) == (0.002, {"gpu/sm_clock_mhz": 1410.0}, 7)


# Case B08.
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_an_error(bad: float) -> None:
    with pytest.raises(LaunchError, match="did not enclose the kernels"):
        measure(lambda: None, Clock(iter([1.0, 1.0, bad])), TimingConfig(warmup=1, repeats=2))


@pytest.mark.parametrize("config", [{"warmup": 0}, {"repeats": 0}, {"warmup": -1}])
def test_no_warm_up_or_no_sample_is_refused(config: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least one warm-up"):
        TimingConfig(**config)


def timing(ms: float) -> Timing:
    return Timing((ms,), ms, ms, ms, 0.002)


# Case B01.
def test_a_result_faster_than_the_roofline_is_refused() -> None:
    problem = Problem(B=8, H=16, N=4096, d=64)
    floor = floor_ms(problem, GPU)
    refuse_impossible(timing(floor * 1.01), problem, GPU)
    with pytest.raises(LaunchError, match=r"measured .* ms, but A100 cannot"):
        refuse_impossible(timing(floor * 0.99), problem, GPU)
    refuse_impossible(timing(1e-9), problem, Gpu("unknown rates", "80", 1, 1, 1))
