"""What the simulated L2 cache did: modelled figures, never counted ones."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

SECTOR_BYTES = 32


@dataclass
class L2Counts:
    """Lookups and DRAM transfers, in sectors of 32 bytes, under a model of the cache (machine/l2.py).

    ``flush_*`` is what remains to be done when the launch has ended and dirty sectors leave the cache.
    """

    read_hits: int = 0
    read_misses: int = 0
    write_hits: int = 0
    write_misses: int = 0
    fills: int = 0
    writebacks: int = 0
    flush_fills: int = 0
    flush_writebacks: int = 0

    @property
    def hits(self) -> int:
        return self.read_hits + self.write_hits

    @property
    def misses(self) -> int:
        return self.read_misses + self.write_misses

    @property
    def hit_rate(self) -> float:
        """Hits per lookup; NaN if there was none."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else float("nan")

    @property
    def dram_read_bytes(self) -> int:
        """Modelled bytes read from DRAM while the launch ran."""
        return SECTOR_BYTES * self.fills

    @property
    def dram_write_bytes(self) -> int:
        """Modelled bytes written to DRAM while the launch ran: dirty sectors that had to give way."""
        return SECTOR_BYTES * self.writebacks

    @property
    def flush_read_bytes(self) -> int:
        """Modelled bytes read from DRAM to complete dirty sectors at the end."""
        return SECTOR_BYTES * self.flush_fills

    @property
    def flush_write_bytes(self) -> int:
        """Modelled bytes of dirty sectors written to DRAM at the end."""
        return SECTOR_BYTES * self.flush_writebacks

    def add(self, other: L2Counts) -> None:
        for f in fields(L2Counts):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))


@dataclass
class L2Argument(L2Counts):
    """The share of one pointer argument. Write-backs belong to the argument whose line is evicted, whoever evicts it."""

    index: int = 0
    name: str = ""


@dataclass
class L2Traffic(L2Counts):
    """The whole cache: the arguments, memory of no argument, and local memory."""

    arguments: list[L2Argument] = field(default_factory=list)
    local: L2Counts = field(default_factory=L2Counts)

    def __add__(self, other: L2Traffic) -> L2Traffic:
        out = L2Traffic(arguments=[*self.arguments, *other.arguments])
        for part in (self, other):
            out.add(part)
            out.local.add(part.local)
        return out
