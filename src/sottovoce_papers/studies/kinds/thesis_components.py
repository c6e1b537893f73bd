"""003's principal components with privacy: one ledger is charged for the noisy moments and for the
models learnt on the projected rows.

The number of components is public, so both releases of a site are priced before the first; the
second's query depends on the first release, which adaptive composition allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sottovoce import Ledger
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.privacy import accountants
from sottovoce.privacy.calibration import calibrate, tolerance_for
from sottovoce.privacy.events import Event, Unprotected
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.queries import GaussianLaw
from sottovoce.queries.moments import unflatten_symmetric
from sottovoce.queries.objective import PerturbedObjective
from sottovoce.runs.row_guard import RowGuard
from sottovoce.util.typing import Any, Array

from ...aggregation import Terms
from ...moments import NoisyMoments, SquaredMargin
from . import Row, check
from .thesis_data import derived, load, splits
from .thesis_models import DELTA

_KNOWN = {
    "data",
    "pca",
    "components",
    "share",
    "loss",
    "Lambda",
    "epsilon",
    "sites",
    "rows",
    "splits",
    "replicates",
    "seed",
}
SOURCE = "second moments"


def components(p: Mapping[str, Any]) -> list[Row]:
    """Average N sites' models on rows projected onto principal components, and score the average.
    `pca` says where the components come from (:mod:`.thesis_data`).

    Parameters: `data`, `pca`, `loss`, `Lambda`, `sites`, `rows`, `splits`; `epsilon`, the total of
    a site at delta 1e-5; for private components their number `components`, and the `share` of
    epsilon that the moments would cost alone.
    """
    check(p, _KNOWN)
    pca, N, m = p["pca"], int(p["sites"]), int(p["rows"])
    out: list[Row] = []
    # private components are learnt below, from the rows of each split
    reduced_by = pca
    if pca == "private":
        reduced_by = "none"
    held = load(p["data"], reduced_by)
    width, terms = held.X.shape[1], Terms(float(p["epsilon"]), DELTA, float(p["Lambda"]), p["loss"])
    n = np.full((N, 1), float(m))
    # Events before the models, and those of them that the total pays for: nothing pays for the
    # thesis's components, whose ledger says infinity.
    before: list[Event] = []
    paid: list[Event] = []
    if pca == "thesis":
        before = [Unprotected("003, Appendix A", n)]
    moments, facts, kept = None, terms.facts(n, width), width
    if pca == "private":
        kept = min(int(p["components"]), width)
        moments, about = noisy_moments(n, width, terms.epsilon * float(p["share"]), N)
        before = paid = [moments.event(about)]
        facts = terms.facts(n, kept)
    sigma = _least_noise(lambda s: [*paid, _model(s, facts, 1).event(facts)], terms)
    for seed, first, some in splits(p):
        rows = Rows.build_from_parts(held.deal([m] * N, seed))
        # Private components differ between replicates, and so do the projected rows: then each
        # replicate is a batch of its own.
        batches = [some]
        if moments is not None:
            batches = [1] * some
        for k, R in enumerate(batches):
            own = derived(seed, k)
            seen, projected = held, rows
            ledger = Ledger(accountants.make_accountant(terms.accountant), math.inf, DELTA)
            if moments is not None:
                guard = RowGuard(rows, about, KeyedNoise(own, range(1), range(N), (N,)), ledger)
                mean = guard.charge_and_answer(moments).mean(axis=0)
                # the leading eigenvectors of the sites' mean matrix; eigh has the smallest first
                vectors = np.linalg.eigh(unflatten_symmetric(mean, width))[1]
                basis = vectors[:, ::-1][:, :kept]
                seen = held.onto(np.ascontiguousarray(basis))
                projected = Rows.build_from_parts(seen.deal([m] * N, seed))
            elif before:
                ledger.record_event(before[0])
            noise = KeyedNoise(derived(own, 1), range(R), range(N))
            guard = RowGuard(projected, facts, noise, ledger)
            models = guard.charge_and_answer(_model(sigma, facts, R)).mean(axis=1)
            row = _row(pca, ledger, terms, kept) | held.notes
            row["_privacy"] = held.told(row["_privacy"])
            errors = seen.errors(models)
            out += [
                row | {"replicate": first + k + j, "error": float(error)}
                for j, error in enumerate(errors)
            ]
    return out


def noisy_moments(n: Array, width: int, epsilon: float, nodes: int) -> tuple[NoisyMoments, Facts]:
    """Build the release of second moments that costs (`epsilon`, 1e-5) by itself.

    Parameters
    ----------
    n : ndarray of shape (N, 1)
        Rows of each site.
    width : int
        Number of features.
    epsilon : float
        Cost of the release, at delta 1e-5.
    nodes : int
        Number N of sites.

    Returns
    -------
    query : NoisyMoments
    facts : Facts
        What its row guard needs.
    """
    entries = width * (width + 1) // 2
    alpha = np.full((nodes, 1), gaussian_mu(epsilon, DELTA))
    facts = Facts(SquaredMargin(), n, entries, 1.0, 1.0, nodes, pure=False)
    return NoisyMoments(np.zeros((nodes, entries)), alpha, SOURCE, width=width), facts


def _model(sigma: float, facts: Facts, replicates: int) -> PerturbedObjective:
    """Build the release of every site's model, (replicates, N, d), with Gaussian noise `sigma`."""
    zero = np.zeros((replicates, facts.n_nodes, facts.d))
    law = GaussianLaw(np.full(facts.n.shape, sigma))
    return PerturbedObjective(
        zero, np.zeros(facts.n.shape), zero, law, "003, Algorithm 2, Gaussian"
    )


def _least_noise(events: Callable[[float], Sequence[Event]], terms: Terms) -> float:
    """Find the smallest sigma, the same for all sites, at which all events cost at most the target.

    ``events(sigma)`` are those of all releases of a site.
    """
    accountant = accountants.make_accountant(terms.accountant)

    def worst(scale: Array) -> Array:
        return np.max(
            accountant.epsilon_of_events(events(1.0 / float(scale[0])), DELTA), keepdims=True
        )

    found = calibrate(worst, [terms.epsilon], tolerance=tolerance_for(accountant))
    if not found.met.all():
        rule = "is used up before the models are priced, by the moments or the loss's curvature"
        raise InvalidInput(
            "epsilon", terms.epsilon, rule, "lower share, or raise epsilon or Lambda"
        )
    return 1.0 / float(found.scale[0])


def _row(pca: str, ledger: Ledger, terms: Terms, kept: int) -> Row:
    """Return the columns of a cell that do not depend on the replicate."""
    total = ledger.total()
    words = {
        "none": "No components: one row of one site is protected.",
        "public": "Components of rows declared public: one row of one site is protected.",
        "thesis": "The thesis's components: nothing is protected, since nothing pays for them.",
        "private": "Components of noisy moments: one row of one site is protected, the moments "
        "included.",
    }
    # an infinite epsilon has no delta, and only the thesis claims without a proof
    delta, claimed = 0.0, None
    if math.isfinite(total):
        delta = DELTA
    if pca == "thesis":
        claimed = terms.epsilon
    return {
        "target": terms.epsilon,
        "epsilon": total,
        "delta": delta,
        "claimed": claimed,
        "kept": kept,
        "_privacy": words[pca],
    }
