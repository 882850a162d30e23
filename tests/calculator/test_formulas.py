"""The calculator's figures: by hand, and the page's JavaScript against Python on many shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rawflash.calculator import FIGURES, calculate
from rawflash.calculator.page import FORMULAS, example, examples
from rawflash.config import gpu_values
from rawflash.errors import UsageError
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling

A100, T4 = (Gpu.from_dict(gpu_values(name)) for name in ("a100_80gb", "t4"))
MI, GI = 2**20, 2**30


def test_problem_one_of_the_lesson() -> None:
    """N = 8192, d = 128, 2 bytes, one head: S and P written and read are 512 MiB, Q, K, V and O 8 MiB."""
    found = calculate(Problem(B=1, H=1, N=8192, d=128), Tiling(64, 64), A100)
    assert found["score_bytes"] == 128 * MI
    assert found["ideal_bytes"] == 8 * MI
    assert 4 * 128 * MI / found["ideal_bytes"] == 64
    assert found["flops"] == 4 * 128 * 8192**2
    assert found["tiled_memory_bytes"] == 8 * MI + 4 * 8192
    assert found["naive_memory_bytes"] == 264 * MI + 4 * 8192


def test_ridge_point_and_bound() -> None:
    """Without a cache a query tile of Br rows does about Br FLOPs per byte in 16 bits: 64 lies below the A100's 153, 256 above it."""
    p = Problem(B=4, H=16, N=16384, d=128)
    small, large = calculate(p, Tiling(64, 64), A100), calculate(p, Tiling(256, 64), A100)
    assert small["ridge"] == pytest.approx(312e3 / 2039)
    assert small["tiled_intensity"] == pytest.approx(64, rel=0.01) and large["tiled_intensity"] == pytest.approx(256, rel=0.02)
    assert (small["naive_bound"], small["tiled_bound"], large["tiled_bound"]) == ("memory", "memory", "compute")
    assert large["tiled_tflops"] == pytest.approx(312)
    assert small["tiled_ms"] == pytest.approx(small["tiled_bytes"] / 2039e6)


def test_kv_cache() -> None:
    """Llama-2 70B's shape: 80 layers, 64 query heads, 8 key heads, d = 128, 4096 tokens, 16 bits: 1.25 GiB."""
    found = calculate(Problem(B=1, H=64, Hkv=8, N=1, Nkv=4096, d=128), Tiling(64, 64), A100, layers=80)
    assert (found["kv_gqa_bytes"], found["kv_mha_bytes"], found["kv_mqa_bytes"]) == (1.25 * GI, 10 * GI, 1.25 * GI / 8)


def test_what_is_not_known_is_not_said() -> None:
    found = calculate(Problem(B=1, H=1, N=64, d=64, dtype="bf16"), Tiling(64, 64), T4)
    assert found["flops"] and {found[name] for name in ("ridge", "naive_ms", "tiled_bound", "tiled_tflops")} == {None}
    assert list(found) == [figure.name for figure in FIGURES]
    with pytest.raises(UsageError, match="layers=0 is not a number of layers"):
        calculate(Problem(), Tiling(64, 64), A100, layers=0)


# ---------------------------------------------------------------------------------------------------- the page's formulas
@pytest.fixture(scope="module")
def engine() -> Any:
    import dukpy

    engine = dukpy.JSInterpreter()
    engine.evaljs(FORMULAS.read_text("utf-8").replace('"use strict";', ""))
    return engine


def _agrees(engine: Any, e: dict[str, Any]) -> None:
    found = json.loads(engine.evaljs("JSON.stringify(calculate(dukpy['x'], dukpy['gpu']))", x=e["x"], gpu=e["gpu"]))
    assert list(found) == list(e["found"])
    for name, value in e["found"].items():
        assert found[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float | int) else value), (name, e["x"])


def test_the_page_agrees_on_its_own_examples(engine: Any) -> None:
    for e in examples():
        _agrees(engine, e)


SIDES = st.sampled_from([16, 24, 64, 100, 128])


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.fixed_dictionaries(
        {
            "B": st.integers(1, 5),
            "Hkv": st.integers(1, 4),
            "N": st.integers(1, 3000) | st.sampled_from([12288, 12289, 65536]),
            "Nkv": st.integers(1, 3000) | st.sampled_from([12288, 12289, 65536]),
            "d": st.integers(1, 32).map(lambda n: 8 * n),
            "dtype": st.sampled_from(["fp32", "fp16", "bf16"]),
            "causal": st.booleans(),
        }
    ),
    share=st.integers(1, 4),
    tile=st.tuples(SIDES, SIDES),
    gpu=st.sampled_from([A100, T4]),
    layers=st.integers(1, 96),
)
def test_the_page_agrees_everywhere(engine: Any, sizes: dict, share: int, tile: tuple[int, int], gpu: Gpu, layers: int) -> None:
    problem = Problem(**sizes, H=sizes["Hkv"] * share)
    _agrees(engine, example(problem, Tiling(*tile), gpu, layers))
