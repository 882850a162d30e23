"""The exact tree of small PTX, the errors, and real PTX as NVRTC emits it."""

from __future__ import annotations

import cProfile

import pytest

from rawflash.emu import nvrtc
from rawflash.emu.errors import PtxSyntaxError
from rawflash.emu.ptx.parser import parse
from rawflash.emu.ptx.tree import (
    Address,
    Function,
    Imm,
    Instruction,
    Label,
    Loc,
    Module,
    PredicatePair,
    Reg,
    Symbol,
    Tuple,
    Variable,
    Vector,
)
from rawflash.emu.ptx.types import SIZES, TYPES, parse_type, types_of
from tests.emu.ptx import render

HEAD = ".version 9.5\n.target sm_80\n.address_size 64\n"


# ----------------------------------------------------------------------------------------------------------- exact trees
def test_module_tree() -> None:
    module = parse(
        HEAD + ".visible .entry add(\n\t.param .u64 .ptr .global .align 16 add_param_0\n)\n.maxntid 128, 1, 1\n{\n"
        "\t.reg .pred \t%p<2>;\n\t.reg .b32 \t%r<3>;\n\t.shared .align 16 .b8 tile[64];\n"
        "$L__BB0_1:\n\t@!%p1 bra \t$L__BB0_1;\n\tst.shared.v2.b32 \t[tile+8], {%r1, %r2};\n\tret;\n}\n"
    )
    assert (module.version, module.target, module.address_size, module.variables) == ((9, 5), ("sm_80",), 64, {})
    param = Variable("add_param_0", "param", "u64", ptr_space="global", ptr_align=16, is_ptr=True, line=5)
    tile = Variable("tile", "shared", "b8", align=16, dims=(64,), line=11)
    assert module.functions == {
        "add": Function(
            name="add",
            is_entry=True,
            params=(param,),
            registers={"%p0": "pred", "%p1": "pred", "%r0": "b32", "%r1": "b32", "%r2": "b32"},
            variables={"tile": tile},
            body=[
                Label("$L__BB0_1", line=12),
                Instruction("bra", (), (Symbol("$L__BB0_1"),), guard="%p1", guard_negated=True, line=13),
                Instruction("st", ("shared", "v2", "b32"), (Address(Symbol("tile"), 8), Vector((Reg("%r1"), Reg("%r2")))), line=14),
                Instruction("ret", (), (), line=15),
            ],
            directives={"maxntid": (128, 1, 1)},
            linkage="visible",
            line=4,
        )
    }


def test_call_sequence_tree() -> None:
    module = parse(
        HEAD + ".extern .func (.param .b32 func_retval0) vprintf\n(\n.param .b64 a,\n.param .b64 b\n)\n;\n.entry k()\n{\n.reg .b32 %r<2>;\n"
        "{ // callseq 0, 0\n.reg .b32 temp_param_reg;\n.param .b64 param0;\nst.param.b64 [param0+0], 7;\n.param .b32 retval0;\n"
        "call.uni (retval0), \nvprintf, \n(\nparam0, \nparam0\n);\nld.param.b32 %r1, [retval0+0];\n} // callseq 0\n}\n"
    )
    body = module.functions["k"].body
    assert body is not None and body[1] == Instruction(
        "call", ("uni",), (Tuple((Symbol("retval0"),)), Symbol("vprintf"), Tuple((Symbol("param0"), Symbol("param0")))), line=18
    )
    assert module.functions["k"].registers == {"%r0": "b32", "%r1": "b32", "temp_param_reg": "b32"}
    assert module.functions["vprintf"].returns == (Variable("func_retval0", "param", "b32", line=4),)


def test_immediates_and_pairs_keep_their_form() -> None:
    module = parse(HEAD + ".entry k() { .reg .pred p, q; .reg .f32 f; setp.gt.f32 p|q, f, 0fFF800000; mov.f32 f, 1.5; mov.f32 f, -1; }")
    operands = [s.operands for s in module.functions["k"].body or [] if isinstance(s, Instruction)]
    assert operands[0] == (PredicatePair(Reg("p"), Reg("q")), Reg("f"), Imm(0xFF800000, "f32"))
    assert operands[1][1] == Imm(0x3FF8000000000000, "f64")
    assert operands[2][1] == Imm(-1, "int")


# ---------------------------------------------------------------------------------------------------------------- errors
ERRORS = {
    "empty": ("", 1, "no .version"),
    "no ptx": ("#include <x>\n__global__ void f() {}", 2, "expected a directive"),
    "no version": (".target sm_80", 1, "before the .version"),
    "bad version": (".version x", 1, ".version needs a number"),
    "unknown directive": (HEAD + ".frobnicate 3;", 4, "'.frobnicate' is unknown"),
    "undeclared register": (HEAD + ".entry k()\n{\nmov.b32 %r1, 0;\n}", 6, "'%r1' is not declared"),
    "undeclared name": (HEAD + ".entry k()\n{\n.reg .b32 x;\nadd.s32 x, x, y;\n}", 7, "'y' is not declared"),
    "undeclared predicate": (HEAD + ".entry k()\n{\n@p ret;\n}", 6, "'p' is not declared"),
    "unknown label": (HEAD + ".entry k()\n{\nbra L1;\n}", 6, "'L1' is not declared"),
    "label of an inner scope": (HEAD + ".entry k()\n{\n{ L1: }\nbra L1;\n}", 7, "'L1' is not declared"),
    "register of a closed scope": (HEAD + ".entry k()\n{\n{ .reg .b32 %t; }\nmov.b32 %t, 0;\n}", 7, "'%t' is not declared"),
    "missing semicolon": (HEAD + ".entry k()\n{\n.reg .b32 x;\nmov.b32 x, 1\nmov.b32 x, 2;\n}", 7, "';' missing"),
    "missing semicolon at the end": (HEAD + ".entry k()\n{\nret\n}\n.entry g() { ret; }", 6, "cannot be read"),
    "unclosed body": (HEAD + ".entry k()\n{\nret;\n", 5, "never closed"),
    "unclosed comment": (HEAD + "/* a", 4, "never closed"),
    "superfluous brace": (HEAD + ".entry k() { ret; } }", 4, "closes nothing"),
    "register twice": (HEAD + ".entry k() {\n.reg .b32 x;\n.reg .f32 x; }", 6, "declared twice"),
    "label twice": (HEAD + ".entry k() {\nL: ret;\nL: ret; }", 6, "declared twice"),
    "function twice": (HEAD + ".entry k() { ret; }\n.entry k() { ret; }", 5, "defined twice"),
    "variable twice": (HEAD + ".global .u32 a;\n.global .u32 a;", 5, "declared twice"),
    "too many initialisers": (HEAD + ".global .u32 a[2] = {1,2,3};", 4, "3 values for 2 elements"),
    "no type": (HEAD + ".global a;", 4, "needs a type"),
    "two types": (HEAD + ".global .u32 .f32 a;", 4, "two types"),
    "register plus constant": (HEAD + ".entry k() {\n.reg .b32 x;\nadd.u32 x, x+1, 2; }", 6, "adds to a register"),
    "empty operand": (HEAD + ".entry k() {\n.reg .b32 x;\nadd.u32 x,,2; }", 6, "empty operand"),
    "braces without meaning": (HEAD + ".entry k() {\n.reg .b32 x;\nmov.u32 x, {} {}; }", 6, "cannot be read"),
    "division by zero": (HEAD + ".global .u32 a = 1/0;", 4, "division by zero"),
    "bad octal": (HEAD + ".global .u32 a = 089;", 4, "expected an integer constant"),
    "directive in a body": (HEAD + ".entry k() {\n.version 8.0\nret; }", 5, "does not belong"),
    "alias of nothing": (HEAD + ".alias a, b;", 4, "not declared"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_line(name: str) -> None:
    text, line, sentence = ERRORS[name]
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    assert caught.value.line == line
    assert sentence in str(caught.value)
    assert caught.value.text == (text.split("\n")[line - 1] if line <= text.count("\n") + 1 else "")


# -------------------------------------------------------------------------------------------------------- what NVRTC emits
CUDA = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
__constant__ float tab[4] = {1, 2.5f, 3, 4};
__constant__ const char* names[2] = {"ab", "cd"};
__device__ int counter = 7;
struct P { int a; float b[3]; double c; };
__device__ __noinline__ float f1(float x) { return x * 2 + __sinf(x); }
__device__ __noinline__ float f2(float x) { return x - 7; }
__device__ float (*table[2])(float) = {f1, f2};
template <typename T, int N> __global__ void reverse(T* o) {
    __shared__ T s[N]; s[threadIdx.x] = o[threadIdx.x]; __syncthreads(); o[threadIdx.x] = s[N - 1 - threadIdx.x];
}
extern "C" {
__global__ void k_printf(int n) { if (threadIdx.x < n) printf("hello %d %f\n", n, 1.5f); }
__global__ void k_assert(int* o) { if (o[0] != 3) __assertfail("o", "f.cu", 1, "f", 1); }
__global__ void k_local(float* o, int i) { float a[16]; for (int j = 0; j < 16; j++) a[j] = o[j]; a[i] = 3; o[0] = a[(i * 7) & 15]; }
__global__ void k_const(float* o, int i) { o[i] = tab[i] + names[i][0]; atomicAdd(&counter, 1); }
__global__ void k_half(__half2* o, __nv_bfloat16* b) { o[0] = __hfma2(o[1], o[2], o[3]); b[0] = b[1] * b[2] + __float2bfloat16(3.f); }
__global__ void k_asm(int* o) {
    for (int i = 0; i < 2; i++) {
        int r;
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %1, 0;\nLAB_WAIT:\n@p bra LAB_DONE;\nbra LAB_WAIT;\n"
                     "LAB_DONE:\nselp.s32 %0, 1, 0, p;\n}" : "=r"(r) : "r"(o[i]));
        o[i] = r;
        asm volatile("{\n.reg .f32 p;\nLAB_DONE:\nmov.f32 p, 0f3F800000;\n}");
    }
}
__global__ void k_switch(int* o, int x) {
    switch (x) { case 0: o[0] = o[3] * 7; break; case 1: o[1] = o[2] / 3; break; case 2: o[5] = atomicAdd(o, 3); break;
                 case 3: o[7] = __popc(x + o[1]); break; case 4: __syncthreads(); o[3] = 1; break; default: o[8] = 0; }
}
__global__ void k_pointer(float* o, int i) { o[0] = table[i](o[1]); o[2] = f1(o[3]); }
__global__ void k_dynamic(float4* o) { extern __shared__ float4 sm[]; sm[threadIdx.x] = o[threadIdx.x]; __syncthreads(); o[0] = sm[3]; }
__global__ __launch_bounds__(128, 2) void k_struct(P p, float* o, const __grid_constant__ P q) { o[0] = p.a + p.b[threadIdx.x % 3] + q.c; }
__global__ void k_warp(int* o) {
    unsigned m = __match_any_sync(~0u, o[1]); int p; m += __match_all_sync(~0u, o[2], &p);
    o[3] = m + p + __shfl_xor_sync(~0u, o[3], 1) + __ballot_sync(~0u, o[4]);
}
}
"""
VARIANTS = {
    "plain": ("-arch=compute_80",),
    "lineinfo": ("-arch=compute_80", "-lineinfo"),
    "debug": ("-arch=compute_90a", "-G"),
    "fast math": ("-arch=compute_75", "-ftz=true", "--use_fast_math"),
}


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    include = nvrtc.headers_dir()
    options = (f"-I{include}", f"-I{include}/cccl")
    compiled = {n: nvrtc.compile_ptx(CUDA, "k.cu", (*o, *options), ("reverse<float, 64>",)) for n, o in VARIANTS.items()}
    return {n: parse(c.ptx) for n, c in compiled.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_nvrtc_output_parses_whole(modules: dict[str, Module], variant: str) -> None:
    module = modules[variant]
    entries = [f for f in module.functions.values() if f.is_entry]
    assert len(entries) == CUDA.count("__global__ ")
    statements = sum(text.strip().endswith(";") and not text.strip().startswith(".") for text in module.text.split("\n"))
    parsed = sum(isinstance(s, Instruction) for f in entries for s in f.body or [])
    assert 0 < parsed <= statements
    for function in entries:
        for s in function.body or []:
            if isinstance(s, Instruction):
                assert s.opcode in module.text.split("\n")[s.line - 1]


def test_variables_of_nvrtc(modules: dict[str, Module]) -> None:
    variables = modules["plain"].variables
    assert variables["tab"].init == tuple(Imm(b) for b in (0, 0, 128, 63, 0, 0, 32, 64, 0, 0, 64, 64, 0, 0, 128, 64))
    assert variables["names"].init == (Symbol("$str"), Symbol("$str$1"))
    assert variables["table"].init == (Symbol("_Z2f1f"), Symbol("_Z2f2f"))
    assert render.variable(variables["sm"]) == "extern shared.b8 align16 sm[0]"
    assert variables["counter"].init == (Imm(7),)


def test_functions_of_nvrtc(modules: dict[str, Module]) -> None:
    functions = modules["plain"].functions
    assert functions["k_struct"].directives == {"maxntid": (128, 1, 1), "minnctapersm": (2,)}
    assert [render.variable(p) for p in functions["k_struct"].params] == [
        "param.b8 align8 k_struct_param_0[24]",
        "param.u64 k_struct_param_1",
        "param.b8 align8 k_struct_param_2[24]",
    ]
    assert functions["vprintf"].body is None and functions["_Z2f1f"].body
    (call,) = (s for s in functions["k_printf"].body or [] if isinstance(s, Instruction) and s.opcode == "call")
    assert render.statement(call) == "call.uni ($retval0), $vprintf, ($param0, $param1)"
    calls = [render.statement(s) for s in functions["k_pointer"].body or [] if isinstance(s, Instruction) and s.opcode == "call"]
    assert ", ($param0), $prototype_" in calls[0] and calls[1] == "call.uni ($retval0$2), $_Z2f1f, ($param0$2)"
    assert {"ld.param.v2.f32", "st.local.v2.f32"} <= {s.spelling for s in functions["k_struct"].body or [] if isinstance(s, Instruction)}


def test_scopes_of_inline_assembly(modules: dict[str, Module]) -> None:
    function = modules["plain"].functions["k_asm"]
    assert [s.name for s in function.body or [] if isinstance(s, Label) and s.name.startswith("LAB")][:3] == [
        "LAB_WAIT",
        "LAB_DONE",
        "LAB_DONE$2",
    ]
    assert (function.registers["p"], function.registers["p$2"]) == ("pred", "f32")


def test_locations_of_lineinfo(modules: dict[str, Module]) -> None:
    lines = CUDA.split("\n")
    body = modules["lineinfo"].functions["k_dynamic"].body or []
    locs = {s.loc for s in body if isinstance(s, Instruction)}
    (file,) = {loc.file for loc in locs if loc}
    assert file.endswith("k.cu")
    assert locs == {Loc(file, 1 + next(i for i, text in enumerate(lines) if "k_dynamic" in text))}
    assert all(s.loc is None for s in modules["plain"].functions["k_dynamic"].body or [] if isinstance(s, Instruction))


def test_the_work_grows_with_the_lines() -> None:
    """Twice the lines, twice the calls: nothing in the parser looks back over what it has read."""

    def calls(count: int) -> int:
        lines = "".join(
            f"\tfma.rn.f32 \t%f{i}, %f{i - 1}, %f{i + 1}, %f{i};\n"
            f"\tld.global.v4.f32 \t{{%f{i}, %f{i + 1}, %f{i - 1}, %f0}}, [%rd1+{4 * i}];\n"
            "\t{ mul.f16x2 %r1,%r2,%r3;\n}\n"
            for i in range(1, count)
        )
        text = HEAD + ".entry k()\n{\n\t.reg .f32 \t%f<800>;\n\t.reg .b32 \t%r<9>;\n\t.reg .b64 \t%rd<9>;\n" + lines + "}\n"
        profile = cProfile.Profile()
        profile.runcall(parse, text)
        return sum(entry.callcount for entry in profile.getstats())

    parse(HEAD)
    assert calls(400) < 2.1 * calls(200)


# ----------------------------------------------------------------------------------------------------------------- types
def test_types() -> None:
    assert (TYPES["f16x2"].lanes, TYPES["f16x2"].element, TYPES["f16x2"].bits, TYPES["f16x2"].kind) == (2, "f16", 32, "f")
    assert [SIZES[t] for t in ("u8", "b16", "bf16", "f32", "tf32", "s64", "b128", "e4m3x2")] == [1, 2, 2, 4, 4, 8, 16, 2]
    assert TYPES["s32"].is_signed and not TYPES["u32"].is_signed and TYPES["bf16"].is_float and "pred" not in SIZES
    assert parse_type(("rn", "ftz", "f32")) == TYPES["f32"] and parse_type(("uni",)) is None
    assert [t.name for t in types_of(("rn", "f16x2", "f32"))] == ["f16x2", "f32"]
