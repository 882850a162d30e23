"""PTX as people write it by hand: odd layouts, old versions, every kind of declaration, against the tree it must give."""

from __future__ import annotations

import textwrap

import pytest

from rawflash.emu.ptx.parser import parse
from tests.emu.ptx import render

HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n"

# name -> (declarations at module scope and parameters of kernel k, body of k, its statements as tests.emu.ptx.render writes them)
BODIES: dict[str, tuple[str, str, str]] = {
    "no spaces between directives": (
        ".entry k(.param.u64 input)",
        ".reg.u64 a;.reg.pred p,q;ld.param.u64 a,[input];@!p ret;@q exit;ret;",
        "ld.param.u64 a, [$input] / @!p ret / @q exit / ret",
    ),
    "labels before code, after code and with a space": (
        ".entry k()",
        ".reg .pred p; top: @p bra top;\nBB0_1 :\n bra.uni $L__done;\n$L__done: ret;",
        "top: / @p bra $top / BB0_1: / bra.uni $$L__done / $L__done: / ret",
    ),
    "a scope on one line shadows": (
        ".entry k()",
        ".reg .b32 a, b; mov.b32 a, 1; { .reg .b32 a; mov.b32 a, b; { .reg .b32 a<2>; mov.b32 a0, a; } } mov.b32 b, a;",
        "mov.b32 a, 1 / mov.b32 a$2, b / mov.b32 a0, a$2 / mov.b32 b, a",
    ),
    "sibling scopes, each with its register, variable and label": (
        ".entry k()",
        "{ .reg .b32 t; .shared .b32 s; L: mov.b32 t, s; bra L; } { .reg .f32 t; .shared .b32 s; bra L; L: mov.f32 t, 0f3F800000; "
        "st.shared.f32 [s+4], t; }",
        "L: / mov.b32 t, $s / bra $L / bra $L$2 / L$2: / mov.f32 t$2, f32:3f800000 / st.shared.f32 [$s$2+4], t$2",
    ),
    "a label of an outer scope": (
        ".entry k()",
        "{ .reg .pred p; @p bra out; { bra in; in: ret; } } out: ret;",
        "@p bra $out / bra $in / in: / ret / out: / ret",
    ),
    "vector registers": (
        ".entry k()",
        ".reg .v4 .f32 v; .reg .v2 .b32 %w<3>; .reg .b64 a; ld.global.v4.f32 v, [a]; add.f32 v.x, v.y, v.w; mov.b32 %w2.x, %w1.g; "
        "st.v4.f32 [a], v;",
        "ld.global.v4.f32 {v.x, v.y, v.z, v.w}, [a] / add.f32 v.x, v.y, v.w / mov.b32 %w2.x, %w1.y / st.v4.f32 [a], {v.x, v.y, v.z, v.w}",
    ),
    "register parameters": (
        ".func (.reg .f32 r, .reg.u32 n) twice (.reg .f32 x) { add.f32 r, x, x; mov.u32 n, 2; ret; } .entry k()",
        ".reg .f32 a; .reg .u32 b; call (a, b), twice, (a); call.uni (a, b), twice, (0f3F800000);",
        "call (a, b), $twice, (a) / call.uni (a, b), $twice, (f32:3f800000)",
    ),
    "calls without arguments": (
        ".func f() { ret; } .func g { ret.uni; } .entry k()",
        ".reg .pred %p1; call f; call.uni g, (); @!%p1 call f;",
        "call $f / call.uni $g, () / @!%p1 call $f",
    ),
    "indirect call with a prototype": (
        ".func (.param .b8 out[8]) f(.param .u64 in); .entry k()",
        ".reg .u64 fp; .param.u64 a; .param.b8 r[8]; proto : .callprototype (.param.b8 _[8]) _ (.param.u64 _);\n"
        "mov.u64 fp, f; call (r), fp, (a), proto; ld.param.u64 fp, [r+0];",
        "proto: (param.b8 _[8]) <- (param.u64 _) / mov.u64 fp, $f / call ($r), fp, ($a), $proto / ld.param.u64 fp, [$r]",
    ),
    "prototype without results, in a scope": (
        ".entry k()",
        ".reg .u64 fp; { P: .callprototype _ (.param .b32 x, .param .align 8 .b8 y[12]); call fp, (), P; "
        "} { P: .callprototype ()_(); call fp, (), P; }",
        "P: () <- (param.b32 x, param.b8 align8 y[12]) / call fp, (), $P / P$2: () <- () / call fp, (), $P$2",
    ),
    "call targets": (
        ".func a() {ret;} .func b() {ret;} .entry k()",
        ".reg .u64 fp; T: .calltargets a, b; call fp, (), T;",
        "T: targets a, b / call fp, (), $T",
    ),
    "jump tables in two scopes": (
        ".entry k()",
        ".reg .u32 %r1; .reg .pred %p; { ts: .branchtargets\n A,\n B,\n A;\n @%p brx.idx.uni %r1, ts; A: B: ret; "
        "} { ts: .branchtargets A; A: brx.idx %r1, ts; }",
        "ts: targets A, B, A / @%p brx.idx.uni %r1, $ts / A: / B: / ret / ts$2: targets A$2 / A$2: / brx.idx %r1, $ts$2",
    ),
    "elements of arrays": (
        ".global .u32 a[4] = {1,2,3}; .shared .v2 .f32 s[8]; .entry k()",
        ".reg .u32 x; .reg .u64 p; ld.global.u32 x, a[2]; mov.u64 p, a[3]; ld.shared.u32 x, s[1+1]; mov.u64 p, a+8; mov.u64 p, generic(a);",
        "ld.global.u32 x, [$a+8] / mov.u64 p, $a+12 / ld.shared.u32 x, [$s+16] / mov.u64 p, $a+8 / mov.u64 p, $a",
    ),
    "absolute and computed addresses": (
        ".shared .b32 s; .entry k()",
        ".reg .u32 x; .reg .u64 p; ld.shared.u32 x, [16]; ld.u32 x, [0x100]; ld.u32 x, [p-8]; ld.u32 x, [ p + 4 ]; ld.u32 x, [p+-0x10]; "
        "ld.u32 x,[p+(4*2)]; ld.u32 x, [p - 4 + 12]; ld.shared.u32 x, [s+4]; ld.shared.u32 x, [s];",
        "ld.shared.u32 x, [16] / ld.u32 x, [256] / ld.u32 x, [p-8] / ld.u32 x, [p+4] / ld.u32 x, [p-16] / "
        "ld.u32 x, [p+8] / ld.u32 x, [p+8] / ld.shared.u32 x, [$s+4] / ld.shared.u32 x, [$s]",
    ),
    "integers": (
        ".entry k()",
        ".reg .b64 x; mov x, 0xFFFFFFFFFFFFFFFFU; mov x, 0b101; mov x, 017; mov x, -0x10; mov x, -1; mov x, 7U; mov x, 0; mov x, - 3;",
        "mov x, 18446744073709551615 / mov x, 5 / mov x, 15 / mov x, -16 / mov x, -1 / mov x, 7 / mov x, 0 / mov x, -3",
    ),
    "constant expressions": (
        ".entry k()",
        ".reg .b64 x; mov x, -(8); mov x, (1<<4)|3; mov x, !0; mov x, ~0; mov x, WARP_SZ; mov x, WARP_SZ-1; mov x, 3+4*2; "
        "mov x, -7/2; mov x, 7 % 4; "
        "mov x, 1 ? 5 : 6; mov x, (.u64)-1; mov x, (2 == 2) && (3 <= 2); mov x, -8>>1; mov x, 0xFFFFFFFFFFFFFFFF>>60;",
        "mov x, -8 / mov x, 19 / mov x, 1 / mov x, -1 / mov x, 32 / mov x, 31 / mov x, 11 / mov x, -3 / mov x, 3 / "
        "mov x, 5 / mov x, 18446744073709551615 / mov x, 0 / mov x, -4 / mov x, 15",
    ),
    "floats": (
        ".entry k()",
        ".reg .f32 f; mov.f32 f, 1.5; mov.f32 f, -2.0e-3; mov.f32 f, 1e3; mov.f32 f, 0f3f800000; mov.f32 f, -0F3F800000; "
        "mov.f64 f, 0D3FF0000000000000; mov.f64 f, 2.;",
        "mov.f32 f, f64:3ff8000000000000 / mov.f32 f, f64:bf60624dd2f1a9fc / mov.f32 f, f64:408f400000000000 / mov.f32 f, f32:3f800000 / "
        "mov.f32 f, f32:bf800000 / mov.f64 f, f64:3ff0000000000000 / mov.f64 f, f64:4000000000000000",
    ),
    "pairs, negations and sinks": (
        ".entry k()",
        ".reg .pred p, q; .reg .b32 x; setp.lt.and.s32 p|q, x, 4, !p; setp.eq.s32 _|q, x, 0; shfl.sync.idx.b32 x | p, x, 0, 31, -1; "
        "mov.b64 {x, _}, %clock64; mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [x], 16; selp.b32 x,1,0,!p;",
        "setp.lt.and.s32 p|q, x, 4, !p / setp.eq.s32 _|q, x, 0 / shfl.sync.idx.b32 x|p, x, 0, 31, -1 / "
        "mov.b64 {x, _}, %clock64 / mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [x], 16 / selp.b32 x, 1, 0, !p",
    ),
    "tensors and textures": (
        ".global .texref t; .tex .u32 old; .entry k(.param .align 64 .b8 m[128])",
        ".reg .f32 f<4>; .reg .b32 i; .reg .b64 d; tex.2d.v4.f32.f32 {f0,f1,f2,f3}, [t, {f0, f1}]; "
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [d], [m, {i, i}], [d+8];",
        "tex.2d.v4.f32.f32 {f0, f1, f2, f3}, [$t, {f0, f1}] / "
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [d], [$m, {i, i}], [d+8]",
    ),
    "special registers and video selectors": (
        ".entry k()",
        ".reg .b32 a, b; .reg .u16 %tidy; vadd.s32.u32.s32.sat a, b.b0, b.h1; mov.u32 a, %lanemask_lt; mov.u32 a, %envreg7; "
        "mov.u32 a, %cluster_ctaid.x; "
        "mov.u32 a, %tid; cvt.u32.u16 a, %tid.y; mov.u16 %tidy, 1;",
        "vadd.s32.u32.s32.sat a, b.b0, b.h1 / mov.u32 a, %lanemask_lt / mov.u32 a, %envreg7 / mov.u32 a, %cluster_ctaid.x / "
        "mov.u32 a, %tid / cvt.u32.u16 a, %tid.y / mov.u16 %tidy, 1",
    ),
    "local names hide names of the module": (
        ".global .u32 x; .entry k(.param .u64 p)",
        ".reg .u32 r; { .local .u32 x; ld.local.u32 r, [x]; } ld.global.u32 r, [x];",
        "ld.local.u32 r, [$x$2] / ld.global.u32 r, [$x]",
    ),
    "names with $, _ and digits": (
        ".global .b8 $str$1[2]; .global .b8 _Z1x; .entry k()",
        ".reg .b32 _t1, %_x, $y, a$b; mov.b32 _t1, $str$1; mov.b32 %_x, _Z1x; mov.b32 $y, a$b;",
        "mov.b32 _t1, $$str$1 / mov.b32 %_x, $_Z1x / mov.b32 $y, a$b",
    ),
    "operands over several lines": (
        ".entry k()",
        ".reg .f32 d<4>; .reg .b32 a<4>; "
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\n {d0, d1,\n d2, d3},\n {a0,a1,a2,a3} ,\n{a0, a1}, {d0,d1,d2,d3}\n;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a0, a1, a2, a3}, {a0, a1}, {d0, d1, d2, d3}",
    ),
    "scope without declarations, pragma, empty statement": (
        ".entry k()",
        '.pragma "nounroll"; .reg .b16 %rs<3>; .reg .f32 %f1; {  cvt.rn.f16.f32 %rs1, %f1;}\n\n {add.f16 %rs2,%rs1,%rs0;\n};',
        "cvt.rn.f16.f32 %rs1, %f1 / add.f16 %rs2, %rs1, %rs0",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_statements(name: str) -> None:
    before, text, expected = BODIES[name]
    module = parse(f"{HEAD}{before}\n{{ {text} }}\n")
    assert render.body(module.functions["k"]) == [s.strip() for s in textwrap.dedent(expected).split(" / ")]


VARIABLES: dict[str, tuple[str, list[str]]] = {
    "rows of floats are padded and made f32": (
        ".global .f32 f[2][2] = {{1.0}, {2, 0f40400000}};",
        ["global.f32 f[2][2] = f32:3f800000 f32:0 f32:40000000 f32:40400000"],
    ),
    "an open extent is closed": (
        ".const .b8 a[] = {1, 2, 0x03, -1}; .global .u16 b[][2] = {{1,2},{3,4},{5}}; .global .u16 c[][2] = {1,2,3};",
        ["const.b8 a[4] = 1 2 3 -1", "global.u16 b[3][2] = 1 2 3 4 5", "global.u16 c[2][2] = 1 2 3"],
    ),
    "addresses": (
        ".global .f32 f; .global .align 8 .u64 p[4] = {f, generic(f)+4, f - 1, 0}; "
        ".global .u8 q[3] = {0xFF(f), 0xFF00(f+2), 0xFF0000(generic(f))};",
        ["global.f32 f", "global.u64 align8 p[4] = $f $f+4 $f-1 0", "global.u8 q[3] = 0xff&$f 0xff00&$f+2 0xff0000&$f"],
    ),
    "vectors, doubles, expressions, several in one": (
        ".global .v4 .f32 v = {1.0, 2.0}; .global .f64 d = 0f3F800000, e; .global .s32 n = (3+4)*2, m[WARP_SZ*2];",
        [
            "global.f32x4 v = f32:3f800000 f32:40000000",
            "global.f64 d = f64:3ff0000000000000",
            "global.f64 e",
            "global.s32 n = 14",
            "global.s32 m[64]",
        ],
    ),
    "linkage, attributes, old banks": (
        ".extern .shared .align 16 .b8 smem[]; .visible .global .attribute(.managed) .align 4 .u32 m; .weak .const .u32 w = 3; "
        ".common .global .b8 c[64]; .extern .global .u32 e; .global .u32 e = 4; .const[2] .u32 old;",
        [
            "extern shared.b8 align16 smem[0]",
            "visible global.u32 align4 m",
            "weak const.u32 w = 3",
            "common global.b8 c[64]",
            "global.u32 e = 4",
            "const.u32 old",
        ],
    ),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variables(name: str) -> None:
    text, expected = VARIABLES[name]
    assert [render.variable(v) for v in parse(HEAD + text).variables.values()] == expected


def test_one_line_old_version_and_no_address_size() -> None:
    module = parse(".version 1.4 .target sm_10, map_f64_to_f32 .entry k (.param .u32 p) { .reg .u32 %r<3>; ld.param.u32 %r1, [p]; exit; }")
    assert (module.version, module.target, module.address_size) == ((1, 4), ("sm_10", "map_f64_to_f32"), 32)
    assert render.body(module.functions["k"]) == ["ld.param.u32 %r1, [$p]", "exit"]


def test_comments_preprocessor_lines_and_trailing_nul() -> None:
    module = parse(
        '# 1 "x.ptx"\n// one\n/* two\n.version 1.0 */' + HEAD + ".entry /* name */ k( // p\n) { /* in; */ ret; // }\n }\n// end\n\0"
    )
    function = module.functions["k"]
    assert render.body(function) == ["ret"]
    assert function.line == 7 and function.body is not None and function.body[0].line == 8


def test_head_of_a_kernel() -> None:
    module = parse(
        HEAD
        + ".visible .entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr b, .param .u64 .ptr .align 1 c, .param .v4 .f32 d)\n"
        '.maxntid 256, 1, 1\n.minnctapersm 2 .maxnreg 64\n.reqntid 32\n.explicitcluster .pragma "a", "b";\n{ ret; }'
    )
    function = module.functions["k"]
    assert [render.variable(p) for p in function.params] == [
        "param.u64 ptr(global,16) a",
        "param.u64 ptr(None,None) b",
        "param.u64 ptr(None,1) c",
        "param.f32x4 d",
    ]
    assert function.directives == {"maxntid": (256, 1, 1), "minnctapersm": (2,), "maxnreg": (64,), "reqntid": (32,), "explicitcluster": ()}
    assert (function.linkage, function.is_entry, function.noreturn) == ("visible", True, False)


def test_declaration_then_definition_recursion_and_alias() -> None:
    module = parse(
        HEAD + ".extern .func outside(.param .b32 a);\n.func die() .noreturn;\n.func die() .noreturn { trap; }\n"
        ".func (.param .b32 r) f(.param .b32 n) { .param .b32 a, b; call (b), f, (a); ret; } .alias also, f;"
    )
    assert module.functions["outside"].body is None and module.functions["outside"].linkage == "extern"
    assert module.functions["die"].noreturn and render.body(module.functions["die"]) == ["trap"]
    assert render.body(module.functions["also"]) == ["call ($b), $f, ($a)", "ret"]
    assert [render.variable(v) for v in module.functions["f"].variables.values()] == ["param.b32 a", "param.b32 b"]


def test_debug_sections_are_skipped_and_locations_kept() -> None:
    module = parse(
        HEAD + ".entry k() {\nret;\n.loc 1 7 0\nret;\n.loc 2 9 3, function_name $L__info+5, inlined_at 1 7 2\nexit;\n.loc 1 0 0\nret;\n}\n"
        '.file 1 "/a//b/k.cu", 1700000000, 123\n.file 2 "h.cuh"\n'
        ".section .debug_str\n{\n$L__info:\n.b8 95,90\n.b8 0\n}\n.section .debug_info { .b32 $L__info+3\n.b64 a-b }\n@@DWARF .byte 3\n"
    )
    body = module.functions["k"].body
    assert body is not None
    locs = [getattr(s, "loc", None) for s in body]
    assert [(loc.file, loc.line) if loc else None for loc in locs] == [None, ("/a//b/k.cu", 7), ("h.cuh", 9), ("h.cuh", 9)]
    assert module.files == {1: "/a//b/k.cu", 2: "h.cuh"}
