"""The list of metrics is well formed, and it is the only source of names."""

import re

import pytest

from rawflash.emu.traffic import pipes
from rawflash.errors import RawflashError
from rawflash.metrics import METRICS, PIPES, TENSORS, metric, series_name, tensor_metrics, validate

UNIT_ENDINGS = {"bytes": "bytes", "sectors": "sectors", "ms": "ms", "s": "s", "MHz": "mhz", "W": "w", "TFLOP/s": "tflops", "GB/s": "gb_s"}


@pytest.mark.parametrize("name", list(METRICS))
def test_a_row_is_well_formed(name: str) -> None:
    m = METRICS[name]
    assert m.name == name and m.meaning
    assert re.fullmatch(r"[a-z]+(/[A-Za-z0-9_]+)+", name)
    assert m.provenance in ("measured", "counted", "modelled", "checked")


@pytest.mark.parametrize("name", [n for n in METRICS if n.startswith(("time/", "perf/"))])
def test_times_and_rates_are_measured(name: str) -> None:
    assert METRICS[name].provenance == "measured"


@pytest.mark.parametrize("name", [n for n, m in METRICS.items() if m.unit in UNIT_ENDINGS])
def test_the_name_tells_the_unit(name: str) -> None:
    ending = UNIT_ENDINGS[METRICS[name].unit]
    assert ending in re.split(r"[/_]", name) or name.endswith(ending)


def test_every_tensor_has_its_two_metrics() -> None:
    for tensor in TENSORS:
        assert set(tensor_metrics(tensor)) <= set(METRICS)
    with pytest.raises(RawflashError, match="called 'X'"):
        tensor_metrics("X")


def test_every_pipe_of_the_emulator_has_its_metric() -> None:
    assert PIPES == pipes.PIPES and {f"slots/{pipe}" for pipe in PIPES} <= set(METRICS)


def test_other_names_are_refused() -> None:
    assert validate({"ops/fma": 1.0}) == {"ops/fma": 1.0}
    assert metric("ops/fma").unit == "ops"
    with pytest.raises(RawflashError, match="no metric is called 'ops/fmas'"):
        validate({"ops/fmas": 1.0})


def test_which_way_is_better() -> None:
    assert {METRICS[name].better for name in ("io/hbm_total_bytes", "err/ratio", "time/gpu_ms_median", "io/tensor/Q_read_bytes")} == {
        "lower"
    }
    assert {METRICS[name].better for name in ("perf/tflops", "io/sector_efficiency", "ops/lane_efficiency")} == {"higher"}
    assert {METRICS[name].better for name in ("ops/flops", "io/ideal_bytes", "err/tolerance", "gpu/sm_clock_mhz", "host/compile_s")} == {
        "neither"
    }
    assert all(m.better for m in METRICS.values())  # every group has a direction


def test_a_curve_has_a_name_that_mlflow_takes() -> None:
    assert series_name("io/times_ideal", "fa2") == "io/times_ideal/fa2"
    assert series_name("io/times_ideal", "fa2 scale=1e-1,%") == "io/times_ideal/fa2 scale-1e-1--"
    assert len(series_name("io/times_ideal", "x" * 400)) == 250
    with pytest.raises(RawflashError, match="no metric is called 'speed'"):
        series_name("speed", "fa2")
