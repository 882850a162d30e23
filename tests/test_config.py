"""Every YAML composes, every key has a type, and what cannot be meant is refused in one sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from rawflash.config import Settings, gpu_values, known_keys, register_schema, settings_from, unknown_key
from rawflash.errors import UsageError
from rawflash.paths import conf_dir
from rawflash.roofline import Gpu
from rawflash.variants import LADDER

GROUPS = {path.name: sorted(f.stem for f in path.glob("*.yaml")) for path in sorted(conf_dir().iterdir()) if path.is_dir()}
OPTIONS = [(group, option) for group, options in GROUPS.items() if group != "hydra" for option in options]
GPUS = [name for name in GROUPS["gpu"] if name != "auto"]


def settings(*overrides: str) -> Settings:
    register_schema()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return settings_from(compose("config", list(overrides)))


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_yaml_composes(group: str, option: str) -> None:
    assert settings(f"{group}={option}").variants


@pytest.mark.parametrize("path", sorted(conf_dir().rglob("*.yaml")), ids=lambda p: str(p.relative_to(conf_dir())))
def test_every_yaml_is_short_and_opens_with_a_comment(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 40


def test_the_kernel_group_is_the_ladder() -> None:
    assert GROUPS["kernel"] == sorted([*LADDER, "all"])
    assert settings().variants == settings("kernel=all").variants == tuple(LADDER)
    for name in LADDER:
        assert settings(f"kernel={name}").variants == (name,)


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_is_a_usable_description_with_its_source(name: str) -> None:
    gpu = Gpu.from_dict(gpu_values(name))
    assert gpu.source and dict(gpu.confidence)["default"]
    assert gpu.sms > 0 and gpu.hbm_gb_s > 0 and gpu.fp16_tflops > gpu.fp32_tflops > 0
    assert 48 * 1024 < gpu.smem_block_bytes <= gpu.smem_sm_bytes
    assert gpu.smem_block_bytes in (gpu.smem_sm_bytes, gpu.smem_sm_bytes - 1024)


@pytest.mark.parametrize("name", GPUS)
def test_peaks_are_sms_times_rate_times_clock(name: str) -> None:
    gpu = Gpu.from_dict(gpu_values(name))
    assert gpu.fp16_tflops == pytest.approx(gpu.sms * gpu.tensor_flop_per_clk_sm * gpu.tensor_mhz / 1e6, rel=0.005)
    assert gpu.fp32_tflops == pytest.approx(gpu.sms * 2 * gpu.fma_per_clk_sm * gpu.boost_mhz / 1e6, rel=0.006)
    assert gpu.bf16_tflops == (gpu.fp16_tflops if int(gpu.arch) >= 80 else 0)
    assert gpu.fp8_tflops == pytest.approx(2 * gpu.fp16_tflops if int(gpu.arch) >= 89 else 0, rel=0.001)


@pytest.mark.parametrize("name", GPUS)
def test_every_rate_is_stated(name: str) -> None:
    """What every GPU of a family shares is the same in all of its files; what is a guess says so."""
    gpu = Gpu.from_dict(gpu_values(name))
    assert (gpu.sfu_per_clk_sm, gpu.schedulers_sm, gpu.regs_sm) == (16, 4, 65536)
    assert gpu.fma_per_clk_sm == {"70": 64, "75": 64, "80": 64}.get(gpu.arch, 128)
    assert gpu.smem_bytes_per_clk_sm == (64 if gpu.arch == "75" else 128)
    assert gpu.lsu_per_clk_sm == (16 if gpu.arch in ("75", "86", "89") else 32)
    assert gpu.l2_gb_s > gpu.hbm_gb_s and gpu.memory_bytes >= 16 * 2**30 and 0 < gpu.tensor_mhz <= gpu.boost_mhz
    known = {field.name for field in dataclasses.fields(Gpu)} | {"default"}
    assert set(dict(gpu.confidence)) <= known and "l2_gb_s" in dict(gpu.confidence)


def test_seed_and_block_size_are_flat() -> None:
    found = settings("seed=7", "block_size=32", "kernel.Bc=16")
    assert found.problem.seed == 7
    assert (found.tiling.Br, found.tiling.Bc) == (32, 16)


@pytest.mark.parametrize(("said", "meant"), [("auto", None), ("3", 3)])
def test_splits_are_a_number_or_left_to_the_plan(said: str, meant: int | None) -> None:
    found = settings("kernel=splitkv", f"kernel.num_splits={said}")
    assert found.tiling.num_splits == meant and found.params["kernel.num_splits"] == said


@pytest.mark.parametrize(("said", "meant"), [("true", "bottom_right"), ("false", "none"), ("top_left", "top_left")])
def test_causal_takes_yes_and_no(said: str, meant: str) -> None:
    assert settings(f"problem.causal={said}").problem.causal == meant


# Case M11.
def test_params_are_the_inputs_flat_and_as_text() -> None:
    params = settings("gpu=h100", "problem.softmax_scale=0.5").params
    assert params["block_size"] == "64"
    assert params["problem.softmax_scale"] == "0.5"
    assert params["problem.Hkv"] == "null"
    assert params["gpu.arch"] == "90"
    assert not [
        name for name in params if name.startswith(("tracking", "debug", "hydra", "gpu.source", "gpu.confidence", "kernel.variants"))
    ]


# Case M11.
def test_the_yaml_of_a_run_reads_back_as_its_params() -> None:
    found = settings("problem=ragged", "gpu=t4")
    read: dict[str, Any] = OmegaConf.to_container(OmegaConf.create(found.yaml))  # type: ignore[assignment]
    for name, text in found.params.items():
        value: Any = read
        for part in name.split("."):
            value = value[part]
        assert text == ("null" if value is None else str(value).lower() if isinstance(value, bool) else str(value))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["+blocksize=3"], "did you mean block_size?"),
        (["+problem.n=3"], "did you mean problem.N?"),
        (["+dtype=fp16"], "did you mean problem.dtype?"),
        (["block_size=0"], "block_size=0 is not the side of a tile"),
        (["block_size=-3"], "from 1 to 1024"),
        (["block_size=100000"], "block_size=100000"),
        (["kernel.Br=0"], "kernel.Br=0"),
        (["kernel.num_splits=0"], "kernel.num_splits=0 is not a number of splits"),
        (["kernel.num_splits=many"], "kernel.num_splits=many is not a number of splits: give a whole number of at least 1, or auto"),
        (["problem.dropout_p=1"], "problem.dropout_p=1.0 is not a probability below 1"),
        (["problem.N=0"], "problem.N=0 is not a size"),
        (["problem.Nkv=-1"], "problem.Nkv=-1 is not a size"),
        (["problem.d=-64"], "problem.d=-64"),
        (["problem.H=4", "problem.Hkv=3"], "H must be a multiple of Hkv"),
        (["problem.dtype=int8"], "choose one of fp32, fp16, bf16"),
        (["problem.softmax_scale=nan"], "not a finite number"),
        (["problem.causal=left"], "choose one of none, bottom_right, top_left"),
        (["seed=-1"], "seed=-1"),
        (["kernel.variants=[]"], "kernel.variants is empty"),
        (["kernel.variants=[fa2,flash]"], "'flash', which is no kernel"),
        (["backend.name=gpu"], "choose one of auto, cupy, emu"),
        (["timing.repeats=0"], "at least one warm-up run and one sample"),
        (["tracking.timeout_s=-1"], "tracking.timeout_s=-1.0"),
    ],
)
def test_what_cannot_be_meant_is_refused(overrides: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(*overrides)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="gpu=mi300 is unknown: choose one of a100_40gb"):
        gpu_values("mi300")


def test_known_keys_reach_into_groups() -> None:
    keys = set(known_keys())
    assert {"block_size", "problem.N", "tracking.uri", "gpu.smem_block_bytes", "timing.repeats"} <= keys


def test_a_key_like_no_other_is_answered_with_help() -> None:
    assert unknown_key("zzzzzz") == "there is no key zzzzzz: `rawflash --help` lists every key"
