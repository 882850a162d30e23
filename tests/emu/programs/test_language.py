"""Calls, function pointers, printf, templates, constants, local arrays, switch and every kind of divergence."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import launch, line_of
from tests.emu.programs.loader import program, text

RNG = np.random.default_rng(23)
SIGNED = RNG.integers(-60, 60, 96).astype(np.int32)
FUNCTIONS = [lambda x: 3 * x, lambda x: x * x, lambda x: -x, lambda x: np.trunc(x / 2).astype(np.int32)]


def test_noinline_calls() -> None:
    out = emu.empty(96, np.int32)
    launch(program("calls"), "direct", 2, 64, emu.asarray(SIGNED), out, np.int32(96))
    assert np.array_equal(out, 3 * SIGNED + SIGNED**2)


@pytest.mark.parametrize("which", range(4))
def test_uniform_function_pointer(which: int) -> None:
    out = emu.empty(96, np.int32)
    launch(program("calls"), "uniform_pointer", 3, 32, emu.asarray(SIGNED), out, np.int32(which))
    assert np.array_equal(out, FUNCTIONS[which](SIGNED))


def test_divergent_function_pointer() -> None:
    out = emu.empty(96, np.int32)
    launch(program("calls"), "divergent_pointer", 3, 32, emu.asarray(SIGNED), out)
    assert np.array_equal(out, np.select([k == (SIGNED & 3) for k in range(4)], [f(SIGNED) for f in FUNCTIONS]))


def test_recursion_is_refused_by_name() -> None:
    """Calls are flattened, so a recursive function cannot run; kernels beside it that do not call it can (all tests here)."""
    with pytest.raises(emu.UnsupportedInstruction, match="recursive"):
        launch(program("calls"), "recursion", 1, 32, emu.asarray(np.zeros(32, np.uint32)), emu.empty(32, np.uint32))


def test_structures_in_calls() -> None:
    x = RNG.standard_normal(32)
    total, rest = emu.empty(32, np.float64), emu.empty(32, np.int32)
    launch(program("calls"), "structures", 1, 32, emu.asarray(x), total, rest)
    i = np.arange(32)
    assert np.array_equal(total, x + x[i ^ 1])
    assert np.array_equal(rest, (i + 10) * 1000 + 100 + 6 + i)


def test_virtual_calls() -> None:
    x = np.arange(32, dtype=np.float32)
    out = emu.empty(32, np.float32)
    launch(program("calls"), "virtual_calls", 1, 32, emu.asarray(x), out)
    assert np.array_equal(out, np.where(np.arange(32) & 1, x * x, 2 * x))


def test_printf(capfd: pytest.CaptureFixture[str]) -> None:
    x = np.arange(64, dtype=np.float32) / 8
    launch(program("output"), "hello", 2, 32, emu.asarray(x), emu.asarray(np.zeros(1, np.int8)))
    lines = capfd.readouterr().out.splitlines()
    want = [f"cta {i // 32} thread {i % 32}: {i / 8:.2f} text {chr(97 + i % 26)} {1 << (40 + i % 8):x} 100%" for i in (3, 19, 35, 51)]
    assert sorted(lines) == sorted(want)


def test_printf_without_arguments(capfd: pytest.CaptureFixture[str]) -> None:
    launch(program("output"), "plain_line", 1, 32)
    assert capfd.readouterr().out == "one line\n"


def test_assert_passes_and_fails(capfd: pytest.CaptureFixture[str]) -> None:
    x = emu.asarray(np.arange(64, dtype=np.int32))
    launch(program("output"), "checked", 2, 32, x, np.int32(64))
    with pytest.raises(emu.Trap) as caught:
        launch(program("output"), "checked", 2, 32, x, np.int32(63))
    assert "x[i] < limit" in str(caught.value) + capfd.readouterr().err
    assert caught.value.cu_line == line_of(text("output"), "assert")


# Case C09.
@pytest.mark.parametrize(
    ("name", "dtype", "n"), [("scale<float, 2>", np.float32, 2), ("scale<double,1>", np.float64, 1), ("scale<int, 3>", np.int32, 3)]
)
def test_templates(name: str, dtype: type, n: int) -> None:
    mod = program("language", "--device-int128", name_expressions=("scale<float, 2>", "scale<double,1>", "scale<int, 3>"))
    x = RNG.integers(-9, 9, 64 * n).astype(dtype)
    out = emu.empty(x.shape, dtype)
    launch(mod, name, 2, 32, emu.asarray(x), out, np.dtype(dtype).type(3))
    assert np.array_equal(out, x * 3)


def language() -> object:
    return program("language", "--device-int128")


def test_constant_table_through_get_global() -> None:
    mod = language()
    weights = np.asarray(mod.get_global("weights")).view(np.float32)
    assert weights.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    x = np.arange(32, dtype=np.float32)
    out = emu.empty(32, np.float32)
    launch(mod, "weigh", 1, 32, emu.asarray(x), out)
    assert np.array_equal(out, x * np.tile(weights, 4) + 100)
    weights[:] = np.arange(8)[::-1]
    try:
        launch(mod, "weigh", 1, 32, emu.asarray(x), out)
        assert np.array_equal(out, x * np.tile(np.arange(8)[::-1], 4) + 100)
    finally:
        weights[:] = np.arange(1, 9)


def test_device_variables_persist_between_launches() -> None:
    mod = language()
    before = int(np.asarray(mod.get_global("launches")).view(np.uint64)[0])
    sums = np.asarray(mod.get_global("grid_sums")).view(np.int32)
    sums[:] = 0
    for _ in range(2):
        launch(mod, "count_launches", 3, 64)
    assert int(np.asarray(mod.get_global("launches")).view(np.uint64)[0]) == before + 6
    assert sums.tolist() == [6 * sum(range(k, 64, 4)) for k in range(4)]


def test_local_array() -> None:
    out = emu.empty(96, np.int32)
    report = launch(language(), "local_array", 3, 32, emu.asarray(SIGNED), out, np.int32(10))
    want = []
    for x in SIGNED.tolist():
        buffer, at = [k * k for k in range(16)], x & 15
        for r in range(10):
            buffer[at] += r + x
            at = (at * 5 + buffer[at]) & 15
        want.append(sum(buffer[(k + at) & 15] * (k + 1) for k in range(16)))
    assert out.tolist() == want
    assert report.local.write_bytes >= 96 * (64 + 10 * 4) and report.local.read_bytes > 0


def test_switch() -> None:
    x = RNG.integers(-2, 11, 128).astype(np.int32)
    x[::9] = 40
    out = emu.empty(128, np.int32)
    launch(language(), "switches", 4, 32, emu.asarray(x), out)
    special = {
        0: lambda i: 7, 1: lambda i: 3 + i, 2: lambda i: 2 ^ i, 3: lambda i: 3 - i, 4: lambda i: 4 - i, 5: lambda i: i * i,
        6: lambda i: i.bit_count(), 7: lambda i: 32 - (i + 1).bit_length(), 8: lambda i: i % 9, 40: lambda i: 400,
    }  # fmt: skip
    assert out.tolist() == [special[v](i) if v in special else -v for i, v in enumerate(x.tolist())]


def test_static_and_dynamic_shared_memory_together() -> None:
    x = RNG.standard_normal(32)
    out = emu.empty(32, np.float64)
    launch(language(), "shared_mix", 1, 32, emu.asarray(x), out, shared_mem=64)
    i = np.arange(32)
    assert np.array_equal(out, x[::-1] + (i % 3 - 1) + (i + 1) % 32)


def test_structure_by_value() -> None:
    layout = np.dtype([("scale", "f4"), ("first", "i4"), ("bias", "f8"), ("steps", "i2", 5)], align=True)
    value = np.zeros((), layout)
    value["scale"], value["first"], value["bias"], value["steps"] = 1.5, 7, -2.0, [10, 20, 30, 40, 50]
    out = emu.empty(32, np.float32)
    launch(language(), "by_value", 1, 32, out, value[()])
    i = np.arange(32)
    assert np.array_equal(out, 1.5 * (i + 7) - 2 + (i % 5 + 1) * 10)


def test_128_bit_products() -> None:
    a, b = (RNG.integers(0, 2**64, 32, dtype=np.uint64) for _ in range(2))
    high, low = emu.empty(32, np.uint64), emu.empty(32, np.uint64)
    launch(language(), "wide_math", 1, 32, emu.asarray(a), emu.asarray(b), high, low)
    want = [int(x) * int(y) + int(x) for x, y in zip(a, b, strict=True)]
    assert [int(h) << 64 | int(l) for h, l in zip(high, low, strict=True)] == want


def test_name_that_does_not_exist() -> None:
    with pytest.raises(Exception, match=re.compile("weigh", re.S)):
        language().get_function("no_such_kernel")
