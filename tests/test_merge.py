"""merge_partials: any number of parts, in any grouping, is attention over all keys [cases A28, A29]."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import rawflash
from rawflash import merge_partials
from rawflash.errors import UsageError
from rawflash.problem import Problem, make_inputs
from rawflash.reference import attention_f64

PROBLEM = Problem(B=2, H=2, N=3, Nkv=10, d=4, dtype="fp32")


def in_parts(cuts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Attention over the keys between neighbouring cuts: O [parts, B, H, N, d], LSE [parts, B, H, N]."""
    x = make_inputs(PROBLEM)
    bounds = [0, *cuts, PROBLEM.Nkv]
    parts = []
    for lo, hi in pairwise(bounds):
        piece = Problem(B=2, H=2, N=3, Nkv=hi - lo, d=4, dtype="fp32")
        parts.append(attention_f64(x["Q"], x["K"][:, :, lo:hi], x["V"][:, :, lo:hi], piece))
    return np.stack([O for O, _ in parts]), np.stack([LSE for _, LSE in parts])


def whole() -> tuple[np.ndarray, np.ndarray]:
    x = make_inputs(PROBLEM)
    return attention_f64(x["Q"], x["K"], x["V"], PROBLEM)


@pytest.mark.parametrize("cuts", [[], [4], [0, 4], [1, 2, 9], [10], [0, 0, 5, 5, 10], list(range(1, 10))])
def test_parts_give_the_whole(cuts: list[int]) -> None:
    """A28: keys 0..3 and 4..9, and any other cut, empty parts included."""
    O, LSE = merge_partials(*in_parts(cuts))
    np.testing.assert_allclose(O, whole()[0], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(LSE, whole()[1], rtol=1e-13)


def test_random_cuts_and_groupings() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        O, LSE = in_parts(sorted(rng.integers(0, 11, size=rng.integers(1, 6)).tolist()))
        order, middle = rng.permutation(len(LSE)), rng.integers(0, len(LSE) + 1)
        groups = [merge_partials(O[part], LSE[part]) for part in (order[:middle], order[middle:])]
        again = merge_partials(np.stack([o for o, _ in groups]), np.stack([s for _, s in groups]))
        for got, want in zip(again, whole(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-15)


def test_a_part_that_saw_nothing_has_no_weight_whatever_it_holds() -> None:
    """A29: with an ordinary part the result is that part; with its like it is O = 0 and LSE = -inf, never NaN."""
    O, LSE = in_parts([])
    for left_over in (0.0, np.nan, np.inf):
        both = np.concatenate([O, np.full_like(O, left_over)]), np.concatenate([LSE, np.full_like(LSE, -np.inf)])
        assert all((got == part[0]).all() for got, part in zip(merge_partials(*both), (O, LSE), strict=True))
        O_none, LSE_none = merge_partials(np.full((2, 3, 4), left_over), np.full((2, 3), -np.inf))
        assert (O_none == 0).all() and (LSE_none == -np.inf).all()
    O_none, LSE_none = merge_partials(np.empty((0, 3, 4)), np.empty((0, 3)))
    assert O_none.shape == (3, 4) and (O_none == 0).all() and (LSE_none == -np.inf).all()


def test_large_statistics_neither_overflow_nor_vanish() -> None:
    for offset in (-524288.0, 0.0, 524288.0):
        O, LSE = merge_partials(np.array([[1.0], [3.0]]), np.array([offset, offset + np.log(3.0)]))
        assert pytest.approx([2.5]) == O and pytest.approx(offset + np.log(4.0), abs=1e-9) == LSE
    O, LSE = merge_partials(np.array([[1.0], [3.0]]), np.array([-1e5, 1e5]))
    assert O == [3.0] and LSE == 1e5


def test_nan_stays_in_its_row() -> None:
    O, LSE = in_parts([5])
    LSE[0, 0, 0, 0], O[0, 0, 0, 0] = np.nan, np.nan
    got_O, got_LSE = merge_partials(O, LSE)
    assert np.argwhere(np.isnan(got_LSE)).tolist() == [[0, 0, 0]] and np.argwhere(np.isnan(got_O).any(-1)).tolist() == [[0, 0, 0]]


def test_what_are_no_partial_results_is_refused() -> None:
    with pytest.raises(UsageError, match=r"O of shape \(2, 3, 4\) and LSE of shape \(2, 4\) are no partial results"):
        merge_partials(np.zeros((2, 3, 4)), np.zeros((2, 4)))
    with pytest.raises(UsageError, match=r"O of shape \(4,\) and LSE of shape \(\)"):
        merge_partials(np.zeros(4), np.float64(0))
    with pytest.raises(UsageError, match="the parts differ in shape"):
        merge_partials([np.zeros((3, 4)), np.zeros((2, 4))], [np.zeros(3), np.zeros(2)])
    with pytest.raises(UsageError, match=r"O holds uint16: .*to_f64 decodes bf16"):
        merge_partials(np.zeros((2, 3, 4), np.uint16), np.zeros((2, 3)))
    with pytest.raises(AttributeError, match="no attribute 'merge_parts'"):
        _ = rawflash.merge_parts
