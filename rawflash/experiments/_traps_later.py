"""Checks of FlashAttention-2, -3 and -4 and of data sheets for the experiment `traps`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rawflash.config import gpu_values
from rawflash.experiments._rates import grid_problem
from rawflash.experiments._traps import against, trap_row, values_of
from rawflash.experiments.fa2_work import causal_tiles
from rawflash.experiments.fa4_cycles import polynomial_error
from rawflash.lab import Lab, Row, Verdict, checked, modelled, published
from rawflash.reference import online_trace
from rawflash.tiling import Tiling

__all__ = ["algorithm1", "blackwell", "halves", "hopper", "rescaled_with", "sparse", "top_rates", "training"]


def rescaled_with(scores: NDArray[np.float64], values: NDArray[np.float64], block: int, inverse: bool) -> float:
    """One output of the online softmax, the old O multiplied by alpha = exp(m - m'), or by its inverse as Algorithm 1 prints."""
    O, before = 0.0, 0.0
    for j, step in enumerate(online_trace(scores, values, block)):
        part = step.O[0] - step.alpha * before  # what this block adds
        O = (O / step.alpha if inverse and j else step.alpha * O) + part
        before, l = step.O[0], step.l
    return float(O / l)


def algorithm1(lab: Lab) -> Iterable[Row]:
    """FlashAttention-2, Algorithm 1, line 10: the rescale factor, not its inverse."""
    rng = np.random.default_rng(lab.options["seed"])
    s, v = rng.standard_normal(64), rng.standard_normal(64)
    right = float(np.exp(s) @ v / np.exp(s).sum())
    wrong, found = (abs(rescaled_with(s, v, 16, inverse) - right) for inverse in (True, False))
    cells = {"printed": checked(wrong, "error of O", digits=2), "found": checked(found, "error of O", digits=2)}
    why = "line 10 prints the inverse of exp(m - m'), which gives a wrong O; the factor itself is right"
    yield trap_row("FlashAttention-2, Algorithm 1; FlashAttention-3, Algorithm 1", "rescaling of O", cells, Verdict.DIFFERS, why)


def training(lab: Lab) -> Iterable[Row]:
    """FlashAttention-2, section 4.2: 1.3x over FlashAttention-2 can only be over FlashAttention."""
    told, table = values_of(lab, "fa2_headlines"), lab.published("fa2_table1")["rows"]
    best = max(row[4] / row[3] for row in table)
    cells = {"printed": published(told["training_over_flash"], "x"), "found": modelled(best, "x", digits=3)}
    why = "the text compares FlashAttention-2 with itself; Table 1 gives this ratio over FlashAttention"
    yield trap_row("FlashAttention-2, section 4.2", "training speedup", cells, Verdict.DIFFERS, why)
    share = modelled(100 * told["training_max"] / told["a100_fp16_peak"], "%", digits=3)
    yield against("FlashAttention-2, Table 1", "share of the peak", share, published(told["training_max_of_peak"], "%"), 0.01, "")
    share = modelled(100 * told["forward_max"] / told["a100_fp16_peak"], "%", digits=3)
    yield against("FlashAttention-2, section 4.1", "share of the peak", share, published(told["forward_max_of_peak"], "%"), 0.014, "")


def top_rates(lab: Lab) -> Iterable[Row]:
    """Largest rates in texts against the largest in the papers' own plots."""
    two = (
        "FlashAttention-2",
        "h100_forward_backward_max",
        ["fa2_fig7a", "fa2_fig7b", "fa2_fig7c", "fa2_fig7d"],
        "fa2_headlines",
        "FlashAttention-2",
    )
    three = ("FlashAttention-3", "fp16_max", [f"fa3_fig5{x}" for x in "abcde"], "fa3_headlines", "FlashAttention-3")
    four = ("FlashAttention-4", "forward_max", ["fa4_fig4_left", "fa4_fig5"], "fa4_headlines", "FA4")
    for paper, quantity, figures, headlines, method in (two, three, four):
        entries = [lab.published(name) for name in figures]
        best = max(x for e in entries for row in e["rows"] if row[0] == method for x in row[1:] if x is not None)
        printed = published(values_of(lab, headlines)[quantity], "TFLOP/s")
        where = next(e["where"] for e in entries for row in e["rows"] if row[0] == method and best in row[1:])
        why = f"{where} of the same paper shows more"
        yield against(f"{paper}, text", "largest rate", published(best, "TFLOP/s"), printed, 0.001, why)


def halves(lab: Lab) -> Iterable[Row]:
    """Nominal rates: a causal pass is credited with half the FLOPs, unfused attention with a recomputation that it does not do."""
    for N in lab.options["causal_N"]:
        p = grid_problem(N, 64, True)
        full, masked = causal_tiles(N, Tiling(128, 128))
        cells = {
            "printed": published(0.5, digits=5),
            "found": modelled(masked / full),
            "pairs": modelled(p.visible_pairs() / N**2, digits=5),
        }
        why = f"tiles of 128 do {masked / full / 0.5:.3f} times the FLOPs that the rate counts"
        yield trap_row("FlashAttention-2 to -4, rates", f"causal FLOPs, N={N}", cells, Verdict.DIFFERS, why)
    why = "backward without recomputation is 4 products, not 5: unfused rates of forward and backward are 7/6 of what is done"
    cells = {"printed": published(3.5, "x forward"), "found": modelled(3.0, "x forward")}
    yield trap_row("FlashAttention-2, Figures 4 to 7", "FLOPs of unfused attention", cells, Verdict.DIFFERS, why)
    for row in lab.published("fa2_h100_user_run")["rows"]:
        found = modelled(3.5 / (1 / row[2] + 2.5 / row[3]), "TFLOP/s", digits=5)
        what = f"forward and backward from its parts, N={row[1]}"
        yield against("flash-attention, benchmark output", what, found, published(row[4], "TFLOP/s", digits=5), 1e-4, "")


def hopper(lab: Lab) -> Iterable[Row]:
    """FlashAttention-3: rates from clocks, the ablation's FLOPs, the share of exponentials."""
    told, where = values_of(lab, "fa3_headlines"), "FlashAttention-3, section"
    gpu = gpu_values("h100")
    exp = gpu["sms"] * gpu["sfu_per_clk_sm"] * gpu["tensor_mhz"] / 1e6
    yield against(f"{where} 3", "exponentials per second", modelled(exp, "T/s", digits=3), published(told["exp_peak"], "T/s"), 0.01, "")
    ratio = modelled(told["fp16_peak"] / exp, "x", digits=3)
    yield against(f"{where} 3", "products over exponentials", ratio, published(told["matmul_per_exp_rate"], "x"), 0.01, "")
    smem = modelled(gpu["sms"] * gpu["smem_bytes_per_clk_sm"] * gpu["tensor_mhz"] / 1e6, "TB/s", digits=3)
    yield against(
        "FlashAttention-3, Table 1", "SMEM bandwidth", smem, published(lab.published("fa3_table1")["rows"][2][2], "TB/s"), 0.01, ""
    )
    entry = lab.published("fa3_table2")
    s = entry["setting"]
    flops = 4 * s["batch"] * s["heads"] * s["seq"] ** 2 * s["head_dim"]
    for name, ms, rate in entry["rows"]:
        found = modelled(flops / ms / 1e9, "TFLOP/s")
        yield against("FlashAttention-3, Table 2", name, found, published(rate, "TFLOP/s"), 0.002, "")


def blackwell(lab: Lab) -> Iterable[Row]:
    """FlashAttention-4: the share of the peak, the printed coefficients of its polynomial."""
    told, gpu = values_of(lab, "fa4_headlines"), gpu_values("b200")
    share = modelled(100 * told["forward_max"] / gpu["fp16_tflops"], "%", digits=3)
    printed = published(told["forward_max_of_peak"], "%")
    yield against("FlashAttention-4, abstract", "share of the peak", share, printed, 0.011, "")
    entry = lab.published("fa4_table2")
    error = checked(polynomial_error(entry["setting"]["coefficients_degree_3"])[0], digits=3)
    largest = published({row[0]: row[1] for row in entry["rows"]}["degree 3"], digits=3)
    why = "the coefficients are printed with four digits, which costs as much as the last one is worth"
    yield against("FlashAttention-4, Table 2", "error of the degree-3 polynomial", error, largest, 0.01, why)


def sparse(lab: Lab) -> Iterable[Row]:
    """Tensor rates that are printed with sparsity, beside SMs x rate x clock."""
    for name, printed, unit in lab.published("sparse_rates")["rows"]:
        gpu = gpu_values(name)
        dense = gpu["sms"] * gpu["tensor_flop_per_clk_sm"] * gpu["tensor_mhz"] / 1e6
        cells = {"printed": published(printed, unit), "found": modelled(dense, unit)}
        why = f"printed with 2:4 sparsity, {printed / dense:.2f} times the dense rate that attention can use"
        yield trap_row("data sheets", f"fp16 tensor rate, {gpu['name']}", cells, Verdict.DIFFERS, why)
