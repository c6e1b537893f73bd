"""Partitions of a data set over nodes (the sites of a simulation): even, or uneven in labels, in
sizes or in a column, as sites are in practice.

Runs, estimators and studies name one by a *spec* such as ``"label"`` or ``"site:hospital"``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..problem.task import Task, TwoClasses
from ..util.later import Later
from ..util.typing import Array, IntArray
from .values import Column, column_as_text, natural_sort_key, sites_named_in_column

optimize = Later("scipy.optimize")
special = Later("scipy.special")

HOW = "iid, label, dirichlet:ALPHA, column:NAME, site:NAME"
# At strength 1 the log-odds of the positive share run over [-LABEL_SPREAD, LABEL_SPREAD] around
# their middle: with five nodes and 24% positives about 1% to 70%, a screening site next to a
# specialised one.
LABEL_SPREAD = 2.75
DIRICHLET_TRIES = 1000  # draws until every node has a row; then the partition is refused


def partition(
    how: str,
    y: Array,
    nodes: int | None,
    seed: int = 0,
    columns: Mapping[str, Any] | None = None,
    *,
    strength: float = 1.0,
    sizes: Sequence[float] | None = None,
    task: Task | None = None,
) -> list[IntArray]:
    """Split row indices over nodes.

    Parameters
    ----------
    how : str
        ``iid``: at random, equal sizes up to one row, or in proportion to `sizes`.

        ``label``: equal sizes up to one row; the log-odds of positive labels rise from node to node
        in equal steps (`strength` 0 gives every node the same share).  A number is positive above
        the middle of its bounds.  Not for more than two classes.

        ``dirichlet:ALPHA``: for each class (as above), the shares of the nodes are drawn from a
        symmetric Dirichlet distribution, until every node has a row; small ALPHA (from 0.001 to
        1e6) is uneven in labels and in sizes.

        ``column:NAME``: rows sorted by a raw column and cut into equal contiguous parts.

        ``site:NAME``: each value of a raw column is a node, in sorted order, numbers by value.
    y : ndarray of shape (n,)
        Labels, as `task` encodes them.
    nodes : int or None
        Number of nodes N, at most n.  ``None`` for ``site:NAME`` only.
    seed : int
        Not used by ``column`` and ``site``.
    columns : mapping of str to array, optional
        Raw columns of the same rows, for ``column`` and ``site``.
    strength : float
        Heterogeneity of labels, in [0, 10); for ``label`` only.
    sizes : sequence of float, optional
        Relative sizes of the nodes, N positive numbers; for ``iid`` only.
    task : Task, optional
        The learning task that encoded `y`; None for two classes, -1 and 1.

    Returns
    -------
    list of ndarray of int64
        Sorted row indices of each node; together they hold every row exactly once.

    Raises
    ------
    InvalidInput
        If `how` is unknown, a parameter does not fit it or is out of range, a raw column is missing
        or has rows without a site, or a node would have no rows.

    Examples
    --------
    >>> [len(rows) for rows in partition("iid", np.ones(10), 3)]
    [4, 3, 3]
    >>> partition("column:age", np.ones(4), 2, columns={"age": np.array([50, 20, 40, 30])})
    [array([1, 3]), array([0, 2])]
    """
    kind, argument = _parse_partition_spec(how, sizes)
    if kind == "site":
        return _partition_by_site(_raw_column(argument, columns, len(y)), argument, nodes)
    if nodes is None or nodes < 1:
        raise InvalidInput("nodes", nodes, "must be at least 1", "give the number of nodes")
    if nodes > len(y):
        raise InvalidInput(
            "nodes", nodes, "must be at most the number of rows", "use fewer nodes or more rows"
        )
    if kind == "column":
        return _partition_by_column(_raw_column(argument, columns, len(y)), argument, nodes)
    rng = np.random.default_rng(seed)
    if kind == "iid":
        return _cut_into_parts(rng.permutation(len(y)), _proportional_counts(len(y), nodes, sizes))
    strata = (TwoClasses() if task is None else task).rows_by_label(y)
    if kind == "label":
        return _partition_by_label(strata, nodes, strength, rng)
    return _partition_by_dirichlet(strata, nodes, argument, rng)


def _parse_partition_spec(how: str, sizes: Sequence[float] | None) -> tuple[str, str]:
    """Split a spec such as ``"site:NAME"`` into kind and argument, "" if it has none.

    InvalidInput for an unknown spec, or for `sizes` with another kind than ``iid``.
    """
    kind = argument = ""
    if isinstance(how, str):
        kind, _, argument = how.partition(":")
    takes_argument = kind in ("dirichlet", "column", "site")
    known = takes_argument or kind in ("iid", "label")
    if not known or bool(argument) != takes_argument:
        remedy = "use 'iid', or site:NAME with the name of a column of sites"
        raise InvalidInput("partition", how, f"must be one of {HOW}", remedy)
    if sizes is not None and kind != "iid":
        rule = f"only applies to the partition 'iid', and this one is {how!r}"
        raise InvalidInput("sizes", list(sizes), rule, "leave it out, or use the partition 'iid'")
    return kind, argument


def _proportional_counts(n: int, nodes: int, sizes: Sequence[float] | None = None) -> IntArray:
    """Return integers (nodes,) that add up to n, in proportion to `sizes` (default: equal)."""
    relative = np.ones(nodes) if sizes is None else np.asarray(sizes, dtype=np.float64)
    if relative.shape != (nodes,) or not np.all(np.isfinite(relative)) or np.any(relative <= 0):
        raise InvalidInput(
            "sizes", sizes, f"must be {nodes} positive numbers, one per node", "correct the list"
        )
    # Divided by the largest first: the sum of large sizes may overflow.
    relative = relative / relative.max()
    counts = _round_to_total(relative / relative.sum() * n, n)
    if counts.min() == 0:
        raise InvalidInput(
            "sizes", sizes, "would leave a node without rows", "raise the smallest size"
        )
    return counts


def _round_to_total(shares: Array, total: int) -> IntArray:
    """Round shares to integers of the given sum, each within 1 of its share (largest remainder)."""
    counts = np.floor(shares).astype(np.int64)
    order = np.argsort(counts - shares, kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def _cut_into_parts(order: IntArray, counts: IntArray) -> list[IntArray]:
    return [np.sort(part).astype(np.int64) for part in np.split(order, np.cumsum(counts)[:-1])]


def _partition_by_label(
    strata: Sequence[IntArray], nodes: int, strength: float, rng: np.random.Generator
) -> list[IntArray]:
    """Partition ``label`` of :func:`partition`; `strata` are the row numbers of each class."""
    if not 0 <= strength < 10:
        raise InvalidInput(
            "strength", strength, "must be at least 0 and below 10", "1 is the default"
        )
    if len(strata) != 2:
        rule = f"needs two classes, and there are {len(strata)}"
        raise InvalidInput("partition", "label", rule, "use dirichlet:0.5")
    n = sum(map(len, strata))
    counts = _proportional_counts(n, nodes)
    positive, negative = (rng.permutation(rows) for rows in strata)
    steps = np.linspace(-1, 1, nodes) if nodes > 1 else np.zeros(1)
    tilt = strength * LABEL_SPREAD * steps
    if len(positive) == 0:
        wanted = np.zeros(nodes)
    elif len(positive) == n:
        wanted = counts.astype(np.float64)
    else:
        # Find the middle log-odds for which the nodes' expected positives add up to the number of
        # positive rows; 40 beyond the tilt the logistic function is 0 or 1 in floating point.
        reach = float(np.abs(tilt).max()) + 40.0
        middle = optimize.brentq(
            lambda a: counts @ special.expit(a + tilt) - len(positive), -reach, reach, xtol=1e-12
        )
        wanted = counts * special.expit(middle + tilt)
    n_positive = np.minimum(_round_to_total(wanted, len(positive)), counts)
    parts = zip(
        np.split(positive, np.cumsum(n_positive)[:-1]),
        np.split(negative, np.cumsum(counts - n_positive)[:-1]),
        strict=True,
    )
    return [np.sort(np.concatenate(part)).astype(np.int64) for part in parts]


def _partition_by_dirichlet(
    strata: Sequence[IntArray], nodes: int, argument: str, rng: np.random.Generator
) -> list[IntArray]:
    """Partition ``dirichlet:ALPHA`` of :func:`partition`; `argument` is the text of ALPHA."""
    try:
        alpha = float(argument)
    except ValueError:
        alpha = 0.0
    if not 1e-3 <= alpha <= 1e6:
        raise InvalidInput(
            "partition", f"dirichlet:{argument}", "ALPHA must be from 0.001 to 1e6", "try 0.5"
        )
    for _ in range(DIRICHLET_TRIES):
        counts = [
            _round_to_total(rng.dirichlet(np.full(nodes, alpha)) * len(rows), len(rows))
            for rows in strata
        ]
        if np.min(np.sum(counts, axis=0)) > 0:
            cuts = [np.cumsum(count)[:-1] for count in counts]
            dealt = [
                np.split(rng.permutation(rows), cut) for rows, cut in zip(strata, cuts, strict=True)
            ]
            return [np.sort(np.concatenate(part)) for part in zip(*dealt, strict=True)]
    rule = f"left a node without rows in {DIRICHLET_TRIES} draws"
    raise InvalidInput("partition", f"dirichlet:{argument}", rule, "raise ALPHA or use fewer nodes")


def _raw_column(name: str, columns: Mapping[str, Any] | None, n: int) -> Column:
    """Return the raw column that a partition needs, (n,), or raise an InvalidInput."""
    if not columns:
        raise InvalidInput(
            "columns", None, "this partition needs the raw columns", "use iid, label or dirichlet"
        )
    if name not in columns:
        raise InvalidInput(
            "column", name, "is not in the table", f"use one of {', '.join(sorted(columns))}"
        )
    column = np.asarray(columns[name])
    if column.shape != (n,):
        raise InvalidInput("column", name, "must hold one value a row", "use another column")
    return column


def _partition_by_column(column: Column, name: str, nodes: int) -> list[IntArray]:
    """Cut rows into equal parts in the order of a column: numbers, other texts, missing values."""
    if column.dtype.kind in "iu":
        return _cut_into_parts(
            np.argsort(column, kind="stable"), _proportional_counts(len(column), nodes)
        )
    texts = column_as_text(column).tolist()
    order = np.array(
        sorted(range(len(texts)), key=lambda row: (texts[row] == "", *natural_sort_key(texts[row])))
    )
    return _cut_into_parts(order, _proportional_counts(len(column), nodes))


def _partition_by_site(column: Column, name: str, nodes: int | None) -> list[IntArray]:
    """Partition ``site:NAME`` of :func:`partition`: one node for each value of the column."""
    found, node, none = sites_named_in_column(column)
    if none.any():
        raise InvalidInput(
            "column", name, "has rows without a site", "fill in the site or remove those rows"
        )
    if nodes is not None and nodes != len(found):
        rule = f"the column {name!r} names {len(found)} sites"
        raise InvalidInput("nodes", nodes, rule, "leave nodes out, or use the partition 'iid'")
    return [np.flatnonzero(node == k).astype(np.int64) for k in range(len(found))]
