"""Composing the points of a sweep: Hydra's own loader, which reads and merges the files of a sweep once per choice of files.

Hydra does that for every point anew, which takes longer than a tiny problem. Most points differ in values alone: these are set, by
Hydra's own function, on a copy of what the files give.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

from rawflash.config import known_keys
from rawflash.paths import conf_dir
from rawflash.signals import retake

__all__ = ["Composer"]

_composed: dict[tuple[str, ...], DictConfig] = {}  # in each process: a launcher unpickles a new loader for each point
_MOST = 64


class Composer(ConfigLoaderImpl):
    """See the module. The configurations are those of ConfigLoaderImpl, to the last entry."""

    @classmethod
    def of(cls, loader: ConfigLoaderImpl) -> Composer:
        """The same loader, composing once."""
        made = cls.__new__(cls)
        made.__dict__ = loader.__dict__
        return made

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one point."""
        retake()  # Ray's launcher composes here, after it has started Ray
        parsed = OverridesParser.create().parse_overrides(sweep_overrides)
        values = [override for override in parsed if _is_value(override)]
        files = [line for line, override in zip(sweep_overrides, parsed, strict=True) if not _is_value(override)]
        key = (*master_config.hydra.overrides.hydra, "", *files)
        if key not in _composed:
            while len(_composed) >= _MOST:
                _composed.pop(next(iter(_composed)))
            _composed[key] = super().load_sweep_config(master_config, files)
        made = copy.deepcopy(_composed[key])
        self._apply_overrides_to_config(values, made)
        _tell(made, [override for override in parsed if not override.is_hydra_override()])
        OmegaConf.copy_cache(from_config=master_config, to_config=made)
        return made


def _is_value(override: Override) -> bool:
    """True for key=value where the key is one of ours and no group of files."""
    return override.type == OverrideType.CHANGE and override.package is None and override.key_or_group in _values()


@cache
def _values() -> frozenset[str]:
    return frozenset(key for key in known_keys() if not (conf_dir() / key).is_dir())


def _tell(made: DictConfig, ours: Sequence[Override]) -> None:
    """Write into a configuration which overrides made it, as Hydra does; `ours`: without those of Hydra's own keys."""
    made.hydra.overrides.task = [override.input_line for override in ours]
    how = made.hydra.job.config.override_dirname
    made.hydra.job.override_dirname = get_overrides_dirname(
        overrides=list(ours), kv_sep=how.kv_sep, item_sep=how.item_sep, exclude_keys=how.exclude_keys
    )
