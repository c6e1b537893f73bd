"""Built pages ask nobody for anything, and show no raw TeX: ``python scripts/check_pages.py
[FOLDER]``.

Read as text, every page must load only files that were built with it.  Opened in a browser
(Chromium, where one is installed) that reaches no network, none may ask for an address, and none
may be wider than a telephone.
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
from urllib.parse import unquote, urlsplit

MOVED = 'http-equiv="refresh"'  # a page that only leads to another
NARROW = 390  # pixels, of a telephone
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


READER = """<!doctype html><iframe id="page" style="width: {width}px; height: 900px"></iframe><pre id="found"></pre>
<script>
const found = [], frame = document.getElementById("page");
(async () => {{
  for (const address of {addresses}) {{
    await new Promise(done => {{ frame.onload = done; frame.src = address; }});
    found.push([address, frame.contentDocument.documentElement.scrollWidth]);
  }}
  document.getElementById("found").textContent = JSON.stringify(found);
}})();
</script>"""
"""Opens one page after the other as wide as a telephone, and notes how wide each wants to be."""


def opened(browser: str, pages: list[Path]) -> list[str]:
    """What pages ask the network for, and which are cut at the right, in a browser that reaches
    no network.
    """
    with tempfile.TemporaryDirectory() as folder:
        log, reader = Path(folder) / "log.json", Path(folder) / "reader.html"
        addresses = {page.resolve().as_uri(): page for page in pages}
        reader.write_text(
            READER.format(width=NARROW, addresses=json.dumps(list(addresses))), encoding="utf-8"
        )
        done = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
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
        (told,) = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.S)
        wide = dict(json.loads(unescape(told) or "[]"))
        events = [
            event.get("params", {})
            for event in json.loads(log.read_text(encoding="utf-8"))["events"]
        ]
    asked = {
        one["url"]
        for one in events
        if "url" in one and one.get("initiator", BROWSERS_OWN) != BROWSERS_OWN
    }
    found = [
        f"asks for {url}"
        for url in sorted(asked)
        if urlsplit(url).scheme not in ("file", "data", "blob")
    ]
    found += [
        f"{page}: was not opened" for address, page in addresses.items() if address not in wide
    ]
    return found + [
        f"{addresses[address]}: is cut at the right: {width} pixels wide where {NARROW} are there"
        for address, width in wide.items()
        if width > NARROW
    ]


def main(folder: Path) -> int:
    pages = sorted(folder.rglob("*.html"))
    if not pages:
        print(f"{folder}: holds no page; build them first (scripts/docs)")
        return 1
    found = [line for page in pages for line in mistakes(page)]
    found += [line for sheet in sorted(folder.rglob("*.css")) for line in styled(sheet)]
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is not None:
        found += opened(
            browser, [page for page in pages if MOVED not in page.read_text(encoding="utf-8")]
        )
    print(
        "\n".join(found)
        or f"{len(pages)} pages ask nobody for anything, read"
        + (" and opened in a browser" if browser else "; no browser is installed to open them")
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/_build/html")))
