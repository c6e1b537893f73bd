"""What is installed is read as the standard library reads it."""

from __future__ import annotations

import ast
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import pytest

from sottovoce.util import plugins
from sottovoce.util.installed import installed_packages, installed_version


def test_every_version_is_that_of_the_standard_library() -> None:
    """All installed packages have the version that importlib.metadata finds."""
    names = {one.metadata["Name"] for one in distributions()}
    assert len(installed_packages()) == len(names)
    for name in names:
        assert installed_version(name) == version(name)
    assert installed_version("SottoVoce") == version("sottovoce")


def test_first_package_on_the_path_counts_and_a_description_is_no_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers end at an empty line; of two packages of a name the first on the path counts."""
    for place, found in (("a", "1.0"), ("b", "2.0")):
        folder = tmp_path / place / f"dp_other-{found}.dist-info"
        folder.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: dp-other\nVersion: {found}\n\nVersion: 9\n"
        (folder / "METADATA").write_text(text)
        monkeypatch.syspath_prepend(tmp_path / place)
    assert installed_version("dp.other") == "2.0"


def test_an_absent_package_has_no_version() -> None:
    """A package that is not installed is refused as by importlib.metadata."""
    with pytest.raises(PackageNotFoundError):
        installed_version("sottovoce-absent")


@pytest.mark.parametrize(
    "text",
    [
        'X = """\n{filler}"""\n\n\n@decorated(\n    1\n)\ndef asked(\n    a,\n) -> None:\n    """One.\n\n    Two."""\n',
        'class asked:\n    """One.\n\nAt the margin."""\n{filler}',
        'class asked:\n    """One."""',
        'T = """\ndef asked():\n"""\n\n\ndef asked():\n    """One."""\n{filler}',
    ],
)
def test_a_help_line_needs_the_definition_alone(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is found wherever the definition stands, and most modules are not parsed whole."""
    (tmp_path / "dp_lines.py").write_text(text.format(filler="# more\n" * 50))
    monkeypatch.syspath_prepend(tmp_path)
    entry = plugins.EntryPoint("asked", "dp_lines", "asked", "dp_lines")
    assert plugins.first_docstring_line(entry) == "One."


def test_the_list_of_commands_parses_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the modules of installed commands their definitions are parsed, and no more."""
    parsed = []
    parse = ast.parse

    def counted(text: str) -> ast.Module:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(ast, "parse", counted)
    for entries in plugins.installed_entry_points(plugins.COMMANDS).values():
        assert "Of the package" not in plugins.first_docstring_line(entries[0])
    assert parsed and all("import" not in text.partition("\n")[0] for text in parsed)
    assert all(text.startswith(("def ", "class ", "async ")) for text in parsed)
