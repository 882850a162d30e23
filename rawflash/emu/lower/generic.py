"""Generic addresses: one access becomes one for each space, of the lanes whose addresses lie in its window."""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.layout import CONST_WINDOW, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SHIFT


def each_window(b: WarpBuilder, address: Value, body: Callable[[str, Value], object]) -> None:
    """Run ``body(space, inner address)`` for the lanes in each window. Addresses outside every window count as global."""
    outer_guard = b._guard
    window = b.bin("lshr", address, b.const(address.ty, WINDOW_SHIFT))
    for name, origin in (("global", 0), ("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW), ("const", CONST_WINDOW)):
        here = b.cmp("icmp eq", window, b.const(address.ty, origin >> WINDOW_SHIFT))
        if name == "global":
            here = b.bin("or", here, b.cmp("icmp ugt", window, b.const(address.ty, CONST_WINDOW >> WINDOW_SHIFT)))
        condition = here if outer_guard is None else b.bin("and", *b.same_shape(here, outer_guard))
        b.set_guard(b.splat(condition))
        mask = b.lane_mask()
        with b.when(b.cmp("icmp ne", mask, b.i32(0))):
            body(name, b.bin("sub", b.splat(address), b.const("i64", origin)))
    b.set_guard(outer_guard)


def load_through_windows(b: WarpBuilder, address: Value, bits: int, n: int, load: Callable[[str, Value], list[Value]]) -> list[Value]:
    """``n`` elements of ``bits`` bits per lane, put together from what ``load(space, inner address)`` gives for each window."""
    ty = f"i{bits}"
    slots = [b.alloca(f"<32 x {ty}>") for _ in range(n)]
    for s in slots:
        b.store(Value("zeroinitializer", ty, LANES), s)

    def body(space: str, inner: Value) -> None:
        lanes = b.lanes_of(b.lane_mask())
        for s, v in zip(slots, load(space, inner), strict=True):
            b.store(b.select(lanes, b.splat(v), b.load(ty, s, LANES)), s)

    each_window(b, address, body)
    return [b.load(ty, s, LANES) for s in slots]
