"""The calculator as one HTML page that needs nothing else: no network, no file beside it. Made from the same data as Python's figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rawflash import __version__
from rawflash.calculator.formulas import FIGURES, calculate
from rawflash.config import EMULATED_GPU, gpu_values
from rawflash.paths import conf_dir
from rawflash.problem import DTYPES, Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling

__all__ = ["FORMULAS", "example", "examples", "gpu_rates", "page_html"]

_HERE = Path(__file__).resolve().parent
FORMULAS = _HERE / "formulas.js"
_COMMAND = "python -m rawflash.run calculator page=FILE"


def page_html() -> str:
    """The whole page. The same text wherever it is made from the same rawflash."""
    parts = {
        "CSS": (_HERE / "page.css").read_text("utf-8"),
        "FORMULAS": FORMULAS.read_text("utf-8"),
        "DATA": json.dumps(_data(), ensure_ascii=True).replace("</", "<\\/"),
        "PAGE": (_HERE / "page.js").read_text("utf-8"),
        "MADE": f"Made by <code>{_COMMAND}</code>; rawflash {__version__}.",
    }
    html = (_HERE / "page.html").read_text("utf-8")
    for name, text in parts.items():
        html = html.replace(f"@{name}@", text.rstrip("\n"), 1)
    return html


def _data() -> dict[str, Any]:
    return {
        "figures": [asdict(figure) for figure in FIGURES],
        "itemsize": {name: kind.itemsize for name, kind in DTYPES.items()},
        "gpu": EMULATED_GPU,
        "gpus": {name: {"name": gpu.name, "memory_bytes": gpu.memory_bytes, **_rates(gpu)} for name, gpu in _gpus().items()},
        "examples": list(examples()),
    }


def _gpus() -> dict[str, Gpu]:
    """Every data sheet of conf/gpu, oldest architecture first."""
    names = sorted(path.stem for path in (conf_dir() / "gpu").glob("*.yaml") if path.stem != "auto")
    sheets = {name: Gpu.from_dict(gpu_values(name)) for name in names}
    return dict(sorted(sheets.items(), key=lambda item: (int(item[1].arch), item[1].sms, item[0])))


def _rates(gpu: Gpu) -> dict[str, Any]:
    return {"hbm_gb_s": gpu.hbm_gb_s, "peak_tflops": {dtype: gpu.peak_tflops(dtype) for dtype in DTYPES}}


def gpu_rates(gpu: Gpu, dtype: str) -> dict[str, float]:
    """What formulas.js wants to know of a GPU."""
    return {"hbm_gb_s": gpu.hbm_gb_s, "peak_tflops": gpu.peak_tflops(dtype)}


def example(problem: Problem, tiling: Tiling, gpu: Gpu, layers: int) -> dict[str, Any]:
    """One calculation by Python, with the arguments of `calculate` in formulas.js: {"x", "gpu", "found"}."""
    x: Mapping[str, Any] = {name: getattr(problem, name) for name in ("B", "H", "Hkv", "N", "Nkv", "d", "itemsize")}
    tile = {"causal": problem.causal != "none", "Br": tiling.Br, "Bc": tiling.Bc, "layers": layers}
    return {"x": {**x, **tile}, "gpu": gpu_rates(gpu, problem.dtype), "found": calculate(problem, tiling, gpu, layers)}


def examples() -> Iterable[dict[str, Any]]:
    """A few shapes that reach every branch of the formulas: ragged, causal both ways round, GQA, long rows, a GPU without the type."""
    gpus, plain = _gpus(), Problem(B=1, H=16, N=8192, d=128)
    shapes = (
        (plain, "a100_80gb"),
        (replace(plain, causal="bottom_right", Hkv=2), "h100"),
        (Problem(B=2, H=8, N=1000, Nkv=300, d=72, dtype="fp32", causal=True), "t4"),
        (Problem(B=3, H=6, Hkv=1, N=7, Nkv=131072, d=64, dtype="bf16", causal=True), "b200"),
        (Problem(B=1, H=1, N=12289, Nkv=12289, d=40, dtype="bf16"), "v100"),
    )
    for i, (problem, gpu) in enumerate(shapes):
        yield example(problem, Tiling(64 if i % 2 else 96, 128 if i % 3 else 32), gpus[gpu], 1 + 31 * (i % 2))
