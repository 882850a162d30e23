"""Data files of a checkout and of a wheel, and a cache folder that is always writable."""

import os
from pathlib import Path

import pytest

from rawflash import paths
from rawflash.emu.jit import cache_folder
from rawflash.errors import RawflashError


def test_a_checkout_has_its_data_at_the_top_level() -> None:
    assert paths.is_checkout()
    assert paths.kernels_dir().is_absolute() and paths.kernels_dir().name == "kernels_cu"
    assert paths.include_dir() == paths.kernels_dir() / "include"
    assert (paths.conf_dir() / "config.yaml").is_file()


def test_a_wheel_has_its_data_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "rawflash"
    (package / "_data" / "kernels_cu").mkdir(parents=True)
    monkeypatch.setattr(paths, "_PACKAGE", package)
    assert not paths.is_checkout()
    assert paths.kernels_dir() == package / "_data" / "kernels_cu"
    with pytest.raises(RawflashError, match=r"_data/conf is missing.*reinstall"):
        paths.conf_dir()


def test_a_stray_folder_beside_an_installed_package_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels_cu").mkdir()
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "rawflash")
    assert not paths.is_checkout()


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(tmp_path / name))
        assert paths.cache_root() == tmp_path / name
        assert paths.cache_dir("ptx").is_dir()


def test_the_home_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAWFLASH_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache_root() == tmp_path / ".cache" / "rawflash"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert paths.cache_root() == cache_folder().parent == tmp_path / "elsewhere" / "rawflash"


def test_folders_that_cannot_be_written_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"  # a file where a folder should go: refused to every user, root included
    blocker.write_text("")
    monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(blocker / "cache"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(blocker))
    monkeypatch.setattr(paths.tempfile, "gettempdir", lambda: str(tmp_path))
    assert paths.cache_root() == tmp_path / f"rawflash-cache-{os.getuid()}"
    monkeypatch.setattr(paths.tempfile, "gettempdir", lambda: str(blocker))
    monkeypatch.setattr(paths.tempfile, "mkdtemp", lambda prefix: str(tmp_path / prefix))
    assert paths.cache_root() == tmp_path / "rawflash-cache-"
