"""``sottovoce audit``: the claim beside the bound, as a table and as JSON."""

from __future__ import annotations

import pytest
from command_line import Call

from sottovoce.audit import Verdict, aborts, labels, targets
from sottovoce.audit.worst_cases import COMMON, RECIPES
from sottovoce.cli.audit import _render

KEYS = {"claimed_epsilon", "proved_epsilon", "lower_bound", "confidence", "refuted"}


def test_a_false_claim_is_refuted_in_both_outputs(ok: Call) -> None:
    answer = ok("audit", "dvp", "--form", "printed", "--replicates", 2000, "--json").json
    assert set(answer) >= KEYS and answer["refuted"] is True
    assert answer["lower_bound"] > answer["claimed_epsilon"] and answer["rounds"] == 2
    shown = ok("audit", "dvp", "--form", "printed", "--replicates", 2000).out
    assert "refuted" in shown and "the two tables" in shown


def test_a_corrected_form_default_victims_at_the_epsilon_that_was_asked(ok: Call) -> None:
    answer = ok(
        "audit", "objective", "--epsilon", 2, "--rounds", 1, "--replicates", 2000, "--json"
    ).json
    assert answer["refuted"] is False and answer["claimed_epsilon"] <= 2.0
    assert answer["lower_bound"] > 1.0 and 1.9 < answer["exact_epsilon"] <= 2.0


def test_the_same_seed_repeats_the_audit_and_another_does_not(ok: Call) -> None:
    def bound(seed: int) -> float:
        return float(
            ok("audit", "output", "--replicates", 1000, "--seed", seed, "--json").json[
                "lower_bound"
            ]
        )

    assert bound(1) == bound(1) != bound(2)


def test_aggregation_claims_have_names_of_their_own(ok: Call) -> None:
    assert (
        ok("audit", "feature_sites", "--form", "printed", "--replicates", 1000, "--json").json[
            "refuted"
        ]
        is True
    )


def test_a_form_that_none_has_is_refused_for_all_too(run: Call) -> None:
    ran = run("audit", "all", "--form", "printd")
    assert ran.code == 2 and "form='printd'" in ran.err and ran.out == ""
    assert "epsilon=0.0" in run("audit", "dvp", "--epsilon", 0).err


def test_a_claim_refuted_by_quadrature_is_printed_as_refuted_exactly(ok: Call) -> None:
    arguments = ("audit", "pp_admm", "--form", "printed", "--replicates", 400)
    answer = ok(*arguments, "--json").json
    assert answer["refuted"] is False and answer["refuted_exactly"] is True
    shown = ok(*arguments).out
    assert "refuted (exact)" in shown and "at 0.01" in shown


def test_each_adversary_has_a_name_of_its_own_and_answers_as_the_others_do(
    ok: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One victim is enough here: tests of the audit play them all.
    for adversary, name in ((aborts, "_default_victims"), (labels, "_default_stands")):
        every = getattr(adversary, name)
        monkeypatch.setattr(
            adversary, name, lambda *asked, every=every: dict([*every(*asked).items()][1:2])
        )
    for name, own in (
        ("stopping", "realised_delta"),
        ("refusals", "channels"),
        ("labels", "differ"),
    ):
        answer = ok("audit", name, "--quick", "--json").json
        assert (
            set(answer) >= KEYS | {own}
            and answer["method"] == name
            and answer["form"] == "corrected"
        )


def test_replicates_lowers_the_runs_of_an_audit_that_plays_fewer_than_eighty(
    ok: Call, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One victim is enough here: tests of the audit play them all.
    stands = labels._default_stands
    monkeypatch.setattr(
        labels, "_default_stands", lambda *asked: dict([*stands(*asked).items()][1:2])
    )
    fewest = labels.QUICK_RUNS
    assert fewest < labels.RUNS < 80
    answer = ok("audit", "labels", "--replicates", fewest, "--json").json
    assert answer["replicates"] == fewest
    refused = run("audit", "labels", "--replicates", fewest - 1)
    assert refused.code == 2 and f"use {fewest} or more" in refused.err
    # Other audits keep their limit.
    refused = run("audit", "dvp", "--replicates", fewest)
    assert refused.code == 2 and "use 2000" in refused.err


def test_the_delta_of_an_analyst_who_stops_is_printed(ok: Call) -> None:
    shown = ok("audit", "stopping", "--quick", "--delta", 0.01).out
    assert "makes delta" in shown and "declared 0.01" in shown
    answer = ok(
        "audit", "stopping", "--quick", "--delta", 0.01, "--rounds", 5, "--seed", 1, "--json"
    ).json
    assert answer["rounds"] == 5 and answer["delta"] == 0.01
    assert answer["realised_delta_bound"] <= answer["realised_delta"]


def test_an_audit_of_code_around_methods_refuses_one_run_and_the_printed_form(run: Call) -> None:
    ran = run("audit", "stopping", "--one-run")
    assert ran.code == 2 and "method='stopping'" in ran.err
    assert "form='printed'" in run("audit", "labels", "--form", "printed").err


def test_one_colluder_more_than_is_claimed_refutes_a_sum(ok: Call, run: Call) -> None:
    shown = ok("audit", "sums", "--colluders", 2, "--quick", "--json").json
    assert shown["refuted"] and shown["lower_bound"] > 1.2
    assert run("audit", "dvp", "--colluders", 2).code == 2


def test_no_number_is_cut_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Verdict(n, f, 12.345, 12.345, 0.123, 1e-5, 0.95, 10, 1, "a", "b", 1, 12.346)
        for n, f in targets()
    ]
    for columns in (80, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        _render(found, 0.95)
        shown = capsys.readouterr().out
        assert "\u2026" not in shown and max(map(len, shown.splitlines())) <= columns
        assert shown.count("12.345 at 1e-05") == shown.count("refuted (exact)") == len(found)
    assert "feature_aggregator, corrected" in shown  # a wide screen is used


@pytest.mark.parametrize(
    "words", [("claims",), ("study", "--list"), ("methods",), ("graphs",), ("data",)]
)
def test_lists_are_whole_in_80_columns(ok: Call, words: tuple[str, ...]) -> None:
    shown = ok(*words).out
    assert "\u2026" not in shown and max(map(len, shown.splitlines())) <= 80


def test_help_names_the_default_claims_that_differ(ok: Call) -> None:
    """Whatever worst case has numbers of its own stands in the help, so that no default surprises."""
    shown = " ".join(ok("audit", "--help").out.split())
    own = {key: one for key, one in RECIPES.items() if one.epsilon != COMMON.epsilon}
    assert own
    for (method, form), one in own.items():
        assert f"{method} as {form}: {one.epsilon:g} at delta {one.delta:g}" in shown
