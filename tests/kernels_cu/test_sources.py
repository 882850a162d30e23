"""How a kernel file reads: eight paragraphs in order, barriers that say why, no host code, lines that fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rawflash import paths
from rawflash.compile import compile_source
from rawflash.problem import Problem
from rawflash.source import read_source, tagged_lines
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100

KERNELS = sorted(paths.kernels_dir().glob("*.cu"))
SOURCES = KERNELS + sorted(paths.include_dir().glob("*.cuh"))
kernels = pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.name)
sources = pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)


@kernels
def test_header_has_its_eight_paragraphs_in_order(path: Path) -> None:
    header = path.read_text(encoding="utf-8").split("#include")[0]
    assert [int(n) for n in re.findall(r"^// \((\d)\)", header, re.M)] == list(range(1, 9))


@sources
def test_every_barrier_says_why(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if re.search(r"^\s*__sync(threads|warp)\(\);", line)]
    assert all("// so that " in line for line in lines)


@sources
def test_size_width_and_manners(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 250
    assert max(map(len, lines)) <= 150
    assert not re.search(r"\b(printf|assert|TODO|cudaMalloc|main)\b", text)


@pytest.mark.parametrize("name", ["online", "fa1", "fa1_qout", "fa2", "fa2_mma", "fa2_pipe", "fa2_lazy", "splitkv"])
def test_rescaling_lines_are_tagged(name: str) -> None:
    source = read_source(LADDER[name].file)
    tagged = tagged_lines(source, "rescale")
    products = [n for n, line in enumerate(source.text.splitlines(), 1) if "__fmul_rn" in line]
    assert sorted(line for _, line in tagged) == products and len(products) >= 2


def default_points() -> list[tuple[Problem, int]]:
    """(problem, block size): the default one, plain, and with a window, softcap and heads side by side."""
    plain = [Problem(d=d, causal=causal) for causal in ("none", "bottom_right") for d in (64, 128)]
    busy = [Problem(d=d, Hkv=2, causal=True, window_left=100, softcap=20.0, layout="bnhd") for d in (64, 128)]
    return [(problem, 64) for problem in plain + busy]


def more_points() -> list[tuple[Problem, int]]:
    """Every d and block size that the A100 takes; d = 256 with 128 keys is the one patch that does not fit in registers."""
    return [
        (Problem(d=d, causal=causal), side) for causal in ("none", "bottom_right") for d in (32, 64, 96, 128) for side in (16, 32, 64, 128)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("points", [default_points, pytest.param(more_points, marks=pytest.mark.exhaustive)], ids=lambda p: p.__name__)
@pytest.mark.parametrize("arch", ["80", "90"])
@pytest.mark.parametrize("name", LADDER)
def test_no_spills(name: str, arch: str, points: Callable[[], list[tuple[Problem, int]]]) -> None:
    variant, source = LADDER[name], read_source(LADDER[name].file)
    for problem, side in points():
        tiling = Tiling(side, side)
        if variant.invalid_reason(problem, tiling, A100) is None:
            plan = variant.plan(problem, tiling)
            threads = {entry: 256 for entry in variant.entry_points} | {launch.entry: launch.cta[0] for launch in plan.launches}
            for kernel, used in compile_source(source, plan.defines, arch).resources.items():
                assert used.spill_bytes == 0, (kernel, problem, side)
                assert used.registers * threads[kernel] <= 65536


@pytest.mark.parametrize("name", [name for name in LADDER if name != "online"])
def test_another_amount_of_shared_memory_does_not_compile(name: str) -> None:
    from rawflash.errors import CompileError

    plan = LADDER[name].plan(Problem(), Tiling(64, 64))
    for macro in (key for key in plan.defines if key.endswith("_SMEM")):
        with pytest.raises(CompileError, match="another amount of shared memory"):
            compile_source(read_source(LADDER[name].file), {**plan.defines, macro: int(plan.defines[macro]) + 4}, "80")
