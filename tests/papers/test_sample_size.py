"""The papers' bounds on rows: values by hand, invariance under units, monotonicity, limits,
refusals.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any
from sottovoce_papers.sample_size import (
    DIFFERS,
    FREE,
    KNOWN,
    SETTING,
    FeatureMethod,
    SampleSize,
    admm,
    dvp,
    mr_admm,
    objective_perturbation,
    output_perturbation,
    pp_admm,
    pvp,
    self_consistent,
    table,
)

E = math.e
BASE: dict[str, Any] = {"accuracy": 0.1, "confidence": 0.05, "reference_norm": 2.0}
NOISY: dict[str, Any] = BASE | {"epsilon": 0.5, "d": 20}
OURS: dict[str, Any] = NOISY | {"C": 3.0}
PVP: dict[str, Any] = OURS | {"eta": 0.7, "degree": 4}
FEATURE: dict[str, Any] = {
    "N": 3,
    "lambda1": 2.0,
    "lambda2": 1.0,
    "Lambda": 0.5,
    "reference_norm": 1.0,
    "loss_gap": 0.25,
    "C1": 0.5,
    "C2": 2.0,
    "C3": 4.0,
    "C4": 1.0,
    "d": 7,
}
FORMS = ["corrected", "printed"]


def bounds() -> list[Any]:
    """Every bound that has privacy, accuracy and features in it, at one setting; changes by
    keyword.
    """
    listed: dict[str, tuple[Callable[..., SampleSize], dict[str, Any]]] = {
        "dvp": (dvp, OURS),
        "pvp": (pvp, PVP),
        "pvp, exact": (pvp, PVP | {"sent": False}),
        "mr_admm": (mr_admm, NOISY | {"epsilon": 40000.0}),
        "output": (output_perturbation, NOISY),
        "objective": (objective_perturbation, NOISY),
    }
    return [
        pytest.param(lambda f=f, k=k, **to: f(**(k | to)).value, k["epsilon"], id=n)
        for n, (f, k) in listed.items()
    ]


def test_the_table_has_every_theorem_and_tells_the_forms_apart() -> None:
    rows = {row["theorem"]: row for row in table()}
    C, d, log = SETTING["C"], SETTING["d"], math.log(SETTING["d"] / 0.05)
    assert rows["001, Theorem 9"]["corrected"] == pytest.approx(
        C * rows["001, Theorem 9"]["printed"]
    )
    assert rows["003, Theorem 3.4"]["corrected"] == pytest.approx(2 * d * log / 0.1)
    n = rows["004, Theorem 3.5"]["corrected"]  # as many as its own noise asks for
    sigma = 2 * math.sqrt(2 * math.log(1.25 / 1e-5)) / n
    assert pp_admm(**BASE, beta=10.0**-3.5, sigma1=sigma, d=d).value == pytest.approx(n, rel=1e-6)
    assert rows["000, Theorem 3"]["printed"] != rows["001, Theorem 10"]["printed"]
    assert rows["000, Theorem 3"]["corrected"] == rows["001, Theorem 10"]["corrected"]
    for theorem, same in (
        ("001, Theorem 10", False),
        ("002, Theorem 4", True),
        ("004, Theorem 3.4", False),
    ):
        assert (rows[theorem]["printed"] == rows[theorem]["corrected"]) == same
    assert {row["constants"].split(":")[0] for row in rows.values()} == {"free", "known"}
    for theorem, row in rows.items():
        assert row["differs"] or row["printed"] == row["corrected"], theorem


def test_forms_that_differ_do_so_somewhere_and_the_others_nowhere() -> None:
    """Not at one setting, whose largest term may be one that both forms share."""
    settings = [
        SETTING | {"epsilon": e, "eta": eta} for e in (1e-3, 1.0, 1e6) for eta in (1e-9, 0.1)
    ]
    one = [
        {k: v for k, v in given.items() if k not in ("C", "eta", "degree")} for given in settings
    ]
    goal = [
        {k: v for k, v in given.items() if k not in ("epsilon", "d", "eta", "degree")}
        for given in settings
    ]
    dual = [{k: v for k, v in given.items() if k not in ("eta", "degree")} for given in settings]
    calls: dict[str, tuple[Callable[..., SampleSize], list[dict[str, Any]]]] = {
        "001, Theorem 9": (admm, goal),
        "001, Theorem 10": (dvp, dual),
        "001, Theorem 12": (lambda **k: pvp(**k, sent=False), settings),
        "001, Theorem 13": (pvp, settings),
        "003, Theorem 3.2": (
            output_perturbation,
            one + [k | {"reference_norm": 1e-3} for k in one],
        ),
    }
    for theorem, (call, all_) in calls.items():
        assert any(call(**k, form="printed") != call(**k, form="corrected") for k in all_), theorem
        assert DIFFERS[theorem]
    # at the setting of the table
    assert pvp(**SETTING, sent=False, form="printed") == pvp(**SETTING, sent=False)


def test_what_is_free_is_named() -> None:
    for found, names in [
        (admm(**BASE, C=1.0), "beta_non"),
        (dvp(**OURS), "beta_dual"),
        (pvp(**PVP), "beta^B_prim"),
        (pvp(**PVP, sent=False), "beta^A_prim"),
        (mr_admm(**BASE), "w"),
        (mr_admm(**NOISY), "w, a"),
        (output_perturbation(**NOISY), "constant"),
        (objective_perturbation(**NOISY), "constant"),
        (pp_admm(**BASE), "V, a"),
    ]:
        assert found.constants == f"{FREE}: {names}"
    assert FeatureMethod(**FEATURE).rows(1e9, m0=10).constants.startswith(f"{KNOWN}: C4")
    assert admm(**BASE, C=1.0, beta=7.0).value == pytest.approx(7 * admm(**BASE, C=1.0).value)


def test_admm_by_hand() -> None:
    given: dict[str, Any] = {"accuracy": 0.5, "confidence": 1 / E, "reference_norm": 2.0, "C": 3.0}
    assert admm(**given).value == pytest.approx(9 * 4 / 0.25)
    assert admm(**given, form="printed").value == pytest.approx(3 * 4 / 0.25)
    assert admm(**given | {"reference_norm": [1.0, 2.0, 0.1]}).value == admm(**given).value


def test_dvp_by_hand() -> None:
    given: dict[str, Any] = {
        "confidence": 1 / E,
        "reference_norm": 2.0,
        "C": 3.0,
        "d": 5,
        "c1": 0.25,
    }
    log = 1 + math.log(5)
    # each term in turn is the largest
    noise = dvp(**given, accuracy=1.0, epsilon=0.01)
    assert noise.value == pytest.approx(3 * 2 * 5 * log / 0.01)
    assert dvp(**given, accuracy=1.0, epsilon=0.01, form="printed").value == pytest.approx(
        2 * 5 / 0.01
    )
    assert dvp(**given, accuracy=1.0, epsilon=0.01, form="000").value == pytest.approx(
        2 * 5 * log / 0.01
    )
    bend = dvp(**given | {"c1": 100.0}, accuracy=1.0, epsilon=0.01)
    assert bend.value == pytest.approx(3 * 100 * 4 / 0.01)
    assert dvp(**given, accuracy=0.01, epsilon=100.0).value == pytest.approx(9 * 4 / 1e-4)


def test_pvp_by_hand() -> None:
    given: dict[str, Any] = {"confidence": 1 / E, "C": 4.0, "d": 5, "degree": 2, "epsilon": 0.1}
    log, first = 1 + math.log(5), 4 * 8 * 50.0 * 2 * 5 * (1 + math.log(5)) / (0.25 * 0.1)
    strong = given | {"accuracy": 0.5, "reference_norm": 2.0, "eta": 50.0}
    assert pvp(**strong, sent=False).value == pytest.approx(first)
    assert pvp(**strong).value == pytest.approx(4 * first)
    assert pvp(**strong, form="printed").value == pytest.approx(first)  # its fourth lacks C = 4
    weak = given | {"accuracy": 0.5, "reference_norm": 2.0, "eta": 1e-9}
    fifth = 4 * 8 * 4 * 5 * log / (0.5**1.5 * 0.1)
    assert pvp(**weak, c4=4.0).value == pytest.approx(2 * fifth)
    assert pvp(**weak, form="printed").value == pytest.approx(fifth)
    third = given | {"accuracy": 0.5, "reference_norm": 1e-3, "eta": 1e-9}
    assert pvp(**third).value == pytest.approx(4 * 4 * 1e-3 * 5 * log / (0.5 * 0.1))
    assert pvp(**third, form="printed").value == pytest.approx(
        4 * 4 * 1e-3 * 5 * log**2 / (0.5 * 0.1)
    )


def test_mr_admm_by_hand() -> None:
    given: dict[str, Any] = {
        "accuracy": 0.5,
        "confidence": 1 / E,
        "reference_norm": 2.0,
        "gap": 0.1,
    }
    assert mr_admm(**given).value == pytest.approx(4 / 0.16)
    log, C, N = 1 + math.log(3), 2.0, 7  # N of the printed formula cancels
    denominator = N * C * 0.16 / 8 - (1 + 0.5) * N * 9 / (C * 100.0**2) * log**2
    assert mr_admm(**given, epsilon=100.0, d=3, C=C, a=0.5).value == pytest.approx(
        C * N / denominator
    )


def test_theorem_4_of_002_is_what_the_proof_of_001_gives() -> None:
    """One form: the excess at the printed B is tau, of the sum that 001's proof bounds, with its
    weight rho.
    """
    tau, delta, f, C, N, d, a, alpha = 0.1, 0.05, 2.0, 3.0, 7, 20, 0.5, 2000.0
    B = mr_admm(
        accuracy=tau, confidence=delta, reference_norm=f, epsilon=alpha, d=d, C=C, a=a
    ).value
    rho, b = N * C * tau / f**2, d * math.log(d / delta) / alpha
    regulariser = rho / (2 * N * C) * f**2
    # what a linear term b costs an objective of convexity rho / N, over C
    noise = (1 + a) * N * b**2 / (rho * C)
    # the rate of Sridharan et al., to a constant
    sampling = N * C * math.log(1 / delta) / (rho * B)
    assert regulariser + noise + sampling == pytest.approx(tau)
    assert noise > 0.1 * tau  # so that another power of N, C, d or alpha would be seen


def test_one_site_by_hand() -> None:
    given: dict[str, Any] = {"confidence": 1 / E, "reference_norm": 2.0, "d": 5, "c": 0.25}
    log = 1 + math.log(5)
    assert output_perturbation(**given, accuracy=0.25, epsilon=0.1).value == pytest.approx(
        4 * 5 * log * 4 / 0.1
    )
    tiny = given | {"reference_norm": 0.01, "accuracy": 0.25, "epsilon": 0.1}
    assert output_perturbation(**tiny).value == pytest.approx(0.01 * 5 * log / 0.025)
    assert (
        output_perturbation(**tiny | {"d": 1}, form="printed").value
        == output_perturbation(**tiny | {"d": 1}).value
    )
    assert output_perturbation(**tiny, form="printed").value < output_perturbation(**tiny).value
    assert objective_perturbation(**given, accuracy=0.25, epsilon=0.1).value == pytest.approx(
        2 * 5 * log / 0.025
    )
    assert objective_perturbation(
        **given | {"c": 99.0}, accuracy=0.25, epsilon=0.1
    ).value == pytest.approx(4 * 99 / 0.025)


def test_pp_admm_by_hand() -> None:
    given: dict[str, Any] = {
        "accuracy": 0.5,
        "confidence": 1 / E,
        "reference_norm": 2.0,
        "gap": 0.1,
    }
    assert pp_admm(**given).value == pytest.approx(8 / 0.16)
    assert pp_admm(**given, beta=0.01).value == pytest.approx(1 / (0.02 - 2 * 1e-4))
    assert pp_admm(**given, beta=0.001, form="printed").value == pytest.approx(
        1 / (0.02 - 2 * 0.001)
    )
    H = 0.01 * 0.4 * math.sqrt(2 * 3) / 4 + 2 * 0.02**2 * 3
    assert pp_admm(**given, sigma1=0.02, sigma2=0.01, d=3).value == pytest.approx(
        1 / (0.02 - 2 * H)
    )


def test_the_norm_bound_behind_pp_admm_holds_up_to_one_half() -> None:
    d = np.arange(1, 2000)
    for xi in (0.5, 0.1, 1e-3):
        assert np.all(chi2.sf(2 * d * math.log(1 / xi), d) <= xi * (1 + 1e-12))


@pytest.mark.parametrize("scale", [0.01, 10.0])
def test_units_of_the_loss_do_not_matter(scale: float) -> None:
    scaled = {"C": 3.0 * scale, "accuracy": 0.1 * scale}
    for call, given in ((dvp, OURS), (pvp, PVP), (pvp, PVP | {"sent": False})):
        to = scaled | ({"eta": 0.7 * scale} if call is pvp else {})
        for epsilon in (0.01, 1.0, 1e6):
            at = given | {"epsilon": epsilon}
            assert call(**at | to).value == pytest.approx(call(**at).value)
        quiet = given | {"epsilon": 1e6}  # leaves the term that the printed forms have wrong alike
        moved = call(**quiet | to, form="printed").value / call(**quiet, form="printed").value
        assert moved == pytest.approx(1 / scale)
    loud = OURS | {"epsilon": 0.01}  # 000's first term, whose form is its own
    assert dvp(**loud | scaled, form="000").value == pytest.approx(
        dvp(**loud, form="000").value / scale
    )
    assert admm(**BASE | scaled).value == pytest.approx(admm(**BASE, C=3.0).value)
    # 002 measures accuracy in the loss itself: only C and the rate of the noise move.
    assert mr_admm(**NOISY | {"C": scale, "epsilon": 40000.0 / scale}).value == pytest.approx(
        mr_admm(**NOISY | {"epsilon": 40000.0}).value
    )


@pytest.mark.parametrize("form", FORMS)
def test_difficult_problems_ask_for_more_rows_of_pvp(form: str) -> None:
    """001, after Corollary 15: DVP is preferred where ``|f0|`` is large; so the orders, at one
    constant for both.
    """
    ratios = [
        pvp(**PVP | {"reference_norm": f}, form=form).value
        / dvp(**OURS | {"reference_norm": f}, form=form).value
        for f in (1.0, 10.0, 100.0, 1000.0)
    ]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 5 * ratios[-2] > 5 * ratios[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "factor"), [("reference_norm", 10.0), ("accuracy", 0.1)])
def test_neither_accuracy_nor_f0_weighs_more_for_dvp(name: str, factor: float, form: str) -> None:
    """001, after Corollary 15, says that both have more influence on the rows for DVP than for PVP.

    It speaks of large ``|f0|``; where that is small, 001's third term may decide for PVP.
    """
    for epsilon in (0.01, 1.0, 100.0):
        for at in (1.0, 10.0, 100.0):
            start = {"epsilon": epsilon, name: 2.0 * at if name == "reference_norm" else 0.1 / at}
            growth = [
                call(**given | start | {name: start[name] * factor}, form=form).value
                / call(**given | start, form=form).value
                for call, given in ((dvp, OURS), (pvp, PVP))
            ]
            assert growth[0] <= growth[1] * (1 + 1e-12), (start, growth)


@pytest.mark.parametrize(("bound", "epsilon"), bounds())
def test_monotone(bound: Callable[..., float], epsilon: float) -> None:
    def rises(name: str, values: list[Any], strict: bool = True) -> None:
        found = [bound(**{name: value}) for value in values]
        steps = np.diff(found)
        assert np.all(steps > 0) if strict else np.all(steps >= 0) and found[-1] > found[0]

    rises("accuracy", [0.3, 0.2, 0.1, 0.09])
    rises("epsilon", [epsilon * f for f in (100.0, 4.0, 2.0, 1.0, 0.9)], strict=False)
    rises("d", [5, 10, 20, 21], strict=False)
    rises("confidence", [0.5, 0.1, 0.01])
    rises("reference_norm", [0.5, 1.0, 2.0])


@pytest.mark.parametrize(("bound", "epsilon"), bounds()[:4])  # the others are of one release
def test_rounds_take_the_worst(bound: Callable[..., float], epsilon: float) -> None:
    assert bound(epsilon=[2 * epsilon, epsilon, 3 * epsilon]) == bound(epsilon=epsilon)


def test_limits_without_noise() -> None:
    quiet = {"epsilon": math.inf}
    for form in FORMS:
        plain = admm(**BASE, C=3.0, form=form).value
        assert dvp(**OURS | quiet, form=form).value == plain
        assert pvp(**PVP | quiet, form=form).value == plain
        assert pvp(**PVP | quiet, sent=False, form=form).value == plain
    # 002 says "the same"
    assert mr_admm(**NOISY | quiet).value == pytest.approx(2 * mr_admm(**BASE).value)
    assert (
        output_perturbation(**NOISY | quiet).value == objective_perturbation(**NOISY | quiet).value
    )
    assert pp_admm(**BASE, beta=0.01, d=20, sigma1=0.0, sigma2=0.0) == pp_admm(**BASE, beta=0.01)
    assert pp_admm(**BASE).value == pytest.approx(2 * mr_admm(**BASE).value)


def test_noise_that_no_number_of_rows_beats() -> None:
    assert mr_admm(**NOISY).value == math.inf
    assert pp_admm(**BASE, beta=1.0).value == math.inf
    values = [
        pp_admm(**BASE, sigma1=s, sigma2=s, d=20).value for s in (0.0, 1e-5, 1e-4, 1e-3, 1e-1)
    ]
    assert values == sorted(values)
    assert values[0] < values[1] < values[-1] == math.inf
    assert pp_admm(**BASE, gap=[0.0, 0.05]).value > pp_admm(**BASE).value


def test_beta_squared_asks_for_less_below_one_only() -> None:
    far: dict[str, Any] = {"accuracy": 100.0, "confidence": 0.05, "reference_norm": 2.0}
    assert pp_admm(**far, beta=0.5).value < pp_admm(**far, beta=0.5, form="printed").value
    assert pp_admm(**far, beta=2.0).value > pp_admm(**far, beta=2.0, form="printed").value


def test_self_consistent_rows() -> None:
    assert self_consistent(lambda n: SampleSize(1e6 / n, "c")).value == pytest.approx(1e3, rel=1e-8)
    assert self_consistent(lambda n: SampleSize(0.5, "c")).value == 1.0
    assert self_consistent(lambda n: SampleSize(math.inf, "c")) == SampleSize(math.inf, "c")

    def bound(n: float, price: float) -> SampleSize:
        return mr_admm(**NOISY | {"epsilon": price * n / 2})

    rows = {
        price: self_consistent(lambda n, p=price: bound(n, p)).value for price in (0.01, 0.1, 1.0)
    }
    assert rows[0.01] > rows[0.1] > rows[1.0] > mr_admm(**NOISY | {"epsilon": math.inf}).value
    for price, n in rows.items():
        assert bound(n * (1 + 1e-6), price).value <= n * (1 + 1e-6)
        assert not bound(n * (1 - 1e-6), price).value <= n * (1 - 1e-6)


def by_hand(m: float, m0: float, epsilon: float | None, epsilon0: float | None) -> float:
    """(4.23), (4.29) and (4.30) line by line, with (4.24)'s factor on the last term, at FEATURE
    and delta 0.05.
    """
    N, s, G, f2 = 3, 2.5**2, 0.25, 1.0
    local = 8 * 1.0 * 0.25 / m + 2 * 0.25 * 2.0 + 4 * 0.25
    above = 8 * 1.0 * 0.25 / m0 + 4 * 0.25 + 2 * 0.25 * 4.0
    fixed = 8 * N / 2.0 * G + 4 * N * f2
    if epsilon is None:
        return 2 * (8 * N / s * local + fixed) * 8 / s * above + 2 * (2 / 2.0 * G)
    private = (
        16 * N * 7**2 * math.log(7 / 0.05) ** 2 / (s * m**2 * epsilon**2)
        + 16 * N / s * local
        + fixed
    )
    if epsilon0 is None:
        return 2 * private * 8 / s * above + 2 * (2 / 2.0 * G)
    noise0 = 16 * N**2 * math.log(N / 0.05) ** 2 / (s * m0**2 * epsilon0**2)
    return 2 * (private * (noise0 + 16 / s * above) + 2 / 2.0 * G)


@pytest.mark.parametrize(("epsilon", "epsilon0"), [(None, None), (0.5, None), (0.5, 0.2)])
def test_feature_error_by_hand(epsilon: float | None, epsilon0: float | None) -> None:
    method = FeatureMethod(**FEATURE, epsilon=epsilon, epsilon0=epsilon0)
    for m, m0 in ((10.0, 10.0), (10.0, 1e4), (1e4, 10.0), (math.inf, math.inf)):
        assert method.error(m, m0) == pytest.approx(by_hand(m, m0, epsilon, epsilon0))
    printed = FeatureMethod(**FEATURE, epsilon=epsilon, epsilon0=epsilon0, form="printed")
    lost = 0.0 if epsilon0 else 2 * 0.25 / 2.0
    assert method.error(10, 10) - printed.error(10, 10) == pytest.approx(lost)


@pytest.mark.parametrize(("epsilon", "epsilon0"), [(None, None), (0.5, None), (0.5, 0.2)])
def test_feature_rows_invert_the_error(epsilon: float | None, epsilon0: float | None) -> None:
    method = FeatureMethod(**FEATURE, epsilon=epsilon, epsilon0=epsilon0)
    floor = method.error(math.inf, math.inf)
    assert method.rows(floor).value == method.rows(0.9 * floor).value == math.inf
    previous = [0.0, 0.0, 0.0]
    for target in (1.5 * floor, 1.2 * floor, 1.05 * floor, 1.01 * floor):
        m, m0, both = (
            method.rows(target, m0=1e6).value,
            method.rows(target, m=1e6).value,
            method.rows(target).value,
        )
        for found in (method.error(m, 1e6), method.error(1e6, m0), method.error(both, both)):
            assert found == pytest.approx(target, rel=1e-9)
        assert np.all(np.array([m, m0, both]) > previous)
        previous = [m, m0, both]


def test_feature_method_is_monotone() -> None:
    target = 2 * FeatureMethod(**FEATURE, epsilon=1.0, epsilon0=1.0).error(math.inf, math.inf)

    def rows(**changes: Any) -> float:
        return (
            FeatureMethod(**FEATURE | {"epsilon": 1.0, "epsilon0": 1.0} | changes)
            .rows(target)
            .value
        )

    assert rows(epsilon=0.1) > rows() > rows(epsilon=10.0)
    assert rows(epsilon0=0.1) > rows() > rows(epsilon0=10.0)
    assert rows(d=30) > rows() > rows(d=1)
    assert rows(N=4) > rows() > rows(N=2)
    quiet = FeatureMethod(**FEATURE, epsilon=math.inf)
    plain = FeatureMethod(**FEATURE)
    assert plain.error(50, 50) < quiet.error(50, 50) < 2 * plain.error(50, 50)


def test_c4_of_one_half() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 5, 50):
        X = rng.exponential(size=(20000, n, 3)) - 0.3
        norm = np.linalg.norm(X.sum(axis=1), axis=1)
        assert np.var(norm) <= 0.5 * 2 * n * np.mean(np.sum(X**2, axis=2))


def test_jensen_beats_the_bound_that_falls_with_rows() -> None:
    # (4.17) at infinite m0 is 2 C1^2; the mean square of an average of m0 vectors is at most C1^2
    # for every m0.
    rng = np.random.default_rng(1)
    for m0 in (1, 4, 100):
        X = rng.normal(loc=1.0, size=(5000, m0, 3))
        mean_square = np.mean(np.sum(X.mean(axis=1) ** 2, axis=1))
        assert mean_square <= np.mean(np.sum(X**2, axis=2)) * (1 + 1e-9)


REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (admm, BASE | {"C": 0.0}, "C=0.0: must be finite and > 0"),
    (admm, BASE | {"C": 1.0, "accuracy": -0.1}, "accuracy=-0.1"),
    (admm, BASE | {"C": 1.0, "confidence": 1.0}, "confidence=1.0: .*between 0 and 1"),
    (admm, BASE | {"C": 1.0, "reference_norm": []}, "reference_norm"),
    (admm, BASE | {"C": 1.0, "form": "best"}, "form='best': must be 'corrected' or 'printed'"),
    (admm, BASE | {"C": math.nan}, "C=nan"),
    (dvp, OURS | {"epsilon": 0.0}, "epsilon=0.0: must be > 0"),
    (
        dvp,
        OURS | {"epsilon": [0.1, 0.2], "reference_norm": [1.0, 2.0, 3.0]},
        "rounds=.*same length",
    ),
    (dvp, OURS | {"d": 0}, "d=0: must be a whole number"),
    (dvp, OURS | {"d": 2.5}, "d=2.5"),
    (dvp, OURS | {"d": math.nan}, "d=nan"),
    (dvp, OURS | {"beta": 0.0}, "beta=0.0"),
    (pvp, PVP | {"degree": 0}, "degree=0"),
    (pvp, PVP | {"eta": math.inf}, "eta=inf"),
    (mr_admm, BASE | {"gap": [0.0, 0.1]}, "gap=.*must be < accuracy = 0.1 in all rounds"),
    (mr_admm, NOISY | {"a": 0.0}, "a=0.0"),
    (output_perturbation, NOISY | {"c": -1.0}, "c=-1.0"),
    (objective_perturbation, NOISY | {"epsilon": -1.0}, "epsilon=-1.0"),
    (pp_admm, BASE | {"confidence": 0.6}, "confidence=0.6: must be <= 1/2"),
    (pp_admm, BASE | {"sigma1": -1.0}, "sigma1=-1.0: must be finite and >= 0"),
    (pp_admm, BASE | {"beta": -1.0}, "beta=-1.0"),
    (FeatureMethod, FEATURE | {"lambda1": 0.0}, "lambda1=0.0"),
    (FeatureMethod, FEATURE | {"epsilon0": 1.0}, "epsilon0=1.0: needs epsilon"),
    (FeatureMethod, FEATURE | {"N": 0}, "N=0"),
    (
        FeatureMethod(**FEATURE).rows,
        {"accuracy": 1.0, "m": 1.0, "m0": 1.0},
        "m0=1.0: cannot be given together with m",
    ),
    (FeatureMethod(**FEATURE).error, {"m": 0.0, "m0": 1.0}, "m=0.0"),
]


@pytest.mark.parametrize(("call", "given", "message"), REFUSED)
def test_bad_input_is_refused(
    call: Callable[..., Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        call(**given)
