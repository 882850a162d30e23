"""Counters of the workers -> a LaunchReport."""

from __future__ import annotations

import numpy as np

from rawflash.emu.lower.builder import AccessSite
from rawflash.emu.lower.kernel import Lowered
from rawflash.emu.lower.layout import Worker
from rawflash.emu.machine.records import WorkerMemory, flush_memos, get
from rawflash.emu.traffic.report import ArgumentTraffic, LaunchReport, LineCounts, SpaceTraffic

SPACE_FIELD = {"global": "global_", "shared": "shared", "local": "local", "const": "const"}


def _site_traffic(row: np.ndarray, site: AccessSite) -> SpaceTraffic:  # type: ignore[type-arg]
    """An ``atom`` is one write request that moves its bytes both ways: its sectors are read too, its wavefronts are passed once."""
    requests, cost, ideal, n_bytes, lane_bytes = (int(v) for v in row)
    if site.instruction.opcode == "atom":
        back = (cost, ideal) if site.space == "global" else (0, 0)
        return SpaceTraffic(n_bytes, n_bytes, 0, requests, back[0], cost, back[1], ideal, lane_bytes, lane_bytes)
    if site.write:
        return SpaceTraffic(write_bytes=n_bytes, write_requests=requests, write_cost=cost, write_ideal=ideal, write_lane_bytes=lane_bytes)
    return SpaceTraffic(read_bytes=n_bytes, read_requests=requests, read_cost=cost, read_ideal=ideal, read_lane_bytes=lane_bytes)


def collect(lowered: Lowered, workers: list[WorkerMemory], slots: dict[int, tuple[int, str]], warps_per_cta: int) -> LaunchReport:
    """``slots``: counter slot -> (argument index, name). Slot 0 collects accesses to no argument's memory."""
    report = LaunchReport(lowered.name)
    for w in workers:
        flush_memos(w)
        report.barriers += get(w.record, Worker.BARRIERS, "q")
        report.ctas += get(w.record, Worker.CTAS_DONE, "q")
    report.warps = report.ctas * warps_per_cta
    counts = sum((w.counts for w in workers[1:]), workers[0].counts.copy())
    blocks = sum((w.blocks for w in workers[1:]), workers[0].blocks.copy())
    arguments = {slot: ArgumentTraffic(index, name) for slot, (index, name) in slots.items()}
    for site in lowered.sites:
        if site.space not in SPACE_FIELD:
            continue
        total = _site_traffic(counts[site.index].sum(axis=0), site)
        if not total.requests:
            continue
        getattr(report, SPACE_FIELD[site.space]).add(total)
        line = _line(report, site.instruction.loc)
        if line is not None:
            getattr(line, SPACE_FIELD[site.space]).add(total)
        if site.space == "global":
            for slot, argument in arguments.items():
                _add_argument(argument, _site_traffic(counts[site.index, slot], site))
    _instructions(report, lowered, blocks)
    report.warnings = _paired_barriers(lowered, workers)
    report.arguments = sorted(arguments.values(), key=lambda a: a.index)
    return report


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


def _add_argument(a: ArgumentTraffic, t: SpaceTraffic) -> None:
    a.read_bytes += t.read_bytes
    a.write_bytes += t.write_bytes
    a.read_sectors += t.read_cost
    a.write_sectors += t.write_cost
    a.read_requests += t.read_requests
    a.write_requests += t.write_requests


def _line(report: LaunchReport, loc: object) -> LineCounts | None:
    if loc is None:
        return None
    return report.lines.setdefault((loc.file, loc.line), LineCounts())  # type: ignore[attr-defined]


def _instructions(report: LaunchReport, lowered: Lowered, blocks: np.ndarray) -> None:  # type: ignore[type-arg]
    for block in lowered.blocks:
        executed, lanes = int(blocks[block.index, 0]), int(blocks[block.index, 1])
        if not executed:
            continue
        if block.index not in lowered.partial:
            lanes = 32 * executed
        ending = [block.instruction] if block.instruction is not None else []
        for i in [*block.instructions, *ending]:
            if i.opcode == "rf":
                continue
            report.opcodes[i.spelling] += lanes
            report.warp_opcodes[i.spelling] += executed
            line = _line(report, i.loc)
            if line is not None:
                line.opcodes[i.spelling] += lanes
                line.warp_opcodes[i.spelling] += executed
        if block.kind == "exit":
            report.opcodes["ret"] += lanes
            report.warp_opcodes["ret"] += executed
