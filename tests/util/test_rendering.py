"""One place for HTML: what it is given is escaped, what it is not given is missed, and no other
module writes any.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import jinja2
import pytest

import sottovoce
from sottovoce.util import pages
from sottovoce.util.pages import Column, Table, render_for_notebook, render_template

EVIL = '<script>alert("1")</script><img src=x onerror=y>&\''
SOURCE = Path(sottovoce.__file__).parent
PAPERS = SOURCE.with_name("sottovoce_papers")
TEMPLATES = [
    path for package in (SOURCE, PAPERS) for path in sorted((package / "templates").glob("*"))
]
MODULES = [path for package in (SOURCE, PAPERS) for path in package.rglob("*.py")]


def test_every_text_of_a_fragment_is_escaped() -> None:
    table = Table([Column(EVIL, EVIL)], [[EVIL]])
    found = render_for_notebook(
        title=EVIL, words=[(EVIL, EVIL)], text=EVIL, pairs=[(EVIL, EVIL)], table=table, remark=EVIL
    )
    assert found.count("&lt;script&gt;") == 11
    assert "<script" not in found and "<img" not in found and '"1"' not in found


def test_absent_parts_leave_no_html() -> None:
    found = render_for_notebook(words=[("Bold", " and plain")])
    expected_page = '<div class="sottovoce"><p><b>Bold</b> and plain</p></div>'
    assert "".join(found.split("\n")) == expected_page
    assert render_for_notebook(text="one\ntwo").count("<br>") == 1


def test_a_refused_number_is_marked_and_an_empty_cell_is_empty() -> None:
    found = render_for_notebook(table=Table([Column("a"), Column("b", "n")], [[None, ""]]))
    assert '<td><i>refused</i></td><td class="n"></td>' in found


def test_a_row_with_more_cells_than_columns_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render_for_notebook(table=Table([Column("a")], [["1", "2"]]))


def test_a_value_that_is_not_given_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render_template("base.html")


def test_a_packages_own_template_extends_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more_pages" / "templates").mkdir(parents=True)
    (tmp_path / "more_pages" / "__init__.py").touch()
    own = '{% extends "base.html" %}{% block body %}<p>{{ said }}</p>{% endblock %}'
    (tmp_path / "more_pages" / "templates" / "own.html").write_text(own)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    try:
        found = render_template("own.html", package="more_pages", title="T", said="a < b")
    finally:
        sys.modules.pop("more_pages", None)
        pages._template_environment.cache_clear()
    assert "<title>T</title>" in found and "<p>a &lt; b</p>" in found
    with pytest.raises(jinja2.TemplateNotFound):
        render_template("own.html", title="T", said="")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_disables_escaping_or_loads_from_the_network(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    trusts = ("|safe", "| safe", "autoescape", "Markup")
    asks = ("<script", "<link", "<iframe", "@import", "url(", "onclick")
    assert not [word for word in (*trusts, *asks) if word in text]
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_html_is_in_templates_alone() -> None:
    tags = ("</", "<table", "<svg", "<p>", "&lt;")
    assert not [path.name for path in MODULES if any(tag in path.read_text() for tag in tags)]


def test_templates_are_rendered_in_one_module() -> None:
    assert len(TEMPLATES) > 10  # so that the tests above see what is there
    modules = {path.name: path.read_text() for path in MODULES}
    assert [
        name for name, text in modules.items() if "jinja2" in text or "html import" in text
    ] == ["pages.py"]
