"""Rows in files: the same run as rows in memory, from blocks and from Parquet, and damaged
folders are refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from problems import make_rows

from sottovoce.data import Schema
from sottovoce.data.memmap import map_parquet, map_rows, write_rows
from sottovoce.data.parquet_files import parquet_batches
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.solvers import local as solvers
from sottovoce.util.typing import Any

SCHEMA = {
    "label": {"column": "paid", "positive": "yes", "negative": "no"},
    "site": "branch",
    "columns": {"age": {"kind": "number", "lo": 0, "hi": 100}},
}


def pieces(rows: Rows, size: int) -> Any:
    """The rows of all sites in blocks, sites interleaved."""
    n = rows.n[:, 0].astype(int)
    for start in range(0, n.max(), size):
        for i, m in enumerate(n):
            if start < m:
                a = rows.signed[i, start : min(m, start + size)]
                yield i, a, np.ones(len(a))


@pytest.mark.parametrize("worth", [np.inf, 0.0], ids=["double", "single first"])
def test_a_run_from_files_is_the_run_from_memory(
    tmp_path: Path, worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solvers, "SINGLE_WORTH", worth)
    # the first two have files of their own in the solver, the last has not
    rows = make_rows([700, 450, 90], 120)
    mapped = write_rows(tmp_path / "rows", pieces(rows, 128))
    np.testing.assert_array_equal(mapped.n, rows.n)
    run = RunConfig(method="prox_admm", epsilon=5.0, delta=1e-5, rounds=4, eta=0.05, replicates=2)
    here, there = simulate(run, rows), simulate(run, map_rows(tmp_path / "rows"))
    assert there.ledger == here.ledger
    np.testing.assert_allclose(there.models, here.models, atol=1e-6)
    alone = mapped.rows_of_node(1)
    assert alone.d == 120 and int(alone.n[0, 0]) == 450
    np.testing.assert_array_equal(alone.fingerprint_arrays()[0], rows.signed[1, :450])


def test_parquet_is_encoded_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    age, paid, branch = (
        rng.integers(0, 101, 500),
        rng.choice(["yes", "no"], 500),
        rng.choice(["a", "b", "c"], 500),
    )
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"age": age, "paid": paid, "branch": branch}), path)
    monkeypatch.setattr("sottovoce.data.memmap.BATCH", 64)
    schema = Schema.from_dict(SCHEMA)
    mapped = map_parquet(path, schema, tmp_path / "mapped")
    names = list(dict.fromkeys(branch))
    assert mapped.n[:, 0].tolist() == [np.sum(branch == name) for name in names]
    whole = schema.encode({"age": age, "paid": paid, "branch": branch})
    assert whole.y is not None
    first = branch == names[0]
    np.testing.assert_array_equal(
        mapped.fingerprint_arrays()[0], whole.X[first] * whole.y[first, None]
    )
    plain = Schema.from_dict(
        {k: v for k, v in SCHEMA.items() if k != "site"} | {"ignore": ["branch"]}
    )
    dealt = map_parquet(path, plain, tmp_path / "dealt", 4)
    assert dealt.n.sum() == 500 and len(dealt.n) == 4


def test_a_bad_block_leaves_nothing_behind(tmp_path: Path) -> None:
    good, bad = np.full((3, 2), 0.5), np.full((3, 2), 5.0)
    with pytest.raises(InvalidInput, match="unit ball"):
        write_rows(tmp_path / "rows", [(0, good, np.ones(3)), (1, bad, np.ones(3))])
    assert list((tmp_path / "rows").iterdir()) == []
    with pytest.raises(InvalidInput, match=r"shape \(n, 2\)"):
        write_rows(tmp_path / "rows", [(0, good, np.ones(3)), (1, good[:, :1], np.ones(3))])
    with pytest.raises(InvalidInput, match="no rows"):
        write_rows(tmp_path / "rows", [])


def test_damaged_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no rows"):
        map_rows(tmp_path)
    rows = [(0, np.full((3, 2), 0.5), np.array([1.0, 1.0, -1.0]))]
    write_rows(tmp_path, rows)
    with pytest.raises(InvalidInput, match="already"):
        write_rows(tmp_path, rows)
    (tmp_path / "site-0.float32").write_bytes(b"1234")
    with pytest.raises(InvalidInput, match=r"site-0\.float32"):
        map_rows(tmp_path)


def test_operations_that_mapped_files_do_not_support_are_refused(tmp_path: Path) -> None:
    mapped = write_rows(tmp_path, [(0, np.full((30, 2), 0.5), np.ones(30))])
    assert mapped.one_class == (0,)
    with pytest.raises(InvalidInput, match="backend"):
        simulate(
            RunConfig(method="output", epsilon=1.0, eta=0.1, backend="array_api_strict"), mapped
        )
    with pytest.raises(InvalidInput, match="trusted curator"):
        simulate(RunConfig(method="central", epsilon=1.0, eta=0.1), mapped)


@pytest.mark.parametrize("kinds", [("float64", "float32"), ("float64",), ("float32",)])
@pytest.mark.parametrize("factor", [100.0, np.nan, np.inf])
def test_files_of_rows_that_no_guarantee_covers_are_refused(
    tmp_path: Path, factor: float, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sottovoce.data.memmap._AT_ONCE", 40)
    write_rows(tmp_path / "rows", pieces(make_rows([60, 45], 4), 16))
    for kind in kinds:
        path = tmp_path / "rows" / f"site-1.{kind}"
        values = np.fromfile(path, dtype=kind)
        values[-4:] *= factor
        values.tofile(path)
    with pytest.raises(InvalidInput, match=r"unit ball|single precision") as refusal:
        map_rows(tmp_path / "rows")
    assert refusal.value.field == "site 1"


@pytest.mark.parametrize(
    "change", [{"sites": [0, 0]}, {"one_class": [-1]}, {"one_class": [2]}, {"one_class": [10**90]}]
)
def test_a_description_that_counts_rows_twice_or_names_no_site_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    write_rows(tmp_path / "rows", pieces(make_rows([60, 60], 4), 16))
    meta = tmp_path / "rows" / "rows.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | change))
    with pytest.raises(InvalidInput, match=r"^folder.*no rows"):
        map_rows(tmp_path / "rows")


def test_a_parquet_file_is_never_in_memory_whole(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path, columns, rows, groups = tmp_path / "long.parquet", 20, 2_000, 40
    values = np.random.default_rng(0).random((rows * groups, columns))
    table = pa.table({f"x{k}": values[:, k] for k in range(columns)})
    pq.write_table(table, path, row_group_size=rows, compression="none", use_dictionary=False)
    size = table.nbytes
    del table
    before, most, found = pa.total_allocated_bytes(), 0, []
    for batch in parquet_batches(path, 3 * rows // 2):
        most = max(most, pa.total_allocated_bytes() - before)
        found.append(
            np.stack([batch.columns[f"x{k}"].astype(float) for k in range(columns)], axis=1)
        )
    np.testing.assert_array_equal(np.concatenate(found), values)
    assert len(found) == groups and 0 < most < size / 4
