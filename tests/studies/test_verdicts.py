"""Claims: every test both ways, what noise hides, what cannot be tested, what is refuted, and
readings.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.errors import InvalidInput
from sottovoce_papers.studies import spec
from sottovoce_papers.studies.spec import Reading, Sentence, Study, parse
from sottovoce_papers.studies.verdicts import (
    FAILS,
    HIDDEN,
    HOLDS,
    MEANINGS,
    MISPRINT,
    MOSTLY_FAILS,
    MOSTLY_NOT,
    NOISE,
    NOT,
    NOT_RUN,
    PART,
    REFUTED,
    REPRODUCED,
    SAME,
    SOME,
    UNSEEN,
    UNTESTABLE,
    counted,
    judge,
    judged,
    overall,
    placed,
    summed,
    sure,
)


def rows_of(**groups):
    """Rows {"g": name, "v": value, "x": place} from lists of values."""
    return [
        {"g": name, "v": v, "x": float(k), "b": "printed"}
        for k, (name, vs) in enumerate(groups.items())
        for v in vs
    ]


def verdict(rows, basis=None, **claim):
    return judge(Sentence("It is so.", value="v", printed={}, **claim), rows, basis or {}).word


APART = rows_of(a=[1.0, 1.1], b=[2.0, 2.1], c=[3.0, 3.1])
CLOSE = rows_of(a=[1.0, 2.0, 3.0], b=[1.1, 2.1, 3.1])


@pytest.mark.parametrize(
    ("claim", "yes", "no"),
    [
        ({"test": "least", "among": "g"}, {"of": {"g": "a"}}, {"of": {"g": "b"}}),
        ({"test": "greatest", "among": "g"}, {"of": {"g": "c"}}, {"of": {"g": "a"}}),
        (
            {"test": "less", "of": {"g": "a"}},
            {"than": {"g": "b"}},
            {"of": {"g": "b"}, "than": {"g": "a"}},
        ),
        ({"x": "x"}, {"test": "rises"}, {"test": "falls"}),
        ({"test": "near", "of": {"g": "a"}, "than": {"g": "b"}}, {"within": 1.5}, {"within": 0.5}),
        (
            {"test": "no_less", "of": {"g": "a"}, "than": {"g": "b"}},
            {"within": 1.5},
            {"within": 0.5},
        ),
        (
            {"test": "no_less", "within": 0.0},
            {"of": {"g": "b"}, "than": {"g": "a"}},
            {"of": {"g": "a"}, "than": {"g": "b"}},
        ),
        ({"test": "above"}, {"level": 0.5}, {"level": 3.5}),
        ({"test": "below"}, {"level": 3.5}, {"level": 0.5}),
    ],
)
def test_every_test_of_a_claim_can_hold_and_fail(claim, yes, no):
    assert verdict(APART, **(claim | yes)) == REPRODUCED
    assert verdict(APART, **(claim | no)) == NOT


def test_never_holds_only_if_all_values_are_zero():
    assert verdict(rows_of(a=[0, 0]), test="never") == REPRODUCED
    assert verdict(rows_of(a=[0, 1]), test="never") == NOT


def test_close_means_are_within_the_noise_and_missing_rows_are_reported():
    assert verdict(CLOSE, test="less", of={"g": "a"}, than={"g": "b"}) == NOISE
    assert verdict(CLOSE, test="less", of={"g": "b"}, than={"g": "a"}) == NOISE
    assert verdict(CLOSE, test="least", of={"g": "z"}, among="g") == UNSEEN
    assert verdict(APART, {"b": "proved"}, test="rises", x="x") == UNSEEN


def test_a_claim_that_holds_in_some_settings_is_reproduced_in_part():
    rows = [row | {"s": 1} for row in APART] + [row | {"s": 2, "v": -row["v"]} for row in APART]
    assert verdict(rows, test="rises", x="x", by=("s",)) == PART
    assert verdict(rows, test="rises", x="x", by=("s",), filter={"s": 1}) == REPRODUCED
    assert verdict(rows, test="rises", x="x", by=("s",), filter={"s": 2}) == NOT
    last = verdict(rows, test="falls", x="x", by=("s",), filter={"s": "last"})
    assert last == PART  # the last of each setting
    found = judge(
        Sentence("It is so.", value="v", printed={}, test="rises", x="x", by=("s",)), rows, {}
    )
    expected_counts = "holds in 1 (clearly in 1), fails in 1 of 2"
    assert counted(found.settings) == expected_counts


def test_a_claim_about_most_settings_wants_more_than_half_of_them():
    """001, V-C: "for most values of alpha", "a large range of values"."""
    rows = [
        row | {"s": s, "v": row["v"] * (1 if s < 3 else -1)} for row in APART for s in (1, 2, 3)
    ]
    assert verdict(rows, test="rises", x="x", by=("s",), most=True) == REPRODUCED
    assert verdict(rows, test="rises", x="x", by=("s",)) == PART
    assert verdict(rows, test="falls", x="x", by=("s",), most=True) != REPRODUCED
    half = [{"word": HOLDS, "clear": True}, {"word": FAILS}]
    assert (
        overall(half, most=True) == NOT
        and overall([*half, {"word": HOLDS}], most=True) == REPRODUCED
    )
    assert overall([*half, {"word": UNTESTABLE}, {"word": HOLDS}], most=True) == REPRODUCED


def test_equal_counts_have_equal_verdicts():
    """What a page prints beside a verdict decides it: all sets of up to four settings."""
    ways = [
        (w, c)
        for w in (HOLDS, SOME, FAILS, HIDDEN, SAME, UNTESTABLE, NOT_RUN)
        for c in (False, True)[: 1 + (w in (HOLDS, SOME))]
    ]
    found: dict[str, set[str]] = {}
    for many in (2, 3, 4):
        for those in itertools.combinations_with_replacement(ways, many):
            settings = [
                {"word": word} | ({"clear": True} if clear else {}) for word, clear in those
            ]
            found.setdefault(counted(settings), set()).add(overall(settings))
    assert all(len(words) == 1 for words in found.values())
    expected_verdicts = {
        "holds in 1, within the noise in 1 of 2": {NOISE},
        "holds in 1 (clearly in 1), within the noise in 1 of 2": {PART},
        "holds in 2, fails in 1 of 3": {PART},
        "holds in 1, fails in 2 of 3": {NOT},
        "holds in 1 (clearly in 1), fails in 2 of 3": {MOSTLY_NOT},
    }
    assert expected_verdicts.items() <= found.items()
    assert {word for words in found.values() for word in words} <= set(MEANINGS)


def test_no_verdict_says_in_part_where_fails_outnumber_holds():
    ways = [
        (w, c)
        for w in (HOLDS, SOME, FAILS, HIDDEN, SAME, UNTESTABLE, NOT_RUN)
        for c in (False, True)
    ]
    seen = set()
    for many in (1, 2, 3, 4):
        for those in itertools.combinations_with_replacement(ways, many):
            settings = [
                {"word": word} | ({"clear": True} if clear else {}) for word, clear in those
            ]
            words = [word for word, _ in those]
            holds, fails = words.count(HOLDS), words.count(FAILS)
            for most in (False, True):
                word = overall(settings, most=most)
                seen.add(word)
                assert word != PART or fails <= holds, those
                assert word != MOSTLY_NOT or fails > holds, those
    assert seen == {REPRODUCED, PART, MOSTLY_NOT, NOT, NOISE, SAME, UNTESTABLE, NOT_RUN}


def test_a_claim_of_ours_that_fails_more_often_than_it_holds_mostly_fails():
    rows = [
        row | {"s": s, "v": row["v"] * (1 if s == 1 else -1)} for row in APART for s in (1, 2, 3)
    ]
    claim = Sentence("It rises.", "rises", "v", x="x", by=("s",), printed={})
    assert judge(claim, rows, {}).word == MOSTLY_NOT
    assert judge(replace(claim, says="Ours: it rises."), rows, {}).word == MOSTLY_FAILS


def test_a_summary_counts_the_settings_of_divided_verdicts():
    settings = [{"word": word} for word in (HOLDS, FAILS, FAILS, HIDDEN)]
    told = summed(
        [
            (REPRODUCED, [{"word": HOLDS}]),
            (MOSTLY_NOT, settings),
            (PART, settings[:2]),
            (REPRODUCED, []),
        ]
    )
    expected_texts = [
        f"2 {REPRODUCED}",
        f"1 {MOSTLY_NOT} (1 hold, 2 fail of 4)",
        f"1 {PART} (1 hold, 1 fail of 2)",
    ]
    assert told == expected_texts


def test_a_claim_of_ours_holds_or_fails_where_a_papers_is_reproduced():
    def words(says):
        claim = Sentence(says, value="v", printed={}, test="rises", x="x")
        return [
            judge(replace(claim, **to), APART, {}).word
            for to in ({}, {"test": "falls"}, {"refuted": "a; b"})
        ]

    assert words("It rises.") == [REPRODUCED, NOT, REFUTED]
    assert words("Ours: it rises.") == [HOLDS, FAILS, REFUTED]


def test_settings_have_the_papers_names():
    place = {"method": "r_admm", "eta_growth": 1.05, "label": "k = 1", "empty": ""}
    assert placed(place).split(", ") == ["R-ADMM", "q 1.05", "k = 1"]
    rows = [
        row | {"method": name}
        for row, name in zip(APART, ("dvp", "dvp", "m_admm") * 2, strict=True)
    ]
    found = judge(
        Sentence("", "least", "v", {"method": "dvp"}, among="method", printed={}), rows, {}
    )
    assert "(M-ADMM, " in found.details[0]


def test_a_threshold_is_marked_as_ours():
    near = Sentence("", "near", "v", {"g": "a"}, {"g": "b"}, printed={}, within=1.5)
    assert re.search(r"ours: .* 1\.5\b", judge(near, APART, {}).details[0])
    assert "ours" not in judge(replace(near, within=0.0), APART, {}).details[0]
    below = Sentence("", "below", "v", level=3.5, printed={})
    assert "(ours: below 3.5)" in judge(below, APART, {}).details[0]
    assert "ours" not in judge(replace(below, level=0.0), APART, {}).details[0]


def test_values_equal_in_every_replicate_are_no_difference():
    rows = [
        {"g": g, "x": k, "replicate": r, "v": 0.1 * r} for k, g in enumerate("ab") for r in range(3)
    ]
    assert verdict(rows, test="less", of={"g": "a"}, than={"g": "b"}) == SAME
    assert verdict(rows, test="least", of={"g": "a"}, among="g") == SAME
    assert verdict(rows, test="rises", x="x") == SAME
    other = [row | {"v": row["v"] + 0.3 * (-1) ** row["replicate"] * row["x"]} for row in rows]
    assert verdict(other, test="less", of={"g": "a"}, than={"g": "b"}) == NOISE


def test_a_trend_with_a_step_the_wrong_way_holds_in_part():
    rows = rows_of(a=[1.0, 1.1], b=[0.1, 0.2], c=[3.0, 3.1])
    assert verdict(rows, test="rises", x="x") == PART
    assert verdict(rows, test="falls", x="x") == NOT


def test_of_many_differences_some_are_large_by_chance():
    """Two equal things in thirty settings: at two standard errors one of them would seem to fail
    every other time.
    """
    rng, claim = (
        np.random.default_rng(0),
        Sentence("", "less", "v", {"g": "a"}, {"g": "b"}, by=("s",), printed={}),
    )
    refused = 0
    for _ in range(30):
        rows = [
            {"g": g, "s": s, "v": v, "replicate": r}
            for g in "ab"
            for s in range(30)
            for r, v in enumerate(rng.normal(size=10).tolist())
        ]
        refused += any(one["word"] == "fails" for one in judge(claim, rows, {}).settings)
    assert refused <= 3  # at most 2.3% of 30 are expected, and more than 3 with a chance below 1%
    assert sure(np.inf) == pytest.approx(2.0) and sure(np.inf, 100) == pytest.approx(
        3.506, abs=1e-2
    )
    assert sure(4) == pytest.approx(2.869, abs=1e-3)


def test_differences_are_taken_replicate_by_replicate():
    """Two that move together are told apart; ten rows of one replicate are no ten replicates."""
    common = np.random.default_rng(1).normal(size=10).tolist()
    rows = [
        {"g": g, "replicate": r, "v": v + more + 0.001 * r * (g == "b")}
        for g, more in (("a", 0.0), ("b", 0.1))
        for r, v in enumerate(common)
    ]
    ahead = {"test": "less", "of": {"g": "a"}, "than": {"g": "b"}}
    assert verdict(rows, **ahead) == REPRODUCED
    found = judge(Sentence("", value="v", printed={}, **ahead), rows, {})
    assert "apart" in found.details[0]
    # not the same ones
    assert verdict([row for row in rows if row["replicate"] or row["g"] == "a"], **ahead) == NOISE
    many = [row | {"x": k} for row in rows[:2] + rows[10:12] for k in range(50)]
    few = [row | {"v": row["v"] + row["replicate"] * (row["g"] == "a")} for row in many]
    assert verdict(few, **ahead) == NOISE


def test_steadier_looks_at_the_spread_of_each_replicate():
    rows = [
        {"g": g, "x": k, "replicate": r, "v": size * (-1) ** k + 0.01 * r}
        for g, size in (("calm", 0.1), ("wild", 1.0))
        for k in range(6)
        for r in range(3)
    ]
    calm = {"test": "steadier", "of": {"g": "calm"}, "than": {"g": "wild"}}
    assert verdict(rows, **calm) == REPRODUCED
    assert verdict(rows, **(calm | {"of": {"g": "wild"}, "than": {"g": "calm"}})) == NOT
    # one row a replicate has no spread
    assert verdict(rows, **(calm | {"filter": {"x": 0}})) == UNSEEN


def test_tighter_looks_at_the_spread_between_replicates():
    values = np.random.default_rng(2).normal(size=(3, 30)).tolist()
    rows = [
        {"g": g, "replicate": r, "v": size * values[k][r]}
        for k, (g, size) in enumerate((("calm", 0.3), ("wild", 1.0), ("same", 1.0)))
        for r in range(30)
    ]
    calm = {"test": "tighter", "of": {"g": "calm"}, "than": {"g": "wild"}}
    assert verdict(rows, **calm) == REPRODUCED
    assert verdict(rows, **(calm | {"of": {"g": "wild"}, "than": {"g": "calm"}})) == NOT
    assert verdict(rows, **(calm | {"of": {"g": "same"}})) == NOISE
    # other replicates
    assert verdict(rows[:80], **(calm | {"of": {"g": "calm"}, "than": {"g": "same"}})) == REPRODUCED
    assert verdict([row for row in rows if row["replicate"] < 2], **calm) == UNSEEN


def test_narrows_looks_at_the_gap_at_both_ends():
    rows = [
        {"g": g, "x": x, "replicate": r, "v": v + 0.01 * r}
        for g, values in (("low", (1.0, 1.0)), ("high", (3.0, 1.5)))
        for x, v in zip((0.1, 10.0), values, strict=True)
        for r in range(3)
    ]
    gap = {"test": "narrows", "x": "x", "of": {"g": "low"}, "than": {"g": "high"}}
    assert verdict(rows, **gap) == REPRODUCED
    assert verdict(rows, **(gap | {"of": {"g": "high"}, "than": {"g": "low"}})) == NOT
    assert verdict(rows, **(gap | {"filter": {"x": 0.1}})) == UNSEEN


LESS = {"test": "less", "of": {"g": "a"}, "than": {"g": "b"}}


@pytest.mark.parametrize(("column", "word"), [("stands_in", NOT_RUN), ("untestable", UNTESTABLE)])
def test_settings_with_stand_in_or_untestable_rows_do_not_count(column, word):
    rows = [row | {"s": s} for row in APART for s in (1, 2)]
    why = "synthetic rows"
    some = [row | ({column: why} if row["s"] == 1 else {}) for row in rows]
    every = [row | {column: why} for row in rows]
    claim = Sentence("It is so.", value="v", printed={}, by=("s",), **LESS)
    found = judge(claim, some, {})
    held, _, barred = found.reason.partition(", ")
    assert (found.word, held) == (REPRODUCED, f"{HOLDS} in 1")
    assert barred.split(" in ") == [word.removesuffix(" here"), "1 of 2"]
    assert [one["word"] for one in found.settings] == [word, "holds"]
    assert why in found.details[0]
    found = judge(claim, every, {})
    assert (found.word, found.reason) == (word, why)
    assert judge(claim, rows, {}).word == REPRODUCED


def test_errors_no_better_than_the_commoner_class_are_untestable():
    flat = [row | {"test_error": row["v"], "untestable_error": "flat"} for row in APART]
    error = Sentence("It is so.", value="test_error", printed={}, **LESS)
    found = judge(error, flat, {})
    # what came out is not hidden
    why, _, measured = found.reason.partition("; measured: ")
    assert found.word == UNTESTABLE and why == "flat" and measured.startswith("1.05 ± ")
    assert judge(Sentence("It is so.", value="v", printed={}, **LESS), flat, {}).word == REPRODUCED
    learns = [row | ({"untestable_error": None} if row["g"] == "a" else {}) for row in flat]
    assert judge(error, learns, {}).word == REPRODUCED  # one of the compared learns


def test_a_refuted_claim_still_shows_what_was_measured():
    claim = Sentence(
        "It is so.", value="v", printed={}, proved={}, refuted="Theorem 1; tests/a.py::b", **LESS
    )
    study = Study("s", "A study", "training.run", claims=(claim,))
    (found,) = judged(study, APART)
    assert found.printed.word == REFUTED and found.printed.reason.startswith("Theorem 1")
    assert "against" in found.printed.details[0]
    assert found.proved.word == REPRODUCED  # of our form, and the paper's claim is another
    (alone,) = judged(replace(study, claims=(replace(claim, printed=None),)), APART)
    assert alone.proved.word == REFUTED


def test_a_misprint_has_a_verdict_of_its_own_and_is_not_called_refuted():
    claim = Sentence(
        "It is so.", value="v", printed={}, proof={}, misprint="(3) has it; tests/a.py::b", **LESS
    )
    (found,) = judged(Study("s", "A study", "training.run", claims=(claim,)), APART)
    assert found.printed.word == MISPRINT and found.printed.reason.startswith("(3)")
    assert found.proof.word == REPRODUCED and found.proved is None
    with pytest.raises(InvalidInput, match="misprint"):
        replace(claim, refuted="a proof; tests/a.py::b")


def test_a_claim_that_an_unprinted_setting_decides_is_untestable_and_shows_what_was_measured():
    why = "eta is not printed, and decides it"
    claim = Sentence("It is so.", value="v", printed={}, proved={}, untestable=why, **LESS)
    (found,) = judged(Study("s", "A study", "training.run", claims=(claim,)), APART)
    for basis in (found.printed, found.proved):
        assert (basis.word, basis.reason) == (UNTESTABLE, why) and "against" in basis.details[0]
    (nothing,) = judged(Study("s", "A study", "training.run", claims=(claim,)), [])
    assert nothing.printed.word == UNSEEN  # what did not run is not called untestable
    with pytest.raises(InvalidInput, match="untestable"):
        replace(claim, misprint="(3) has it; tests/a.py::b")


def test_the_constants_of_a_proof_are_judged_beside_the_listing():
    rows = [row | {"basis": "printed"} for row in APART] + [
        row | {"basis": "proof", "v": -row["v"]} for row in APART
    ]
    claim = Sentence(
        "It is so.", value="v", printed={"basis": "printed"}, proof={"basis": "proof"}, **LESS
    )
    (found,) = judged(Study("s", "A study", "training.run", claims=(claim,)), rows)
    assert {basis: verdict.word for basis, verdict in found.verdicts.items()} == {
        "printed": REPRODUCED,
        "proof": NOT,
    }
    plain = found.plain()
    assert (
        plain["proof"]["verdict"] == NOT
        and plain["proof"]["of"] == {"basis": "proof"}
        and plain["proved"] is None
    )


def test_readings_of_two_lines_are_combined_unless_a_claim_speaks_of_one():
    readings = (
        Reading("low", "line 3", ""),
        Reading("high", "line 3", ""),
        Reading("C = 1", "nowhere", "", "C", 1.0),
        Reading("C = 9", "nowhere", "", "C", 9.0),
    )
    cells = tuple({"reading": name, "C": C} for name in ("low", "high") for C in (1.0, 9.0))
    claim = Sentence("It is so.", value="v", printed={}, **LESS)
    spoken = replace(claim, filter={"C": 1.0})
    study = Study(
        "s", "A study", "training.run", cells=cells, readings=readings, claims=(claim, spoken)
    )
    turned = [("high", 9.0)]
    rows = [
        row | cell | {"v": row["v"] * (-1 if (cell["reading"], cell["C"]) in turned else 1)}
        for row in APART
        if row["g"] != "c"
        for cell in cells
    ]
    found = [(one.place, one.reading, one.printed.word) for one in judged(study, rows)]
    expected_words = [
        (0, "low, C = 1", REPRODUCED),
        (0, "low, C = 9", REPRODUCED),
        (0, "high, C = 1", REPRODUCED),
        (0, "high, C = 9", NOT),
        (1, "low", REPRODUCED),
        (1, "high", REPRODUCED),
    ]
    assert found == expected_words
    with pytest.raises(InvalidInput, match="readings"):
        replace(study, cells=(*cells, {"reading": "low", "C": 3.0}))


def test_every_reading_has_a_verdict_of_its_own():
    readings = (Reading("low", "line 3", "It is small."), Reading("high", "line 3", "It is large."))
    cells = ({"reading": "low"}, {"reading": "high"}, {})
    claim = Sentence("It is so.", value="v", printed={}, **LESS)
    spoken = replace(claim, filter={"reading": "low"})
    study = Study(
        "s", "A study", "training.run", cells=cells, readings=readings, claims=(claim, spoken)
    )
    rows = [row | {"reading": "low"} for row in APART if row["g"] == "a"]
    rows += [row | {"reading": "high", "v": row["v"] + 5} for row in APART if row["g"] == "a"]
    rows += [row | {"reading": "low"} for row in APART if row["g"] == "b"]
    rows += [row | {"reading": "high"} for row in APART if row["g"] == "b"]
    rows += [row for row in APART if row["g"] == "c"]
    found = [(one.place, one.reading, one.printed.word) for one in judged(study, rows)]
    assert found == [(0, "low", REPRODUCED), (0, "high", NOT), (1, "", REPRODUCED)]
    shared = [row for row in rows if row["g"] == "c"]
    assert (
        judged(replace(study, claims=(replace(claim, than={"g": "c"}),)), rows)[1].printed.word
        == NOT
        and shared
    )


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("value = 1750.0", "value = 2.0", "readings.name"),
        ("y = [0.52, 0.48]", "y = [0.52]", "paper_points.y"),
        ("y = [0.52, 0.48]", 'y = ["a", "b"]', "paper_points.y"),
        ('figure = "loss"', 'figure = "nowhere"', "paper_points.figure"),
        ("error = 0.0 ", "error = -1.0 ", "paper_points.error"),
        ('source = "Table II"', 'source = ""', "paper_points.source"),
    ],
)
def test_readings_and_points_of_the_paper_are_checked(old, new, field):
    lines = spec.__doc__.splitlines()
    text = textwrap.dedent("\n".join(lines[lines.index("::") + 1 :]))
    assert old in text
    with pytest.raises(InvalidInput) as caught:
        parse(text.replace(old, new), "every-key")
    assert caught.value.field == field


def test_single_replicate_gives_no_verdict() -> None:
    claim: dict[str, object] = {"test": "less", "of": {"m": "a"}, "than": {"m": "b"}}
    one = [{"m": m, "replicate": 0, "v": v} for m, v in (("a", 0.1), ("b", 0.9))]
    assert verdict(one, **claim) == NOISE
    assert verdict(one + [row | {"replicate": 1} for row in one], **claim) == REPRODUCED
    assert verdict(one, **claim, noise=0.0) == REPRODUCED  # the run draws no noise
    assert verdict(one, **claim, noise=0.5) == NOISE
