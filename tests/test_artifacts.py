"""Artifacts get names that MLflow's UI can show."""

from pathlib import Path

import pytest

from rawflash.artifacts import shown_as, viewable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("fa2.cu", "source/fa2.cu.txt"),
        ("rf_softmax.cuh", "source/rf_softmax.cuh.txt"),
        ("kernel.ptx", "kernel.ptx.txt"),
        ("traffic.md", "traffic.md"),
        ("nvrtc.log", "nvrtc.log"),
        ("config.yaml", "config.yaml"),
        ("picture.png", "picture.png"),
        ("README", "README.txt"),
    ],
)
def test_names(name: str, shown: str) -> None:
    assert shown_as(name) == shown


def test_m19_a_copy_in_any_folder_with_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "my dir" / "100%" / "ü"
    folder.mkdir(parents=True)
    for name in ("fa2.cu", "traffic.md"):
        (folder / name).write_bytes(f"{name}\r\n".encode())
    with viewable(folder) as shown:
        found = {path.relative_to(shown).as_posix(): path.read_bytes() for path in shown.rglob("*") if path.is_file()}
    assert found == {"source/fa2.cu.txt": b"fa2.cu\r\n", "traffic.md": b"traffic.md\r\n"}
    assert not shown.exists() and {path.name for path in folder.iterdir()} == {"fa2.cu", "traffic.md"}
