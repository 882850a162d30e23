"""Meaning: one file per chapter of the PTX ISA, each a set of handlers registered by form (see registry.py).

A handler gets the builder of the block, the instruction and the form's choices, and writes LLVM IR for a whole warp.
"""

from __future__ import annotations

from importlib import import_module

CHAPTERS = (
    "integer", "bitfield", "carry", "floating", "approximate", "half", "compare", "logic", "move", "convert", "convert8",
    "memory", "atomic", "async_copy", "mbarrier", "matrix", "wmma", "warp", "barrier", "control",
)  # fmt: skip

_loaded = False


def load_all() -> None:
    """Import every chapter, which registers its forms."""
    global _loaded
    if not _loaded:
        for chapter in CHAPTERS:
            import_module(f"rawflash.emu.isa.{chapter}")
        _loaded = True
