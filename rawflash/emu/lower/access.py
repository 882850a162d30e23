"""Loads and stores of PTX memory: the ONLY file that emits one, hence the only place that counts and checks.

Every access site owns a MEMO. The fast path compares the lanes' offsets from the first active lane with the remembered ones,
the base's alignment and its range; if all agree, the cost is known and the bytes are in bounds. Otherwise ``rf_learn`` works
the pattern out. The remembered class then says how the data travels: one wide load, one scalar load, or lane by lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.calls import call, check, first_of, same_pattern, shadow, unless, window
from rawflash.emu.lower.generic import each_window, load_through_windows
from rawflash.emu.lower.groups import can_join, join, suspect
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.l2 import READ, READ_WRITE, WRITE
from rawflash.emu.lower.layout import Launch, Memo, Worker
from rawflash.emu.lower.sites import Group, Place
from rawflash.emu.lower.slowpath import CLASS_BROADCAST, CLASS_CONTIGUOUS, CONST, GLOBAL, GLOBAL_KEY, LOCAL, SHARED

SPACES = {"global": GLOBAL, "shared": SHARED, "local": LOCAL, "const": CONST}


@dataclass(frozen=True)
class Touched:
    """A checked and counted access: the first active lane's pointer, its address, the memo, the site."""

    pointer: Value
    base: Value
    memo: Value
    site: int
    mask: Value
    uniform: bool
    group: Group | None = None


def address_key(space: str, size: int, count: bool) -> int:
    """The low address bits on which the cost of an access, or its being aligned, depends."""
    if not count:
        return size - 1
    return GLOBAL_KEY if space in ("global", "const") else max(size - 1, 3)


def touch(
    b: WarpBuilder, space: str, address: Place | Value, size: int, write: bool, ordered: bool = False, update: bool = False
) -> Touched:
    """Check and count one access of ``size`` bytes per lane. ``address`` is space-relative, i32 or i64, scalar or vector.

    ``ordered``: the access orders itself (relaxed, acquire, release), so the race detector ignores it. ``update``: an atomic, which
    is ordered and reads what it writes. The simulated L2 sees all of global and local memory; constant banks have caches of their own.
    """
    if isinstance(address, Place):
        if can_join(b, space):
            group, site = join(b, space, address, size, write)
            base = b.bin("add", group.base, b.i64(address.offset)) if address.offset else group.base
            memo = b.gep("%memos", site * Memo.SIZE)
            return _report(
                b, space, Touched(window(b, space, base), base, memo, site, b.block_mask(), group.uniform, group), write, ordered, update
            )
        address = address.whole(b, narrow=space == "shared")
    if space == "local":
        address = _local_address(b, address, size, write)
    key = address_key(space, size, b.params.count)
    site = b.new_site(space, write, size)
    memo = b.gep("%memos", site * Memo.SIZE)
    mask = b.lane_mask()
    base = first_of(b, address, mask)
    base64 = b.resize(base, "i64")
    tests = same_pattern(b, memo, address, base, mask)
    tests.append(b.cmp("icmp eq", b.bin("and", base64, b.i64(key)), b.load("i64", b.gep(memo, Memo.LOW))))
    if b.params.memcheck:
        tests.append(b.cmp("icmp sge", base64, b.load("i64", b.gep(memo, Memo.BASE_MIN))))
        tests.append(b.cmp("icmp sle", base64, b.load("i64", b.gep(memo, Memo.BASE_MAX))))

    def learn() -> Value | None:
        b.store(b.splat(b.resize(address, "i64")), b.gep("%w", Worker.ADDRS), align=64)
        return call(b, "rf_learn", Value("%w", "ptr"), memo, mask)

    unless(b, tests, learn)
    if b.params.count:
        b.increment(b.gep(memo, Memo.HITS), 1)
    return _report(b, space, Touched(window(b, space, base64), base64, memo, site, mask, not address.lanes), write, ordered, update)


def _report(b: WarpBuilder, space: str, t: Touched, write: bool, ordered: bool, update: bool) -> Touched:
    """Tell the race detector and the simulated cache, which want to hear of every single access."""
    if b.params.racecheck and space in ("shared", "global") and not (ordered or update):
        _race(b, space, t.memo, t.base)
    if b.params.l2 is not None and space in ("global", "local"):
        kind = (READ_WRITE if update else WRITE) if write else READ
        call(b, "rf_l2", Value("%w", "ptr"), Value("%warp", "ptr"), t.memo, t.base, b.i32(kind))
    return t


def _local_address(b: WarpBuilder, address: Value, size: int, write: bool) -> Value:
    """Every lane owns a frame: check the lane's own offset, then place it."""
    stride = b.load("i64", b.gep("%l", Launch.LOCAL_STRIDE))
    address = b.splat(b.resize(address, "i64"))
    if b.params.memcheck:
        last = b.bin("sub", stride, b.i64(size))
        outside = b.bits_of(b.cmp("icmp ugt", address, b.splat(last)))
        outside = b.bin("and", outside, b.lane_mask())
        lane = b.first_lane(outside)
        with b.when(b.cmp("icmp ne", outside, b.i32(0)), likely=False):
            at = b.extract(address, b.bin("and", lane, b.i32(31)))
            b.fail_if(Value("true", "i1"), "out_of_bounds", lane, at, site=b.new_site("local", write, size))
    lanes = Value("<" + ", ".join(f"i64 {k}" for k in range(32)) + ">", "i64", LANES)
    return b.bin("add", address, b.bin("mul", lanes, b.splat(stride)))


def _race(b: WarpBuilder, space: str, memo: Value, base: Value) -> None:
    check(b, call(b, f"rf_race_{space}", Value("%w", "ptr"), Value("%warp", "ptr"), memo, base))


def _shadow(b: WarpBuilder, space: str, t: Touched) -> Value:
    return shadow(b, space, t.pointer)


def _suspicious(b: WarpBuilder, loaded: list[Value]) -> Value:
    """i1: some 16-bit piece (or byte) holds the poison, all ones. Only then is the shadow worth a look."""
    out: Value | None = None
    for v in loaded:
        bits = int(v.ty[1:])
        piece = min(bits, 16)
        count = max(v.lanes, 1) * bits // piece
        pieces = v if piece == bits else b.define(f"bitcast {v.typed} to <{count} x i{piece}>", f"i{piece}", count)
        found = b.reduce_any(b.cmp("icmp eq", pieces, b.const(f"i{piece}", -1)))
        out = found if out is None else b.bin("or", out, found)
    assert out is not None
    return out


def _check_initialised(b: WarpBuilder, space: str, t: Touched, suspicious: Value) -> None:
    with b.when(suspicious, likely=False):
        check(b, call(b, "rf_init_check", Value("%w", "ptr"), t.memo, _shadow(b, space, t), t.base))


def check_all_initialised(b: WarpBuilder, space: str, t: Touched) -> None:
    """Look every byte of an access up in the shadow: for accesses that do not bring the value into registers first."""
    check(b, call(b, "rf_init_check", Value("%w", "ptr"), t.memo, _shadow(b, space, t), t.base))


def mark_initialised(b: WarpBuilder, space: str, t: Touched, size: int) -> None:
    """Every byte of an access has been written."""
    call(b, "rf_mark", _shadow(b, space, t), t.memo, b.i32(size))


def load(
    b: WarpBuilder, space: str, address: Place | Value, bits: int, n: int, volatile: bool = False, ordered: bool = False
) -> list[Value]:
    """``n`` elements of ``bits`` bits per lane; scalars if the address is uniform and the memory is not private."""
    if space == "generic":
        address = address.whole(b) if isinstance(address, Place) else address
        return load_through_windows(b, address, bits, n, lambda name, inner: load(b, name, inner, bits, n, volatile, ordered))
    size = bits // 8 * n
    t = touch(b, space, address, size, write=False, ordered=ordered)
    checked = b.params.initcheck and space != "const"
    later = t.group if checked and not volatile and bits > 8 else None  # who looks at the values when the block has run
    checked = checked and later is None
    if t.uniform:
        scalars = _scalars(b, t, bits, n, volatile)
        if checked:
            _check_initialised(b, space, t, _suspicious(b, scalars))
        if later is not None:
            suspect(b, later, t.site, _eights(b, t.pointer, size))
        return scalars
    merged = _columns(b, t, bits, n, volatile, checked)
    if checked:
        _check_initialised(b, space, t, merged.pop())
    if later is not None:
        suspect(b, later, t.site, merged)
    return merged


def _scalars(b: WarpBuilder, t: Touched, bits: int, n: int, volatile: bool) -> list[Value]:
    """The elements that all lanes share."""
    ty, keyword = f"i{bits}", "load volatile" if volatile else "load"
    return [b.define(f"{keyword} {ty}, ptr {b.gep(t.pointer, k * bits // 8).ir}, align {bits // 8}", ty) for k in range(n)]


def _columns(b: WarpBuilder, t: Touched, bits: int, n: int, volatile: bool, checked: bool) -> list[Value]:
    """Elements as vectors of 32 lanes, fetched as the pattern allows; if ``checked``, whether they are suspicious comes last."""
    ty, keyword = f"i{bits}", "load volatile" if volatile else "load"
    wide, same, scattered, done = (b.new_label(x) for x in ("wide", "same", "scattered", "loaded"))
    kind = b.load("i32", b.gep(t.memo, Memo.CLASS))
    straight = f"i32 {CLASS_CONTIGUOUS}, label %{wide} " if n == 1 else ""  # wider elements are taken apart in rf_gather
    b.raw(f"switch i32 {kind.ir}, label %{scattered} [ {straight}i32 {CLASS_BROADCAST}, label %{same} ]")
    incoming: list[tuple[str, list[Value]]] = []
    if n == 1:
        b.label(wide)
        columns = [b.define(f"{keyword} <{LANES} x {ty}>, ptr {t.pointer.ir}, align {bits // 8}", ty, LANES)]
        incoming.append((b.current, [*columns, _suspicious(b, columns)] if checked else columns))
        b.jump(done)
    b.label(same)
    scalars = _scalars(b, t, bits, n, volatile)
    columns = [b.splat(s) for s in scalars]
    incoming.append((b.current, [*columns, _suspicious(b, scalars)] if checked else columns))
    b.jump(done)
    b.label(scattered)
    data = b.gep("%w", Worker.DATA)
    call(b, f"rf_gather_{bits}x{n}", t.pointer, t.memo, data)
    columns = [b.load(ty, b.gep(data, c * LANES * bits // 8), LANES, align=min(64, LANES * bits // 8)) for c in range(n)]
    incoming.append((b.current, [*columns, _suspicious(b, columns)] if checked else columns))
    b.jump(done)
    b.label(done)
    return [
        b.define(f"phi {incoming[0][1][c].full} " + ", ".join(f"[ {v[c].ir}, %{origin} ]" for origin, v in incoming), v0.ty, v0.lanes)
        for c, v0 in enumerate(incoming[0][1])
    ]


def _eights(b: WarpBuilder, pointer: Value, size: int) -> list[Value]:
    """``size`` bytes as vectors of eight 16-bit pieces, zero behind the last; read again, so that the data can be used from memory."""
    if size < 16:
        return [b.resize(b.load(f"i{8 * size}", pointer, align=size), "i128")]
    return [b.load("i128", b.gep(pointer, k), align=16) for k in range(0, size, 16)]


def store(
    b: WarpBuilder, space: str, address: Place | Value, values: list[Value], bits: int, volatile: bool = False, ordered: bool = False
) -> None:
    """Store one element of ``bits`` bits per value and lane."""
    if space == "generic":
        address = address.whole(b) if isinstance(address, Place) else address
        each_window(b, address, lambda name, inner: store(b, name, inner, values, bits, volatile, ordered))
        return
    n = len(values)
    size = bits // 8 * n
    t = touch(b, space, address, size, write=True, ordered=ordered)
    tracked = b.params.initcheck
    keyword = "store volatile" if volatile else "store"
    if t.uniform:
        last = b.bin("sub", b.i32(31), b.intrinsic("ctlz", t.mask, plain=(Value("false", "i1"),)))
        for k, v in enumerate(values):
            one = b.extract(v, last) if v.lanes else v
            b.raw(f"{keyword} {one.typed}, ptr {b.gep(t.pointer, k * bits // 8).ir}, align {bits // 8}")
        if tracked:
            b.raw(f"store i{8 * size} -1, ptr {_shadow(b, space, t).ir}, align 1")
        return
    values = [b.splat(v) for v in values]
    done = b.new_label("stored")
    if n == 1:
        wide, scattered = b.new_label("wide"), b.new_label("scattered")
        kind = b.load("i32", b.gep(t.memo, Memo.CLASS))
        b.branch(b.cmp("icmp eq", kind, b.i32(CLASS_CONTIGUOUS)), wide, scattered, likely=True)
        b.label(wide)
        _store_row(b, space, t, values[0], keyword)
        b.jump(done)
        b.label(scattered)
    data = b.gep("%w", Worker.DATA)
    for c, v in enumerate(values):
        b.store(v, b.gep(data, c * LANES * bits // 8), align=min(64, LANES * bits // 8))
    call(b, f"rf_scatter_{bits}x{n}", t.pointer, t.memo, data)
    if tracked:
        call(b, "rf_mark", _shadow(b, space, t), t.memo, b.i32(size))
    b.jump(done)
    b.label(done)


def _store_row(b: WarpBuilder, space: str, t: Touched, v: Value, keyword: str) -> None:
    """One element per lane, lane after lane."""
    n_bytes = int(v.ty[1:]) // 8
    if b.has_full_mask:
        b.raw(f"{keyword} {v.typed}, ptr {t.pointer.ir}, align {n_bytes}")
        if b.params.initcheck:
            b.raw(f"store <{LANES * n_bytes} x i8> splat (i8 -1), ptr {_shadow(b, space, t).ir}, align 1")
        return
    lanes = b.lanes_of(t.mask)
    name = f"llvm.masked.store.v32{v.ty}.p0"
    b.declarations.add(f"declare void @{name}({v.full}, ptr, <32 x i1>)")
    b.raw(f"call void @{name}({v.typed}, ptr align {n_bytes} {t.pointer.ir}, {lanes.typed})")
    if b.params.initcheck:
        b.raw(f"call void @{name}({v.full} splat ({v.ty} -1), ptr align 1 {_shadow(b, space, t).ir}, {lanes.typed})")


def param_load(b: WarpBuilder, address: Value, bits: int, n: int) -> list[Value]:
    """Kernel parameters: the constant bank, neither counted nor checked beyond the declared size."""
    pointer = b.define(f"inttoptr {address.typed} to ptr", "ptr")
    return [b.define(f"load i{bits}, ptr {b.gep(pointer, k * bits // 8).ir}, align {bits // 8}", f"i{bits}") for k in range(n)]
