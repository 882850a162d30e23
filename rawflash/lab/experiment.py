"""What an experiment is: title, claim, source, a grid, and one function that yields rows. Its options are conf/experiment/<name>.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rawflash.lab.cells import Row
from rawflash.lab.pictures import Picture
from rawflash.lab.workbench import Lab

__all__ = ["Experiment"]


def _one_case(lab: Lab) -> Sequence[Any]:
    return (None,)


def _no_pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    return ()


@dataclass(frozen=True)
class Experiment:
    """One table or figure. Module rawflash/experiments/<name>.py holds it as EXPERIMENT.

    title      one line
    claim      what is said to be true, in a sentence or two
    source     the lesson, or the paper with figure or table
    rows       (lab, case) -> rows of that case; an error in one case becomes a row, the others go on
    cases      (lab) -> the grid, as data; each is one step of the progress bar (default: one case, None)
    pictures   (lab, all rows) -> pictures
    takes      keys of the command line that it heeds besides its own options: "problem", "block_size", "gpu", "seed", "kernel"
    needs_gpu  nothing of it can be had without a GPU: experiment=all leaves it out
    notes      how to read the table
    """

    title: str
    claim: str
    source: str
    rows: Callable[[Lab, Any], Iterable[Row]]
    cases: Callable[[Lab], Sequence[Any]] = _one_case
    pictures: Callable[[Lab, Sequence[Row]], Iterable[Picture]] = _no_pictures
    takes: tuple[str, ...] = ()
    needs_gpu: bool = False
    notes: tuple[str, ...] = field(default=())
