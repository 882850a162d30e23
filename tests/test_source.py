"""Reading a kernel with its headers: what the hash covers, what a missing file says, which lines are tagged."""

from pathlib import Path

import pytest

from rawflash.errors import CompileError, UsageError
from rawflash.source import read_source, tagged_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kernel folder: k.cu includes rf_a.cuh, which includes rf_b.cuh."""
    (tmp_path / "include").mkdir()
    (tmp_path / "k.cu").write_text('#include <cuda_fp16.h>\n#include "rf_a.cuh"\nint x = A;  // scale [rescale]\n')
    (tmp_path / "include" / "rf_a.cuh").write_text('#pragma once\n#  include "rf_b.cuh"\n#define A B\n')
    (tmp_path / "include" / "rf_b.cuh").write_text("#pragma once\n\n#define B 1  // [rescale]\n")
    return tmp_path


def test_headers_are_found_recursively_and_once(folder: Path) -> None:
    (folder / "k.cu").write_text('#include "rf_b.cuh"\n#include "rf_a.cuh"\n')
    source = read_source("k.cu", folder)
    assert [path.name for path, _ in source.includes] == ["rf_b.cuh", "rf_a.cuh"]
    assert source.include_dir == folder / "include"


@pytest.mark.parametrize("edited", ["k.cu", "include/rf_a.cuh", "include/rf_b.cuh"])
def test_the_hash_follows_every_file(folder: Path, edited: str) -> None:
    before = read_source("k.cu", folder).hash
    assert read_source("k.cu", folder).hash == before
    with (folder / edited).open("a") as file:
        file.write("// edited\n")
    assert read_source("k.cu", folder).hash != before


def test_the_hash_does_not_follow_the_place(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("elsewhere") / "copy"
    folder.rename(other)
    moved = read_source("k.cu", other).hash
    other.rename(folder)
    assert moved == read_source("k.cu", folder).hash


def test_headers_that_include_each_other_end(folder: Path) -> None:
    (folder / "include" / "rf_b.cuh").write_text('#pragma once\n#include "rf_a.cuh"\n')
    assert len(read_source("k.cu", folder).includes) == 2


def test_missing_files_are_named(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no kernel source .*nope.cu; the folder holds k.cu"):
        read_source("nope.cu", folder)
    (folder / "include" / "rf_b.cuh").unlink()
    with pytest.raises(CompileError, match=r'rf_a.cuh:2: cannot find the header "rf_b.cuh"'):
        read_source("k.cu", folder)


def test_tagged_lines(folder: Path) -> None:
    source = read_source("k.cu", folder)
    assert tagged_lines(source, "rescale") == {("k.cu", 3), ("rf_b.cuh", 3)}
    assert tagged_lines(source, "load") == frozenset()
