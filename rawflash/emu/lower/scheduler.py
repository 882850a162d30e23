"""The CTA loop of a worker thread, as generated code: set up a CTA, run its warps from barrier to barrier, go on to the next."""

from __future__ import annotations

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import BARRIER, DONE, ERROR_KIND, FAILED, YIELD, Launch, Warp, Worker
from rawflash.emu.lower.slowpath import function_text

BARRIERS = 16
BAR_RECORD = 16
YIELD_LIMIT = 1 << 22  # rounds in which warps only spin


def _stop(b: IRWriter, kind: str | None) -> None:
    """Leave the loop with an error. Other workers go on with earlier CTAs only, so that the first fault is what is reported."""
    if kind is not None:
        b.store(b.i32(ERROR_KIND[kind]), b.gep("%w", Worker.ERR_KIND))
        if kind != "deadlock":
            b.store(b.i32(-1), b.gep("%w", Worker.ERR_SITE))
    stop = b.gep(b.load("ptr", b.gep("%w", Worker.LAUNCH)), Launch.STOP)
    position = b.load("i64", b.gep("%w", Worker.POSITION))
    b.define(f"atomicrmw umin ptr {stop.ir}, i64 {position.ir} seq_cst", "i64")
    b.raw(f"ret i32 {FAILED}")
    b.label(b.new_label("dead"))


def _fill(b: IRWriter, pointer: Value, byte: int, count: Value) -> None:
    b.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    b.raw(f"call void @llvm.memset.p0.i64(ptr {pointer.ir}, i8 {byte}, i64 {count.ir}, i1 false)")


def _permuted(b: IRWriter, launch: Value, field: int, index: Value, ty: str) -> Value:
    """index, or order[index] when the launch has an order."""
    out = b.alloca(ty, 8)
    b.store(index, out)
    order = b.load("ptr", b.gep(launch, field))
    with b.when(b.cmp("icmp ne", order, Value("null", "ptr"))):
        width = 8 if ty == "i64" else 4
        offset = b.bin("mul", b.resize(index, "i64"), b.i64(width))
        b.store(b.load(ty, b.gep(order, offset)), out)
    return b.load(ty, out)


def _start_cta(b: IRWriter, launch: Value, linear: Value) -> None:
    nx = b.resize(b.load("i32", b.gep(launch, Launch.NCTAID)), "i64")
    ny = b.resize(b.load("i32", b.gep(launch, Launch.NCTAID + 4)), "i64")
    x = b.bin("urem", linear, nx)
    rest = b.bin("udiv", linear, nx)
    for axis, value in enumerate((x, b.bin("urem", rest, ny), b.bin("udiv", rest, ny))):
        b.store(b.resize(value, "i32"), b.gep("%w", Worker.CTAID + 4 * axis))
    b.store(linear, b.gep("%w", Worker.LINEAR))
    smem_bytes = b.resize(b.load("i32", b.gep(launch, Launch.SMEM_BYTES)), "i64")
    _fill(b, b.load("ptr", b.gep("%w", Worker.SMEM)), -1, smem_bytes)
    _fill(b, b.load("ptr", b.gep("%w", Worker.SMEM_SHADOW)), 0, smem_bytes)
    _fill(b, b.gep("%w", Worker.BAR_ACC), 0, b.i64(BARRIERS * BAR_RECORD * 2))
    race = b.load("ptr", b.gep("%w", Worker.RACE))
    with b.when(b.cmp("icmp ne", race, Value("null", "ptr"))):
        _fill(b, race, 0, b.bin("mul", smem_bytes, b.i64(16)))
    b.store(b.i32(1), b.gep("%w", Worker.EPOCH))
    b.store(b.load("i64", b.gep(launch, Launch.MAX_ITERATIONS)), b.gep("%w", Worker.ITERATIONS))
    warps = b.load("ptr", b.gep("%w", Worker.WARPS))
    stride = b.load("i64", b.gep(launch, Launch.WARP_STRIDE))
    local = b.load("i64", b.gep(launch, Launch.LOCAL_STRIDE))
    with b.loop(b.load("i32", b.gep(launch, Launch.NWARPS))) as n:
        warp = b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride))
        for field in (Warp.RESUME, Warp.EXITED, Warp.SP, Warp.STATUS, Warp.PENDING, Warp.QUEUE_HEAD, Warp.QUEUED, Warp.SPINS):
            b.store(b.i32(0), b.gep(warp, field))
        b.store(b.i32(-1), b.gep(warp, Warp.RPC))
        b.store(b.load("i32", b.gep(warp, Warp.ENTRY_MASK)), b.gep(warp, Warp.MASK))
        with b.when(b.cmp("icmp ne", local, b.i64(0))):
            memory = b.load("ptr", b.gep(warp, Warp.LOCAL))
            size = b.bin("mul", local, b.i64(32))
            _fill(b, memory, -1, size)
            _fill(b, b.gep(memory, b.load("i64", b.gep("%w", Worker.LOCAL_SHADOW_DELTA))), 0, size)


def _release_barriers(b: IRWriter, launch: Value, released: Value) -> None:
    """Open every barrier at which enough warps have arrived."""
    warps = b.load("ptr", b.gep("%w", Worker.WARPS))
    stride = b.load("i64", b.gep(launch, Launch.WARP_STRIDE))
    n_warps = b.load("i32", b.gep(launch, Launch.NWARPS))
    live, waiting_on, need = b.alloca("i32", 4), b.alloca("i32", 4), b.alloca("i32", 4)
    b.store(b.i32(0), live)
    with b.loop(n_warps) as n:
        status = b.load("i32", b.gep(b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride)), Warp.STATUS))
        with b.when(b.cmp("icmp ne", status, b.i32(2))):
            b.store(b.bin("add", b.load("i32", live), b.i32(1)), live)
    with b.loop(BARRIERS) as bar:
        b.store(b.i32(0), waiting_on)
        b.store(b.i32(0), need)
        with b.loop(n_warps) as n:
            warp = b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride))
            at_it = b.bin(
                "and",
                b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.STATUS)), b.i32(1)),
                b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.BAR_ID)), bar),
            )
            with b.when(at_it):
                b.store(b.i32(1), waiting_on)
                b.store(b.load("i32", b.gep(warp, Warp.BAR_THREADS)), need)
        with b.when(b.cmp("icmp ne", b.load("i32", waiting_on), b.i32(0))):
            offset = b.bin("mul", b.resize(bar, "i64"), b.i64(BAR_RECORD))
            acc = b.gep(b.gep("%w", Worker.BAR_ACC), offset)
            threads = b.load("i32", need)
            wanted = b.select(
                b.cmp("icmp eq", threads, b.i32(0)), b.load("i32", live), b.bin("lshr", b.bin("add", threads, b.i32(31)), b.i32(5))
            )
            with b.when(b.cmp("icmp uge", b.load("i32", acc), wanted)):
                result = b.gep(b.gep("%w", Worker.BAR_RESULT), offset)
                for k in range(3):  # popc, number of true warps, any
                    b.store(b.load("i32", b.gep(acc, 4 + 4 * k)), b.gep(result, 4 * k))
                for k in range(4):
                    b.store(b.i32(0), b.gep(acc, 4 * k))
                _note_pairs(b, warps, stride, n_warps, bar)
                epoch = b.load("i32", b.gep("%w", Worker.EPOCH))
                b.store(b.bin("add", epoch, b.i32(1)), b.gep("%w", Worker.EPOCH))
                b.store(b.i32(1), released)
                with b.loop(n_warps) as n:
                    warp = b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride))
                    at_it = b.bin(
                        "and",
                        b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.STATUS)), b.i32(1)),
                        b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.BAR_ID)), bar),
                    )
                    with b.when(at_it):
                        b.store(b.i32(0), b.gep(warp, Warp.STATUS))


def _note_pairs(b: IRWriter, warps: Value, stride: Value, n_warps: Value, bar: Value) -> None:
    """Remember when warps meet at one barrier from different places in the code: legal on the hardware, often a mistake."""
    first = b.alloca("i32", 4)
    b.store(b.i32(-1), first)
    with b.loop(n_warps) as n:
        warp = b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride))
        status, number = b.load("i32", b.gep(warp, Warp.STATUS)), b.load("i32", b.gep(warp, Warp.BAR_ID))
        with b.when(b.bin("and", b.cmp("icmp eq", status, b.i32(1)), b.cmp("icmp eq", number, bar))):
            site, seen = b.load("i32", b.gep(warp, Warp.BAR_SITE)), b.load("i32", first)
            with b.when(b.cmp("icmp eq", seen, b.i32(-1))):
                b.store(site, first)
            count = b.load("i32", b.gep("%w", Worker.PAIRED))
            other = b.bin("and", b.cmp("icmp ne", seen, b.i32(-1)), b.cmp("icmp ne", seen, site))
            with b.when(b.bin("and", other, b.cmp("icmp ult", count, b.i32(7)))):
                known = b.alloca("i32", 4)
                b.store(b.i32(0), known)
                with b.loop(count) as k:
                    entry = b.gep("%w", b.bin("add", b.bin("mul", b.resize(k, "i64"), b.i64(8)), b.i64(Worker.PAIRED + 4)))
                    first_half, second_half = b.load("i32", entry), b.load("i32", b.gep(entry, 4))
                    same = b.bin("and", b.cmp("icmp eq", first_half, seen), b.cmp("icmp eq", second_half, site))
                    with b.when(same):
                        b.store(b.i32(1), known)
                with b.when(b.cmp("icmp eq", b.load("i32", known), b.i32(0))):
                    entry = b.gep("%w", b.bin("add", b.bin("mul", b.resize(count, "i64"), b.i64(8)), b.i64(Worker.PAIRED + 4)))
                    b.store(seen, entry)
                    b.store(site, b.gep(entry, 4))
                    b.store(b.bin("add", count, b.i32(1)), b.gep("%w", Worker.PAIRED))


def _blame_waiting(b: IRWriter, warps: Value, stride: Value, n_warps: Value) -> None:
    """Name the first warp that waits, and where."""
    b.store(b.i32(-1), b.gep("%w", Worker.ERR_SITE))
    with b.loop(n_warps) as k:
        n = b.bin("sub", b.bin("sub", n_warps, b.i32(1)), k)
        warp = b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride))
        with b.when(b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.STATUS)), b.i32(1))):
            b.store(b.load("i32", b.gep(warp, Warp.BAR_SITE)), b.gep("%w", Worker.ERR_SITE))
            b.store(n, b.gep("%w", Worker.ERR_WARP))
            b.store(b.i32(0), b.gep("%w", Worker.ERR_LANE))


def _begin(b: IRWriter) -> None:
    """i32 rf_begin(w, position): put the CTA at this place of the launch order into the worker; DONE if it need not be run."""
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    position = Value("%position", "i64")
    b.store(position, b.gep("%w", Worker.POSITION))
    stopped = b.define(f"load atomic i64, ptr {b.gep(launch, Launch.STOP).ir} seq_cst, align 8", "i64")
    with b.when(b.cmp("icmp ugt", position, stopped)):
        b.raw(f"ret i32 {DONE}")
        b.label(b.new_label("dead"))
    _start_cta(b, launch, _permuted(b, launch, Launch.CTA_ORDER, position, "i64"))
    b.store(b.i32(0), b.gep("%w", Worker.SPINS))
    b.raw(f"ret i32 {YIELD}")


def _round(b: IRWriter) -> None:
    """i32 rf_round(w, kernel): run every warp that is ready up to a barrier or its end, then open barriers.

    YIELD: go on with another round. DONE: this CTA has ended. BARRIER: give up, an earlier CTA has failed. FAILED: this one has.
    """
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    warps = b.load("ptr", b.gep("%w", Worker.WARPS))
    stride = b.load("i64", b.gep(launch, Launch.WARP_STRIDE))
    n_warps = b.load("i32", b.gep(launch, Launch.NWARPS))
    progress, undone = b.alloca("i32", 4), b.alloca("i32", 4)
    b.store(b.i32(0), progress)
    b.store(b.i32(0), undone)
    with b.loop(n_warps) as n:
        index = _permuted(b, launch, Launch.WARP_ORDER, n, "i32")
        warp = b.gep(warps, b.bin("mul", b.resize(index, "i64"), stride))
        status = b.load("i32", b.gep(warp, Warp.STATUS))
        with b.when(b.cmp("icmp eq", status, b.i32(0))):
            code = b.define(f"call i32 %kernel({warp.typed}, ptr %w, {launch.typed})", "i32")
            with b.when(b.cmp("icmp slt", code, b.i32(0))):
                b.store(index, b.gep("%w", Worker.ERR_WARP))
                _stop(b, None)
            with b.when(b.cmp("icmp eq", code, b.i32(DONE))):
                b.store(b.i32(2), b.gep(warp, Warp.STATUS))
                b.store(b.i32(1), progress)
            with b.when(b.cmp("icmp eq", code, b.i32(BARRIER))):
                b.store(b.i32(1), b.gep(warp, Warp.STATUS))
                b.store(b.i32(1), progress)
                b.increment(b.gep("%w", Worker.BARRIERS), 1)
        after = b.load("i32", b.gep(warp, Warp.STATUS))
        with b.when(b.cmp("icmp ne", after, b.i32(2))):
            b.store(b.i32(1), undone)
    with b.when(b.cmp("icmp eq", b.load("i32", undone), b.i32(0))):
        b.increment(b.gep("%w", Worker.CTAS_DONE), 1)
        b.raw(f"ret i32 {DONE}")
        b.label(b.new_label("dead"))
    _release_barriers(b, launch, progress)
    with b.when(b.cmp("icmp eq", b.load("i32", progress), b.i32(0))):
        _stuck(b, launch, warps, stride, n_warps)
    b.raw(f"ret i32 {YIELD}")


def _stuck(b: IRWriter, launch: Value, warps: Value, stride: Value, n_warps: Value) -> None:
    """No warp ended or reached a barrier, and no barrier opened: a deadlock, unless some warp only waits for memory to change."""
    ready = b.alloca("i32", 4)
    b.store(b.i32(0), ready)
    with b.loop(n_warps) as n:
        status = b.load("i32", b.gep(b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride)), Warp.STATUS))
        with b.when(b.cmp("icmp eq", status, b.i32(0))):
            b.store(b.i32(1), ready)
    count = b.bin("add", b.load("i32", b.gep("%w", Worker.SPINS)), b.i32(1))
    b.store(count, b.gep("%w", Worker.SPINS))
    with b.when(b.cmp("icmp eq", b.load("i32", ready), b.i32(0))):
        _blame_waiting(b, warps, stride, n_warps)
        _stop(b, "deadlock")
    with b.when(b.cmp("icmp ugt", count, b.i32(YIELD_LIMIT))):
        _stop(b, "hung")
    other_stop = b.define(f"load atomic i64, ptr {b.gep(launch, Launch.STOP).ir} seq_cst, align 8", "i64")
    with b.when(b.cmp("icmp ult", other_stop, b.load("i64", b.gep("%w", Worker.POSITION)))):
        b.raw(f"ret i32 {BARRIER}")
        b.label(b.new_label("dead"))


def _run(b: IRWriter) -> None:
    """i32 rf_run(w, kernel, first, count): execute CTAs first .. first+count-1 of the launch order, one after the other."""
    with b.loop(Value("%count", "i64"), "i64") as c:
        position = b.bin("add", Value("%first", "i64"), c)
        begun = b.define(f"call i32 @rf_begin(ptr %w, {position.typed})", "i32")
        with b.when(b.cmp("icmp eq", begun, b.i32(DONE))):
            b.raw(f"ret i32 {DONE}")
            b.label(b.new_label("dead"))
        round_, stop, finished = b.new_label("round"), b.new_label("stop"), b.new_label("finished")
        b.jump(round_)
        b.label(round_)
        code = b.define("call i32 @rf_round(ptr %w, ptr %kernel)", "i32")
        b.raw(f"switch i32 {code.ir}, label %{stop} [ i32 {YIELD}, label %{round_} i32 {DONE}, label %{finished} ]")
        b.label(stop)
        b.raw(f"ret i32 {b.select(b.cmp('icmp eq', code, b.i32(FAILED)), b.i32(FAILED), b.i32(DONE)).ir}")
        b.label(finished)
    b.raw(f"ret i32 {DONE}")


def scheduler_functions(declarations: set[str]) -> list[str]:
    """The IR text of rf_run and of its two steps."""
    return [
        function_text("rf_begin", "i32", "ptr %w, i64 %position", _begin, declarations, "noinline nounwind"),
        function_text("rf_round", "i32", "ptr %w, ptr %kernel", _round, declarations, "noinline nounwind"),
        function_text("rf_run", "i32", "ptr %w, ptr %kernel, i64 %first, i64 %count", _run, declarations, "nounwind"),
    ]
