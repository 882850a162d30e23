"""What the experiments on the speed of light share: counts of a kernel on a long problem, remembered; its light and occupancy on a GPU.

Code is compiled for compute capability 8.0 and counted once; all GPUs are judged by these counts and registers. (NVRTC 13 knows no 7.0;
registers differ a little between architectures.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from rawflash.config import gpu_values
from rawflash.extend import extended_counts
from rawflash.lab import Lab
from rawflash.light import Light, speed_of_light
from rawflash.occupancy import Occupancy, occupancy
from rawflash.paths import conf_dir
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from rawflash.work import asked_bytes, work_from

__all__ = ["Judged", "all_gpus", "judge_on", "problem_of", "refusal", "sheet"]


@cache
def sheet(name: str) -> Gpu:
    """The GPU described by conf/gpu/<name>.yaml."""
    return Gpu.from_dict(gpu_values(name))


def all_gpus() -> list[str]:
    """Names in conf/gpu, oldest architecture first."""
    names = [path.stem for path in (conf_dir() / "gpu").glob("*.yaml") if path.stem != "auto"]
    return sorted(names, key=lambda name: (int(sheet(name).arch), sheet(name).sms, name))


@dataclass(frozen=True)
class Judged:
    """One kernel on one problem and one GPU.

    exact       counts were executed or extended by a polynomial that a test point confirmed
    hbm_bytes   what the kernels ask of HBM, without a cache
    occupancy   of the launch that has the lowest
    waves       CTAs of that launch / CTAs that the GPU holds at once
    """

    light: Light
    exact: bool
    hbm_bytes: int
    sfu: int
    occupancy: Occupancy
    registers: int
    spill_bytes: int
    smem_bytes: int
    warps: int
    waves: float


def problem_of(lab: Lab) -> Problem:
    """The problem that the options of an experiment describe, by the names of its fields."""
    return Problem(**{field.name: lab.options[field.name] for field in fields(Problem) if field.name in lab.options})


def refusal(kernel: str, problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """Why the kernel cannot run there, in its own words, or None."""
    return LADDER[kernel].invalid_reason(problem, tiling, gpu)


def judge_on(lab: Lab, kernel: str, problem: Problem, tiling: Tiling, gpu: Gpu) -> Judged:
    """Speed of light and occupancy. Raises InvalidConfiguration for what the kernel refuses even on an A100."""
    told = _counted(lab, kernel, problem, tiling)
    plan = LADDER[kernel].plan(problem, tiling)
    held = []
    for launch in plan.launches:
        figures = told["resources"][launch.entry]
        threads, smem = math.prod(launch.cta), launch.shared_bytes + figures["smem_bytes"]
        found = occupancy(gpu, threads, figures["registers"], smem)
        held.append((found.fraction, launch.entry, found, figures, smem, threads // 32, math.prod(launch.grid)))
    _, _, found, figures, smem, warps, ctas = min(held, key=lambda entry: entry[:2])
    return Judged(
        light=speed_of_light(work_from(told["counts"], problem, plan, gpu), gpu),
        exact=told["exact"],
        hbm_bytes=asked_bytes(told["counts"]),
        sfu=told["counts"].get("pipe/sfu", 0),
        occupancy=found,
        registers=figures["registers"],
        spill_bytes=figures["spill_bytes"],
        smem_bytes=smem,
        warps=warps,
        waves=ctas / (found.ctas * gpu.sms) if found.ctas else math.inf,
    )


def _counted(lab: Lab, kernel: str, problem: Problem, tiling: Tiling) -> dict[str, Any]:
    """Counts of all heads and what ptxas says of each kernel, as JSON; remembered per head."""
    head = replace(problem, B=1, H=1, Hkv=1)

    def make() -> dict[str, Any]:
        found = extended_counts(LADDER[kernel], head, tiling, sheet("a100_80gb"), lab.emulator)
        resources = {
            entry: {"registers": r.registers, "smem_bytes": r.smem_bytes, "spill_bytes": r.spill_bytes}
            for entry, r in found.resources.items()
        }
        return {"counts": found.counts, "exact": found.exact, "resources": resources}

    told = lab.remember(("extended", kernel, repr(head), repr(tiling)), make, [LADDER[kernel].file])
    heads = problem.B * problem.H
    return {**told, "counts": {name: n * heads for name, n in told["counts"].items()}}
