"""Privacy audits: attempts to refute a privacy claim by attacking the real code.

``sottovoce audit`` and :func:`attack` play a *game*: two neighbouring tables are run many times,
and an adversary who sees all messages says which table a run was of.  From how often she is right
follows a lower bound on epsilon; above the claim, it refutes the claim.  A method is attacked on
its worst known pair of tables (:mod:`.worst_cases`, played by :mod:`.game`); :data:`ADVERSARIES`
attack the code around the methods.  Where a run makes one release, quadrature gives the exact
epsilon of the pair (:mod:`.exact`).  The page is docs/explanation/audit.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..algorithms import REGISTRY
from ..errors import InvalidInput
from ..runs.registering import find_method, is_from_outside
from ..util import plugins
from . import aborts, answers, clipped, labels, people, rare, stopping, sums, worst_cases
from .confidence import check_replicates, choose_test, epsilon_bound
from .exact import densities
from .game import USUAL, Case, Claim, Options, Scores, Verdict, play
from .worst_cases import make_case

__all__ = [
    "ADVERSARIES",
    "FORMS",
    "Adversary",
    "Case",
    "Claim",
    "Options",
    "Scores",
    "Verdict",
    "attack",
    "choose_test",
    "densities",
    "epsilon_bound",
    "forms_of",
    "make_case",
    "play",
    "targets",
]

FORMS = ("corrected", "printed", "listed")
"""Forms of a method, each with its own claim; few methods have all three.

``corrected`` has a proof that covers the code; ``printed`` is the paper's algorithm with the
paper's claim; ``listed`` is the paper's listing to the letter (``pvp`` only)."""


class Adversary(NamedTuple):
    """An audit that attacks code around the methods, with its default numbers of runs.

    Parameters
    ----------
    play : callable
        Takes :class:`sottovoce.audit.game.Options`; those of :data:`ADVERSARIES` also take, as
        ``stands``, what is attacked by name: cases, ledgers, estimators or sites.  Tests plant
        faults there.
    runs, quick : int
        Runs of each table, by default and with ``quick``.
    forms : tuple of str
        Forms of the claim that can be attacked.
    more : bool
        True if more runs than `runs` may be requested.  False where one run is a whole release.
    """

    play: Callable[..., Verdict]
    runs: int
    quick: int
    forms: tuple[str, ...] = ("corrected",)
    more: bool = False


ADVERSARIES: dict[str, Adversary] = {
    "stopping": Adversary(stopping.play, stopping.RUNS, stopping.QUICK_RUNS),
    "refusals": Adversary(aborts.play, aborts.RUNS, aborts.QUICK_RUNS),
    "labels": Adversary(labels.play, labels.RUNS, labels.QUICK_RUNS),
    "capped": Adversary(clipped.play, clipped.RUNS, clipped.QUICK_RUNS),
    "sums": Adversary(sums.play, sums.RUNS, sums.QUICK_RUNS),
    "answers": Adversary(answers.play, answers.RUNS, answers.QUICK_RUNS),
    "people": Adversary(people.play, people.RUNS, people.QUICK_RUNS),
    "rare": Adversary(rare.play, rare.RUNS, rare.QUICK_RUNS),
}
"""Attacks on the code around the methods: a ledger's quotes, a site's aborts, an estimator's
attributes, the gradient cap, sums over sites of which some collude, the bounded sums from which
answers are computed, people with several rows, and levels that a survey must not show."""

# Runs on each table, by default and with `quick`.
_REPLICATES, _QUICK = 20_000, 4_000


def targets(form: str | None = None) -> list[tuple[str, str]]:
    """Return every (method, form) that can be attacked, of this package and of installed plug-ins.

    Parameters
    ----------
    form : str, optional
        Keep only this form; None keeps all.

    Returns
    -------
    list of (str, str)
        Methods of the registry, then those of other packages, then :data:`ADVERSARIES`.

    Examples
    --------
    >>> from sottovoce.audit import targets
    >>> ("dvp", "printed") in targets("printed")
    True
    """
    known = [(name, one) for name in _attackable_names() for one in forms_of(name)]
    return [(name, one) for name, one in known if form in (None, one)]


def _attackable_names() -> list[str]:
    """Return the names of everything that can be attacked, without loading any plug-in."""
    brought = [
        *plugins.installed_entry_points(plugins.METHODS),
        *plugins.installed_entry_points(plugins.AUDITS),
    ]
    return list(dict.fromkeys([*REGISTRY, *brought, *ADVERSARIES]))


def forms_of(name: str) -> tuple[str, ...]:
    """Return the forms of a method or an audit that can be attacked.

    Empty if there is no such method, or if it adds no noise.
    """
    game = _find_adversary(name)
    if game is not None:
        return game.forms
    method = find_method(name)
    if method is None or not method.private:
        return ()
    return tuple(method.forms)


def _find_adversary(name: str) -> Adversary | None:
    """Return the audit of this name, of this package or of a plug-in; None for a method.

    Raises
    ------
    InvalidInput
        If a plug-in brings an audit under the name of a method that is not of this package, since
        one of the two would hide the other, or if what it brings is no :class:`Adversary`.
    """
    if name in ADVERSARIES:
        return ADVERSARIES[name]
    outside = is_from_outside(name)
    # A method of this package wins without loading any plug-in.
    if name in REGISTRY and not outside:
        return None
    entry = plugins.find_entry_point(plugins.AUDITS, name)
    if entry is None:
        return None
    if outside:
        rule = f"comes from the package {entry.package}, but a method has the same name"
        raise InvalidInput("audit", name, rule, "rename the audit in its package")
    brought = plugins.load_entry_point(plugins.AUDITS, name)
    if not isinstance(brought, Adversary):
        rule = f"comes from the package {entry.package}, but is not a sottovoce.audit.Adversary"
        raise InvalidInput("audit", name, rule, f"repair or uninstall {entry.package}")
    return brought


def attack(
    method: str,
    form: str = "corrected",
    claim: Claim = USUAL,
    *,
    replicates: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    quick: bool = False,
    colluders: int | None = None,
) -> Verdict:
    """Try to refute a privacy claim by a distinguishing game against the real code.

    For a method, its worst known pair of neighbouring tables is played; where it makes a single
    release, the exact privacy loss of the pair is added.  For an audit of :data:`ADVERSARIES`, that
    audit is played.

    Parameters
    ----------
    method, form : str
        One of :func:`targets`.
    claim : Claim
        By default epsilon 1, and pure wherever the method has a pure price, of 2 rounds, or of 1
        where one round gives the largest bound.
    replicates : int, optional
        Runs on each table; by default enough to show a factor of two.  Of :data:`ADVERSARIES`, at
        most the default.
    seed : int
        Of the simulated noise.
    confidence : float
        Probability, in [0.5, 1), that the lower bound on epsilon is true.
    quick : bool
        Fewer replicates, if their number is not given.
    colluders : int, optional
        Of `sums` only: number of sites that tell the adversary all they know; by default as many as
        the claim allows.

    Returns
    -------
    Verdict
        The claimed and the proved epsilon, and a lower bound on the true one at the claim's delta.

    Raises
    ------
    InvalidInput
        If there is no such method or form, `confidence` is outside [0.5, 1), `replicates` are too
        few to choose a test on half of them, or `colluders` is given for anything but `sums`.

    Examples
    --------
    >>> from sottovoce.audit import attack
    >>> verdict = attack("generalised", "printed", quick=True)
    >>> verdict.refuted, round(verdict.exact_epsilon, 3)
    (True, 1.405)
    """
    _check_claim(method, form, confidence, colluders)
    if replicates is not None:
        check_replicates(replicates)
    asked = Options(
        **vars(claim),
        replicates=replicates,
        seed=seed,
        confidence=confidence,
        colluders=colluders,
        form=form,
    )
    game = _find_adversary(method)
    if game is not None:
        return _play_adversary(game, asked, quick=quick)
    return _play_method(method, asked, quick=quick)


def _play_method(method: str, asked: Options, *, quick: bool) -> Verdict:
    """Play the worst known pair of a method, and add its exact privacy loss if it is known."""
    replicates = asked.replicates
    if replicates is None and quick:
        replicates = _QUICK
    elif replicates is None:
        cls = find_method(method)
        assert cls is not None  # its form was found
        replicates = worst_cases.find_recipe(cls, asked.form).replicates or _REPLICATES
    case = worst_cases.make_case(method, asked.form, asked.epsilon, asked.delta, asked.rounds)
    verdict = play(case, replicates, seed=asked.seed, confidence=asked.confidence)
    # Sampling bounds epsilon from below only; quadrature says what is true of this pair.
    return replace(verdict, exact_epsilon=_exact_epsilon(case, verdict))


def _play_adversary(game: Adversary, asked: Options, *, quick: bool) -> Verdict:
    """Play an audit of the code around the methods, or one that a plug-in brings.

    Most take no more runs than their default.
    """
    most = game.quick if quick else game.runs
    runs = asked.replicates or game.runs
    if asked.replicates is None or not game.more:
        runs = min(runs, most)
    return game.play(replace(asked, replicates=runs))


def _check_claim(method: str, form: str, confidence: float, colluders: int | None) -> None:
    """Raise InvalidInput if there is no such claim, or a number is out of its range."""
    if colluders is not None and method != "sums":
        raise InvalidInput(
            "colluders", colluders, "is used only by the audit of sums", "leave it out"
        )
    if not 0.5 <= confidence < 1.0:
        raise InvalidInput("confidence", confidence, "must be at least 0.5 and below 1", "use 0.95")
    forms = forms_of(method)
    if not forms:
        rule = f"must be all, or one of {', '.join(sorted(_attackable_names()))}"
        raise InvalidInput("method", method, rule, "see docs/explanation/audit.md")
    if form not in forms:
        raise InvalidInput(
            "form", form, f"must be one of {', '.join(forms)} for {method}", f"use {forms[0]!r}"
        )


def _exact_epsilon(case: Case, verdict: Verdict) -> float | None:
    """Return the exact privacy loss of a method that releases once, at the verdict's delta.

    None for methods with more releases, and where no density is known in closed form.
    """
    if verdict.releases != 1:
        return None
    try:
        return densities(case).epsilon_at_delta(verdict.delta)
    except InvalidInput:
        return None
