"""Rows that were divided by their own norms are inside the unit ball but for rounding, and are
taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce.data.memmap import map_rows, write_rows
from sottovoce.data.rows import ROUNDED, Rows
from sottovoce.errors import InvalidInput


def unit(dtype: type, n: int = 400, d: int = 7) -> Any:
    X = np.random.default_rng(0).normal(size=(n, d)).astype(dtype)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


Y = np.where(np.arange(400) % 2, 1.0, -1.0)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_divided_by_their_norms_are_accepted_and_inside_the_ball(
    dtype: type, kind: Any
) -> None:
    X = unit(dtype)
    assert np.linalg.norm(X.astype(float), axis=1).max() > 1.0  # what rounding does
    rows = Rows.build_from_parts([(kind(X), Y)])
    stored = rows.blocks[0].toarray() if kind is csr_array else rows.signed[0]  # type: ignore[attr-defined]
    assert np.linalg.norm(stored, axis=1).max() <= 1.0
    np.testing.assert_allclose(stored, X * Y[:, None], rtol=0, atol=3e-7)


def test_a_row_inside_stays_as_it_is_and_no_row_changes_another() -> None:
    X = unit(np.float64)
    X[::2] *= 0.9
    alone = Rows.build_from_parts([(X[::2], Y[::2])]).signed[0]
    assert np.array_equal(alone, X[::2] * Y[::2, None])
    together = Rows.build_from_parts([(X, Y)]).signed[0]
    for k in (1, 3, 5):
        assert np.array_equal(
            Rows.build_from_parts([(X[k : k + 1], Y[k : k + 1])]).signed[0, 0], together[k]
        )


@pytest.mark.parametrize("length", [ROUNDED * (1.0 + 1e-9), 1.0 + 1e-5, 1.1, 1e200, np.inf])
@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_a_row_that_is_longer_is_refused(length: float, kind: Any) -> None:
    X = np.zeros((3, 2))
    X[1, 0] = length
    with pytest.raises(InvalidInput, match=r"^site 0"):
        Rows.build_from_parts([(kind(X), Y[:3])])


def test_mapped_rows_are_those_of_a_table_in_memory(tmp_path: Path) -> None:
    X = unit(np.float64)
    write_rows(tmp_path, [(0, X, Y)])
    mapped = map_rows(tmp_path)
    assert np.array_equal(
        next(iter(mapped._fingerprint_storage()))[:400], Rows.build_from_parts([(X, Y)]).signed[0]
    )
