"""A workbench for tests: an experiment's own options, a data sheet, a memory of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rawflash.config import gpu_values, read_yaml
from rawflash.lab import Lab, Row, measured, registry
from rawflash.lab.memo import Memo
from rawflash.paths import conf_dir
from rawflash.roofline import Gpu

A100 = Gpu.from_dict(gpu_values("a100_80gb"))


def lab_of(name: str, folder: Path, **options: Any) -> Lab:
    """The workbench that experiment=`name` gets, with some options changed."""
    said = read_yaml(conf_dir() / "experiment" / f"{name}.yaml")["options"]
    return Lab({**said, **options}, A100, memo=Memo(folder))


def rows_of(name: str, lab: Lab) -> list[Row]:
    """All rows of an experiment, in order."""
    experiment = registry.load(name)
    return [row for case in experiment.cases(lab) for row in experiment.rows(lab, case)]


class Timed(Lab):
    """A workbench that pretends to have a GPU on which everything takes 1 ms."""

    def time(self, kernel: str, problem: Any, tiling: Any = None) -> Any:
        return measured(1.0, "ms")
