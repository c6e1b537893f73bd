"""The example of docs/howto/curved.md runs as it stands there, and prints what the page shows."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from sottovoce.data import Schema

PAGE = (Path(__file__).parents[2] / "docs/howto/curved.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.S)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a few rows are clipped is for their holder
        exec(code, {})
    told = capsys.readouterr().out
    numbers = [[int(number) for number in re.findall(r"(\d+)%", text)] for text in (told, shown)]
    assert re.sub(r"\d+", "", told) == re.sub(r"\d+", "", shown)
    # but for another processor's last bits
    assert all(abs(a - b) <= 1 for a, b in zip(*numbers, strict=True))


def test_the_schema_of_the_page_has_every_kind_of_column(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.S)
    (tmp_path / "s.toml").write_text(text)
    kinds = {block.kind for block in Schema.from_toml(tmp_path / "s.toml").blocks}
    assert kinds == {"number", "squares", "pairs", "spline", "fourier"}
