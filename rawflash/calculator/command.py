"""`rawflash calculator [key=value ...] [layers=N] [page=FILE]`: the figures of one shape on one GPU as a table, or the page.

Keys are those of every other command: problem.N=8192 problem.Hkv=8 problem.causal=true block_size=128 kernel.Bc=64 gpu=h100. Nothing is
executed, filed or measured. With page= the interactive page is written instead, for all shapes and GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rawflash.calculator.formulas import FIGURES, calculate
from rawflash.config import Settings, composed, key_of
from rawflash.errors import RawflashError, UsageError

__all__ = ["main", "told"]

_DEFAULT_LAYERS = 32
_SIZES = ("B", "H", "Hkv", "N", "Nkv", "d", "dv", "dtype", "causal", "window_left", "window_right")
_HEEDED = ("problem", *(f"problem.{name}" for name in _SIZES), "block_size", "kernel.Br", "kernel.Bc", "gpu", "debug")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FLOPS = ("flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop", "Eflop")
_TIMES = ("ns", "us", "ms", "s")


def main(arguments: Sequence[str]) -> int:
    """Print the table, or write the page; returns the exit code. Raises what cannot be meant (run.main tells it in a sentence)."""
    own = {key: value for key, _, value in (a.partition("=") for a in arguments) if key in ("layers", "page")}
    others = [a for a in arguments if a.partition("=")[0] not in own]
    if "page" in own:
        if others or "layers" in own:
            raise UsageError(f"page= makes the page for all shapes: leave {' '.join(others) or 'layers='} away")
        return _write_page(Path(own["page"]))
    if own.get("layers", "1").isdecimal() is False:
        raise UsageError(f"layers={own['layers']} is not a number of layers: give a whole number of at least 1")
    settings = composed(others)  # which tells a misspelt key first
    _refuse_ignored(others)
    _print(settings, int(own.get("layers", _DEFAULT_LAYERS)))
    return 0


def _refuse_ignored(arguments: Sequence[str]) -> None:
    for argument in arguments:
        key = key_of(argument)
        if key not in _HEEDED and not key.startswith("gpu."):
            raise UsageError(
                f"{key} changes no figure of the calculator: leave it away; the keys are {', '.join(_HEEDED)}, layers and page"
            )


def _write_page(path: Path) -> int:
    from rawflash.calculator.page import page_html

    try:
        path.write_text(page_html(), "utf-8")
    except OSError as error:
        raise RawflashError(f"the page cannot be written to {path}: {error.strerror or error}; name another file with page=") from error
    print(f"the calculator is {path}: open it in a browser")
    return 0


def _print(settings: Settings, layers: int) -> None:
    p, t, gpu = settings.problem, settings.tiling, settings.sheet
    found = calculate(p, t, gpu, layers)
    sizes = f"B={p.B} H={p.H} Hkv={p.Hkv} N={p.N} Nkv={p.Nkv} d={p.d} dv={p.dv}"
    print(f"{sizes} {p.dtype} causal={p.causal}, Br={t.Br} Bc={t.Bc}, {layers} layers")
    print(f"{gpu.name}: {gpu.hbm_gb_s:g} GB/s, {gpu.peak_tflops(p.dtype):g} TFLOP/s dense. All figures are modelled, no cache.\n")
    rows = [(figure.label, told(found[figure.name], figure.unit), figure.meaning) for figure in FIGURES]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for label, value, meaning in rows:
        print(f"{label.ljust(widths[0])}  {value.rjust(widths[1])}  {meaning}")


def told(value: float | str | None, unit: str) -> str:
    """A figure with its unit and three digits, as the page writes it: 512 MiB, 1.37 Tflop, 153 flop/B; "-" for None."""
    if value is None or isinstance(value, str):
        return value or "-"
    if unit == "B":
        return _scaled(value, 1024, _BINARY)
    if unit == "flop":
        return _scaled(value, 1000, _FLOPS)
    if unit == "ms":
        return _scaled(value * 1e6, 1000, _TIMES)
    return f"{_digits(value)} {'times' if unit == 'x' else unit}"


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    i = 0
    while value >= 0.9995 * step and i < len(units) - 1:
        value, i = value / step, i + 1
    return f"{_digits(value)} {units[i]}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
