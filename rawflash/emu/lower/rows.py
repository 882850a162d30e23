"""Rows of 8x8 matrices of 16-bit elements: the access of ldmatrix, stmatrix and wmma.load, checked and counted by ``access.touch``.

Lane ``8 i + r`` holds the address of row ``r`` of matrix ``i``, 16 bytes. The eight rows of a matrix one after another are
exactly a register of 32 lanes (lane ``4 r + t`` holds elements ``2 t`` and ``2 t + 1`` of row ``r``), so that rows are copied
whole. The copying is a function of its own, to keep the many sites of a kernel small.
"""

from __future__ import annotations

from rawflash.emu.lower import access
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, IRWriter, Value
from rawflash.emu.lower.layout import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SHIFT, Memo
from rawflash.emu.lower.slowpath import function_text

ROW_BYTES = 16
ATTRIBUTES = 'noinline nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'
REGISTER = f"<{LANES} x i32>"


def _touch(b: WarpBuilder, space: str, address: Value, count: int, write: bool) -> access.Touched:
    """Only the lanes whose addresses are used take part."""
    guard = b._guard
    if count < 4:
        used = Value("<" + ", ".join(f"i1 {'true' if lane < 8 * count else 'false'}" for lane in range(LANES)) + ">", "i1", LANES)
        b.set_guard(used if guard is None else b.bin("and", *b.same_shape(used, guard)))
    touched = access.touch(b, space, address, ROW_BYTES, write)
    b.set_guard(guard)
    return touched


def _row(b: IRWriter, lane: int) -> Value:
    return b.gep("%base", b.load("i64", b.gep("%memo", Memo.REL + 8 * lane)))


def load_rows(b: WarpBuilder, space: str, address: Value, count: int) -> list[Value]:
    """Read ``count`` matrices (1, 2 or 4); ``address`` has 32 lanes, of which the first ``8 * count`` are used."""
    if space == "generic":
        return _generic_load_rows(b, address, count)
    t = _touch(b, space, address, count, write=False)
    result = "{ " + ", ".join([REGISTER] * count) + " }"

    def body(w: IRWriter) -> None:
        packed = "poison"
        for matrix in range(count):
            parts = [w.load("i32", _row(w, 8 * matrix + r), lanes=4, align=ROW_BYTES) for r in range(8)]
            while len(parts) > 1:
                parts = [w.shuffle(parts[k], parts[k + 1], list(range(2 * parts[k].lanes))) for k in range(0, len(parts), 2)]
            packed = w.define(f"insertvalue {result} {packed}, {parts[0].typed}, {matrix}", "i32").ir
        w.raw(f"ret {result} {packed}")

    name = f"rf_load_rows_x{count}"
    b.declarations.add(function_text(name, f"internal {result}", "ptr %base, ptr %memo", body, b.declarations, ATTRIBUTES))
    packed = b.define(f"call {result} @{name}({t.pointer.typed}, {t.memo.typed})", "i32")
    loaded = [b.define(f"extractvalue {result} {packed.ir}, {matrix}", "i32", LANES) for matrix in range(count)]
    if b.params.initcheck:
        access._check_initialised(b, space, t, access._suspicious(b, loaded))
    return loaded


def _generic_load_rows(b: WarpBuilder, address: Value, count: int) -> list[Value]:
    """All rows lie in the window of the first one; a row elsewhere is out of bounds there."""
    slots = [b.alloca(REGISTER) for _ in range(count)]
    window = b.bin("lshr", b.extract(address, 0), b.i64(WINDOW_SHIFT))
    for space, number, origin in (("global", 0, 0), ("shared", 1, SHARED_WINDOW), ("local", 2, LOCAL_WINDOW)):
        with b.when(b.cmp("icmp eq", window, b.i64(number))):
            for slot, v in zip(slots, load_rows(b, space, b.bin("sub", address, b.i64(origin)), count), strict=True):
                b.store(v, slot)
    b.fail_if(b.cmp("icmp ugt", window, b.i64(2)), "window", b.i32(0), b.extract(address, 0))
    return [b.load("i32", slot, LANES) for slot in slots]


def store_rows(b: WarpBuilder, address: Value, values: list[Value]) -> None:
    """Write one matrix per register of ``values`` to shared memory. Of two lanes with one address the higher wins."""
    count = len(values)
    t = _touch(b, "shared", address, count, write=True)

    def body(w: IRWriter) -> None:
        for matrix in range(count):
            register = Value(f"%v{matrix}", "i32", LANES)
            for r in range(8):
                w.store(w.shuffle(register, None, list(range(4 * r, 4 * r + 4))), _row(w, 8 * matrix + r), align=ROW_BYTES)
        w.raw("ret void")

    name = f"rf_store_rows_x{count}"
    params = ["ptr %base", "ptr %memo", *(f"{REGISTER} %v{matrix}" for matrix in range(count))]
    b.declarations.add(function_text(name, "internal void", ", ".join(params), body, b.declarations, ATTRIBUTES))
    b.raw(f"call void @{name}({', '.join(v.typed for v in (t.pointer, t.memo, *values))})")
    if b.params.initcheck:
        access.call(b, "rf_mark", access._shadow(b, "shared", t), t.memo, b.i32(ROW_BYTES))
