"""Which experiments there are: each module of rawflash.experiments is one, and holds it as EXPERIMENT.

Names that start with an underscore are shared code, no experiments.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Sequence

import rawflash.experiments
from rawflash.errors import UsageError
from rawflash.lab.experiment import Experiment

__all__ = ["ALL", "chosen", "experiment_names", "load"]

ALL = "all"


def experiment_names() -> list[str]:
    """Names of all experiments, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(rawflash.experiments.__path__) if not m.name.startswith("_"))


def load(name: str) -> Experiment:
    """The experiment called `name`. Raises UsageError for an unknown one."""
    known = experiment_names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"there is no experiment {name!r}{hint}: the known ones are {', '.join(known)}, and {ALL}")
    found: Experiment = importlib.import_module(f"rawflash.experiments.{name}").EXPERIMENT
    return found


def chosen(names: Sequence[str]) -> dict[str, Experiment]:
    """The experiments that `names` mean, in order: "all" stands for all that need no GPU."""
    found: dict[str, Experiment] = {}
    for name in names:
        if name == ALL:
            found |= {each: e for each in experiment_names() if not (e := load(each)).needs_gpu}
        else:
            found[name] = load(name)
    return found
