"""Audit of a rare label (`labels`): does a fit tell of it in anything but the noisy coefficients?

The tables differ in the label of one row: a common label, or one that no other row has.  The page
is docs/explanation/audit.md.

The adversary sees all that a fit without a seed leaves behind, but for the values of the
coefficients, which the other games attack.  If any of it differs between the tables, it is an
answer without noise.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..errors import HolderNote, InvalidInput
from ..ledger.memory import Ledger
from ..util.typing import Any, Array, IntArray
from .aborts import Bet, Played, Seen, split_in_halves
from .game import DEFAULT, Options, Verdict

if TYPE_CHECKING:
    from ..estimators.classifiers import ConsensusClassifier

RUNS, QUICK_RUNS = 60, 40
RARE, COMMON, OTHER = "rare", "no", "yes"
COEFFICIENTS = ("coef_", "intercept_", "site_coef_", "site_intercept_")
"""Attributes that hold noisy answers: only their shapes are compared."""
FOLLOWS = ("coefficients_", "_result", "_answered")
"""Attributes that follow from noisy answers: only their types are compared."""

_LOOK = 1
"""Releases of each table by every estimator in a first look, before any game is played."""
_ROWS = 24
"""Rows of each table; the last one is the row that differs."""


class Estimator(Protocol):
    """Interface of an estimator in this game."""

    def fit(self, X: Array, y: Any, groups: Any = None) -> Any:
        """Release a model.

        Parameters
        ----------
        X : array (n, d)
            Features.
        y : array (n,)
            Labels.
        groups : array (n,), optional
            The site of each row.

        Returns
        -------
        self
        """


class Factory(Protocol):
    """A function that makes an estimator with a total budget of `epsilon`.

    It passes `classes` on unless they are None.
    """

    def __call__(self, epsilon: float, classes: Sequence[str] | None) -> Estimator:
        """Make a new estimator."""


@dataclass(frozen=True)
class Stand:
    """An estimator under attack, with its two tables.

    Attributes
    ----------
    make : Factory
    common : tuple of str
        Labels of the other rows, in turn: two classes, or one if a single label is given.
    sites : bool
        True for two sites, where the site of the row that differs holds one common class only.
    declares : bool
        True if `make` takes classes.
    """

    make: Factory
    common: tuple[str, ...] = (COMMON, OTHER)
    sites: bool = False
    declares: bool = False

    def declared(self) -> dict[str, Sequence[str] | None]:
        """Return declarations of classes to try, by name."""
        if not self.declares:
            return {"classes not declared": None}
        return {
            "classes not declared": None,
            "the rare label declared": sorted({*self.common, RARE}),
            "the rare label not declared": (COMMON, OTHER),
        }

    def observe_fit(self, table: int, epsilon: float, classes: Sequence[str] | None) -> Seen:
        """Fit once, and collect everything that the fit leaves behind.

        Parameters
        ----------
        table : int
            0 for a common label of the last row, 1 for the rare one.
        epsilon : float
            Budget of the release.
        classes : sequence of str or None
            Declared classes; None declares none.

        Returns
        -------
        Seen
            Attributes, errors, warnings and the ledger's state, as text.
        """
        y, groups = self._labels_and_sites()
        y[-1] = (COMMON, RARE)[table]
        # Points on a circle inside the unit ball; steps of 2.4 radians, the golden angle, spread
        # them evenly.
        angles = np.arange(_ROWS) * 2.4
        X = np.stack([np.cos(angles), np.sin(angles)], axis=1) * 0.9
        model = self.make(epsilon, classes)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                model.fit(X, np.array(y), groups)
                found = sorted(outputs(model).items())
                told = "; ".join(f"{name} {value}" for name, value in found)
            except Exception as error:
                # Its words are an output, too.
                told = f"{type(error).__name__}: {error}"
        told += "".join(f"; warns: {one.message}" for one in heard if _tells_of_rows(one))
        ledger = getattr(model, "ledger", None)
        if isinstance(ledger, Ledger):
            told += f"; the ledger has {len(ledger.rows)} rows, {ledger.total():.6g}"
        return Seen(told, 0.0)

    def _labels_and_sites(self) -> tuple[list[str], IntArray | None]:
        """Return labels of common classes, and the site of each row; None for one site."""
        if not self.sites:
            return [self.common[k % len(self.common)] for k in range(_ROWS)], None
        # Odd rows, with the last one, are at the site of one class.
        y = [COMMON] * _ROWS
        for k in range(0, _ROWS, 2):
            y[k] = self.common[k // 2 % len(self.common)]
        return y, np.arange(_ROWS) % 2


def _tells_of_rows(warning: warnings.WarningMessage) -> bool:
    """Return true for a warning that the adversary sees and that the model does not imply."""
    # Imported here, since it loads scikit-learn.
    from ..estimators.guessing import SAME_CLASS

    for_holder = issubclass(warning.category, HolderNote)
    return not for_holder and not str(warning.message).startswith(SAME_CLASS)


def outputs(model: Any) -> dict[str, str]:
    """Return the attributes of a fitted estimator as text; of coefficients only the shapes."""
    parameters = set(inspect.signature(type(model).__init__).parameters)
    found = {}
    for name, value in vars(model).items():
        if name in COEFFICIENTS:
            found[name] = f"of shape {np.shape(value)}"
        elif name in FOLLOWS:
            found[name] = type(value).__name__
        elif name not in parameters and isinstance(value, np.ndarray):
            # The repr of a long array leaves entries out.
            found[name] = f"{value.dtype} {value.tolist()}"
        elif name not in parameters:
            found[name] = repr(value)
    return found


def _estimator_factory(cls: type[ConsensusClassifier], **knobs: Any) -> Factory:
    """Return a function that makes unseeded estimators of a class with these parameters."""

    def make(epsilon: float, classes: Sequence[str] | None) -> Estimator:
        options = dict(knobs)
        if classes is not None:
            options["classes"] = classes
        return cls(epsilon=epsilon, random_state=None, **options)

    return make


def _factory_with_ledger(make: Factory, delta: float | None) -> Factory:
    """Return the same factory, whose estimators charge a new ledger with room for ten fits."""

    def made(epsilon: float, classes: Sequence[str] | None) -> Estimator:
        model: Any = make(epsilon, classes)
        accountant = "pure" if delta is None else "rdp"
        return model.set_params(ledger=Ledger(accountant, 10.0 * epsilon, delta or 0.0))

    return made


def _default_stands(rounds: int, delta: float | None) -> dict[str, Stand]:
    """Return the estimators to attack by name: every way in which a fit may learn its classes.

    Parameters
    ----------
    rounds : int
        Rounds of the runs with two sites.
    delta : float or None
        Delta of every fit; None for pure differential privacy.
    """
    # Imported here, since they load scikit-learn.
    from ..estimators.classifiers import ConsensusClassifier, PrivateClassifier

    one = _estimator_factory(PrivateClassifier, method="objective", delta=delta)
    several: dict[str, Any] = {"delta": delta, "rounds": rounds, "n_sites": 2}
    many = _estimator_factory(ConsensusClassifier, **several, method="mr_admm")
    soft = _estimator_factory(ConsensusClassifier, **several, loss="softmax", method="prox_admm")
    found = {
        "PrivateClassifier, two common classes": Stand(one),
        "PrivateClassifier, one common class": Stand(one, (COMMON,)),
        "PrivateClassifier, a shared ledger": Stand(_factory_with_ledger(one, delta)),
        "ConsensusClassifier, two common classes": Stand(many),
        "ConsensusClassifier, a site of one class": Stand(many, sites=True),
        "ConsensusClassifier, softmax": Stand(soft),
    }
    return {name: replace(stand, declares=True) for name, stand in found.items()}


@dataclass(frozen=True)
class LabelVerdict(Verdict):
    """The verdict on a rare label."""

    told: tuple[dict[str, int], ...] = ()
    """Outputs on each table, and how often."""
    differ: tuple[str, ...] = ()
    """Estimators, each with its declaration of classes, of which the first look saw no output that
    occurs on both tables."""


@dataclass(frozen=True)
class _Tried:
    """An estimator, by its name, with a declaration of classes."""

    name: str
    how: str
    classes: Sequence[str] | None

    def releases(self, stands: Mapping[str, Stand], epsilon: float, runs: int) -> Played:
        """Make releases of both tables, and collect what they leave behind.

        Parameters
        ----------
        stands : mapping of str to Stand
            Where the estimator is found by its name.
        epsilon : float
            Budget of each release.
        runs : int
            Number of releases of each table.

        Returns
        -------
        pair of list of Seen
        """
        stand = stands[self.name]
        first, second = (
            [stand.observe_fit(table, epsilon, self.classes) for _ in range(runs)]
            for table in (0, 1)
        )
        return first, second


def _select_by_first_look(
    tried: Sequence[_Tried], stands: Mapping[str, Stand], epsilon: float
) -> tuple[list[_Tried], list[_Tried]]:
    """Return the estimators whose outputs already differ, and those that release a model at all.

    The outputs of an estimator differ if a first look sees none that occurs on both tables.
    """
    apart, released = list[_Tried](), list[_Tried]()
    for one in tried:
        first, second = (
            {seen.told for seen in side} for side in one.releases(stands, epsilon, _LOOK)
        )
        if not first & second:
            apart.append(one)
        if any(COEFFICIENTS[0] in told for told in first | second):
            released.append(one)
    return apart, released


def _play_and_choose_strongest(
    games: Sequence[_Tried], stands: Mapping[str, Stand], epsilon: float, asked: Options
) -> LabelVerdict:
    """Return the verdict with the largest bound among several games.

    All bounds together hold at the requested confidence.
    """
    each = 1.0 - (1.0 - asked.confidence) / len(games)
    runs, delta = asked.replicates or RUNS, asked.delta or 0.0
    found = []
    for one in games:
        played = one.releases(stands, epsilon, runs)
        found.append(_judge_game((one.name, one.how), played, delta, asked.confidence, each))
    return max(found, key=lambda one: one.lower_bound)


def play(asked: Options = DEFAULT, stands: Mapping[str, Stand] | None = None) -> LabelVerdict:
    """Look for an output that differs between the tables, and bet on it.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to Stand, optional
        Estimators with tables; by default those of :mod:`sottovoce.estimators`.

    Returns
    -------
    LabelVerdict

    Raises
    ------
    InvalidInput
        If some estimator releases nothing at all.
    """
    epsilon = 1.0 if asked.epsilon is None else asked.epsilon
    rounds = 2 if asked.rounds is None else asked.rounds
    if stands is None:
        stands = _default_stands(rounds, asked.delta)
    tried = [
        _Tried(name, how, classes)
        for name, stand in stands.items()
        for how, classes in stand.declared().items()
    ]
    apart, released = _select_by_first_look(tried, stands, epsilon)
    silent = sorted(stands.keys() - {one.name for one in released})
    if silent and not apart:
        rule = (
            f"is too small: {silent[0]} releases no model at this budget, so nothing can be audited"
        )
        raise InvalidInput("epsilon", epsilon, rule, "use epsilon=1")
    # What differs by its noise alone must not stand before what differs by the label.
    games = apart or released[:1]
    best = _play_and_choose_strongest(games, stands, epsilon, asked)
    return replace(
        best,
        claimed_epsilon=epsilon,
        proved_epsilon=epsilon,
        rounds=rounds,
        differ=tuple(f"{one.name}, {one.how}" for one in apart),
    )


def _judge_game(
    key: tuple[str, str], played: Played, delta: float, confidence: float, each: float
) -> LabelVerdict:
    """Return the verdict of one game, without its claim.

    All bounds together hold at `confidence`, each alone at `each`.
    """
    known, fresh = split_in_halves(played)
    bet = Bet.choose_best_bet(known, delta, confidence)
    return LabelVerdict(
        method="labels",
        form="corrected",
        claimed_epsilon=0.0,
        proved_epsilon=0.0,
        lower_bound=bet.bound(fresh, delta, each),
        delta=delta,
        confidence=confidence,
        replicates=len(played[0]),
        rounds=0,
        attack=f"all outputs of {', '.join(key)}",
        why="one row has a label that no other row has",
        releases=1,
        told=tuple(dict(Counter(one.told for one in side)) for side in played),
    )
