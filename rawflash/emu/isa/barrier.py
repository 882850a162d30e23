"""Barriers and fences (PTX ISA 9.7.13). A barrier that waits is a way out of its block, lowered in lower/kernel.py."""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.barriers import arrive, order
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.ptx.tree import Instruction


@op("bar.arrive", "barrier.arrive", "barrier.cta.arrive", "barrier.arrive.aligned", "barrier.cta.arrive.aligned")
def bar_arrive(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    arrive(b, i)


@op(
    "bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync", "barrier.sync.aligned", "barrier.cta.sync.aligned",
    "bar.red.popc.u32", "bar.red.{o:and|or}.pred", "bar.cta.red.popc.u32", "bar.cta.red.{o:and|or}.pred",
    "barrier.red.popc[.aligned].u32", "barrier.red.{o:and|or}[.aligned].pred",
    "barrier.cta.red.popc[.aligned].u32", "barrier.cta.red.{o:and|or}[.aligned].pred",
)  # fmt: skip
def waits(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    raise AssertionError("barriers that wait are lowered in lower/kernel.py")


@op(
    "membar.{scope:cta|gl|sys|gpu}", "fence.{sem:sc|acq_rel|acquire|release}.{scope:cta|gpu|sys|cluster}", "fence.{scope:cta|gpu|sys}",
    "fence.proxy.{kind:alias|async|async.global|async.shared::cta}",
)  # fmt: skip
def fence(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Warps of a CTA run one at a time, so only CTAs on other worker threads could see a reordering: a full fence settles it."""
    b.raw("fence seq_cst")
    if "proxy" not in i.mods:
        order(b, m["scope"])
