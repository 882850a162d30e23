"""A kernel source: the text of a .cu together with the rf_*.cuh headers it includes, and one hash over all of it.

The hash goes into the compiler options (-DRF_SRC_HASH), because CuPy's kernel cache looks at the .cu alone: without it an
edited header would leave a stale kernel in use.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from rawflash import paths
from rawflash.errors import CompileError, UsageError

__all__ = ["Source", "read_source", "tagged_lines"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)


@dataclass(frozen=True)
class Source:
    """One .cu. `includes` holds (path, text) of every quoted header, in the order they are first met."""

    name: str
    path: Path
    text: str
    includes: tuple[tuple[Path, str], ...]

    @property
    def hash(self) -> str:
        """16 hex digits over the names and texts of the .cu and its headers."""
        digest = hashlib.sha256()
        for path, text in ((self.path, self.text), *self.includes):
            digest.update(f"{path.name}\0{len(text)}\0{text}".encode())
        return digest.hexdigest()[:16]

    @property
    def include_dir(self) -> Path:
        """The folder to pass with -I."""
        return self.path.parent / "include"


def read_source(file: str, folder: Path | None = None) -> Source:
    """Read `file` (a name such as "fa2.cu") from `folder` (default: kernels_cu/) with its headers, recursively.

    Raises UsageError when there is no such file, CompileError when a header is missing.
    """
    path = (folder or paths.kernels_dir()) / file
    if not path.is_file():
        raise UsageError(f"there is no kernel source {path}; the folder holds {', '.join(_cu_files(path.parent)) or 'no .cu file'}")
    text = path.read_text(encoding="utf-8")
    found: dict[Path, str] = {}
    _collect(path, text, path.parent / "include", found)
    return Source(path.name, path, text, tuple(found.items()))


def _cu_files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*.cu"))


def _collect(path: Path, text: str, include: Path, found: dict[Path, str]) -> None:
    """Add the headers that `text` includes, and theirs, to `found`. A quoted header is searched as the compiler does."""
    for match in _INCLUDE.finditer(text):
        header = next((p for p in (path.parent / match[1], include / match[1]) if p.is_file()), None)
        if header is None:
            line = text.count("\n", 0, match.start(1)) + 1
            raise CompileError(str(path), line, f'cannot find the header "{match[1]}"; it is neither beside the file nor in {include}', "")
        if header not in found:
            found[header] = header.read_text(encoding="utf-8")
            _collect(header, found[header], include, found)


def tagged_lines(source: Source, tag: str) -> frozenset[tuple[str, int]]:
    """(file name, 1-based line) of every line of the .cu and its headers whose comment holds `// [tag]`."""
    mark = re.compile(r"//.*\[" + re.escape(tag) + r"\]")
    return frozenset(
        (path.name, number)
        for path, text in ((source.path, source.text), *source.includes)
        for number, line in enumerate(text.splitlines(), 1)
        if mark.search(line)
    )
