"""The checker on right outputs and, one by one, on every wrong output that it exists to reject."""

from collections.abc import Callable

import numpy as np
import pytest

from rawflash.check import compare, expect, inputs_and_expected
from rawflash.problem import Problem, make_inputs, round_to, to_f64
from rawflash.reference import attention_f64

# Default inputs (randn, seed 0) of a small square problem and of a causal one with N != Nkv; ragged against any tile.
PLAIN = {"H": 2, "N": 150, "d": 64}
CAUSAL = {"H": 2, "N": 90, "Nkv": 150, "d": 64, "causal": "bottom_right"}


def right(p: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The reference rounded to storage: the best any kernel can return."""
    expected = inputs_and_expected(p)[1]
    return round_to(expected.O, p.dtype), expected.LSE.astype(np.float32)


def reference_of(p: Problem, **changed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = {**inputs_and_expected(p)[0], **changed}
    O, LSE = attention_f64(x["Q"], x["K"], x["V"], p)
    return round_to(O, p.dtype), LSE.astype(np.float32)


def with_problem(p: Problem, **changed: object) -> Problem:
    names = ("B", "H", "N", "d", "Hkv", "Nkv", "dtype", "causal", "softmax_scale", "seed")
    return Problem(**{**{n: getattr(p, n) for n in names}, **changed})


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", [PLAIN, CAUSAL])
def test_the_right_answer_passes(dtype: str, shape: dict) -> None:
    p = Problem(**shape, dtype=dtype)
    result = compare(*right(p), p)
    assert result.ok and result.sentence == "" and result.ratio < 1
    assert result.tol == pytest.approx(2 * result.baseline_err + 1e-5)


Mutant = Callable[[Problem, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
MUTANTS: dict[str, Mutant] = {}


def mutant(make: Mutant) -> Mutant:
    MUTANTS[make.__name__] = make
    return make


@mutant
def all_nan(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return round_to(np.full(p.shape_q, np.nan), p.dtype), LSE


@mutant
def one_nan(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    O[0, 1, 7, 3] = round_to(np.array([np.nan]), p.dtype)[0]
    return O, LSE


@mutant
def one_inf(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    O[0, 0, 0, 0] = round_to(np.array([np.inf]), p.dtype)[0]
    return O, LSE


@mutant
def zeros(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros_like(O), LSE


@mutant
def constant_mean_of_v(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = to_f64(make_inputs(p)["V"], p.dtype).mean(axis=2, keepdims=True)
    return round_to(np.broadcast_to(mean, p.shape_q).copy(), p.dtype), LSE


@mutant
def rows_shuffled(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O[:, :, np.random.default_rng(0).permutation(p.N)], LSE


@mutant
def heads_swapped(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O[:, ::-1], LSE


@mutant
def values_shuffled(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return reference_of(p, V=np.roll(make_inputs(p)["V"], 1, axis=2))


@mutant
def previous_seed(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return right(with_problem(p, seed=p.seed + 1))


@mutant
def other_mask(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return reference_of(with_problem(p, causal="top_left"))


@mutant
def scale_forgotten(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return reference_of(with_problem(p, softmax_scale=1.0))


@mutant
def last_key_dropped(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = make_inputs(p)
    shorter = with_problem(p, Nkv=p.Nkv - 1)
    return reference_of(shorter, K=x["K"][:, :, :-1], V=x["V"][:, :, :-1])


@mutant
def tail_keys_counted_as_zero_scores(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = make_inputs(p)
    longer = with_problem(p, Nkv=p.Nkv + 10)
    pad = [(0, 0), (0, 0), (0, 10), (0, 0)]
    return reference_of(longer, K=np.pad(x["K"], pad), V=np.pad(x["V"], pad))


def blocked(p: Problem, on_l: bool, on_O: bool, block: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Attention by blocks of keys with the rescale factor left out of l, of O, or of both."""
    x = make_inputs(p)
    q, k, v = (to_f64(x[n], p.dtype) for n in "QKV")
    O, LSE = np.zeros(p.shape_q), np.zeros(p.shape_lse)
    for b, h, i in np.ndindex(p.B, p.H, p.N):
        m, l, o = -np.inf, 0.0, np.zeros(p.d)
        for start in range(0, int(p.visible_keys()[i]), block):
            keys = slice(start, min(start + block, int(p.visible_keys()[i])))
            s = p.scale * k[b, h, keys] @ q[b, h, i]
            m_new = max(m, s.max())
            alpha, weight = np.exp(m - m_new), np.exp(s - m_new)
            l = l * (alpha if on_l else 1) + weight.sum()
            o = o * (alpha if on_O else 1) + weight @ v[b, h, keys]
            m = m_new
        O[b, h, i], LSE[b, h, i] = o / l, m + np.log(l)
    return round_to(O, p.dtype), LSE.astype(np.float32)


@mutant
def no_rescale_of_l(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return blocked(p, on_l=False, on_O=True)


@mutant
def no_rescale_of_O(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return blocked(p, on_l=True, on_O=False)


@mutant
def no_rescale_at_all(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return blocked(p, on_l=False, on_O=False)


@mutant
def sentinel_left_in_the_last_row(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    O[0, -1, -1] = round_to(np.array([1e30]), p.dtype)[0]
    return O, LSE


@mutant
def lse_sentinel(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    LSE[0, 0, -1] = np.nan
    return O, LSE


@mutant
def lse_in_base_two(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O, (LSE / np.log(2)).astype(np.float32)


@mutant
def lse_without_the_max(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O, LSE - LSE.max()


@mutant
def wrong_shape(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O.transpose(0, 2, 1, 3), LSE


@mutant
def empty(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O[:0], LSE[:0]


@mutant
def wrong_dtype(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O.astype(np.float64), LSE


@mutant
def wrong_lse_dtype(p: Problem, O: np.ndarray, LSE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return O, LSE.astype(np.float64)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_wrong_output_is_rejected_on_the_default_inputs(name: str, dtype: str) -> None:
    p = Problem(**CAUSAL, dtype=dtype)
    O, LSE = right(p)
    result = compare(*MUTANTS[name](p, O.copy(), LSE.copy()), p)
    assert not result.ok and result.ratio > 1 and result.sentence


@pytest.mark.parametrize("name", [n for n in MUTANTS if n != "other_mask"])
def test_and_without_a_mask(name: str) -> None:
    p = Problem(**PLAIN, dtype="fp16")
    O, LSE = right(p)
    assert not compare(*MUTANTS[name](p, O.copy(), LSE.copy()), p).ok


@pytest.mark.parametrize("wrong", [0.0, np.inf, np.nan, -1e30])
def test_lse_of_a_row_without_keys_is_compared_exactly(wrong: float) -> None:
    p = Problem(H=1, N=5, Nkv=3, d=8, causal=True)
    O, LSE = right(p)
    assert compare(O, LSE, p).ok and np.isneginf(LSE[0, 0, :2]).all()
    LSE[0, 0, 1] = wrong
    result = compare(O, LSE, p)
    assert not result.ok and "LSE[0, 0, 1]" in result.sentence and "-inf" in result.sentence


def test_nan_must_stand_where_the_reference_has_it() -> None:
    p = Problem(H=1, N=4, d=8, dtype="fp32")
    x = make_inputs(p)
    x["Q"][0, 0, 2, 3] = np.nan
    expected = expect(p, x)
    O, LSE = expected.O.astype(np.float32), expected.LSE.astype(np.float32)
    assert compare(O, LSE, p, x).ok
    O[0, 0, 2] = 0
    assert "reference is nan" in compare(O, LSE, p, x).sentence


def test_saturated_bf16_denominator_is_betrayed_by_lse() -> None:
    p = Problem(H=1, N=1, Nkv=1000, d=8, dtype="bf16", softmax_scale=0.0, distribution="ones")
    O, LSE = right(p)
    assert compare(O, LSE, p).ok
    assert not compare(O, np.full_like(LSE, np.log(256)), p).ok


def test_a_hopeless_baseline_does_not_let_anything_pass() -> None:
    p = Problem(H=1, N=64, d=64, dtype="fp16", softmax_scale=8.0, distribution="large")
    expected = inputs_and_expected(p)[1]
    assert expected.lse_baseline_err > 1 and expected.lse_tol < expected.lse_baseline_err
    O, LSE = right(p)
    assert compare(O, LSE, p).ok


def test_huge_finite_scores_are_judged_relative_to_their_size() -> None:
    p = Problem(B=1, H=1, N=1, d=128, dtype="fp32", softmax_scale=1.0)
    x = {"Q": np.full(p.shape_q, -64, np.float32), "K": np.full(p.shape_q, 64, np.float32), "V": np.ones(p.shape_q, np.float32)}
    O, LSE = np.ones(p.shape_q, np.float32), np.full(p.shape_lse, -524288, np.float32)
    assert compare(O, LSE, p, x).ok
    assert compare(O, LSE + np.float32(0.0625), p, x).ok
    assert not compare(O, np.full_like(LSE, -5e4), p, x).ok


@pytest.mark.parametrize("empty", [{"N": 0}, {"B": 0}, {"Nkv": 0}])
def test_empty_problems_compare(empty: dict[str, int]) -> None:
    p = Problem(**{"N": 3, "d": 8, **empty})
    O, LSE = np.zeros(p.shape_q, np.float16), np.full(p.shape_lse, -np.inf, np.float32)
    assert compare(O, LSE, p).ok


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_blocked_attention_with_every_rescale_is_right(dtype: str) -> None:
    p = Problem(**CAUSAL, dtype=dtype)
    assert compare(*blocked(p, on_l=True, on_O=True), p).ok


def rounded_after_every_block(p: Problem, block: int) -> tuple[np.ndarray, np.ndarray]:
    """fa1's arithmetic in float64 with O normalised and rounded to storage after every block of keys."""
    q, k, v = (to_f64(make_inputs(p)[n], p.dtype)[0, 0] for n in "QKV")
    S = p.scale * q @ k.T
    O, m, l = np.zeros((p.N, p.d)), np.full((p.N, 1), -np.inf), np.zeros((p.N, 1))
    for start in range(0, p.Nkv, block):
        s = S[:, start : start + block]
        m_new = np.maximum(m, s.max(1, keepdims=True))
        w = np.exp(s - m_new)
        l_new = np.exp(m - m_new) * l + w.sum(1, keepdims=True)
        O = (np.exp(m - m_new) * l * O + w @ v[start : start + block]) / l_new
        O, m, l = to_f64(round_to(O, p.dtype), p.dtype), m_new, l_new
    return round_to(O, p.dtype)[None, None], (m + np.log(l)).astype(np.float32).reshape(p.shape_lse)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_roundings_of_a_variant_that_stores_O_again_and_again_are_allowed_to_that_variant_only(dtype: str) -> None:
    p = Problem(H=1, N=17, Nkv=1000, d=32, dtype=dtype)
    O, LSE = rounded_after_every_block(p, block=16)
    assert not compare(O, LSE, p).ok
    assert compare(O, LSE, p, o_writes=63).ok


@pytest.mark.parametrize("name", list(MUTANTS))
def test_wrong_outputs_are_rejected_even_with_that_allowance(name: str) -> None:
    p = Problem(**CAUSAL, dtype="fp16")
    O, LSE = right(p)
    assert not compare(*MUTANTS[name](p, O.copy(), LSE.copy()), p, o_writes=10).ok


def test_not_an_array() -> None:
    p = Problem(N=3, d=8)
    assert "list" in compare([], right(p)[1], p).sentence  # type: ignore[arg-type]
