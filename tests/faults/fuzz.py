"""Damaged, foreign and hostile files, and what the commands say of them.

``python tests/faults/fuzz.py [--inputs 2400] [--seed 0] [--only TARGET] [--first I] [--keep DIR]
[--quick] [--json]``

Sound files are mutated (``_mutations.py``) and given to the command line or to the reader that a
site uses.  Of every input: no exception but this library's own; an exit code of 0 or 2 (3 where a
person must look); one line of error, of bounded length, in which nothing can steer a terminal; no
canary (every value of the private rows is one); and after a refusal the ledger's head is what it
was.  Input I of a seed is always the same, so that ``--first I --inputs 1`` repeats it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import csv
import gzip
import io
import json
import lzma
import os
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from _mutations import STEERS, Rng, chain, database, mutate, odd, scramble, toml  # noqa: E402

from sottovoce.cli import main as sottovoce  # noqa: E402
from sottovoce.data import Schema  # noqa: E402
from sottovoce.data.memmap import map_rows, write_rows  # noqa: E402
from sottovoce.deploy import messages  # noqa: E402
from sottovoce.deploy.hublog import HubLog  # noqa: E402
from sottovoce.deploy.keys import SigningKey  # noqa: E402
from sottovoce.deploy.members import Member  # noqa: E402
from sottovoce.deploy.plan import Plan  # noqa: E402
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file  # noqa: E402
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan  # noqa: E402
from sottovoce.deploy.settings import SiteSettings, write_settings  # noqa: E402
from sottovoce.errors import SottovoceError  # noqa: E402
from sottovoce.ledger.durable import DurableLedger  # noqa: E402
from sottovoce.ledger.journal import Journal  # noqa: E402
from sottovoce.runs.config import RunConfig  # noqa: E402
from sottovoce.util.files import pack_arrays, parse_bounded_json, read_packed_arrays  # noqa: E402
from sottovoce.util.plain import canonical_json, personalised_hash  # noqa: E402
from sottovoce_papers.studies.spec import parse  # noqa: E402

SECONDS, MEMORY = 60, 3 * 2**30
"""An input that takes longer has failed, and so has a run that takes more bytes."""
ROWS = 40
HEADER = ("age", "dose", "ward", "name", "outcome")
SCHEMA: dict[str, Any] = {
    "name": "clinic",
    "intercept": True,
    "ignore": ["name"],
    "na": ["?"],
    "label": {"column": "outcome", "positive": "sick", "negative": "well"},
    "columns": {
        "age": {"kind": "bins", "edges": [0, 3000, 6000, 9000], "missing": 1},
        "dose": {"kind": "number", "lo": 0, "hi": 10000, "to": "[0,1]"},
        "ward": {"kind": "category", "values": ["icu", "surgery"], "other": True},
        "both": {"kind": "pairs", "of": ["dose", "ward"]},
        "turn": {"kind": "squares", "of": ["dose"]},
        "waves": {"kind": "fourier", "of": ["*"], "features": 2, "bandwidth": 1.0},
        "curve": {"kind": "spline", "column": "dose", "knots": [0, 5000, 10000], "degree": 1},
    },
}
NAMED = ("--method", "mr_admm")  # else every input would cost the search for a method
BUDGET = (*NAMED, "--pure", "--epsilon", "50")
SMALL = (
    "--pure",
    "--nodes",
    "2",
    "--epsilon",
    "50",
    "--rounds",
    "1",
    "--method",
    "output",
    "--rho",
    "0.1",
)
STUDY: dict[str, Any] = {
    "title": "A study",
    "kind": "training.run",
    "replicates": 2,
    "seed": 0,
    "fixed": {"rounds": 3},
    "grid": {"method": ["dvp", "mr_admm"], "epsilon": [1.0, 2.0]},
    "cells": [{"alpha": 1.0, "without": ["epsilon"]}],
    "quick": {"replicates": 1, "fixed": {"rounds": 1}},
    "columns": {"loss": "the loss"},
    "differs": ["nothing"],
    "figures": [
        {
            "name": "loss",
            "title": "Loss",
            "kind": "line",
            "x": "round",
            "y": "loss",
            "series": "method",
            "log": ["x"],
            "references": [{"y": 0.5, "label": "chance"}],
            "filter": {"round": "last"},
        }
    ],
    "claims": [
        {
            "says": "It falls.",
            "test": "falls",
            "value": "loss",
            "x": "round",
            "by": ["method"],
            "proved": {},
        }
    ],
}


def rows(rng: Rng) -> list[list[str]]:
    """A table of which every value but the label is a canary: unlike anything that a message has
    reason to say.
    """
    ages, doses = rng.uniform(1000, 9000, ROWS), rng.uniform(1000, 9000, ROWS)
    names = ["".join(chr(97 + k) for k in rng.integers(26, size=9)) for _ in range(2 * ROWS)]
    return [
        [
            f"{ages[k]:.4f}",
            f"{doses[k]:.4f}",
            f"w{names[k]}",
            f"n{names[ROWS + k]}",
            ("sick", "well")[k % 2],
        ]
        for k in range(ROWS)
    ]


@dataclass
class Fixture:
    """Sound files, made once, and the canaries in them."""

    home: Path
    table: list[list[str]]
    files: dict[str, bytes] = field(default_factory=dict)
    keys: dict[str, SigningKey] = field(default_factory=dict)

    @property
    def canaries(self) -> list[str]:
        return [value for row in self.table for value in row[:4]]

    def csv(self) -> bytes:
        return "\n".join(",".join(row) for row in [HEADER, *self.table]).encode() + b"\n"


def make(home: Path) -> Fixture:
    """Make the sound files by the commands themselves."""
    made = Fixture(home, rows(np.random.default_rng(20_261_121)))
    os.chdir(home)
    (home / "t.csv").write_bytes(made.csv())
    (home / "s.toml").write_text(toml(SCHEMA))
    columns = {name: [row[k] for row in made.table] for k, name in enumerate(HEADER)}
    numbers = {name: [float(v) for v in columns[name]] for name in ("age", "dose")}
    pq.write_table(pa.table(columns | numbers), home / "t.parquet")
    for command in (
        ("ledger", "init", "l.ledger", "--epsilon", "900", "--nodes", "2"),
        ("ledger", "init", "fresh.ledger", "--epsilon", "900", "--nodes", "2"),
        (
            "train",
            "--data",
            "t.csv",
            "--schema",
            "s.toml",
            *SMALL,
            "--save",
            "run.npz",
            "--checkpoint",
            "half.npz",
        ),
        (
            "train",
            "--data",
            "t.csv",
            "--schema",
            "s.toml",
            *SMALL,
            "--system-noise",
            "--ledger",
            "l.ledger",
            "--run",
            "one",
        ),
    ):
        said = call(command)
        if said.code != 0:
            raise SystemExit(f"a sound input was refused: {said}")
    names = ("north", "east")
    made.keys = {name: SigningKey.make() for name in names}
    members = [Member(name, ROWS, made.keys[name].public) for name in names]
    settings = RunConfig(method="dvp", epsilon=50.0, rounds=3, seed=None, rho=0.1, graph="path")
    schema = Schema.from_dict(SCHEMA)
    plan = make_calibrated_plan(
        Proposal("trial", settings, members, schema.n_features, schema=schema.to_dict())
    )
    write_plan_file(plan, home / "plan.json")
    (home / "north.public.json").write_text(
        json.dumps({"name": "north", "rows": ROWS, "key": made.keys["north"].public})
    )
    (home / "east.public.json").write_text(
        json.dumps({"name": "east", "rows": ROWS, "key": made.keys["east"].public})
    )
    write_settings(home, "north", "hub.example.org:8443", home / "t.csv", home / "s.toml")
    signed = np.random.default_rng(1).uniform(-0.3, 0.3, (ROWS, 4))
    write_rows(home / "mapped", [(0, signed, np.where(np.arange(ROWS) % 2, 1.0, -1.0))])
    with HubLog(home / "hub.log") as log:
        for name in names:
            for k in range(3):
                log.store_message("trial", k, name, sealed(made, plan, name, k))
    DurableLedger.create(home / "j.ledger", epsilon=900.0).close()
    with DurableLedger.open(home / "j.ledger") as ledger:
        ledger.reserve("trial", plan.digest, plan.planned_privacy.events("north"))
        journal = Journal(ledger, "trial")
        journal.store_message(0, b"a greeting")
        journal.store_inbox(0, b"an inbox")
        journal.store_message(1, b"a release")
    (home / "net.txt").write_text("# a net\n0 1\n1 2\n2 3\n")
    made.files = {file.name: file.read_bytes() for file in home.iterdir() if file.is_file()}
    return made


def sealed(made: Fixture, plan: Plan, name: str, k: int) -> bytes:
    payload = np.zeros(0 if k == 0 else plan.d) + 0.25
    return messages.Message(
        plan.run, plan.digest, k, name, "hello" if k == 0 else "release", payload
    ).to_signed_bytes(made.keys[name])


@dataclass(frozen=True)
class Said:
    """What a command answered; `error` is an exception that nobody meant."""

    code: int
    out: str = ""
    err: str = ""
    error: str = ""


def call(command: tuple[str, ...]) -> Said:
    """Run a command in this process."""
    out, err, code, error = io.StringIO(), io.StringIO(), 0, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            sottovoce(list(command))
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            error = traceback.format_exc()
    return Said(code, out.getvalue(), err.getvalue(), error)


def attempt(job: Callable[[], object]) -> Said:
    """Run a reader in this process, as the command line would."""
    try:
        job()
    except SottovoceError as refused:
        return Said(2, "", f"error: {refused}\n")
    except BaseException:
        return Said(0, "", "", traceback.format_exc())
    return Said(0)


# Targets: each mutates a sound file and says what becomes of it


def train(data: str = "t.csv", ledger: str = "fresh.ledger") -> Said:
    knobs = (*SMALL, "--system-noise", "--ledger", ledger, "--run", "two", "--json")
    return call(("train", "--data", data, "--schema", "s.toml", *knobs))


def csv_table(rng: Rng, made: Fixture) -> Said:
    data = made.csv()
    if rng.integers(2):
        table = [list(HEADER), *[list(row) for row in made.table]]
        for _ in range(rng.integers(1, 4)):
            where = int(rng.integers(len(table))) if rng.integers(3) else 0
            row = table[where]
            k = int(rng.integers(max(1, len(row))))
            kind = rng.integers(4)
            if kind < 2 and row:  # a value in the header would be the name of a column
                values = made.table[rng.integers(ROWS)]
                row[k] = (
                    str(odd(rng))[:2000]
                    if where == 0 or rng.integers(3)
                    else values[rng.integers(4)]
                )
            elif kind == 2 and row:
                del row[k]
            else:
                row.insert(k, str(odd(rng))[:200])
        text = io.StringIO()
        if rng.integers(4):
            csv.writer(text).writerows(table)
        else:
            text.write("\n".join(map(",".join, table)))
        data = text.getvalue().encode("utf-8", "replace")
    else:
        data = scramble(rng, data, text=True)
    name, packer = (("t.csv", bytes), ("t.csv.gz", gzip.compress), ("t.csv.xz", lzma.compress))[
        rng.integers(3)
    ]
    packed = packer(data)
    (made.home / name).write_bytes(
        scramble(rng, packed) if name != "t.csv" and rng.integers(2) else packed
    )
    return train(name)


def parquet_table(rng: Rng, made: Fixture) -> Said:
    place = made.home / "t.parquet"
    if rng.integers(2):
        place.write_bytes(scramble(rng, made.files["t.parquet"]))
        return train("t.parquet")
    columns: dict[str, Any] = {}
    kinds = (
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.bool_(),
        pa.timestamp("ms"),
        pa.decimal128(20, 4),
        pa.binary(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.null(),
        pa.list_(pa.int32()),
        pa.date32(),
        pa.large_string(),
    )
    for k, name in enumerate(HEADER):
        values: list[Any] = [row[k] for row in made.table]
        column = pa.array(values)
        if rng.integers(3) == 0:
            kind = kinds[rng.integers(len(kinds))]
            with contextlib.suppress(pa.ArrowException, TypeError, ValueError):
                plain = [int(rng.integers(100)) if rng.integers(4) else None for _ in values]
                column = pa.array([[v] if pa.types.is_list(kind) else v for v in plain]).cast(kind)
        elif rng.integers(6) == 0:
            column = pa.array([float("nan")] * ROWS)
        columns[name if rng.integers(10) else str(odd(rng))[:100]] = column
    pq.write_table(pa.table(columns), place)
    return train("t.parquet")


def schema(rng: Rng, made: Fixture) -> Said:
    text = (
        toml(mutate(rng, SCHEMA)).encode()
        if rng.integers(3)
        else scramble(rng, made.files["s.toml"], text=True)
    )
    (made.home / "s.toml").write_bytes(text)
    return train()


def plan_file(rng: Rng, made: Fixture) -> Said:
    if rng.integers(4) == 0:
        (made.home / "plan.json").write_bytes(scramble(rng, made.files["plan.json"], text=True))
    else:
        plain = json.loads(made.files["plan.json"])
        stated = plain.pop("digest")
        plain = mutate(rng, plain)
        if isinstance(plain, dict) and rng.integers(8):
            text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
            # as another program may have written it
            stated = personalised_hash(b"plan", text.encode()).hex()
            plain |= {"digest": stated}
        (made.home / "plan.json").write_text(json.dumps(plain))
    return attempt(
        lambda: [
            read_plan_file(made.home / "plan.json").planned_privacy.events(name)
            for name in ("north", "east")
        ]
    )


def plan_members(rng: Rng, made: Fixture) -> Said:
    member = json.loads(made.files["north.public.json"])
    text = (
        scramble(rng, made.files["north.public.json"], text=True)
        if rng.integers(3) == 0
        else json.dumps(mutate(rng, member)).encode()
    )
    (made.home / "north.public.json").write_bytes(text)
    sites = ("--site", "north.public.json", "--site", "east.public.json")
    return call(
        (
            "plan",
            "--write",
            "new.json",
            "--run",
            "trial",
            "--schema",
            "s.toml",
            *sites,
            *BUDGET,
            "--json",
        )
    )


def arguments(rng: Rng, made: Fixture) -> Said:
    """Knobs of `plan` and `train`; the large ones that are allowed take their time and are left
    out.
    """
    names = (
        "--method",
        "--rounds",
        "--epsilon",
        "--delta",
        "--form",
        "--graph",
        "--rho",
        "--eta",
        "--partition",
    )
    settings = (
        "accountant",
        "sites_per_row",
        "relation",
        "noise",
        "noise_growth",
        "loss",
        "C",
        "eta_growth",
        "gamma",
        "phi",
        "law",
        "batches",
        "positives",
        "threshold",
        "tol",
        "",
    )
    words = (
        "",
        "nan",
        "inf",
        "-inf",
        "-1",
        "0",
        "1e308",
        "1e-308",
        "9" * 400,
        "9" * 5000,
        STEERS,
        "ring:",
        "grid:2x",
        "edges:",
        "erdos-renyi:p=nan",
        "watts-strogatz:k=1e9",
        "huber:nan",
        "softmax:3",
        "softmax:-1",
        "auto",
        "printed",
        "zero-out",
        "gaussian",
        "best",
        "pld",
        "rdp:0",
        "rdp:1e9",
        "zcdp",
        "1,2",
        "1,2,3,4,5",
        "2",
        "dirichlet:1e-9",
        "site:",
        "0x10",
        "1_000",
        "\u0663",
        "true",
        "None",
        "dvp",
        "pvp",
        "central_sgd",
        "ipp_admm",
        "0.5",
        "1e-5",
    )
    knobs = []
    for _ in range(rng.integers(1, 4)):
        word = words[rng.integers(len(words))]
        if rng.integers(2):
            knobs += ["--set", f"{settings[rng.integers(len(settings))]}={word}"]
        else:
            knobs += [names[rng.integers(len(names))], word]
    if rng.integers(2):
        return call(
            (
                "train",
                "--data",
                "synthetic:n=60,d=3",
                "--nodes",
                "3",
                "--rounds",
                "2",
                *NAMED,
                *knobs,
                "--json",
            )
        )
    if "--partition" in knobs:
        knobs[knobs.index("--partition")] = "--features"
    return call(
        ("plan", "--sizes", "500", "--nodes", "3", "--rounds", "2", *NAMED, *knobs, "--json")
    )


def ledger_file(rng: Rng, made: Fixture) -> Said:
    name = ("l.ledger", "j.ledger")[rng.integers(2)]
    path, kind = made.home / name, rng.integers(3)
    if kind == 0:
        path.write_bytes(scramble(rng, made.files[name], 8))
    elif kind == 1:
        database(rng, path, ("meta", "log", "payload"))
    else:
        chain(rng, path)
    how = rng.integers(4)
    if how == 0 and name == "l.ledger":
        return train(ledger=name)
    return call(("ledger", ("show", "verify", "show")[how % 3], name))


def saved_run(rng: Rng, made: Fixture) -> Said:
    path = made.home / "run.npz"
    path.write_bytes(npz(rng, made.files["run.npz"]))
    return call(("predict", "run.npz", "new.csv"))


def checkpoint(rng: Rng, made: Fixture) -> Said:
    path = made.home / "half.npz"
    path.write_bytes(npz(rng, made.files["half.npz"]))
    return call(
        (
            "train",
            "--data",
            "t.csv",
            "--schema",
            "s.toml",
            *SMALL,
            "--checkpoint",
            "half.npz",
            "--json",
        )
    )


def npz(rng: Rng, whole: bytes) -> bytes:
    if rng.integers(3) == 0:
        return scramble(rng, whole)
    with tempfile.NamedTemporaryFile() as file:
        file.write(whole)
        file.flush()
        arrays: dict[str, Any] = read_packed_arrays(file.name)
    if rng.integers(2):
        meta = mutate(rng, parse_bounded_json(str(arrays["meta"]), infinite=True))
        arrays["meta"] = np.array(json.dumps(meta))
    else:
        name = list(arrays)[rng.integers(len(arrays))]
        array = arrays[name]
        others = (
            np.zeros(0),
            np.zeros((3, 3)),
            np.array("x"),
            array.astype("U"),
            array[None],
            np.array(7),
            np.array([np.nan]),
        )
        arrays[name] = others[rng.integers(len(others))]
        if rng.integers(4) == 0:
            del arrays[name]
    if rng.integers(5) == 0:
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return file.getvalue()
    return bytes(pack_arrays(**arrays))


def message(rng: Rng, made: Fixture) -> Said:
    plan = read_plan_file(made.home / "plan.json")
    name, k = ("north", "east")[rng.integers(2)], int(rng.integers(4))
    last = rng.integers(3) == 0
    farewell = messages.Farewell(plan.run, plan.digest, k, name, "done").to_signed_bytes(
        made.keys[name]
    )
    whole = farewell if last else sealed(made, plan, name, k)
    if rng.integers(3) == 0:
        data = scramble(rng, whole)
    else:
        body = json.loads(whole)
        body.pop("sig")
        body = mutate(rng, body)
        if isinstance(body, dict):
            with contextlib.suppress(SottovoceError, RecursionError):
                domain = b"sottovoce farewell 1\n" if last else b"sottovoce message 1\n"
                signed = made.keys[name].sign(
                    domain + canonical_json(body).encode("utf-8", "replace")
                )
                body["sig"] = base64.b64encode(signed).decode()
        try:
            data = canonical_json(body).encode("utf-8", "replace")
        except (SottovoceError, RecursionError):
            data = json.dumps(body).encode()
    reader = messages.read_farewell if last else messages.read_message
    return attempt(lambda: reader(plan, data, name, k))


def hub_log(rng: Rng, made: Fixture) -> Said:
    path = made.home / "hub.log"
    if rng.integers(2):
        path.write_bytes(scramble(rng, made.files["hub.log"], 8))
    else:
        database(rng, path, ("message", "gone", "ended"))
    return call(("hub", "status", ".", "--json") if rng.integers(2) else ("hub", "status", "."))


def study(rng: Rng, made: Fixture) -> Said:
    text = (
        toml(mutate(rng, STUDY))
        if rng.integers(3)
        else scramble(rng, toml(STUDY).encode(), text=True).decode("utf-8", "replace")
    )
    return attempt(lambda: (parse(text, "mine").points(), parse(text, "mine").quickly().points()))


def settings(rng: Rng, made: Fixture) -> Said:
    (made.home / "site.toml").write_bytes(scramble(rng, made.files["site.toml"], text=True))
    return attempt(lambda: SiteSettings.read(made.home / "site.toml"))


def mapped(rng: Rng, made: Fixture) -> Said:
    place = made.home / "mapped" / "rows.json"
    whole = place.read_bytes()
    try:
        text = (
            scramble(rng, whole, text=True)
            if rng.integers(2)
            else json.dumps(mutate(rng, json.loads(whole))).encode()
        )
        place.write_bytes(text)
        return attempt(lambda: map_rows(made.home / "mapped"))
    finally:
        place.write_bytes(whole)


def edge_list(rng: Rng, made: Fixture) -> Said:
    (made.home / "net.txt").write_bytes(scramble(rng, made.files["net.txt"], text=True))
    return call(
        (
            "plan",
            *NAMED,
            "--nodes",
            "4",
            "--sizes",
            "500",
            "--rounds",
            "1",
            "--graph",
            "edges:net.txt",
            "--json",
        )
    )


TARGETS: dict[str, tuple[int, Callable[[Rng, Fixture], Said]]] = {  # how many of a hundred inputs
    "csv": (14, csv_table),
    "parquet": (9, parquet_table),
    "schema": (14, schema),
    "plan": (10, plan_file),
    "member": (4, plan_members),
    "arguments": (9, arguments),
    "ledger": (10, ledger_file),
    "saved run": (7, saved_run),
    "checkpoint": (5, checkpoint),
    "message": (8, message),
    "hub.log": (3, hub_log),
    "study": (3, study),
    "settings": (2, settings),
    "mapped": (1, mapped),
    "edges": (1, edge_list),
}
ORDER = [name for name, (many, _) in TARGETS.items() for _ in range(many)]


def head(path: Path) -> object:
    """What the ledger's file says was written, without this library."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute("SELECT records, head FROM meta").fetchone()


def judge(made: Fixture, name: str, said: Said, before: object) -> list[str]:
    """What is wrong with an answer."""
    wrong, everything = [], said.out + said.err
    if said.error:
        wrong.append("exception: " + said.error.strip().splitlines()[-1][:300])
    if said.code not in ((0, 2, 3) if name in ("hub.log", "message") else (0, 2)):
        wrong.append(f"exit code {said.code}")
    lines = said.err.splitlines()
    # The state of a hub with an alarm is an answer, though its exit code is not 0.
    refused = bool(said.code) and not (
        name == "hub.log" and said.code == 3 and said.out and not said.err
    )
    usage = bool(lines) and lines[0].startswith("Usage: ") and lines[-1].startswith("Error: ")
    if said.code == 0 and not all(line.startswith("Note: ") for line in lines):
        wrong.append("speaks on standard error though all is well")
    if (
        refused
        and not usage
        and (len(lines) != 1 or not lines[0].startswith("error: ") or len(lines[0]) > 2100)
    ):
        wrong.append(f"{len(lines)} lines of error")
    if refused and said.out:
        wrong.append("an answer beside an error")
    if not all(line.isprintable() for line in everything.splitlines()):
        wrong.append("control characters")
    if shown := [value for value in made.canaries if value in everything]:
        wrong.append(f"shows {len(shown)} values of the rows")
    if said.code and head(made.home / "fresh.ledger") != before:
        wrong.append("spent though it refused")
    return wrong


def restore(made: Fixture) -> None:
    """Sound files again, and no others."""
    for file in made.home.iterdir():
        if file.is_file() and file.name not in made.files:
            file.unlink()
    for name, data in made.files.items():
        if (made.home / name).read_bytes() != data:
            (made.home / name).write_bytes(data)


def run(
    made: Fixture, seed: int, numbers: range, only: str | None, keep: Path | None
) -> dict[str, Any]:
    """Try inputs, and count."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in TARGETS}
    failures: list[dict[str, Any]] = []

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    signal.signal(signal.SIGALRM, late)
    for i in numbers:
        rng = np.random.default_rng([seed, i])
        name = only or ORDER[rng.integers(len(ORDER))]
        restore(made)
        before = head(made.home / "fresh.ledger")
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                said = TARGETS[name][1](rng, made)
        finally:
            signal.alarm(0)
        wrong = judge(made, name, said, before)
        counts[name]["inputs"] += 1
        counts[name]["refused" if said.code else "accepted"] += 1
        if wrong:
            counts[name]["failed"] += 1
            failures.append(
                {
                    "input": i,
                    "target": name,
                    "wrong": wrong,
                    "said": said.err[-600:],
                    "error": said.error[-1500:],
                }
            )
            if keep is not None:
                shutil.copytree(made.home, keep / f"{seed}-{i}", dirs_exist_ok=True)
    return {
        "targets": {name: dict(count) for name, count in counts.items() if count},
        "failures": failures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", choices=TARGETS, help="one target")
    parser.add_argument(
        "--keep", type=Path, help="a folder that gets the files of every input that failed"
    )
    parser.add_argument("--quick", action="store_true", help="300 inputs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    started, many = time.perf_counter(), 300 if given.quick else given.inputs
    keep = None if given.keep is None else given.keep.resolve()
    os.environ["COLUMNS"] = "200"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        made = make(home)
        (home / "new.csv").write_bytes(made.csv())
        made.files["new.csv"] = made.csv()
        report = run(made, given.seed, range(given.first, given.first + many), given.only, keep)
        os.chdir("/")
    report |= {"inputs": many, "seed": given.seed, "seconds": round(time.perf_counter() - started)}
    report["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if report["memory_mib"] * 2**20 > MEMORY:
        report["failures"].append({"wrong": [f"took more than {MEMORY:,} bytes"]})
    if given.json:
        print(json.dumps(report))
    else:
        print(f"{'target':12} {'inputs':>7} {'accepted':>9} {'refused':>8} {'failed':>7}")
        for name, count in report["targets"].items():
            print(
                f"{name:12} {count['inputs']:7} "
                + " ".join(
                    f"{count.get(what, 0):{w}}"
                    for what, w in (("accepted", 9), ("refused", 8), ("failed", 7))
                )
            )
        for failure in report["failures"]:
            print(json.dumps(failure))
        print(
            f"{many} inputs of seed {given.seed}, {report['seconds']} s, {report['memory_mib']} "
            "MiB at most"
        )
    if report["failures"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
