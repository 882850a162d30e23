"""The decided edge cases on the tensor-core rungs. Names in brackets are the public reports that each restates."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from rawflash.problem import Problem, make_inputs, round_to, to_f64
from rawflash.tiling import Tiling
from tests.kernels_cu.ladder import SMALL, backend, column, outputs, run
from tests.kernels_cu.mma import bits, every_rung, launch, small

INF = np.inf


# ------------------------------------------------------------------------------------------- which keys a row sees, decided
@every_rung
@pytest.mark.parametrize("masked", [0, 1, 14, 16, 17, 32])
@pytest.mark.parametrize("keys", [1, 16, 33])
def test_rows_that_see_no_key(name: str, masked: int, keys: int) -> None:
    problem = small(masked + keys, keys, causal="bottom_right")
    O, LSE = (run(name, problem).outputs[key] for key in ("O", "LSE"))
    assert (O[0, 0, :masked] == 0).all() and (LSE[0, 0, :masked] == -INF).all() and np.isfinite(LSE[0, 0, masked:]).all()


@every_rung
def test_ragged_lengths_give_plain_means(name: str) -> None:
    for keys in (1, 2, 9, 15, 16, 17, 31, 32, 33, 65):
        means, lse = outputs(name, small(3, keys), 0.0, 1.0, column(np.arange(keys) / 8, 16))
        assert means[0, 0, :, 0] == pytest.approx((keys - 1) / 16, rel=2**-10) and lse == pytest.approx(math.log(keys), abs=1e-6)


@every_rung
@pytest.mark.parametrize("heads", [(6, 2), (28, 4), (9, 3), (4, 1)])
def test_heads_share_keys_and_values(name: str, heads: tuple[int, int]) -> None:
    H, Hkv = heads
    found, _ = outputs(name, small(3, 5, B=2, H=H, Hkv=Hkv), 0.0, 0.0, np.arange(Hkv)[:, None, None])
    assert (found == (np.arange(H) * Hkv // H)[:, None, None]).all()


@pytest.mark.slow
@every_rung
def test_more_heads_than_grid_y_allows(name: str) -> None:
    run(name, small(1, 1, B=10923, H=6))


# --------------------------------------------------------------------------------------------------- NaN, inf, hidden values
@every_rung
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("wild", [np.nan, INF, -INF, 1e30])
@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
def test_hidden_keys_reach_nothing(name: str, wild: float, causal: str, dtype: str) -> None:
    """Rows before a wild key and value keep their bits (Wan2GP #1628), though tensor cores multiply the whole tile."""
    problem = small(40, 40, causal=causal, dtype=dtype)
    clean = make_inputs(problem)
    dirty = {tensor: x.copy() for tensor, x in clean.items()}
    with np.errstate(over="ignore"):
        dirty["K"][0, 0, 21] = dirty["V"][0, 0, 21] = round_to(np.full(16, wild, np.float32), dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        was, now = (run(name, problem, inputs=inputs).outputs for inputs in (clean, dirty))
    assert bits(was, slice(0, 21)) == bits(now, slice(0, 21))


@every_rung
@pytest.mark.parametrize("causal", ["none", "bottom_right", "top_left"])
@pytest.mark.parametrize("value", [np.nan, INF, -INF])
def test_wild_values_reach_exactly_the_rows_that_see_them(name: str, causal: str, value: float) -> None:
    """In tiles that are seen whole, seen in part, and in both columns of a pair; +inf with -inf is NaN; all else keeps its bits."""
    problem, tiling = small(40, 44, causal=causal, softmax_scale=0.25), Tiling(32, 16)
    clean = make_inputs(problem)
    before = run(name, problem, tiling, inputs=clean).outputs
    dirty = {key: x.copy() for key, x in clean.items()}
    hits = {(3, 2): value, (20, 3): value, (20, 14): value, (30, 3): -value, (43, 0): value}
    for (key, col), x in hits.items():
        dirty["V"][0, 0, key, col] = x
    found = launch(name, problem, dirty, tiling)
    want = to_f64(before["O"], "fp16")[0, 0]
    with np.errstate(invalid="ignore"):
        for (key, col), x in hits.items():
            want[problem.visible_keys() > key, col] += x
    got = to_f64(found["O"], "fp16")[0, 0]
    assert ((got == want) | (np.isnan(got) & np.isnan(want))).all()
    assert found["LSE"].tobytes() == before["LSE"].tobytes()


@every_rung
@pytest.mark.parametrize("causal", ["none", "bottom_right"])
def test_nan_reaches_exactly_the_rows_that_see_it(name: str, causal: str) -> None:
    problem = small(36, 40, causal=causal)
    clean = make_inputs(problem)
    before = run(name, problem, inputs=clean).outputs
    for tensor, at in (("Q", 2), ("K", 5), ("K", 20), ("V", 20)):
        dirty = {key: x.copy() for key, x in clean.items()}
        dirty[tensor][0, 0, at, 3] = np.nan
        found = run(name, problem, inputs=dirty).outputs
        hit = np.arange(36) == at if tensor == "Q" else problem.visible_keys() > at
        assert (np.isnan(found["O"][0, 0]).any(axis=1) == hit).all()
        assert tensor == "V" or (np.isnan(found["LSE"][0, 0]) == hit).all()
        assert found["O"][0, 0, ~hit].tobytes() == before["O"][0, 0, ~hit].tobytes()


@every_rung
def test_infinite_scores(name: str) -> None:
    problem, q, v = small(1, 3), column([1], 16), column([1, 2, 3], 16)
    O, LSE = outputs(name, problem, q, column([1, -INF, 3], 16), v)
    assert O[0, 0, 0, 0] == pytest.approx(2.761594, abs=2**-10) and LSE[0, 0, 0] == pytest.approx(3.126928, abs=1e-5)
    O, LSE = outputs(name, problem, q, column([-INF] * 3, 16), v)
    assert (O == 0).all() and (LSE == -INF).all()
    O, LSE = outputs(name, problem, q, column([1, INF, 3], 16), v)
    assert np.isnan(O).all() and np.isnan(LSE).all()


# ------------------------------------------------------------------------------------------------------- numbers and scales
@every_rung
@pytest.mark.parametrize("scale", [-1.0, -0.25, -1e-3, 0.0, 1e-3, 1e-40, -1e-40])
def test_any_finite_scale(name: str, scale: float) -> None:
    """The sign goes into Q, the maximum is taken after it (aiter #333); 0, and what ftz makes 0, is a scale like any other."""
    O, LSE = outputs(name, small(1, 3, softmax_scale=scale), column([1], 16), column([60, 120, 180], 16), column([1, 2, 3], 16))
    if scale == -1:
        assert O[0, 0, 0, 0] == 1 and LSE[0, 0, 0] == pytest.approx(-60, abs=1e-4)
    if abs(scale) < 1e-30:
        assert O[0, 0, 0, 0] == 2 and LSE[0, 0, 0] == pytest.approx(math.log(3))


@every_rung
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("scale", [-0.3, 0.0])
def test_negative_and_zero_scales_with_a_mask(name: str, dtype: str, scale: float) -> None:
    """A negative scale is the positive one with -Q, bit for bit; hidden keys stay hidden when the scale is 0."""
    problem = small(37, 45, dtype=dtype, causal="bottom_right", softmax_scale=scale)
    inputs = make_inputs(problem)
    found = run(name, problem, inputs=inputs).outputs
    if scale:
        flipped = {**inputs, "Q": round_to(-to_f64(inputs["Q"], dtype).astype(np.float32), dtype)}
        assert bits(run(name, dataclasses.replace(problem, softmax_scale=-scale), inputs=flipped).outputs) == bits(found)


@every_rung
def test_a_nan_is_not_hidden_by_a_zero_scale(name: str) -> None:
    inputs = make_inputs(small(20, 20))
    inputs["Q"][0, 0, 7, 1], inputs["K"][0, 0, 3, 2] = np.nan, INF
    found = run(name, small(20, 20, softmax_scale=0.0, causal="top_left"), inputs=inputs).outputs
    assert np.isnan(found["LSE"][0, 0, 3:]).all() and np.isfinite(found["LSE"][0, 0, :3]).all()


@every_rung
@pytest.mark.parametrize("keys", [1, 2, 5, 17])
def test_very_negative_scores(name: str, keys: int) -> None:
    O, LSE = outputs(name, small(1, keys), -181.0, 181.0, 1.0)
    assert (O == 1).all() and LSE[0, 0, 0] == pytest.approx(-524176 + math.log(keys), abs=0.05)


@every_rung
@pytest.mark.parametrize("order", [1, -1])
def test_score_ramps(name: str, order: int) -> None:
    values = np.random.default_rng(0).standard_normal((40, 16))
    outputs(name, small(1, 40), column([1], 16), column(5 * np.arange(40)[::order], 16), values)


@every_rung
def test_scores_beyond_fp16(name: str) -> None:
    O, LSE = outputs(name, small(1, 2, softmax_scale=128**-0.5), 256.0, [[16.0], [17.0]], [[1.0], [2.0]])
    assert (O == 2).all() and LSE[0, 0, 0] == pytest.approx(6154.66, abs=0.01)


@every_rung
@pytest.mark.parametrize(("dtype", "keys", "value"), [("fp16", 2048, 40.0), ("fp16", 4096, 1.0), ("bf16", 1000, 1.0)])
def test_long_uniform_rows(name: str, dtype: str, keys: int, value: float) -> None:
    """Sums are fp32: no overflow, no saturation (ik_llama.cpp #1196; LSE is the sharp check)."""
    means, lse = outputs(name, small(8, keys, dtype=dtype), 0.0, 1.0, value)
    assert means == pytest.approx(value, rel=2**-8) and lse == pytest.approx(math.log(keys), abs=1e-5)


@every_rung
@pytest.mark.parametrize("offset", [4096, -4096])
def test_large_common_offset(name: str, offset: float) -> None:
    q, k = np.zeros((1, 16), np.float32), np.zeros((4, 16), np.float32)
    q[0, :2], k[:, 0], k[:, 1] = (64, 1), offset / 64, np.arange(4)
    O, _ = outputs(name, small(1, 4), q, k, np.eye(16)[:4])
    assert O[0, 0, 0, :4] == pytest.approx([0.0321, 0.0871, 0.2369, 0.6439], abs=1e-3)


@every_rung
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_large_logits_and_a_maximum_that_arrives_last(name: str, dtype: str) -> None:
    """Within the tolerance of naive in the same type (issue's rule), on inputs that strain the recurrence."""
    problem = small(33, 50, dtype=dtype)
    inputs = make_inputs(problem)
    for factor in (1, 8, 30):
        strained = {**inputs, "Q": round_to(factor * to_f64(inputs["Q"], dtype).astype(np.float32), dtype)}
        order = np.argsort((to_f64(strained["Q"], dtype) @ to_f64(strained["K"], dtype).swapaxes(-1, -2))[0, 0].max(0))
        run(name, problem, inputs={**strained, "K": strained["K"][:, :, order], "V": strained["V"][:, :, order]})


@every_rung
@pytest.mark.parametrize("causal", ["none", "bottom_right"])
def test_views_that_no_vector_load_can_read(name: str, causal: str) -> None:
    """Contiguous, one element off: a scalar path, never a misaligned access (qkan #26, tilelang #2526)."""
    problem, device = Problem(B=1, H=2, N=19, Nkv=35, d=32, causal=causal), backend()
    views = {}
    for key, x in make_inputs(problem).items():
        buffer = device.to_device(np.zeros(x.size + 1, x.dtype))
        views[key] = buffer[1:].reshape(x.shape)
        views[key][...] = x
    aligned, found = run(name, problem).outputs, launch(name, problem, views, SMALL)
    assert all(found[key].tobytes() == aligned[key].tobytes() for key in ("O", "LSE"))
