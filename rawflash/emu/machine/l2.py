"""The state of the simulated L2 cache (lower/l2.py is the code that uses it).

The model: every sector of 32 bytes that a request for global or local memory touches is looked up in one set-associative cache with
lines of 128 bytes, written back, allocated on writes, least recently used first out. What comes out is labelled modelled, because
silicon differs where it is not documented or not simulated:

* there is no L1 in front: what an L1 would have caught is a hit here;
* a line's set is its number modulo the number of sets, counted from the start of device memory; a GPU hashes addresses over slices
  and sets, and an A100 or H100 has two halves that may hold a line twice;
* one sector is filled at a time, where a GPU may fetch two or four; cache hints, prefetches and persisting windows do nothing;
* a kernel's CTAs run in linear order (or that of ``order_seed``) one after another, where a GPU runs hundreds at once, in an order it
  does not tell. ``resident_ctas`` of them can take turns, from barrier to barrier; CTAs without a barrier still run one after another.
  Data shared by CTAs far apart in the order is thus reused less here, streams that would compete for the cache compete less;
* local memory is one frame per thread of the CTAs under way, laid out as in lower/sectors.py, and is used again by the next CTA.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.emu.lower.l2 import LOCAL_LINES
from rawflash.emu.lower.layout import L2, L2Row, Worker
from rawflash.emu.machine.records import Geometry, WorkerMemory, aligned, put
from rawflash.emu.params import LINE_BYTES, L2Params
from rawflash.emu.traffic.l2 import L2Argument, L2Counts, L2Traffic

FIELDS = L2Row.SIZE // 8
FULL_SECTOR = 0xFFFFFFFF


class L2Cache:
    """Tags, contents and counters of one cache. Its record is what generated code gets."""

    def __init__(self, params: L2Params, origin: int):
        lines = params.sets * params.associativity
        self.origin = origin
        self.tags = np.zeros(lines, np.int64)
        self.stamps = np.zeros(lines, np.int64)
        self.valid = np.zeros((lines, 4), np.uint32)
        self.dirty = np.zeros(lines, np.int32)
        self.owners = np.zeros(lines, np.int32)
        self.counts: NDArray[np.int64] = np.zeros((1, FIELDS), np.int64)
        self.record = aligned(L2.SIZE)
        fields = (L2.TAGS, L2.STAMPS, L2.VALID, L2.DIRTY, L2.OWNERS)
        arrays: tuple[NDArray[Any], ...] = (self.tags, self.stamps, self.valid, self.dirty, self.owners)
        for offset, array in zip(fields, arrays, strict=True):
            put(self.record, offset, "Q", array.ctypes.data)
        put(self.record, L2.SETS, "q", params.sets)
        put(self.record, L2.WAYS, "q", params.associativity)
        put(self.record, L2.ORIGIN, "Q", origin)

    def start(self, rows: Sequence[tuple[int, int, int, int]], slots: int) -> None:
        """Begin a launch whose allocations are ``rows`` (lo, hi, slot, flags), in address order, with ``slots`` counter slots."""
        self.counts = np.zeros((slots + 1, FIELDS), np.int64)  # the last row is local memory's
        put(self.record, L2.COUNTS, "Q", self.counts.ctypes.data)
        held = np.nonzero(self.tags)[0]
        if not len(held):
            return
        lines = self.tags[held] - 1
        table = np.array(rows, np.int64).reshape(-1, 4)
        address = self.origin + lines * LINE_BYTES
        n = np.searchsorted(table[:, 0], address, side="right") - 1
        inside = (n >= 0) & (address < table[n, 1]) if len(table) else np.zeros(len(lines), bool)
        self.owners[held] = np.where(lines >= LOCAL_LINES, slots, np.where(inside, table[n, 2] if len(table) else 0, 0))

    def place_local(self, workers: Sequence[WorkerMemory], g: Geometry, local_stride: int) -> None:
        """Give the local memory of every CTA under way its own lines."""
        for n, w in enumerate(workers):
            put(w.record, Worker.L2_LOCAL, "q", 4 * LOCAL_LINES + n * g.n_warps * local_stride)

    def flush(self) -> None:
        """Write every dirty sector back and forget everything."""
        for part in range(4):
            dirty = self.dirty >> part & 1 == 1
            incomplete = dirty & (self.valid[:, part] != FULL_SECTOR)
            np.add.at(self.counts[:, L2Row.FLUSH_WRITEBACKS // 8], self.owners[dirty], 1)
            np.add.at(self.counts[:, L2Row.FLUSH_FILLS // 8], self.owners[incomplete], 1)
        for array in (self.tags, self.stamps, self.valid, self.dirty, self.owners):
            array[...] = 0

    def traffic(self, slots: dict[int, tuple[int, str]]) -> L2Traffic:
        """The counters of this launch. ``slots``: counter slot -> (argument index, name)."""
        rows = [L2Counts(*(int(v) for v in row)) for row in self.counts]
        out = L2Traffic(local=rows[-1])
        for row in rows:
            out.add(row)
        for slot, (index, name) in sorted(slots.items(), key=lambda item: item[1]):
            argument = L2Argument(index=index, name=name)
            argument.add(rows[slot])
            out.arguments.append(argument)
        return out


_kept: dict[tuple[int, int], L2Cache] = {}
_lock = threading.Lock()


@contextmanager
def l2_cache(params: L2Params, origin: int) -> Iterator[L2Cache]:
    """The cache of one launch: a fresh one, or the one that is kept, which serves one launch at a time."""
    if not params.keep:
        yield L2Cache(params, origin)
        return
    with _lock:
        key = (params.size_bytes, params.associativity)
        if key not in _kept:
            _kept[key] = L2Cache(params, origin)
        yield _kept[key]


def l2_reset() -> L2Traffic:
    """Forget the caches that ``L2Params(keep=True)`` keeps. Returns what is flushed to DRAM, as ``flush_*``, for no argument."""
    out = L2Traffic()
    with _lock:
        for cache in _kept.values():
            cache.start((), 1)
            cache.flush()
            out += cache.traffic({})
        _kept.clear()
    return out
