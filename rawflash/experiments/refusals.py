"""What is refused, by whom, and in which sentence: before anything is compiled or allocated.

A configuration that some kernel cannot run is a row with its sentence; one that cannot be meant at all is refused by everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rawflash.config import gpu_values
from rawflash.errors import UsageError
from rawflash.lab import Cell, Experiment, Lab, Row, Verdict
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["EXPERIMENT", "MEANINGLESS", "POINTS"]

REFUSED, NONSENSE = "Refused by some kernels", "Cannot be meant"

# What is asked for: GPU, fields of Problem, fields of Tiling.
_A100, _T4 = "a100_80gb", "t4"
_ON_A100: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"dtype": "fp32"}, {}),
    ({"d": 100}, {}),
    ({"d": 264}, {}),
    ({"dv": 20}, {}),
    ({"d": 256}, {"Br": 128, "Bc": 128}),
    ({}, {"Br": 24}),
    ({}, {"Bc": 8}),
    ({}, {"Br": 256}),
    ({}, {"Bc": 512}),
    ({"d": 128}, {"Br": 128, "Bc": 128}),
    ({}, {"warps": 3}),
    ({"dropout_p": 0.1}, {}),
    ({"N": 2**30, "Nkv": 1}, {}),
    ({"N": 1, "Nkv": 2**30}, {}),
    ({"N": 2**20, "Nkv": 1, "H": 1024, "Hkv": 1}, {}),
    ({"B": 2**16, "H": 2**16, "N": 1, "Nkv": 1}, {"Br": 16, "Bc": 16}),
)
POINTS = (
    *((_A100, *point) for point in _ON_A100),
    (_T4, {"dtype": "bf16"}, {}),
    (_T4, {"dtype": "fp16"}, {}),
    (_T4, {"dtype": "fp32"}, {}),
)

# What no kernel is asked, because it has no meaning.
MEANINGLESS: tuple[Callable[[], object], ...] = (
    lambda: Problem(B=-1),
    lambda: Problem(N=1.5),  # type: ignore[arg-type]
    lambda: Problem(d=0),
    lambda: Problem(H=4, Hkv=3),
    lambda: Problem(dtype="int8"),
    lambda: Problem(causal="left"),
    lambda: Problem(layout="nbhd"),
    lambda: Problem(dv=0),
    lambda: Problem(softmax_scale=float("inf")),
    lambda: Problem(softmax_scale=float("nan")),
    lambda: Problem(softcap=-1.0),
    lambda: Problem(window_left=-2),
    lambda: Problem(dropout_p=1.0),
    lambda: Problem(distribution="cauchy"),
    lambda: Tiling(0, 64),
    lambda: Tiling(64, 64, lazy_threshold=16),
    lambda: Tiling(64, 64, poly_fraction=1.5),
    lambda: Tiling(64, 64, poly_degree=2),
    lambda: Tiling(64, 64, num_splits=0),
)


def _cases(lab: Lab) -> Sequence[Any]:
    return [*POINTS, NONSENSE]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    return _meaningless() if case == NONSENSE else _refused(*case)


def _refused(sheet: str, asked: Mapping[str, Any], tile: Mapping[str, Any]) -> Iterable[Row]:
    """One row per sentence, with the kernels that say it; nothing when every kernel runs this."""
    gpu, problem = Gpu.from_dict(gpu_values(sheet)), Problem(**{"N": 512, **asked})
    said: dict[str, list[str]] = {}
    for name, variant in LADDER.items():
        reason = variant.invalid_reason(problem, Tiling(**{"Br": 64, "Bc": 64, **tile}), gpu)
        if reason:
            said.setdefault(reason.replace(name, "<kernel>"), []).append(name)
    run = [name for name in LADDER if not any(name in names for names in said.values())]
    what = " ".join(f"{key}={value}" for key, value in {**asked, **tile}.items())
    for sentence, names in said.items():
        cells = {"refused by": Cell(_listed(names)), "run by": Cell(_listed(run)), "sentence": Cell(sentence)}
        yield Row({"asked": what, "gpu": sheet}, cells, *_judged(sentence), REFUSED)


def _listed(names: Sequence[str]) -> str:
    return "all" if len(names) == len(LADDER) else ", ".join(names) or "none"


def _meaningless() -> Iterable[Row]:
    for make in MEANINGLESS:
        try:
            make()
        except UsageError as error:
            sentence = str(error)
            yield Row({"asked": sentence.split(" ")[0]}, {"sentence": Cell(sentence)}, *_judged(sentence), NONSENSE)
        else:
            yield Row({"asked": "something that is not refused"}, {}, Verdict.DIFFERS, "it was taken", NONSENSE)


def _judged(sentence: str) -> tuple[Verdict, str]:
    """One sentence that names a value (key=value, or a number) and, behind a colon, the way out."""
    faults = {
        "more than one line": "\n" in sentence,
        "no way out": ": " not in sentence,
        "no value": "=" not in sentence and not any(c.isdigit() for c in sentence),
    }
    wrong = ", ".join(fault for fault, is_so in faults.items() if is_so)
    return (Verdict.DIFFERS, wrong) if wrong else (Verdict.REPRODUCED, "refused before launch")


EXPERIMENT = Experiment(
    title="What is refused, and in which words",
    claim="What a kernel cannot run it refuses before launch, in one sentence that names the value and the way out.",
    source="kernels_cu/README.md",
    rows=_rows,
    cases=_cases,
    notes=(
        "Not asked for here: N=512, d=64, fp16, tiles of 64 x 64. <kernel> stands for the name of the one that speaks.",
        "Two more refusals need a compiled kernel or this host: a CTA with more registers or threads than an SM has, and a problem that "
        "this host's memory cannot hold.",
    ),
)
