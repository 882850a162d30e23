"""Return and parameter types of the runtime functions that kernels call."""

from __future__ import annotations

from rawflash.emu.lower.slowpath import WIDTHS

SIGNATURES = {
    "rf_learn": ("i32", "ptr, ptr, i32"),
    "rf_learn_group": ("i32", "ptr, ptr, i32, i64"),
    "rf_flush": ("void", "ptr"),
    "rf_init_check": ("i32", "ptr, ptr, ptr, i64"),
    "rf_init_check_group": ("i32", "ptr, ptr, ptr, ptr, i64"),
    "rf_mark": ("void", "ptr, ptr, i32"),
    "rf_learn_sizes": ("i32", "ptr, ptr, ptr, i32, ptr"),
    "rf_copy": ("i32", "ptr, ptr, i64, ptr, ptr, ptr"),
    "rf_copy_sizes": ("i32", "ptr, ptr, i64, ptr, ptr, ptr, i32"),
    "rf_copy_wait": ("i32", "ptr, ptr, i32, i32"),
    "rf_copy_arrive": ("i32", "ptr, ptr, i64, ptr, i32"),
    "rf_copy_drain": ("i32", "ptr, ptr"),
    "rf_stack_sum": ("i64", "ptr"),
    "rf_race_shared": ("i32", "ptr, ptr, ptr, i64"),
    "rf_race_global": ("i32", "ptr, ptr, ptr, i64"),
    "rf_l2": ("void", "ptr, ptr, ptr, i64, i32"),
} | {f"rf_{kind}_{bits}x{n}": ("void", "ptr, ptr, ptr") for kind in ("gather", "scatter") for bits, n in WIDTHS}
