"""Every rung through run_variant on the emulator: right, and the closed form equals the count, tensor by tensor."""

import dataclasses

import numpy as np
import pytest

from rawflash.backends.emulated import EmulatedBackend
from rawflash.execute import RunResult, run_variant
from rawflash.metrics import METRICS
from rawflash.problem import Problem, make_inputs
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

GPU = Gpu("A100", "80", 108, 166912, 167936)
TILING = Tiling(32, 32)
PLAIN = Problem(H=2, N=100, d=32, dtype="fp16")
# Ragged, grouped heads, more queries than keys: the first 30 rows see no key.
MASKED = Problem(B=2, H=4, Hkv=2, N=100, Nkv=70, d=32, dtype="fp32", causal="bottom_right")
MASKED_FP16 = dataclasses.replace(MASKED, dtype="fp16")

pytestmark = pytest.mark.parametrize("name", list(LADDER))


def run(name: str, problem: Problem, **options: object) -> RunResult:
    return run_variant(LADDER[name], problem, TILING, GPU, EmulatedBackend(), keep_outputs=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("problem", [PLAIN, MASKED, MASKED_FP16], ids=["plain", "masked", "masked_fp16"])
def test_a_rung_is_right_and_its_model_is_its_count(name: str, problem: Problem) -> None:
    if problem.dtype not in LADDER[name].dtypes:
        pytest.skip(f"{name} takes no {problem.dtype}")
    result = run(name, problem)
    assert result.ok, result.sentence
    for t in result.tensors:
        assert (t.name, t.counted_read, t.counted_write) == (t.name, t.modelled_read, t.modelled_write)
    assert result.metrics["io/hbm_total_bytes"] == result.metrics["io/model_bytes"] > 0
    assert {t.name for t in result.tensors} >= {"Q", "K", "V", "O", "LSE"}
    assert set(result.metrics) <= set(METRICS) and not any(m.startswith(("time/", "perf/")) for m in result.metrics)
    assert set(result.resources) == {launch.entry for launch in LADDER[name].plan(problem, TILING).launches}
    assert "NO" not in result.texts["traffic.md"].replace("NOTE", "")


def test_rows_without_a_key(name: str) -> None:
    outputs = run(name, MASKED_FP16).outputs
    assert (outputs["O"][:, :, :30] == 0).all() and np.isneginf(outputs["LSE"][:, :, :30]).all()
    assert np.isfinite(outputs["LSE"][:, :, 30:]).all()


def test_a_nan_query_reaches_its_row_and_no_other(name: str) -> None:
    clean = run(name, PLAIN)
    inputs = make_inputs(PLAIN)
    inputs["Q"][0, 1, 41, 3] = np.nan
    result = run(name, PLAIN, inputs=inputs)
    assert result.ok, result.sentence
    rows = np.isnan(result.outputs["O"]).any(-1)
    assert np.argwhere(rows).tolist() == [[0, 1, 41]]
    for x in ("O", "LSE"):
        np.testing.assert_array_equal(result.outputs[x][~rows], clean.outputs[x][~rows])


def test_huge_negative_scores_are_not_lost(name: str) -> None:
    problem = Problem(B=1, H=1, N=3, d=32, dtype="fp16", softmax_scale=4.0)
    inputs = {"Q": np.full(problem.shape_q, -64, np.float16), "K": np.full(problem.shape_q, 64, np.float16)}
    result = run(name, problem, inputs={**inputs, "V": np.ones(problem.shape_q, np.float16)})
    if LADDER[name].plan(problem, TILING).S_roundings:  # fp16 holds no score of -524288
        assert result.status == "INCORRECT" and "is -inf where the reference is -524287" in result.sentence
        return
    assert result.ok, result.sentence
    assert (result.outputs["O"] == 1).all()


def test_an_empty_problem(name: str) -> None:
    result = run(name, Problem(H=2, N=3, Nkv=0, d=32))
    assert result.ok and (result.outputs["O"] == 0).all() and np.isneginf(result.outputs["LSE"]).all()
