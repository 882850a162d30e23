"""What an experiment gives: cells with a provenance, rows with a verdict.

    Row          what it is about (keys), its cells, and the verdict on the claim
    Cell         one number (or word) with unit and provenance
    judge        a verdict from a found number, a claimed one and a tolerance

Data only; frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rawflash.errors import RawflashError

__all__ = [
    "PROVENANCES",
    "Cell",
    "Row",
    "Verdict",
    "checked",
    "counted",
    "judge",
    "measured",
    "modelled",
    "published",
]

Provenance = Literal["measured", "counted", "modelled", "published", "checked"]
# What each kind of number comes from; stands below every table that has it.
PROVENANCES: dict[str, str] = {
    "measured": "a clock on a GPU",
    "counted": "exact, by executing the kernels' PTX",
    "modelled": "a formula",
    "published": "printed in the paper",
    "checked": "against a float64 reference",
}


class Verdict(StrEnum):
    """What a row says of the claim."""

    REPRODUCED = "REPRODUCED"  # within the tolerance that the reason states
    DIFFERS = "DIFFERS"  # not within it; the reason explains
    NOT_COMPARABLE = "NOT COMPARABLE"  # the reason says why
    NEEDS_GPU = "NEEDS GPU"  # everything is ready but the device


@dataclass(frozen=True)
class Cell:
    """One value. `value` None: not to be had here, `note` says why. `digits`: significant ones shown (None: integers whole, else 4)."""

    value: float | str | None
    unit: str = ""
    provenance: str = ""
    note: str = ""
    digits: int | None = None

    def __post_init__(self) -> None:
        if self.provenance not in ("", *PROVENANCES):
            raise RawflashError(f"provenance={self.provenance!r} is unknown: choose one of {', '.join(PROVENANCES)}")
        if self.value is None and not self.note:
            raise RawflashError("a cell without a value needs a note that says why")
        if isinstance(self.value, float | int) and not self.provenance:
            raise RawflashError(f"the number {self.value} needs a provenance: one of {', '.join(PROVENANCES)}")

    @property
    def number(self) -> float:
        """The value as a number. Raises RawflashError for a cell that has none."""
        if self.value is None or isinstance(self.value, str):
            raise RawflashError(f"the cell {self.value!r} holds no number{f' ({self.note})' if self.note else ''}")
        return self.value


def measured(value: float | None, unit: str = "", note: str = "", digits: int | None = None) -> Cell:
    """A number from a clock or a sensor of a GPU; None with a note where there is no GPU."""
    return Cell(value, unit, "measured", note, digits)


def counted(value: float | None, unit: str = "", note: str = "", digits: int | None = None) -> Cell:
    """A number from executing PTX."""
    return Cell(value, unit, "counted", note, digits)


def modelled(value: float | None, unit: str = "", note: str = "", digits: int | None = None) -> Cell:
    """A number from a formula."""
    return Cell(value, unit, "modelled", note, digits)


def published(value: float | str | None, unit: str = "", note: str = "", digits: int | None = None) -> Cell:
    """A number as a paper prints it."""
    return Cell(value, unit, "published", note, digits)


def checked(value: float | None, unit: str = "", note: str = "", digits: int | None = None) -> Cell:
    """An error against the float64 reference, or the reference's own number."""
    return Cell(value, unit, "checked", note, digits)


@dataclass(frozen=True)
class Row:
    """One line of a table.

    keys      what the row is about, in the order of the columns: {"N": 1024, "kernel": "fa2"}
    cells     column title -> Cell; rows of one table may lack columns
    verdict   on the claim of this row; None for a row that only shows numbers
    reason    the tolerance, the explanation, or why it cannot be compared; stands in the last column
    table     title of the table that the row belongs to ("": the experiment's main table)
    """

    keys: Mapping[str, str | int | float]
    cells: Mapping[str, Cell]
    verdict: Verdict | None = None
    reason: str = ""
    table: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not None and not self.reason:
            raise RawflashError(f"the row {dict(self.keys)} is {self.verdict} without a reason")


def judge(found: float, claimed: float, tolerance: float, why: str = "", *, digits: int = 4) -> tuple[Verdict, str]:
    """REPRODUCED when |found - claimed| <= tolerance * |claimed| (relative; 0: exactly), else DIFFERS; `why` explains the difference."""
    distance = abs(found - claimed)
    if distance <= tolerance * abs(claimed):
        return Verdict.REPRODUCED, "exactly" if not tolerance else f"within {100 * tolerance:.3g} %"
    return Verdict.DIFFERS, why or f"found {found:.{digits}g}, claimed {claimed:.{digits}g}"
