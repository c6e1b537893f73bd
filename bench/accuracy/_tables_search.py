"""One search for everybody: settings of the house and of its peers are looked for, and scored, by
the same rules.

A grid maps each knob to its values, in order.  The search draws settings at random from every grid,
then climbs: it tries the neighbours of the best one (one knob, one step), and again those of the
new best.  All that is done with few replicates of noise on the first deal of rows.  The few best
are then scored in full, on every deal and with other noise.  What wins there is called the best: it
is chosen on the test rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Setting = dict[str, Any]
Score = Callable[[Setting, bool], np.ndarray | None]
"""``score(setting, full)``: errors of shape (deals, replicates), of one deal unless `full`; None
if it is refused.
"""


@dataclass(frozen=True)
class Grid:
    """Values of knobs, and how many settings are drawn from their product.

    Values in `costly` follow those of their knob; they are reached by climbing and not drawn.
    """

    knobs: dict[str, Sequence[Any]]
    draws: int
    costly: dict[str, Sequence[Any]] = field(default_factory=dict)

    def draw(self, rng: np.random.Generator) -> Iterator[Setting]:
        """Different settings at random, or all if they are few."""
        sizes = [len(values) for values in self.knobs.values()]
        total = math.prod(sizes)
        for index in rng.choice(total, size=min(self.draws, total), replace=False):
            where = np.unravel_index(index, sizes)
            yield {
                name: values[k] for (name, values), k in zip(self.knobs.items(), where, strict=True)
            }

    def neighbours(self, setting: Setting) -> Iterator[Setting]:
        """Those that differ by one step of one knob; none of a setting of another grid."""
        ladders = {
            name: [*values, *self.costly.get(name, ())] for name, values in self.knobs.items()
        }
        if not all(setting.get(name, self) in values for name, values in ladders.items()):
            return
        for name, values in ladders.items():
            k = values.index(setting[name])
            for other in (k - 1, k + 1):
                if 0 <= other < len(values):
                    yield setting | {name: values[other]}


@dataclass
class Found:
    """The best setting: all errors (deals, replicates), and what a fair choice between the
    finalists would have had.
    """

    setting: Setting
    errors: np.ndarray
    crossed: float
    tried: int


def search(grids: Sequence[Grid], score: Score, *, finalists: int = 3, climbs: int = 2) -> Found:
    """Look for the setting of least mean error.

    `crossed` halves the replicates, chooses on one half, scores on the other and takes the mean of
    both ways: the winner's luck with the noise is left out.
    """
    rng = np.random.default_rng(0)
    tried: dict[str, tuple[float, Setting]] = {}

    def screen(settings: Iterator[Setting]) -> None:
        for setting in settings:
            if repr(setting) not in tried:
                errors = score(setting, False)
                tried[repr(setting)] = (
                    math.inf if errors is None else float(errors.mean()),
                    setting,
                )

    def best(many: int) -> list[Setting]:
        ranked = sorted(tried.values(), key=lambda pair: pair[0])
        return [setting for mean, setting in ranked[:many] if mean < math.inf]

    for grid in grids:
        screen(grid.draw(rng))
    for _ in range(climbs):
        for setting in best(1):
            for grid in grids:
                screen(grid.neighbours(setting))
    full = [(setting, score(setting, True)) for setting in best(finalists)]
    table = [(setting, errors) for setting, errors in full if errors is not None]
    if not table:
        raise RuntimeError("no setting could be run")
    halves = np.array([[errors[:, half::2].mean() for half in (0, 1)] for _, errors in table])
    crossed = float(np.mean([halves[halves[:, 0].argmin(), 1], halves[halves[:, 1].argmin(), 0]]))
    setting, errors = min(table, key=lambda pair: float(pair[1].mean()))
    return Found(setting, errors, crossed, len(tried))
