"""Rows of the experiment `traps`: DIFFERS is a contradiction inside a paper, REPRODUCED a check that agrees."""

from __future__ import annotations

from rawflash.lab import Cell, Lab, Row, Verdict, judge

__all__ = ["FINE", "TRAPS", "against", "trap_row", "values_of"]

TRAPS, FINE = "Printed numbers that contradict each other, or what they are said to be", "Checked, and they agree"


def trap_row(where: str, what: str, cells: dict[str, Cell], verdict: Verdict, why: str) -> Row:
    """One check, in the table that its verdict decides."""
    return Row({"where": where, "what": what}, cells, verdict, why, FINE if verdict is Verdict.REPRODUCED else TRAPS)


def values_of(lab: Lab, entry: str) -> dict[str, float]:
    """A published table of quantity, value, unit as quantity -> value."""
    return {row[0]: row[1] for row in lab.published(entry)["rows"]}


def against(where: str, what: str, found: Cell, printed: Cell, tolerance: float, why: str) -> Row:
    """A printed number beside the one that follows from others; `why` explains a difference."""
    verdict, told = judge(found.number, printed.number, tolerance, why)
    return trap_row(where, what, {"printed": printed, "found": found}, verdict, told)
