"""Partitions: every row exactly once, the promised sizes and spreads, and clear refusals."""

from itertools import pairwise

import numpy as np
import pytest

from sottovoce.data import partition
from sottovoce.errors import InvalidInput
from sottovoce.problem.task import BoundedNumber, ManyClasses

N = 40_000
# Adult's share of positives
Y = np.where(np.random.default_rng(0).permutation(N) < 9_574, 1.0, -1.0)
COLUMNS = {
    "age": np.random.default_rng(1).integers(17, 91, size=N).astype(str).astype(object),
    "where": np.array(["north", "south", "east"])[np.random.default_rng(2).integers(3, size=N)],
}


def shares(parts, y=Y):
    return np.array([np.mean(y[part] > 0) for part in parts])


HOW = ["iid", "label", "dirichlet:0.5", "column:age", "column:where", "site:where"]


@pytest.mark.parametrize("how", HOW)
def test_every_row_is_held_once_and_the_seed_decides(how):
    nodes = 3 if how.startswith("site") else 7
    parts = partition(how, Y, nodes, 4, COLUMNS)
    assert len(parts) == nodes
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    again = partition(how, Y, nodes, 4, COLUMNS)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    other = partition(how, Y, nodes, 5, COLUMNS)
    same = all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))
    assert same == how.startswith(("column", "site"))


def test_iid_sizes_and_shares():
    parts = partition("iid", Y, 7, 0)
    assert sorted(len(part) for part in parts) == [5714] * 5 + [5715] * 2
    assert np.ptp(shares(parts)) < 0.04  # 6 standard deviations of a share of 5,714 rows
    parts = partition("iid", Y, 3, 0, sizes=[1, 1, 2])
    assert [len(part) for part in parts] == [10_000, 10_000, 20_000]


def test_label_spread_on_five_nodes():
    parts = partition("label", Y, 5, 0)
    assert [len(part) for part in parts] == [8000] * 5
    # 0.9% to 68%
    assert (shares(parts) * 8000).round().astype(int).tolist() == [
        70,
        268,
        965,
        2814,
        5457,
    ]


def test_label_spread_keeps_the_steps_in_log_odds_equal():
    p = shares(partition("label", Y, 5, 0))
    steps = np.diff(np.log(p / (1 - p)))
    np.testing.assert_allclose(steps, 2.75 / 2, rtol=0.01)
    p = shares(partition("label", Y, 5, 0, strength=0.5))
    np.testing.assert_allclose(np.diff(np.log(p / (1 - p))), 2.75 / 4, rtol=0.01)


def test_label_with_strength_zero_gives_equal_shares():
    ups = shares(partition("label", Y, 7, 0, strength=0)) * [
        len(p) for p in partition("label", Y, 7, 0, strength=0)
    ]
    assert np.ptp(ups.round()) <= 1


@pytest.mark.parametrize("positives", [0, 1, 50, 99, 100])
@pytest.mark.parametrize("nodes", [1, 3, 100])
@pytest.mark.parametrize("strength", [0, 1, 9])
def test_label_keeps_sizes_at_the_extremes(positives, nodes, strength):
    y = np.where(np.arange(100) < positives, 1.0, -1.0)
    parts = partition("label", y, nodes, 0, strength=strength)
    assert np.ptp([len(part) for part in parts]) <= 1
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(100))


def test_dirichlet_spread_follows_alpha():
    def spread(alpha):
        return np.mean(
            [np.std(shares(partition(f"dirichlet:{alpha}", Y, 5, seed))) for seed in range(20)]
        )

    assert spread(0.3) > 0.2 > 0.1 > spread(10) > spread(1000)
    assert spread(1e6) < 0.001
    # Shares of the positives over nodes have the variance of a Dirichlet coordinate,
    # (1/N)(1-1/N)/(N alpha + 1).
    held = [
        np.sum(Y[part] > 0) / np.sum(Y > 0)
        for seed in range(300)
        for part in partition("dirichlet:1", Y, 4, seed)
    ]
    assert np.var(held) == pytest.approx(0.25 * 0.75 / 5, rel=0.2)


def test_column_cuts_sorted_rows():
    parts = partition("column:age", Y, 4, 0, COLUMNS)
    age = COLUMNS["age"].astype(float)
    assert [len(part) for part in parts] == [10_000] * 4
    for left, right in pairwise(parts):
        assert age[left].max() <= age[right].min()
    numbers = {"a": np.array(["10", "9", "100", ""], dtype=object)}  # as numbers, missing last
    assert [p.tolist() for p in partition("column:a", np.ones(4), 4, 0, numbers)] == [
        [1],
        [0],
        [2],
        [3],
    ]


def test_sites_come_in_sorted_order():
    parts = partition("site:where", Y, None, 0, COLUMNS)
    assert [set(COLUMNS["where"][part]) for part in parts] == [{"east"}, {"north"}, {"south"}]
    numbers = {"s": np.array([10, 9, 9, 10])}
    assert [p.tolist() for p in partition("site:s", np.ones(4), None, 0, numbers)] == [
        [1, 2],
        [0, 3],
    ]


@pytest.mark.parametrize(
    ("how", "nodes", "options", "field", "text"),
    [
        ("uniform", 2, {}, "partition", "must be one of iid, label"),
        ("iid:3", 2, {}, "partition", "must be one of"),
        ("dirichlet", 2, {}, "partition", "must be one of"),
        ("dirichlet:x", 2, {}, "partition", "ALPHA"),
        ("dirichlet:-1", 2, {}, "partition", "ALPHA"),
        ("dirichlet:0.001", 10, {}, "partition", "without rows"),
        ("iid", 11, {}, "nodes", "at most the number of rows"),
        ("iid", 0, {}, "nodes", "at least 1"),
        ("iid", None, {}, "nodes", "at least 1"),
        ("iid", 2, {"sizes": [1, -1]}, "sizes", "2 positive numbers"),
        ("iid", 2, {"sizes": [1]}, "sizes", "2 positive numbers"),
        ("iid", 2, {"sizes": [1e-9, 1]}, "sizes", "without rows"),
        ("label", 2, {"sizes": [1, 2]}, "sizes", "only applies"),
        ("label", 2, {"strength": -1}, "strength", "at least 0"),
        (
            "column:b",
            2,
            {"columns": {"c": np.arange(10), "a": np.arange(10)}},
            "column",
            "use one of a, c",
        ),
        ("column:b", 2, {}, "columns", "needs the raw columns"),
        ("site:a", 2, {"columns": {"a": np.arange(10)}}, "nodes", "names 10 sites"),
        (
            "site:a",
            None,
            {"columns": {"a": np.array(["x"] * 9 + [""])}},
            "column",
            "without a site",
        ),
        ("column:a", 2, {"columns": {"a": np.zeros((10, 2))}}, "column", "one value a row"),
    ],
)
def test_impossible_partitions_are_refused(how, nodes, options, field, text):
    with pytest.raises(InvalidInput, match=text) as caught:
        partition(how, np.where(np.arange(10) < 5, 1.0, -1.0), nodes, 0, **options)
    assert caught.value.field == field


def test_dirichlet_of_many_classes_deals_each_of_them_by_shares_of_its_own():
    y = np.random.default_rng(3).integers(-1, 4, size=6000)
    task = ManyClasses(("a", "b", "c", "d"))
    parts = partition("dirichlet:0.3", y, 5, 0, task=task)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(6000))
    # 0 goes with -1
    share = np.array([[np.mean(y[part] == k) for k in range(1, 4)] for part in parts])
    assert np.all(np.ptp(share, axis=0) > 0.2)
    even = partition("dirichlet:1e5", y, 5, 0, task=task)
    assert np.all(
        np.ptp([[np.mean(y[part] == k) for k in range(1, 4)] for part in even], axis=0) < 0.01
    )


def test_numeric_label_is_split_at_the_middle_of_its_bounds():
    days = BoundedNumber(0, 60)
    t = np.random.default_rng(4).uniform(0, 60, size=5000)
    above = np.where(t > 30, 1.0, -1.0)
    for how in ("label", "dirichlet:0.5"):
        parts = partition(how, days.encode(t), 5, 2, task=days)
        assert all(
            np.array_equal(a, b) for a, b in zip(parts, partition(how, above, 5, 2), strict=True)
        )


def test_label_partition_is_refused_for_more_than_two_classes():
    with pytest.raises(InvalidInput, match="there are 3"):
        partition("label", np.arange(9) % 3, 3, task=ManyClasses(("a", "b", "c")))
