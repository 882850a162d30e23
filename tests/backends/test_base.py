"""The launch loop and the counters' arithmetic, without any backend."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rawflash.backends.base import KernelCounters, LineCounts, TensorTraffic, bind_plan, is_float, launch_plan
from rawflash.errors import LaunchError


class Kernel:
    """Records its calls; 1024 bytes of static shared memory."""

    shared_size_bytes = 1024
    max_dynamic_shared_size_bytes = 0

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def __call__(self, grid: Any, cta: Any, args: Any, *, shared_mem: int = 0) -> str:
        self.calls.append((grid, cta, args, shared_mem, self.max_dynamic_shared_size_bytes))
        return f"report {len(self.calls)}"


def plan(*launches: SimpleNamespace) -> Any:
    return SimpleNamespace(launches=launches)


def launch(args: tuple, shared_bytes: int = 0, entry: str = "k") -> SimpleNamespace:
    return SimpleNamespace(entry=entry, grid=(2, 1, 1), cta=(32, 1, 1), shared_bytes=shared_bytes, args=args)


def test_names_become_arrays_and_scalars_pass() -> None:
    calls: list[Any] = []
    module = SimpleNamespace(get_function=lambda name: Kernel(calls))
    Q, n = np.zeros(3), np.int32(7)
    assert launch_plan(module, plan(launch(("Q", n)), launch((n,), 64)), {"Q": Q}) == ["report 1", "report 2"]
    assert calls[0][2][0] is Q and calls[0][2][1] is n
    assert [call[3] for call in calls] == [0, 64]


# Case C05.
@pytest.mark.parametrize(("dynamic", "raised"), [(48 * 1024 - 1024, False), (48 * 1024 - 1023, True), (98304, True)])
def test_more_than_48_kb_static_and_dynamic_together_is_asked_for(dynamic: int, raised: bool) -> None:
    calls: list[Any] = []
    module = SimpleNamespace(get_function=lambda name: Kernel(calls))
    launch_plan(module, plan(launch((), dynamic)), {})
    assert calls[0][4] == (dynamic if raised else 0)


# Case C01.
@pytest.mark.parametrize("wrong", [2, 2.0, "X", None])
def test_an_argument_that_is_neither_tensor_nor_numpy_scalar_is_refused(wrong: object) -> None:
    module = SimpleNamespace(get_function=lambda name: Kernel([]))
    with pytest.raises(LaunchError, match=r"k: the launch argument .* neither a NumPy scalar nor one of the tensors Q, K"):
        bind_plan(module, plan(launch((wrong,))), {"Q": 0, "K": 0})


def test_counts_by_class_are_of_floating_point_work() -> None:
    opcodes = {"fma.rn.ftz.f32": 10, "mul.ftz.f32": 3, "mul.wide.s32": 100, "mul.f16x2": 2, "mul.lo.s32": 7, "mma.f32": 5}
    lines = {
        ("/a/b/k.cu", 3): LineCounts({"mul.ftz.f32": 2, "mul.wide.s32": 9}),
        ("/a/b/k.cu", 4): LineCounts({"mul.ftz.f32": 1}),
        ("/a/include/rf_x.cuh", 3): LineCounts({"mul.f16x2": 2}),
    }
    c = KernelCounters({}, TensorTraffic(), 0, 0, 0, 0, opcodes, 4, 64, 1, lines)
    assert (c.count("fma"), c.count("mul"), c.count("fma", "mul"), c.count("add")) == (10, 5, 15, 0)
    assert c.count_on_lines({("k.cu", 3)}, "mul") == 2
    assert c.count_on_lines({("k.cu", 3), ("rf_x.cuh", 3)}, "mul") == 4
    assert c.lane_efficiency == 0.5
    assert is_float("cvt.rn.f16.f32") and is_float("ex2.approx.ftz.f32") and not is_float("cvt.u64.u32")


def test_traffic_adds() -> None:
    assert TensorTraffic(1, 2, 3, 4) + TensorTraffic(10, 20, 30, 40) == TensorTraffic(11, 22, 33, 44)
