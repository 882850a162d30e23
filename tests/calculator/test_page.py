"""The page stands alone, needs no mouse, is current in experiments/ and works in a real browser; the command prints the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rawflash.calculator.command import told
from rawflash.calculator.page import examples, page_html
from tests.conftest import Outcome

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "experiments" / "calculator.html"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(not (ROOT / "experiments").is_dir(), reason="the tests lie outside a checkout: there is no page to compare with")
def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page_html(), f"run `python -m rawflash.run calculator page={PAGE.relative_to(ROOT)}`"


def test_the_page_needs_nothing_else() -> None:
    html = page_html()
    assert not re.findall(r"https?:|//[a-z]|@import|url\(|<link|<img|<iframe|fetch\(|XMLHttpRequest|import\(", html)
    assert not re.findall(r"@[A-Z]+@", html), "a part was not filled in"
    assert "prefers-color-scheme: dark" in html and '<html lang="en">' in html


class _Controls(HTMLParser):
    """Ids of inputs and selects, those inside a <label>, and those that a <label for> names."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.open, self.controls = set[str](), 0, set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += tag == "label"
        if tag in ("input", "select"):
            name = dict(attrs).get("id") or str(dict(attrs).get("value"))
            self.controls.add(name)
            self.inside |= {name} if self.open else set()

    def handle_endtag(self, tag: str) -> None:
        self.open -= tag == "label"


def test_every_control_has_a_label() -> None:
    html = page_html()
    parser = _Controls()
    parser.feed(html.partition("<script>")[0])
    assert {"same", "causal", "dtype", "Br", "Bc", "gpu", "bytes", "memory_bytes", "ms"} == parser.controls == parser.inside
    assert '<label for="${id}">' in html and '<input type="range" id="${id}"' in html  # the sliders
    assert "tabindex" not in html and "outline: none" not in html  # native controls keep their keyboard


def _in_browser(html: Path) -> str:
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", f"--user-data-dir={html.parent / 'profile'}"]
    done = subprocess.run([str(BROWSER), *flags, "--dump-dom", html.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


@pytest.mark.skipif(
    BROWSER is None, reason="no Chromium or Chrome on this machine: the page's formulas are tested in a small engine instead"
)
def test_the_page_works_in_a_browser(tmp_path: Path) -> None:
    """Opened from a file: the examples agree, and arrow keys on a slider change the figures."""
    steps = """<script>
    const text = (id) => document.getElementById(id).textContent, N = document.getElementById("N"), before = text("f-score_bytes");
    N.focus(); N.stepUp(); N.dispatchEvent(new Event("input", {bubbles: true}));
    const curves = document.querySelectorAll("#chart path").length, spoken = N.getAttribute("aria-valuetext");
    document.body.dataset.seen = [document.activeElement.id, before, text("f-score_bytes"), spoken, curves, text("reading")].join("|");
    </script></body>"""
    page = tmp_path / "page.html"
    page.write_text(page_html().replace("</body>", steps), "utf-8")
    dom = _in_browser(page)
    assert f"Checked just now: {len(list(examples()))} of {len(list(examples()))} examples agree" in dom
    seen = re.search(r'data-seen="([^"]*)"', dom)
    assert seen is not None, "the page's script stopped"
    focus, before, after, value, curves, reading = seen[1].split("|")
    assert (focus, before, after, value, curves) == ("N", "8 GiB", "32 GiB", "16,384", "2")
    assert reading.startswith("HBM bytes at N = 16,384: naive ")


# ------------------------------------------------------------------------------------------------------------ the command
def test_the_command_prints_the_figures(program: Callable[..., Outcome]) -> None:
    done = program("calculator", "problem.B=1", "problem.H=1", "problem.N=8192", "problem.d=128", "gpu=h100", "layers=2")
    assert done.code == 0, done.err
    assert re.search(r"One score matrix +128 MiB", done.out) and re.search(r"Ridge point +295 flop/B", done.out)
    assert "H100 SXM5 80GB: 3350 GB/s, 989.4 TFLOP/s dense. All figures are modelled" in done.out and "2 layers" in done.out


def test_the_command_writes_the_page(program: Callable[..., Outcome], workdir: Path) -> None:
    assert program("calculator", "page=c.html").code == 0
    assert (workdir / "c.html").read_text("utf-8") == page_html()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("layers=x",), "layers=x is not a number of layers"),
        (("layers=0",), "layers=0 is not a number of layers"),
        (("page=c.html", "gpu=h100"), "page= makes the page for all shapes: leave gpu=h100 away"),
        (("page=missing/c.html",), "the page cannot be written to missing/c.html"),
        (("problem.M=1",), "there is no key problem.M"),
        (("gpu=mi300",), "gpu=mi300 is unknown"),
    ],
)
def test_what_cannot_be_meant_is_told(arguments: tuple[str, ...], sentence: str, program: Callable[..., Outcome]) -> None:
    done = program("calculator", *arguments)
    assert done.code in (1, 2) and sentence in done.err and done.err.count("\n") == 1


def test_figures_are_told_in_three_digits() -> None:
    assert [told(512 * 2**20, "B"), told(1023.9, "B"), told(1.5e12, "flop"), told(0.0005, "ms"), told(2500, "flop/B")] == [
        *("512 MiB", "1 KiB", "1.5 Tflop", "500 ns", "2,500 flop/B")
    ]
    assert (told(None, "ms"), told("memory", ""), told(64.0, "x")) == ("-", "memory", "64 times")
