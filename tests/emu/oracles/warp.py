"""Warp-wide instructions on lists of 32 lane values (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync")."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tests.emu.oracles import integer


def shfl(mode: str, value: Sequence[int], b: Sequence[int], c: Sequence[int]) -> tuple[list[int], list[int]]:
    """Every lane's value and predicate. ``c`` holds the clamp (bits 0-4) and the segment mask (bits 8-12)."""
    values, predicates = [], []
    for lane in range(32):
        offset, clamp, segment = b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31
        highest = lane & segment | clamp & ~segment & 31
        lowest = lane & segment
        if mode == "up":
            source = lane - offset
            valid = source >= highest
        else:
            source = {"down": lane + offset, "bfly": lane ^ offset, "idx": lowest | offset & ~segment & 31}[mode]
            valid = source <= highest
        values.append(value[source if valid else lane])
        predicates.append(int(valid))
    return values, predicates


def members(mask: int) -> list[int]:
    return [lane for lane in range(32) if mask >> lane & 1]


def vote(mode: str, predicate: Sequence[int], mask: int) -> int:
    """all, any, uni or ballot over the lanes of the mask."""
    bits = [predicate[lane] for lane in members(mask)]
    if mode == "ballot":
        return sum(1 << lane for lane in members(mask) if predicate[lane])
    return int({"all": all(bits), "any": any(bits), "uni": len(set(bits)) == 1}[mode])


def match_any(value: Sequence[int], mask: int) -> list[int]:
    """For every member, the members with its value."""
    return [sum(1 << other for other in members(mask) if value[other] == value[lane]) for lane in range(32)]


def match_all(value: Sequence[int], mask: int) -> tuple[int, int]:
    """(the mask, 1) if all members hold one value, else (0, 0)."""
    same = len({value[lane] for lane in members(mask)}) == 1
    return (mask, 1) if same else (0, 0)


def redux(op: str, kind: str, value: Sequence[int], mask: int) -> int:
    operations = {
        "add": lambda x, y: x + y, "min": min, "max": max, "and": lambda x, y: x & y, "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
    }  # fmt: skip
    numbers = [integer.read(value[lane], kind) for lane in members(mask)]
    return integer.wrap(reduce(operations[op], numbers), 32)
