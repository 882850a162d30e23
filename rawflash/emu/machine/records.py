"""The memory records that generated code reads and writes: one launch, its workers, their warps (offsets in lower/layout.py)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.emu.lower.access import SPACES, address_key
from rawflash.emu.lower.kernel import Lowered
from rawflash.emu.lower.layout import QUEUE_LIMIT, QUEUE_START, SPARES, Alloc, Copy, Launch, Memo, Site, Warp, Worker

SLACK = 4096  # bytes around memory that a wide load of a partly active warp may touch
Bytes = NDArray[np.uint8]
Dim3 = tuple[int, int, int]


def aligned(n_bytes: int, alignment: int = 64, fill: int = 0) -> Bytes:
    """A NumPy buffer at a multiple of ``alignment``."""
    raw = np.full(n_bytes + alignment, fill, np.uint8) if fill else np.zeros(n_bytes + alignment, np.uint8)
    offset = -raw.ctypes.data % alignment
    return raw[offset : offset + n_bytes]


def put(record: Bytes, offset: int, fmt: str, *values: int) -> None:
    struct.pack_into("<" + fmt, record.data, offset, *values)


def get(record: Bytes, offset: int, fmt: str) -> int:
    return int(struct.unpack_from("<" + fmt, record.data, offset)[0])


@dataclass
class Geometry:
    """Sizes of one launch."""

    grid: Dim3
    cta: Dim3
    shared_bytes: int
    dynamic_bytes: int
    n_slots: int

    @property
    def threads(self) -> int:
        return self.cta[0] * self.cta[1] * self.cta[2]

    @property
    def n_warps(self) -> int:
        return -(-self.threads // 32)

    @property
    def n_ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass
class WorkerMemory:
    """All buffers of one worker thread."""

    record: Bytes
    memos: Bytes
    counts: NDArray[np.int64]  # [site, slot, 5]
    blocks: NDArray[np.int64]  # [basic block, 2]
    keep: list[Any] = field(default_factory=list)


def launch_record(g: Geometry, warp_bytes: int, local_stride: int, params: int, allocs: Bytes, n_allocs: int, shadow_delta: int) -> Bytes:
    """The LAUNCH record, without order tables and host call."""
    r = aligned(Launch.SIZE)
    put(r, Launch.NCTAID, "3I", *g.grid)
    put(r, Launch.NTID, "3I", *g.cta)
    put(r, Launch.SMEM_BYTES, "i", g.shared_bytes)
    put(r, Launch.SMEM_DYNAMIC, "i", g.dynamic_bytes)
    put(r, Launch.NWARPS, "i", g.n_warps)
    put(r, Launch.PARAMS, "Q", params)
    put(r, Launch.ALLOCS, "Q", allocs.ctypes.data)
    put(r, Launch.N_ALLOCS, "q", n_allocs)
    put(r, Launch.WARP_STRIDE, "q", warp_bytes)
    put(r, Launch.LOCAL_STRIDE, "q", local_stride)
    put(r, Launch.N_CTAS, "q", g.n_ctas)
    put(r, Launch.SHADOW_DELTA, "q", shadow_delta)
    put(r, Launch.N_SLOTS, "q", g.n_slots)
    put(r, Launch.STOP, "q", (1 << 63) - 1)
    return r


def alloc_table(rows: list[tuple[int, int, int, int]]) -> Bytes:
    """Rows (lo, hi, slot, flags) in address order as ALLOC records."""
    table = aligned(max(1, len(rows)) * Alloc.SIZE)
    view = table.view(np.int64).reshape(-1, Alloc.SIZE // 8)
    for n, row in enumerate(rows):
        view[n] = row
    return table


def worker_memory(lowered: Lowered, blank: Bytes, g: Geometry, launch: Bytes, local_stride: int, race: bool) -> WorkerMemory:
    """Buffers of one worker, its warps included. ``blank``: see blank_memos."""
    record = aligned(Worker.SIZE)
    n_sites = max(1, len(lowered.sites))
    memos = aligned(len(blank))
    memos[:] = blank
    counts = np.zeros((n_sites, g.n_slots, Site.SIZE // 8), np.int64)
    blocks = np.zeros((len(lowered.blocks), 2), np.int64)
    smem = aligned(2 * (g.shared_bytes + SLACK), 256)
    half = g.shared_bytes + SLACK
    w = WorkerMemory(record, memos, counts, blocks, [smem])
    warps = aligned(g.n_warps * lowered.warp_bytes)
    w.keep.append(warps)
    locals_per_warp = local_stride * 32
    local = aligned(2 * (g.n_warps * locals_per_warp + SLACK), 256)
    w.keep.append(local)
    queue_bytes = QUEUE_LIMIT * Copy.SIZE if lowered.copies else 0
    queues = aligned(g.n_warps * queue_bytes)
    w.keep.append(queues)
    ids = np.arange(g.n_warps * 32)
    x, y = ids % g.cta[0], ids // g.cta[0] % g.cta[1]
    z = ids // (g.cta[0] * g.cta[1])
    tids = np.stack([x, y, z]).astype(np.int32).reshape(3, g.n_warps, 32)
    for n in range(g.n_warps):
        warp = warps[n * lowered.warp_bytes : (n + 1) * lowered.warp_bytes]
        active = min(32, g.threads - 32 * n)
        put(warp, Warp.INDEX, "i", n)
        put(warp, Warp.ENTRY_MASK, "I", (1 << active) - 1)
        put(warp, Warp.QUEUE, "Q", queues.ctypes.data + n * queue_bytes)
        put(warp, Warp.CAPACITY, "i", QUEUE_START)
        put(warp, Warp.LOCAL, "Q", local.ctypes.data + n * locals_per_warp)
        warp[Warp.TID : Warp.TID + 384].view(np.int32)[:] = tids[:, n].ravel()
    put(record, Worker.SMEM, "Q", smem.ctypes.data)
    put(record, Worker.SMEM_SHADOW, "Q", smem.ctypes.data + half)
    put(record, Worker.LAUNCH, "Q", launch.ctypes.data)
    put(record, Worker.BLOCKS, "Q", blocks.ctypes.data)
    put(record, Worker.MEMOS, "Q", memos.ctypes.data)
    put(record, Worker.SPARES, "Q", memos.ctypes.data + n_sites * Memo.SIZE)
    put(record, Worker.COUNTS, "Q", counts.ctypes.data)
    put(record, Worker.WARPS, "Q", warps.ctypes.data)
    put(record, Worker.LOCAL_SHADOW_DELTA, "q", g.n_warps * locals_per_warp + SLACK)
    if race:
        put(record, Worker.GENERATION, "i", 1)  # a record of all zeros means that nobody was there
        table = aligned(max(1, g.shared_bytes) * 16, 64)
        w.keep.append(table)
        put(record, Worker.RACE, "Q", table.ctypes.data)
    return w


def blank_memos(lowered: Lowered, count: bool) -> Bytes:
    """Memos that remember nothing yet, then their spares. What each site is never changes, and is the same in its spares."""
    n_sites = max(1, len(lowered.sites))
    memos = aligned((1 + SPARES) * n_sites * Memo.SIZE)
    wide = memos.view(np.int64).reshape(-1, Memo.SIZE // 8)
    narrow = memos.view(np.int32).reshape(-1, Memo.SIZE // 4)
    wide[:, Memo.LOW // 8] = -1
    last: dict[int, int] = {}  # leader -> the member before
    for site in lowered.sites:
        row = narrow[site.index]
        row[Memo.SITE // 4], row[Memo.WIDTH // 4], row[Memo.ALIGN // 4] = site.index, site.size, site.size
        row[Memo.SPACE // 4], row[Memo.WRITE // 4] = SPACES.get(site.space, 0), site.write
        row[Memo.COUNTED // 4] = 2 if count and site.instruction.opcode in ("ldmatrix", "stmatrix") else count
        key = wide[site.index, Memo.KEY // 8] = address_key(site.space, site.size, count) if site.size else 0
        if site.leader >= 0:
            leader = wide[site.leader]
            leader[Memo.JOINT_KEY // 8] = max(leader[Memo.JOINT_KEY // 8], key)
            wide[site.index, Memo.OFFSET // 8] = site.offset
            row[Memo.NARROW // 4] = site.narrow
            if site.leader in last:
                wide[last[site.leader], Memo.NEXT // 8] = (site.index - last[site.leader]) * Memo.SIZE
            last[site.leader] = site.index
    wide[:, Memo.JOINT_LOW // 8] = -1
    wide[n_sites:] = np.repeat(wide[:n_sites], SPARES, axis=0)
    return memos


def flush_memos(w: WorkerMemory, lowered: Lowered) -> None:
    """Add what every site's current pattern has counted since it was learnt."""
    m = w.memos.view(np.int64).reshape(-1, Memo.SIZE // 8)
    joint = m[:, Memo.JOINT_HITS // 8].copy()
    members = [site for site in lowered.sites if site.leader >= 0]
    m[[s.index for s in members], Memo.HITS // 8] += joint[[s.leader for s in members]]
    m[:, Memo.JOINT_HITS // 8] = 0
    hits = m[:, Memo.HITS // 8]
    used = np.flatnonzero(hits)
    rows = (m[used, Memo.COUNTS // 8] - w.counts.ctypes.data) // Site.SIZE
    flat = w.counts.reshape(-1, Site.SIZE // 8)
    np.add.at(flat[:, 0], rows, hits[used])
    for n, cost in enumerate((Memo.COST, Memo.IDEAL, Memo.BYTES, Memo.LANE_BYTES), start=1):
        np.add.at(flat[:, n], rows, hits[used] * m[used, cost // 8])
    hits[:] = 0
