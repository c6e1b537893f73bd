"""The bound on a row's Hessian, on which steps of gradient methods rest: attained, and never
passed.
"""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.losses import make_loss


@pytest.mark.parametrize("most", [0.02, 0.2, 0.45, 0.5, 0.9])
@pytest.mark.parametrize("spec", ["logistic", "huber:0.5", "huber-residual:0.3"])
def test_hessian_bound_holds_in_the_unit_ball(spec: str, most: float) -> None:
    loss = clip_gradients(make_loss(spec), most)
    norms = np.linspace(1e-3, 1.0, 200)[:, None]
    own = loss.for_row_norms(lambda: np.broadcast_to(norms, (200, 4001)))
    z = np.broadcast_to(np.linspace(-8.0, 8.0, 4001), (200, 4001))
    worst = np.max(own.curvature(z) * norms**2)
    assert worst <= loss.hessian_bound * (1 + 1e-9)
    assert worst >= 0.95 * loss.hessian_bound
    assert loss.hessian_bound <= make_loss(spec).hessian_bound == make_loss(spec).curvature_bound
