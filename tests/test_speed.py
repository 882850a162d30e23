"""rawflash.speed: the command runs, and its tables have the rows they should. How fast anything is belongs to no test."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rawflash import passes, run, speed
from rawflash.errors import UsageError
from rawflash.problem import Problem
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

SMALL = ["--N", "32", "--d", "32", "--block", "16", "--repeats", "2", "--threads", "1"]


def test_naive_attention_is_attention() -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    weights = np.exp(q.astype(np.float64) @ k.T.astype(np.float64) * 0.5)
    np.testing.assert_allclose(speed.naive_attention(q, k, v, 0.5), weights / weights.sum(1, keepdims=True) @ v, rtol=1e-5)


def test_everyone_takes_turns_after_a_round_that_does_not_count() -> None:
    order: list[str] = []
    seconds = speed.take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 4
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}


@pytest.fixture(scope="module")
def measured() -> dict[str, list[dict]]:
    import contextlib
    import io

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert run.main(["speed", *SMALL, "--json"]) == 0
    return json.loads(text.getvalue())


def test_ratios_have_a_row_for_every_contender(measured: dict[str, list[dict]]) -> None:
    rows = [(r["kernel"], r["dtype"], r["contender"]) for r in measured["ratios"]]
    ladder = [pair for pair in speed.RATIOS if pair[0] in LADDER]
    assert ("fa2", "fp32") in ladder
    assert rows == [(*pair, name) for pair in ladder for name in (speed.NUMPY, *speed.MODES)]
    for row in measured["ratios"]:
        assert len(row["seconds"]) == 2
        assert len(row["ratios"]) == (0 if row["contender"] == speed.NUMPY else 2)


def test_passes_have_a_cold_and_a_cached_row_for_every_kernel(measured: dict[str, list[dict]]) -> None:
    for dtype in ("fp16", "fp32"):
        plans = [variant.plan(Problem(N=64, d=32, dtype=dtype), Tiling(32, 32)) for variant in LADDER.values() if dtype in variant.dtypes]
        kernels = [launch.entry for plan in plans for launch in plan.launches]
        for cached in (False, True):
            rows = [r for r in measured["passes"] if (r["dtype"], r["cached"]) == (dtype, cached) and r["kernel"] != passes.RUNTIME]
            assert [r["kernel"] for r in rows] == kernels
            for row in rows:
                assert ({"lower", "optimise", "codegen"} <= set(row["seconds"])) is not cached
                assert set(row["seconds"]) <= set(passes.PASSES)


def test_the_text_names_the_machine_and_says_that_these_are_no_gpu_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert speed.main([*SMALL, "--only", "ratios"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(part in lines[0] for part in ("cores", "1 thread,", "NumPy", "NVRTC", "UTC"))
    assert speed.NOTE in lines and "not GPU times" in speed.NOTE


def test_sizes_that_cannot_be_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert speed.main(["--N", "0"]) == UsageError.exit_code
    assert capsys.readouterr().err == "rawflash: --N 0 cannot be: give at least 1\n"
