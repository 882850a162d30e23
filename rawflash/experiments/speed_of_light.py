"""The speed of light of every rung, on one GPU in detail and on all of them: which resource binds, and how fast that could be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rawflash.experiments._light import Judged, all_gpus, judge_on, problem_of, refusal, sheet
from rawflash.lab import Axis, Cell, Chart, Experiment, HeatMap, Lab, Picture, Row, Series, Verdict, counted, measured, modelled
from rawflash.light import RESOURCES, faster_than_light
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT"]

DETAIL, EVERYWHERE, SAID = "Least time of each resource", "Every GPU", "What is said of it"


def _tiling(lab: Lab, kernel: str) -> Tiling:
    Br, Bc, *warps = lab.options["tiles"].get(kernel, lab.options["tiles"]["others"])
    return Tiling(Br, Bc, warps=warps[0] if warps else None)


def _cases(lab: Lab) -> Sequence[Any]:
    return [*lab.options["kernels"], SAID]


def _rows(lab: Lab, case: str) -> Iterable[Row]:
    if case == SAID:
        yield from _said(lab)
        return
    problem, tiling = problem_of(lab), _tiling(lab, case)
    keys = {"kernel": case, "tile": f"{tiling.Br}x{tiling.Bc}"}
    reason = refusal(case, problem, tiling, lab.gpu)
    if reason:
        yield Row(keys, {"light": modelled(None, "ms", reason)}, table=_detail(lab))
    else:
        found = judge_on(lab, case, problem, tiling, lab.gpu)
        verdict, why, ms = _measured(lab, case, problem, tiling, found)
        yield Row(keys, {**_cells(found, problem), **({"measured": ms} if lab.device else {})}, verdict, why, _detail(lab))
    for name in all_gpus():
        gpu = sheet(name)
        reason = refusal(case, problem, tiling, gpu)
        cells = {"light": modelled(None, "ms", reason)} if reason else _brief(judge_on(lab, case, problem, tiling, gpu), problem, gpu)
        yield Row({**keys, "GPU": gpu.name}, cells, table=EVERYWHERE)


def _detail(lab: Lab) -> str:
    return f"{DETAIL}, {lab.gpu.name}"


def _cells(found: Judged, problem: Problem) -> dict[str, Cell]:
    light = found.light
    note = "" if found.exact else "extended from counts that follow no polynomial exactly"
    return {
        **{resource: modelled(light.ms[resource], "ms", digits=3) for resource in RESOURCES if resource in light.ms},
        "light": modelled(light.least_ms, "ms", note, digits=3),
        "binds": Cell(light.binding, provenance="modelled"),
        "HBM asked": counted(found.hbm_bytes / 1e9, "GB", digits=3),
        "rate at light": modelled(problem.flops() / light.least_ms / 1e9, "TFLOP/s", digits=3),
        **_held(found),
    }


def _held(found: Judged) -> dict[str, Cell]:
    o = found.occupancy
    return {
        "occupancy": modelled(100 * o.fraction, "%", digits=3),
        "CTAs per SM": modelled(o.ctas),
        "limited by": Cell(", ".join(o.limiters), provenance="modelled"),
        "waves": modelled(found.waves, digits=3),
    }


def _brief(found: Judged, problem: Problem, gpu: Gpu) -> dict[str, Cell]:
    rate = problem.flops() / found.light.least_ms / 1e9
    return {
        "light": modelled(found.light.least_ms, "ms", digits=3),
        "binds": Cell(found.light.binding, provenance="modelled"),
        "rate at light": modelled(rate, "TFLOP/s", digits=3),
        "of tensor peak": modelled(100 * rate / gpu.fp16_tflops, "%", digits=3),
        **{name: cell for name, cell in _held(found).items() if name in ("occupancy", "limited by")},
    }


def _measured(lab: Lab, kernel: str, problem: Problem, tiling: Tiling, found: Judged) -> tuple[Verdict | None, str, Cell]:
    """Where there is a GPU: the time, how far from light it is, and whether it can be true."""
    ms = lab.time(kernel, problem, tiling) if lab.device else measured(None, "ms", "NEEDS GPU")
    if ms.value is None:
        return None, "", ms
    impossible = faster_than_light(ms.number, found.light, lab.gpu)
    if impossible:
        return Verdict.DIFFERS, impossible, ms
    return None, f"measured {ms.number / found.light.least_ms:.3g} times the speed of light", ms


def _said(lab: Lab) -> Iterable[Row]:
    """Claims about the A100, whatever GPU the detail is of."""
    problem, gpu = problem_of(lab), sheet("a100_80gb")
    for kernel, resource, why in lab.options["claims"]:
        light = judge_on(lab, kernel, problem, _tiling(lab, kernel), gpu).light
        cells = {"says": Cell(f"{resource} binds", provenance="published"), "binds": Cell(light.binding, provenance="modelled")}
        cells |= {f"{r} share": modelled(100 * light.share(r), "%", digits=3) for r in ("tensor", "smem", "fma")}
        right = light.binding == resource
        told = why if right else f"{light.binding} needs {light.least_ms:.3g} ms, {resource} {light.ms[resource]:.3g} ms"
        yield Row({"kernel": kernel, "GPU": gpu.name}, cells, Verdict.REPRODUCED if right else Verdict.DIFFERS, told, SAID)


# ------------------------------------------------------------------------------------------------------------- pictures
def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    detail = [row for row in rows if row.table == _detail(lab) and row.cells["light"].value is not None]
    if detail:
        yield _roofline(lab, detail)
        yield _busy(lab, detail)
    yield _everywhere(lab, [row for row in rows if row.table == EVERYWHERE])


def _roofline(lab: Lab, detail: Sequence[Row]) -> Chart:
    """FLOPs per byte asked of HBM against the rate at the speed of light, under the roofs of HBM, L2, FMA pipe and tensor cores."""
    gpu, problem = lab.gpu, problem_of(lab)
    places: dict[tuple[float, float], list[str]] = {}  # rungs that cannot be told apart share a point
    timed: dict[str, tuple[float, float]] = {}
    for row in detail:
        kernel = str(row.keys["kernel"])
        x = problem.flops() / (row.cells["HBM asked"].number * 1e9)
        y = row.cells["rate at light"].number
        places.setdefault(next((at for at in places if _close(at, (x, y))), (x, y)), []).append(kernel)
        if "measured" in row.cells and row.cells["measured"].value is not None:
            timed[kernel] = (x, problem.flops() / row.cells["measured"].number / 1e9)
    points = [Series(", ".join(kernels), [x], [y], "points", color) for color, ((x, y), kernels) in enumerate(places.items())]
    if timed:
        points.append(Series("measured", [x for x, _ in timed.values()], [y for _, y in timed.values()], "points", 6, list(timed)))
    return Chart(
        "roofline",
        f"Roofline of {gpu.name}: every rung at the speed of light",
        Axis("FLOPs per byte asked of HBM, counted (flop/B)", "10"),
        Axis("FLOPs / least time, modelled (TFLOP/s)", "10"),
        [*points, *_roofs(gpu, problem.dtype, min(x for x, _ in places) / 2)],
        f"{_setting(lab)}. Modelled, not measured. Bytes are what the kernels ask, without a cache: a point above the roof of HBM must get "
        "bytes from L2; a point below its roof is bound by something else on the chip (table).",
        legend=True,
    )


def _close(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return all(abs(math.log(p / q)) < 0.06 for p, q in zip(a, b, strict=True))


def _roofs(gpu: Gpu, dtype: str, low: float) -> list[Series]:
    """Dashed lines from flop/B = `low` on, each with its rate beside it."""
    peaks = {"tensor cores": gpu.peak_tflops(dtype), "FMA pipe": gpu.fp32_tflops}
    bandwidths = {"HBM": gpu.hbm_gb_s, "L2": gpu.l2_gb_s}
    top, right = max(peaks.values()), (low, 400, 4096)
    slopes = [
        Series("", (low, top * 1e3 / rate), (low * rate / 1e3, top), "theory", 6, (f"    {name} {rate:g} GB/s", ""))
        for name, rate in bandwidths.items()
        if rate
    ]
    return slopes + [
        Series("", right, (peak, peak, peak), "theory", 6, ("", f"{name} {peak:g} TFLOP/s", "")) for name, peak in peaks.items() if peak
    ]


def _busy(lab: Lab, detail: Sequence[Row]) -> HeatMap:
    values = [[100 * row.cells[r].number / row.cells["light"].number if r in row.cells else None for r in RESOURCES] for row in detail]
    return HeatMap(
        "busy",
        f"What each rung keeps busy on {lab.gpu.name}",
        Axis("resource; 100 % binds"),
        Axis("kernel"),
        RESOURCES,
        [str(row.keys["kernel"]) for row in detail],
        values,
        [["" if v is None else f"{v:.0f}" for v in line] for line in values],
        "% of the time at the speed of light, modelled",
        f"{_setting(lab)}. Least time of each resource over the largest of them, in percent.",
    )


def _everywhere(lab: Lab, rows: Sequence[Row]) -> HeatMap:
    gpus = list(dict.fromkeys(str(row.keys["GPU"]) for row in rows))
    kernels = list(dict.fromkeys(str(row.keys["kernel"]) for row in rows))
    at = {(row.keys["kernel"], row.keys["GPU"]): row.cells for row in rows}
    cells = [[at[kernel, gpu] for kernel in kernels] for gpu in gpus]
    share = [[c["of tensor peak"].number if "of tensor peak" in c else None for c in line] for line in cells]
    texts = [[f"{c['rate at light'].number:.0f}\n{c['binds'].value}" if "binds" in c else "-" for c in line] for line in cells]
    return HeatMap(
        "everywhere",
        "Rate at the speed of light (TFLOP/s) and what binds",
        Axis("kernel"),
        Axis("GPU"),
        kernels,
        [gpu.split(" (")[0] for gpu in gpus],
        share,
        texts,
        "% of the dense fp16 tensor peak, modelled",
        f"{_setting(lab)}. Modelled, not measured; counts of code compiled for 8.0. Number: TFLOP/s. From 9.0 on only wgmma and tcgen05 "
        "reach the tensor peak, mma.sync does not.",
    )


def _setting(lab: Lab) -> str:
    p = problem_of(lab)
    return f"{p.dtype}, B={p.B} H={p.H} N={p.N} d={p.d}, mask {p.causal}"


EXPERIMENT = Experiment(
    title="Speed of light of every rung",
    claim="On an A100 the rungs without tensor cores are bound by the FMA pipe, and fa2_pipe at d=128, Br=128 by the tensor cores.",
    source="the lesson; the largest of each resource's least time, from counters",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    takes=("gpu",),
    notes=(
        "hbm: bytes that must cross HBM however well L2 is used. The papers' model without a cache is the x axis of the roofline.",
        "fma, alu, sfu, lsu, issue count PTX instructions; ptxas folds some and splits others.",
        "Only hbm, tensor and sfu are strict: a measurement below one of them is an error of measurement and is flagged as one.",
        "occupancy: of the kernel that has the lowest; waves: its CTAs over the CTAs that the GPU holds at once.",
        "Counts: executed on a few tiles and extended by the polynomial that a further point confirms (rawflash/extend.py).",
    ),
)
