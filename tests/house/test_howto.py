"""The Python of the how-to pages runs, and prints what they show."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from pathlib import Path

import pytest

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
PAGES = ("choose_numbers", "coming_from", "one_class")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code, shown), *more = re.findall(
        r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?",
        (HOWTO / f"{page}.md").read_text(encoding="utf-8"),
        flags=re.S,
    )
    assert not more
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        # notes on what such rows let one expect, which the page is about
        warnings.simplefilter("ignore")
        exec(compile(code, page, "exec"), {})
    told, kept = out.getvalue().split(), shown.split()
    assert len(told) == len(kept) > 0
    for here, there in zip(told, kept, strict=True):
        numbers = [re.fullmatch(r"([\d.]+)%?", word) for word in (here, there)]
        if None in numbers:
            assert here == there
        else:  # the last bits of another processor's arithmetic may move a row over the threshold
            a, b = (float(found[1]) for found in numbers if found)
            assert abs(a - b) <= max(2.0 if "%" in there else 0.02, 0.02 * b)
