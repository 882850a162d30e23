"""FlashAttention-2, section 3.1: arithmetic that is no matrix product, counted in fa1, fa1_qout and fa2; and tiles that a mask skips.

Executed floating-point operations of a kernel (an FMA is two), less the 4 N^2 d of Q K^T and P V, are its other work; exponentials and
divisions run on another unit and stand apart. On an A100 16 product FLOPs take the time of one other FLOP (312 against 19.5 TFLOP/s).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rawflash.lab import Axis, Bars, Experiment, Lab, Picture, Row, Verdict, counted, judge, modelled, published
from rawflash.problem import Problem
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT", "causal_tiles", "other_flops"]

WORK, SKIPPED = "Work besides the products, one head", "Key tiles that a causal mask leaves"
RATIO = 16  # 312 / 19.5: product FLOPs that an A100's tensor cores do while its FMA units do one


def other_flops(metrics: Mapping[str, float]) -> float:
    """Executed additions, multiplications and FMAs (two each) beyond the products' nominal FLOPs (no mask, whole tiles)."""
    return 2 * metrics["ops/fma"] + metrics["ops/mul"] + metrics["ops/add"] - metrics["ops/flops"]


def causal_tiles(N: int, tiling: Tiling) -> tuple[int, int]:
    """(key tiles without a mask, key tiles that a causal mask leaves) of one head with N = Nkv."""
    full, masked = (Problem(N=N, causal=mask) for mask in ("none", "bottom_right"))
    first, past = tiling.key_tiles(masked)
    return tiling.Tr(full) * tiling.Tc(full), int((past - first).sum())


def _cases(lab: Lab) -> Sequence[Any]:
    o = lab.options
    work = [("work", kernel, N, d) for N, d in o["sizes"] for kernel in o["kernels"]]
    return [*work, *(("causal", kernel, N, d) for kernel in o["causal_kernels"] for N, d in o["causal_sizes"])]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    kind, kernel, N, d = case
    yield _work(lab, kernel, N, d) if kind == "work" else _skipped(lab, kernel, N, d)


def _metrics(lab: Lab, kernel: str, N: int, d: int, causal: str = "none") -> Mapping[str, float]:
    side = lab.options["block"]
    return lab.run(kernel, Problem(B=1, H=1, N=N, d=d, dtype="fp16", causal=causal), Tiling(side, side)).metrics


def _work(lab: Lab, kernel: str, N: int, d: int) -> Row:
    first = lab.options["kernels"][0]
    m, other = _metrics(lab, kernel, N, d), other_flops(_metrics(lab, kernel, N, d))
    most = other_flops(_metrics(lab, first, N, d))
    cells = {
        "products": modelled(m["ops/flops"], "FLOP"),
        "other": counted(other, "FLOP"),
        "rescale": counted(m["ops/rescale_mul"], "FLOP"),
        "exponentials": counted(m["ops/ex2"]),
        "divisions": counted(m["ops/div"] + m["ops/rcp"]),
        "other per score": counted(other / N**2, digits=4),
        f"other x {RATIO} / products": modelled(RATIO * other / m["ops/flops"], digits=3),
    }
    keys: dict[str, str | int | float] = {"N": N, "d": d, "kernel": kernel}
    why = f"{other / most:.3f} of what {first} does"
    if kernel != lab.options["judged"]:
        return Row(keys, cells, None, "" if kernel == first else f"{why}: loops in another order, the same arithmetic", WORK)
    return Row(keys, cells, Verdict.REPRODUCED if other < most else Verdict.DIFFERS, why, WORK)


def _skipped(lab: Lab, kernel: str, N: int, d: int) -> Row:
    """Counted FMAs with and without the mask: what skipping tiles saves, at most, and what the paper measured."""
    full, masked = (_metrics(lab, kernel, N, d, causal) for causal in ("none", "bottom_right"))
    tiles = causal_tiles(N, Tiling(lab.options["block"], lab.options["block"]))
    found = full["ops/fma"] / masked["ops/fma"]
    cells = {
        "tiles, no mask": modelled(tiles[0]),
        "tiles, causal": modelled(tiles[1]),
        "work saved": modelled(tiles[0] / tiles[1], "x"),
        "FMAs saved": counted(found, "x"),
        "paper's speedup": published(lab.options["paper_speedup"], "x"),
    }
    verdict, why = judge(found, tiles[0] / tiles[1], lab.options["tolerance"], "tiles that no row sees are not skipped")
    return Row({"kernel": kernel, "N": N, "d": d}, cells, verdict, f"{why}: the work falls as the tiles do; the speedup NEEDS GPU", SKIPPED)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    table, kernels = [row for row in rows if row.table == WORK], lab.options["kernels"]
    sizes = list(dict.fromkeys((row.keys["N"], row.keys["d"]) for row in table))
    share = {(row.keys["N"], row.keys["d"], row.keys["kernel"]): row.cells["other per score"].number for row in table}
    yield Bars(
        "fa2_work",
        "FlashAttention-2: arithmetic besides the products",
        [f"N={N}, d={d}" for N, d in sizes],
        Axis("other FLOPs per score, counted"),
        kernels,
        [[share.get((N, d, kernel)) for N, d in sizes] for kernel in kernels],
        f"Additions, multiplications and FMAs beyond Q K^T and P V, executed; fp16, Br=Bc={lab.options['block']}, no mask.",
    )


EXPERIMENT = Experiment(
    title="Work besides the products",
    claim="FlashAttention-2 does fewer FLOPs that are no matrix product: O is not divided after every key tile, only rescaled.",
    source="FlashAttention-2, sections 3.1 and 4.1",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=(
        "Other work: scale, maximum shift, sums of rows, rescaling, division of O; comparisons are no FLOPs.",
        f"x {RATIO}: on an A100 one such FLOP takes the time of {RATIO} FLOPs on tensor cores (312 / 19.5 TFLOP/s).",
    ),
)
