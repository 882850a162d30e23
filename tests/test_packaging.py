"""The wheel carries kernels and configuration, and runs where there is no checkout; the README's lines are the ones that CI runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from rawflash import paths
from rawflash.results import read_rows

ROOT = Path(__file__).resolve().parent.parent
CHECKOUT = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="the tests lie outside a checkout: nothing to build from")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by hatchling from a copy of the checkout (no network, nothing left in the tree)."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("rawflash", "kernels_cu", "conf", "experiments", "pyproject.toml", "README.md"):
        source = ROOT / name
        shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__")) if source.is_dir() else shutil.copy(source, copy)
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)], cwd=copy, check=True, capture_output=True
    )
    (built,) = target.glob("*.whl")
    return built


@CHECKOUT
def test_the_wheel_carries_kernels_and_configuration(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in (paths.kernels_dir(), paths.conf_dir()):
        for path in folder.rglob("*"):
            if path.is_file():
                assert f"rawflash/_data/{folder.name}/{path.relative_to(folder).as_posix()}" in names
    assert "rawflash/_data/experiments/published.yaml" in names
    assert not [name for name in names if name.startswith(("tests/", "experiments/", ".ci/"))]


@CHECKOUT
def test_the_wheel_runs_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site), "RAWFLASH_CACHE_DIR": str(tmp_path / "cache")}
    call = [sys.executable, "-m", "rawflash.run"]
    where = subprocess.run([sys.executable, "-c", "import rawflash; print(rawflash.__file__)"], cwd=work, env=environment, **_TEXT)
    assert where.stdout.startswith(str(site))
    done = subprocess.run([*call, "kernel=fa2", "problem=tiny", "block_size=32", "backend=emu"], cwd=work, env=environment, **_TEXT)
    assert done.returncode == 0, done.stderr
    (results,) = work.glob("outputs/*/*/results.json")
    assert [row.status for row in read_rows(results)] == ["OK"]
    assert (work / "mlflow.db").exists()
    by_hand = [*call, "experiment=problem1", "experiment.options.tiles=[]", "tracking=none"]
    assert "problem1: 3 REPRODUCED" in subprocess.run(by_hand, cwd=work, env=environment, **_TEXT).stdout
    papers = [sys.executable, "-c", "from rawflash.lab.papers import published_entry; print(published_entry('milakov_k')['rows'][0])"]
    assert subprocess.run(papers, cwd=work, env=environment, **_TEXT).stdout == "[5, 5.0]\n"
    doctor = subprocess.run([*call, "doctor"], cwd=work, env=environment, **_TEXT)
    assert f"installed; kernels in {site / 'rawflash' / '_data' / 'kernels_cu'}" in doctor.stdout


_TEXT: dict = {"capture_output": True, "text": True, "check": False}


@CHECKOUT
def test_the_console_script_is_the_same_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"rawflash": "rawflash.run:main"}
    assert {"cuda13", "cuda12", "test"} <= set(project["optional-dependencies"])


@CHECKOUT
def test_the_top_level_holds_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, **_TEXT)
    if listed.returncode:
        pytest.skip("this checkout is no git repository, so what belongs to it cannot be told from what does not")
    top = {name.split("/")[0] for name in listed.stdout.splitlines()}
    wanted = {"rawflash", "kernels_cu", "conf", "experiments", "tests", "pyproject.toml", "README.md"}
    assert {name for name in top if not name.startswith(".")} <= wanted


@CHECKOUT
def test_ci_takes_its_lines_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"```bash\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    assert len(lines) == 2
    assert "python3 -m venv .venv" in lines[0] and '".[cuda13,test]"' in lines[0] and lines[0].endswith("-m rawflash.run block_size=64")
    assert lines[1].endswith("-m pytest -n logical")
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "README.md" in script and "pip install" not in script and os.access(ROOT / ".ci" / "run", os.X_OK)


@CHECKOUT
@pytest.mark.parametrize("command", re.findall(r"^rawflash (?!compare).*$", (ROOT / "README.md").read_text("utf-8"), re.M))
def test_every_command_of_the_readme_composes(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys and groups exist; sweeps are checked with their first values."""
    import shlex

    from tests.test_config import settings

    words = [word for word in shlex.split(command.partition("#")[0])[1:] if "=" in word and not word.startswith("hydra")]
    assert settings(*(word.partition("=")[0] + "=" + word.partition("=")[2].split(",")[0] for word in words)).variants


@CHECKOUT
def test_every_experiment_has_a_result_that_says_where_it_comes_from() -> None:
    index = (ROOT / "experiments" / "README.md").read_text("utf-8")
    files = sorted((ROOT / "experiments" / "results").glob("*.md"))
    assert files
    for path in files:
        last = path.read_text("utf-8").rstrip().splitlines()[-1]
        found = re.match(r"Made by `python -m rawflash\.run (.*?)`; rawflash .*; commit [0-9a-f]{40}; .*20\d\d-\d\d-\d\d$", last)
        assert found, f"{path.name} does not end with where it comes from, or comes from a tree that was not committed"
        assert f"(results/{path.name})" in index and f"`rawflash {found[1]}`" in index
