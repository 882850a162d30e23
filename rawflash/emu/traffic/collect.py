"""Counters of the workers -> a LaunchReport."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rawflash.emu.lower.kernel import Lowered
from rawflash.emu.lower.layout import Worker
from rawflash.emu.machine.records import WorkerMemory, flush_memos, get
from rawflash.emu.traffic.report import ArgumentTraffic, LaunchReport, LineCounts, SpaceTraffic

SPACE_FIELD = {"global": "global_", "shared": "shared", "local": "local", "const": "const"}
Place = tuple[str, int]
Ints = NDArray[np.int64]
Key = TypeVar("Key")


class _Index(dict[Key, int]):
    """Numbers for things, in the order in which they are first met."""

    def __missing__(self, key: Key) -> int:
        self[key] = len(self)
        return self[key]


class Tally:
    """Where each counter of a kernel belongs: which spelling and line the instructions of a block have, which space and line a site.

    Made once per kernel, because walking over all its instructions takes longer than a small launch.
    """

    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        self.spellings: dict[str, int] = _Index()
        self.line_spellings: dict[tuple[Place, str], int] = _Index()
        self.line_spaces: dict[tuple[Place, str], int] = _Index()
        of_kernel: dict[tuple[int, int], int] = {}  # (block, number of the spelling) -> instructions
        of_lines: dict[tuple[int, int], int] = {}
        for block in lowered.blocks:
            ending = [block.instruction] if block.instruction is not None else []
            for i in [*block.instructions, *ending]:
                if i.opcode == "rf":
                    continue
                key = (block.index, self.spellings[i.spelling])
                of_kernel[key] = of_kernel.get(key, 0) + 1
                if i.loc is not None:
                    key = (block.index, self.line_spellings[(i.loc.file, i.loc.line), i.spelling])
                    of_lines[key] = of_lines.get(key, 0) + 1
            if block.kind == "exit":
                key = (block.index, self.spellings["ret"])
                of_kernel[key] = of_kernel.get(key, 0) + 1
        self.of_kernel, self.of_lines = _columns(of_kernel), _columns(of_lines)
        self.full = np.array([block.index not in lowered.partial for block in lowered.blocks], bool)
        # An ``atom`` is one write request that moves its bytes both ways: its sectors are read too, its wavefronts are passed once.
        one_way = [(site, site.write, (1, 1, 1, 1, 1)) for site in lowered.sites if site.space in SPACE_FIELD]
        back = [(site, False, (0, *(2 * (site.space == "global",)), 1, 1)) for site, _, _ in one_way if site.instruction.opcode == "atom"]
        rows = [*one_way, *back]
        self.sites = np.array([site.index for site, _, _ in rows], np.int64)
        self.writes = np.array([write for _, write, _ in rows], np.int64)
        self.factors = np.array([factors for _, _, factors in rows], np.int64).reshape(-1, 1, 5)
        self.is_global = np.array([site.space == "global" for site, _, _ in rows], bool)
        names = list(SPACE_FIELD)
        self.spaces = np.array([names.index(site.space) for site, _, _ in rows], np.int64)
        places = [(site.instruction.loc, site.space) for site, _, _ in rows]
        keys = [((loc.file, loc.line), space) if loc is not None else None for loc, space in places]
        self.places = np.array([self.line_spaces[key] if key is not None else -1 for key in keys], np.int64)


def _columns(entries: dict[tuple[int, int], int]) -> tuple[Ints, Ints, Ints]:
    """(block, id, instructions) of each entry."""
    table = np.array([(*key, count) for key, count in entries.items()], np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def collect(tally: Tally, workers: list[WorkerMemory], slots: dict[int, tuple[int, str]], warps_per_cta: int) -> LaunchReport:
    """``slots``: counter slot -> (argument index, name). Slot 0 collects accesses to no argument's memory."""
    lowered = tally.lowered
    report = LaunchReport(lowered.name)
    for w in workers:
        flush_memos(w, lowered)
        report.barriers += get(w.record, Worker.BARRIERS, "q")
        report.ctas += get(w.record, Worker.CTAS_DONE, "q")
    report.warps = report.ctas * warps_per_cta
    counts = sum((w.counts for w in workers[1:]), workers[0].counts.copy())[tally.sites] * tally.factors
    blocks = sum((w.blocks for w in workers[1:]), workers[0].blocks.copy())
    _spaces(report, tally, counts.sum(axis=1))
    _instructions(report, tally, blocks[:, 0], np.where(tally.full, 32 * blocks[:, 0], blocks[:, 1]))
    by_slot = _summed(tally.writes[tally.is_global], counts[tally.is_global], 2)
    arguments = [_argument(index, name, by_slot[:, slot]) for slot, (index, name) in slots.items()]
    report.arguments = sorted(arguments, key=lambda a: a.index)
    report.warnings = _paired_barriers(lowered, workers)
    return report


def _summed(ids: Ints, values: Ints, count: int) -> Ints:
    """Rows of ``values`` added up by id."""
    out = np.zeros((count, *values.shape[1:]), np.int64)
    np.add.at(out, ids, values)
    return out


def _put(t: SpaceTraffic, both: Ints) -> None:
    """Rows of reads and writes into the fields of a SpaceTraffic."""
    t.read_requests, t.read_cost, t.read_ideal, t.read_bytes, t.read_lane_bytes = both[0].tolist()
    t.write_requests, t.write_cost, t.write_ideal, t.write_bytes, t.write_lane_bytes = both[1].tolist()


def _argument(index: int, name: str, both: Ints) -> ArgumentTraffic:
    (reads, read_sectors, _, read_bytes, _), (writes, write_sectors, _, write_bytes, _) = both.tolist()
    return ArgumentTraffic(index, name, read_bytes, write_bytes, read_sectors, write_sectors, reads, writes)


def _spaces(report: LaunchReport, tally: Tally, totals: Ints) -> None:
    """Traffic of each space, of the kernel and of its lines."""
    by_space = _summed(2 * tally.spaces + tally.writes, totals, 2 * len(SPACE_FIELD))
    for n, field in enumerate(SPACE_FIELD.values()):
        _put(getattr(report, field), by_space[2 * n : 2 * n + 2])
    placed = tally.places >= 0
    by_line = _summed(2 * tally.places[placed] + tally.writes[placed], totals[placed], 2 * len(tally.line_spaces))
    for (place, space), n in tally.line_spaces.items():
        both = by_line[2 * n : 2 * n + 2]
        if both[:, 0].any():
            _put(getattr(_line(report, place), SPACE_FIELD[space]), both)


def _instructions(report: LaunchReport, tally: Tally, executed: Ints, lanes: Ints) -> None:
    """Instructions by spelling, of the kernel and of its lines."""

    def sums(columns: tuple[Ints, Ints, Ints], count: int) -> list[list[int]]:
        block, ids, times = columns
        return _summed(ids, np.stack([executed[block] * times, lanes[block] * times], axis=1), count).tolist()

    for spelling, (warps, threads) in zip(tally.spellings, sums(tally.of_kernel, len(tally.spellings)), strict=True):
        if warps:
            report.warp_opcodes[spelling], report.opcodes[spelling] = warps, threads
    for key, (warps, threads) in zip(tally.line_spellings, sums(tally.of_lines, len(tally.line_spellings)), strict=True):
        if warps:
            place, spelling = key
            line = _line(report, place)
            line.warp_opcodes[spelling], line.opcodes[spelling] = warps, threads


def _line(report: LaunchReport, place: Place) -> LineCounts:
    found = report.lines.get(place)
    if found is None:
        found = report.lines[place] = LineCounts()
    return found


def _paired_barriers(lowered: Lowered, workers: list[WorkerMemory]) -> list[str]:
    """A sentence for every two lines whose barriers paired up."""
    found: dict[str, None] = {}
    for w in workers:
        for k in range(get(w.record, Worker.PAIRED, "i")):
            places = []
            for half in (0, 4):
                i = lowered.sites[get(w.record, Worker.PAIRED + 4 + 8 * k + half, "i")].instruction
                places.append(f"{i.loc.file}:{i.loc.line}" if i.loc is not None else f"PTX line {i.line}")
            if places[0] != places[1]:
                a, b = sorted(places)
                found[f"warps of kernel '{lowered.name}' met at one barrier from different places: {a} and {b}"] = None
    return list(found)
