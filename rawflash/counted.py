"""From the emulator's counters to metrics, to the table of bytes per tensor, and to traffic.md.

Counted and modelled bytes stand side by side: a variant is understood when the two columns are the same integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawflash.backends.base import KernelCounters, TensorTraffic
from rawflash.metrics import TENSORS, tensor_metrics
from rawflash.problem import Problem
from rawflash.source import Source, tagged_lines

if TYPE_CHECKING:
    from rawflash.tiling import Tiling

__all__ = ["TensorBytes", "counter_metrics", "tensor_table", "traffic_markdown"]

SECTOR_BYTES = 32
_BUSIEST_LINES = 12


@dataclass(frozen=True)
class TensorBytes:
    """HBM bytes of one tensor: counted by the emulator, modelled by the variant's closed form; sectors are counted."""

    name: str
    counted_read: int
    counted_write: int
    modelled_read: int
    modelled_write: int
    read_sectors: int
    write_sectors: int


def tensor_table(counters: KernelCounters, modelled: Mapping[str, tuple[int, int]]) -> list[TensorBytes]:
    """One row per tensor that was moved or that the model says should have been, in the order Q, K, V, O, LSE, workspaces."""
    names = [name for name in TENSORS if name in counters.tensors or name in modelled]
    names += sorted((set(counters.tensors) | set(modelled)) - set(names))
    rows = []
    for name in names:
        moved = counters.tensors.get(name, TensorTraffic())
        read, write = modelled.get(name, (0, 0))
        rows.append(TensorBytes(name, moved.read_bytes, moved.write_bytes, read, write, moved.read_sectors, moved.write_sectors))
    return rows


def counter_metrics(counters: KernelCounters, problem: Problem, source: Source) -> dict[str, float]:
    """Every counted metric of one run."""
    hbm = counters.hbm
    total, sectors = hbm.read_bytes + hbm.write_bytes, hbm.read_sectors + hbm.write_sectors
    values: dict[str, float] = {
        "io/hbm_read_bytes": hbm.read_bytes,
        "io/hbm_write_bytes": hbm.write_bytes,
        "io/hbm_total_bytes": total,
        "io/read_sectors": hbm.read_sectors,
        "io/write_sectors": hbm.write_sectors,
        "smem/bytes": counters.smem_bytes,
        "smem/requests": counters.smem_requests,
        "smem/wavefronts": counters.smem_wavefronts,
        "smem/bank_conflicts": counters.smem_bank_conflicts,
        "ops/fma": counters.count("fma"),
        "ops/mul": counters.count("mul"),
        "ops/add": counters.count("add", "sub"),
        "ops/ex2": counters.count("ex2"),
        "ops/div": counters.count("div"),
        "ops/rcp": counters.count("rcp"),
        "ops/cvt": counters.count("cvt"),
        "ops/rescale_mul": counters.count_on_lines(tagged_lines(source, "rescale"), "mul"),
        "ops/instructions": counters.thread_instructions,
        "ops/barriers": counters.barriers,
        "ops/lane_efficiency": counters.lane_efficiency,
    }
    if problem.ideal_bytes():
        values["io/times_ideal"] = total / problem.ideal_bytes()
    if sectors:
        values["io/sector_efficiency"] = total / (SECTOR_BYTES * sectors)
    values |= {f"slots/{pipe}": n for pipe, n in counters.pipes.items()}
    for name, moved in counters.tensors.items():
        read, write = tensor_metrics(name)
        values[read], values[write] = moved.read_bytes, moved.write_bytes
    return {name: float(value) for name, value in values.items()}


def traffic_markdown(
    title: str, problem: Problem, tiling: Tiling, rows: list[TensorBytes], counters: KernelCounters, source: Source
) -> str:
    """traffic.md: bytes per tensor, counted beside modelled, then the lines of the .cu that move the most."""
    out = [
        f"# {title}: HBM bytes by tensor (counted on the emulator, modelled by the closed form)",
        "",
        f"B={problem.B} H={problem.H} Hkv={problem.Hkv} N={problem.N} Nkv={problem.Nkv} d={problem.d} dv={problem.dv} {problem.dtype} "
        f"layout={problem.layout} "
        f"causal={problem.causal} window_left={problem.window_left} window_right={problem.window_right} softcap={problem.softcap}, "
        f"Br={tiling.Br} Bc={tiling.Bc}",
        "",
        "| tensor | read, counted | read, modelled | written, counted | written, modelled | sectors read | sectors written | equal |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for r in rows:
        equal = (r.counted_read, r.counted_write) == (r.modelled_read, r.modelled_write)
        figures = (r.counted_read, r.modelled_read, r.counted_write, r.modelled_write, r.read_sectors, r.write_sectors)
        out.append(f"| {r.name} | " + " | ".join(f"{n:,}" for n in figures) + f" | {'yes' if equal else 'NO'} |")
    out += ["", *_busiest_lines(counters, source)]
    return "\n".join(out) + "\n"


def _busiest_lines(counters: KernelCounters, source: Source) -> list[str]:
    """A table of the .cu lines with the most HBM bytes, with their text."""
    texts = {path.name: text.splitlines() for path, text in ((source.path, source.text), *source.includes)}
    moved = {place: line for place, line in counters.lines.items() if line.read_bytes or line.write_bytes}
    busiest = sorted(moved.items(), key=lambda item: (-item[1].read_bytes - item[1].write_bytes, item[0]))[:_BUSIEST_LINES]
    if not busiest:
        return []
    out = ["| line | bytes read | bytes written | source |", "|---|--:|--:|---|"]
    for (file, number), line in busiest:
        name = file.rsplit("/", 1)[-1]
        lines = texts.get(name, [])
        text = lines[number - 1].strip().replace("|", "\\|") if 0 < number <= len(lines) else ""
        out.append(f"| {name}:{number} | {line.read_bytes:,} | {line.write_bytes:,} | `{text}` |")
    return out
