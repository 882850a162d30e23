"""Branches, predication, calls, tables of labels, exits: what the flow of control does to each lane."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import VERSION, entry, launch, module

LANES = 96


def run(body: str, prefix: str = "", registers: str = "", x: np.ndarray | None = None) -> np.ndarray:
    """%r1 = tid, %r2 = x[tid]; the body leaves its result in %r9, which is stored at DONE."""
    start = """
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, 4, %p_x;
  mad.wide.u32 %d2, %r1, 4, %p_out;
  ld.global.b32 %r2, [%d1];
  mov.u32 %r9, 0;"""
    end = "\nDONE:\n  st.global.b32 [%d2], %r9;"
    values = np.arange(LANES, dtype=np.uint32) if x is None else x.astype(np.uint32)
    out = emu.asarray(np.full(LANES, 12345, np.uint32))
    text = VERSION + prefix + entry("flow", ["x", "out"], start + body + end, registers)
    launch(module(text), "flow", 1, LANES, emu.asarray(values), out)
    return np.array(out)


T = np.arange(LANES)


def test_predicated_instructions_of_every_kind() -> None:
    body = """
  and.b32 %r3, %r2, 3;
  setp.eq.u32 %p1, %r3, 1;
  setp.gt.u32 %p2, %r3, 1;
  mov.u32 %r4, 100;
  @%p1 mov.u32 %r4, 200;
  @!%p2 add.u32 %r4, %r4, 7;
  @%p2 ld.global.b32 %r4, [%d1];
  @%p1 setp.eq.u32 %p2, %r1, %r1;
  @%p2 mul.lo.u32 %r4, %r4, 3;
  mov.u32 %r9, %r4;"""
    r = T & 3
    value = np.where(r > 1, T, np.where(r == 1, 200, 100) + 7)
    assert np.array_equal(run(body), np.where(r >= 1, value * 3, value))


def test_predicated_exit_and_return() -> None:
    body = """
  and.b32 %r3, %r2, 7;
  setp.eq.u32 %p1, %r3, 2;
  @%p1 exit;
  setp.eq.u32 %p2, %r3, 5;
  @%p2 ret;
  setp.ge.u32 %p3, %r1, 64;
  @%p3 ret;
  add.u32 %r9, %r3, 1;"""
    gone = ((T & 7) == 2) | ((T & 7) == 5) | (T >= 64)
    assert np.array_equal(run(body), np.where(gone, 12345, (T & 7) + 1))


def test_loop_with_a_trip_count_per_lane() -> None:
    body = """
  and.b32 %r3, %r2, 15;
HEAD:
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra DONE;
  mad.lo.u32 %r9, %r9, 3, %r3;
  sub.u32 %r3, %r3, 1;
  bra.uni HEAD;"""
    want = []
    for t in T.tolist():
        value, n = 0, t & 15
        while n:
            value, n = value * 3 + n, n - 1
        want.append(value)
    assert run(body).tolist() == want


def test_jump_into_the_middle_of_a_loop() -> None:
    """An irregular graph: half of the lanes enter the loop at its middle."""
    body = """
  and.b32 %r3, %r2, 1;
  mov.u32 %r4, 4;
  setp.eq.u32 %p1, %r3, 1;
  @%p1 bra MIDDLE;
TOP:
  add.u32 %r9, %r9, 100;
MIDDLE:
  add.u32 %r9, %r9, 1;
  sub.u32 %r4, %r4, 1;
  setp.ne.u32 %p2, %r4, 0;
  @%p2 bra TOP;"""
    assert np.array_equal(run(body), np.where(T & 1, 304, 404))


def test_indexed_branch() -> None:
    body = """
  .reg .u32 %i;
TABLE: .branchtargets A, B, A, C;
  and.b32 %i, %r2, 3;
  brx.idx %i, TABLE;
A:
  mov.u32 %r9, 10;
  bra DONE;
B:
  mov.u32 %r9, 20;
C:
  add.u32 %r9, %r9, 5;"""
    assert np.array_equal(run(body), np.select([(T & 3) == 1, (T & 3) == 3], [25, 5], 10))


def test_uniform_indexed_branch() -> None:
    body = """
  .reg .u32 %i;
TABLE: .branchtargets A, B;
  ld.global.b32 %i, [%p_x];
  brx.idx.uni %i, TABLE;
A:
  mov.u32 %r9, 10;
  bra DONE;
B:
  mov.u32 %r9, 20;"""
    assert (run(body, x=T + 1) == 20).all() and (run(body) == 10).all()


FUNCTIONS = """
.visible .func (.param .b32 result) weigh(.param .b32 a, .param .align 8 .b8 pair[16])
{
  .reg .b32 %a, %b, %c;
  .reg .b64 %e;
  .reg .pred %p;
  ld.param.b32 %a, [a];
  ld.param.b32 %b, [pair];
  ld.param.b64 %e, [pair+8];
  cvt.u32.u64 %c, %e;
  setp.gt.u32 %p, %a, 50;
  @%p bra LARGE;
  mad.lo.u32 %a, %a, %b, %c;
  st.param.b32 [result], %a;
  ret;
LARGE:
  sub.u32 %a, %a, %b;
  st.param.b32 [result], %a;
  ret;
}
.func (.reg .b32 %out) twice(.reg .b32 %in)
{
  add.u32 %out, %in, %in;
  ret.uni;
}
"""


def test_calls_with_parameters_in_memory_and_in_registers() -> None:
    body = """
  {
    .param .b32 first;
    .param .align 8 .b8 second[16];
    .param .b32 returned;
    st.param.b32 [first], %r2;
    mov.u32 %r3, 3;
    st.param.b32 [second], %r3;
    cvt.u64.u32 %d3, %r1;
    st.param.b64 [second+8], %d3;
    call (returned), weigh, (first, second);
    ld.param.b32 %r4, [returned];
  }
  call.uni (%r9), twice, (%r4);"""
    assert np.array_equal(run(body, FUNCTIONS), 2 * np.where(T > 50, T - 3, T * 4))


def test_indirect_call_with_a_prototype() -> None:
    body = """
  and.b32 %r3, %r2, 1;
  setp.eq.u32 %p1, %r3, 1;
  mov.u64 %d3, plus;
  @%p1 mov.u64 %d3, minus;
  {
    .param .b32 value;
    .param .b32 returned;
    st.param.b32 [value], %r2;
    PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (returned), %d3, (value), PROTO;
    ld.param.b32 %r9, [returned];
  }"""
    functions = "".join(
        f"""
.func (.param .b32 r) {name}(.param .b32 a)
{{
  .reg .b32 %a;
  ld.param.b32 %a, [a];
  {op}.s32 %a, %a, 1000;
  st.param.b32 [r], %a;
  ret;
}}"""
        for name, op in (("plus", "add"), ("minus", "sub"))
    )
    assert np.array_equal(run(body, functions).view(np.int32), np.where(T & 1, T - 1000, T + 1000))


def test_nested_scopes_shadow_registers() -> None:
    body = """
  mov.u32 %r9, %r2;
  {
    .reg .b32 %s;
    mov.u32 %s, 5;
    {
      .reg .b64 %s;
      cvt.u64.u32 %s, %r2;
      shl.b64 %s, %s, 33;
      shr.u64 %s, %s, 32;
      cvt.u32.u64 %r4, %s;
    }
    add.u32 %r9, %s, %r4;
  }"""
    assert np.array_equal(run(body), 2 * T + 5)


def test_waiting_and_marking_instructions() -> None:
    body = """
  nanosleep.u32 20;
  pmevent 3;
  pmevent.mask 3;
  brkpt;
  griddepcontrol.launch_dependents;
  griddepcontrol.wait;
  add.u32 %r9, %r2, 1;"""
    assert np.array_equal(run(body), T + 1)


def test_trap_stops_the_launch() -> None:
    with pytest.raises(emu.Trap) as caught:
        run("\n  setp.eq.u32 %p1, %r1, 40;\n  @%p1 trap;\n  mov.u32 %r9, 1;")
    assert caught.value.tid == (40, 0, 0)


@pytest.mark.parametrize("family", ["bar", "bar.cta", "barrier", "barrier.cta"])
@pytest.mark.parametrize("op", ["popc", "and", "or"])
def test_barrier_reductions(op: str, family: str) -> None:
    """bar.red over the CTA: everyone gets the count, the conjunction or the disjunction."""
    operand = "%r9, 0, %p1" if op == "popc" else "%p2, 0, %p1"
    kind = "u32" if op == "popc" else "pred"
    body = f"""
  setp.lt.u32 %p1, %r2, 70;
  {family}.red.{op}{".aligned" * (family == "barrier")}.{kind} {operand};"""
    if op != "popc":
        body += "\n  selp.u32 %r9, 1, 0, %p2;"
    assert (run(body) == {"popc": 70, "and": 0, "or": 1}[op]).all()
    assert (run(body, x=np.zeros(LANES)) == {"popc": 96, "and": 1, "or": 1}[op]).all()


@pytest.mark.parametrize("spelling", [
    "bar.sync 0;", "bar.sync 5, 96;", "barrier.sync 0;", "barrier.sync.aligned 0;", "bar.cta.sync 0;", "barrier.cta.sync 1;",
    "barrier.cta.sync.aligned 3, 96;",
])  # fmt: skip
def test_barrier_spellings(spelling: str) -> None:
    body = f"""
  mov.u32 %r3, tile;
  mad.lo.u32 %r4, %r1, 4, %r3;
  st.shared.b32 [%r4], %r2;
  {spelling}
  sub.u32 %r5, 95, %r1;
  mad.lo.u32 %r6, %r5, 4, %r3;
  ld.shared.b32 %r9, [%r6];"""
    assert np.array_equal(run(body, registers="  .shared .align 4 .b8 tile[384];"), T[::-1])


@pytest.mark.parametrize(
    "arrive", ["bar.arrive", "barrier.arrive", "barrier.cta.arrive", "barrier.arrive.aligned", "barrier.cta.arrive.aligned"]
)
def test_arriving_without_waiting(arrive: str) -> None:
    """Warps 0 and 1 write and arrive at a barrier of 96 threads; warp 2 waits there and reads what they wrote."""
    body = f"""
  mov.u32 %r3, tile;
  mad.lo.u32 %r4, %r1, 4, %r3;
  setp.ge.u32 %p1, %r1, 64;
  @%p1 bra READ;
  mad.lo.u32 %r9, %r2, 5, 1;
  st.shared.b32 [%r4], %r9;
  {arrive} 1, 96;
  bra DONE;
READ:
  bar.sync 1, 96;
  ld.shared.b32 %r5, [%r4+-256];
  ld.shared.b32 %r6, [%r4+-128];
  add.u32 %r9, %r5, %r6;"""
    written = 5 * T[:64] + 1
    want = np.concatenate([written, written[:32] + written[32:]])
    assert np.array_equal(run(body, registers="  .shared .align 4 .b8 tile[384];"), want)
