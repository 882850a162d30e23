"""LADDER: every variant, in the order in which one climbs."""

from __future__ import annotations

from rawflash.variants import limits, plans
from rawflash.variants.base import Variant

__all__ = ["LADDER"]

_ANY = (limits.no_dropout, limits.head_dim, limits.lengths, limits.bf16_needs_sm80)
_TILED = (limits.tile_sides, *_ANY)
_DROPPING = tuple(rule for rule in _TILED if rule is not limits.no_dropout)
_TENSOR = (limits.tensor_cores, *_TILED)

_RUNGS = (
    Variant(
        name="naive",
        file="naive.cu",
        title="Three kernels; the N x Nkv matrices S and P go through HBM",
        changed="First rung: tiled, coalesced products, so that what it loses is due to S and P alone",
        entry_points=("naive_scores", "naive_softmax", "naive_output"),
        make_plan=plans.naive_plan,
        rules=_TILED,
    ),
    Variant(
        name="unfused",
        file="unfused.cu",
        title="As a framework of 2022 launched it: scores, scale, softcap, mask, softmax, dropout, output, each a kernel",
        changed="Mask and dropout are passes of their own, S has the storage type: the baseline of the papers",
        entry_points=(
            *("unfused_scores", "unfused_scale", "unfused_softcap", "unfused_mask"),
            *("unfused_softmax", "unfused_dropout", "unfused_output"),
        ),
        make_plan=plans.unfused_plan,
        rules=_DROPPING,
        knobs=("scale_pass",),
    ),
    Variant(
        name="online",
        file="online.cu",
        title="Each query row streams K and V through the online softmax",
        changed="Fused: S and P never reach HBM; but no tile is shared, so every row reads all of K and V",
        entry_points=("online",),
        make_plan=plans.online_plan,
        rules=_ANY,
    ),
    Variant(
        name="fa1",
        file="fa1.cu",
        title="K/V tiles outer, Q tiles inner; O, m, l go through HBM, O normalised after every tile",
        changed="Tiles in SMEM: K and V are read once; Q, O, m and l make Tc passes",
        entry_points=("fa1",),
        make_plan=plans.fa1_plan,
        rules=(limits.long_key_tiles, *_ANY),
    ),
    Variant(
        name="fa1_qout",
        file="fa1_qout.cu",
        title="Q tiles outer, O in registers, but still normalised after every K/V tile",
        changed="Loops swapped: Q and O move once and m and l not at all; K and V are read once per query tile",
        entry_points=("fa1_qout",),
        make_plan=plans.fa1_qout_plan,
        rules=_TILED,
    ),
    Variant(
        name="fa2",
        file="fa2.cu",
        title="A query tile per CTA; O unnormalised in registers, one division at the end, LSE kept",
        changed="Deferred division: O is rescaled by alpha alone and divided once; the bytes stay",
        entry_points=("fa2",),
        make_plan=plans.fa2_plan,
        rules=_TILED,
    ),
    Variant(
        name="fa2_mma",
        file="fa2_mma.cu",
        title="fa2 on tensor cores: mma.sync for fp16 and bf16, sums in fp32, P kept in registers",
        changed="Both products on tensor cores from swizzled 16-bit tiles; P never leaves registers; the bytes stay",
        entry_points=("fa2_mma",),
        make_plan=plans.fa2_mma_plan,
        rules=_TENSOR,
        dtypes=("fp16", "bf16"),
    ),
    Variant(
        name="fa2_pipe",
        file="fa2_pipe.cu",
        title="fa2_mma with cp.async: tiles travel while tensor cores work on the other one",
        changed="Loads behind the products: V_j arrives during Q K_j, K_j+1 during P V_j; the bytes and the SMEM stay",
        entry_points=("fa2_pipe",),
        make_plan=plans.fa2_pipe_plan,
        rules=(*_TENSOR, limits.warps_of_strips),
        dtypes=("fp16", "bf16"),
        knobs=("warps",),
    ),
    Variant(
        name="fa2_lazy",
        file="fa2_lazy.cu",
        title="fa2_pipe that rescales only when a maximum grew by much, and computes some exponentials on the FMA pipe",
        changed="Rescaled only when a maximum grew by more than 2^8, a quarter of the exponentials by FMA; the bytes stay",
        entry_points=("fa2_lazy",),
        make_plan=plans.fa2_lazy_plan,
        rules=(*_TENSOR, limits.warps_of_strips),
        dtypes=("fp16", "bf16"),
        knobs=("lazy_threshold", "poly_fraction", "poly_degree", "warps"),
    ),
    Variant(
        name="splitkv",
        file="splitkv.cu",
        title="Flash-decoding: CTAs share the keys of a query tile; partial (O, m, l) are merged by a second kernel",
        changed="Keys split over CTAs that fill the GPU; query heads packed: K and V are read once per kv head; parts make a round trip",
        entry_points=("splitkv", "splitkv_merge"),
        make_plan=plans.splitkv_plan,
        rules=(*_TILED, limits.packed_rows),
        packs_heads=True,
        knobs=("num_splits",),
    ),
)

LADDER: dict[str, Variant] = {variant.name: variant for variant in _RUNGS}
