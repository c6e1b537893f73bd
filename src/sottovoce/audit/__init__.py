"""Privacy audits: distinguishing games against the real code path, and exact checks without sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..algorithms import REGISTRY
from ..errors import InvalidInput
from . import aborts, aggregators, answers, clipped, labels, people, rare, stopping, sums, worst_cases
from .confidence import epsilon_bound
from .exact import densities
from .game import Case, Options, Verdict, play
from .worst_cases import make_case

__all__ = ["ADVERSARIES", "Case", "Verdict", "attack", "densities", "epsilon_bound", "make_case", "play", "targets"]


class Adversary(NamedTuple):
    """A game, and its number of runs by default and with ``quick``.

    It takes :class:`sottovoce.audit.game.Options`, and as ``stands`` what is attacked, by name.
    """

    play: Callable[..., Verdict]
    runs: int
    quick: int


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
"""Attacks on the code around the methods: a ledger's quotes, a site's aborts, an estimator's attributes, the gradient
cap, sums over sites of which some collude, the bounded sums from which answers are computed, people with several rows,
and levels that a survey must not show."""

_REPLICATES, _QUICK = 20_000, 4_000
_MORE = {("pp_admm", "printed"): 100_000, ("pp_admm", "corrected"): 60_000, ("ipp_admm", "corrected"): 60_000}
"""Where delta is so small that fewer replicates would show nothing."""


def targets(form: str | None = None) -> list[tuple[str, str]]:
    """Every (method, form) that can be attacked; `form` narrows it."""
    known = [(name, f) for name, cls in REGISTRY.items() if cls.private for f in cls.forms]
    known += [(name, f) for name in aggregators.GAMES for f in ("corrected", "printed")]
    known += [(name, "corrected") for name in ADVERSARIES]
    return [(name, f) for name, f in known if form in (None, f)]


def attack(
    method: str,
    form: str = "corrected",
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rounds: int | None = None,
    replicates: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    quick: bool = False,
    colluders: int | None = None,
) -> Verdict:
    """Try to refute a claim: play the worst game known for a method; where it releases once, add the exact loss.

    Parameters
    ----------
    method, form : str
        One of :func:`targets`.
    epsilon, delta : float, optional
        The claim; by default epsilon 1, and pure wherever the method has a pure price.
    rounds : int, optional
        By default 2, and 1 where one round gives the largest bound.
    replicates : int, optional
        Runs on each table; by default enough to show a factor of two.  Of :data:`ADVERSARIES`, at most the default.
    seed : int
    confidence : float
        Probability that the bound is true.
    quick : bool
        Fewer replicates, if their number is not given.
    colluders : int, optional
        Of `sums`: sites that tell the adversary all they know; by default as many as the claim allows.

    Raises
    ------
    InvalidInput
        If there is no such claim, or a number breaks its rule.

    Examples
    --------
    >>> from sottovoce.audit import attack
    >>> verdict = attack("generalised", "printed", quick=True)
    >>> verdict.refuted, round(verdict.exact_epsilon, 3)
    (True, 1.405)
    """
    _check_claim(method, form, confidence, colluders)
    if method in ADVERSARIES:
        asked = Options(epsilon, delta, rounds, replicates, seed, confidence, colluders)
        return _play_adversary(ADVERSARIES[method], asked, quick=quick)
    if not replicates:
        replicates = _QUICK if quick else _MORE.get((method, form), _REPLICATES)
    if method in aggregators.GAMES:
        claim = 1.0 if epsilon is None else epsilon
        return aggregators.play(
            method, form, epsilon=claim, delta=delta, replicates=replicates, seed=seed, confidence=confidence
        )
    case = worst_cases.make_case(method, form, epsilon, delta, rounds)
    verdict = play(case, replicates, seed=seed, confidence=confidence)
    return replace(verdict, exact_epsilon=_exact_epsilon(case, verdict))


def _play_adversary(game: Adversary, asked: Options, *, quick: bool) -> Verdict:
    """Play a game on what surrounds the methods, with as many runs as it has at most."""
    most = game.quick if quick else game.runs
    return game.play(replace(asked, replicates=min(asked.replicates or most, most)))


def _check_claim(method: str, form: str, confidence: float, colluders: int | None) -> None:
    """InvalidInput if there is no such claim, or a number breaks its rule."""
    if colluders is not None and method != "sums":
        raise InvalidInput("colluders", colluders, "is for the game of sums", "leave it out")
    if not 0.5 <= confidence < 1.0:
        raise InvalidInput("confidence", confidence, "must be at least 0.5 and below 1", "use 0.95")
    if (method, form) in targets():
        return
    methods = sorted({name for name, _ in targets()})
    if method not in methods:
        rule = f"must be all, or one of {', '.join(methods)}"
        raise InvalidInput("method", method, rule, "see docs/explanation/audit.md")
    forms = [f for name, f in targets() if name == method]
    raise InvalidInput("form", form, f"{method} has {', '.join(forms)}", f"use {forms[0]!r}")


def _exact_epsilon(case: Case, verdict: Verdict) -> float | None:
    """The exact loss of a method that releases once; None for others, and where no density is known in closed form."""
    if verdict.releases != 1:
        return None
    try:
        return densities(case).epsilon_at(verdict.delta)
    except InvalidInput:
        return None
