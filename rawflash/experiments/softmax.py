"""The online softmax paper: accesses per element, counted by executing kernels_cu/softmax.cu, and what they imply.

Where memory is the limit, time is proportional to accesses: the speedup of one algorithm over another is the ratio of theirs. The paper
measured on a V100; its sentences are in published.yaml (milakov_*).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rawflash.lab import Axis, Bars, Experiment, Lab, Picture, Row, Verdict, counted, judge, modelled, published
from rawflash.problem import DTYPES, round_to
from rawflash.variants.softmax import FILE, SOFTMAXES, SoftmaxProblem, softmax_plan

__all__ = ["EXPERIMENT"]

ACCESSES, SPEEDUPS, BY_K = "Memory accesses per element", "Speedups where memory is the limit", "Fused top-k against K"
# Our name -> the paper's.
_NAMES = {
    "naive": "naive softmax",
    "safe": "safe softmax",
    "online": "online softmax",
    "safe_topk": "safe softmax then top-k",
    "onl_topk": "online softmax then top-k",
    "fused_safe": "safe softmax + top-k fused",
    "fused_onl": "online softmax + top-k fused",
}
_FEW = "10 rows are too few to fill a V100 (80 SMs, one CTA per row), so latency counts and not bandwidth alone"
# Figure -> (slower, faster, the number in the paper's sentence, why it is another one where it is).
_FIGURES = {
    "1": ("safe", "online", 1.3, ""),
    "2": ("safe", "online", 1.15, _FEW),
    "3": ("safe_topk", "fused_onl", 5.0, ""),
    "4": ("safe_topk", "fused_onl", 2.5, _FEW),
}
_COMPUTE = (
    "K outputs per row add next to nothing to the bytes; the work of keeping the K largest grows (instructions), "
    "so memory is no longer the limit"
)


def _counts(lab: Lab, name: str, V: int, K: int) -> dict[str, float]:
    """Per element of X: loads and stores of whole rows, without the O(K) outputs; and thread instructions."""
    p = SoftmaxProblem(lab.options["batch"], V, K, lab.options["dtype"])

    def count() -> dict[str, float]:
        x = np.random.default_rng(V).standard_normal((p.batch, p.V)).astype(np.float32)
        _, found = lab.launch(FILE, softmax_plan(name, p), {"X": round_to(x, p.dtype)})
        whole = [found.tensors[tensor] for tensor in ("X", "Y") if tensor in found.tensors]
        size = p.batch * p.V * DTYPES[p.dtype].itemsize
        loads, stores = sum(t.read_bytes for t in whole) / size, sum(t.write_bytes for t in whole) / size
        return {"loads": loads, "stores": stores, "instructions": found.thread_instructions / (p.batch * p.V)}

    return dict(lab.remember([name, repr(p), lab.gpu.arch], count, [FILE]))


def _total(lab: Lab, name: str, V: int, K: int) -> float:
    found = _counts(lab, name, V, K)
    return found["loads"] + found["stores"]


def _cases(lab: Lab) -> Sequence[Any]:
    return [
        *((_accesses, name) for name in SOFTMAXES),
        *((_speedup, figure) for figure in _FIGURES),
        *((_by_k, K) for K in lab.options["K"]),
    ]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    make, what = case
    return make(lab, what)


def _accesses(lab: Lab, name: str) -> Iterable[Row]:
    """Loads, stores and their sum beside the paper's, for every length."""
    paper = next(row for row in lab.published("milakov_accesses")["rows"] if row[0] == _NAMES[name])
    for V in lab.options["V"]:
        found = _counts(lab, name, V, lab.options["K"][0])
        total = found["loads"] + found["stores"]
        cells = {
            "loads": counted(found["loads"]),
            "stores": counted(found["stores"]),
            "total": counted(total),
            "paper": published(paper[3]),
            "instructions": counted(found["instructions"], digits=3),
        }
        yield Row({"algorithm": _NAMES[name], "kernels": " + ".join(SOFTMAXES[name]), "V": V}, cells, *judge(total, paper[3], 0), ACCESSES)


def _speedup(lab: Lab, figure: str) -> Iterable[Row]:
    slower, faster, claim, why = _FIGURES[figure]
    V, K = lab.options["V"][-1], lab.options["K"][0]
    sentence = next(row for row in lab.published("milakov_speedups")["rows"] if row[0] == figure)
    implied = _total(lab, slower, V, K) / _total(lab, faster, V, K)
    keys = {"figure": figure, "rows": sentence[1], "comparison": f"{_NAMES[faster]} / {_NAMES[slower]}"}
    cells = {"implied by accesses": modelled(implied), "paper, at most": published(claim), "the paper's words": published(sentence[3])}
    yield Row(keys, cells, *judge(implied, claim, 0.05, why), SPEEDUPS)


def _by_k(lab: Lab, K: int) -> Iterable[Row]:
    V = lab.options["V"][-1]
    slow, fast = (_counts(lab, name, V, K) for name in ("safe_topk", "fused_onl"))
    implied = (slow["loads"] + slow["stores"]) / (fast["loads"] + fast["stores"])
    told = dict(lab.published("milakov_k")["rows"]).get(K)
    cells = {
        "implied by accesses": modelled(implied),
        "instructions, unfused": counted(slow["instructions"], digits=3),
        "instructions, fused": counted(fast["instructions"], digits=3),
    }
    if told is None:
        yield Row({"K": K}, cells, Verdict.NOT_COMPARABLE, "the paper has no figure for this K", BY_K)
    else:
        yield Row({"K": K}, {**cells, "paper": published(told)}, *judge(implied, told, 0.05, _COMPUTE), BY_K)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    table = [row for row in rows if row.table == ACCESSES and row.keys["V"] == lab.options["V"][-1]]
    yield Bars(
        "softmax",
        "Softmax and top-k: memory accesses per element",
        [str(row.keys["algorithm"]).replace(" softmax", "\nsoftmax").replace(" then", "\nthen").replace(" + ", "\n+ ") for row in table],
        Axis("loads + stores per element of X"),
        ["counted", "published"],
        [[row.cells["total"].number for row in table], [row.cells["paper"].number for row in table]],
        f"Counted by executing kernels_cu/softmax.cu on rows of {lab.options['V'][-1]} {lab.options['dtype']} numbers, "
        f"K={lab.options['K'][0]}; the K outputs of a row are left out. Published: arXiv 1805.02867, sections 2 to 4.",
    )


EXPERIMENT = Experiment(
    title="Accesses of the online softmax",
    claim="Softmax needs 4 accesses per element when it is safe, 3 when it is online; followed by top-k 5, and 1 with everything fused: "
    "4/3 and up to 5 times faster where memory is the limit.",
    source="Online normalizer calculation for softmax, arXiv 1805.02867",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=("instructions: thread instructions per element of X, of these kernels, not of the paper's",),
)
