"""Estimators under sums and at a curator: the same model as the run that `trust` describes, and
its statement.
"""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce import ConsensusClassifier
from sottovoce.errors import InvalidInput

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 2))
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=600) > 0, "yes", "no")
SITES = np.arange(600) % 6


def fitted(trust: str, **more: object) -> ConsensusClassifier:
    return ConsensusClassifier(data_norm=3.0, random_state=0, trust=trust, **more).fit(X, Y, SITES)


def test_trust_in_sums_is_stated_with_its_colluders() -> None:
    model = fitted("sum", knobs={"colluders": 2}, rounds=4)
    assert model.choice_ is not None and model.choice_.config.method == "sum_momentum"
    assert model.privacy_spent_["trust"]["colluding"] == 2 and model.site_coef_.shape == (6, 2)
    assert "any 2 of" in model.privacy_spent_["adversary"]
    assert model.privacy_spent_["alone"] > model.privacy_spent_["epsilon"]
    assert np.ptp(model.site_coef_, axis=0).max() == 0.0  # a sum is the same everywhere


def test_a_curator_holds_the_rows_of_all_sites() -> None:
    model = fitted("curator", rounds=4)
    assert model.choice_ is not None and model.choice_.config.method.startswith("central")
    assert model.site_coef_.shape == (1, 2)


def test_with_small_sites_sums_are_more_accurate_than_local_trust() -> None:
    def score(trust: str) -> float:
        some = [
            ConsensusClassifier(data_norm=3.0, random_state=k, trust=trust, epsilon=0.3, rounds=4)
            for k in range(5)
        ]
        return float(np.mean([one.fit(X, Y, SITES).score(X, Y) for one in some]))

    assert score("sum") > score("nobody") + 0.03


@pytest.mark.parametrize(
    ("given", "field"),
    [({"trust": "all"}, "trust"), ({"trust": "sum", "knobs": {"colluders": 5}}, "colluders")],
)
def test_invalid_trust_or_colluders_is_refused(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}="):
        fitted(**given)  # type: ignore[arg-type]
