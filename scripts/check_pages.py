"""Built pages ask nobody for anything, and show no raw TeX: ``python scripts/check_pages.py
[FOLDER]``.

Read as text, every page must load only files that were built with it.  Opened in a browser
(Chromium, where one is installed) that reaches no network, as wide as a telephone and as a desk's
screen, light and dark, none may ask for an address, be wider than the screen, show text that is
too faint to read, or turn the colours of a picture that has dark colours of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

MOVED = 'http-equiv="refresh"'  # a page that only leads to another
WIDTHS = (390, 1280)  # pixels, of a telephone and of a screen on a desk
COLOUR_SCHEMES = {"dark": 0, "light": 1}  # and how Chromium's settings number them
LEAST_CONTRAST = 4.5  # of text against what is behind it: WCAG 2.2, criterion 1.4.3
LEAST_CONTRAST_LARGE = 3.0  # of text from 24 pixels on, or from 18.66 if it is bold
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSERS_OWN = "not an origin"  # what the log calls the initiator of requests that no page made
LOADED = {
    "img": "src",
    "script": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
}
KINDS = {
    "stylesheet",
    "icon",
    "shortcut icon",
    "preload",
    "prefetch",
    "modulepreload",
    "preconnect",
    "dns-prefetch",
}
TEX = re.compile(
    r"\\[(\[]|\\(?:frac|sum|le|ge|lVert|mathrm|epsilon|delta|cdot|sqrt|text)\b|(?<!\\)\$[^$\s](?:[^$]*[^$\s])?\$"
)
VERBATIM = {"code", "pre", "script", "style", "kbd", "title"}


class Page(HTMLParser):
    """What a page loads, and the text that it shows outside of code."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in VERBATIM:
            self._inside.append(tag)
        address = given.get(LOADED.get(tag, ""))
        if address and (tag != "link" or given.get("rel") in KINDS):
            self.loads.append(address)
        self.loads += re.findall(r"url\([\"']?([^)\"']+)", given.get("style") or "")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text.append(data)


def mistakes(path: Path) -> list[str]:
    """What is wrong with a page, as lines that begin with its path."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    found = []
    for address in page.loads:
        parts = urlsplit(address)
        if parts.scheme == "data":
            continue
        if parts.scheme or parts.netloc:
            found.append(f"{path}: loads {address}")
        elif not (path.parent / unquote(parts.path)).exists():
            found.append(f"{path}: loads {address}, which was not built")
    return found + [f"{path}: raw TeX {text!r}" for text in TEX.findall(" ".join(page.text))]


def styled(path: Path) -> list[str]:
    """Addresses elsewhere in a stylesheet."""
    text = path.read_text(encoding="utf-8")
    return [
        f"{path}: loads {address}"
        for address in re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", text)
    ]


READER = """<!doctype html><iframe id="page" style="height: 900px"></iframe><pre id="found"></pre>
<script>
const frame = document.getElementById("page");

// Red, green, blue and opacity of a computed colour.
function parts(colour) {
  const numbers = colour.match(/[0-9.]+/g).map(Number);
  return numbers.length === 3 ? [...numbers, 1] : numbers;
}

// A colour with opacity, laid over an opaque one.
function laidOver(above, below) {
  return below.slice(0, 3).map((value, i) => above[i] * above[3] + value * (1 - above[3]));
}

// The colour behind an element: backgrounds of its ancestors, the outermost first.
function background(element, view) {
  const layers = [];
  for (let one = element; one; one = one.parentElement) {
    layers.unshift(parts(view.getComputedStyle(one).backgroundColor));
  }
  return layers.reduce((below, above) => laidOver(above, below), [255, 255, 255]);
}

// Relative luminance and contrast, as WCAG defines them.
function luminance(colour) {
  const [r, g, b] = colour.map(value => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(one, other) {
  const [darker, lighter] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (lighter + 0.05) / (darker + 0.05);
}

// Texts that can be seen and have too little contrast, the first of each style.
function faintTexts(page) {
  const view = page.defaultView, faint = new Map();
  const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, text = texts.currentNode.data.trim();
    const shown = text && element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
    if (!shown || element.closest("script, style, svg, mjx-container")) continue;
    const style = view.getComputedStyle(element), behind = background(element, view);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = contrast(laidOver(parts(style.color), behind), behind);
    const least = large ? LEAST_CONTRAST_LARGE : LEAST_CONTRAST;
    const key = style.color + behind;
    if (ratio < least && !faint.has(key)) faint.set(key, [text.slice(0, 40), ratio]);
  }
  return [...faint.values()];
}

// Pictures whose colours the page turns.
function turnedPictures(page) {
  const pictures = [...page.querySelectorAll("img")];
  return pictures.filter(one => page.defaultView.getComputedStyle(one).filter !== "none")
    .map(one => one.src);
}

(async () => {
  const found = [];
  for (const address of ADDRESSES) {
    for (const width of WIDTHS) {
      frame.style.width = width + "px";
      await new Promise(done => { frame.onload = done; frame.src = address; });
      const page = frame.contentDocument;
      found.push({
        address, width, needed: page.documentElement.scrollWidth,
        faint: faintTexts(page), turned: turnedPictures(page),
      });
    }
  }
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>"""
"""Opens one page after the other at every width, and notes what can be seen there."""


def page_reader(pages: list[Path]) -> str:
    """Return the page that opens the others."""
    constants = {
        "ADDRESSES": [page.resolve().as_uri() for page in pages],
        "WIDTHS": WIDTHS,
        "LEAST_CONTRAST": LEAST_CONTRAST,
        "LEAST_CONTRAST_LARGE": LEAST_CONTRAST_LARGE,
    }
    declared = "".join(
        f"const {name} = {json.dumps(value)};\n" for name, value in constants.items()
    )
    return READER.replace("<script>\n", f"<script>\n{declared}", 1)


class Opened(NamedTuple):
    """What a browser without a network saw of pages, in one colour scheme."""

    views: list[dict[str, Any]]
    """One for each page and width, as READER notes them."""
    asked: set[str]
    """Addresses that pages asked for."""


def open_pages(browser: str, pages: list[Path], colours: str) -> Opened:
    """Open pages in a browser that reaches no network."""
    with tempfile.TemporaryDirectory() as folder:
        log, reader = Path(folder) / "log.json", Path(folder) / "reader.html"
        reader.write_text(page_reader(pages), encoding="utf-8")
        done = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--blink-settings=preferredColorScheme={COLOUR_SCHEMES[colours]}",
                f"--user-data-dir={folder}/profile",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                "--allow-file-access-from-files",
                "--virtual-time-budget=10000000",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--log-net-log={log}",
                "--dump-dom",
                reader.as_uri(),
            ],
            capture_output=True,
            check=True,
            timeout=600,
            text=True,
        )
        events = [
            event.get("params", {})
            for event in json.loads(log.read_text(encoding="utf-8"))["events"]
        ]
    (told,) = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.S)
    asked = {
        one["url"]
        for one in events
        if "url" in one and one.get("initiator", BROWSERS_OWN) != BROWSERS_OWN
    }
    return Opened(json.loads(unescape(told) or "[]"), asked)


def has_dark_colours(picture: str) -> bool:
    """Whether a picture, an address of a file, has dark colours of its own."""
    path = Path(unquote(urlsplit(picture).path))
    return "prefers-color-scheme" in path.read_text(encoding="utf-8")


def opened(browser: str, pages: list[Path], colours: str) -> list[str]:
    """Name what a browser finds wrong with pages in one colour scheme."""
    views, asked = open_pages(browser, pages, colours)
    found = [
        f"asks for {url}"
        for url in sorted(asked)
        if urlsplit(url).scheme not in ("file", "data", "blob")
    ]
    names = {page.resolve().as_uri(): page for page in pages}
    seen = {view["address"] for view in views}
    found += [f"{page}: was not opened" for address, page in names.items() if address not in seen]
    for view in views:
        page, width = names[view["address"]], view["width"]
        if view["needed"] > width:
            found.append(
                f"{page}: is cut at the right: {view['needed']} pixels wide where {width} are there"
            )
        found += [
            f"{page}: {colours}, {width} pixels: too faint, contrast {ratio:.1f}: {text!r}"
            for text, ratio in view["faint"]
        ]
        found += [
            f"{page}: {colours}: turns the dark colours of {picture}"
            for picture in view["turned"]
            if has_dark_colours(picture)
        ]
    return found


def main(folder: Path) -> int:
    pages = sorted(folder.rglob("*.html"))
    if not pages:
        print(f"{folder}: holds no page; build them first (scripts/docs)")
        return 1
    found = [line for page in pages for line in mistakes(page)]
    found += [line for sheet in sorted(folder.rglob("*.css")) for line in styled(sheet)]
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is not None:
        shown = [page for page in pages if MOVED not in page.read_text(encoding="utf-8")]
        for colours in COLOUR_SCHEMES:
            found += opened(browser, shown, colours)
    print(
        "\n".join(found)
        or f"{len(pages)} pages ask nobody for anything, read"
        + (
            " and opened in a browser, narrow and wide, light and dark"
            if browser
            else "; no browser is installed to open them"
        )
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/_build/html")))
