"""Row softmax and top-k: right, in the papers' accesses per element, whatever the length."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rawflash import paths
from rawflash.backends.base import Execution
from rawflash.compile import compile_source
from rawflash.emu import EmuParams
from rawflash.errors import UsageError
from rawflash.problem import DTYPES, round_to, to_f64
from rawflash.source import read_source
from rawflash.variants.softmax import FILE, SOFTMAXES, SoftmaxProblem, softmax_bytes, softmax_plan
from tests.kernels_cu.ladder import A100, backend

# Counted HBM accesses per element, the papers' table.
ACCESSES = {"naive": 3, "safe": 4, "online": 3, "safe_topk": 5, "onl_topk": 4, "fused_safe": 2, "fused_onl": 1}
LENGTHS = (1, 2, 31, 33, 257, 1000)
every_softmax = pytest.mark.parametrize("name", SOFTMAXES)


def run(name: str, p: SoftmaxProblem, x: NDArray[Any], params: EmuParams | None = None) -> tuple[dict[str, NDArray[Any]], Execution]:
    """Buffers after the launches, and the counts. x [batch, V] is rounded to the storage type."""
    device, plan, source = backend(params), softmax_plan(name, p), read_source(FILE)
    module = device.compile(compile_source(source, plan.defines, A100.arch), plan)
    arrays = {key: device.empty(shape, kind) for key, (shape, kind) in plan.buffers.items()}
    arrays["X"] = device.to_device(round_to(x, p.dtype))
    execution = device.run(module, plan, arrays)
    return {key: device.to_host(arrays[key]) for key in plan.buffers}, execution


def expected(p: SoftmaxProblem, x: NDArray[Any]) -> NDArray[np.float64]:
    stored = to_f64(round_to(x, p.dtype), p.dtype)
    e = np.exp(stored - stored.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@every_softmax
@pytest.mark.parametrize(("dtype", "K"), [("fp32", 5), ("fp16", 64), ("bf16", 33), ("fp32", 1)])
def test_right_with_the_papers_accesses(name: str, dtype: str, K: int) -> None:
    for V in LENGTHS:
        p = SoftmaxProblem(batch=3, V=V, K=K, dtype=dtype)
        x = np.random.default_rng(V).standard_normal((p.batch, V)).astype(np.float32) * 4
        found, execution = run(name, p, x)
        y = expected(p, x)
        eps = {"fp32": 2e-6, "fp16": 2**-10, "bf16": 2**-7}[dtype]
        if "Y" in found:
            np.testing.assert_allclose(to_f64(found["Y"], dtype), y, rtol=eps, atol=1e-7)
        if "values" in found:
            _check_topk(p, found, to_f64(found["Y"], dtype) if "Y" in found else to_f64(round_to(x, dtype), dtype), y, eps)
        counters = execution.counters
        assert counters is not None
        assert {key: (t.read_bytes, t.write_bytes) for key, t in counters.tensors.items()} == softmax_bytes(name, p)
        assert counters.smem_bank_conflicts == 0
        extra = 8 * p.batch * K if "values" in found else 0
        element = p.batch * V * round_to(x, dtype).itemsize
        assert counters.hbm.read_bytes + counters.hbm.write_bytes - extra == ACCESSES[name] * element


def _check_topk(p: SoftmaxProblem, found: dict[str, NDArray[Any]], ranked_by: NDArray[Any], y: NDArray[Any], eps: float) -> None:
    """Ranks by (value, smaller index first); the rest of a short row is (0, -1)."""
    real = min(p.K, p.V)
    order = np.argsort(-ranked_by, axis=1, kind="stable")[:, :real]
    np.testing.assert_array_equal(found["indices"][:, :real], order)
    np.testing.assert_allclose(found["values"][:, :real], np.take_along_axis(y, order, axis=1), rtol=eps, atol=1e-7)
    assert (found["indices"][:, real:] == -1).all() and (found["values"][:, real:] == 0).all()


@every_softmax
def test_large_numbers_overflow_the_naive_one_only(name: str) -> None:
    p = SoftmaxProblem(batch=1, V=64)
    found, _ = run(name, p, np.linspace(900, 1000, 64, dtype=np.float32)[None])
    result = found.get("values", found.get("Y"))
    assert result is not None and np.isnan(result).any() == (name == "naive")


@every_softmax
@pytest.mark.parametrize("order", ["ascending", "descending", "equal"])
def test_orders_and_ties(name: str, order: str) -> None:
    """Ascending input changes the maximum, and the K largest, at every element."""
    p = SoftmaxProblem(batch=1, V=300, K=40)
    x = {"ascending": np.arange(300), "descending": np.arange(300)[::-1], "equal": np.ones(300)}[order][None] / 8.0
    found, _ = run(name, p, x)
    if "indices" in found:
        first = np.arange(299, 259, -1) if order == "ascending" else np.arange(40)
        if order != "equal" and "Y" in found:  # ranked by Y, where small numbers may tie
            assert (found["Y"][0, found["indices"][0]] == np.sort(found["Y"][0])[::-1][:40]).all()
        else:
            np.testing.assert_array_equal(found["indices"][0], first)
    else:
        np.testing.assert_allclose(found["Y"], expected(p, x), rtol=1e-5, atol=1e-9)


@every_softmax
def test_rows_of_minus_infinity_and_nan(name: str) -> None:
    p = SoftmaxProblem(batch=3, V=40, K=4)
    x = np.zeros((3, 40), np.float32)
    x[0], x[1, ::2], x[2, 7] = -np.inf, -np.inf, np.nan
    found, _ = run(name, p, x)
    result = found.get("values", found.get("Y"))
    assert result is not None
    assert (result[0] == 0).all()
    if "Y" in found:
        np.testing.assert_allclose(found["Y"][1], np.where(np.arange(40) % 2, 1 / 20, 0), rtol=1e-6)
        assert np.isnan(found["Y"][2]).all()
    else:
        np.testing.assert_allclose(found["values"][1], 1 / 20, rtol=1e-6)
        assert found["indices"][1].tolist() == [1, 3, 5, 7] and np.isnan(found["values"][2]).all()


@every_softmax
def test_no_race_and_the_same_bits_in_any_order(name: str) -> None:
    p = SoftmaxProblem(batch=3, V=700, K=33)
    x = np.random.default_rng(0).standard_normal((3, 700)).astype(np.float32)
    first, _ = run(name, p, x)
    for params in (EmuParams(racecheck=True), EmuParams(order_seed=1), EmuParams(order_seed=2)):
        again, _ = run(name, p, x, params)
        assert all(first[key].tobytes() == again[key].tobytes() for key in first)


def formula(text: str, p: SoftmaxProblem) -> int:
    letters = {"batch": p.batch, "V": p.V, "K": p.K, "w": DTYPES[p.dtype].itemsize}
    return int(eval(text, {"__builtins__": {}}, letters))


@every_softmax
def test_the_header_and_the_readme_say_the_same(name: str) -> None:
    lines = re.findall(r"^// +(\w+)\.(\w+) +(read|write) += +(.+?)(?: {2,}.*)?$", read_source(FILE).text, re.M)
    for p in (SoftmaxProblem(3, 100), SoftmaxProblem(1, 7, 64, "fp16")):
        stated: dict[str, list[int]] = {}
        for kernel, tensor, kind, text in lines:
            if kernel in SOFTMAXES[name]:
                stated.setdefault(tensor, [0, 0])[kind == "write"] += formula(text, p)
        assert {tensor: tuple(moved) for tensor, moved in stated.items()} == softmax_bytes(name, p)
    readme = (paths.kernels_dir() / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {name} \| {', '.join(SOFTMAXES[name])} \| [^|]+ \| {ACCESSES[name]} \|$", readme, re.M)


@pytest.mark.parametrize("K", [1, 33, 64])
def test_the_header_states_the_shared_memory(K: int) -> None:
    stated = dict(re.findall(r"^// +(\w+) smem += +(.+)$", read_source(FILE).text, re.M))
    p = SoftmaxProblem(1, 64, K)
    resources = compile_source(read_source(FILE), softmax_plan("safe", p).defines, A100.arch).resources
    assert {kernel: used.smem_bytes for kernel, used in resources.items()} == {kernel: formula(text, p) for kernel, text in stated.items()}
    assert all(used.spill_bytes == 0 for used in resources.values())


@pytest.mark.slow
@every_softmax
def test_a_million_columns(name: str) -> None:
    p = SoftmaxProblem(batch=1, V=2**20, K=64)
    x = np.random.default_rng(0).standard_normal((1, 2**20)).astype(np.float32)
    found, _ = run(name, p, x)
    if "Y" in found:
        np.testing.assert_allclose(found["Y"], expected(p, x), rtol=1e-5)
    if "values" in found:
        assert (np.sort(np.take_along_axis(x, found["indices"], 1))[0, ::-1][:8] == np.sort(x)[0, ::-1][:8]).all()


def test_what_cannot_run_is_refused() -> None:
    for wrong in ({"V": 0}, {"K": 0}, {"K": 65}, {"batch": 0}, {"dtype": "int8"}):
        with pytest.raises(UsageError):
            SoftmaxProblem(**{"batch": 1, "V": 8, **wrong})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no softmax called 'fast'"):
        softmax_plan("fast", SoftmaxProblem(1, 1))
