"""What fa2_lazy does otherwise than fa2_pipe: when it rescales, what that saves, that nothing overflows, and how good its polynomial is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rawflash import emu
from rawflash.errors import CheckFailed, UsageError
from rawflash.execute import RunResult
from rawflash.paths import include_dir
from rawflash.problem import Problem, make_inputs, round_to
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import column, run
from tests.kernels_cu.mma import bits, small

LOG2_E = np.float32(1.44269504)
INF = np.inf


def lazy(problem: Problem, threshold: float | None = 8.0, polynomials: float = 0.0, inputs: Any = None) -> RunResult:
    """Run and compare with the float64 reference; raises CheckFailed."""
    return run("fa2_lazy", problem, Tiling(16, 16, lazy_threshold=threshold, poly_fraction=polynomials), inputs=inputs)


def scored(problem: Problem, scores: Any, values: Any = None) -> dict[str, NDArray[Any]]:
    """Inputs whose every row has these scores (with softmax_scale = 1) and these values."""
    drawn = np.random.default_rng(0).standard_normal(problem.shape_v[2:]) if values is None else values
    parts = {"Q": column(np.ones(problem.N), problem.d), "K": column(scores, problem.d), "V": np.broadcast_to(drawn, problem.shape_v[2:])}
    return {name: round_to(np.ascontiguousarray(x, np.float32), problem.dtype)[None, None] for name, x in parts.items()}


# ------------------------------------------------------------------------------------------------------------ switched off
def test_with_both_ideas_off_it_is_fa2_pipe() -> None:
    """The same bits, the same counts: what differs otherwise is due to the ideas."""
    problem = small(49, 70, causal="bottom_right")
    pipe, off = run("fa2_pipe", problem), lazy(problem, None)
    assert bits(pipe.outputs) == bits(off.outputs)
    for name in ("ops/ex2", "ops/rescale_mul", "ops/add", "io/hbm_total_bytes", "smem/wavefronts"):
        assert pipe.metrics[name] == off.metrics[name], name
    assert pipe.metrics["ops/instructions"] == pytest.approx(off.metrics["ops/instructions"], rel=0.1)  # where Q takes its sign differs


# ---------------------------------------------------------------------------------------------------------- when it rescales
RISES = {
    "just below, in every tile": np.arange(12) * 5.5,  # 7.93 in powers of 2: every second tile outgrows the threshold of 8
    "just above, in every tile": np.arange(12) * 5.5625,  # 8.02
    "the maximum last": np.r_[np.zeros(11), 40],
    "the maximum first": np.r_[40, np.zeros(11)],
    "by more than 2^8 at once, again and again": np.arange(12) * 60,
    "falling": -np.arange(12) * 5.5,
    "nothing but -inf at first": np.r_[np.full(5, -INF), np.arange(7) * 5.5],
    "very negative at first": np.r_[np.full(6, -60000), np.arange(6) * 30],
}


def rescales(maxima: Any, threshold: float) -> int:
    """Key tiles after the first one seen in which a row with these tile maxima is rescaled, by the header's rule in fp32."""
    m, times = np.float32(-INF), 0
    for top in np.asarray(maxima, np.float32):
        with np.errstate(invalid="ignore"):
            if LOG2_E * (max(m, top) - m) > threshold:
                times, m = times + (m > -INF), top
    return times


@pytest.mark.parametrize("threshold", [0.0, 8.0, 15.0])
@pytest.mark.parametrize("rise", RISES)
def test_it_rescales_exactly_where_the_header_says(rise: str, threshold: float) -> None:
    """16 rows of one warp have the same scores; right results, and as many multiplications as the rule gives."""
    problem = small(16, 16 * 12, softmax_scale=1.0)
    within = np.linspace(-3, 0, 16)[::-1]  # the maximum of a tile is its first key
    scores = np.add.outer(RISES[rise], within).ravel()
    found = lazy(problem, threshold, inputs=scored(problem, scores))
    maxima = round_to((RISES[rise]).astype(np.float32), "fp16")
    assert found.metrics["ops/rescale_mul"] == rescales(maxima, threshold) * (16 * 16 + 2 * 32)


def test_the_rises_tell_the_thresholds_apart() -> None:
    below, above = (RISES[f"just {side}, in every tile"] for side in ("below", "above"))
    assert (rescales(below, 8), rescales(above, 8), rescales(below, 0), rescales(below, 15)) == (5, 11, 11, 5)


def test_what_other_rows_see_changes_no_bit_of_a_row() -> None:
    """The vote takes the warp into the rescaling, where a row that has not outgrown its m is multiplied by 1."""
    problem = small(16, 96, softmax_scale=0.25)
    calm = {key: x.copy() for key, x in make_inputs(problem).items()}
    before = lazy(problem, inputs=calm)
    wild = {key: x.copy() for key, x in calm.items()}
    wild["Q"][0, 0, 5] *= 40
    after = lazy(problem, inputs=wild)
    others = np.arange(16) != 5
    assert before.metrics["ops/rescale_mul"] == 0 < after.metrics["ops/rescale_mul"]
    assert bits(before.outputs, others) == bits(after.outputs, others) and bits(before.outputs) != bits(after.outputs)


def test_two_strips_of_a_warp_give_the_bits_of_one() -> None:
    """Rows of both strips vote together; what a row is multiplied by depends on the row alone."""
    for N, more in ((32, {}), (49, {"causal": "bottom_right", "window_left": 29, "softmax_scale": -0.7})):
        problem = small(N, 70, **{"softmax_scale": 3.0, **more})
        one, two = (run("fa2_lazy", problem, Tiling(32, 16, warps=warps)) for warps in (2, 1))
        assert one.metrics["ops/rescale_mul"] > 0 and two.metrics["smem/requests"] < one.metrics["smem/requests"]
        assert bits(one.outputs) == bits(two.outputs)


def test_ordinary_inputs_are_never_rescaled() -> None:
    """What fa2_pipe multiplies in vain: N(0, 1) scores never grow by 2^8. Its exponentials of alpha are saved too."""
    problem = small(64, 64, softmax_scale=0.25)
    pipe, found = run("fa2_pipe", problem).metrics, lazy(problem).metrics
    assert (pipe["ops/rescale_mul"], found["ops/rescale_mul"]) == (4 * 4 * (16 * 16 + 64), 0)
    assert pipe["ops/ex2"] - found["ops/ex2"] == 4 * 4 * 64


# ---------------------------------------------------------------------------------------------------------------- overflow
@pytest.mark.parametrize(("dtype", "largest", "threshold"), [("fp16", 65504.0, 8.0), ("fp16", 65504.0, 15.0), ("bf16", 2.0**80, 15.0)])
def test_late_maxima_do_not_overflow(dtype: str, largest: float, threshold: float) -> None:
    """Weights just below 2^threshold, all of them at once, on the largest values: P, l and O stay finite."""
    problem = small(16, 160, dtype=dtype)
    top = np.floor(threshold / LOG2_E * 16) / 16
    scores = np.r_[np.zeros(16), np.full(144, top)]
    found = lazy(problem, threshold, inputs=scored(problem, scores, largest))
    assert found.metrics["ops/rescale_mul"] == 0 and np.isfinite(found.outputs["LSE"]).all()


@pytest.mark.parametrize(("dtype", "causal"), [("fp16", "none"), ("bf16", "bottom_right")])
def test_large_logits_of_polynomials_alone(dtype: str, causal: str) -> None:
    problem = small(33, 50, dtype=dtype, causal=causal)
    for factor in (1, 8, 30):
        inputs = {key: x.copy() for key, x in make_inputs(problem).items()}
        numbers = np.random.default_rng(factor).standard_normal(problem.shape_q).astype(np.float32) * factor
        inputs["Q"] = round_to(numbers, dtype)
        lazy(problem, 8.0, 1.0, inputs)


@pytest.mark.parametrize("polynomials", [0.0, 1.0])
@pytest.mark.parametrize("at", [0, 20, 40])
def test_nan_and_infinities_wherever_they_stand(at: int, polynomials: float) -> None:
    """In the first tile, later, last; before and after scores that count. A NaN does not hide behind the clamp of the polynomial."""
    problem = small(16, 41)
    for wild in (np.nan, INF, -INF):
        scores = np.linspace(-2, 30, 41)
        scores[at] = wild
        found = lazy(problem, 8.0, polynomials, scored(problem, scores)).outputs["LSE"]
        assert np.isnan(found).all() == (wild != -INF)
    nothing = lazy(problem, 8.0, polynomials, scored(problem, np.full(41, -INF))).outputs
    assert (nothing["O"] == 0).all() and (nothing["LSE"] == -INF).all()


# ------------------------------------------------------------------------------------------------------------- polynomials
@pytest.mark.parametrize(("fraction", "of_four"), [(0.0, 0), (0.25, 1), (0.6, 2), (1.0, 4)])
def test_a_share_of_the_exponentials_leaves_the_sfu(fraction: float, of_four: int) -> None:
    """A lane has Bc / 4 = 4 exponentials of a row and tile; floor(4 * fraction) of them are polynomials."""
    found = lazy(small(16, 32), 8.0, fraction)
    assert found.metrics["ops/ex2"] == 2 * 16 * 16 * (4 - of_four) / 4


@pytest.fixture(scope="module")
def exponentials() -> Any:
    """x -> what the header's polynomial gives, on the emulator."""
    kernel = emu.RawModule(path=f"{__file__.rpartition('/')[0]}/exp2.cu", options=(f"-I{include_dir()}",)).get_function("exponentials")

    def powers(x: Any, degree: int) -> NDArray[np.float32]:
        x = np.ascontiguousarray(x, np.float32)
        y = np.empty_like(x)
        kernel((-(-x.size // 256),), (256,), (x, y, np.int32(x.size), np.int32(degree)))
        return y

    return powers


degrees = pytest.mark.parametrize("degree", [3, 4, 5])


@degrees
def test_the_polynomial_against_float64(degree: int, exponentials: Any) -> None:
    """Every 2^-9th of a unit in [-126, 127), every 2^-14th around 0, floats of every size: the published worst error, and no more."""
    x = np.concatenate([np.arange(-126, 127, 1 / 512) + np.random.default_rng(1).random() / 512, np.arange(-2, 2, 2.0**-14)])
    sizes = np.float32(2.0) ** np.arange(-149, 6)
    x = np.concatenate([x, sizes, -sizes, 1.37 * sizes, -1.37 * sizes]).astype(np.float32)
    error = np.abs(exponentials(x, degree) / np.exp2(x.astype(np.float64)) - 1).max()
    published = {3: 8.77e-5, 4: 3.05e-6, 5: 1.44e-7}[degree]  # FlashAttention-4, table 2
    assert 0.95 * published < error < 1.002 * published
    assert (exponentials(np.arange(-126, 128), degree) == 2.0 ** np.arange(-126, 128)).all()


@degrees
def test_the_polynomial_where_floats_end(degree: int, exponentials: Any) -> None:
    """Flushed to zero below 2^-126, as ex2.approx.ftz does; -inf is 0, exactly; NaN stays; subnormal x is 0."""
    below = np.concatenate([-126 - np.linspace(2.0**-16, 30, 999), [-INF, -1e30, -3.4e38]])
    assert (exponentials(below, degree) == 0).all()
    assert np.isnan(exponentials([np.nan, -np.nan], degree)).all()
    assert (exponentials([0.0, -0.0, 1e-45, -1e-45, 1e-39], degree) == 1).all()


def test_lse_is_as_good_as_plain_attentions() -> None:
    """Small scores, of which plain attention loses nothing: an error of 2^-13 in the weights would show (and does, with degree 3)."""
    problem = small(49, 70, softmax_scale=2.0**-11)
    assert lazy(problem, 8.0, 1.0).metrics["err/lse_max_abs"] < 5e-6
    with pytest.raises(CheckFailed, match="LSE"):
        run("fa2_lazy", problem, Tiling(16, 16, poly_fraction=1.0, poly_degree=3))


# ----------------------------------------------------------------------------------------------------------------- options
@pytest.mark.parametrize(
    ("knob", "told"),
    [
        ({"lazy_threshold": 16.0}, "kernel.lazy_threshold=16.0 is not usable: give a number from 0 to 15, or null"),
        ({"lazy_threshold": -1.0}, "kernel.lazy_threshold=-1.0"),
        ({"lazy_threshold": np.nan}, "kernel.lazy_threshold=nan"),
        ({"poly_fraction": 1.5}, "kernel.poly_fraction=1.5 is not usable: give a number from 0 to 1"),
        ({"poly_fraction": None}, "kernel.poly_fraction=null"),
        ({"poly_degree": 2}, "kernel.poly_degree=2 is not usable: give 3, 4 or 5"),
    ],
)
def test_a_knob_that_cannot_be_meant_is_a_sentence(knob: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        Tiling(64, 64, **knob)
    assert str(caught.value).startswith(told)


def test_the_knobs_reach_the_compiler() -> None:
    plan = LADDER["fa2_lazy"].plan(Problem(), Tiling(64, 64, lazy_threshold=3, poly_fraction=0.126, poly_degree=5))
    assert [plan.defines[f"RF_{knob}"] for knob in ("LAZY_THRESHOLD", "POLY_PERCENT", "POLY_DEGREE")] == ["3.0f", 13, 5]
