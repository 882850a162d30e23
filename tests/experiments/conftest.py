"""Run an experiment in this process, with options of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rawflash.config import gpu_values, read_yaml
from rawflash.lab import Lab, Picture, Row
from rawflash.lab.registry import load
from rawflash.paths import conf_dir
from rawflash.roofline import Gpu


@pytest.fixture
def rows_of() -> Callable[..., list[Row]]:
    """rows_of("traffic", N=[64, 256]) -> all rows; an error is raised, not told."""
    return lambda name, **options: run(name, **options)[0]


@pytest.fixture
def run_experiment() -> Callable[..., tuple[list[Row], list[Picture]]]:
    """The same with the pictures."""
    return run


def run(name: str, **options: Any) -> tuple[list[Row], list[Picture]]:
    known = read_yaml(conf_dir() / "experiment" / f"{name}.yaml")["options"]
    assert set(options) <= set(known)
    lab = Lab({**known, **options}, Gpu.from_dict(gpu_values()))
    experiment = load(name)
    rows = [row for case in experiment.cases(lab) for row in experiment.rows(lab, case)]
    return rows, list(experiment.pictures(lab, rows))
