"""The counters of one launch (or several, added up), by argument, by space, by opcode and by source line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from rawflash.emu.traffic.flops import flops
from rawflash.emu.traffic.l2 import L2Traffic
from rawflash.emu.traffic.pipes import by_pipe

SPACES = ("global_", "shared", "local", "const")
_UNSCALED = frozenset({"index", "name"})


@dataclass
class SpaceTraffic:
    """One state space. Bytes are distinct bytes per warp request: lanes that read one address move it once.

    An atomic is a write request; ``atom``, which returns the old values, has its bytes (in global memory its sectors as well) counted
    as read too, ``red`` has not. Of a cp.async the global read is counted when it is issued, and so is the write to shared memory.
    ``lane_bytes`` counts every lane's access. ``cost`` is sectors of 32 bytes (global, local, const) or wavefronts (shared),
    ``ideal`` the least that requests of this width need.
    """

    read_bytes: int = 0
    write_bytes: int = 0
    read_requests: int = 0
    write_requests: int = 0
    read_cost: int = 0
    write_cost: int = 0
    read_ideal: int = 0
    write_ideal: int = 0
    read_lane_bytes: int = 0
    write_lane_bytes: int = 0

    @property
    def requests(self) -> int:
        return self.read_requests + self.write_requests

    @property
    def sectors(self) -> int:
        """32-byte sectors (global, local, const)."""
        return self.read_cost + self.write_cost

    @property
    def wavefronts(self) -> int:
        """Passes over the banks (shared)."""
        return self.read_cost + self.write_cost

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts beyond the ideal (shared)."""
        return self.wavefronts - self.read_ideal - self.write_ideal

    def add(self, other: SpaceTraffic) -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))


@dataclass
class ArgumentTraffic:
    """Global memory traffic through one pointer argument, in bytes, 32-byte sectors and warp requests."""

    index: int
    name: str
    read_bytes: int = 0
    write_bytes: int = 0
    read_sectors: int = 0
    write_sectors: int = 0
    read_requests: int = 0
    write_requests: int = 0


@dataclass
class LineCounts:
    """Counts of one line of the source."""

    opcodes: Counter[str] = field(default_factory=Counter)
    warp_opcodes: Counter[str] = field(default_factory=Counter)
    global_: SpaceTraffic = field(default_factory=SpaceTraffic)
    shared: SpaceTraffic = field(default_factory=SpaceTraffic)
    local: SpaceTraffic = field(default_factory=SpaceTraffic)
    const: SpaceTraffic = field(default_factory=SpaceTraffic)

    @property
    def lane_efficiency(self) -> float:
        """Mean fraction of the 32 lanes that were active on this line; NaN if it was not executed."""
        return _lane_efficiency(self.opcodes, self.warp_opcodes)


def opcode_class(spelling: str) -> str:
    """The opcode of a spelling: ``fma`` of ``fma.rn.ftz.f32``."""
    return spelling.split(".", 1)[0]


@dataclass(repr=False)
class LaunchReport:
    """Everything counted in one launch. ``opcodes`` are thread-instructions: executions times active lanes.

    ``l2`` is modelled, and only there when EmuParams.l2 asks for it. ``scale``: the counters are those of a part of the grid, times this.
    """

    kernel: str
    arguments: list[ArgumentTraffic] = field(default_factory=list)
    global_: SpaceTraffic = field(default_factory=SpaceTraffic)
    shared: SpaceTraffic = field(default_factory=SpaceTraffic)
    local: SpaceTraffic = field(default_factory=SpaceTraffic)
    const: SpaceTraffic = field(default_factory=SpaceTraffic)
    opcodes: Counter[str] = field(default_factory=Counter)
    warp_opcodes: Counter[str] = field(default_factory=Counter)
    barriers: int = 0
    ctas: int = 0
    warps: int = 0
    lines: dict[tuple[str, int], LineCounts] = field(default_factory=dict)
    output: str = ""  # what printf wrote
    warnings: list[str] = field(default_factory=list)
    l2: L2Traffic | None = None
    scale: int = 1

    def __repr__(self) -> str:
        """One line of what there is most often a question about; the fields hold the rest."""
        return (
            f"<LaunchReport {self.kernel}: {self.ctas} CTAs, {self.warps} warps, {self.warp_instructions} warp instructions; "
            f"global {self.global_.read_bytes} B read, {self.global_.write_bytes} B written; "
            f"shared {self.shared.read_bytes} B read, {self.shared.write_bytes} B written, {self.shared.bank_conflicts} bank conflicts>"
        )

    @property
    def thread_instructions(self) -> int:
        return sum(self.opcodes.values())

    @property
    def warp_instructions(self) -> int:
        """Issue slots: instructions executed by warps, however many lanes were active."""
        return sum(self.warp_opcodes.values())

    @property
    def lane_efficiency(self) -> float:
        """Mean fraction of the 32 lanes that were active; NaN if nothing was executed."""
        return _lane_efficiency(self.opcodes, self.warp_opcodes)

    def pipes(self) -> dict[str, int]:
        """Issue slots, as warp-instructions of PTX, by the pipe that executes them (traffic/pipes.py)."""
        return by_pipe(self.warp_opcodes)

    def pipe_efficiency(self) -> dict[str, float]:
        """Mean fraction of the 32 lanes that were active in each pipe's instructions; pipes without any are left out."""
        lanes = by_pipe(self.opcodes)
        return {pipe: lanes[pipe] / (32 * issued) for pipe, issued in self.pipes().items() if issued}

    def flops(self) -> dict[str, int]:
        """Floating-point operations by kind: "f32", "f16", "mma.f16", "special", ... (traffic/flops.py)."""
        return flops(self.opcodes, self.warp_opcodes)

    def scaled(self, factor: int) -> LaunchReport:
        """This report for a grid of ``factor`` times as many equal parts, such as heads: every counter multiplied, and said so.

        Right where the grid is uniform: parts that execute the same instructions and whose data are aligned alike (to 32 bytes). The L2
        model does not scale, so it is left out.
        """
        if not isinstance(factor, int) or factor < 1:
            raise ValueError(f"a report is scaled by a positive whole number, not by {factor!r}")
        out: LaunchReport = _times(self, factor)
        out.scale = self.scale * factor
        out.l2 = None
        dropped = "; the modelled L2 traffic does not scale and is left out" if self.l2 is not None else ""
        sentence = f"kernel '{self.kernel}': counted for one of {factor} equal parts and multiplied by {factor}{dropped}"
        out.warnings = [*self.warnings, sentence]
        return out

    def count(self, name: str, *modifiers: str) -> int:
        """Thread-instructions of an opcode, those that carry all ``modifiers``: ``count("fma", "f32")``."""
        return _count(self.opcodes, name, modifiers)

    def warp_count(self, name: str, *modifiers: str) -> int:
        """Warp-instructions (issue slots) of an opcode."""
        return _count(self.warp_opcodes, name, modifiers)

    def __add__(self, other: LaunchReport) -> LaunchReport:
        out = LaunchReport(self.kernel if self.kernel == other.kernel else f"{self.kernel}+{other.kernel}")
        for part in (self, other):
            out.arguments += part.arguments
            for space in SPACES:
                getattr(out, space).add(getattr(part, space))
            out.opcodes.update(part.opcodes)
            out.warp_opcodes.update(part.warp_opcodes)
            out.barriers += part.barriers
            out.ctas += part.ctas
            out.warps += part.warps
            out.output += part.output
            out.warnings += part.warnings
            out.scale = max(out.scale, part.scale)
            if part.l2 is not None:
                out.l2 = (out.l2 or L2Traffic()) + part.l2
            for key, line in part.lines.items():
                target = out.lines.setdefault(key, LineCounts())
                target.opcodes.update(line.opcodes)
                target.warp_opcodes.update(line.warp_opcodes)
                for space in SPACES:
                    getattr(target, space).add(getattr(line, space))
        return out


def _count(opcodes: Counter[str], name: str, modifiers: Iterable[str]) -> int:
    wanted = set(modifiers)
    return sum(n for spelling, n in opcodes.items() if opcode_class(spelling) == name and wanted <= set(spelling.split(".")[1:]))


def _lane_efficiency(opcodes: Counter[str], warp_opcodes: Counter[str]) -> float:
    issued = sum(warp_opcodes.values())
    return sum(opcodes.values()) / (32 * issued) if issued else float("nan")


def _times(value: Any, factor: int) -> Any:
    """A copy with every count in it multiplied."""
    if isinstance(value, int):
        return value * factor
    if isinstance(value, list):
        return [_times(v, factor) for v in value]
    if isinstance(value, Counter):
        return Counter({name: n * factor for name, n in value.items()})
    if isinstance(value, dict):
        return {key: _times(v, factor) for key, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _times(getattr(value, f.name), factor) for f in fields(value) if f.name not in _UNSCALED})
    return value
