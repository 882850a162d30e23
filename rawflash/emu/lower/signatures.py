"""Return and parameter types of the runtime functions that kernels call."""

from __future__ import annotations

from rawflash.emu.lower.slowpath import WIDTHS

SIGNATURES = {
    "rf_learn": ("i32", "ptr, ptr, i32"),
    "rf_flush": ("void", "ptr"),
    "rf_init_check": ("i32", "ptr, ptr, ptr, i64"),
    "rf_mark": ("void", "ptr, ptr, i32"),
    "rf_async_push": ("void", "ptr, ptr, ptr, ptr"),
    "rf_async_wait": ("void", "ptr, ptr, i32"),
    "rf_race_shared": ("i32", "ptr, ptr, ptr, i64"),
    "rf_race_global": ("i32", "ptr, ptr, ptr, i64"),
    "rf_l2": ("void", "ptr, ptr, ptr, i64, i32"),
} | {f"rf_{kind}_{bits}x{n}": ("void", "ptr, ptr, ptr") for kind in ("gather", "scatter") for bits, n in WIDTHS}
