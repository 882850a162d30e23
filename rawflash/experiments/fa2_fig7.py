"""FlashAttention-2, Figure 7, and its forward rates in FlashAttention-3, Figure 5: on an H100, beside the speed of light of mma.sync."""

from __future__ import annotations

from rawflash.experiments.fa2_fig4 import NOTES, cases, pictures, rows
from rawflash.lab import Experiment

__all__ = ["EXPERIMENT"]

EXPERIMENT = Experiment(
    title="Rates on an H100",
    claim="FlashAttention-2, written for an A100, reaches 335 TFLOP/s forward and backward on an H100, a third of its tensor peak.",
    source="FlashAttention-2, Figure 7; FlashAttention-3, Figure 5 (forward)",
    rows=rows,
    cases=cases,
    pictures=pictures,
    notes=(*NOTES, "The tensor peak of an H100 is that of wgmma; mma.sync, which this kernel uses, does not reach it."),
)
