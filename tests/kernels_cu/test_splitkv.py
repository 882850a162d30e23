"""splitkv: any number of splits is attention, keys are read once per kv head, the merge alone takes partial results from anywhere.

Names in brackets are cases of decoding, grouped heads and merging that each test restates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rawflash import merge_partials
from rawflash.backends.base import launch_plan
from rawflash.compile import compile_source
from rawflash.emu import EmuParams
from rawflash.problem import Problem, make_inputs, round_to, to_f64
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from rawflash.variants.plans import merge_plan
from tests.kernels_cu.ladder import A100, backend, column, mismatches, outputs, run

INF = np.inf
RACES = EmuParams(racecheck=True)


def split(number: int | None) -> Tiling:
    return Tiling(16, 16, num_splits=number)


def decode(**more: Any) -> Problem:
    """One query, grouped heads, keys that no tile divides."""
    return Problem(**{"B": 2, "H": 6, "Hkv": 2, "N": 1, "Nkv": 75, "d": 32, "dtype": "fp16", **more})


@pytest.mark.parametrize("causal", ["none", "bottom_right", "top_left"])
@pytest.mark.parametrize("N", [1, 3, 20])
def test_any_number_of_splits_is_attention(causal: str, N: int) -> None:
    """[A37: 1 to 3 queries] 5 key tiles in 1 to 5 parts, and 9, which are too many; no race, exactly the modelled bytes."""
    problem = decode(N=N, causal=causal)
    for number in (1, 2, 3, 5, 9, None):
        result = run("splitkv", problem, split(number), RACES)
        assert not mismatches(result), number
        assert result.metrics["smem/bank_conflicts"] == 0
        assert result.tags["num_splits"] == str(
            1 if causal == "top_left" and N < 17 else min(number or 5, 5 if causal != "top_left" else 2)
        )


def test_a_window_leaves_splits_that_some_rows_do_not_see() -> None:
    """Windows and softcap on packed rows: each split writes those rows only that see a key of it."""
    problem = Problem(B=1, H=4, Hkv=2, N=40, Nkv=90, d=32, dtype="fp16", causal="bottom_right", window_left=20, softcap=5.0)
    for number in (1, 2, 3):
        result = run("splitkv", problem, split(number), RACES)
        assert not mismatches(result) and result.tags["num_splits"] == str(number)
    moved = {t.name: t.counted_write for t in result.tensors}
    assert 0 < moved["O_part"] < 4 * 32 * 4 * 40 * 3


def test_a_query_that_sees_few_keys_leaves_splits_empty() -> None:
    """[A11, A29] top_left: row i sees i + 1 keys, so that most rows see nothing of the later splits."""
    problem = Problem(B=1, H=1, N=40, Nkv=80, d=32, dtype="fp16", causal="top_left")
    result = run("splitkv", problem, split(3), RACES)
    assert not mismatches(result)
    moved = {t.name: t.counted_write for t in result.tensors}
    # Tiles of 16, 16 and 8 rows meet 1, 2 and 3 key tiles, one for each of their splits; a row sees all the tiles that its own meets.
    assert moved["O_part"] == 4 * 32 * (16 * 1 + 16 * 2 + 8 * 3) and moved["ml_part"] == 8 * 3 * 40


@pytest.mark.parametrize("number", [1, 4])
def test_rows_and_splits_without_a_key(number: int) -> None:
    """[A08, A09] the first 30 rows see no key in any split."""
    problem = Problem(B=1, H=2, Hkv=1, N=94, Nkv=64, d=32, dtype="fp16", causal="bottom_right")
    found = run("splitkv", problem, split(number)).outputs
    assert (found["O"][:, :, :30] == 0).all() and (found["LSE"][:, :, :30] == -INF).all() and np.isfinite(found["LSE"][:, :, 30:]).all()


def test_scores_of_minus_infinity_in_one_split_and_in_all() -> None:
    """[A19, A29] no -inf - -inf: the split has no weight, and where all are so O = 0 and LSE = -inf."""
    problem = Problem(B=1, H=1, N=1, Nkv=64, d=32, dtype="fp16", softmax_scale=1.0)
    values = column(np.arange(64), 32)
    for dead in (range(32), range(32, 64), range(16, 48), range(64)):
        keys = np.where(np.isin(np.arange(64), list(dead)), -INF, 0.0)
        O, LSE = outputs("splitkv", problem, column([1], 32), column(keys, 32), values, split(4))
        alive = sorted(set(range(64)) - set(dead))
        assert LSE[0, 0, 0] == pytest.approx(np.log(len(alive)) if alive else -INF, abs=1e-6)
        assert O[0, 0, 0, 0] == (pytest.approx(np.mean(alive), rel=1e-3) if alive else 0)


@pytest.mark.parametrize("offset", [-65536, 4096])
def test_a_large_common_offset_costs_the_merge_nothing(offset: int) -> None:
    """[A26] fp32 loses 2^-12 of an LSE of 4096, and a weight that came from it as much: m and l travel apart."""
    problem = Problem(B=1, H=1, N=4, Nkv=64, d=32, dtype="fp32", softmax_scale=1.0)
    rng, keys = np.random.default_rng(0), np.zeros((64, 32), np.float32)
    keys[:, 0], keys[:, 1] = offset / 64, rng.integers(0, 4, 64)
    values = rng.standard_normal((64, 32))
    O, _ = outputs("splitkv", problem, [64, 1, *[0] * 30], keys, values, split(4))
    weights = np.exp(keys[:, 1].astype(np.float64))
    np.testing.assert_allclose(O[0, 0, 0], weights @ values.astype(np.float32) / weights.sum(), atol=1e-6)


def test_nan_reaches_its_row_from_any_split() -> None:
    """[A17] a key with NaN in the second of four splits, seen by rows from 20 on."""
    problem = Problem(B=1, H=2, Hkv=1, N=64, Nkv=64, d=32, dtype="fp16", causal="bottom_right")
    clean = make_inputs(problem)
    dirty = {name: x.copy() for name, x in clean.items()}
    dirty["K"][0, 0, 20, 5] = np.nan
    before, after = (run("splitkv", problem, split(4), inputs=x).outputs for x in (clean, dirty))
    assert (np.isnan(after["LSE"]) == (np.arange(64) >= 20)).all() and (np.isnan(after["O"]).all(-1) == np.isnan(after["LSE"])).all()
    assert after["O"][:, :, :20].tobytes() == before["O"][:, :, :20].tobytes()


@pytest.mark.parametrize(("H", "Hkv"), [(6, 2), (28, 4), (9, 3), (5, 1)])
def test_heads_find_their_keys_in_a_packed_tile(H: int, Hkv: int) -> None:
    """[A32] V of kv head j is j everywhere, so O of head h is h * Hkv // H; K and V are read once per kv head."""
    problem = Problem(B=1, H=H, Hkv=Hkv, N=2, Nkv=48, d=32, dtype="fp16")
    values = np.broadcast_to(np.arange(Hkv)[None, :, None, None], problem.shape_v)
    O, _ = outputs("splitkv", problem, 0.0, 1.0, values, split(3))
    assert (O[0, :, :, 0] == (np.arange(H) * Hkv // H)[:, None]).all()
    once = 2 * Hkv * 48 * 32
    assert all(LADDER["splitkv"].io(problem, split(3))[tensor] == (once * -(-2 * H // Hkv // 16), 0) for tensor in "KV")


def test_the_same_bits_in_any_order_and_for_more_splits_than_a_warp_has_lanes() -> None:
    """[A50] 40 parts: the merge takes them in two runs."""
    problem = decode(Nkv=640, B=1, H=2)
    results = [run("splitkv", problem, split(40), params).outputs for params in (None, *(EmuParams(order_seed=n) for n in range(4)))]
    assert len({(r["O"].tobytes(), r["LSE"].tobytes()) for r in results}) == 1


# ------------------------------------------------------------------------------------------------------------ the merge alone
def merge(O_part: NDArray[Any], LSE_part: NDArray[Any], dtype: str) -> tuple[NDArray[np.float64], NDArray[Any], dict[str, tuple[int, int]]]:
    """Through splitkv_merge: O (as float64), LSE, and the bytes of each tensor."""
    plan, device = merge_plan(*O_part.shape, dtype=dtype), backend(RACES)
    module = device.compile(compile_source(read_source(LADDER["splitkv"].file), plan.defines, A100.arch), plan)
    ml_part = np.stack([LSE_part, np.ones_like(LSE_part)], axis=-1)
    arrays = {"O_part": device.to_device(O_part), "ml_part": device.to_device(ml_part)}
    arrays |= {name: device.empty(shape, np.dtype(kind)) for name, (shape, kind) in plan.buffers.items()}
    (report,) = launch_plan(module, plan, arrays)
    moved = {name: (a.read_bytes, a.write_bytes) for name, a in zip(plan.launches[0].args, report.arguments, strict=False)}
    return to_f64(device.to_host(arrays["O"]), dtype), device.to_host(arrays["LSE"]), moved  # type: ignore[return-value]


@pytest.mark.parametrize("parts", [1, 2, 31, 32, 33, 70])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_kernel_merges_what_it_is_given(parts: int, dtype: str) -> None:
    """[A28, A29] any number of parts, some of which saw nothing and hold NaN: as merge_partials in float64, and those are not read."""
    rng = np.random.default_rng(parts)
    O_part = rng.standard_normal((parts, 2, 3, 5, 40)).astype(np.float32)
    LSE_part = (6 * rng.standard_normal(O_part.shape[:-1])).astype(np.float32)
    dead = rng.random(LSE_part.shape) < 0.3
    dead[:, 0, 0, 0] = True
    O_part[dead], LSE_part[dead] = np.nan, -INF
    O, LSE, moved = merge(O_part, LSE_part, dtype)
    want_O, want_LSE = merge_partials(O_part, LSE_part)
    np.testing.assert_allclose(
        O, to_f64(round_to(want_O.astype(np.float32), dtype), dtype), rtol=2**-7 if dtype == "bf16" else 1e-5, atol=1e-6
    )
    np.testing.assert_allclose(LSE, want_LSE, rtol=1e-6, atol=1e-6)
    assert (O[0, 0, 0] == 0).all() and LSE[0, 0, 0] == -INF
    assert moved["O_part"] == (4 * 40 * int((~dead).sum()), 0) and moved["ml_part"] == (8 * dead.size, 0)
    assert moved["O"] == (0, 30 * 40 * (4 if dtype == "fp32" else 2)) and moved["LSE"] == (0, 30 * 4)
