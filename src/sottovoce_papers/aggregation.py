"""The aggregation methods of 003: sites release one model each, and an aggregator makes one model
of them.

A party is a site, or an aggregator with rows of its own.  It releases one model: its row guard
charges the privacy loss to a ledger whose budget is the party's target, and only then draws noise.
Everything after the release is post-processing. A party of n rows minimises ``(1/n) sum_k loss +
(Lambda/2) ||w||^2`` (003, eq. 3.1): :class:`Facts` with C = 1.

The feature method maps the aggregator's rows to ``x' = M x / ||M||_op``, where ``M = [w_1 .. w_N]``
are the released models (003 does not divide by the norm), learns weights v of them, and releases
``M' v / ||M||_op``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, pairwise

import numpy as np

from sottovoce import Ledger, data
from sottovoce.data.labels import require_two_classes
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import validate_target
from sottovoce.privacy import accountants
from sottovoce.privacy.calibration import calibrate, tolerance_for
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.privacy.statement import Statement, build_statement, with_further_facts
from sottovoce.privacy.statement_facts import (
    EXACT,
    ONE_ROW,
    UNUSED,
    Against,
    Caveats,
    Claim,
    Fact,
    Form,
    Proved,
    Relation,
    Simulated,
    TakenAsPublic,
    Unit,
    Unproved,
)
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import make_loss
from sottovoce.problem.trust import NOBODY, Trust
from sottovoce.queries import GaussianLaw, Query, SphericalLaw
from sottovoce.queries.objective import PerturbedObjective
from sottovoce.runs.row_guard import RowGuard
from sottovoce.util.plain import infinities_to_text
from sottovoce.util.typing import Any, Array

from .average import NoisyAverage

SETTINGS = ("non-private", "public-private", "private")
SIZES = "that a party takes part and how many rows it has"  # taken as public in every statement
_SAFE = 1.0 + 1e-12  # factor on operator norms that covers their rounding and that of products
# [rows of an aggregator, child, child, ...]; a child is the rows of one site, or another such list
Tree = list[Any]


@dataclass(frozen=True)
class Terms:
    """What all parties agree on before any row is read.

    Every party has the total `epsilon` (``inf`` draws no noise): pure without a `delta`, else the
    smallest that any accountant gives.  `Lambda` weighs ``||w||^2 / 2`` beside the mean loss;
    `seed` keys the noise of a simulation with `replicates` repetitions; the other fields are as in
    :class:`sottovoce.problem.facts.Facts`.
    """

    epsilon: float = 1.0
    delta: float | None = None
    Lambda: float = 0.01
    loss: str = "logistic"
    relation: str = "replace-one"
    seed: int = 0
    replicates: int = 1
    tol: float = 1e-8

    def __post_init__(self) -> None:
        validate_target(self.epsilon, self.delta)
        if not (math.isfinite(self.Lambda) and self.Lambda > 0):
            raise InvalidInput("Lambda", self.Lambda, "must be finite and > 0", "use Lambda=0.01")
        if self.replicates < 1 or self.seed < 0:
            raise InvalidInput(
                "replicates", self.replicates, "must be >= 1, and seed >= 0", "use replicates=10"
            )

    @property
    def accountant(self) -> str:
        if self.delta is None:
            return "pure"
        return "best"

    def facts(self, n: Array, d: int) -> Facts:
        """Return the public facts of N parties with `n` rows, (N, 1), and d features."""
        loss, N = make_loss(self.loss), len(n)
        return Facts(
            loss, n, d, 1.0, self.Lambda * N, N, self.relation, self.tol, pure=self.delta is None
        )

    def noise(self, parties: range, lead: tuple[int, ...] | None = None) -> KeyedNoise:
        """Return the source of noise of shape (replicates, parties, d), or ``(*lead, d)``."""
        return KeyedNoise(self.seed, range(self.replicates), parties, lead)


@dataclass(frozen=True)
class Fit:
    """Fitted models, (R, d) or (R, N, d) for the local method, with the site-level and
    aggregator-level guarantees.
    """

    models: Array
    sites: Statement
    aggregator: Statement


def curvature_for(epsilon: float, facts: Facts) -> Array:
    """Compute the extra ridge, (N, 1), at which the determinant costs at most `epsilon` / 2.

    The determinant of the change of variables costs ``ln(1 + c1/K)``, where K is the strong
    convexity of the objective for a sum over rows (docs/privacy, U4).
    """
    least = facts.loss.curvature_bound / math.expm1(min(epsilon, 100.0) / 2.0)
    return np.maximum(0.0, least * facts.C / facts.n - facts.mu)


def rate_for(build: Callable[[Array, Facts], Query], facts: Facts, terms: Terms) -> Array:
    """Find the noise rate, (N, 1), at which a release costs each party `terms.epsilon` at most.

    A larger rate is less noise.  It is searched once for each size of party.

    Parameters
    ----------
    build : callable
        ``build(rate, facts)`` gives the query whose release is priced, for rates (m, 1) and the
        facts of m parties.
    facts : Facts
        Of N parties.
    terms : Terms
        Has the target `epsilon` and `delta`.

    Returns
    -------
    ndarray of shape (N, 1)

    Raises
    ------
    InvalidInput
        If the part of the price that noise does not lower is above the target already.
    """
    sizes, where = np.unique(facts.n, return_inverse=True)
    few, target = replace(facts, n=sizes[:, None]), np.full(sizes.size, terms.epsilon)
    accountant = accountants.make_accountant(terms.accountant)

    def price(rate: Array) -> Array:
        release = build(rate[:, None], few).event(few)
        return accountant.epsilon_of_events([release], terms.delta or 0.0)

    found = calibrate(price, target, tolerance=tolerance_for(accountant))
    if not found.met.all():
        rule = "is less than what the curvature of the loss costs at any amount of noise"
        raise InvalidInput(
            "epsilon", terms.epsilon, rule, "raise epsilon or Lambda, or give the parties more rows"
        )
    return found.scale[where.ravel()][:, None]


def _law(rate: Array, terms: Terms) -> SphericalLaw | GaussianLaw:
    # a pure guarantee needs noise with exponential tails; a Gaussian's rate is 1 / sigma
    if terms.delta is None:
        return SphericalLaw(rate)
    return GaussianLaw(1.0 / rate)


def _objective(start: Array, terms: Terms) -> Callable[[Array, Facts], PerturbedObjective]:
    """Return a function that builds the corrected objective perturbation for a noise rate.

    `start` has the shape of the answer.
    """

    def build(rate: Array, facts: Facts) -> PerturbedObjective:
        law = _law(rate, terms)
        return PerturbedObjective(
            start, curvature_for(terms.epsilon, facts), start, law, "003, Algorithm 2"
        )

    return build


def listed(epsilon: float, facts: Facts, letter: bool = False) -> tuple[Array, Array]:
    """Compute ridge and noise rate by 003, Algorithm 2, step 1, for features of norm 1.

    ``epsilon' = epsilon - 2 ln(1 + c / (n Lambda))``; where that is not positive, an extra ridge
    Delta makes it ``epsilon / 2``. The rate is ``epsilon' / 2``.

    003 prints ``Delta = c / (n (e^(c / (2 Lambda)) - 1)) - Lambda``.  Its source (Chaudhuri,
    Monteleoni and Sarwate 2011, Algorithm 2) has ``e^(epsilon / 4)``, at which the determinant
    costs at most the other half.  That is what 003 means, since its Theorem 3.3 cites that proof,
    and what runs here.  With `letter`, what it prints: the determinant then costs ``c / (2
    Lambda)``.

    Parameters
    ----------
    epsilon : float
        The target of one release.
    facts : Facts
        Of N parties.
    letter : bool
        Use the Delta that 003 prints.

    Returns
    -------
    ridge, rate : ndarray of shape (N, 1)
        Delta, 0 where it is not needed, and the rate of the noise.
    """
    c = facts.loss.curvature_bound
    exponent = epsilon / 4.0
    if letter:
        exponent = c / (2.0 * facts.mu)
    # expm1 overflows beyond 709, and the ridge is then -mu to all digits
    power = min(exponent, 700.0)
    # epsilon' of the listing; where it is not positive, the second branch of step 1
    rest = epsilon - 2.0 * np.log1p(c / facts.strong_convexity_of(0.0))
    ridge = facts.C * c / (facts.n * math.expm1(power)) - facts.mu
    return np.where(rest > 0, 0.0, ridge), np.where(rest > 0, rest, epsilon / 2.0) / 2.0


def _ask(
    query: Query, rows: Rows, terms: Terms, noise: KeyedNoise, budget: float
) -> tuple[Array, Ledger]:
    """Charge a query to a new ledger of this budget, then answer it; return answer and ledger."""
    ledger = Ledger(accountants.make_accountant(terms.accountant), budget, terms.delta or 0.0)
    guard = RowGuard(rows, terms.facts(rows.n, rows.d), noise, ledger)
    return guard.charge_and_answer(query), ledger


def _learn(
    rows: Rows, terms: Terms, noise: KeyedNoise, lead: tuple[int, ...], form: str = "corrected"
) -> tuple[Array, Ledger]:
    """Release every party's minimiser with noise in its objective, (*lead, d); exact at infinite
    epsilon.

    `lead` are the leading axes of the answer, such as (replicates, parties).  Also returns the
    charged ledger.
    """
    facts, start = terms.facts(rows.n, rows.d), np.zeros((*lead, rows.d))
    query = PerturbedObjective(start, np.zeros(rows.n.shape), start, None, "003, section 4.2")
    if form not in ("corrected", "printed"):
        raise InvalidInput("form", form, "must be 'corrected' or 'printed'", "use 'corrected'")
    if form == "printed" and math.isfinite(terms.epsilon):
        # to the letter: no noise for the solver's error, and no budget that could refuse a claim
        # that does not hold
        ridge, rate = listed(terms.epsilon, facts)
        law = SphericalLaw(rate, polish=False, claimed=np.full(rows.n.shape, terms.epsilon))
        query = PerturbedObjective(start, ridge, start, law, "003, Algorithm 2 (printed)")
        return _ask(query, rows, terms, noise, math.inf)
    if math.isfinite(terms.epsilon):
        build = _objective(start, terms)
        query = build(rate_for(build, facts, terms), facts)
    return _ask(query, rows, terms, noise, terms.epsilon)


def _promise(
    ledger: Ledger,
    terms: Terms,
    trust: Trust,
    *,
    unit: str = "one row of one party",
    nodes: int = 1,
    form: str = "corrected",
    claim: Claim | None = None,
    unprotected: str | None = None,
) -> Statement:
    """Build the privacy statement of a simulation from its charged ledger.

    `claim` is what the paper claims, needed for a printed form with noise; `unprotected` says what
    is released without protection, or is None.
    """
    noisy = math.isfinite(terms.epsilon)
    # without noise both forms are the exact minimiser
    if not noisy:
        form = "corrected"
    known: list[Fact] = [
        Proved.proved_by_ledger(ledger, nodes),
        Against(trust),
        Relation(terms.relation),
        Unit(unit),
        TakenAsPublic(SIZES),
        Simulated(True),
        Form(form),
        Unproved(unprotected),
    ]
    if form != "corrected":
        # every printed form states what its paper claims, and on which assumption
        assert claim is not None
        known.append(claim)
    return build_statement(known)


def _unused(terms: Terms) -> Statement:
    """Build the statement for rows from which nothing was released."""
    known = [
        Proved.nothing_released(terms.accountant),
        Against(NOBODY),
        Relation(terms.relation),
        Unit(UNUSED),
        TakenAsPublic(""),
        Simulated(True),
        Form("corrected"),
    ]
    return build_statement(known)


def local(sites: Rows, terms: Terms, form: str = "corrected") -> Fit:
    """Fit every site's own model by objective perturbation; exact at infinite epsilon.

    Parameters
    ----------
    sites : Rows
        Rows of N sites in the unit ball.
    terms : Terms
        Targets, loss, regulariser and the seed of the noise.
    form : {"corrected", "printed"}
        With "printed" it is 003's Algorithm 2 with the Delta of its source (:func:`listed`), and
        the stated epsilon is what can be proved for it.

    Returns
    -------
    Fit
        Models (R, N, d).
    """
    lead = (terms.replicates, len(sites.n))
    models, ledger = _learn(sites, terms, terms.noise(range(lead[1])), lead, form)
    trust = Trust("nobody", sees="every party's model")
    claim, why = Claim(terms.epsilon, EXACT), "exact models are released"
    said = _promise(ledger, terms, trust, nodes=lead[1], form=form, claim=claim, unprotected=why)
    return Fit(models, said, _unused(terms))


def pooled(parties: Rows, terms: Terms, form: str = "corrected") -> Fit:
    """Fit 003's global method: a trusted curator holds the rows of all parties.

    Parameters
    ----------
    parties : Rows
        Rows of all parties in the unit ball.
    terms : Terms
        Targets, loss, regulariser and the seed of the noise.
    form : {"corrected", "printed"}
        As for :func:`local`.

    Returns
    -------
    Fit
        Models (R, d).
    """
    rows = _as_rows(
        [np.concatenate([parties.rows_of_node(i).signed[0] for i in range(len(parties.n))])]
    )
    N = len(parties.n)
    models, ledger = _learn(rows, terms, terms.noise(range(N, N + 1)), (terms.replicates, 1), form)
    trust = Trust("curator", sees="the model")
    claim, why = Claim(terms.epsilon, EXACT), "the exact model of all rows is released"
    said = _promise(ledger, terms, trust, form=form, claim=claim, unprotected=why)
    return Fit(models[:, 0], said, said)


def average(released: Fit) -> Fit:
    """Average the models that :func:`local` released (003, Algorithm 4, scenario 1), at no cost."""
    return replace(released, models=released.models.mean(axis=1))


def average_trusted(sites: Rows, terms: Terms, form: str = "corrected") -> Fit:
    """Fit 003's Algorithm 4, scenario 2: a trusted aggregator averages exact models and adds noise.

    Parameters
    ----------
    sites : Rows
        Rows of N sites in the unit ball.
    terms : Terms
        Targets, loss, regulariser and the seed of the noise.
    form : {"corrected", "printed"}
        003's noise is for the size of the site to be protected, which is one number only if all
        sizes are equal.  With "printed" the noise is for sites of the mean size, and the stated
        epsilon is that of the smallest site.

    Returns
    -------
    Fit
        Models (R, d).
    """
    start = np.zeros((terms.replicates, sites.d))
    # A row of the smallest site moves the average most, so noise for sites of the mean size is too
    # little for it.
    if form == "corrected":
        size, budget = sites.n.min(keepdims=True), terms.epsilon
    else:
        size, budget = sites.n.mean(keepdims=True), math.inf
    worst = replace(terms.facts(sites.n, sites.d), n=size)

    def build(rate: Array, facts: Facts) -> NoisyAverage:
        return NoisyAverage(rate, terms.delta is not None, start)

    noise = terms.noise(range(len(sites.n), len(sites.n) + 1), (terms.replicates,))
    models, ledger = _ask(build(rate_for(build, worst, terms), worst), sites, terms, noise, budget)
    trust = Trust("aggregator", sees="the average")
    # the solver's error is in the noise
    claim = Claim(terms.epsilon, "all sites have the same number of rows")
    said = _promise(ledger, terms, trust, nodes=len(sites.n), unit=ONE_ROW, form=form, claim=claim)
    return Fit(models, said, _unused(terms))


def _as_rows(signed: list[Array]) -> Rows:
    """Validate the signed rows ``y x``, (n_i, d), of every party."""
    return replace(Rows.build_from_parts([(a, np.ones(len(a))) for a in signed]), one_class=())


def features(rows: Rows, M: Array) -> tuple[Rows, Array]:
    """Map an aggregator's rows to the features ``M x / ||M||_op`` of the sites' models M (R, N, d).

    Returns rows with one node for each replicate, and the operator norms (R, 1).
    """
    norms = np.linalg.norm(M, ord=2, axis=(-2, -1)) * _SAFE
    # models that are all zero make features that are all zero
    norms = np.where(norms > 0, norms, 1.0)
    signed = rows.rows_of_node(0).signed[0]
    mapped = _as_rows([signed @ (m / norm).T for m, norm in zip(M, norms, strict=True)])
    return mapped, norms[:, None]


def feature(
    released: Fit, aggregator: Rows, terms: Terms, own: str = "private", party: int | None = None
) -> Fit:
    """Fit 003's feature method (Algorithm 5): an aggregator learns weights of the sites' models.

    Parameters
    ----------
    released : Fit
        The sites' models (R, N, d), of :func:`local`.
    aggregator : Rows
        Its rows, of one node.
    terms : Terms
        Targets, loss, regulariser and the seed of the noise.
    own : {"private", "public", "printed"}
        How the aggregator's rows are treated: "private" protects them by `terms`; "public" declares
        them public and draws no noise; "printed" does as 003 prints: features ``M x`` of any norm,
        noise and ridge of its Algorithm 2 for features of norm 1, and the stated epsilon is what
        can be proved.
    party : int, optional
        Number that keys the aggregator's noise, by default the number of sites.

    Returns
    -------
    Fit
        Models (R, d).

    Raises
    ------
    InvalidInput
        If `own` is another word.
    """
    M, sites = released.models, released.sites
    rows, norms = features(aggregator, M)
    lead = (terms.replicates,)
    # sites have the keys before it
    if party is None:
        party = M.shape[1]
    noise = terms.noise(range(party, party + 1), lead)
    # Each replicate of the one release is a node here, so the price of the release is that of the
    # ledger's worst node.
    claim, unprotected = None, None
    if own == "private":
        v, ledger = _learn(rows, terms, noise, lead)
    else:
        # Features M x with regulariser q are equivalent to M x / ||M|| with q / ||M||^2 and noise
        # divided by ||M||.
        facts, start = terms.facts(rows.n, rows.d), np.zeros((*lead, rows.d))
        law, q = None, np.array(facts.mu)
        if own == "public":
            unprotected = "its rows are public by declaration, and used without noise"
        elif own == "printed":
            ridge, rate = listed(terms.epsilon, facts)
            law, q = SphericalLaw(rate * norms, polish=False), q + ridge
            assumes = "features of norm 1, which these may exceed, and an exact minimiser"
            claim = Claim(terms.epsilon, assumes)
        else:
            raise InvalidInput(
                "own", own, "must be 'private', 'public' or 'printed'", "use 'private'"
            )
        query = PerturbedObjective(start, q / norms**2 - facts.mu, start, law, "003, Algorithm 5")
        v, ledger = _ask(query, rows, terms, noise, math.inf)
    if math.isinf(sites.epsilon):
        why = "the result lies in the span of the sites' exact models, which one row moves"
        sites = with_further_facts(sites, Unproved(why))
    form = "corrected"
    if own == "printed":
        form = "printed"
    said = _promise(
        ledger,
        terms,
        Trust("nobody", sees="every model"),
        unit="one row of the aggregator",
        form=form,
        claim=claim,
        unprotected=unprotected,
    )
    return Fit(np.einsum("rn,rnd->rd", v / norms, M), sites, said)


def multilevel(tree: Tree, terms: Terms) -> Fit:
    """Fit the private feature method at every aggregator of a tree (003, section 6.2.2).

    An aggregator's model is a feature of the aggregator above it.  Every party releases once, from
    its own rows; the guarantee of the aggregators is that of the worst one.  For `tree` see
    :data:`Tree`; InvalidInput if a list is no such tree.
    """

    def leaves(node: Rows | Tree) -> list[Rows]:
        if isinstance(node, Rows):
            return [node]
        if len(node) < 2 or not isinstance(node[0], Rows):
            raise InvalidInput(
                "tree",
                len(node),
                "must be an aggregator's rows, then its children",
                "write, e.g., [D0, D1, D2]",
            )
        return [leaf for child in node[1:] for leaf in leaves(child)]

    base = local(_as_rows([leaf.rows_of_node(0).signed[0] for leaf in leaves(tree)]), terms)
    site, aggregator, said = count(), count(base.models.shape[1]), [base.aggregator]

    def model(node: Rows | Tree) -> Array:
        if isinstance(node, Rows):
            return base.models[:, next(site)]
        party = next(aggregator)
        below = replace(base, models=np.stack([model(child) for child in node[1:]], axis=1))
        fit = feature(below, node[0], terms, party=party)
        said.append(fit.aggregator)
        return fit.models

    return Fit(model(tree), base.sites, max(said, key=lambda one: one.epsilon))


@dataclass(frozen=True)
class CompareConfig(Terms):
    """The configuration of :func:`compare`: the terms, the data and how it is partitioned.

    Each of `sites` sites gets `rows` training rows, and the aggregator `aggregator_rows`.
    `setting` is one of `SETTINGS`: whose rows are protected; `data` and `schema` as for
    :func:`sottovoce.data.load`.
    """

    epsilon: float = 0.1
    replicates: int = 10
    data: str = "mnist37"
    schema: str | None = None
    sites: int = 10
    rows: int = 789
    aggregator_rows: int = 789
    setting: str = "public-private"


def compare(config: CompareConfig) -> list[dict[str, Any]]:
    """Run every method of the setting on one split of the data.

    Returns one mapping a method: `method`, mean and standard deviation of the test error over
    replicates of the noise, and the guarantees of the sites and of the aggregator.
    """
    if config.setting not in SETTINGS:
        raise InvalidInput(
            "setting", config.setting, f"must be one of {', '.join(SETTINGS)}", "use 'private'"
        )
    N, m0 = config.sites, config.aggregator_rows
    if min(N, config.rows, m0) < 1:
        raise InvalidInput(
            "sites", N, "sites, rows and aggregator_rows must be >= 1", "correct them"
        )
    exact: Terms = replace(config, epsilon=math.inf)
    terms: Terms = config
    if config.setting == "non-private":
        terms = exact
    dataset = data.load(config.data, schema=config.schema)
    require_two_classes(dataset.task, "compare", weighs=dataset.weights is not None)
    if dataset.people is not None:
        rule = "is not supported by this command, which protects single rows, not people"
        remedy = "keep one row per person and leave person out, or use `sottovoce train`"
        raise InvalidInput("person", None, rule, remedy)
    X, y = dataset.X_train, dataset.y_train
    cuts = np.append(np.arange(N + 1) * config.rows, N * config.rows + m0)
    if cuts[-1] > len(y):
        raise InvalidInput(
            "rows",
            config.rows,
            f"{cuts[-1]} rows are needed in all, and there are {len(y)}",
            "use fewer sites, or fewer rows a site",
        )
    order = np.random.default_rng(config.seed).permutation(len(y))
    dealt = [order[a:b] for a, b in pairwise(cuts)]
    parties = Rows.build_from_parts([(X[part], y[part]) for part in dealt])
    sites = _as_rows([parties.rows_of_node(i).signed[0] for i in range(N)])
    aggregator = parties.rows_of_node(N)
    # in the other settings the aggregator's rows are public, or nobody's are protected
    own_terms, treated = exact, "public"
    if config.setting == "private":
        own_terms, treated = terms, "private"
    alone, own = local(sites, terms), local(aggregator, own_terms)
    fits = {"local": alone, "aggregator alone": Fit(own.models, own.aggregator, own.sites)}
    fits |= {"global": pooled(parties, terms), "average": average(alone)}
    if config.setting != "non-private":
        fits["average, trusted aggregator"] = average_trusted(sites, terms)
    fits["feature"] = feature(alone, aggregator, terms, treated)
    if config.setting == "private":
        fits["feature, as printed at the aggregator"] = feature(
            local(sites, exact), aggregator, terms, "printed"
        )
        # three aggregators with a row each, two of them above two sites each (003, section 6.2.2)
        if N >= 4 and m0 >= 3:
            bosses = [_as_rows([part]) for part in np.array_split(aggregator.signed[0], 3)]
            each = [sites.rows_of_node(i) for i in range(N)]
            tree = [bosses[0], [bosses[1], *each[: N // 2]], [bosses[2], *each[N // 2 :]]]
            fits["feature, two levels"] = multilevel(tree, terms)
    table = []
    for name, fit in fits.items():
        errors = dataset.task.model_errors(dataset.X_test, dataset.y_test, fit.models)
        errors = errors.reshape(config.replicates, -1).mean(axis=1)
        row = {"method": name, "test_error": float(errors.mean()), "replicates": errors.size}
        row["test_error_sd"] = 0.0
        if errors.size > 1:
            row["test_error_sd"] = float(errors.std(ddof=1))
        for who, said in (("sites", fit.sites), ("aggregator", fit.aggregator)):
            row[who] = with_further_facts(said, Caveats(dataset.caveat)).comparable_promise()
        table.append(infinities_to_text(row))
    return table
