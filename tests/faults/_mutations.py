"""Seeded mutations of bytes, of plain data, of TOML and of SQLite files, for fuzz.py."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.errors import SottovoceError
from sottovoce.ledger.chain import hash_of_record
from sottovoce.util.plain import canonical_json, personalised_hash

Rng = np.random.Generator
STEERS = "\x1b[31m\x1b]0;taken\x07\u202e[red]x[/]"
_TOKENS = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b'"',
    b"'''",
    b"[" * 200,
    b"[" * 9000,
    b"{" * 200,
    b"9" * 400,
    b"1e999",
    b"NaN",
    b"-Infinity",
    b"\r",
    b"\n\n",
    b"\x1b[31m",
    b",",
    b",,,,",
    b"\xed\xa0\x80",
    b"=",
    b"#",
    b"\\u0000",
    b"../../x",
    b"%s%n",
    b"PAR1",
    b"\x1f\x8b",
)


def odd(rng: Rng) -> Any:
    """A value that is seldom what is wanted."""
    return _ODD[rng.integers(len(_ODD))]()


def deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


_ODD: tuple[Any, ...] = tuple(
    lambda value=value: copy.deepcopy(value)
    for value in (
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        3.5,
        -0.0,
        1e308,
        5e-324,
        2**63,
        -(2**63),
        10**30,
        10**90,
        10**400,
        math.inf,
        -math.inf,
        math.nan,
        "",
        " ",
        "x",
        "inf",
        "NaN",
        "1",
        STEERS,
        "a\nb",
        "é" * 50,
        "x" * 5000,
        "\x00",
        "../x",
        "ring",
        [],
        [[]],
        {},
        [1],
        [1, "x", None],
        ["a", "a"],
        {"a": 1},
        [0.5] * 300,
        [math.nan, 1.0],
        deep(30),
        deep(70),
        deep(150),
    )
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every node of plain data stands."""
    found = [here]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, (*here, key))
    elif isinstance(value, list):
        for k, inner in enumerate(value[:20]):
            found += paths(inner, (*here, k))
    return found


def mutate(rng: Rng, value: Any, most: int = 3) -> Any:
    """Plain data with one to `most` of its nodes replaced, dropped, renamed, repeated, wrapped
    or exchanged.
    """
    value = copy.deepcopy(value)
    for _ in range(rng.integers(1, most + 1)):
        found = paths(value)
        where = found[rng.integers(len(found))]
        if not where:
            if rng.integers(40) == 0:
                return odd(rng)
            continue
        holder = value
        for key in where[:-1]:
            holder = holder[key]
        key, kind = where[-1], rng.integers(8)
        if kind < 4:
            holder[key] = odd(rng)
        elif kind == 4:
            del holder[key]
        elif kind == 5 and isinstance(holder, dict):
            holder[str(odd(rng))[:300] if rng.integers(2) else f"{key}x"] = holder.pop(key)
        elif kind == 6:
            holder[key] = [holder[key]] if rng.integers(2) else {str(key): holder[key]}
        else:
            others = [other for other in found if other and other != where]
            if others:
                other: Any = value
                for step in others[rng.integers(len(others))]:
                    other = other[step]
                holder[key] = copy.deepcopy(other)
    return value


def scramble(rng: Rng, data: bytes, most: int = 4, *, text: bool = False) -> bytes:
    """Bytes with one to `most` bits turned, parts cut, doubled or replaced, and odd words put in.

    With `text` most of what comes out is still text.
    """
    text = text and rng.integers(6) > 0
    out = bytearray(data)
    for _ in range(rng.integers(1, most + 1)):
        if not out:
            break
        at, end = sorted(int(k) for k in rng.integers(len(out) + 1, size=2))
        kind = rng.integers(7)
        if kind < 2:
            out[min(at, len(out) - 1)] ^= 1 << int(rng.integers(5 if text else 8))
        elif kind == 2:
            del out[at : min(end, at + int(rng.integers(1, 64)))]
        elif kind == 3:
            token = _TOKENS[rng.integers(len(_TOKENS))]
            out[at:at] = token.decode("utf-8", "ignore").encode() if text else token
        elif kind == 4:
            out[end:end] = out[at : at + int(rng.integers(1, 256))]
        elif kind == 5 and rng.integers(3) == 0:
            del out[at:]
        else:
            width = min(len(out) - at, int(rng.integers(1, 16)))
            out[at : at + width] = (
                bytes(rng.integers(32, 127, width).tolist()) if text else rng.bytes(width)
            )
    return bytes(out)


def toml(value: Any) -> str:
    """Plain data as TOML; what TOML cannot say is left out."""
    if not isinstance(value, dict):
        return _toml(value)
    return "".join(
        f"{_text(key)} = {_toml(inner)}\n" for key, inner in value.items() if inner is not None
    )


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(_toml(inner) for inner in value if inner is not None)}]"
    if isinstance(value, dict):
        return (
            f"{{ "
            f"{', '.join(f'{_text(k)} = {_toml(v)}' for k, v in value.items() if v is not None)} }}"
        )
    return _text(str(value))


def _text(text: object) -> str:
    return json.dumps(str(text).encode("utf-8", "replace").decode())


def database(rng: Rng, path: Path, tables: tuple[str, ...]) -> None:
    """Edit a SQLite file as a program could: other values, other types, missing rows, missing
    tables.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        with contextlib.suppress(sqlite3.Error):
            for _ in range(rng.integers(1, 4)):
                table = tables[rng.integers(len(tables))]
                names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")] or ["none"]
                name, kind = names[rng.integers(len(names))], rng.integers(6)
                if kind < 3:
                    value = odd(rng)
                    plain = (
                        value
                        if isinstance(value, str | float | None)
                        else rng.bytes(8)
                        if rng.integers(2)
                        else 7
                    )
                    db.execute(f"UPDATE {table} SET {name} = ?", (plain,))
                elif kind == 3:
                    db.execute(f"DELETE FROM {table}")
                elif kind == 4:
                    db.execute(f"DROP TABLE {table}")
                else:
                    db.execute(
                        ("PRAGMA user_version = 7", "PRAGMA application_id = 7")[rng.integers(2)]
                    )


def chain(rng: Rng, path: Path) -> None:
    """Change a record and forge every hash after it: the chain is sound, and what it says is
    not.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        (head,) = (
            personalised_hash(file_id) for (file_id,) in db.execute("SELECT file_id FROM meta")
        )
        found = db.execute("SELECT id, body FROM log ORDER BY id").fetchall()
        target = int(rng.integers(len(found)))
        for k, (number, body) in enumerate(found):
            if k == target:
                changed = mutate(rng, json.loads(body))
                try:
                    body = canonical_json(changed)
                except (SottovoceError, RecursionError):
                    body = json.dumps(changed)
                body = body.encode("utf-8", "replace").decode()
            head = hash_of_record(head, number, body)
            db.execute("UPDATE log SET body = ?, hash = ? WHERE id = ?", (body, head, number))
        db.execute("UPDATE meta SET head = ?", (head,))
