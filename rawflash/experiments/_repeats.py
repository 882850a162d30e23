"""Inconsistencies inside the runtime tables of FlashAttention (Tables 9 to 20), found by comparing their cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

__all__ = ["Repeat", "Sum", "bad_sums", "cells_of", "repeated_rows"]

FORWARD = (9, 12, 15, 18)  # tables of forward passes; the next two are backward, forward and backward of the same setting


@dataclass(frozen=True)
class Repeat:
    """A method whose row is the same, cell for cell, in tables of different settings."""

    method: str
    tables: tuple[int, int]
    cells: int


@dataclass(frozen=True)
class Sum:
    """A cell of forward and backward that its parts cannot make. Times in ms."""

    method: str
    table: int
    N: int
    forward: float
    backward: float
    both: float


def cells_of(entry: Mapping[str, Any]) -> dict[str, dict[int, float | None]]:
    """Method -> N -> cell of one table."""
    lengths = entry["columns"][1:]
    return {row[0]: dict(zip(lengths, row[1:], strict=True)) for row in entry["rows"]}


def repeated_rows(tables: Mapping[int, Mapping[str, Any]]) -> list[Repeat]:
    """Rows with at least two printed cells that agree in all of them, between tables of the same passes."""
    found = []
    for a, b in combinations(tables, 2):
        if tables[a]["setting"]["passes"] != tables[b]["setting"]["passes"]:
            continue
        first, second = cells_of(tables[a]), cells_of(tables[b])
        for method in first:
            printed = [x for x in first[method].values() if x is not None]
            if len(printed) > 1 and first[method] == second[method]:
                found.append(Repeat(method, (a, b), len(printed)))
    return found


def bad_sums(tables: Mapping[int, Mapping[str, Any]], least: float, from_N: int) -> list[Sum]:
    """Totals below `least` of the sum of their parts, from length `from_N` on (short runs are dominated by launches)."""
    found = []
    for base in FORWARD:
        forward, backward, both = (cells_of(tables[base + step]) for step in range(3))
        for method, row in both.items():
            for N, total in row.items():
                f, b = forward[method][N], backward[method][N]
                if from_N <= N and total is not None and f is not None and b is not None and total < least * (f + b):
                    found.append(Sum(method, base + 2, N, f, b, total))
    return found
