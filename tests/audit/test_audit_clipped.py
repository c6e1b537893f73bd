"""The cap's game: the claim stands and is tight, and every planted fault is caught by a test
that is named here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from planting import planted, planted_apart
from test_one_run import Faint, parts

from sottovoce.algorithms import REGISTRY, knobs_of
from sottovoce.audit import attack, densities
from sottovoce.audit.clipped import CAP, LONG, SHORT, clipping_cases, play
from sottovoce.audit.game import Options, record_transcripts
from sottovoce.audit.one_run import audit_one_run
from sottovoce.problem.clipped import Capped
from sottovoce.runs.config import RunConfig

EXACT = str(Path(__file__).parents[1] / "problem" / "test_clipped.py")


def test_the_capped_claim_stands_for_every_method_that_has_the_cap_and_is_tight() -> None:
    stands = clipping_cases()
    assert set(stands) == {
        name for name, cls in REGISTRY.items() if "max_grad_norm" in knobs_of(cls.options)
    }
    assert isinstance(record_transcripts(stands["dgd"], 0, 2, 0).facts.loss, Capped)
    for case in stands.values():
        assert case.config.gradient_cap == CAP < SHORT < LONG and case.config.loss == "huber:0.5"
    verdict = attack("capped", replicates=2000)
    assert not verdict.refuted and not verdict.is_refuted_exactly and verdict.lower_bound > 0.6
    assert verdict.claimed_epsilon == verdict.proved_epsilon == pytest.approx(1.0, abs=1e-6)
    assert densities(stands["output"]).epsilon == pytest.approx(1.0, abs=1e-4)
    assert densities(stands["output"]).epsilon <= 1.0
    with_delta = play(
        Options(delta=1e-5, replicates=200), {"output": clipping_cases(delta=1e-5)["output"]}
    )
    assert (
        with_delta.exact_epsilon is not None
        and 0.97 < with_delta.exact_epsilon <= with_delta.claimed_epsilon
    )


@pytest.mark.parametrize("method", ["prox_admm", "dgd"])
def test_canaries_do_not_refute_a_capped_run(method: str) -> None:
    config = RunConfig.from_dict(
        {
            "method": method,
            "epsilon": 1.0,
            "delta": 1e-5,
            "rounds": 2,
            "loss": "huber:0.5",
            "max_grad_norm": CAP,
        }
    )
    verdict = audit_one_run(config, parts(40, 200))
    assert not verdict.refuted and verdict.claimed_epsilon <= 1.0
    assert audit_one_run(config, parts(40, 200), noise=Faint).refuted


# --- Planted faults -------------------------------------------------------------------------------

GAME = """
import json
from sottovoce.audit import densities
from sottovoce.audit.clipped import clipping_cases, play
from sottovoce.audit.game import Options
both = clipping_cases()
verdict = play(Options(replicates=2000), {name: both[name] for name in ("output", "dgd")})
print(json.dumps([verdict.claimed_epsilon, verdict.lower_bound, densities(both["output"]).epsilon]))
"""
REFUTED = {
    "the cap forgotten": (
        "problem/clipped.py",
        {
            "self._clip_with_derivative(self.base.derivative(z), self._clipping_thresholds(z))[0]": "self.base.derivative(z)"
        },
    ),
    "half the sensitivity": (
        "problem/clipped.py",
        {
            "return min(self.most, self.base.derivative_bound)": "return 0.5 * min(self.most, "
            "self.base.derivative_bound)"
        },
    ),
    "a cap read off rows": (
        "problem/weighted_loss.py",
        {
            "return replace(self, norms=norms())": "return replace(self, norms=norms() / "
            "np.max(norms()))"
        },
    ),
    "squared norms": ("data/design.py", {"return squares**0.5 *": "return squares *"}),
    "norms rounded down": (
        "data/design.py",
        {
            "return squares**0.5 * (1.0 + (d + 8.0) * 2.0**-52)": "return (8.0 * squares**0.5) "
            "// 1.0 / 8.0"
        },
    ),
}
"""Faults with which the guarantee is false."""


@pytest.mark.parametrize("fault", REFUTED)
def test_a_fault_that_breaks_the_guarantee_is_refuted_by_the_audit(
    fault: str, tmp_path: Path
) -> None:
    claimed, bound, exact = planted(tmp_path, *REFUTED[fault], GAME)
    assert exact > claimed * 1.05
    if fault != "norms rounded down":  # its loss is too small for so few runs
        assert bound > claimed


TESTS = """
import contextlib, io, json, pytest
with contextlib.redirect_stdout(io.StringIO()):
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", {k!r}, {path!r}])
print(json.dumps(int(code)))
"""
CAUGHT = {
    "the cap put on the slope and not on the row's gradient": (
        "problem/clipped.py",
        {
            "most / xp.clip(self.norms, most / far, None)": "most / xp.clip(self.norms * 0.0 + "
            "1.0, most / far, None)"
        },
        "rows_of_every_kind and logistic",
    ),
    "the cap forgotten in the single-precision sweep": (
        "problem/clipped.py",
        {
            "self._clip_with_derivative(self.base.derivative(z), self._clipping_thresholds(z))[0]": "(self._clip_with_derivative(self.base.derivative(z), "
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            "self._clipping_thresholds(z))[0] if 'float64' in str(z.dtype)"
            " else self.base.derivative(z))"
        },
        "single_precision and logistic",
    ),
    "the cap forgotten in the double-precision sweep": (
        "problem/clipped.py",
        {
            "self._clip_with_derivative(self.base.derivative(z), self._clipping_thresholds(z))[0]": "(self._clip_with_derivative(self.base.derivative(z), "
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            ""
            "self._clipping_thresholds(z))[0] if 'float32' in str(z.dtype)"
            " else self.base.derivative(z))"
        },
        "longer_than_the_cap and logistic",
    ),
    "softmax capped by the norm of its gradient without the root of two": (
        "problem/clipped.py",
        {"self.most if self.outputs == 1 else self.most / math.sqrt(2.0)": "self.most"},
        "longer_than_the_cap and softmax",
    ),
    "a cap read off rows": (
        "problem/weighted_loss.py",
        {
            "return replace(self, norms=norms())": "return replace(self, norms=norms() / "
            "np.max(norms()))"
        },
        "rows_of_every_kind and huber",
    ),
    "half the sensitivity": (
        "problem/clipped.py",
        {
            "return min(self.most, self.base.derivative_bound)": "return 0.5 * min(self.most, "
            "self.base.derivative_bound)"
        },
        "a_row_moves and logistic",
    ),
    "norms rounded down": (
        "data/design.py",
        {
            "return squares**0.5 * (1.0 + (d + 8.0) * 2.0**-52)": "return squares**0.5 * (1.0 - "
            "2.0**-50)"
        },
        "norms_are_upper_bounds",
    ),
    "rows in single precision without their norms": (
        "data/design.py",
        {"norms = short.to_storage_array(narrow)": "norms = short.to_storage_array(0.0 * narrow)"},
        "single_precision and logistic",
    ),
}
"""Faults, and the test of `tests/problem/test_clipped.py` that fails with each of them."""


@pytest.mark.parametrize("fault", CAUGHT)
def test_every_fault_is_caught_by_the_test_that_is_named(fault: str, tmp_path: Path) -> None:
    file, edits, named = CAUGHT[fault]
    # tests failed; 2 and above are errors
    assert planted_apart(tmp_path, file, edits, TESTS.format(k=named, path=EXACT)) == 1


def test_without_a_fault_the_named_tests_pass(tmp_path: Path) -> None:
    every = " or ".join(sorted({f"({named})" for _, _, named in CAUGHT.values()}))
    same = {"LEAST = 1e-6": "LEAST = 1e-6  # the same"}
    assert (
        planted_apart(tmp_path, "problem/clipped.py", same, TESTS.format(k=every, path=EXACT)) == 0
    )
