"""Options, errors, resource figures and the PTX cache; and that CuPy would compile the same program."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rawflash import compile as rf_compile
from rawflash import paths
from rawflash.compile import CompiledSource, Resources, compile_source, cupy_appends, nvrtc_options, parse_resources
from rawflash.errors import CompileError, UsageError
from rawflash.problem import Problem
from rawflash.source import Source, read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

KERNEL = """#include <cuda_fp16.h>
#include "rf_t.cuh"
extern "C" __global__ void half_it(const __half* x, float* o) {
    __shared__ float s[BLOCK];
    s[threadIdx.x] = __half2float(x[threadIdx.x]);
    __syncthreads();
    o[threadIdx.x] = expf(s[threadIdx.x ^ 1]) * FACTOR / (1.0f + s[threadIdx.x]);
}
extern "C" __global__ void other(float* o) { o[0] = FACTOR; }
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A two-kernel source in its own folder, with its own cache folder."""
    monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "rf_t.cuh").write_text("#define FACTOR 0.5f\n")
    (tmp_path / "t.cu").write_text(KERNEL)
    return read_source("t.cu", tmp_path)


def test_the_option_list(source: Source) -> None:
    options = nvrtc_options(source, {"Bc": 32, "Br": 16})
    assert options[0] == f"-I{source.include_dir}"
    assert options[2:] == ("--std=c++17", "--device-int128", "-lineinfo", "-DBc=32", "-DBr=16", f"-DRF_SRC_HASH=0x{source.hash}")
    assert cupy_appends("80") == ("-ftz=true", "-arch=sm_80", "--device-as-default-execution-space")


def test_ptx_and_resources_come_from_one_compile(source: Source) -> None:
    made = compile_source(source, {"BLOCK": 64}, "80")
    assert ".target sm_80" in made.ptx and "ex2.approx.ftz.f32" in made.ptx and ".loc" in made.ptx
    assert set(made.resources) == {"half_it", "other"}
    assert made.resources["half_it"].smem_bytes == 256
    assert 0 < made.resources["half_it"].registers < 64
    assert made.resources["half_it"].spill_bytes == 0


# Case C10.
def test_second_compile_comes_from_the_cache(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_source(source, {"BLOCK": 64}, "80")
    monkeypatch.setattr(rf_compile.nvrtc, "compile_ptx", lambda *_: pytest.fail("compiled again"))
    second = compile_source(source, {"BLOCK": 64}, "80")
    assert (first.cached, second.cached) == (False, True)
    assert (first.ptx, first.resources) == (second.ptx, second.resources)


# Case C12.
def test_the_cache_follows_macros_headers_and_architecture(source: Source, tmp_path: Path) -> None:
    first = compile_source(source, {"BLOCK": 64}, "80")
    assert compile_source(source, {"BLOCK": 32}, "80").resources["half_it"].smem_bytes == 128
    assert ".target sm_90" in compile_source(source, {"BLOCK": 64}, "90").ptx
    (tmp_path / "include" / "rf_t.cuh").write_text("#define FACTOR 0.25f\n")
    edited = compile_source(read_source("t.cu", tmp_path), {"BLOCK": 64}, "80")
    assert not edited.cached and edited.ptx != first.ptx


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"ptx": "x", "log": "", "digest": "0"}', b"[]"])
def test_a_damaged_entry_is_rebuilt(source: Source, damage: bytes) -> None:
    first = compile_source(source, {"BLOCK": 64}, "80")
    (entry,) = rf_compile.paths.cache_dir("ptx").glob("*.json")
    entry.write_bytes(damage)
    again = compile_source(source, {"BLOCK": 64}, "80")
    assert not again.cached and again.ptx == first.ptx
    assert compile_source(source, {"BLOCK": 64}, "80").cached


def test_no_half_written_entry_is_left(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(rf_compile.paths.os, "replace", fail)
    assert not compile_source(source, {"BLOCK": 64}, "80").cached
    assert list(rf_compile.paths.cache_dir("ptx").iterdir()) == []


def test_concurrent_processes_share_the_cache(source: Source, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rawflash.source import read_source; from rawflash.compile import compile_source\n"
        "print(len(compile_source(read_source('t.cu', Path(sys.argv[1])), {'BLOCK': 64}, '80').ptx))"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(2)]
    assert len({job.communicate()[0] for job in jobs}) == 1
    assert [job.returncode for job in jobs] == [0, 0]
    assert compile_source(source, {"BLOCK": 64}, "80").cached


def test_an_error_names_file_and_line(source: Source, tmp_path: Path) -> None:
    (tmp_path / "t.cu").write_text(KERNEL.replace("s[threadIdx.x ^ 1]", "nope"))
    with pytest.raises(CompileError) as caught:
        compile_source(read_source("t.cu", tmp_path), {"BLOCK": 64}, "80")
    assert (Path(caught.value.file), caught.value.line) == (tmp_path / "t.cu", 7)
    assert 'identifier "nope" is undefined' in caught.value.message and "nope" in caught.value.log


def test_an_error_in_a_header_names_the_header(source: Source, tmp_path: Path) -> None:
    (tmp_path / "include" / "rf_t.cuh").write_text('\n#error "Bc must be a multiple of 8"\n')
    with pytest.raises(CompileError, match=r"rf_t.cuh:2: .*Bc must be a multiple of 8"):
        compile_source(read_source("t.cu", tmp_path), {"BLOCK": 64}, "80")


# Case C08.
@pytest.mark.parametrize("arch", ["60", "999", "80a", ""])
def test_an_unknown_architecture_names_the_known_ones(source: Source, arch: str) -> None:
    with pytest.raises(UsageError, match=rf"gpu.arch={arch} .*NVRTC \d+\.\d+ .*80"):
        compile_source(source, {"BLOCK": 64}, arch)


def test_an_impossible_macro_is_a_compile_error(source: Source) -> None:
    with pytest.raises(CompileError):
        compile_source(source, {"BLOCK": "-1"}, "80")


def test_ptxas_lines_are_read() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
ptxas         .     32 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 32 bytes cumulative stack size, 16384 bytes smem, 400 bytes cmem[0]
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]"""
    assert parse_resources(log) == {"a": Resources(255, 16384, 32, 24, 28), "b": Resources(8)}
    assert parse_resources(log)["a"].spill_bytes == 52


def cupys_ptx(made: CompiledSource) -> str:
    """PTX of the same source by CuPy's own NVRTC binding, with the options that CuPy assembles from ours."""
    pytest.importorskip("cupy", reason="CuPy is not installed, so there is no other compile to compare with")
    from cupy._core.core import assemble_cupy_compiler_options
    from cupy.cuda import nvrtc as cupy_nvrtc

    program = cupy_nvrtc.createProgram(made.source.text, str(made.source.path), (), ())
    cupy_nvrtc.compileProgram(program, (*assemble_cupy_compiler_options(made.options), *cupy_appends(made.arch)))
    return cupy_nvrtc.getPTX(program).decode().rstrip("\0\n")


def test_cupy_compiles_the_same_program_with_a_cuda_header(source: Source) -> None:
    made = compile_source(source, {"BLOCK": 64}, "80")
    assert cupys_ptx(made) == made.ptx.rstrip("\n")


@pytest.mark.parametrize("name", list(LADDER))
def test_cupy_compiles_the_same_rung(name: str) -> None:
    plan = LADDER[name].plan(Problem(N=64, d=32), Tiling(32, 32))
    made = compile_source(read_source(LADDER[name].file), plan.defines, "80")
    assert cupys_ptx(made) == made.ptx.rstrip("\n") and "fma.rn.ftz.f32" in made.ptx


@pytest.mark.parametrize(
    ("name", "problem", "tile"),
    [
        ("naive", Problem(N=64, d=32, dtype="fp32"), 16),
        ("fa2", Problem(N=64, d=32, dtype="fp32"), 16),
        ("fa1", Problem(d=128, dtype="bf16"), 32),
    ],
)
def test_a_source_has_one_ptx(name: str, problem: Problem, tile: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it lies, and however often it is compiled: with loads of float4 these came out in two to four ways, about half and half."""
    plan = LADDER[name].plan(problem, Tiling(tile, tile))
    found = set()
    for number in range(4):
        folder = tmp_path / (str(number) * (1 + 9 * number))
        shutil.copytree(paths.kernels_dir(), folder)
        monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(tmp_path / f"cache{number}"))
        made = compile_source(read_source(LADDER[name].file, folder), plan.defines, "80")
        assert not made.cached and "used_bytes_mask" not in made.ptx  # how NVRTC marks a load that it joined by half
        found.add(made.ptx_hash)
    assert len(found) == 1


# Case C17.
def test_cupy_still_appends_what_we_append() -> None:
    compiler = pytest.importorskip("cupy.cuda.compiler", reason="CuPy is not installed, so there is nothing to compare with")
    text = Path(compiler.__file__).read_text()
    assert "options += ('-ftz=true',)" in text
    assert "options += ('--device-as-default-execution-space',)" in text
    assert "return f'-arch=sm_{arch}', 'cubin'" in text
