"""The import rule, stated on the syntax trees: imports point up this list, and one third-party package has one door.

A module may import from its own row and the rows above it; outside the emulator no two modules import each other, directly
or in a ring.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rawflash

ROOT = Path(rawflash.__file__).parent

ROWS = (
    ("emu",),
    ("errors", "paths", "metrics"),
    ("problem", "tiling", "dropout", "splits", "merge", "reference", "io_model", "roofline", "occupancy", "light"),
    ("source", "compile"),
    ("variants",),
    ("backends",),
    ("counted", "check", "bench", "execute", "work", "extend"),
)
# Everything else (report, tracking, config, run, ...) is the last row: the program around the library.
LAST = len(ROWS)
NUMPY_ONLY = {"errors", "paths", "metrics", *ROWS[2]}

DOORS = {
    "cupy": {"backends.cupy_gpu"},
    "cupyx": {"backends.cupy_gpu"},
    "mlflow": {"tracking", "stored"},  # writing and reading
    "hydra": {"composing", "config", "multirun", "run"},
    "omegaconf": {"composing", "config", "multirun", "run"},
    "matplotlib": {"lab.plots"},
    "llvmlite": {"emu"},
}


def modules() -> dict[str, Path]:
    """Dotted name inside rawflash -> file; a package has the name of its folder."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "_data" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found.pop("")
    return found


MODULES = modules()


def row(module: str) -> int:
    """The row of a module, by the first part of its name."""
    first = module.split(".")[0]
    return next((i for i, names in enumerate(ROWS) if first in names), LAST)


def imports(path: Path) -> tuple[set[str], set[str]]:
    """(modules of rawflash, top-level third-party packages) that a file imports anywhere, also by import_module("...")."""
    ours, others = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and isinstance(node.args[0], ast.Constant):
            names = [str(node.args[0].value)]
        for name in names:
            top, _, rest = name.partition(".")
            if top != "rawflash":
                others.add(top)
                continue
            while rest and rest not in MODULES:  # a name inside a module
                rest = rest.rpartition(".")[0]
            if rest:
                ours.add(rest)
    return ours, others - set(sys.stdlib_module_names) - {"__future__"}


GRAPH = {name: imports(path) for name, path in MODULES.items()}


@pytest.mark.parametrize("module", list(MODULES))
def test_imports_point_up(module: str) -> None:
    below = {other for other in GRAPH[module][0] if row(other) > row(module)}
    assert not below, f"rawflash.{module} imports {sorted(below)}, which stand below it"


@pytest.mark.parametrize("module", [m for m in MODULES if row(m) == 0])
def test_the_emulator_is_an_island(module: str) -> None:
    assert all(row(other) == 0 for other in GRAPH[module][0])


def test_no_ring() -> None:
    state: dict[str, str] = {}

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert state.get(module) != "open", f"import ring: {' -> '.join((*trail, module))}"
        if module not in state:
            state[module] = "open"
            for other in sorted(o for o in GRAPH[module][0] - {module} if row(o) > 0):
                visit(other, (*trail, module))
            state[module] = "done"

    for module in (m for m in MODULES if row(m) > 0):
        visit(module, ())


@pytest.mark.parametrize("package", list(DOORS))
def test_one_package_has_one_door(package: str) -> None:
    users = {m for m, (_, others) in GRAPH.items() if package in others}
    allowed = DOORS[package]
    assert {m for m in users if m not in allowed and m.split(".")[0] not in allowed} == set()


@pytest.mark.parametrize("module", sorted(NUMPY_ONLY & set(MODULES)))
def test_the_arithmetic_needs_numpy_only(module: str) -> None:
    assert GRAPH[module][1] <= {"numpy"}


def test_the_library_imports_without_cupy_and_mlflow() -> None:
    code = (
        "import sys\n"
        "for name in ('cupy', 'cupyx', 'mlflow', 'hydra', 'omegaconf', 'pynvml'): sys.modules[name] = None\n"
        "import rawflash, rawflash.execute, rawflash.backends.emulated, rawflash.backends.cupy_gpu\n"
        "print(rawflash.backends.cupy_gpu.usable())"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(False,")


def test_importing_rawflash_loads_nothing_heavy() -> None:
    code = "import rawflash, sys; print(sorted({'numpy', 'llvmlite', 'cupy', 'mlflow', 'hydra'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
