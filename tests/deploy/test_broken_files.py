"""Full disks, and files that somebody has damaged, mixed up or made up: one line, exit 2, and
nothing half-written.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_in_tests import consortium, rewrite, settle

from sottovoce.cli import main
from sottovoce.data.schema import Schema
from sottovoce.deploy import certificates
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.settings import SiteSettings, write_settings
from sottovoce.deploy.strict import NotStrict, parse_json
from sottovoce.errors import InvalidInput, NotWritten, Refused, SottovoceError
from sottovoce.ledger.durable import DurableLedger
from sottovoce.util import files as writing
from sottovoce.util.plain import canonical_json

pytest.importorskip("cryptography")

SCHEMA = """\
label = {column = "ill", positive = "yes", negative = "no"}
[columns.age]
kind = "number"
lo = 0
hi = 100
"""
# Runs commands in a process whose files cannot grow beyond some size, as on a full disk.
_FULL = """
import contextlib, io, json, resource, sys
from sottovoce.cli import main
from sottovoce.data.schema import Schema
for line in sys.stdin:
    size, arguments = json.loads(line)
    out, err, code = io.StringIO(), io.StringIO(), 0
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
    except SystemExit as stop:
        code = stop.code
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(json.dumps([code, err.getvalue()]), flush=True)
"""


@pytest.fixture
def full() -> Any:
    """``full(bytes, command...)`` gives exit code and what was said."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FULL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None and process.stdout is not None

    def call(size: int, *arguments: object) -> tuple[int, str]:
        print(
            json.dumps([size, [str(argument) for argument in arguments]]),
            file=process.stdin,
            flush=True,
        )
        code, said = json.loads(process.stdout.readline())
        return int(code or 0), said

    yield call
    process.stdin.close()
    process.stdout.close()
    process.wait(60.0)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def one_line(said: str) -> bool:
    return (
        said.startswith("error: ")
        and said.count("\n") == 1
        and said.endswith("\n")
        and said[:-1].isprintable()
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_full_disk_leaves_no_partial_site(tmp_path: Path, full: Any) -> None:
    (tmp_path / "rows.csv").write_text("age,ill\n" + "30,yes\n60,no\n" * 5)
    (tmp_path / "s.toml").write_text(SCHEMA)
    init = (
        "site",
        "init",
        tmp_path / "north",
        "--name",
        "north",
        "--hub",
        "h:1",
        "--data",
        tmp_path / "rows.csv",
        "--schema",
        tmp_path / "s.toml",
        "--epsilon",
        "1",
    )
    before = files(tmp_path)
    for size in (0, 100, 4096):
        code, said = full(size, *init)
        assert code == 2 and one_line(said) and "cannot be written" in said, (code, said)
        assert files(tmp_path) == before and not (tmp_path / "north").exists()
    (tmp_path / "north").mkdir()  # a folder that was there stays
    assert full(100, *init)[0] == 2 and (tmp_path / "north").exists() and files(tmp_path) == before
    assert full(2**30, *init) == (0, "")
    made = files(tmp_path)
    for command in (
        ("site", "renew", tmp_path / "north" / "site.toml"),
        ("hub", "init", tmp_path / "hub", "--host", "h"),
    ):
        for size in (0, 100, 300):
            code, said = full(size, *command)
            assert code == 2 and one_line(said) and "cannot be written" in said, (code, said)
            assert files(tmp_path) == made
    assert not (tmp_path / "hub").exists() and not (tmp_path / "north" / "renewal").exists()
    assert full(2**30, "hub", "init", tmp_path / "hub", "--host", "h") == (0, "")
    made, admit = (
        files(tmp_path),
        ("hub", "admit", tmp_path / "hub", tmp_path / "north" / "north.csr"),
    )
    code, said = full(100, *admit)
    assert code == 2 and one_line(said) and "cannot be written" in said and files(tmp_path) == made
    assert full(2**30, *admit) == (0, "")
    plan = (
        "plan",
        "--write",
        tmp_path / "plan.json",
        "--run",
        "trial",
        "--schema",
        tmp_path / "s.toml",
        "--site",
        tmp_path / "north" / "north.public.json",
        "--method",
        "prox_admm",
        "--epsilon",
        "5",
        "--delta",
        "1e-5",
    )
    made = files(tmp_path)
    code, said = full(100, *plan)
    assert code == 2 and one_line(said) and "cannot be written" in said and files(tmp_path) == made
    assert full(2**30, *plan) == (0, "")
    whole = files(tmp_path)
    code, said = full(100, *plan)
    assert code == 2 and files(tmp_path) == whole  # the old plan stands


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
@pytest.mark.parametrize("file", ["html", "npz", "json"])
def test_results_that_find_no_room_are_written_by_the_same_command_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    sites = consortium(tmp_path / "sites", names=("north",), sizes=(60,), graph="complete")
    home = settle(sites, tmp_path / "home")
    found, sync = SiteSettings.read(home / "site.toml"), os.fsync
    write = writing.write_atomically

    def fill(field: str, path: Path, *content: Any) -> None:
        monkeypatch.setattr(os, "fsync", full if Path(path).suffix == f".{file}" else sync)
        write(field, path, *content)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        monkeypatch.setattr(writing, "write_atomically", fill)
        with pytest.raises(NotWritten, match=f"north.{file}.*cannot be written: No space left"):
            found.run_and_write_results(LocalTransport(hub, "north"))
        monkeypatch.undo()
        assert (
            not found.result_file(file).exists()
            and not list(home.glob(".*.tmp"))
            and found.read_final_results() is None
        )
        again = found.run_and_write_results(LocalTransport(hub, "north"))
    assert found.read_final_results() is not None and again.statement_as_dict["made"] == 4


# What others may have written

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    10**20,
    10**39,
    0.5,
    -0.0,
    1e308,
    5e-324,
    "",
    "x",
    "inf",
    "nan",
    "ring",
    "a" * 300,
    "\x1b[2J",
    "\ud800",
    [],
    [[]],
    [1],
    [None] * 3,
    {},
    {"a": 1},
    {"kind": "bins"},
    [[0, 1]],
    [[1, 0]],
    [[0, 10**18]],
    "edges:/dev/zero",
    "erdos-renyi:p=1e-9",
    "softmax:1000000000",
    "huber:1e400",
    "admm",
    "printed",
    "zcdp",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every part of plain data."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """A copy of plain data with another part in one place."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], odd)
    return copy


PLAIN_SCHEMA = {
    "label": {"column": "ill", "positive": "yes", "negative": "no"},
    "intercept": True,
    "columns": {
        "age": {"kind": "number", "lo": 0, "hi": 100},
        "kind": {"kind": "category", "values": ["a", "b"]},
        "w": {"kind": "bins", "edges": [0, 1, 2]},
    },
}


def test_broken_plan_is_reported_in_one_line(tmp_path: Path) -> None:
    """Every part of a plan replaced, under a digest that is right."""
    sites = consortium(tmp_path / "sites", delta=1e-5, method="prox_admm", epsilon=(2.0, 3.0, 2.5))
    schema = Schema.from_dict(PLAIN_SCHEMA)
    plan = make_calibrated_plan(
        Proposal(
            "trial", sites.plan.config, sites.plan.sites, schema.n_features, schema=schema.to_dict()
        )
    )
    plain, path = json.loads(json.dumps(plan.to_dict())), tmp_path / "plan.json"
    rewrite(path, plain)
    assert read_plan_file(path) == plan
    rng, todo = np.random.default_rng(0), [(place, odd) for place in places(plain) for odd in ODD]
    said = []
    for k in rng.permutation(len(todo))[:700]:
        place, odd = todo[k]
        odd_one = changed(plain, place, odd)
        rewrite(path, odd_one if isinstance(odd_one, dict) else {"version": 3, "plan": odd_one})
        try:
            found = read_plan_file(path)
        except InvalidInput as error:
            said.append(str(error))
        else:
            assert json.loads(canonical_json(found.to_dict())) == odd_one
    assert (
        len(said) > 500
        and [line for line in said if not line.isprintable() or len(line) >= 1000] == []
    )


def test_plan_cannot_trigger_file_reads_or_graph_draws(tmp_path: Path) -> None:
    (tmp_path / "edges").write_text("0 1\n1 2\n")
    sites = consortium(tmp_path / "sites", graph=f"edges:{tmp_path / 'edges'}")
    write_plan_file(sites.plan, tmp_path / "plan.json")
    (tmp_path / "edges").unlink()
    plan = read_plan_file(tmp_path / "plan.json")
    assert plan.edges == ((0, 1), (1, 2)) and plan.exchange_table.neighbour_names("north") == (
        "east",
    )
    with HubLog(tmp_path / "hub.log") as log:
        assert {end.outcome.rounds for end in sites.run_locally(log).values()} == {4}
    plain = json.loads(json.dumps(plan.to_dict()))
    for graph in ("edges:/dev/zero", "erdos-renyi:p=1e-300", "watts-strogatz:k=2,p=0.3"):
        rewrite(tmp_path / "plan.json", changed(plain, ("config", "graph"), graph))
        assert read_plan_file(tmp_path / "plan.json").edges == plan.edges
    for place, odd, why in (
        (("config", "graph"), "ring", "^graph='ring': "),
        (("edges",), [[0, 1]], "must be connected"),
        (("edges",), [[1, 0], [1, 2]], "must be sorted"),
        (("edges",), [[0, 1], [1, 2], [1, 2]], "must be sorted"),
        (("edges",), [[0, 1], [1, 3]], "must join nodes"),
        (("config", "noise"), None, "^noise: "),
        (("config", "method"), "central", "curator"),
    ):
        rewrite(tmp_path / "plan.json", changed(plain, place, odd))
        with pytest.raises(InvalidInput, match=why):
            read_plan_file(tmp_path / "plan.json")


DEEP = 100_000
TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON"),
    "NaN": (b'{"a":NaN}', "holds NaN"),
    "Infinity": (b"[-Infinity]", "holds -Infinity"),
    "too large a number": (b"[1e999]", "is not finite"),
    "400 digits": (b"[" + b"1" * 400 + b"]", "more than 100 digits"),
    "5000 digits": (b"[-" + b"1" * 5000 + b"]", "more than 100 digits"),
    "a key twice": (b'{"a":1,"a":2}', "repeats a key"),
    "deep": (b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
    "deeper than a plan": (b'{"a":' * 70 + b"1" + b"}" * 70, "nested too deeply"),
    "too many": (b"[" + b"[]," * 1_000_001 + b"[]]", "more than 1,000,000 lists"),
    "too long": (b" " * 5_000_001, "longer than"),
    "no text": (b"\xff\xfe", "not UTF-8"),
    "half": (b'{"a":', "not JSON"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_json_is_read_strictly(name: str, tmp_path: Path) -> None:
    data, why = TEXTS[name]
    with pytest.raises(NotStrict, match=why):
        parse_json(data, 5_000_000)
    (tmp_path / "plan.json").write_bytes(data)
    with pytest.raises(InvalidInput, match=r"plan file|was changed"):
        read_plan_file(tmp_path / "plan.json")
    (tmp_path / "north.public.json").write_bytes(data)
    with pytest.raises(InvalidInput, match="`site init`"):
        Member.read(tmp_path / "north.public.json")


def test_valid_json_is_read() -> None:
    for value in ([], {}, {"a": [1, -0.5, "é", None, True, {"b": [10**39]}]}, "text", 1e308):
        assert (
            parse_json(json.dumps(value), 1000)
            == value
            == parse_json(json.dumps(value).encode(), 1000)
        )


@pytest.mark.parametrize("name", TEXTS)
def test_messages_are_read_strictly(name: str, tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites")
    data = TEXTS[name][0][:2000]
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        for read in (
            lambda: hub.exchange("east", 0, data, 0.0),
            lambda: hub.record_farewell("east", data),
        ):
            with pytest.raises(Refused, match="another form"):
                read()


def test_broken_message_is_reported_in_one_line(tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites")
    whole = json.loads(sites.sealed("east", 0))
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        for place in places(whole):
            for odd in ODD:
                other = changed(whole, place, odd)
                data = json.dumps(other, sort_keys=True, separators=(",", ":")).encode()
                if other == whole and data == sites.sealed("east", 0):
                    continue
                with pytest.raises(Refused) as caught:
                    hub.exchange("east", 0, data, 0.0)
                assert str(caught.value).isprintable() and len(str(caught.value)) < 1000
        assert log.messages("trial") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name = ",
        "a = " + "[" * 10_000,
        'name = "north"\n',
        "name = 3",
        '[data]\nfile = "x"',
        "\udcff",
        "x = " + "1" * 5000,
    ],
)
def test_broken_settings_are_reported_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput):
        SiteSettings.read(path)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("patience = nan", "patience"),
        ("patience = inf", "patience"),
        ("patience = -1", "patience"),
        ("patience = " + "9" * 90, "patience"),
        ('hub = "a\\u001b"', "hub"),
        ('hub = ""', "hub"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, line: str, field: str) -> None:
    path = write_settings(tmp_path, "north", "h:1", Path("rows.csv"))
    kept = [old for old in path.read_text().splitlines() if not old.startswith(f"{field} ")]
    path.write_text("\n".join([line, *kept]))
    with pytest.raises(InvalidInput, match=field):
        SiteSettings.read(path)


# Keys


def encrypted(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    return bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )


def test_unreadable_key_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own = tmp_path / "north.signing", SigningKey.make()
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: None, "No such file"),
        (lambda: path.mkdir(), "Is a directory"),
        (lambda: path.write_bytes(b""), "not an Ed25519 key"),
        (lambda: path.write_bytes(b"\x00" * 1000), "not an Ed25519 key"),
        (
            lambda: path.write_bytes(
                b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
            ),
            "not an Ed25519",
        ),
        (
            lambda: path.write_bytes(
                certificates.private_key_to_pem(certificates._generate_tls_key())
            ),
            "not an Ed25519 key",
        ),
        (lambda: path.write_bytes(encrypted(own._key)), "is encrypted"),
        (lambda: path.write_bytes(b"x" * 10**6), "has more than 65,536 bytes"),
    ]
    for make, why in cases:
        make()
        with pytest.raises(InvalidInput, match=why):
            SigningKey.read(path)
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
    own.write(path)
    assert SigningKey.read(path).public == own.public
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    with pytest.raises(InvalidInput, match="Permission denied"):
        SigningKey.read(path)


def test_unreadable_tls_file_is_reported_in_one_line(tmp_path: Path) -> None:
    authority = certificates.Authority.make(tmp_path)
    certificates.write_certificate_request(tmp_path, "north")
    certificate = authority.sign_site_request((tmp_path / "north.csr").read_bytes())[1]
    ca, key = (tmp_path / "ca.crt").read_bytes(), (tmp_path / "north.key").read_bytes()
    certificates.check_tls_files("north", ca, certificate, key)
    half = certificate[: len(certificate) // 2]
    for files_of, why in (
        ((ca, half, key), "cannot be read"),
        ((b"", certificate, key), "cannot be read"),
        ((ca, certificate, ca), "cannot be read"),
        ((ca, certificate, encrypted(certificates._generate_tls_key())), "is encrypted"),
        (
            (ca, certificate, certificates.private_key_to_pem(certificates._generate_tls_key())),
            "does not belong",
        ),
        ((certificate, certificate, key), "was not signed"),
    ):
        with pytest.raises(InvalidInput, match=why):
            certificates.check_tls_files("north", *files_of)
    for broken in (
        b"",
        ca,
        half,
        b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    ):
        with pytest.raises(InvalidInput, match=r"^request: "):
            authority.sign_site_request(broken)
    (tmp_path / "ca.key").unlink()
    (tmp_path / "ca.key").write_bytes(encrypted(authority.key))
    with pytest.raises(InvalidInput, match=r"ca\.key cannot"):
        certificates.Authority.read(tmp_path)
    (tmp_path / "ca.key").write_bytes(key)  # of another
    with pytest.raises(InvalidInput, match=r"ca\.key cannot"):
        certificates.Authority.read(tmp_path)


# The hub's log


def foreign(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


OLD = (
    "CREATE TABLE IF NOT EXISTS message (run TEXT NOT NULL, round INTEGER NOT NULL, site TEXT NOT "
    "NULL, "
    "bytes BLOB NOT NULL, PRIMARY KEY (run, round, site)) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS gone (run TEXT NOT NULL, site TEXT NOT NULL, reason TEXT NOT NULL, "
    "PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID",
)
"""The tables of version 0.1."""


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b"some text that is no database at all"),
        lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\x00" * 4000),
        lambda path: path.mkdir(),
        lambda path: foreign(path, "CREATE TABLE message (id INTEGER)"),
        lambda path: foreign(path, "CREATE TABLE other (id INTEGER)"),
        lambda path: foreign(path, "PRAGMA application_id = 77"),
        lambda path: foreign(path, *OLD, "PRAGMA user_version = 9"),
        lambda path: foreign(path, *OLD),
        lambda path: foreign(
            path, f"PRAGMA application_id = {0x736F7468}", "PRAGMA user_version = 2"
        ),
        lambda path: DurableLedger.create(path, epsilon=1.0).close(),
    ],
    ids=[
        "text",
        "zeros",
        "folder",
        "table",
        "another table",
        "application",
        "version",
        "version 0.1",
        "empty",
        "ledger",
    ],
)
def test_foreign_log_is_refused_and_not_modified(
    tmp_path: Path, make: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    sites = consortium(tmp_path / "sites")
    hub = tmp_path / "hub"
    assert main(["hub", "init", str(hub), "--host", "127.0.0.1"]) is None
    write_plan_file(sites.plan, hub / "plan.json")
    make(hub / "hub.log")
    before = files(hub)
    capsys.readouterr()
    for command in (["run", str(hub), "--once"], ["status", str(hub)], ["end", str(hub), "trial"]):
        with pytest.raises(SystemExit) as stop:
            main(["hub", *command])
        said = capsys.readouterr().err
        assert stop.value.code == 2 and one_line(said) and "hub.log" in said, said
    assert {name: data for name, data in files(hub).items() if name != "hub.lock"} == before


@pytest.mark.parametrize("table", ["message", "farewell"])
def test_log_with_messages_outside_plan_is_refused(tmp_path: Path, table: str) -> None:
    sites = consortium(tmp_path / "sites")
    with HubLog(tmp_path / "hub.log") as log:
        if table == "message":
            log.store_message("trial", 0, "east", sites.sealed("north", 0))
        else:
            log.record_farewell("trial", "east", 0, sites.farewell("north", 0))
        with pytest.raises(InvalidInput, match=r"^log: "):
            Hub(sites.plan, log).check_log()


def test_log_damaged_during_use_is_reported_in_one_line(tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites")
    with HubLog(tmp_path / "hub.log") as log:
        log.file.db.execute("DROP TABLE message")
        with pytest.raises(InvalidInput, match=r"hub\.log.*is damaged"):
            log.last("trial", "east")
    with pytest.raises(SottovoceError, match="is closed"):
        log.store_message("trial", 0, "east", sites.sealed("east", 0))
