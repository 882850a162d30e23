"""The NVRTC binding: PTX, cubins, names, and errors that say what to change."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rawflash.emu import nvrtc
from rawflash.emu.errors import NvrtcError, NvrtcMissing

COPY = 'extern "C" __global__ void copy(float* o, const float* i) { o[threadIdx.x] = i[threadIdx.x]; }'
TEMPLATE = "template <typename T, int N> __global__ void fill(T* o) { o[threadIdx.x] = N; }"
ARCH = "-arch=compute_80"


def test_ptx() -> None:
    compiled = nvrtc.compile_ptx(COPY, "copy.cu", [ARCH])
    assert ".visible .entry copy(" in compiled.ptx and "\0" not in compiled.ptx
    assert (compiled.log, compiled.lowered_names) == ("", {})


def test_warnings_are_in_the_log() -> None:
    compiled = nvrtc.compile_ptx("__device__ int f() { int unused; return 0; }" + COPY, "copy.cu", [ARCH])
    assert "copy.cu(1): warning" in compiled.log


def test_lowered_names_are_keyed_as_asked() -> None:
    names = ("fill<float, 3>", "fill<float,3>", "fill< int , 4 >")
    lowered = nvrtc.compile_ptx(TEMPLATE, "fill.cu", [ARCH], names).lowered_names
    assert list(lowered) == list(names)
    assert lowered["fill<float, 3>"] == lowered["fill<float,3>"] == "_Z4fillIfLi3EEvPT_"


def test_cubin_and_resource_figures() -> None:
    compiled = nvrtc.compile_cubin(COPY, "copy.cu", ["-arch=sm_80", "--ptxas-options=-v"])
    assert compiled.cubin[:4] == b"\x7fELF"
    assert "registers" in compiled.log and "'copy'" in compiled.log


def test_cubin_needs_a_real_architecture() -> None:
    with pytest.raises(NvrtcError, match="-arch=sm_80, not compute_80"):
        nvrtc.compile_cubin(COPY, "copy.cu", [ARCH])


def test_first_sentence_is_the_first_error() -> None:
    source = 'extern "C" __global__ void f(float* o) {\n  o[0] = y;\n  o[1] = z;\n}\n'
    with pytest.raises(NvrtcError) as caught:
        nvrtc.compile_ptx(source, "kernels/f.cu", [ARCH])
    assert str(caught.value) == 'kernels/f.cu(2): error: identifier "y" is undefined'
    assert 'identifier "z" is undefined' in caught.value.log


def test_missing_include_and_error_directive() -> None:
    for source, sentence in (('#include "no.h"\n', 'cannot open source file "no.h"'), ("\n#error use d = 64\n", "use d = 64")):
        with pytest.raises(NvrtcError, match=sentence):
            nvrtc.compile_ptx(source, "f.cu", [ARCH])


def test_wrong_name_expression() -> None:
    with pytest.raises(NvrtcError) as caught:
        nvrtc.compile_ptx(TEMPLATE, "fill.cu", [ARCH], ["fil<float>"])
    assert str(caught.value).startswith("fill.cu has no kernel 'fil < float >'") and caught.value.log


@pytest.mark.parametrize("arch", ["compute_60", "sm_999", "sm_80a", "80", "turing"])
def test_wrong_architecture_names_version_and_range(arch: str) -> None:
    with pytest.raises(NvrtcError) as caught:
        nvrtc.compile_ptx(COPY, "copy.cu", [f"-arch={arch}"])
    archs = nvrtc.supported_archs()
    sentence = str(caught.value)
    assert f"'{arch}'" in sentence
    assert "NVRTC {}.{}".format(*nvrtc.version()) in sentence
    assert f"compute_{archs[0]} to compute_{archs[-1]}" in sentence


def test_wrong_option_is_named() -> None:
    with pytest.raises(NvrtcError, match="--bogus"):
        nvrtc.compile_ptx(COPY, "copy.cu", [ARCH, "--bogus"])


def test_headers_have_what_kernels_include() -> None:
    folder = Path(nvrtc.headers_dir())
    assert (folder / "cuda_bf16.h").is_file() and (folder / "cuda_fp16.h").is_file()


def test_threads_may_compile_at_once() -> None:
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda n: nvrtc.compile_ptx(COPY.replace("copy", n), n, [ARCH]).ptx, ("a", "b", "c", "d")))
    assert [f".entry {n}(" in t for n, t in zip("abcd", texts, strict=True)] == [True] * 4


def test_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_wheel_roots", lambda: [])
    monkeypatch.setattr(nvrtc, "_toolkit_roots", lambda: [])
    monkeypatch.setattr(nvrtc, "_SONAMES", ("libnvrtc-absent.so",))
    for function in (nvrtc.find_library, nvrtc.headers_dir):
        function.cache_clear()
        try:
            with pytest.raises(NvrtcMissing, match=r'pip install "rawflash\[cuda13\]"'):
                function()
        finally:
            function.cache_clear()


def test_toolkit_of_cuda_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvrtc.so.12").touch()
    (tmp_path / "lib64" / "libnvrtc-builtins.so.12.4").touch()
    monkeypatch.setattr(nvrtc, "_wheel_roots", lambda: [])
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    nvrtc.find_library.cache_clear()
    try:
        assert nvrtc.find_library() == str(tmp_path / "lib64" / "libnvrtc.so.12")
    finally:
        nvrtc.find_library.cache_clear()


def test_needs_no_cupy() -> None:
    code = "import sys; from rawflash.emu import nvrtc; nvrtc.version(); assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
