"""Files for those who cite: of this version, with the five papers as they stand on their page."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAPERS = re.findall(
    r"^\| (00\d) \| (.*?): \*(.*?)\*\. ", (ROOT / "docs/explanation/papers.md").read_text(), re.M
)
"""Number, authors and title of each paper, of the page that explains the numbers."""


def test_the_citation_file_has_the_version_and_the_five_papers() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"], cited["title"].split(":")[0]) == (
        PROJECT["version"],
        PROJECT["license"],
        PROJECT["name"],
    )
    found = []
    for one in cited["references"]:
        authors = ", ".join(
            f"{author['given-names']} {author['family-names']}" for author in one["authors"]
        )
        found.append((one["notes"], authors, one["title"]))
        assert one["type"] in ("article", "conference-paper", "thesis") and one["year"] >= 2016
        assert "doi" not in one or re.fullmatch(r"10\.\d{4,}/\S+", str(one["doi"]))
    assert len(PAPERS) == 5 and found == PAPERS


def test_codemeta_has_the_facts_of_the_citation_file() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    meta = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    assert (meta["name"], meta["version"], meta["description"]) == (
        PROJECT["name"],
        PROJECT["version"],
        PROJECT["description"],
    )
    assert (
        meta["license"].endswith(f"/{PROJECT['license']}") and meta["keywords"] == cited["keywords"]
    )
    found = [(", ".join(one["author"]), one["name"]) for one in meta["referencePublication"]]
    assert found == [(authors, title) for _, authors, title in PAPERS]
    dois = [
        one["identifier"]
        for one in meta["referencePublication"]
        if "doi.org" in one.get("identifier", "")
    ]
    assert dois == [f"https://doi.org/{one['doi']}" for one in cited["references"] if "doi" in one]
