"""The registry: names, files, entry points, plans, refusals in one sentence, and the table in kernels_cu/README.md."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np
import pytest

from rawflash import paths
from rawflash.io_model import hbm_bytes, total_bytes
from rawflash.metrics import TENSORS
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.source import read_source
from rawflash.splits import cut_keys
from rawflash.tiling import Tiling, softmax_warps
from rawflash.variants import LADDER

A100 = Gpu(name="A100", arch="80", sms=108, smem_block_bytes=166912, smem_sm_bytes=167936)
T4 = Gpu(name="T4", arch="75", sms=40, smem_block_bytes=65536, smem_sm_bytes=65536)
TILED = [name for name in LADDER if name != "online"]
every_variant = pytest.mark.parametrize("name", LADDER)


def test_the_ladder() -> None:
    assert list(LADDER) == ["naive", "unfused", "online", "fa1", "fa1_qout", "fa2", "fa2_mma", "fa2_pipe", "fa2_lazy", "splitkv"]
    assert all(name == v.name and len(name) <= 10 for name, v in LADDER.items())


@every_variant
def test_entry_points_are_the_kernels_of_the_file(name: str) -> None:
    variant = LADDER[name]
    kernels = re.findall(r'extern "C" __global__ void[^\n]*\n(\w+)\(', read_source(variant.file).text)
    launched = [launch.entry for launch in variant.plan(Problem(), Tiling(64, 64)).launches]
    assert tuple(kernels) == variant.entry_points and launched == [entry for entry in kernels if entry in launched] != []
    if name != "unfused":  # which has passes that are launched when there is something to do
        assert launched == kernels


@every_variant
def test_plans_hand_each_kernel_what_it_declares(name: str) -> None:
    """Argument names and kinds in the order of the .cu; every buffer is a tensor that metrics know; defines cover the macros."""
    variant, problem = LADDER[name], Problem()
    plan, source = variant.plan(problem, Tiling(64, 64)), read_source(variant.file)
    assert set(plan.buffers) <= set(TENSORS) and {"O", "LSE"} <= set(plan.buffers)
    text = source.text
    code = re.sub(r"//.*", "", "\n".join([text, *(header for _, header in source.includes)]))
    assert set(re.findall(r"\bRF_[A-Z0-9_]+\b", code)) == set(plan.defines)
    for launch in plan.launches:
        body = re.search(rf"\n{launch.entry}\((.*?)\)\n\{{", text, re.S)
        assert body is not None
        declared = [p.split() for p in re.sub(r"//.*", "", body[1]).replace("\n", " ").split(",")]
        assert len(declared) == len(launch.args)
        for words, argument in zip(declared, launch.args, strict=True):
            if isinstance(argument, str):
                assert words[-1].removesuffix("_hbm") == argument and any("*" in word for word in words)
            else:
                kind = "float" if isinstance(argument, np.float32) else "int"
                assert words[-2] == kind and (words[-1] in ("softmax_scale", "splits") or getattr(problem, words[-1]) == argument)


@every_variant
def test_what_runs_is_not_refused(name: str) -> None:
    for side in (16, 32, 64, 128):
        for d in (32, 64):
            for dtype in LADDER[name].dtypes:
                assert LADDER[name].invalid_reason(Problem(d=d, dtype=dtype), Tiling(side, side), A100) is None


@every_variant
@pytest.mark.parametrize("d", [1, 5, 63, 100, 257, 264])
def test_head_dim_is_refused_by_name(name: str, d: int) -> None:
    reason = LADDER[name].invalid_reason(Problem(d=d), Tiling(64, 64), A100)
    assert reason == f"d={d} is not supported: d must be a multiple of 8 between 8 and 256"


@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("side", [8, 17, 24, 144, 256])
def test_tile_sides_are_refused_by_name(name: str, side: int) -> None:
    for tiling, which in ((Tiling(side, 64), "Br"), (Tiling(64, side), "Bc")):
        if (name, which) == ("fa1", "Bc") and side % 16 == 0:
            continue
        reason = LADDER[name].invalid_reason(Problem(), tiling, A100)
        assert reason is not None and reason.startswith(f"{which}={side} is not supported: ")
        assert reason.endswith("must be a multiple of 16 between 16 and " + ("512" if (name, which) == ("fa1", "Bc") else "128"))


def test_long_key_tiles_are_for_fa1_and_end_where_shared_memory_does() -> None:
    for tiling, d in ((Tiling(16, 256), 64), (Tiling(16, 512), 32)):
        assert LADDER["fa1"].invalid_reason(Problem(d=d), tiling, A100) is None
    reason = LADDER["fa1"].invalid_reason(Problem(d=64), Tiling(16, 512), A100)
    assert reason is not None and "299520 bytes" in reason and "offers 166912" in reason


def test_shared_memory_is_refused_with_both_numbers() -> None:
    reason = LADDER["fa2"].invalid_reason(Problem(d=128), Tiling(128, 128), A100)
    assert reason is not None and "263168 bytes" in reason and "offers 166912" in reason and "block_size" in reason
    reason = LADDER["fa1"].invalid_reason(Problem(d=64), Tiling(64, 64), T4)
    assert reason is not None and "66048 bytes" in reason and "offers 65536" in reason


def test_bf16_is_refused_before_sm80() -> None:
    reason = LADDER["online"].invalid_reason(Problem(dtype="bf16"), Tiling(64, 64), T4)
    assert reason == "dtype=bf16 needs compute capability 8.0, T4 has 7.5: take fp16 or fp32"


def test_tensor_cores_take_two_types_from_sm80_on() -> None:
    reasons = [LADDER["fa2_mma"].invalid_reason(p, Tiling(64, 64), gpu) for p, gpu in ((Problem(dtype="fp32"), A100), (Problem(), T4))]
    assert reasons[0] == "dtype=fp32 is not supported: fa2_mma takes fp16 or bf16; set one of them or another kernel"
    assert reasons[1] == "mma.m16n8k16 needs compute capability 8.0, T4 has 7.5: take kernel=fa2"


def test_lengths_and_grids_beyond_cuda_are_refused() -> None:
    reason = LADDER["online"].invalid_reason(Problem(N=2**30, Nkv=1), Tiling(64, 64), A100)
    assert reason is not None and reason.startswith("N=1073741824 is not supported")
    reason = LADDER["fa1"].invalid_reason(Problem(B=2**16, H=2**16, N=1), Tiling(16, 16), A100)
    assert reason is not None and "4294967296 CTAs" in reason and "2147483647" in reason


@every_variant
def test_empty_problems_are_accepted(name: str) -> None:
    for problem in (Problem(N=0), Problem(Nkv=0), Problem(B=0), Problem(H=0)):
        assert LADDER[name].invalid_reason(problem, Tiling(64, 64), A100) is None


def test_softmax_rows_leave_the_chip_when_they_grow() -> None:
    warps = [softmax_warps(Problem(Nkv=keys)) for keys in (1, 3072, 3073, 12288, 12289)]
    assert warps == [4, 4, 3, 1, 0]
    plans = [LADDER["naive"].plan(Problem(Nkv=keys), Tiling(64, 64)) for keys in (12288, 12289)]
    assert [(p.defines["RF_ROW_ON_CHIP"], p.launches[1].shared_bytes) for p in plans] == [(1, 49152), (0, 0)]


# ---------------------------------------------------------------------------------------------------------- README's table
def readme_rows() -> dict[str, list[str]]:
    """File name -> cells of the ladder table."""
    text = (paths.kernels_dir() / "README.md").read_text(encoding="utf-8").replace("\\*", "*")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if re.match(r"\| \w+\.cu \|", line)]
    return {row[0]: row for row in rows}


def test_the_readme_lists_every_rung_in_order() -> None:
    assert list(readme_rows()) == [variant.file for variant in LADDER.values()]


@every_variant
def test_the_readme_says_what_the_registry_says(name: str) -> None:
    variant = LADDER[name]
    _, entries, changed, formula = readme_rows()[variant.file]
    assert tuple(entries.split(", ")) == variant.entry_points
    assert changed == variant.changed
    for problem in (Problem(B=2, H=3, N=256, d=64), Problem(B=1, H=1, N=100, d=32, dtype="fp32")):
        tiling = Tiling(16, 64)
        numbers = {"B": problem.B, "H": problem.H, "N": problem.N, "d": problem.d, "w": problem.itemsize}
        numbers |= {"Tr": tiling.Tr(problem), "Tc": tiling.Tc(problem), "splits": cut_keys(problem, tiling).splits}
        assert eval(formula, {"__builtins__": {}}, numbers) == total_bytes(hbm_bytes(name, problem, tiling))


def test_the_readme_lists_every_header() -> None:
    text = (paths.kernels_dir() / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (rf_\w+\.cuh) \|", text, re.M) and set(re.findall(r"^\| (rf_\w+\.cuh) \|", text, re.M)) == {
        path.name for path in paths.include_dir().glob("*.cuh")
    }


def test_every_field_of_the_tiling_is_somebodys() -> None:
    """Br, Bc and the GPU's SMs are everybody's; any other field that no rung heeded would be a wish ignored."""
    assert {knob for v in LADDER.values() for knob in v.knobs} == {f.name for f in fields(Tiling)} - {"Br", "Bc", "sms"}
