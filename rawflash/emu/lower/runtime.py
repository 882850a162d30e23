"""The part of the generated code that is the same for every kernel, put together from its files.

Compiled once per process (and kept in the cache), called from every kernel: what happens when a memory access meets a pattern it
does not remember, the detectors, the asynchronous copies, the CTA loop.
"""

from __future__ import annotations

from rawflash.emu.lower.async_queue import queue_functions
from rawflash.emu.lower.bounds import blame, blame_window
from rawflash.emu.lower.grouplearn import group_functions
from rawflash.emu.lower.l2 import l2_functions
from rawflash.emu.lower.learn import flush, init_check, learn
from rawflash.emu.lower.movers import gather, mark, scatter
from rawflash.emu.lower.races import race_functions
from rawflash.emu.lower.recall import recall
from rawflash.emu.lower.scheduler import scheduler_functions
from rawflash.emu.lower.sectors import sector_functions
from rawflash.emu.lower.slowpath import WIDTHS, function_text
from rawflash.emu.lower.wavefronts import wavefronts

WIDE = 'noinline nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'


def runtime_module() -> str:
    """The LLVM IR of the runtime."""
    declarations: set[str] = set()
    cold = "noinline nounwind"
    parts = [
        function_text("rf_flush", "void", "ptr %memo", flush, declarations, "nounwind"),
        function_text("rf_wavefronts", "void", "ptr %w, ptr %memo, i32 %mask, i32 %size", wavefronts, declarations, cold),
        function_text("rf_blame", "i32", "ptr %w, i32 %mask, i32 %size, i32 %site, i32 %write", blame, declarations, cold),
        function_text("rf_blame_window", "i32", "ptr %w, i32 %mask, i32 %size, i32 %site, i64 %limit", blame_window, declarations, cold),
        function_text("rf_recall", "i32", "ptr %w, ptr %memo, i32 %mask", recall, declarations, WIDE),
        function_text("rf_learn", "i32", "ptr %w, ptr %memo, i32 %mask", learn, declarations, cold),
        function_text("rf_init_check", "i32", "ptr %w, ptr %memo, ptr %shadow, i64 %base", init_check, declarations, cold),
        function_text("rf_mark", "void", "ptr %shadow, ptr %memo, i32 %size", mark, declarations, cold),
    ]
    for bits, n in WIDTHS:
        parts.append(function_text(f"rf_gather_{bits}x{n}", "void", "ptr %base, ptr %memo, ptr %out", gather(bits, n), declarations, cold))
        parts.append(function_text(f"rf_scatter_{bits}x{n}", "void", "ptr %base, ptr %memo, ptr %in", scatter(bits, n), declarations, cold))
    parts += sector_functions(declarations)
    parts += l2_functions(declarations)
    parts += group_functions(declarations)
    parts += race_functions(declarations)
    parts += queue_functions(declarations)
    parts += scheduler_functions(declarations)
    return "\n".join(
        [*sorted(declarations), *parts, '!0 = !{!"branch_weights", i32 2000, i32 1}', '!1 = !{!"branch_weights", i32 1, i32 2000}']
    )
