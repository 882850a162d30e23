"""A sectored write-back cache, modelled slowly and independently of the emulator: dictionaries of bytes.

Lines of 128 bytes in sets of ``ways``, least recently used line out; four sectors of 32 bytes a line, each with the set of its bytes
that the cache holds. A load that lacks a byte fills the sector. A store fills nothing. A dirty sector is written when its line leaves, and
filled before if bytes are missing. An atomic is a load that makes its sector dirty.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

LINE, SECTOR = 128, 32
LOAD, STORE, ATOMIC = "load", "store", "atomic"


class Cache:
    """Byte addresses count from the start of line 0."""

    def __init__(self, size_bytes: int, ways: int) -> None:
        self.ways = ways
        self.sets: list[OrderedDict[int, dict[int, set[int]]]] = [OrderedDict() for _ in range(size_bytes // LINE // ways)]
        self.dirty: set[int] = set()  # sector numbers
        self.counts: Counter[str] = Counter()

    def request(self, kind: str, addresses: Sequence[int], size: int) -> None:
        """One warp-wide access: ``size`` bytes at each address, in lane order; sectors are looked up once each."""
        wanted: OrderedDict[int, set[int]] = OrderedDict()
        for address in addresses:
            for byte in range(address, address + size):
                wanted.setdefault(byte // SECTOR, set()).add(byte % SECTOR)
        for sector, some in wanted.items():
            self._lookup(kind, sector, some)

    def _lookup(self, kind: str, sector: int, some: set[int]) -> None:
        line = sector * SECTOR // LINE
        lines = self.sets[line % len(self.sets)]
        if line not in lines:
            if len(lines) == self.ways:
                self._leave(lines.popitem(last=False)[1], "")
            lines[line] = {}
        lines.move_to_end(line)
        held = lines[line].setdefault(sector, set())
        hit = bool(held) if kind == STORE else some <= held
        self.counts[("read" if kind == LOAD else "write") + ("_hits" if hit else "_misses")] += 1
        if kind != STORE and not hit:
            self.counts["fills"] += 1
            held |= set(range(SECTOR))
        if kind != LOAD:
            held |= some
            self.dirty.add(sector)

    def _leave(self, sectors: dict[int, set[int]], prefix: str) -> None:
        for sector, held in sectors.items():
            if sector in self.dirty:
                self.dirty.discard(sector)
                self.counts[f"{prefix}writebacks"] += 1
                self.counts[f"{prefix}fills"] += len(held) < SECTOR

    def flush(self) -> None:
        for lines in self.sets:
            while lines:
                self._leave(lines.popitem()[1], "flush_")
