"""Principal components from one release of second moments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..algorithms.items import Item
from ..algorithms.once import Once
from ..answers.terms import of_columns
from ..data.frames import read_frame
from ..errors import InvalidInput
from ..problem.losses import Logistic
from ..problem.weighted_loss import Weighted
from ..queries import SecondMoments
from ..queries.moments import square
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.relations import with_other_relation
from ..runs.simulate import simulate
from ..util.progress import told
from ..util.typing import Any, Array
from .base import SitedTable
from .caveats import Caveats, tell_values
from .parameters import with_knobs


@dataclass(frozen=True)
class Components(Once):
    """Second moments of rows; the outcome is an answer."""

    name: ClassVar[str] = "components"
    summary: ClassVar[str] = "second moments, for principal components"

    @property
    def items(self) -> tuple[Item, ...]:
        return (Item("second moments", SecondMoments, 1.0),)

    def point(self, d: int) -> Array:
        return np.zeros(d)


@with_knobs("relation", "colluders")
class ConsensusPCA(SitedTable, TransformerMixin, BaseEstimator):
    """Principal components of rows at several sites.

    Parameters
    ----------
    n_components : int, default=2
    epsilon, delta : float
        Privacy budget; ``inf`` computes without noise.
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a row; None is 1, and a release warns of it.  Longer rows are weighed
        down and not shortened (:mod:`sottovoce.problem.weighted_loss`), so components are those of weighted rows.
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
        About the spectral norm of the noise in the covariance matrix: noise moves no eigenvalue by more.
    sampling_ : ndarray of shape (n_components,)
        Root mean square of what the drawing of the rows adds to the covariance matrix beside a component's direction,
        at most: the root of ``explained_variance_ * bound^2 / n``, as no row is longer than the bound.
    clear_ : ndarray of bool of shape (n_components,)
        Whether a component's eigenvalue is further from its neighbours than twice `noise_` and `sampling_` together
        (the root of their squares), so that neither noise nor the drawing of the rows makes its direction: it is
        within about 30 degrees of the population's.
    n_features_in_, privacy_spent_, sites_
        As for :class:`sottovoce.ConsensusClassifier`.

    Guarantee
    ---------
    As for :class:`sottovoce.ConsensusClassifier`.  The one release is the second moments of rows, of replace-one
    sensitivity ``sqrt 2 / n``; all else is computed from it.

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

    fit_intercept: ClassVar[bool] = True  # type: ignore[misc]

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
        """Ask for second moments across sites.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        y : ignored
        groups : array-like of shape (n_samples,), optional
            The site of every row.
        """
        X = self._opened(X)
        caveats = Caveats.of(self, self.schema_, stacklevel=2)
        self._check_norm()
        features = self._table(X, reset=True)
        d = features.shape[1]
        if len(features) < 2:
            raise InvalidInput("X", None, "n_samples=1 is too few for components", "give more rows")
        if not (isinstance(self.n_components, int | np.integer) and 1 <= self.n_components <= d):
            rule = f"must be a whole number from 1 to the number of columns, {d}"
            raise InvalidInput("n_components", self.n_components, rule, "use fewer")
        if self.schema_ is None:
            tell_values(self, features, stacklevel=2)
        dealt = self._deal(X, groups, len(features))
        naming = of_columns([f"x{j}" for j in range(d)], self._norm)
        rows = dealt.bounded(naming.rows([(features[part], np.ones(len(part))) for part in dealt.parts]))
        run = RunConfig.from_dict({"method": "auto", "seed": dealt.seed, **self._run_fields(), **dealt.unit})
        said = None if self.schema_ is None else self.schema_.caveat
        with told(self.verbose) as teller:
            teller.phase("second moments")
            result = with_other_relation(
                simulate(run, rows, method=Components(), loss=Weighted(Logistic()), caveat=said)
            )
        S, s = square(result.outcome.value[0], d + 1), result.outcome.spread
        scale, value = float(naming.into_units[0, 0]), naming.value
        count = min(max(float(S[-1, -1]) / value**2, 5.0 * s / value**2), 1.0)  # the mean weight of a row
        mean = S[:-1, -1] / (value * count)
        values, vectors = np.linalg.eigh((S[:-1, :-1] / count - np.outer(mean, mean)) / scale**2)
        values, vectors = np.maximum(values[::-1], 0.0), vectors.T[::-1]
        vectors = vectors * np.sign(vectors[np.arange(d), np.abs(vectors).argmax(axis=1)])[:, None]
        k, total = self.n_components, float(values.sum())
        self.noise_ = s * math.sqrt(2.0 * d) / (count * scale**2)
        # E[(x'v)^2 |x|^2] <= explained variance * bound^2, the mean square of a row's entries beside v
        self.sampling_ = np.sqrt(values[:k] / (len(features) * count * scale**2))
        gaps = np.abs(np.diff(values, append=0.0, prepend=np.inf))
        unsure = 2.0 * np.hypot(self.noise_, self.sampling_)
        self.clear_ = np.asarray(np.minimum(gaps[:-1], gaps[1:])[:k] > unsure)
        self.components_, self.explained_variance_, self.mean_ = vectors[:k], values[:k], mean / scale
        self.explained_variance_ratio_ = values[:k] / total if total > 0.0 else np.zeros(k)
        self._result = replace(result, statement=caveats.on(result.statement))
        self.sites_, self.privacy_spent_ = dealt.sites, self._result.privacy
        self._tell_norm(features)
        return self

    @property
    def _weighs(self) -> bool:
        return True

    def _table(self, X: Any, *, reset: bool) -> Array:
        """Numbers of X; under a schema, encoded rows without the constant."""
        if self.schema_ is None:
            return super()._table(X, reset=reset)
        columns = sum(len(block.names) for block in self.schema_.blocks)
        return self._by_rows(read_frame(X, self.columns))[:, :columns]

    def transform(self, X: Any) -> Array:
        """Rows in the components' coordinates, (n_samples, n_components)."""
        check_is_fitted(self, "components_")
        return np.asarray((self._table(X, reset=False) - self.mean_) @ self.components_.T)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the components, as scikit-learn makes them."""
        check_is_fitted(self, "components_")
        return np.array([f"consensuspca{k}" for k in range(self.n_components)], dtype=np.object_)


__all__ = ["ConsensusPCA"]
