"""FlashAttention-3, Table 3: RMSE of 16-bit attention whose inputs have outliers, by executing the kernels here.

Q, K and V are N(0, 1) + N(0, 100) Bernoulli(0.001). The paper states neither the shape nor whether its float64 reference sees the inputs
before or after they are rounded to 16 bits, so both are given:

    kernel   against float64 attention of the rounded inputs: what the kernel alone gets wrong
    whole    against float64 attention of the drawn inputs: rounding the inputs is part of the error
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.lab import Cell, Experiment, Lab, Row, Verdict, checked, published
from rawflash.problem import Problem, round_to, to_f64
from rawflash.reference import attention_f64
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["EXPERIMENT", "errors", "outliers", "rmse"]

WHAT = {
    "unfused": "S and P stored in 16 bits",
    "naive": "S in fp32, P stored in 16 bits",
    "fa1": "O stored after every key tile",
    "fa2": "fp32 throughout, O stored once",
    "fa2_mma": "P rounded to 16 bits, unnormalised, for the tensor cores",
    "fa2_pipe": "as fa2_mma",
}
BASELINE = "unfused"
PRINTED_RATIO = 1.7
UNLISTED = ("naive", "fa1")  # kernels that the table does not have


def outliers(p: Problem) -> dict[str, NDArray[np.float64]]:
    """Q, K, V as the paper draws them, in float64: N(0, 1) and, for one element in a thousand, N(0, 100) on top."""
    shapes = {"Q": p.shape_q, "K": p.shape_k, "V": p.shape_v}
    found = {}
    for index, (name, shape) in enumerate(shapes.items()):
        rng = np.random.default_rng([p.seed, index])
        found[name] = rng.standard_normal(shape) + 10 * rng.standard_normal(shape) * (rng.random(shape) < 0.001)
    return found


def rmse(O: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Root of the mean squared error over all elements."""
    return float(np.sqrt(np.mean((O - right) ** 2)))


def _reference(inputs: dict[str, NDArray[np.float64]], p: Problem) -> NDArray[np.float64]:
    """Float64 attention of float64 inputs. The oracle takes storage types, and float32 holds more of the drawn numbers than 16 bits do."""
    exact = Problem(B=p.B, H=p.H, N=p.N, d=p.d, dtype="fp32")
    Q, K, V = (inputs[name].astype(np.float32) for name in "QKV")
    return attention_f64(Q, K, V, exact)[0]


def errors(lab: Lab, kernel: str, p: Problem, tile: Tiling) -> tuple[float, float]:
    """(RMSE against the rounded inputs' reference, RMSE against the drawn inputs' one) of a kernel, executed."""

    def make() -> tuple[float, float]:
        drawn = outliers(p)
        stored = {name: round_to(x, p.dtype) for name, x in drawn.items()}
        made, _ = lab.launch(LADDER[kernel].file, LADDER[kernel].plan(p, tile), stored)
        O = to_f64(made["O"], p.dtype)
        of_stored, _ = attention_f64(stored["Q"], stored["K"], stored["V"], p)
        return rmse(O, of_stored), rmse(O, _reference(drawn, p))

    kernel_error, whole = lab.remember(("fa3_tab3", kernel, repr(p), repr(tile)), make, (LADDER[kernel].file,))
    return kernel_error, whole


def _cases(lab: Lab) -> Sequence[Any]:
    return [(dtype, kernel) for dtype in lab.options["dtypes"] for kernel in lab.options["kernels"]] + [("fp8 e4m3", "")]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    dtype, kernel = case
    o, entry = lab.options, lab.published("fa3_table3")
    printed = {row[0]: dict(zip(entry["columns"], row, strict=True)) for row in entry["rows"]}
    if not kernel:
        why = "no kernel here computes in fp8"
        cells = {"paper": published(printed[dtype]["FlashAttention-3"], digits=3)}
        yield Row({"dtype": dtype, "kernel": "FlashAttention-3"}, cells, Verdict.NOT_COMPARABLE, why)
        return
    p = Problem(B=o["B"], H=o["H"], N=o["N"], d=o["d"], dtype=dtype, seed=o["seed"])
    tile = Tiling(o["block"], o["block"])
    found, base = (errors(lab, name, p, tile) for name in (kernel, BASELINE))
    cells = {"what it rounds": Cell(WHAT[kernel])}
    for name, value, of_base in zip(("kernel", "whole"), found, base, strict=True):
        cells[f"RMSE, {name}"] = checked(value, digits=3)
        cells[f"baseline / this, {name}"] = checked(of_base / value, digits=3)
    if dtype == "fp16" and kernel not in UNLISTED:
        told = printed["fp16"]["baseline" if kernel == BASELINE else "FlashAttention-2"]
        cells["paper"] = published(told, digits=2)
    yield Row({"dtype": dtype, "kernel": kernel}, cells, *_verdict(dtype, kernel, found, base))


def _verdict(dtype: str, kernel: str, found: tuple[float, float], base: tuple[float, float]) -> tuple[Verdict | None, str]:
    """On the paper's ratio, which must lie between those of the two references; its digits need its shape."""
    if kernel == BASELINE:
        return Verdict.NOT_COMPARABLE, "the baseline; the digits depend on a shape that the paper does not state"
    times = [other / mine for mine, other in zip(found, base, strict=True)]
    told = f"{max(times):.2f} and {min(times):.2f} times less error than the baseline"
    if kernel in UNLISTED or dtype != "fp16":
        return None, f"{told}; not in the table"
    between = min(times) <= PRINTED_RATIO <= max(times)
    why = f"{told}, printed {PRINTED_RATIO}: {'between' if between else 'outside'} the two references; the digits depend on the shape"
    return (Verdict.REPRODUCED if between and min(times) > 1 else Verdict.DIFFERS), why


EXPERIMENT = Experiment(
    title="RMSE of 16-bit attention with outliers",
    claim="With outliers in Q, K and V, FlashAttention-2 and -3 in fp16 err 1.7 times less than attention that keeps S and P in fp16.",
    source="FlashAttention-3, Table 3",
    rows=_rows,
    cases=_cases,
    notes=(
        "kernel: against float64 attention of the rounded inputs; whole: of the inputs as drawn. The paper does not say which it takes.",
        "Our shape: B=1, H=4, N=1024, d=64 unless the options say otherwise; the paper states none.",
    ),
)
