"""Principal components from one release of second moments, and the five steps of their `fit`.

Rows end in a constant, so the released matrix also holds their weighted sum; the covariance matrix
and its eigenvectors follow from it without further cost (:func:`decode_components`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..algorithms.items import Item
from ..algorithms.once import Once
from ..answers.terms import Naming, naming_from_columns
from ..data.schema import Schema
from ..errors import InvalidInput, raise_collected_errors
from ..problem.losses import Logistic
from ..problem.weighted_loss import Weighted
from ..queries import SecondMoments
from ..queries.moments import unflatten_symmetric
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.simulate import Result
from ..util.typing import Any, Array, BoolArray
from .base import PrivateEstimator
from .fitting import (
    AskedRows,
    Planned,
    Public,
    plan_recipe_fit,
    run_planned_fit,
    statement_with_assumptions,
)
from .notices import Note
from .parameters import declare_knobs
from .tables import (
    Features,
    deal_rows_to_sites,
    norm_misfit_notes,
    read_encoded_table,
    read_features,
)
from .terms import Terms, collect_terms, norm_bound_errors


@dataclass(frozen=True)
class Components(Once):
    """The recipe: one release of second moments at weight 1; its outcome is the noisy answer."""

    name: ClassVar[str] = "components"
    summary: ClassVar[str] = "second moments, for principal components"

    @property
    def items(self) -> tuple[Item, ...]:
        """The one release: second moments, with the whole budget."""
        return (Item("second moments", SecondMoments, 1.0),)

    def point_of_release(self, d: int) -> Array:
        """Return zeros (d,), as second moments are the same at every model."""
        return np.zeros(d)


# The steps of a fit


@dataclass(frozen=True)
class Declared:
    """Declared parameters: the number of components, checked later, and the run's budget."""

    terms: Terms
    count: Any
    config: RunConfig

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the declared parameters, for warnings."""
        return self.terms.notes


def validate_components(estimator: Any, *, many_fits: bool) -> Declared:
    """Check all that is declared, before any row is read; InvalidInput for what is wrong."""
    terms = collect_terms(estimator, weighed=True, many_fits=many_fits)
    raise_collected_errors([*norm_bound_errors(estimator, terms)])
    config = RunConfig.from_dict({"method": "auto", **terms.fields})
    return Declared(terms, estimator.n_components, config)


@dataclass(frozen=True, kw_only=True)
class Encoded(AskedRows):
    """Rows at sites in an encoding whose columns have names."""

    public: Public
    features: Features
    naming: Naming
    notes: tuple[Note, ...]


def encode_unlabelled_rows(declared: Declared, X: Any, groups: Any) -> Encoded:
    """Read rows, assign them to sites and encode them with a constant.

    Parameters
    ----------
    declared : Declared
    X
        An array (n_samples, n_features), or a frame under a schema.
    groups : array-like (n_samples,) or None
        The site of every row; None for the schema's column, or for sites at random.

    Returns
    -------
    Encoded

    Raises
    ------
    InvalidInput
        For rows or a number of components that do not fit; no message shows a value of a row.
    """
    terms = declared.terms
    features = read_features(terms, X)
    values = features.values
    if terms.schema is not None:
        values = rows_without_constant(terms.schema, features)
    d = values.shape[1]
    if len(features) < 2:
        # scikit-learn's checks of estimators look for "n_samples=1".
        rule = "principal components need at least 2 rows, and X has n_samples=1"
        raise InvalidInput("X", None, rule, "give more rows")
    if not (isinstance(declared.count, int | np.integer) and 1 <= declared.count <= d):
        rule = f"must be a whole number from 1 to the number of columns, {d}"
        raise InvalidInput("n_components", declared.count, rule, "use fewer components")
    dealt = deal_rows_to_sites(terms, features, groups)
    naming = naming_from_columns([f"x{j}" for j in range(d)], terms.norm)
    rows = dealt.bound_people(
        naming.rows_of_sites([(values[part], np.ones(len(part))) for part in dealt.parts])
    )
    return Encoded(
        made=rows,
        caveat=terms.schema_caveat,
        public=Public(rows.n, rows.d, dealt.sites, dealt.apart),
        features=replace(features, values=values),
        naming=naming,
        notes=(*features.notes, *dealt.notes),
    )


def rows_without_constant(schema: Schema, features: Features) -> Array:
    """Return encoded rows (n, features) without the schema's constant column, if it has one."""
    columns = sum(len(block.feature_names) for block in schema.blocks)
    return np.asarray(features.values[:, :columns])


def plan_components(declared: Declared, public: Public) -> Planned:
    """Price the one release from public facts alone; nothing is spent."""
    loss = Weighted(Logistic())
    return plan_recipe_fit(declared.config, Components(), loss, public, "second moments")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Components of the noisy covariance matrix: all of it follows from the release.

    Its arrays are the attributes of :class:`ConsensusPCA` of the same names, for k components of d
    columns.
    """

    components: Array  # (k, d)
    mean: Array  # (d,)
    variance: Array  # (k,)
    variance_ratio: Array  # (k,)
    noise: float
    sampling: Array  # (k,)
    clear: BoolArray  # (k,)
    result: Result
    notes: tuple[Note, ...]


def decode_components(declared: Declared, encoded: Encoded, results: tuple[Result, ...]) -> Fitted:
    """Compute principal components from the released second moments, in the units of the columns.

    Parameters
    ----------
    declared : Declared
    encoded : Encoded
        Its public facts and its naming; rows are read for notes to their holder, and counted for
        `sampling`.
    results : tuple of one Result
        Its outcome is the noisy matrix of second moments.

    Returns
    -------
    Fitted
        Components with their explained variance, the size of the noise in the covariance matrix,
        that of sampling, and whether a component's direction is clear of both.
    """
    answer = results[0].outcome
    k, d = declared.count, encoded.public.d - 1
    # The noisy mean of x x', and the deviation of the noise in one entry.
    S, s = unflatten_symmetric(answer.value[0], d + 1), answer.spread
    scale = float(encoded.naming.into_units[0, 0])
    value = encoded.naming.value
    # Rows end in a constant: the last row of S holds their weighted sum, its corner their weight.
    # The mean weight of a row is that corner: at least five deviations of its noise, at most 1.
    mean_weight = min(max(float(S[-1, -1]) / value**2, 5.0 * s / value**2), 1.0)
    mean = S[:-1, -1] / (value * mean_weight)
    covariance = (S[:-1, :-1] / mean_weight - np.outer(mean, mean)) / scale**2
    values, vectors = np.linalg.eigh(covariance)
    # The largest first; noise may make eigenvalues negative, and no variance is.
    values, vectors = np.maximum(values[::-1], 0.0), vectors.T[::-1]
    # An eigenvector's sign is arbitrary: its largest entry is made positive.
    vectors = vectors * np.sign(vectors[np.arange(d), np.abs(vectors).argmax(axis=1)])[:, None]
    total = float(values.sum())
    variance_ratio = np.zeros(k)
    if total > 0.0:
        variance_ratio = values[:k] / total
    # Off the diagonal the noise has deviation s / root 2: a symmetric Gaussian matrix of d columns
    # then has a spectral norm of about 2 (s / root 2) root d.
    noise = s * math.sqrt(2.0 * d) / (mean_weight * scale**2)
    # E[(x'v)^2 |x|^2] <= explained variance * bound^2, the mean square of a row's entries beside v
    sampling = np.sqrt(values[:k] / (len(encoded.features) * mean_weight * scale**2))
    # Distances of each eigenvalue to the next larger and the next smaller one.
    gaps = np.abs(np.diff(values, append=0.0, prepend=np.inf))
    unsure = 2.0 * np.hypot(noise, sampling)
    return Fitted(
        components=vectors[:k],
        mean=mean / scale,
        variance=values[:k],
        variance_ratio=variance_ratio,
        noise=noise,
        sampling=sampling,
        clear=np.asarray(np.minimum(gaps[:-1], gaps[1:])[:k] > unsure),
        result=replace(
            results[0],
            statement=statement_with_assumptions(results[0].statement, declared.terms.rests),
        ),
        notes=norm_misfit_notes(declared.terms, encoded.features),
    )


@declare_knobs("relation", "colluders")
class ConsensusPCA(TransformerMixin, PrivateEstimator):
    """Principal components of rows at several sites.

    Parameters
    ----------
    n_components : int, default=2
    epsilon, delta : float
        Privacy budget; ``inf`` computes without noise.
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a row; None is 1, and a release warns of it.  Longer
        rows are weighed down and not shortened (:mod:`sottovoce.problem.weighted_loss`), so
        components are those of weighted rows.
    schema, columns, trust, n_sites, random_state, verbose
        As for :class:`sottovoce.ConsensusClassifier`.
    knobs : dict or None, default=None
        `relation` and `colluders`, as for :class:`sottovoce.ConsensusClassifier`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal; the largest entry of each, in size, is positive.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)
        Eigenvalues of the noisy covariance matrix, at least 0, and their shares of the sum of all.
    mean_ : ndarray of shape (n_features,)
    noise_ : float
        About the spectral norm of the noise in the covariance matrix: noise moves no eigenvalue by
        more.
    sampling_ : ndarray of shape (n_components,)
        Root mean square of what the drawing of the rows adds to the covariance matrix beside a
        component's direction, at most: the root of ``explained_variance_ * bound^2 / n``, as no row
        is longer than the bound.
    clear_ : ndarray of bool of shape (n_components,)
        Whether a component's eigenvalue is further from its neighbours than twice `noise_` and
        `sampling_` together (the root of their squares), so that neither noise nor the drawing of
        the rows makes its direction: it is within about 30 degrees of the population's.
    n_features_in_, privacy_spent_, sites_
        As for :class:`sottovoce.ConsensusClassifier`.

    Guarantee
    ---------
    As for :class:`sottovoce.ConsensusClassifier`.  The one release is the second moments of rows,
    of replace-one sensitivity ``sqrt 2 / n``; all else is computed from it.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import ConsensusPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 1)) @ [[0.6, 0.3, 0.0]] + 0.1 * rng.normal(size=(5000, 3))
    >>> model = ConsensusPCA(1, data_norm=2.0, trust="sum", random_state=0).fit(X)
    >>> bool(abs(model.components_[0] @ [2, 1, 0]) / 5**0.5 > 0.99), model.clear_.tolist()
    (True, [True])
    """

    fit_intercept: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = defaults.EPSILON,
        delta: float = defaults.DELTA,
        trust: str = "nobody",
        n_sites: int = 5,
        data_norm: float | None = None,
        schema: Any = None,
        columns: Sequence[str] | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.trust = trust
        self.n_sites = n_sites
        self.data_norm = data_norm
        self.schema = schema
        self.columns = columns
        self.random_state = random_state
        self.verbose = verbose
        self.knobs = knobs

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Release the second moments of the rows of all sites, and compute components from them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        y : ignored
        groups : array-like of shape (n_samples,), optional
            The site of every row.  None for the site column of the schema, if it has one, else for
            `n_sites` sites to which rows are dealt at random.

        Returns
        -------
        ConsensusPCA

        Raises
        ------
        InvalidInput
            As for :meth:`sottovoce.ConsensusClassifier.fit`.
        """
        declared = self._warn_of_step(
            validate_components(self, many_fits=self._follows_another_clone())
        )
        encoded = self._warn_of_step(encode_unlabelled_rows(declared, X, groups))
        planned = self._warn_of_step(plan_components(declared, encoded.public))
        results = run_planned_fit(planned, encoded, verbose=self.verbose)
        return self._set_fitted_attributes(
            declared, encoded, decode_components(declared, encoded, results)
        )

    def _set_fitted_attributes(self, declared: Declared, encoded: Encoded, fitted: Fitted) -> Self:
        """Set the fitted attributes, then warn of the notes on the fit."""
        self._store_column_names(declared.terms, encoded.features)
        self.components_ = fitted.components
        self.mean_ = fitted.mean
        self.explained_variance_ = fitted.variance
        self.explained_variance_ratio_ = fitted.variance_ratio
        self.noise_ = fitted.noise
        self.sampling_ = fitted.sampling
        self.clear_ = fitted.clear
        self.sites_ = encoded.public.sites
        self._result = fitted.result
        self.privacy_spent_ = fitted.result.privacy
        self._warn_of_step(fitted, stacklevel=3)
        return self

    def transform(self, X: Any) -> Array:
        """Return rows in the components' coordinates, (n_samples, n_components)."""
        check_is_fitted(self, "components_")
        if self.schema_ is None:
            rows = self._validate_array(X)
        else:
            found = read_encoded_table(self.schema_, X, self.columns, weighed=True)
            self._warn_of_step(found)
            rows = rows_without_constant(self.schema_, found)
        return np.asarray((rows - self.mean_) @ self.components_.T)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names "consensuspca0", "consensuspca1", ..., as scikit-learn forms them."""
        check_is_fitted(self, "components_")
        return np.array([f"consensuspca{k}" for k in range(self.n_components)], dtype=np.object_)


__all__ = ["ConsensusPCA"]
