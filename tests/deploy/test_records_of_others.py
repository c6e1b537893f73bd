"""Files that pass between sites: what was written is read, and a refusal names the file and the
key, and no value.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest

from sottovoce.deploy.amendment import Amendment
from sottovoce.deploy.asks import Asks
from sottovoce.deploy.invitation import Answer, Invitation
from sottovoce.deploy.known import Known, SharedRun
from sottovoce.deploy.members import Member
from sottovoce.errors import InvalidInput

KEY, OTHER = (base64.b64encode(bytes([byte]) * 32).decode() for byte in (1, 2))
INVITATION = Invitation(
    "north", "hub:8443", "ca", "crt", "key", 1.5, None, {"name": "s", "columns": {}}
)
ANSWER = Answer(Member("north", 120, KEY), "request", INVITATION.digest)
AMENDMENT = Amendment("north", KEY, OTHER, {"trial": "abc"}, {"south": KEY})
KNOWN = Known("trial", "abc", {"south": KEY}, {"trial": SharedRun("abc", ["south"])})
SECRET = "a-secret-text"


def written(one: Any, path: Path) -> Path:
    if isinstance(one, Known):
        one.write(path)
    else:
        path.write_text(one.text())
    return path


@pytest.mark.parametrize(
    "one", [INVITATION, ANSWER, AMENDMENT, KNOWN], ids=lambda one: type(one).__name__
)
def test_written_record_is_read_back(one: Any, tmp_path: Path) -> None:
    assert type(one).read(written(one, tmp_path / "file")) == one


@pytest.mark.parametrize(
    ("one", "key", "value", "place"),
    [
        (INVITATION, "epsilon", SECRET, "epsilon"),
        (INVITATION, "epsilon", 1, "epsilon"),
        (INVITATION, "schema", [SECRET], "schema"),
        (INVITATION, "hub", None, "hub"),
        (ANSWER, "rows", "120", "rows"),
        (ANSWER, "rows", True, "rows"),
        (ANSWER, "request", 3, "request"),
        (AMENDMENT, "runs", {"trial": 3}, "runs[0]"),
        (AMENDMENT, "signatures", {SECRET: 1}, "signatures[0]"),
        (KNOWN, "keys", {SECRET: 3}, "keys[0]"),
        (KNOWN, "shared", {SECRET: {"plan": "abc"}}, "shared[0]: lacks sites"),
        (KNOWN, "shared", {"trial": {"plan": "abc", "sites": [SECRET, 3]}}, "shared[0].sites[1]"),
        (KNOWN, "run", None, "names no last run"),
    ],
)
def test_a_refusal_names_file_and_key(
    one: Any, key: str, value: Any, place: str, tmp_path: Path
) -> None:
    path = written(one, tmp_path / "file")
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InvalidInput) as refused:
        type(one).read(path)
    said = str(refused.value)
    assert place in said and "file" in said and SECRET not in said and "\n" not in said


@pytest.mark.parametrize(
    "one", [INVITATION, ANSWER, AMENDMENT, KNOWN], ids=lambda one: type(one).__name__
)
def test_other_keys_are_refused(one: Any, tmp_path: Path) -> None:
    path = written(one, tmp_path / "file")
    plain = json.loads(path.read_text())
    for changed in (
        plain | {SECRET: 1},
        {key: value for key, value in plain.items() if key != next(iter(plain))},
        [],
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(InvalidInput) as refused:
            type(one).read(path)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize("epsilon", [2.0, math.inf])
def test_requested_answers_roundtrip(epsilon: float) -> None:
    asks = Asks(inference=True, evaluation=epsilon, holdout=0.2)
    plain = json.loads(json.dumps(asks.to_dict(), allow_nan=False))
    assert Asks.from_dict(plain) == asks
    for change, place in (
        ({"holdout": "0.2"}, "holdout"),
        ({"inference": 1}, "inference"),
        ({SECRET: 1}, "keys"),
    ):
        with pytest.raises(InvalidInput, match=place) as refused:
            Asks.from_dict(plain | change)
        assert SECRET not in str(refused.value)
