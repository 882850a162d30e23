"""The decided edge cases, each for every variant. Names in brackets are the public reports that each restates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rawflash.backends.base import launch_plan
from rawflash.compile import compile_source
from rawflash.problem import Problem, make_inputs
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100, SMALL, VARIANTS, backend, column, outputs, run

INF = np.inf
every_variant = pytest.mark.parametrize("name", VARIANTS)


def small(N: int, Nkv: int, **more: object) -> Problem:
    """One head, d = 8, fp32: all tests that can use it share one compilation per mask."""
    return Problem(**{"B": 1, "H": 1, "N": N, "Nkv": Nkv, "d": 8, "dtype": "fp32", "softmax_scale": 1.0, **more})  # type: ignore[arg-type]


@every_variant
@pytest.mark.parametrize("keys", [1, 2, 5, 17])
def test_very_negative_scores(name: str, keys: int) -> None:
    """The maximum starts at -inf, not at a sentinel that such scores stay below (flashinfer #4267, #4450, #4451)."""
    O, LSE = outputs(name, small(1, keys), -256.0, 256.0, 1.0)
    assert (O == 1).all() and LSE[0, 0, 0] == pytest.approx(-524288 + math.log(keys), abs=0.05)


@every_variant
@pytest.mark.parametrize("order", [1, -1])
def test_score_ramps(name: str, order: int) -> None:
    """A tile whose maximum is smaller must not replace the running one (tilelang #1148)."""
    values = np.random.default_rng(0).standard_normal((40, 8))
    outputs(name, small(1, 40), column([1], 8), column(5 * np.arange(40)[::order], 8), values)


@every_variant
def test_the_lesson(name: str) -> None:
    O, LSE = outputs(name, small(1, 4), column([1], 8), column([1, 3, 4, 2], 8), column([1, 2, 3, 4], 8))
    assert O[0, 0, 0, 0] == pytest.approx(2.786144, abs=1e-5) and LSE[0, 0, 0] == pytest.approx(4.4402, abs=1e-4)


@every_variant
@pytest.mark.parametrize("masked", [0, 1, 7, 14, 16, 17, 32])
@pytest.mark.parametrize("keys", [1, 2, 16, 33])
def test_rows_that_see_no_key(name: str, masked: int, keys: int) -> None:
    """O = 0 and LSE = -inf, never NaN (pytorch #103749 and many more; ik_llama.cpp #2344, aotriton #235)."""
    rng = np.random.default_rng(1)
    problem = small(masked + keys, keys, causal="bottom_right")
    O, LSE = outputs(name, problem, *(rng.standard_normal(s) for s in (problem.shape_q, problem.shape_k, problem.shape_v)))
    assert (O[0, 0, :masked] == 0).all() and (LSE[0, 0, :masked] == -INF).all()
    assert np.isfinite(LSE[0, 0, masked:]).all()


@every_variant
@pytest.mark.parametrize(("causal", "seen"), [("bottom_right", [4, 5]), ("top_left", [1, 2])])
def test_causal_alignment(name: str, causal: str, seen: list[int]) -> None:
    _, LSE = outputs(name, small(2, 5, causal=causal), 0.0, 1.0, 1.0)
    assert LSE[0, 0] == pytest.approx(np.log(seen), abs=1e-6)


@every_variant
def test_ragged_lengths_give_plain_means(name: str) -> None:
    """No tail key is dropped, none is counted twice (flashinfer #3716, tiny-flash-attention #12)."""
    for keys in (1, 2, 9, 15, 16, 17, 31, 32, 33, 63, 65, 97):
        O, LSE = outputs(name, small(3, keys), 0.0, 1.0, column(np.arange(keys) / 8, 8))
        np.testing.assert_allclose(O[0, 0, :, 0], (keys - 1) / 16, rtol=1e-6)
        np.testing.assert_allclose(LSE, math.log(keys), atol=1e-6)


@every_variant
@pytest.mark.parametrize("wild", [np.nan, INF, -INF, 1e30])
@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
def test_hidden_keys_reach_nothing(name: str, wild: float, causal: str) -> None:
    """Select, do not add or multiply (Wan2GP #1628): rows before a wild key keep their bits."""
    problem = small(40, 40, causal=causal)
    clean = make_inputs(problem)
    dirty = {tensor: x.copy() for tensor, x in clean.items()}
    dirty["K"][0, 0, 21], dirty["V"][0, 0, 21] = wild, wild
    with np.errstate(invalid="ignore", over="ignore"):
        was, now = (run(name, problem, inputs=inputs).outputs for inputs in (clean, dirty))
    for tensor in ("O", "LSE"):
        assert was[tensor][0, 0, :21].tobytes() == now[tensor][0, 0, :21].tobytes()


@every_variant
@pytest.mark.parametrize("causal", ["none", "bottom_right"])
def test_nan_reaches_exactly_the_rows_that_see_it(name: str, causal: str) -> None:
    """fmaxf drops NaN, the softmax must not (pytorch #101967, #141128)."""
    problem = small(36, 40, causal=causal)
    clean = make_inputs(problem)
    before = run(name, problem, inputs=clean).outputs
    for tensor, at in (("Q", 2), ("K", 5), ("K", 20), ("V", 20)):
        dirty = {key: x.copy() for key, x in clean.items()}
        dirty[tensor][0, 0, at, 3] = np.nan
        O, LSE = (run(name, problem, inputs=dirty).outputs[key] for key in ("O", "LSE"))
        hit = np.arange(36) == at if tensor == "Q" else problem.visible_keys() > at
        touched = np.isnan(O[0, 0]).any(axis=1)
        assert (touched == hit).all()
        assert tensor == "V" or (np.isnan(LSE[0, 0]) == hit).all()
        assert O[0, 0, ~hit].tobytes() == before["O"][0, 0, ~hit].tobytes()


@every_variant
def test_infinite_scores(name: str) -> None:
    """-inf is an ordinary weight of 0; only -inf is a row that sees nothing; +inf is inf - inf."""
    problem = small(1, 3)
    O, LSE = outputs(name, problem, column([1], 8), column([1, -INF, 3], 8), column([1, 2, 3], 8))
    assert O[0, 0, 0, 0] == pytest.approx(2.761594, abs=1e-5) and LSE[0, 0, 0] == pytest.approx(3.126928, abs=1e-5)
    O, LSE = outputs(name, problem, column([1], 8), column([-INF] * 3, 8), column([1, 2, 3], 8))
    assert (O == 0).all() and (LSE == -INF).all()
    O, LSE = outputs(name, problem, column([1], 8), column([1, INF, 3], 8), column([1, 2, 3], 8))
    assert np.isnan(O).all() and np.isnan(LSE).all()


@every_variant
def test_scores_beyond_fp16(name: str) -> None:
    """S is float until it has been scaled (llama.cpp #7805); one that is stored in fp16 then is off by its last bit, 4."""
    problem = Problem(B=1, H=1, N=1, Nkv=2, d=128, dtype="fp16")
    O, LSE = outputs(name, problem, 32.0, [[16.0], [17.0]], [[1.0], [2.0]])
    assert (O == 2).all() and LSE[0, 0, 0] == pytest.approx(6154.66, abs=2 if LADDER[name].plan(problem, SMALL).S_roundings else 0.01)


@every_variant
@pytest.mark.parametrize(("dtype", "keys", "value"), [("fp16", 2048, 40.0), ("fp16", 4096, 1.0), ("bf16", 1000, 1.0)])
def test_long_uniform_rows(name: str, dtype: str, keys: int, value: float) -> None:
    """Sums are fp32: no overflow, no saturation (ik_llama.cpp #1196; LSE is the sharp check)."""
    O, LSE = outputs(name, Problem(B=1, H=1, N=8, Nkv=keys, d=64, dtype=dtype), 0.0, 1.0, value, Tiling(64, 64))
    np.testing.assert_allclose(O, value, rtol=2**-8)
    np.testing.assert_allclose(LSE, math.log(keys), atol=1e-5)


@every_variant
@pytest.mark.parametrize("offset", [4096, -4096])
def test_large_common_offset(name: str, offset: float) -> None:
    k = np.zeros((4, 8), np.float32)
    k[:, 0], k[:, 1] = offset / 64, np.arange(4)
    O, _ = outputs(name, small(1, 4), [[64, 1, 0, 0, 0, 0, 0, 0]], k, np.eye(8)[:4])
    assert O[0, 0, 0, :4] == pytest.approx([0.0321, 0.0871, 0.2369, 0.6439], abs=1e-3)


@every_variant
@pytest.mark.parametrize("heads", [(6, 2), (12, 2), (28, 4), (9, 3), (4, 1)])
def test_heads_share_keys_and_values(name: str, heads: tuple[int, int]) -> None:
    """O[h] = h // (H / Hkv) when V of head g is g (HipKittens #22)."""
    H, Hkv = heads
    O, _ = outputs(name, small(3, 5, B=2, H=H, Hkv=Hkv), 0.0, 0.0, np.arange(Hkv)[:, None, None])
    np.testing.assert_array_equal(O[:, :, 0, 0], np.broadcast_to(np.arange(H) * Hkv // H, (2, H)))


@every_variant
def test_information_in_the_last_components_only(name: str) -> None:
    """d = 128 uses all of its columns (triton #621)."""
    problem = Problem(B=1, H=1, N=20, Nkv=20, d=128, dtype="fp16")
    inputs = {key: x.copy() for key, x in make_inputs(problem).items()}
    inputs["Q"][..., :120], inputs["K"][..., :120] = 0, 0
    run(name, problem, inputs=inputs)


@every_variant
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("causal", ["none", "bottom_right"])
def test_few_query_rows(name: str, rows: int, causal: str) -> None:
    run(name, small(rows, 20, B=4, H=2, causal=causal, softmax_scale=None))


@every_variant
@pytest.mark.parametrize(("N", "Nkv", "B"), [(3, 0, 1), (0, 3, 1), (3, 3, 0)])
def test_empty_problems(name: str, N: int, Nkv: int, B: int) -> None:
    result = run(name, small(N, Nkv, B=B))
    assert result.outputs["O"].shape == (B, 1, N, 8) and (result.outputs["O"] == 0).all() and (result.outputs["LSE"] == -INF).all()


@every_variant
def test_more_heads_than_grid_y_allows(name: str) -> None:
    """B*H = 65538 (pytorch #142228): all heads are written; a sample is compared by run()."""
    run(name, small(1, 1, B=10923, H=6))


@every_variant
@pytest.mark.parametrize("scale", [-1.0, -0.25, -1e-3, 0.0, 1e-3])
def test_any_finite_scale(name: str, scale: float) -> None:
    """The maximum is taken after scaling (aiter #333); 0 is a scale like any other."""
    O, LSE = outputs(name, small(1, 3, softmax_scale=scale), column([1], 8), column([60, 120, 180], 8), column([1, 2, 3], 8))
    if scale == -1:
        assert O[0, 0, 0, 0] == pytest.approx(1) and LSE[0, 0, 0] == pytest.approx(-60, abs=1e-4)
    if scale == 0:
        assert O[0, 0, 0, 0] == pytest.approx(2) and LSE[0, 0, 0] == pytest.approx(math.log(3))


@every_variant
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_views_that_no_vector_load_can_read(name: str, dtype: str) -> None:
    """Contiguous, one element off: a scalar path, never a misaligned access (qkan #26, tilelang #2526)."""
    problem = Problem(B=1, H=2, N=19, Nkv=35, d=32 if dtype == "fp32" else 64, dtype=dtype)
    aligned, inputs = run(name, problem).outputs, make_inputs(problem)
    plan, device = LADDER[name].plan(problem, SMALL), backend()
    module = device.compile(compile_source(read_source(LADDER[name].file), plan.defines, A100.arch), plan)
    arrays = {key: device.empty(shape, np.dtype(kind)) for key, (shape, kind) in plan.buffers.items()}
    for key, x in inputs.items():
        buffer = device.to_device(np.zeros(x.size + 1, x.dtype))
        arrays[key] = buffer[1:].reshape(x.shape)
        arrays[key][...] = x
    launch_plan(module, plan, arrays)
    assert all(np.array(arrays[key]).tobytes() == aligned[key].tobytes() for key in ("O", "LSE"))
