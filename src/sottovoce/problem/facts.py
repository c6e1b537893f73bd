"""Public facts of a run's problem, never computed from private rows.

Privacy loss, noise and solves are computed from these alone.

Node i minimises (002, section V; 000, eq. 3 with its rho equal to our ``rho/N``)

    f_i(w) = (C / n_i) sum_k loss(y_k w.x_k) + (rho / N) ||w||^2 / 2,

or, with a number t in [-1, 1] to predict instead of a class, ``loss(w.x_k - t_k)``.

*Sum scale* means this objective times ``n_i / C``: each row has weight one, so that noise and
sensitivities do not depend on ``C`` or ``n_i``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import InvalidInput, Refused
from ..util.typing import Any, Array, ArrayLike
from .clipped import read_loss
from .losses import Loss
from .trust import RELATIONS

EXACT = 1e-8
"""Gradient norm over C to which solves without noise on their answer are certified."""


@dataclass(frozen=True)
class Facts:
    """Public facts of one run, for all nodes (``n`` of shape (N, 1)) or for one node (shape (1,)).

    Parameters
    ----------
    loss : Loss
        With its cap on gradients, if any (:mod:`sottovoce.problem.clipped`).
    n : array of shape (N, 1) or (1,)
        Rows per node.  Public: under replace-one, neighbours have the same number of rows.
    d : int
        Entries of a model: features, the constant one included, times the margins of the loss.
    C, rho : float
        Weight of the data and of the regulariser, as in the papers.
    n_nodes : int
        N, also at a site that holds only its own ``n``.
    relation : {"replace-one", "zero-out"}
    tol : float, optional
        Local solves stop at a gradient norm of ``tol * C`` (the data term's gradient is at most
        ``C``).  None leaves it to each query: as small as its noise can make use of
        (:mod:`sottovoce.queries.reach`), else `exact_tol`.
    pure : bool
        Whether accounting is in pure epsilon; then noise on answers is spherical, not Gaussian.
    max_degree : int, optional
        Largest number of neighbours of any node; None for N - 1.
    rows : float, optional
        Rows of all nodes together; None for the sum of `n`, right unless `n` is of one node.
    participants, colluders : int
        Under trust in sums, the least number of sites of a sum, and how many of them may collude; 0
        otherwise.
    sites_per_row : int
        Number of sites at which one person may have a row, on which the privacy loss of sums
        depends.
    sizes : array of shape (N, 1), optional
        Rows of every node, if `n` is of one node; None if `n` has them all.
    stretch : float
        Factor by which the rounding of products grows because rows are centred
        (:func:`sottovoce.data.move.stretch_bound`); 1 for rows as they are.
    solved_for : str, optional
        The relation of the run, for which its solves were certified, if these facts are to price
        its releases under the other relation (:mod:`sottovoce.runs.relations`).
    rows_per_person : int, optional
        Largest number of rows of a person at a site, which together weigh no more than 1; `n` then
        counts people.  None if the privacy unit is a row.
    """

    loss: Loss
    n: Array
    d: int
    C: float
    rho: float
    n_nodes: int
    relation: str = "replace-one"
    tol: float | None = 1e-8
    pure: bool = True
    max_degree: int | None = None
    rows: float | None = None
    participants: int = 0
    colluders: int = 0
    sites_per_row: int = 1
    sizes: Array | None = None
    stretch: float = 1.0
    solved_for: str | None = None
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        n = np.asarray(self.n, dtype=float)
        object.__setattr__(self, "n", n)
        if n.size == 0 or np.any(n < 1):
            raise InvalidInput(
                "n", None, "every site needs at least one row", "leave out the sites without rows"
            )
        for name in ("C", "rho", "tol"):
            value = getattr(self, name)
            if name == "tol" and value is None:
                continue
            if not (np.isfinite(value) and value > 0):
                why = {
                    "C": "is the weight of the data",
                    "rho": "is the regulariser that makes every solution unique",
                    "tol": "is the accuracy at which every solve ends",
                }[name]
                raise InvalidInput(
                    name, value, f"must be finite and > 0, because it {why}", f"use {name}=1e-3"
                )
        if self.relation not in RELATIONS:
            raise InvalidInput(
                "relation",
                self.relation,
                f"must be one of {sorted(RELATIONS)}",
                "use 'replace-one'",
            )
        if self.rows is None:
            object.__setattr__(self, "rows", float(n.sum()))

    @property
    def opens_only_sums(self) -> bool:
        """Whether only sums over all sites are released (trust in sums)."""
        return self.participants > 0

    @property
    def pooled_facts(self) -> Facts:
        """Facts as if every site held the rows of all, so that they are equal at all sites.

        Refusals and certificates of sums are computed with them, for the largest rounding.
        """
        assert self.rows is not None
        return replace(self, n=np.full_like(self.n, self.rows))

    @property
    def has_several_rows(self) -> bool:
        """Whether a privacy unit may have several rows."""
        return (self.rows_per_person or 1) > 1

    def most_rows_of_units(self, units: Array) -> Array:
        """Return the largest number of rows of this many privacy units."""
        return np.asarray(units * float(self.rows_per_person or 1))

    @property
    def rows_per_node(self) -> Array:
        """Rows of every node, (N, 1)."""
        return self.n if self.sizes is None else self.sizes

    @property
    def gradients_changed(self) -> float:
        """By how much one row can change a node's sum of gradients, Delta.

        It is 2 times the loss's derivative bound under replace-one, and once under zero-out.
        """
        return RELATIONS[self.relation] * self.loss.derivative_bound

    @property
    def change_certified(self) -> float:
        """Delta under the relation for which solves were certified: the scale of their errors."""
        return RELATIONS[self.solved_for or self.relation] * self.loss.derivative_bound

    @property
    def exact_tol(self) -> float:
        """The tolerance over C for solves whose answer gets no noise.

        It is ``tol``, or if that is None `EXACT` times the loss's derivative bound (at most 1).
        """
        return EXACT * min(1.0, self.loss.derivative_bound) if self.tol is None else self.tol

    @property
    def mu(self) -> float:
        """Strong convexity of a node's regulariser, ``rho / N``."""
        return self.rho / self.n_nodes

    @property
    def mixing_weight(self) -> float:
        """Weight of each neighbour in an averaging step, ``1 / (1 + max_degree)``.

        It is the same for all edges, so that averaging keeps the network's mean.
        """
        return 1.0 / (1.0 + (self.n_nodes - 1 if self.max_degree is None else self.max_degree))

    def strong_convexity_of(self, curvature: ArrayLike) -> Array:
        """Return K, the strong convexity in sum scale of regulariser and public quadratic term.

        `curvature`, (N, 1) or (1,), is that of the quadratic term: ``K = (n / C)(rho / N +
        curvature)``.
        """
        return self.n / self.C * (self.mu + np.asarray(curvature, dtype=float))

    def sklearn_weights(self) -> Array:
        """Return the ``sample_weight`` of each node's rows for the same fit by scikit-learn.

        With it ``LogisticRegression(C=1, fit_intercept=False)`` has the same minimiser.

        scikit-learn minimises ``C sum_k s_k loss_k + ||w||^2 / 2``; dividing ``sum_i f_i`` by rho
        gives ``s_k = C / (n_i rho)`` for the rows of node i.  Equal sites: ``LogisticRegression(C=C
        / (n_i rho))``.
        """
        return self.C / (self.n * self.rho)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        n = self.n.ravel()
        summed = {
            "participants": self.participants,
            "colluders": self.colluders,
            "sites_per_row": self.sites_per_row,
        }
        moved = {"stretch": self.stretch} if self.stretch != 1.0 else {}
        people = {} if self.rows_per_person is None else {"rows_per_person": self.rows_per_person}
        return (
            (summed if self.participants else {})
            | people
            | moved
            | {
                "loss": self.loss.spec,
                "n": n.astype(int).tolist(),
                "d": self.d,
                "C": self.C,
                "rho": self.rho,
                "n_nodes": self.n_nodes,
                "relation": self.relation,
                "tol": self.tol,
                "pure": self.pure,
                "max_degree": self.max_degree,
            }
        )

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Facts:
        """Inverse of :meth:`to_dict` for the view from all nodes."""
        n = np.asarray(plain["n"], dtype=float)[:, None]
        return cls(**(plain | {"loss": read_loss(plain["loss"]), "n": n}))

    def facts_of_node(self, i: int) -> Facts:
        """The view of node `i`."""
        return replace(self, n=self.n[i], sizes=self.rows_per_node)


@dataclass(frozen=True)
class Among:
    """The sites that take part in one attempt at a sum: public, and agreed before noise is drawn.

    `rows` is the number of rows of these sites together, and `sites` their number.
    """

    rows: float
    sites: int

    @classmethod
    def all_sites(cls, facts: Facts) -> Self:
        """Return the record of all sites of a run."""
        assert facts.rows is not None
        return cls(facts.rows, facts.n_nodes)

    def check(self, facts: Facts) -> None:
        """Refuse numbers that no attempt of this run can have; called before anything is charged.

        There must be enough sites for a sum.  All sites have all rows; fewer sites have at least
        this site's rows and one row of each other, and fewer than all rows.
        """
        assert facts.rows is not None
        own, all_of_them = float(np.max(facts.n)), self.sites == facts.n_nodes
        if not (
            max(facts.participants, facts.colluders + 1) <= self.sites <= facts.n_nodes
            and (
                self.rows == facts.rows
                if all_of_them
                else own + self.sites - 1 <= self.rows < facts.rows
            )
        ):
            raise Refused(
                f"sites={self.sites}: this run has {facts.n_nodes} sites, "
                f"and a sum needs {facts.participants} of them with the agreed numbers of rows; "
                "nothing was charged; find out which site signed another list of sites"
            )
