"""Files and arguments that were made to break something: one line, exit code 2, bounded memory
and time, no trace.
"""

from __future__ import annotations

import gzip
import lzma
import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call, Clinic, write_csv

from sottovoce.data import table as tables
from sottovoce.network.graphs import MOST_EDGES, MOST_NODES, make_graph

# the same bytes in every process, and so the same names of tests
gzipped = partial(gzip.compress, mtime=0)

CSV = "a,y\n" + "".join(f"{k % 10},{k % 2}\n" for k in range(100))
LABEL = 'label = { column = "y", positive = "1" }\n'
NUMBER = 'columns.a = { kind = "number", lo = 0, hi = 10 }\n'
KNOBS = (
    "--method",
    "mr_admm",
    "--pure",
    "--nodes",
    2,
    "--epsilon",
    50,
    "--rounds",
    2,
    "--rho",
    0.1,
    "--eta",
    0.1,
)
SYNTHETIC = ("train", "--data", "synthetic:n=100,d=3")
NINES = "9" * 400


def test_corrupt_and_enormous_archives(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(LABEL + NUMBER)
    packed, other = gzipped(CSV.encode()), lzma.compress(CSV.encode())
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    empty = b"".join([bomb.compress(bytes(2**20)) for _ in range(80)] + [bomb.flush()])
    for name, data in {
        "bits.csv.gz": packed[:20] + bytes(b ^ 255 for b in packed[20:24]) + packed[24:],
        "sum.csv.gz": packed[:-8] + bytes(4) + packed[-4:],
        "cut.csv.gz": packed[:-12],
        "zero.csv.gz": bomb_of(b"1,0\n"),
        "bomb.csv.gz": empty,
        "bits.csv.xz": other[:40] + b"\xff\x00" + other[42:],
        "cut.csv.xz": other[:-20],
        "none.csv.gz": b"",
        "bomb.csv.xz": lzma.compress(bytes(80 * 2**20)),
    }.items():
        (tmp_path / name).write_bytes(data)
        message = refused("train", *KNOBS, "--data", name, "--schema", "s.toml")
        assert name in message and (
            "cannot be read" in message or "times its size" in message or "header" in message
        )


def bomb_of(line: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(
        [packer.compress(line * (2**20 // len(line))) for _ in range(80)] + [packer.flush()]
    )


def test_corrupt_and_enormous_parquet(refused: Callable[..., str], tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "s.toml").write_text(LABEL + NUMBER)
    pq.write_table(pa.table({"a": list(range(100)), "y": [k % 2 for k in range(100)]}), "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    pq.write_table(
        pa.table({"a": np.zeros(2 * 10**7, np.int64), "y": np.zeros(2 * 10**7, np.int64)}),
        "bomb.parquet",
    )
    pq.write_table(
        pa.table({"a": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}), "empty.parquet"
    )
    pq.write_table(pa.table([[1.0], [2.0], [1]], names=["a", "a", "y"]), "twice.parquet")
    pq.write_table(pa.table({"a": pa.array([2**62], pa.timestamp("ms")), "y": [1]}), "date.parquet")
    (tmp_path / "folder.parquet").mkdir()
    for name, data in {
        "cut.parquet": whole[:-40],
        "foreign.parquet": CSV.encode(),
        "none.parquet": b"",
    }.items():
        (tmp_path / name).write_bytes(data)
    for name in ("bomb", "empty", "twice", "folder", "cut", "foreign", "none"):
        assert f"{name}.parquet" in refused(
            "train", *KNOBS, "--data", f"{name}.parquet", "--schema", "s.toml"
        )
    assert "not a number" in refused(
        "train", *KNOBS, "--data", "date.parquet", "--schema", "s.toml"
    )


def test_a_bit_flipped_in_parquet_is_one_line_or_none(run: Call, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "s.toml").write_text(LABEL + NUMBER)
    pq.write_table(
        pa.table({"a": list(range(100)), "y": [str(k % 2) for k in range(100)]}), "t.parquet"
    )
    whole, rng = (tmp_path / "t.parquet").read_bytes(), np.random.default_rng(0)
    for _ in range(40):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        (tmp_path / "t.parquet").write_bytes(data)
        ran = run("train", *KNOBS, "--data", "t.parquet", "--schema", "s.toml", "--json")
        assert (ran.code, ran.err.count("\n")) in ((0, 0), (2, 1)), ran


def test_a_table_that_memory_does_not_hold_is_refused_while_it_is_read(
    refused: Callable[..., str], clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv(clinic.csv, clinic.table * 50)
    monkeypatch.setattr(tables, "machine_memory_bytes", lambda: 64.0 * 5 * 9000)
    message = refused(*clinic.train)
    assert "rows.csv: takes" in message and "GiB of memory" in message
    clinic.says_nothing_private(message)


TOML: dict[str, str] = {
    "deep lists": "a = " + "[" * 5000 + "]" * 5000,
    "deep tables": "a = " + "{a=" * 3000 + "1" + "}" * 3000,
    "deep within the parser": "a = " + "[" * 100 + "]" * 100,
    "a long key": ".".join(["a"] * 300_000) + " = 1",
    "digits": LABEL + NUMBER.replace("10", "1" + "0" * 400),
    "more digits": "a = 1" + "0" * 5000,
    "digits of intercept": f"intercept = {NINES}\n" + LABEL + NUMBER,
    "bytes": "a = '\udcff'",
    "nul": "a = '\0'",
    "many features": LABEL
    + 'columns.a = { kind = "vector", lo = 0, hi = 1, size = 1000000000000 }',
}
TYPES = (
    ('kind = "bins", edges = [0, 1, 2]', ("base", "edges", "column", "weight", "missing")),
    (
        'kind = "number", lo = 0, hi = 1',
        ("lo", "hi", "column", "to", "transform", "weight", "missing"),
    ),
    (
        'kind = "category", values = ["0", "1"]',
        ("values", "other", "base", "column", "weight", "missing"),
    ),
    (
        'kind = "vector", lo = 0, hi = 1, size = 2',
        ("size", "norm", "prefix", "columns", "weight", "missing", "lo"),
    ),
)
WRONG = (
    "[1]",
    "[[1]]",
    "{ a = 1 }",
    "true",
    "1.5",
    "-1",
    '"x"',
    NINES[:90],
    "nan",
    "inf",
    "-inf",
    "1979-05-27",
    '[""]',
)


@pytest.mark.parametrize("case", TOML)
def test_schemas_that_were_made_to_break_something(
    refused: Callable[..., str], tmp_path: Path, case: str
) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    (tmp_path / "s.toml").write_bytes(TOML[case].encode("utf-8", "surrogateescape"))
    message = refused("train", *KNOBS, "--data", "t.csv", "--schema", "s.toml")
    assert len(message) < 1200 and "set_int_max" not in message


@pytest.mark.parametrize(("good", "keys"), TYPES, ids=["bins", "number", "category", "vector"])
def test_schemas_with_entries_of_other_types(
    run: Call, tmp_path: Path, good: str, keys: tuple[str, ...]
) -> None:
    (tmp_path / "t.csv").write_text(
        "a,a0,a1,y\n" + "".join(f"{k % 2},1,0,{k % 2}\n" for k in range(40))
    )
    refusals = 0
    for key in (*keys, "kind", "name", "unheard"):
        for value in WRONG:
            kept = [part for part in split(good) if part.partition(" ")[0] != key]
            text = (
                LABEL
                + f"ignore = ['*']\ncolumns.a = {{ {', '.join([*kept, f'{key} = {value}'])} }}\n"
            )
            (tmp_path / "s.toml").write_text(text)
            ran = run("train", *KNOBS, "--data", "t.csv", "--schema", "s.toml", "--json")
            assert (ran.code, ran.err.count("\n")) in ((0, 0), (2, 1)), (text, ran)
            refusals += ran.code == 2
    assert refusals > 80


def split(entries: str) -> list[str]:
    """``a = [1, 2], b = 3`` in two."""
    parts, depth = [""], 0
    for letter in entries:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    "key", ["label", "ignore", "na", "scale", "intercept", "site", "data_dependent", "note", "name"]
)
def test_schemas_with_facts_of_other_types(run: Call, tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    label = "" if key == "label" else LABEL
    (tmp_path / "s.toml").write_text(f"{key} = {value}\n{label}{NUMBER}")
    ran = run("train", *KNOBS, "--data", "t.csv", "--schema", "s.toml", "--json")
    assert (ran.code, ran.err.count("\n")) in ((0, 0), (2, 1)), ran


def test_pipes_and_folders_in_place_of_files(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(LABEL + NUMBER)
    (tmp_path / "t.csv").write_text(CSV)
    for name in ("pipe.csv", "pipe.toml", "pipe.txt", "pipe.npz", "pipe.parquet", "pipe.csv.gz"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "folder.csv").mkdir()
    for data in ("pipe.csv", "pipe.csv.gz", "pipe.parquet", "folder.csv"):
        refused("train", "--data", data, "--schema", "s.toml")
    for schema in ("pipe.toml", "folder.toml"):
        refused("train", "--data", "t.csv", "--schema", schema)
        refused("study", schema)
    for net in ("pipe.txt", "folder.csv"):
        refused("plan", "--graph", f"edges:{net}")
    refused("predict", "pipe.npz", "t.csv")
    refused(*SYNTHETIC, "--checkpoint", "pipe.npz")


KNOB_VALUES: tuple[tuple[str, object], ...] = (
    ("rounds", NINES),
    ("rounds", 10**9),
    ("nodes", NINES),
    ("replicates", NINES),
    ("replicates", 10**8),
    ("seed", NINES),
    ("sites-per-row", NINES),
    ("graph", f"grid:{'9' * 5000}x1"),
    ("loss", f"softmax:{'9' * 5000}"),
    ("loss", "softmax:999999999"),
    ("C", "1e308"),
    ("rho", "1e308"),
    ("eta", "1e308"),
    ("eta-growth", "1e308"),
    ("noise", "1e-308"),
    ("noise", "1e308"),
    ("epsilon", "1e-308"),
)
ARGUMENTS: dict[str, tuple[object, ...]] = {
    f"{name}-{str(value)[:9]}": (*SYNTHETIC, f"--{name}", value) for name, value in KNOB_VALUES
} | {
    "rounds-nodes": ("plan", "--rounds", 50_000, "--nodes", 10_000),
    "plan-sizes": ("plan", "--sizes", "1e400"),
    "plan-sizes-large": ("plan", "--sizes", "1e300"),
    "plan-features": ("plan", "--features", NINES),
    "plan-nodes": ("plan", "--nodes", NINES),
    "data-n": ("train", "--data", f"synthetic:n={NINES}"),
    "data-digits": ("train", "--data", "synthetic:n=" + "9" * 5000),
    "data-seed": ("train", "--data", "synthetic:n=10,seed=-1"),
    "data-d": ("train", "--data", "synthetic:n=9,d=99999999999"),
    "data-cells": ("train", "--data", "synthetic:n=99999999999,d=1000"),
    "complete": ("plan", "--nodes", 10_000, "--graph", "complete"),
    "never-connected": ("plan", "--nodes", 3000, "--graph", "erdos-renyi:p=0.0001"),
    "many-pairs": ("plan", "--nodes", 50_000, "--graph", "erdos-renyi"),
    "auto-softmax": (*SYNTHETIC, "--method", "auto", "--set", "loss=softmax:2"),
    "auto-softmax-delta": (
        *SYNTHETIC,
        "--method",
        "auto",
        "--set",
        "loss=softmax:3",
        "--delta",
        "1e-5",
    ),
    "plan-softmax": (
        "plan",
        "--method",
        "auto",
        "--set",
        "loss=softmax:2",
        "--features",
        NINES,
        "--delta",
        "1e-5",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_of_impossible_sizes(refused: Callable[..., str], case: str) -> None:
    assert len(refused(*ARGUMENTS[case])) < 1200


def test_edge_lists_that_were_made_to_break_something(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    for text in (
        "0 " + "9" * 5000,
        "0 \u0663\n",
        "0 1\n" * 10 + "x",
        "\ufeff0 1",
        "0 1 2",
        "0 -1",
        "0 1.0",
    ):
        (tmp_path / "net.txt").write_text(text, encoding="utf-8")
        message = refused("plan", "--nodes", 3, "--graph", "edges:net.txt")
        assert "graph=" in message or "edge=" in message
    with (tmp_path / "net.txt").open("wb") as file:
        file.truncate(2**25)
    assert "16,777,216 bytes" in refused("plan", "--nodes", 3, "--graph", "edges:net.txt")


def test_the_largest_graphs_that_are_allowed() -> None:
    ring, whole = make_graph("ring", MOST_NODES), make_graph("complete", 1414)
    assert (
        len(ring.edges) == MOST_NODES
        and ring.degree.min() == ring.degree.max() == 2
        and ring.is_bipartite
    )
    assert len(whole.edges) == 1414 * 1413 // 2 < MOST_EDGES < 1415 * 1414 // 2
    assert whole.neighbours(7) == tuple(k for k in range(1414) if k != 7) and not whole.is_bipartite


def test_a_schema_of_many_edges_is_read_once(run: Call, tmp_path: Path) -> None:
    """A hundred thousand features, and sizes that no machine holds, without a trace."""
    (tmp_path / "t.csv").write_text(CSV)
    edges = ", ".join(map(str, range(100_001)))
    (tmp_path / "s.toml").write_text(
        LABEL + f'columns.a = {{ kind = "bins", edges = [{edges}] }}\n'
    )
    ran = run("train", "--data", "t.csv", "--schema", "s.toml", *KNOBS, "--json")
    assert ran.code == 0 and ran.json["features"] == 100_000
    (tmp_path / "s.toml").write_text(
        LABEL
        + f'columns.a = {{ kind = "bins", edges = [{edges}, {", ".join(["1e9"] * 10**6)}] }}\n'
    )
    assert "1,000,000 features" in run("train", "--data", "t.csv", "--schema", "s.toml").err


FIGURE = '[[figures]]\nname = "x"\ntitle = "x"\nkind = "line"\nx = "a"\ny = "b"\n'
CLAIM = (
    '[[claims]]\nsays = "x"\nvalue = "a"\nof = { a = 1 }\nthan = { a = 2 }\nproved = '
    '{}\ntest = "near"\n'
)
STUDIES: dict[str, str] = {
    "no text": "title = '\udcff'",
    "deep": "a = " + "[" * 5000 + "]" * 5000,
    "log": FIGURE + "log = 5",
    "references": FIGURE + "references = [5]",
    "series": FIGURE + "series = [[1]]",
    "filter": FIGURE + "filter = 5",
    "bins": FIGURE + "bins = 1000000000",
    "within": CLAIM + 'within = "x"',
    "by": CLAIM + "by = [[1]]",
    "quick": "quick = { fixed = 5 }",
    "quick cells": "quick = { cells = 5 }",
    "without": "cells = [{ without = 5 }]\ngrid = { a = [1] }",
    "file": "file = 5",
    "grid": "[grid]\n" + "".join(f"k{i} = {list(range(100))}\n" for i in range(9)),
    "replicates": f"replicates = {NINES[:90]}0.5",
    "differs": "differs = [[1]]",
    "table": "table = 'x'",
    "columns": "columns = { a = 1 }",
    "seed": "seed = true",
}


@pytest.mark.parametrize("case", STUDIES)
def test_studies_that_were_made_to_break_something(
    refused: Callable[..., str], tmp_path: Path, case: str
) -> None:
    pytest.importorskip("matplotlib")
    text = 'title = "a"\nkind = "training.run"\n' + STUDIES[case]
    (tmp_path / "s.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused("study", "s.toml")


def test_cells_that_cannot_run_and_cells_that_are_damaged(run: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for text, words in (
        ('title = "a"\nkind = "training.make_loss"', "kind='training.make_loss'"),
        (
            'title = "a"\nkind = "training.run"\nfixed = { rounds = "x" }',
            "cells.method: is required by this kind of cell",
        ),
        ('title = "a"\nkind = "attacks.game"\nfixed = { method = [1] }', ""),
    ):
        (tmp_path / "s.toml").write_text(text)
        ran = run("study", "s.toml")
        assert ran.code == 2 and ran.err.count("\n") == 1 and words in ran.err, ran
    study = (
        'title = "a"\nkind = "training.run"\nfixed = { data = "synthetic:n=200,d=3", method '
        '= "central", rounds = 1 }'
    )
    (tmp_path / "s.toml").write_text(study)
    assert run("study", "s.toml").code == 0
    cell = next((tmp_path / "studies" / "s" / "cells").iterdir())
    for data in (
        b"",
        b"x",
        cell.read_bytes()[:-9],
        gzipped(b"[" * 10**6),
        gzipped(b'{"rows": [1], "seconds": 1}'),
    ):
        cell.write_bytes(data)
        ran = run("study", "s.toml")
        assert ran.code == 2 and "finished cell" in ran.err, ran


def test_what_memory_does_not_hold_is_one_line(tmp_path: Path) -> None:
    """A process that may have no more than 2 GiB: what nobody foresaw is one line too."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))

    arguments = [
        sys.executable,
        "-m",
        "sottovoce",
        "train",
        "--data",
        "synthetic:n=40000000,d=10",
        "--nodes",
        "2",
    ]
    env: dict[str, Any] = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        cwd=tmp_path,
        timeout=120,
        env=env,
    )
    assert (
        done.returncode in (1, 2)
        and done.stderr.startswith("error: ")
        and done.stderr.count("\n") == 1
    ), done.stderr
