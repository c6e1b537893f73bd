"""The choice behind ``method="auto"``: methods and their knobs are tried out on made-up rows of the same shape.

Everything that :func:`choose` sees is public: sizes, graph, budget, and how the sites are declared to differ.  It has
no argument through which a private row could reach it, so a choice costs no privacy and may be told to anybody.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

import numpy as np

from ..algorithms import REGISTRY
from ..data import lifelike
from ..errors import InvalidInput, SottovoceError
from ..losses import make_loss
from ..schedules import Schedule
from ..typing import Any, Array
from .config import RunConfig
from .prepare import check_size, default_penalty, prepare
from .rehearsal import Rehearsal

KNOBS = ("rounds", "eta", "rho", "noise_growth")
"""What a choice may set beside the method, where the caller left it open."""
ROUNDS = (5, 10, 20, 40)
PENALTIES = (0.5, 2.0)
REGULARISERS = (0.1, 0.3, 3.0)
GROWN = (2.0,)
REPLICATES = 4
_SEED = 20_240_229  # of the made-up rows and their noise: no user's seed enters a choice
_WORLDS = 2  # of each kind
_CELLS = 100_000  # of the made-up rows of one world, at most, unless sites get fewer rows than _FEWEST
_FEWEST, _MOST_CELLS, _WIDEST = 50, 250_000, 300
_CLEAR = 2e-4  # a smaller gain than this is no gain


@dataclass(frozen=True)
class Choice:
    """What was chosen and why.

    Attributes
    ----------
    config : RunConfig
        It names a concrete method, so running it does not choose again.
    table : tuple of dict
        What was tried: the knobs, ``noise`` (standard deviation of a coordinate of the first release at the worst
        site, as planned), ``error`` and ``spread`` (mean and standard deviation over made-up rows and noise),
        ``seconds``, and the ``stage`` of the search: "rule" for the first guess, then what was varied, and "check" for
        new rows.
    says : str
        The choice in words.
    """

    config: RunConfig
    table: tuple[dict[str, Any], ...] = ()
    says: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"chosen": _plain(self.config), "says": self.says, "table": [dict(row) for row in self.table]}


def open_knobs(config: RunConfig) -> tuple[str, ...]:
    """Those of `KNOBS` that have their default values, which are taken to be left open."""
    default = {f.name: f.default for f in fields(RunConfig)}
    return tuple(knob for knob in KNOBS if getattr(config, knob) == default[knob])


def declared(partition: str, strength: float = 1.0) -> str:
    """The heterogeneity that a partition implies: sites are alike if rows are dealt at random, else they may differ."""
    return "iid" if partition == "iid" or (partition == "label" and strength == 0) else "label"


def choose(
    config: RunConfig,
    n: Sequence[int] | Array,
    d: int,
    *,
    heterogeneity: str = "iid",
    free: Sequence[str] | None = None,
) -> Choice:
    """Pick a method and its knobs from public facts.

    Parameters
    ----------
    config : RunConfig
        What the caller gave; its method is the first guess, which a choice must clearly beat.
    n : sequence of int
        Rows of every site.
    d : int
        Entries of a classifier, as in :class:`sottovoce.facts.Facts`.
    heterogeneity : {"iid", "label"}
        Whether sites are alike or their labels differ.
    free : sequence of str, optional
        Knobs of `KNOBS` that the caller left open; None for :func:`open_knobs`.

    Returns
    -------
    Choice
        The same for the same public facts, on the same machine and versions.

    Raises
    ------
    InvalidInput
        If the first guess and everything else break a rule.
    """
    if heterogeneity not in ("iid", "label"):
        raise InvalidInput("heterogeneity", heterogeneity, "must be 'iid' or 'label'", "use 'label' where sites differ")
    knobs = tuple(open_knobs(config) if free is None else free)
    if unknown := [knob for knob in knobs if knob not in KNOBS]:
        raise InvalidInput("free", unknown, f"must be among {', '.join(KNOBS)}", "leave the others out")
    counts = np.asarray(n, dtype=float).ravel()
    check_size(config, counts[:, None], d)
    sizes = tuple(int(rows) for rows in counts)
    asked = replace(config, seed=config.seed or 0, replicates=1)
    found = _choose(asked, sizes, d, heterogeneity, tuple(sorted(knobs)))
    return replace(found, config=replace(found.config, auto=False, seed=config.seed, replicates=config.replicates))


@lru_cache(maxsize=64)
def _choose(config: RunConfig, n: tuple[int, ...], d: int, heterogeneity: str, free: tuple[str, ...]) -> Choice:
    if why := _beyond(config, n, d):
        return Choice(config, says=f"{_named(config)}: the first guess, since {why}.")
    search = _Search(config, n, d, 0.0 if heterogeneity == "iid" else 1.0)
    refused: SottovoceError | None = None
    try:
        first = search.trial(config, "rule")
    except SottovoceError as error:
        first, refused = _Trial(config, np.ones((len(search.ground.worlds), REPLICATES))), error
    best = search.explore(first, free)
    if refused is not None and best is first:
        raise refused
    return search.verdict(None if refused else first, best, heterogeneity)


def _beyond(config: RunConfig, n: tuple[int, ...], d: int) -> str:
    """The reason why no run can be tried out; empty if there is none."""
    if config.noise is not None:
        return "noise is given, in a unit of the method's own"
    if not config.budgeted:
        return "without a budget there is no noise to weigh"
    if config.form != "corrected":
        return "printed forms are for study"
    if make_loss(config.loss).offset_bound:
        return "made-up rows have classes, and this loss is for numbers"
    if d > _WIDEST or sum(min(rows, _FEWEST) for rows in n) * d > _MOST_CELLS:
        return f"{len(n)} sites and {d} features are too many to try out in seconds"
    return ""


def _column(n: Sequence[int]) -> Array:
    return np.array(n, dtype=float)[:, None]


@dataclass
class _Trial:
    """One candidate and its expected errors, shape (worlds, replicates)."""

    config: RunConfig
    errors: Array

    @property
    def mean(self) -> float:
        return float(self.errors.mean())

    def beats(self, other: _Trial) -> bool:
        """Whether it is better by more than a standard error of the difference (over worlds or noise, the larger)."""
        gain = other.errors - self.errors
        worlds, replicates = gain.shape
        between = float(gain.mean(axis=1).std(ddof=1)) / np.sqrt(worlds)
        within = float(np.sqrt(gain.var(axis=1, ddof=1).sum() / replicates)) / worlds
        return bool(gain.mean() > max(between, within, _CLEAR))


@dataclass
class _Search:
    """Tries configurations on made-up rows and writes a table."""

    config: RunConfig
    n: tuple[int, ...]
    d: int
    tilt: float
    table: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ground = self.draw(0)

    def draw(self, turn: int) -> Rehearsal:
        """Made-up worlds with the true sizes of sites, cut to what can be tried in seconds; new ones at each call."""
        outputs = make_loss(self.config.loss).outputs
        most = max(_FEWEST, int(_CELLS / (len(self.n) * self.d)))
        sizes, seed = [min(rows, most) for rows in self.n], _SEED + 100 * turn
        worlds = [
            lifelike.make_world(kind, sizes, self.d // outputs, seed + k, classes=max(2, outputs), tilt=self.tilt)
            for kind in lifelike.KINDS
            for k in range(_WORLDS)
        ]
        return Rehearsal(tuple(worlds), REPLICATES, seed, outputs)

    def trial(self, config: RunConfig, stage: str) -> _Trial:
        """Run one candidate in every world.

        Raises
        ------
        SottovoceError
            If its plan is refused or a solve fails.
        """
        started = time.perf_counter()
        row = {"stage": stage} | _plain(config)
        prepared = prepare(config, _column(self.n), self.d)
        event = prepared.plan(1).rows[0]
        found = _Trial(config, self.ground.errors(prepared))
        self.table.append(
            row
            | {
                "noise": float(np.max(event.spread())),
                "error": found.mean,
                "spread": float(found.errors.std(ddof=1)),
                "seconds": time.perf_counter() - started,
            }
        )
        return found

    def among(self, best: _Trial, candidates: Sequence[RunConfig], stage: str) -> _Trial:
        """The least error of all, or `best` on a tie."""
        tried = []
        for config in candidates:
            try:
                tried.append(self.trial(config, stage))
            except SottovoceError:  # breaks a rule of its method: not a candidate
                continue
        least = min(tried, key=lambda t: t.mean, default=best)
        return least if least.beats(best) else best

    def explore(self, best: _Trial, free: tuple[str, ...]) -> _Trial:
        """Method and rounds first, then one knob after the other around the best so far."""
        asked = self.config
        rounds = ROUNDS if "rounds" in free else (asked.rounds,)
        pairs = [(m, T) for m in self.methods() for T in rounds if (m, T) != (asked.method, asked.rounds)]
        best = self.among(best, list(_valid(asked, [{"method": m, "rounds": T} for m, T in pairs])), "method")
        if "eta" in free:
            best = self.among(best, list(_valid(best.config, self.penalties(best.config))), "eta")
        if "rho" in free:
            values = [{"rho": float(f"{asked.rho * f:.4g}")} for f in REGULARISERS]
            best = self.among(best, list(_valid(best.config, values)), "rho")
        if "noise_growth" in free and best.config.rounds > 1 and not REGISTRY[best.config.method].single:
            values = [{"noise_growth": round(f ** (1 / (best.config.rounds - 1)), 4)} for f in GROWN]
            best = self.among(best, list(_valid(best.config, values)), "noise_growth")
        return best

    def methods(self) -> list[str]:
        """The first guess, then others that trust nobody and are worth a try."""
        names = [self.config.method, "prox_admm", "prox_average"]
        if self.config.delta is None or len(self.n) == 1:
            names += ["mr_admm", "objective", "output"]
        return list(dict.fromkeys(names))

    def penalties(self, config: RunConfig) -> list[dict[str, Any]]:
        """Multiples of the configuration's default penalty."""
        try:
            prepared = prepare(replace(config, eta=None), _column(self.n), self.d)
        except SottovoceError:  # a first guess that breaks a rule
            return []
        usual = default_penalty(config, prepared.facts, prepared.graph)
        return [{"eta": float(f"{usual * factor:.4g}")} for factor in PENALTIES]

    def verdict(self, first: _Trial | None, best: _Trial, heterogeneity: str) -> Choice:
        """Try both again on new made-up rows; keep the first guess unless the other clearly beats it there too.

        `first` is None where the first guess breaks a rule.
        """
        alike = "alike" if heterogeneity == "iid" else "with unlike labels"
        low, high = min(self.n), max(self.n)
        size = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        shape = f"{len(self.n)} sites of {size} rows, {self.d} features, sites {alike}"
        tried = len(self.table)
        where = f"on made-up rows of this shape ({shape})"
        if first is None:
            chosen, says = best, f"{_named(best.config)}: {where} it misclassifies {100 * best.mean:.1f}%."
            says += f" The first guess, {self.config.method}, breaks a rule here."
        else:
            if best is not first:
                self.ground = self.draw(1)
                first, best = self.trial(first.config, "check"), self.trial(best.config, "check")
            if best is not first and best.beats(first):
                chosen, says = best, f"{_named(best.config)}: {where} it misclassifies {100 * best.mean:.1f}%"
                says += f", and the first guess, {_named(first.config)}, {100 * first.mean:.1f}%."
            else:
                chosen, says = first, f"{_named(first.config)}: the first guess, which nothing else clearly beat"
                says += f" {where}, where it misclassifies {100 * first.mean:.1f}%."
        least: dict[str, float] = {}  # on the rows of the search
        for row in self.table:
            if row["stage"] in ("rule", "method"):
                least[row["method"]] = min(row["error"], least.get(row["method"], 1.0))
        if own := least.pop(chosen.config.method, None):
            says += (
                f" On other such rows, by number of rounds alone, {chosen.config.method} came down to {100 * own:.1f}%"
            )
            says += "".join(f", {name} to {100 * error:.1f}%" for name, error in least.items()) + "."
        says += f" {tried} candidates were tried; no private row was read."
        return Choice(chosen.config, tuple(self.table), says)


def _plain(config: RunConfig) -> dict[str, Any]:
    """Method and knobs as plain data."""
    eta = config.eta.to_dict() if isinstance(config.eta, Schedule) else config.eta
    return {"method": config.method} | {knob: getattr(config, knob) for knob in KNOBS} | {"eta": eta}


def _named(config: RunConfig) -> str:
    """A configuration in a few words."""
    words = f"{config.method}, {config.rounds} round{'' if config.rounds == 1 else 's'}, rho {config.rho:g}"
    words += "" if config.eta is None or not isinstance(config.eta, float) else f", eta {config.eta:g}"
    return words + ("" if config.noise_growth == 1.0 else f", noise growth {config.noise_growth:g}")


def _valid(config: RunConfig, changes: Sequence[dict[str, Any]]) -> Iterator[RunConfig]:
    """Those of the changed configurations that break no rule."""
    for change in changes:
        try:
            yield replace(config, **change)
        except InvalidInput:
            continue
