"""Every barrier of every kernel is needed: without it the emulator reports a race, or the result is wrong. So is each guard."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from rawflash.backends.base import launch_plan
from rawflash.check import compare
from rawflash.compile import compile_source
from rawflash.emu import EmuParams
from rawflash.errors import LaunchError
from rawflash.problem import Problem, make_inputs
from rawflash.source import Source, read_source
from rawflash.variants import LADDER
from rawflash.variants.softmax import FILE, SOFTMAXES, SoftmaxProblem, softmax_plan
from tests.kernels_cu.ladder import A100, SMALL, VARIANTS, backend

pytestmark = pytest.mark.slow

# At least three tiles of keys and of rows, two warps per CTA, a ragged end: what a missing barrier needs to show itself.
PROBLEM = Problem(B=1, H=2, N=56, Nkv=70, d=32, dtype="fp32", causal="bottom_right")
RACES = EmuParams(racecheck=True)


def barriers(source: Source) -> list[int]:
    """Line numbers (from 0) of the barriers of a .cu."""
    return [n for n, line in enumerate(source.text.splitlines()) if re.match(r"\s*__sync(threads|warp)\(\);", line)]


def without_line(source: Source, number: int) -> Source:
    lines = source.text.splitlines(keepends=True)
    lines[number] = "\n"
    return dataclasses.replace(source, text="".join(lines))


def survives(name: str, source: Source) -> bool:
    """True when the mutant runs without a report and its result is right."""
    plan, device = LADDER[name].plan(PROBLEM, SMALL), backend(RACES)
    module = device.compile(compile_source(source, plan.defines, A100.arch), plan)
    arrays = {key: device.to_device(x) for key, x in make_inputs(PROBLEM).items()}
    arrays |= {key: device.empty(shape, np.dtype(kind)) for key, (shape, kind) in plan.buffers.items()}
    try:
        launch_plan(module, plan, arrays)
    except LaunchError:
        return False
    except Exception as error:  # the emulator's own errors, untranslated on this path
        assert "rawflash.emu" in type(error).__module__, error
        return False
    return compare(device.to_host(arrays["O"]), device.to_host(arrays["LSE"]), PROBLEM, o_writes=5).ok


@pytest.mark.parametrize("name", VARIANTS)
def test_unmutated_kernels_survive(name: str) -> None:
    assert survives(name, read_source(LADDER[name].file))


@pytest.mark.parametrize(
    ("name", "line"), [pytest.param(n, b, id=f"{n}-{b + 1}") for n in VARIANTS for b in barriers(read_source(LADDER[n].file))]
)
def test_no_barrier_can_go(name: str, line: int) -> None:
    assert not survives(name, without_line(read_source(LADDER[name].file), line))


@pytest.mark.parametrize("line", barriers(read_source(FILE)), ids=lambda n: f"softmax-{n + 1}")
def test_no_barrier_of_the_softmax_can_go(line: int) -> None:
    p, source, device = SoftmaxProblem(2, 700, 33), without_line(read_source(FILE), line), backend(RACES)
    failed = False
    for name in SOFTMAXES:
        plan = softmax_plan(name, p)
        module = device.compile(compile_source(source, plan.defines, A100.arch), plan)
        arrays = {key: device.empty(shape, kind) for key, (shape, kind) in plan.buffers.items()}
        arrays["X"] = device.to_device(np.ones((p.batch, p.V), np.float32))
        try:
            launch_plan(module, plan, arrays)
        except Exception as error:
            assert "rawflash.emu" in type(error).__module__, error
            failed = True
    assert failed
