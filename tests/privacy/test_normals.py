"""Normals inside an objective: their rounding is a small share of themselves, near zero and far
out.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.special import erf

from sottovoce.privacy.noise import SystemNoise

mpmath.mp.dps = 60


def test_normals_near_zero_do_not_lie_on_a_lattice() -> None:
    """Images of uniforms near 1 would: the probability below them would be a whole number of
    2^-53.
    """
    x = np.abs(SystemNoise((200_000,)).draw_gaussian(1, 0))
    near = x[x < 1e-3]
    assert len(near) > 80
    cells = erf(near / np.sqrt(2.0)) * 2.0**53
    # 0.01 is what rounding the function itself does
    assert np.max(np.abs(cells - np.rint(cells))) > 0.2


@pytest.mark.parametrize("bits", [0, 1, 2, 3], ids=["tail", "-tail", "middle", "-middle"])
def test_every_normal_is_right_to_2_to_the_minus_49_of_itself(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(bits)
    u = np.concatenate(
        [np.geomspace(1e-250, 1.0, 300), rng.uniform(size=300), 1.0 - np.geomspace(1e-15, 0.5, 100)]
    )
    monkeypatch.setattr(
        SystemNoise,
        "_random_words",
        staticmethod(lambda shape: np.full(shape, bits, dtype=np.uint64)),
    )
    monkeypatch.setattr(
        SystemNoise, "_random_uniform", classmethod(lambda cls, shape: u.reshape(shape))
    )
    drawn = SystemNoise().draw_gaussian(len(u), 0)
    assert np.all(np.sign(drawn) == (-1.0 if bits & 1 else 1.0))
    for share, found in zip(
        u, np.abs(drawn), strict=True
    ):  # half the law is below its median, half above
        x, half = mpmath.mpf(float(found)), mpmath.mpf(float(share)) / 2
        density = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-x * x / 2)
        missed = (
            mpmath.erf(x / mpmath.sqrt(2)) - half
            if bits & 2
            else half - mpmath.erfc(x / mpmath.sqrt(2))
        )
        assert abs(missed / density) <= 2.0**-49 * x, share
