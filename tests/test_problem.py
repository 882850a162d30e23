"""Problem: validation sentences, mask and work counting against brute force, inputs, bf16 storage."""

import math
from typing import Any

import numpy as np
import pytest

from rawflash.errors import UsageError
from rawflash.problem import CAUSAL, DISTRIBUTIONS, Problem, make_inputs, round_to, to_f64


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("N", -1), ("N", 48.5), ("N", "abc"), ("N", True), ("B", -3), ("d", 0), ("Nkv", -1), ("Hkv", 2.0), ("seed", -1), ("seed", None)],
        *[("dtype", "int8"), ("dtype", None), ("causal", "diagonal"), ("causal", 1.5), ("distribution", "cauchy")],
        *[("dv", 0), ("layout", "nbhd"), ("layout", None)],
        *[("softmax_scale", math.inf), ("softmax_scale", math.nan), ("softmax_scale", "big"), ("softmax_scale", True)],
        *[("window_left", -2), ("window_left", 1.5), ("window_right", "all"), ("window_right", True)],
        *[("softcap", -1), ("softcap", math.inf), ("softcap", 1e-30), ("softcap", "big"), ("softcap", True)],
    ],
)
def test_a_wrong_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"problem.{field}="):
        Problem(**{field: value})


@pytest.mark.parametrize(("H", "Hkv"), [(3, 2), (33, 2), (2, 3), (4, 0)])
def test_heads_that_do_not_divide_are_refused_by_both_numbers(H: int, Hkv: int) -> None:
    with pytest.raises(UsageError, match=rf"H={H} .*Hkv={Hkv}"):
        Problem(H=H, Hkv=Hkv)


def test_defaults_follow_the_other_fields() -> None:
    p = Problem(H=6, N=17)
    assert (p.Hkv, p.Nkv, p.scale) == (6, 17, 0.125)
    assert (Problem(d=48).dv, Problem(d=48).shape_o) == (48, Problem(d=48).shape_q)
    assert Problem(d=100).scale == pytest.approx(0.1)
    assert Problem(causal=True).causal == "bottom_right"
    assert Problem(causal=False).causal == "none"


@pytest.mark.parametrize("scale", [0.0, 0, -1.0, 1e-3])
def test_any_finite_scale_is_taken(scale: float) -> None:
    assert Problem(softmax_scale=scale).scale == scale


def brute_force_mask(p: Problem) -> np.ndarray:
    i, j = np.indices((p.N, p.Nkv))
    mask = {"none": j >= 0, "bottom_right": j - i <= p.Nkv - p.N, "top_left": j <= i}[str(p.causal)]
    diagonal = i if p.causal == "top_left" else i + p.Nkv - p.N
    mask &= True if p.window_left is None else j >= diagonal - p.window_left
    return mask & (True if p.window_right is None else j <= diagonal + p.window_right)


def test_limits_that_are_off_have_several_names() -> None:
    assert Problem(window_left=-1, window_right=-1, softcap=0) == Problem(window_left=None, window_right=None, softcap=None) == Problem()


# Case B10.
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize(("N", "Nkv"), [(1, 1), (5, 2), (2, 5), (7, 7), (1, 20), (3, 0), (0, 3), (64, 100)])
def test_pairs_and_flops_equal_counting_the_mask(causal: str, N: int, Nkv: int) -> None:
    for left, right in ((None, None), (3, None), (None, 2), (0, 0), (2, 70), (200, 1)):
        p = Problem(B=2, H=3, N=N, Nkv=Nkv, d=8, causal=causal, window_left=left, window_right=right)
        mask, (begin, end) = brute_force_mask(p), p.visible()
        for i, row in enumerate(mask):
            assert np.flatnonzero(row).tolist() == list(range(begin[i], end[i]))
        assert (np.diff(begin) >= 0).all() and (np.diff(end) >= 0).all()
        assert p.visible_keys().tolist() == mask.sum(1).tolist()
        assert p.visible_pairs() == mask.sum()
        assert p.flops() == 4 * 2 * 3 * 8 * mask.sum()


def test_pairs_of_a_billion_rows_are_counted_without_an_array() -> None:
    N = 10**15
    assert Problem(N=N, causal=True).visible_pairs() == N * (N + 1) // 2
    assert Problem(N=N, causal=True, window_left=255).visible_pairs() == 256 * N - 255 * 256 // 2
    assert Problem(N=N, Nkv=7, causal="top_left").visible_pairs() == 7 * N - 21


# Case B10.
def test_flops_of_known_causal_problems() -> None:
    assert Problem(N=4096, causal=True).visible_pairs() == 4096 * 4097 // 2
    assert Problem(N=1, Nkv=4096, causal=True).visible_pairs() == 4096
    assert Problem(N=5, Nkv=2, causal=True).visible_pairs() == 3


# Case B11.
def test_ideal_bytes() -> None:
    assert Problem(B=1, H=1, N=8192, d=128, dtype="bf16").ideal_bytes() == 8388608
    assert Problem(B=1, H=1, N=2, Nkv=3, d=8, dv=24, dtype="fp32").ideal_bytes() == (2 * 8 + 3 * 8 + 3 * 24 + 2 * 24) * 4
    p = Problem(B=2, H=4, Hkv=2, N=3, Nkv=5, d=8, dtype="fp32")
    assert p.ideal_bytes() == (2 * 2 * 4 * 3 * 8 + 2 * 2 * 2 * 5 * 8) * 4


# Case C16.
@pytest.mark.parametrize("empty", [{"B": 0}, {"H": 0}, {"N": 0}, {"Nkv": 0}])
def test_empty_problems_need_no_launch(empty: dict[str, int]) -> None:
    p = Problem(**empty)  # type: ignore[arg-type]
    assert p.needs_no_launch
    assert p.flops() == 0
    assert make_inputs(p)["Q"].shape == p.shape_q


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_inputs_depend_on_the_problem_alone(dtype: str) -> None:
    p = Problem(B=2, H=4, Hkv=2, N=5, Nkv=3, d=8, dtype=dtype, seed=3)
    one, two = make_inputs(p), make_inputs(p)
    assert {name: x.shape for name, x in one.items()} == {"Q": (2, 4, 5, 8), "K": (2, 2, 3, 8), "V": (2, 2, 3, 8)}
    for name in one:
        assert one[name].dtype == p.numpy_dtype
        np.testing.assert_array_equal(one[name], two[name])
    assert not np.array_equal(one["K"], one["V"])
    assert not np.array_equal(one["Q"], make_inputs(Problem(B=2, H=4, N=5, d=8, dtype=dtype, seed=4))["Q"])


# Case B06.
@pytest.mark.parametrize("distribution", list(DISTRIBUTIONS))
def test_every_distribution_is_finite(distribution: str) -> None:
    p = Problem(N=4, d=8, dtype="bf16", distribution=distribution)
    assert all(np.isfinite(to_f64(x, "bf16")).all() for x in make_inputs(p).values())


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        *[(1.01953125, 0x3F82), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (3.3961776e38, 0x7F80)],
        *[(-0.0, 0x8000), (np.inf, 0x7F80), (-np.inf, 0xFF80), (np.nan, 0x7FC0)],
    ],
)
def test_bf16_rounds_to_nearest_even(value: float, bits: int) -> None:
    assert round_to(np.array([value], np.float32), "bf16").tolist() == [bits]


def test_bf16_agrees_with_every_pattern_and_is_idempotent() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    numbers = to_f64(bits, "bf16")
    np.testing.assert_array_equal(round_to(numbers, "bf16")[~np.isnan(numbers)], bits[~np.isnan(numbers)])


def test_a_view_is_decoded_like_its_copy() -> None:
    x = round_to(np.random.default_rng(0).standard_normal((4, 6)), "bf16")
    np.testing.assert_array_equal(to_f64(x.T[::2], "bf16"), to_f64(x.T[::2].copy(), "bf16"))
