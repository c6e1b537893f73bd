"""An audit of another package: the noise on a count of rows."""

from __future__ import annotations

import numpy as np

from sottovoce.audit import Adversary, Options, Verdict, choose_test

RUNS, QUICK_RUNS = 20_000, 4_000


def play(asked: Options) -> Verdict:
    """Attack a count with Laplace noise of scale ``1 / epsilon``, on 10 rows and on 11."""
    epsilon = 1.0 if asked.epsilon is None else asked.epsilon
    runs = asked.replicates or RUNS
    draw = np.random.default_rng(asked.seed)
    released = [count + draw.laplace(scale=1.0 / epsilon, size=runs) for count in (10, 11)]
    half = runs // 2
    test = choose_test((released[0][:half], released[1][:half]), 0.0, asked.confidence)
    bound = test.epsilon_lower_bound(
        (released[0][half:], released[1][half:]), 0.0, asked.confidence
    )
    why = "one row more in the count"
    return Verdict(
        "count",
        asked.form,
        epsilon,
        epsilon,
        bound,
        0.0,
        asked.confidence,
        runs,
        1,
        "threshold on the count",
        why,
    )


COUNT = Adversary(play, RUNS, QUICK_RUNS)
