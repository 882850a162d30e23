"""The CTA loop of a worker thread, as generated code: set up a CTA, run its warps from barrier to barrier, go on to the next."""

from __future__ import annotations

from rawflash.emu.lower.barrier_release import BAR_RECORD, BARRIERS, release_barriers, stop
from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import BARRIER, DONE, FAILED, QUANTUM, YIELD, Launch, Warp, Worker
from rawflash.emu.lower.slowpath import function_text

LONG_WAIT = 4  # rounds at a barrier after which a warp counts as waiting for the ones that spin
PATIENCE = 1 << 12  # rounds of one CTA after which further CTAs may be started beside it
IDLE_LIMIT = 1 << 22  # rounds in which warps only spin
WAIT, GIVE_UP, LEAVE = 0, 1, 2  # what the crew answers a CTA that cannot go on by itself (machine/crew.py)


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
        zeroed = (Warp.RESUME, Warp.EXITED, Warp.SP, Warp.STATUS, Warp.ARRIVALS, Warp.HEAD, Warp.TAIL, Warp.QUIET)
        for field, initial in (*((f, 0) for f in zeroed), (Warp.RPC, -1), (Warp.SPINS, QUANTUM)):
            b.store(b.i32(initial), b.gep(warp, field))
        b.store(Value("zeroinitializer", "i32", 32), b.gep(warp, Warp.GROUPS), align=64)
        b.store(b.load("i32", b.gep(warp, Warp.ENTRY_MASK)), b.gep(warp, Warp.MASK))
        with b.when(b.cmp("icmp ne", local, b.i64(0))):
            memory = b.load("ptr", b.gep(warp, Warp.LOCAL))
            size = b.bin("mul", local, b.i64(32))
            _fill(b, memory, -1, size)
            _fill(b, b.gep(memory, b.load("i64", b.gep("%w", Worker.LOCAL_SHADOW_DELTA))), 0, size)


def _blame(b: IRWriter, warps: Value, stride: Value, n_warps: Value, status: int) -> None:
    """Name the first warp that waits at a barrier (status 1) or spins (0), and where."""
    b.store(b.i32(-1), b.gep("%w", Worker.ERR_SITE))
    with b.loop(n_warps) as k:
        n = b.bin("sub", b.bin("sub", n_warps, b.i32(1)), k)
        warp = b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride))
        with b.when(b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.STATUS)), b.i32(status))):
            b.store(b.load("i32", b.gep(warp, Warp.BAR_SITE)), b.gep("%w", Worker.ERR_SITE))
            b.store(n, b.gep("%w", Worker.ERR_WARP))
            mask = b.load("i32", b.gep(warp, Warp.MASK))
            entered, exited = (b.load("i32", b.gep(warp, field)) for field in (Warp.ENTRY_MASK, Warp.EXITED))
            live = b.bin("and", entered, b.bin("xor", exited, b.i32(-1)))
            others = b.bin("and", live, b.bin("xor", mask, b.i32(-1)))
            lane = b.intrinsic("cttz", mask, plain=(Value("false", "i1"),)) if status == 0 else b.i32(0)
            b.store(lane, b.gep("%w", Worker.ERR_LANE))
            b.store(b.resize(mask, "i64"), b.gep("%w", Worker.ERR_AUX))
            b.store(b.resize(others, "i64"), b.gep("%w", Worker.ERR_AUX2))


def _ask(b: IRWriter, launch: Value, fresh: Value) -> None:
    """Ask the crew whether this CTA may go on waiting for others; leave if not."""
    stalled = b.load("ptr", b.gep(launch, Launch.STALLED))
    with b.when(b.cmp("icmp ne", stalled, Value("null", "ptr"))):
        answer = b.define(f"call i32 {stalled.ir}(ptr %w, {fresh.typed})", "i32")
        with b.when(b.cmp("icmp eq", answer, b.i32(GIVE_UP))):
            warps = b.load("ptr", b.gep("%w", Worker.WARPS))
            _blame(b, warps, b.load("i64", b.gep(launch, Launch.WARP_STRIDE)), b.load("i32", b.gep(launch, Launch.NWARPS)), 0)
            stop(b, "spin")
        with b.when(b.cmp("icmp eq", answer, b.i32(LEAVE))):
            b.raw(f"ret i32 {BARRIER}")
            b.label(b.new_label("dead"))


def _turn(b: IRWriter, launch: Value, index: Value, warp: Value, progress: Value, event: Value) -> None:
    """Let one warp run until it leaves the machine code."""
    code = b.define(f"call i32 %kernel({warp.typed}, ptr %w, {launch.typed})", "i32")
    with b.when(b.cmp("icmp slt", code, b.i32(0))):
        b.store(index, b.gep("%w", Worker.ERR_WARP))
        stop(b, None)
    with b.when(b.cmp("icmp ne", b.load("i32", b.gep(warp, Warp.ARRIVALS)), b.i32(0))):
        drained = b.define(f"call i32 @rf_copy_drain(ptr %w, {warp.typed})", "i32")
        with b.when(b.cmp("icmp ne", drained, b.i32(0))):
            b.store(index, b.gep("%w", Worker.ERR_WARP))
            stop(b, None)
    with b.when(b.cmp("icmp eq", code, b.i32(DONE))):
        b.store(b.i32(2), b.gep(warp, Warp.STATUS))
        b.store(b.i32(1), progress)
        b.store(b.i32(1), event)
    with b.when(b.cmp("icmp eq", code, b.i32(BARRIER))):
        b.store(b.i32(1), b.gep(warp, Warp.STATUS))
        b.store(b.i32(1), progress)
        b.store(b.load("i32", b.gep("%w", Worker.ROUNDS)), b.gep(warp, Warp.BAR_ROUND))
        b.increment(b.gep("%w", Worker.BARRIERS), 1)
    with b.when(b.cmp("icmp eq", code, b.i32(YIELD))):
        same = b.load("i32", b.gep(warp, Warp.SAME))
        b.store(b.bin("add", b.load("i32", b.gep(warp, Warp.QUIET)), same), b.gep(warp, Warp.QUIET))
        b.store(b.bin("or", b.load("i32", event), b.bin("xor", same, b.i32(1))), event)


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
    for field, initial in ((Worker.ROUNDS, 0), (Worker.IDLE, 0), (Worker.FRESH, 1)):
        b.store(b.i32(initial), b.gep("%w", field))
    b.raw(f"ret i32 {YIELD}")


def _round(b: IRWriter) -> None:
    """i32 rf_round(w, kernel): give every warp that is ready one turn, then open barriers.

    YIELD: go on with another round. DONE: this CTA has ended. BARRIER: give up, another CTA has failed. FAILED: this one has.
    """
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    warps = b.load("ptr", b.gep("%w", Worker.WARPS))
    stride = b.load("i64", b.gep(launch, Launch.WARP_STRIDE))
    n_warps = b.load("i32", b.gep(launch, Launch.NWARPS))
    progress, undone, event = (b.alloca("i32", 4) for _ in range(3))
    for flag in (progress, undone, event):
        b.store(b.i32(0), flag)
    b.store(b.i32(0), b.gep("%w", Worker.CHANGED))
    with b.loop(n_warps) as n:
        index = _permuted(b, launch, Launch.WARP_ORDER, n, "i32")
        warp = b.gep(warps, b.bin("mul", b.resize(index, "i64"), stride))
        with b.when(b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.STATUS)), b.i32(0))):
            _turn(b, launch, index, warp, progress, event)
        with b.when(b.cmp("icmp ne", b.load("i32", b.gep(warp, Warp.STATUS)), b.i32(2))):
            b.store(b.i32(1), undone)
    with b.when(b.cmp("icmp eq", b.load("i32", undone), b.i32(0))):
        b.increment(b.gep("%w", Worker.CTAS_DONE), 1)
        b.raw(f"ret i32 {DONE}")
        b.label(b.new_label("dead"))
    release_barriers(b, launch, progress)
    changed = b.load("i32", b.gep("%w", Worker.CHANGED))
    b.store(b.bin("or", b.load("i32", event), changed), event)
    b.store(b.bin("or", b.load("i32", progress), changed), progress)
    rounds = b.bin("add", b.load("i32", b.gep("%w", Worker.ROUNDS)), b.i32(1))
    b.store(rounds, b.gep("%w", Worker.ROUNDS))
    with b.when(b.cmp("icmp eq", b.load("i32", progress), b.i32(0))):
        _idle(b, warps, stride, n_warps)
    with b.when(b.cmp("icmp ne", b.load("i32", progress), b.i32(0))):
        b.store(b.i32(0), b.gep("%w", Worker.IDLE))
    with b.when(b.cmp("icmp ne", b.load("ptr", b.gep(launch, Launch.STALLED)), Value("null", "ptr"))):
        with b.when(b.cmp("icmp eq", b.bin("and", rounds, b.i32(PATIENCE - 1)), b.i32(0))):
            _ask(b, launch, b.i32(1))
        _watch(b, launch, warps, stride, n_warps, rounds, b.cmp("icmp ne", b.load("i32", event), b.i32(0)))
    other_stop = b.define(f"load atomic i64, ptr {b.gep(launch, Launch.STOP).ir} seq_cst, align 8", "i64")
    with b.when(b.cmp("icmp ult", other_stop, b.load("i64", b.gep("%w", Worker.POSITION)))):
        b.raw(f"ret i32 {BARRIER}")
        b.label(b.new_label("dead"))
    b.raw(f"ret i32 {YIELD}")


def _idle(b: IRWriter, warps: Value, stride: Value, n_warps: Value) -> None:
    """After a round in which no warp ended or reached a barrier, no barrier opened, and no atomic changed anything."""
    ready = b.alloca("i32", 4)
    b.store(b.i32(0), ready)
    with b.loop(n_warps) as n:
        status = b.load("i32", b.gep(b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride)), Warp.STATUS))
        with b.when(b.cmp("icmp eq", status, b.i32(0))):
            b.store(b.i32(1), ready)
    with b.when(b.cmp("icmp eq", b.load("i32", ready), b.i32(0))):
        _blame(b, warps, stride, n_warps, 1)
        stop(b, "deadlock")
    count = b.bin("add", b.load("i32", b.gep("%w", Worker.IDLE)), b.i32(1))
    b.store(count, b.gep("%w", Worker.IDLE))
    with b.when(b.cmp("icmp ugt", count, b.i32(IDLE_LIMIT))):
        stop(b, "hung")


def _watch(b: IRWriter, launch: Value, warps: Value, stride: Value, n_warps: Value, rounds: Value, event: Value) -> None:
    """Ask after the other CTAs when every warp has spun twice without a change, or has waited at a barrier for as long."""
    stuck, spinning = b.alloca("i32", 4), b.alloca("i32", 4)
    b.store(b.i32(1), stuck)
    b.store(b.i32(0), spinning)
    with b.loop(n_warps) as n:
        warp = b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride))
        status = b.load("i32", b.gep(warp, Warp.STATUS))
        with b.when(event):
            b.store(b.i32(0), b.gep(warp, Warp.QUIET))
        quiet = b.cmp("icmp uge", b.load("i32", b.gep(warp, Warp.QUIET)), b.i32(2))
        waited = b.cmp("icmp uge", b.bin("sub", rounds, b.load("i32", b.gep(warp, Warp.BAR_ROUND))), b.i32(LONG_WAIT))
        waiting = b.bin("and", b.cmp("icmp eq", status, b.i32(1)), waited)
        with b.when(b.bin("and", b.cmp("icmp ne", status, b.i32(2)), quiet)):
            b.store(b.i32(1), spinning)
        fine = b.bin("or", b.cmp("icmp eq", status, b.i32(2)), b.bin("or", quiet, waiting))
        with b.when(b.bin("xor", fine, Value("true", "i1"))):
            b.store(b.i32(0), stuck)
    with b.when(event):
        b.store(b.i32(1), b.gep("%w", Worker.FRESH))
    with b.when(b.cmp("icmp ne", b.bin("and", b.load("i32", stuck), b.load("i32", spinning)), b.i32(0))):
        with b.loop(n_warps) as n:
            b.store(b.i32(0), b.gep(b.gep(warps, b.bin("mul", b.resize(n, "i64"), stride)), Warp.QUIET))
        fresh = b.load("i32", b.gep("%w", Worker.FRESH))
        b.store(b.i32(0), b.gep("%w", Worker.FRESH))
        _ask(b, launch, fresh)


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


def _stack_sum(b: IRWriter) -> None:
    """i64 rf_stack_sum(warp): a digest of the divergence stack."""
    total = b.alloca("i64", 8)
    sp = b.load("i32", b.gep("%warp", Warp.SP))
    b.store(b.resize(sp, "i64"), total)
    with b.loop(b.bin("mul", sp, b.i32(3))) as k:
        place = b.bin("add", b.bin("mul", b.bin("udiv", k, b.i32(3)), b.i32(16)), b.bin("mul", b.bin("urem", k, b.i32(3)), b.i32(4)))
        word = b.load("i32", b.gep("%warp", b.bin("add", b.resize(place, "i64"), b.i64(Warp.STACK))))
        mixed = b.bin("add", b.bin("mul", b.load("i64", total), b.i64(0x5851F42D4C957F2D)), b.resize(word, "i64"))
        b.store(mixed, total)
    b.raw(f"ret i64 {b.load('i64', total).ir}")


def scheduler_functions(declarations: set[str]) -> list[str]:
    """The IR text of rf_run, of its two steps, and of what the kernels call of the scheduler."""
    return [
        function_text("rf_begin", "i32", "ptr %w, i64 %position", _begin, declarations, "noinline nounwind"),
        function_text("rf_round", "i32", "ptr %w, ptr %kernel", _round, declarations, "noinline nounwind"),
        function_text("rf_run", "i32", "ptr %w, ptr %kernel, i64 %first, i64 %count", _run, declarations, "nounwind"),
        function_text("rf_stack_sum", "i64", "ptr %warp", _stack_sum, declarations, "noinline nounwind"),
    ]
