"""unfused: bytes per stage against the papers' units, dropout exactly where NumPy drops, passes only where there is something to do."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash.backends.base import launch_plan
from rawflash.compile import compile_source
from rawflash.dropout import kept
from rawflash.emu import EmuParams
from rawflash.errors import CheckFailed, InvalidConfiguration
from rawflash.io_model import unfused_stages
from rawflash.problem import Problem, make_inputs
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100, SMALL, backend, mismatches, run

VARIANT = LADDER["unfused"]
SCALED = Tiling(16, 16, scale_pass=True)
# Grouped heads, more queries than keys. 36 keys go by fours, 35 one by one.
PROBLEMS = [
    Problem(B=1, H=4, Hkv=2, N=40, Nkv=keys, d=32, causal="bottom_right", dropout_p=0.3, seed=5, dtype=dtype)
    for keys, dtype in ((36, "fp16"), (35, "bf16"))
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=["by_fours", "one_by_one"])
@pytest.mark.parametrize("tiling", [SMALL, SCALED], ids=["alpha", "scale_pass"])
def test_every_stage_moves_what_its_formula_says(problem: Problem, tiling: Tiling) -> None:
    plan, device = VARIANT.plan(problem, tiling), backend(EmuParams(racecheck=True))
    module = device.compile(compile_source(read_source(VARIANT.file), plan.defines, A100.arch), plan)
    arrays = {name: device.to_device(x) for name, x in make_inputs(problem).items()}
    arrays |= {name: device.empty(shape, np.dtype(kind)) for name, (shape, kind) in plan.buffers.items()}
    reports = launch_plan(module, plan, arrays)
    for launch, report in zip(plan.launches, reports, strict=True):
        names = [name for name in launch.args if isinstance(name, str)]
        moved = {name: (a.read_bytes, a.write_bytes) for name, a in zip(names, report.arguments, strict=False)}
        assert moved == unfused_stages(problem, tiling)[launch.entry], launch.entry
    Z = np.array(arrays["Z"]).reshape(problem.B, problem.H, problem.N, problem.Nkv)
    assert all((Z[0, h] == kept(problem, 0, h, slice(0, problem.N))).all() for h in range(problem.H))
    assert ((np.array(arrays["P_drop"]) != 0) <= Z.astype(bool)).all()


@pytest.mark.parametrize("problem", PROBLEMS, ids=["by_fours", "one_by_one"])
@pytest.mark.parametrize("tiling", [SMALL, SCALED], ids=["alpha", "scale_pass"])
def test_right_with_dropout(problem: Problem, tiling: Tiling) -> None:
    assert not mismatches(run("unfused", problem, tiling))


def test_a_framework_launches_what_it_is_asked_for() -> None:
    launched = lambda tiling=SMALL, **more: [n.entry.partition("_")[2] for n in VARIANT.plan(Problem(**more), tiling).launches]  # noqa: E731
    assert launched() == ["scores", "softmax", "output"]
    assert launched(causal=True) == ["scores", "mask", "softmax", "output"]
    assert launched(dropout_p=0.1) == ["scores", "softmax", "dropout", "output"]
    assert launched(SCALED, causal=True, softcap=20.0, dropout_p=0.1) == list(entry.partition("_")[2] for entry in VARIANT.entry_points)


def test_figure_2_left_of_flash_attention() -> None:
    """arXiv 2205.14135, forward, fp16, B=64, H=16, N=1024, d=64, mask and dropout: 8.5 passes over the matrix, by stage as in Figure 1."""
    p = Problem(B=64, H=16, N=1024, d=64, causal="bottom_right", dropout_p=0.1)
    S = 2 * 64 * 16 * 1024 * 1024
    stages = unfused_stages(p, Tiling(64, 64))
    passes = {entry: sum(sum(io.get(name, (0, 0))) for name in ("S", "P", "P_drop", "Z")) / S for entry, io in stages.items()}
    assert list(passes.values()) == [1, 2, 2, 2.5, 1] and sum(passes.values()) == 8.5
    plain = unfused_stages(Problem(B=64, H=16, N=1024, d=64), Tiling(64, 64))
    assert sum(sum(io.get(name, (0, 0))) for io in plain.values() for name in ("S", "P")) == 4 * S


def test_fp16_scores_overflow_as_they_did() -> None:
    """Scaled in a pass of its own, S = 65536 is inf in fp16 before the scale can make it 5793; as alpha of the product it is not."""
    problem = Problem(B=1, H=1, N=1, Nkv=2, d=128, dtype="fp16")
    inputs = {"Q": np.full((1, 1, 1, 128), 32, np.float16), "K": np.full((1, 1, 2, 128), 16, np.float16)}
    inputs["V"] = np.ones((1, 1, 2, 128), np.float16)
    assert (run("unfused", problem, SMALL, inputs=inputs).outputs["O"] == 1).all()
    with pytest.raises(CheckFailed, match=r"O.* is nan where the reference is 1 "):
        run("unfused", problem, SCALED, inputs=inputs)


@pytest.mark.parametrize("name", [name for name in LADDER if name != "unfused"])
def test_other_rungs_refuse_dropout(name: str) -> None:
    dtype = LADDER[name].dtypes[0]
    with pytest.raises(InvalidConfiguration, match=r"dropout_p=0\.1 is not supported: take kernel=unfused, or problem\.dropout_p=0"):
        run(name, Problem(N=4, dtype=dtype, dropout_p=0.1))
