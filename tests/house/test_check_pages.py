"""The check of built pages finds what it is for."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import check_pages

GOOD = (
    '<html><link rel="stylesheet" href="a.css"><p>size 10<sup>-5</sup>, $5 or $6 '
    "<code>\\frac</code></p></html>"
)
BAD = {
    '<img src="https://example.org/a.png">': "loads https://example.org/a.png",
    '<script src="//example.org/a.js"></script>': "loads //example.org/a.js",
    '<link rel="stylesheet" href="gone.css?v=1">': "which was not built",
    "<p style=\"background: url('http://example.org/b.png')\">x</p>": "loads http://example.org/b.png",
    "<p>delta \\(10^{-5}\\)</p>": "raw TeX",
    "<p>below $n^2$ rows</p>": "raw TeX",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(check_pages, "BROWSERS", ())
    (tmp_path / "a.css").write_text("p { background: url(data:image/png;base64,AA) }")
    (tmp_path / "a.html").write_text(GOOD)
    return tmp_path


def test_pages_without_external_addresses_pass(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_pages.main(folder) == 0 and "1 pages ask" in capsys.readouterr().out


@pytest.mark.parametrize("text", BAD)
def test_a_fault_of_a_page_is_named(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "b.html").write_text(f"<html>{text}</html>")
    assert check_pages.main(folder) == 1
    assert "b.html" in (said := capsys.readouterr().out) and BAD[text] in said


def test_a_stylesheet_with_an_external_address_and_a_folder_without_pages_are_faults(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "b.css").write_text("@font-face { src: url(https://example.org/f.woff) }")
    assert check_pages.main(folder) == 1
    (tmp_path / "empty").mkdir()
    assert check_pages.main(tmp_path / "empty") == 1


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


FAULTS_IN_A_BROWSER = {
    "asks": ("<script>fetch('https://asked.example/a').catch(() => 0)</script>", "asked.example"),
    "wide": ("<p style='width: 900px'>wide</p>", "wide.html: is cut at the right: "),
    "desk": (
        "<p style='max-width: 300px'>x</p><style>@media (min-width: 1000px) "
        "{ p { min-width: 1400px } }</style>",
        "desk.html: is cut at the right: ",
    ),
    "faint": ("<p style='color: #aaaaaa'>grey on white</p>", "faint.html: light, 390 pixels: too"),
    "night": (
        "<style>@media (prefers-color-scheme: dark) { body { background: #111111 } }</style>"
        "<p>black</p>",
        "night.html: dark, 1280 pixels: too faint, contrast 1.1: 'black'",
    ),
    "turned": (
        "<img src='own.svg' style='filter: invert(1)'>",
        "turned.html: dark: turns the dark colours of ",
    ),
}


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_browser_finds_what_asks_is_cut_or_cannot_be_read(tmp_path: Path) -> None:
    assert BROWSER is not None
    pages = {name: text for name, (text, _) in FAULTS_IN_A_BROWSER.items()} | {
        "good": "<p>well</p><div style='overflow-x: auto'><p style='width: 900px'>wide</p></div>"
        "<p style='display: none; color: white'>hidden</p>"
        "<h1 style='color: #888888'>large</h1><img src='plain.svg' style='filter: invert(1)'>"
    }
    picture = "<svg xmlns='http://www.w3.org/2000/svg'><style>{}</style></svg>"
    (tmp_path / "plain.svg").write_text(picture.format("text { fill: black }"))
    (tmp_path / "own.svg").write_text(
        picture.format("@media (prefers-color-scheme: dark) { text { fill: white } }")
    )
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(f"<!doctype html><html><body>{text}</body></html>")
    shown = sorted(tmp_path.glob("*.html"))
    found = [
        line
        for colours in check_pages.COLOUR_SCHEMES
        for line in check_pages.opened(BROWSER, shown, colours)
    ]
    for name, (_, said) in FAULTS_IN_A_BROWSER.items():
        assert any(said in line for line in found), name
    assert not any("good.html" in line for line in found)
