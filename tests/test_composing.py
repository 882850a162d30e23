"""The points of a sweep are composed as Hydra composes them, from files that are read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from rawflash import composing
from rawflash.composing import Composer
from rawflash.config import register_schema
from rawflash.paths import conf_dir


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigLoaderImpl]:
    monkeypatch.setattr(composing, "_composed", {})
    register_schema()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        made = GlobalHydra.instance().config_loader()
        assert isinstance(made, ConfigLoaderImpl)
        yield made


def composed(loader: ConfigLoaderImpl, master: Any, *overrides: str) -> tuple[str, list[bool]]:
    """The configuration as text, and where it can be written to."""
    made = loader.load_sweep_config(master, list(overrides))
    flags = [OmegaConf.is_struct(made), OmegaConf.is_readonly(made) is True, OmegaConf.is_struct(made.problem)]
    return OmegaConf.to_yaml(made), flags


POINTS = [
    ("kernel=fa2", "block_size=16", "problem.N=17"),
    ("block_size=16", "kernel=fa2", "problem.N=17"),
    ("kernel=fa2", "block_size=32", "problem.N=64"),
    ("problem=tiny", "problem.d=32", "kernel=naive", "kernel.Br=null", "kernel.warps=auto"),
    ("problem.d=32", "problem=tiny", "seed=3", "problem.softcap=2.5", "kernel.variants=[fa1,fa2]"),
    ("++problem.d=48", "+hydra.job.env_set.A=b", "~tracking.uri"),
    ("gpu=h100", "gpu.num_sms=7", "backend=emu", "backend.threads=2", "hydra.job.name=x"),
    ("experiment=traffic", "experiment.options.N=[1,2]", "experiment.jobs=2"),
]


def test_a_composed_point_is_hydras(loader: ConfigLoaderImpl) -> None:
    asked = ["hydra.sweep.dir=x", "hydra/launcher=basic", "hydra.mode=MULTIRUN"]
    master = loader.load_configuration("config", asked, RunMode.MULTIRUN)
    for point in POINTS + POINTS[::-1]:  # also when another point of the same files came before
        try:
            want = composed(loader, master, *point)
        except Exception as error:
            with pytest.raises(type(error)) as raised:
                composed(Composer.of(loader), master, *point)
            assert str(raised.value) == str(error)
            continue
        assert composed(Composer.of(loader), master, *point) == want


def test_points_that_differ_in_values_read_the_files_once(loader: ConfigLoaderImpl, monkeypatch: pytest.MonkeyPatch) -> None:
    master = loader.load_configuration("config", [], RunMode.MULTIRUN)
    read: list[list[str]] = []
    real = ConfigLoaderImpl.load_sweep_config
    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", lambda self, cfg, lines: read.append(lines) or real(self, cfg, lines))
    for N in range(1, 6):
        for kernel in ("fa1", "fa2"):
            made = Composer.of(loader).load_sweep_config(master, [f"problem.N={N}", f"kernel={kernel}"])
            assert (made.problem.N, made.kernel.variants, made.hydra.overrides.task[0]) == (N, [kernel], f"problem.N={N}")
    assert read == [["kernel=fa1"], ["kernel=fa2"]]


@pytest.mark.parametrize("wrong", ["problem.N=many", "problem.M=3", "kernel=fa9", "block_size=", "problem.N=[1"])
def test_what_hydra_refuses_is_refused_in_its_words(loader: ConfigLoaderImpl, wrong: str) -> None:
    master = loader.load_configuration("config", [], RunMode.MULTIRUN)
    with pytest.raises(Exception) as theirs:
        loader.load_sweep_config(master, [wrong])
    with pytest.raises(type(theirs.value)) as ours:
        Composer.of(loader).load_sweep_config(master, [wrong])
    assert str(ours.value) == str(theirs.value)
