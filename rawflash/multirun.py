"""What Hydra calls before the first point of a sweep (conf/hydra/callbacks/sweep.yaml)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawflash.errors import UsageError
from rawflash.session import Abort, Session

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["SweepCallback", "check_each_value_once"]


def check_each_value_once() -> None:
    """Make Hydra check a sweep by composing one point for every new value, not every point, and compose with rawflash.composing.

    Hydra's own check takes as long again as all jobs spend on composing, in one process, before the first of them starts. A key or
    a value that does not exist is refused all the same.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.plugins.sweeper import Sweeper

    from rawflash.composing import Composer

    def validate(self: Sweeper, batch: Sequence[Sequence[str]]) -> None:
        assert self.hydra_context is not None and self.config is not None
        loader = self.hydra_context.config_loader
        if isinstance(loader, ConfigLoaderImpl):  # which the launcher will use as well
            loader = self.hydra_context.config_loader = Composer.of(loader)
        seen: set[str] = set()
        for overrides in batch:
            if not seen.issuperset(overrides):
                loader.load_sweep_config(self.config, list(overrides))
                seen.update(overrides)

    Sweeper.validate_batch_is_legal = validate  # type: ignore[method-assign]


class SweepCallback:
    """Before the first point: opens the sweep, its folder and its parent run. Before a job that is no sweep: makes sure of its folder."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a hydra.run.dir that cannot be made, before Hydra tries to."""
        folder = str(config.hydra.run.dir)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            Session.error = UsageError(f"{folder} cannot be used ({error.strerror or error}): choose another folder with hydra.run.dir=")
            raise Abort from error

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Claim hydra.sweep.dir (with -2, -3, ... when it is taken), tell every point of it, and fit the launcher to the cores."""
        from omegaconf import open_dict, read_write

        try:
            with read_write(config), open_dict(config):
                Session.sweep = _open(config)
                folder = str(Session.sweep.folder)
                config.hydra.sweep.dir = folder
                config.hydra.overrides.hydra.append(f"hydra.sweep.dir={_quoted(folder)}")
        except Exception as error:
            Session.error = error
            raise Abort from error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda **_: None
        raise AttributeError(name)


def _open(config: DictConfig) -> Any:
    import math

    from rawflash.backends.cupy_gpu import usable
    from rawflash.config import tracking_from
    from rawflash.launchers import fit, refuse_shared_gpu
    from rawflash.sweep import open_sweep

    axes = _axes(config)
    for axis, values in axes.items():
        if not values:
            raise UsageError(f"{axis} is swept over no value: a range ends before its last number, and a glob must fit some option")
    if "experiment" in axes or config.experiment.names:
        raise UsageError("experiments do not go with -m: name several as 'experiment.names=[traffic,problem1]', or experiment=all")
    points = math.prod(len(values) for values in axes.values())
    threads = fit(config.hydra, points)
    refuse_shared_gpu(config.hydra, set(axes.get("backend", [config.backend.name])), lambda: usable()[0])
    return open_sweep(
        tracking_from(config), Session.arguments, list(axes), points, Path(config.hydra.sweep.dir), Path.cwd(), config.resume, threads
    )


def _axes(config: DictConfig) -> dict[str, list[str]]:
    """The keys that a sweep varies and the values of each, from the command line and from hydra.sweeper.params."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser

    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())  # which knows the files of a glob
    parsed = parser.parse_overrides([*params, *config.hydra.overrides.task])
    keys = [o.get_key_element().lstrip("+") for o in parsed]
    swept = {key: o for key, o in zip(keys, parsed, strict=True) if o.is_sweep_override() and o.is_discrete_sweep()}
    for key in swept:
        if keys.count(key) > 1:
            raise UsageError(f"{key} is given {keys.count(key)} times, and only one would count: write all of its values in one place")
    return {key: [text.partition("=")[2] for text in o.sweep_string_iterator()] for key, o in swept.items()}


def _quoted(text: str) -> str:
    """A value for Hydra's override grammar that may hold anything."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
