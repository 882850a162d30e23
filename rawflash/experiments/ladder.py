"""The whole ladder in one table: a column per rung, a line per quantity; and what each step up saves.

One head; every head is alike. A variant of several kernels is added up, except registers, shared memory and occupancy: those are of the
kernel that is worst off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from rawflash.compile import compile_source
from rawflash.config import gpu_values
from rawflash.errors import RawflashError
from rawflash.execute import RunResult
from rawflash.lab import Cell, Experiment, Lab, Row, Verdict, counted, modelled
from rawflash.metrics import PIPES, TENSORS
from rawflash.occupancy import Occupancy, occupancy
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["EXPERIMENT"]

STEPS, CONFLICTS = "What each step saves", "bank conflicts"
Metrics = Mapping[str, float]
Results = dict[str, RunResult]

_WORK: tuple[tuple[str, Callable[[Metrics], float]], ...] = (
    ("multiplications that rescale", lambda m: m["ops/rescale_mul"]),
    ("divisions and reciprocals", lambda m: m["ops/div"] + m["ops/rcp"]),
    ("exponentials on the SFU (ex2)", lambda m: m["ops/ex2"]),
    *((f"issue slots, {pipe}", lambda m, pipe=pipe: m[f"slots/{pipe}"]) for pipe in PIPES),
    ("issue slots, all", lambda m: sum(m[f"slots/{pipe}"] for pipe in PIPES)),
    ("wavefronts of SMEM", lambda m: m["smem/wavefronts"]),
    (CONFLICTS, lambda m: m["smem/bank_conflicts"]),
    ("barriers, per warp", lambda m: m["ops/barriers"]),
)
# Of these a step's savings are told.
_SAVED = ("multiplications that rescale", "divisions and reciprocals", "exponentials on the SFU (ex2)", "issue slots, all")


def _point(lab: Lab) -> tuple[Problem, Tiling]:
    o = lab.options
    return Problem(B=1, H=1, N=o["N"], d=o["d"], dtype=o["dtype"]), Tiling(o["block"], o["block"])


def _results(lab: Lab) -> tuple[Results, dict[str, str]]:
    """Kernel -> result, and kernel -> sentence for those that do not run here."""
    found, refused = {}, {}
    for name in LADDER:
        result = lab.run(name, *_point(lab), raise_errors=False)
        if result.ok:
            found[name] = result
        else:
            refused[name] = f"{result.status}: {result.sentence}"
    return found, refused


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    results, refused = _results(lab)
    if not results:
        raise RawflashError(f"no rung runs on this problem: {next(iter(refused.values()))}")
    yield from _bytes(results)
    for quantity, count in _WORK:
        numbers = {name: count(result.metrics) for name, result in results.items()}
        verdict = _no_conflict(numbers) if quantity == CONFLICTS else (None, "")
        if any(numbers.values()) or quantity == CONFLICTS:
            yield Row({"one head": quantity}, {name: counted(n) for name, n in numbers.items()}, *verdict)
    yield from _resources(lab, results)
    yield from _steps(results)
    for name, sentence in refused.items():
        yield Row({"kernel": name}, {}, Verdict.NOT_COMPARABLE, sentence, "Rungs that do not run on this problem")


def _bytes(results: Results) -> Iterable[Row]:
    """Bytes of each tensor, read and written, with the verdict on the closed forms."""
    for tensor in TENSORS:
        for verb in ("read", "write"):
            moved = {name: (getattr(t, f"counted_{verb}"), getattr(t, f"modelled_{verb}")) for name, t in _tensor(results, tensor).items()}
            if any(map(any, moved.values())):
                cells = {name: counted(moved[name][0] if name in moved else 0) for name in results}
                yield Row({"one head": f"bytes of {tensor}, {verb}"}, cells, *_verdict(moved))
    yield Row({"one head": "bytes, all"}, {name: counted(r.metrics["io/hbm_total_bytes"]) for name, r in results.items()})
    yield Row({"one head": "times the ideal"}, {name: counted(r.metrics["io/times_ideal"], digits=4) for name, r in results.items()})


def _tensor(results: Results, tensor: str) -> dict[str, Any]:
    return {name: t for name, result in results.items() for t in result.tensors if t.name == tensor}


def _verdict(moved: Mapping[str, tuple[int, int]]) -> tuple[Verdict, str]:
    wrong = [f"{name}: counted {found}, closed form {form}" for name, (found, form) in moved.items() if found != form]
    return (Verdict.DIFFERS, "; ".join(wrong)) if wrong else (Verdict.REPRODUCED, "the closed forms, exactly")


def _no_conflict(numbers: Metrics) -> tuple[Verdict, str]:
    met = ", ".join(name for name, n in numbers.items() if n)
    return (Verdict.DIFFERS, f"{met} must wait for banks") if met else (Verdict.REPRODUCED, "none")


def _resources(lab: Lab, results: Results) -> Iterable[Row]:
    yield Row({"one head": "SMEM per CTA, bytes"}, {name: counted(r.metrics["res/smem_bytes"]) for name, r in results.items()})
    for sheet in lab.options["gpus"]:
        gpu = Gpu.from_dict(gpu_values(sheet))
        worst = {name: min(_kernels(lab, name, gpu), key=lambda entry: (entry[1].fraction, -entry[0])) for name in results}
        most = {name: max(registers for registers, _ in _kernels(lab, name, gpu)) for name in results}
        title = gpu.name.split(" ")[0]
        yield Row({"one head": f"registers, sm_{gpu.arch}"}, {name: counted(n) for name, n in most.items()})
        yield Row({"one head": f"{title}: CTAs per SM"}, {name: modelled(o.ctas) for name, (_, o) in worst.items()})
        share = {name: modelled(100 * o.fraction, "%", digits=3) for name, (_, o) in worst.items()}
        yield Row({"one head": f"{title}: occupancy"}, share)
        limits = {name: Cell(" ".join(o.limiters), "", "modelled") for name, (_, o) in worst.items()}
        yield Row({"one head": f"{title}: limited by"}, limits)


def _kernels(lab: Lab, name: str, gpu: Gpu) -> list[tuple[int, Occupancy]]:
    """Registers and occupancy of each kernel of a variant, compiled for `gpu`."""
    variant = LADDER[name]
    plan = variant.plan(*_point(lab))

    def make() -> dict[str, list[int]]:
        used = compile_source(read_source(variant.file), plan.defines, gpu.arch).resources
        return {kernel: [figures.registers, figures.smem_bytes] for kernel, figures in used.items()}

    used = lab.remember(("resources", name, repr(plan.defines), gpu.arch), make, [variant.file])
    found = []
    for launch in plan.launches:
        registers, smem = used[launch.entry]
        found.append((registers, occupancy(gpu, launch.cta[0] * launch.cta[1] * launch.cta[2], registers, smem + launch.shared_bytes)))
    return found


def _steps(results: Results) -> Iterable[Row]:
    """Neighbours of the ladder: what the upper one does less of."""
    counts = dict(_WORK)
    for lower, upper in pairwise(results):
        was, now = results[lower].metrics, results[upper].metrics
        cells = {"bytes of HBM": counted(was["io/hbm_total_bytes"] - now["io/hbm_total_bytes"])}
        cells |= {quantity: counted(counts[quantity](was) - counts[quantity](now)) for quantity in _SAVED}
        yield Row({"from": lower, "to": upper}, cells, None, LADDER[upper].changed, STEPS)


EXPERIMENT = Experiment(
    title="The ladder, rung by rung",
    claim="Every rung moves exactly the bytes of its closed form; no rung has a bank conflict in its tiles.",
    source="kernels_cu/README.md",
    rows=_rows,
    notes=(
        "Issue slots are warp instructions of PTX by the pipe that executes them; ptxas removes some and splits others.",
        "Savings below zero: the step costs that much. fa1 to fa1_qout is the order of the loops, fa1_qout to fa2 the late division.",
        "Occupancy: of the kernel with the lowest one; registers by ptxas for that architecture.",
    ),
)
