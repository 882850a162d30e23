"""The oracle against an independent loop, the decided edge cases, the lesson's recurrence, and merging."""

import math

import numpy as np
import pytest

from rawflash import reference
from rawflash.problem import CAUSAL, Problem, make_inputs, round_to, to_f64
from rawflash.reference import attention_f64, naive_same_dtype, online_trace


def by_loops(Q: np.ndarray, K: np.ndarray, V: np.ndarray, p: Problem) -> tuple[np.ndarray, np.ndarray]:
    """One key at a time in Python floats: slow, and written another way than the oracle."""
    O, LSE = np.zeros(p.shape_q), np.full(p.shape_lse, -np.inf)
    for b, h, i in np.ndindex(p.B, p.H, p.N):
        g = h * p.Hkv // p.H
        limit = {"none": p.Nkv, "bottom_right": i + p.Nkv - p.N + 1, "top_left": i + 1}[str(p.causal)]
        keys = list(range(min(p.Nkv, max(0, limit))))
        diagonal = i if p.causal == "top_left" else i + p.Nkv - p.N
        keys = [j for j in keys if p.window_left is None or diagonal - j <= p.window_left]
        keys = [j for j in keys if p.window_right is None or j - diagonal <= p.window_right]
        scores = [p.scale * math.fsum(Q[b, h, i] * K[b, g, j]) for j in keys]
        scores = [s if p.softcap is None else p.softcap * math.tanh(s / p.softcap) for s in scores]
        if scores:
            m = max(scores)
            weights = [math.exp(s - m) for s in scores]
            l = math.fsum(weights)
            O[b, h, i] = sum(w / l * V[b, g, j] for w, j in zip(weights, keys, strict=True))
            LSE[b, h, i] = m + math.log(l)
    return O, LSE


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize(("N", "Nkv"), [(5, 5), (3, 1), (2, 7), (9, 4), (1, 6)])
def test_oracle_equals_the_loops(causal: str, N: int, Nkv: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for more in ({}, {"window_left": 2, "softcap": 0.5}, {"window_left": 1, "window_right": 1}, {"window_right": 0}):
        p = Problem(B=2, H=6, Hkv=2, N=N, Nkv=Nkv, d=4, causal=causal, dtype="fp32", **more)
        x = make_inputs(p)
        want_O, want_LSE = by_loops(*(to_f64(x[n], "fp32") for n in "QKV"), p)
        for chunk in (1, 1 << 22):
            monkeypatch.setattr(reference, "_CHUNK_ELEMENTS", chunk)
            O, LSE = attention_f64(x["Q"], x["K"], x["V"], p)
            np.testing.assert_allclose(O, want_O, rtol=1e-13, atol=1e-13)
            np.testing.assert_allclose(LSE, want_LSE, rtol=1e-13)


def rows(q: list, k: list, v: list, **kw: object) -> tuple[np.ndarray, np.ndarray]:
    """Attention of one head with d=1 from lists of numbers: O [N] and LSE [N]."""
    p = Problem(B=1, H=1, N=len(q), Nkv=len(k), d=1, dtype="fp32", **{"softmax_scale": 1.0, **kw})  # type: ignore[arg-type]
    Q, K, V = (np.array(x, np.float32).reshape(1, 1, -1, 1) for x in (q, k, v))
    O, LSE = attention_f64(Q, K, V, p)
    return O.ravel(), LSE.ravel()


def test_rows_without_a_key_are_zero_and_minus_inf() -> None:
    O, LSE = rows([1, 1, 1], [2], [7], causal=True)
    assert O.tolist() == [0, 0, 7]
    assert LSE.tolist() == [-np.inf, -np.inf, 2]
    O, LSE = rows([1, 1], [], [])
    assert O.tolist() == [0, 0] and np.isneginf(LSE).all()


def test_alignments_differ_when_lengths_do() -> None:
    v = [1, 2, 3, 4, 5]
    assert rows([0, 0], [0] * 5, v, causal="bottom_right")[0].tolist() == [2.5, 3.0]
    assert rows([0, 0], [0] * 5, v, causal="top_left")[0].tolist() == [1.0, 1.5]


def test_infinite_scores() -> None:
    O, LSE = rows([1], [1, -np.inf, 3], [1, 2, 3])
    assert O[0] == pytest.approx(2.761594, abs=1e-6) and LSE[0] == pytest.approx(3.126928, abs=1e-6)
    O, LSE = rows([1], [1, np.inf, 3], [1, 2, 3])
    assert np.isnan(O[0]) and np.isnan(LSE[0])
    O, LSE = rows([1], [-np.inf] * 3, [1, 2, 3])
    assert O[0] == 0 and LSE[0] == -np.inf


def test_scale_may_be_zero_or_negative() -> None:
    assert rows([5], [1, 2, 3], [1, 2, 6], softmax_scale=0.0)[0][0] == pytest.approx(3)
    O, LSE = rows([1], [60, 120, 180], [1, 2, 3], softmax_scale=-1.0)
    assert O[0] == pytest.approx(1) and LSE[0] == pytest.approx(-60)


def test_nan_reaches_the_rows_that_see_it_and_no_other() -> None:
    p = Problem(B=1, H=1, N=8, d=16, causal=True, dtype="fp32")
    x = make_inputs(p)
    clean = attention_f64(x["Q"], x["K"], x["V"], p)
    x["K"][0, 0, 5, 0] = np.nan
    O, LSE = attention_f64(x["Q"], x["K"], x["V"], p)
    assert np.isnan(O[0, 0, 5:]).all() and np.isnan(LSE[0, 0, 5:]).all()
    np.testing.assert_array_equal(O[0, 0, :5], clean[0][0, 0, :5])
    np.testing.assert_array_equal(LSE[0, 0, :5], clean[1][0, 0, :5])
    x = make_inputs(p)
    x["Q"][0, 0, 2, 3] = np.nan
    assert np.isnan(attention_f64(x["Q"], x["K"], x["V"], p)[0]).any(-1)[0, 0].tolist() == [i == 2 for i in range(8)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_hidden_keys_and_values_have_no_influence(bad: float) -> None:
    p = Problem(B=1, H=1, N=6, d=8, causal="top_left", dtype="fp32")
    x = make_inputs(p)
    clean = attention_f64(x["Q"], x["K"], x["V"], p)
    x["K"][0, 0, 3:], x["V"][0, 0, 3:] = bad, bad
    O, LSE = attention_f64(x["Q"], x["K"], x["V"], p)
    np.testing.assert_allclose(O[0, 0, :3], clean[0][0, 0, :3], rtol=1e-15)
    np.testing.assert_array_equal(LSE[0, 0, :3], clean[1][0, 0, :3])


@pytest.mark.parametrize(("H", "Hkv"), [(6, 2), (28, 4), (12, 2), (9, 3), (4, 1)])
def test_query_heads_share_key_heads_in_order(H: int, Hkv: int) -> None:
    p = Problem(H=H, Hkv=Hkv, N=2, d=4, dtype="fp32")
    x = make_inputs(p)
    x["V"][:] = np.arange(Hkv).reshape(1, Hkv, 1, 1)
    O, _ = attention_f64(x["Q"], x["K"], x["V"], p)
    np.testing.assert_allclose(O[0, :, 0, 0], [h * Hkv // H for h in range(H)], atol=1e-12)


def test_lesson_example_step_by_step() -> None:
    first, second = online_trace([1, 3, 4, 2], [1, 2, 3, 4], block=2)
    assert (first.m, round(first.l, 4), round(float(first.O[0]), 4)) == (3, 1.1353, 2.1353)
    assert (second.m, round(second.l, 4), round(float(second.O[0]), 4)) == (4, 1.5530, 4.3269)
    assert second.alpha == pytest.approx(math.exp(-1))
    assert float(second.O[0]) / second.l == pytest.approx(2.786144, abs=1e-6)
    assert second.m + math.log(second.l) == pytest.approx(4.4402, abs=1e-4)


@pytest.mark.parametrize("block", [1, 3, 8, 100])
def test_recurrence_ends_at_the_softmax(block: int) -> None:
    rng = np.random.default_rng(block)
    s, v = rng.standard_normal(20) * 5, rng.standard_normal((20, 3))
    s[:block] = -np.inf if block < 20 else s[:block]
    last = online_trace(s, v, block)[-1]
    w = np.exp(s - s.max())
    np.testing.assert_allclose(last.O / last.l, w @ v / w.sum(), rtol=1e-12)


def test_a_block_with_nothing_visible_leaves_the_state() -> None:
    first, second = online_trace([-np.inf, -np.inf, 2.0, 1.0], [9, 9, 1, 2], block=2)
    assert (first.m, first.alpha, first.l, float(first.O[0])) == (-np.inf, 1.0, 0.0, 0.0)
    assert second.m == 2.0


def test_baseline_rounds_where_its_dtype_stores() -> None:
    errors = {}
    for dtype in ("fp32", "fp16", "bf16"):
        p = Problem(H=1, N=64, dtype=dtype)
        x = make_inputs(p)
        O = naive_same_dtype(x["Q"], x["K"], x["V"], p)[0]
        np.testing.assert_array_equal(O, to_f64(round_to(O, dtype), dtype))
        errors[dtype] = np.abs(O - attention_f64(x["Q"], x["K"], x["V"], p)[0]).max()
    assert errors["fp32"] < 1e-5 < errors["fp16"] < 2e-3 < errors["bf16"] < 3e-2


def test_baseline_survives_scores_beyond_fp16() -> None:
    p = Problem(B=1, H=1, N=1, Nkv=2, d=128, dtype="fp16", softmax_scale=1.0)
    Q, K = np.full((1, 1, 1, 128), 32, np.float16), np.zeros((1, 1, 2, 128), np.float16)
    K[0, 0, 0], K[0, 0, 1] = 16, 17
    V = np.broadcast_to(np.array([1, 2], np.float16)[:, None], (1, 1, 2, 128))
    O, LSE = naive_same_dtype(Q, K, V, p)
    assert (O == 2).all() and LSE.item() == 69632
