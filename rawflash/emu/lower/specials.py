"""Special registers: where each of them is kept, or how it is worked out."""

from __future__ import annotations

from rawflash.emu.lower.irtext import LANES, IRWriter, Value
from rawflash.emu.lower.layout import Launch, Warp, Worker

AXES = {"x": 0, "y": 1, "z": 2}


def special(b: IRWriter, name: str, rows: bool) -> Value | None:
    """The special register ``name`` ("%tid.x"), None if it is not modelled. ``rows``: the lanes of a warp differ in tid.x only."""
    base, _, axis = name[1:].partition(".")
    n = AXES.get(axis, 0)
    if base == "tid":
        if n and rows:
            return b.load("i32", b.gep("%warp", Warp.TID + 128 * n))
        return b.load("i32", b.gep("%warp", Warp.TID + 128 * n), LANES)
    if base in ("ntid", "nctaid"):
        return b.load("i32", b.gep("%l", (Launch.NTID if base == "ntid" else Launch.NCTAID) + 4 * n))
    if base == "ctaid":
        return b.load("i32", b.gep("%w", Worker.CTAID + 4 * n))
    if base == "laneid":
        return Value("<" + ", ".join(f"i32 {k}" for k in range(32)) + ">", "i32", LANES)
    if base.startswith("lanemask_"):
        masks = {
            "eq": [1 << k for k in range(32)],
            "lt": [(1 << k) - 1 for k in range(32)],
            "le": [(2 << k) - 1 for k in range(32)],
            "gt": [0xFFFFFFFF & ~((2 << k) - 1) for k in range(32)],
            "ge": [0xFFFFFFFF & ~((1 << k) - 1) for k in range(32)],
        }.get(base.removeprefix("lanemask_"))
        if masks is not None:
            return Value("<" + ", ".join(f"i32 {k - (k >> 31 << 32)}" for k in masks) + ">", "i32", LANES)
    if base == "warpid":
        return b.load("i32", b.gep("%warp", Warp.INDEX))
    if base == "nwarpid":
        return b.load("i32", b.gep("%l", Launch.NWARPS))
    if base == "gridid":
        return b.load("i64", b.gep("%l", Launch.GRIDID))
    if base in ("smid", "envreg", "pm0", "pm1", "pm2", "pm3") or base.startswith("envreg"):
        return b.i32(0)
    if base == "nsmid":
        return b.i32(1)
    if base in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
        b.declarations.add("declare i64 @llvm.readcyclecounter()")
        ticks = b.define("call i64 @llvm.readcyclecounter()", "i64")
        if base in ("clock64", "globaltimer"):
            return ticks
        if base.endswith("_hi"):
            ticks = b.bin("lshr", ticks, b.i64(32))
        return b.resize(ticks, "i32")
    if base == "dynamic_smem_size":
        return b.load("i32", b.gep("%l", Launch.SMEM_DYNAMIC))
    if base == "total_smem_size":
        return b.load("i32", b.gep("%l", Launch.SMEM_BYTES))
    if name in ("%clusterid.x", "%clusterid.y", "%clusterid.z"):
        return b.load("i32", b.gep("%w", Worker.CTAID + 4 * n))
    return None
