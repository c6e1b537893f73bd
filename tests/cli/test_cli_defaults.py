"""What ``train`` and ``plan`` run where no method and no budget is named, and how a pure epsilon
is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from command_line import ROWS, SMALL, Call

from sottovoce.cli.options import make_run_config
from sottovoce.errors import InvalidInput
from sottovoce.runs import defaults
from sottovoce.runs.config import RunConfig

LEFT_OUT: dict[str, Any] = {
    "method": "auto",
    "form": "corrected",
    "accountant": None,
    "noise": None,
    "epsilon": None,
    "delta": None,
    "pure": False,
}


def asked(priced: bool = False, **options: Any) -> RunConfig:
    return make_run_config(LEFT_OUT | options, seed=0, priced=priced)


def test_nothing_named_is_auto_at_epsilon_1_and_a_small_delta() -> None:
    config = asked()
    assert config.auto and (config.epsilon, config.delta, config.accountant) == (1.0, 1e-5, None)
    assert (defaults.METHOD, defaults.EPSILON, defaults.DELTA) == ("auto", 1.0, 1e-5)
    assert config == RunConfig(method="auto", epsilon=1.0, delta=1e-5)


def test_pure_trains_without_a_delta() -> None:
    assert asked(pure=True) == RunConfig(method="auto")
    assert asked(pure=True, method="mr_admm") == RunConfig()  # what train ran in version 0.1
    with pytest.raises(InvalidInput, match=r"^pure=1e-06"):
        asked(pure=True, delta=1e-6)
    for delta in (0.0, 1.0, float("nan")):
        with pytest.raises(InvalidInput, match=r"^delta=.*--pure for none"):
            asked(delta=delta)


def test_a_delta_is_left_out_where_it_has_no_use() -> None:
    for options in (
        {"method": "admm"},
        {"accountant": "pure"},
        {"method": "dvp", "form": "printed"},
    ):
        assert asked(**options).delta is None, options
        assert asked(**options, delta=1e-6).delta == 1e-6  # what is typed stays
    for options in (
        {"method": "dvp"},
        {"method": "pp_admm", "form": "printed"},
        {"accountant": "rdp"},
    ):
        assert asked(**options).delta == 1e-5, options
    # a printed form that is not named is one of pure epsilon
    assert asked(form="printed").method == "mr_admm"
    assert asked(method="admm").epsilon == float("inf")


def test_a_plan_with_noise_is_priced_and_a_run_with_noise_has_a_budget() -> None:
    assert asked(method="dvp", noise=0.3, priced=True).epsilon == float("inf")
    assert asked(method="dvp", noise=0.3).epsilon == 1.0
    assert asked(method="dvp", noise=0.3, epsilon=2.0, priced=True).epsilon == 2.0


def test_train_and_plan_make_the_same_default_run(ok: Call) -> None:
    """On a table where the search has little to do: the knobs are given."""
    knobs = ("--rounds", 6, "--rho", 0.02, "--eta", 0.05, "--set", "noise_growth=1.0", "--json")
    trained = ok("train", *ROWS, *knobs).json
    planned = ok("plan", "--sizes", 120, "--features", 5, *knobs).json
    assert trained["choice"]["chosen"] == planned["choice"]["chosen"]
    for told in (trained, planned):
        assert told["privacy"]["delta"] == 1e-5 and 0.999 <= told["privacy"]["epsilon"] <= 1.0


def test_a_ledger_of_pure_epsilon_makes_the_run_pure(ok: Call, run: Call) -> None:
    small = [option for option in SMALL if option != "--pure"]
    ok("ledger", "init", "pure.ledger", "--epsilon", 9, "--nodes", 5)
    ok("ledger", "init", "other.ledger", "--epsilon", 99, "--nodes", 5, "--delta", 1e-5)
    for name, delta in (("pure.ledger", 0), ("other.ledger", 1e-5)):
        said = ok(
            "train", *small, "--epsilon", 5, "--ledger", name, "--system-noise", "--json"
        ).json
        assert said["privacy"]["delta"] == delta
    refused = run(
        "train",
        *small,
        "--epsilon",
        2,
        "--ledger",
        "pure.ledger",
        "--system-noise",
        "--delta",
        1e-5,
    )
    assert refused.code == 2 and "--pure, delta=None" in refused.err


def test_defaults_change_nothing_of_a_named_method_with_its_budget(ok: Call) -> None:
    """The defaults fill in what is left out, and nothing else: the record is that of the same
    configuration.
    """
    config = ok("train", *SMALL, "--epsilon", 5, "--json").json["config"]
    same = RunConfig(method="mr_admm", epsilon=5.0, rho=0.02, eta=0.05, rounds=6, tol=None)
    assert RunConfig.from_dict(config) == same
    again = ok(
        "train", *SMALL, "--epsilon", 5, "--method", "admm", "--epsilon", "inf", "--json"
    ).json
    assert np.isfinite(again["test_error"]) and again["config"]["delta"] is None
