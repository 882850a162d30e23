"""The registry of kernels, in ladder order: file, entry points, launch plan, limits, IO model. Data, not branches.

    base      Variant, Plan, Launch
    limits    the sentences with which a variant refuses a configuration
    plans     one launch plan per variant
    ladder    LADDER: name -> Variant

A new rung is one .cu, one plan, one IO model and one entry in LADDER.
"""

from rawflash.variants.base import Launch, Plan, Variant
from rawflash.variants.ladder import LADDER

__all__ = ["LADDER", "Launch", "Plan", "Variant"]
