"""Public inputs of a run: the model of an earlier run, and public rows.

Public rows (003's public-private setting) are used for a starting point, for typical norms of rows
and gradients, and to compare methods on.  Nothing computed from them costs privacy, and nothing
protects them.  A *world* is a synthetic data set with the sites' sizes, on which
``method="auto"`` tries methods (:mod:`sottovoce.runs.auto_trials`); here it is drawn from public
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Self

import numpy as np

from ..data import Dataset, Schema
from ..data.rows import Rows
from ..data.synthetic_tables import Expected, World, draw_site_labels, onto, principal_axes
from ..errors import InvalidInput
from ..problem.losses import Loss, make_loss
from ..problem.task import TwoClasses
from ..util.typing import Any, Array, IntArray
from .config import RunConfig
from .simulate import Result, pooled_minimiser
from .start import Start

QUANTILES = (0.5, 0.9, 0.99)  # of norms, in reports
# Candidates for the ridge times the number of rows; the first is used where rows are too few.
RIDGES = (1.0, 0.1, 0.01)
# Folds of the cross-validation of ridges, and the most rows in it.
_FOLDS = 4
_MOST = 5000
# Fewest public rows for worlds, which need a third each for the start, the sites and the test, and
# for cross-validation.
FEWEST = 30


def start_from_result(result: Result, config: RunConfig, d: int, schema: Schema | None) -> Start:
    """Take the model of an earlier run as a starting point, averaged over its sites.

    Parameters
    ----------
    result : Result
        The earlier run; of several replicates the first is taken.
    config : RunConfig
        Of the run that will start there.
    d : int
        Entries of its model.
    schema : Schema or None
        That encodes its rows.

    Returns
    -------
    Start
        Its epsilon and delta are those of the earlier run plus those of that run's own start, if
        it had one.

    Raises
    ------
    InvalidInput
        If the earlier run had another schema, another number of weights, or a loss of other
        margins.

    Guarantee
    ---------
    The model is post-processing of the earlier run's releases, which are paid
    for in its own statement.  Rows that both runs read spend the sum of both totals.
    """
    saved = result.extra.get("schema")
    known = None
    if saved is not None:
        known = Schema.from_dict(saved).fingerprint
    wanted = None
    if schema is not None:
        wanted = schema.fingerprint
    if known != wanted:
        rule = "was trained under another schema, so its weights belong to other columns"
        raise InvalidInput("start", None, rule, "use a run that was trained under this schema")
    was, now = make_loss(result.config.loss), make_loss(config.loss)
    if (was.outputs, bool(was.offset_bound)) != (now.outputs, bool(now.offset_bound)):
        rule = f"was trained with the loss {was.spec}, for another kind of label than {now.spec}"
        raise InvalidInput("start", None, rule, "use a run with the same loss")
    if result.facts.d != d:
        rule = f"has {result.facts.d} entries, but the model of this run has {d}"
        raise InvalidInput("start", None, rule, "use a run on rows of the same columns")
    epsilon, delta, simulated = _cost_with_start(result)
    return Start(result.consensus[0], "run", epsilon, delta, simulated)


def _cost_with_start(result: Result) -> tuple[float | None, float, bool]:
    """Return (epsilon, delta, simulated) of a run and its own start together.

    Epsilon is None if one of them has no guarantee; `simulated` is True if the noise of one can be
    repeated.
    """
    said, before = result.statement, result.start
    spent, delta, simulated = said.epsilon, said.delta, said.simulated
    # The start of that run has a privacy loss too; without an epsilon it has no guarantee.
    if before is not None and before.kind == "run":
        if before.epsilon is None:
            spent = math.inf
        else:
            spent += before.epsilon
        delta += before.delta
        simulated = simulated or before.simulated
    if not math.isfinite(spent):
        return None, delta, simulated
    return spent, delta, simulated


@dataclass(frozen=True, eq=False)
class Public:
    """Public rows, encoded under the schema of a run.

    Parameters
    ----------
    X : array (n, features)
        Rows in the unit ball.
    labels : array of int (n,)
        Classes 0 to K - 1.
    config : RunConfig
        Of the run that they help, for its loss and its regulariser.
    nodes : int
        Number of sites of that run.
    """

    X: Array
    labels: IntArray
    config: RunConfig
    nodes: int = 1

    def __post_init__(self) -> None:
        if self.loss.offset_bound:
            rule = "public rows are only used for classes, and this loss is for numeric labels"
            raise InvalidInput("public", None, rule, "leave them out, or use loss='logistic'")
        if not len(self.X):
            raise InvalidInput(
                "public", 0, "no public row has one of the declared labels", "give more public rows"
            )

    @classmethod
    def from_dataset(cls, dataset: Dataset, config: RunConfig, nodes: int) -> Self:
        """Take the training rows of a data set that have a declared label as public rows.

        Parameters
        ----------
        dataset : Dataset
            Of public rows.
        config : RunConfig
            Of the run that they help, for its loss and its regulariser.
        nodes : int
            Sites of that run.

        Returns
        -------
        Public

        Raises
        ------
        InvalidInput
            If no row has a declared label, or the loss is for numbers to predict.
        """
        known = dataset.task.has_known_label(dataset.y_train)
        y = dataset.y_train[known]
        # Two classes are -1 and 1 as labels, and more are numbered from 0.
        if isinstance(dataset.task, TwoClasses):
            labels = (y > 0).astype(np.intp)
        else:
            labels = y.astype(np.intp)
        return cls(dataset.X_train[known], labels, config, nodes)

    @property
    def loss(self) -> Loss:
        return make_loss(self.config.loss)

    @cached_property
    def rows(self) -> Rows:
        if self.loss.outputs > 1:
            return Rows.build_with_classes([(self.X, self.labels)], self.loss.outputs)
        return Rows.build_from_parts([(self.X, TwoClasses().encode(self.labels))])

    @property
    def least_ridge(self) -> float:
        """The run's regulariser relative to a site's mean loss, ``rho / (N C)``."""
        return self.config.rho / (self.nodes * self.config.C)

    @cached_property
    def ridge(self) -> float:
        """Weight of ``||w||^2 / 2`` relative to the mean loss, for the starting point.

        It is the one of `RIDGES` (divided by n) with the least cross-validated loss, and never less
        than the run's own.
        """
        least, n = self.least_ridge, len(self.X)
        ridges = list(dict.fromkeys(max(least, factor / n) for factor in RIDGES))
        # With few rows a comparison would be chance, so the largest ridge is taken.
        if n < FEWEST or len(ridges) == 1:
            return ridges[0]
        order = np.random.default_rng(n).permutation(n)[:_MOST]
        held_out = np.zeros(len(ridges))
        for part in np.array_split(order, _FOLDS):
            rest = np.setdiff1d(order, part)
            train = replace(self, X=self.X[rest], labels=self.labels[rest])
            test = replace(self, X=self.X[part], labels=self.labels[part])
            for i, ridge in enumerate(ridges):
                w = pooled_minimiser(train.rows, self.config, ridge * n / len(rest))
                held_out[i] += float(np.sum(self.loss.value(test._margins_of_rows(w))))
        return ridges[int(np.argmin(held_out))]

    def _margins_of_rows(self, w: Array) -> Array:
        """Return the rows' margins under a model w, as the loss takes them: (n,), or (K n,)."""
        if self.loss.outputs == 1:
            return np.asarray(TwoClasses().encode(self.labels) * (self.X @ w))
        # Scores of all classes relative to that of the row's own.
        scores = self.X @ w.reshape(self.loss.outputs, -1).T
        own = np.take_along_axis(scores, self.labels[:, None], axis=1)
        return np.asarray((scores - own).T.ravel())

    @cached_property
    def start(self) -> Start:
        return Start(pooled_minimiser(self.rows, self.config, self.ridge), "public")

    def row_norms(self, quantiles: Sequence[float] = QUANTILES) -> Array:
        """Return quantiles of the rows' norms.

        If they are far below one, a larger ``scale`` or tighter bounds in the schema would help.
        """
        return np.quantile(np.linalg.norm(self.X, axis=1), quantiles)

    def gradient_norms(self, quantiles: Sequence[float] = QUANTILES) -> Array:
        """Return quantiles of the norms of rows' gradients at the start, to choose a cap."""
        slopes = self.loss.derivative(self._margins_of_rows(self.start.vector))
        if self.loss.outputs > 1:
            # A row's gradient is the outer product of p - e_label and the row.
            p = slopes.reshape(self.loss.outputs, -1).T
            slopes = np.linalg.norm(p - np.eye(self.loss.outputs)[self.labels], axis=1)
        return np.quantile(np.abs(slopes) * np.linalg.norm(self.X, axis=1), quantiles)

    def summary(self) -> dict[str, Any]:
        norms = {"row_norms": self.row_norms(), "gradient_norms": self.gradient_norms()}
        return {"rows": len(self.X)} | {
            name: dict(zip(map(str, QUANTILES), values.tolist(), strict=True))
            for name, values in norms.items()
        }

    def expected_worlds(self) -> Expected | None:
        """Return worlds of these rows, for ``method="auto"``; None if there are fewer than
        `FEWEST`.
        """
        if len(self.X) < FEWEST:
            return None
        return KnownRows(self)


class KnownRows(Expected):
    """A source of worlds made of public rows.

    Each world splits them at random into three parts: for the start, the sites' rows and the test.
    So the sites' rows are new to the start, as in the run itself, though all parts are a third as
    large.
    """

    says = "worlds made of the public rows"

    def __init__(self, public: Public) -> None:
        self._public = public
        content = np.ascontiguousarray(public.X).tobytes() + public.labels.tobytes()
        data = blake2b(content, digest_size=16)
        # Choices of methods are cached by this key, so it holds all that worlds depend on.
        self.key = (
            f"public {data.hexdigest()} {public.X.shape} {public.ridge!r} {public.least_ridge!r} "
            f"{public.loss.spec}"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownRows) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def draw_expected_world(
        self,
        number: int,
        rows: int,
        sites: Sequence[int] | Array,
        *,
        classes: int,
        tilt: float,
        widest: int,
    ) -> World:
        """Draw a world: a start, the sites' rows and test rows, from disjoint public rows.

        Parameters
        ----------
        number : int
            Of the world; it seeds the split.
        rows : int
            How many rows to draw for the sites, with replacement if a third of the public rows is
            fewer.
        sites : sequence or array of N
            True rows of every site.
        classes : int
            Number of classes K.
        tilt : float
            How much labels of sites differ; 0 for alike sites.
        widest : int
            The most features of a world: wider rows are projected to their principal directions.

        Returns
        -------
        World
        """
        public, rng = self._public, np.random.default_rng([_SEED, number])
        first, pool, test = np.array_split(rng.permutation(len(public.X)), 3)
        start = replace(public, X=public.X[first], labels=public.labels[first]).start.vector
        drawn = rng.choice(pool, size=rows, replace=len(pool) < rows)
        d = public.X.shape[1]
        if d <= widest:
            X, tests = public.X[drawn], public.X[test]
        else:
            some = public.X[rng.permutation(len(public.X))[:_MOST]]
            directions = principal_axes(some, widest - 1)
            X = onto(directions, public.X[drawn], rng)
            tests = onto(directions, public.X[test], rng)
            # The last column, of random sign, only keeps the rows' norms: the start has 0 there.
            kept = start.reshape(-1, d) @ directions
            start = np.column_stack([kept, np.zeros(len(kept))]).ravel()
        known = np.eye(classes)
        shares = draw_site_labels(known[public.labels[drawn]], sites, tilt)
        return World(X, shares, tests, known[public.labels[test]], start)


# Seed of the splits: a constant, so that a choice does not depend on the user's seed.
_SEED = 20_240_401


def set_aside_public_rows(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Set a share of the training rows aside as a public data set; for simulations only.

    Parameters
    ----------
    dataset : Dataset
        Whose unit is a row, not a person.
    share : float
        Inside (0, 1), such that rows are left on both sides.
    seed : int
        Of the split.

    Returns
    -------
    public, private : Dataset
        The share, and the rest; their rows keep their order.

    Raises
    ------
    InvalidInput
        If the share leaves no rows on one side, or the schema bounds a person's rows together.
    """
    n = len(dataset.y_train)
    if dataset.people is not None:
        rule = "would separate rows of one person, and this schema protects people"
        raise InvalidInput("public_share", share, rule, "give a table of public rows")
    many = 0
    if 0.0 < share < 1.0:
        many = round(share * n)
    if not 0 < many < n:
        rule = "must be above 0 and below 1, and leave rows on both sides"
        raise InvalidInput("public_share", share, rule, "use 0.02")
    order = np.random.default_rng([seed, many]).permutation(n)
    # Sorted, so that rows on both sides keep their order.
    public = _select_training_rows(dataset, np.sort(order[:many]))
    private = _select_training_rows(dataset, np.sort(order[many:]))
    return public, private


def _select_training_rows(dataset: Dataset, rows: IntArray) -> Dataset:
    """Return the data set with these training rows alone."""
    columns = {name: values[rows] for name, values in dataset.train_columns.items()}
    weights = None
    if dataset.weights is not None:
        weights = dataset.weights[rows]
    return replace(
        dataset,
        X_train=dataset.X_train[rows],
        y_train=dataset.y_train[rows],
        train_columns=columns,
        weights=weights,
    )
