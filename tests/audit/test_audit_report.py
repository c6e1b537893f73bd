"""Lessons on real rows, and the page that tells of them and of every claim."""

import importlib
import math
from html.parser import HTMLParser

import numpy as np
import pytest
from click.testing import CliRunner

from sottovoce.audit import Verdict, inference_attacks, report
from sottovoce.runs.config import RunConfig

# the package keeps the command under this name
command = importlib.import_module("sottovoce.cli.audit")
VOID = {"meta", "br", "img", "link", "input", "hr"}


@pytest.fixture(scope="module")
def learned():
    return inference_attacks.measure_inference_attacks(seed=0, quick=True)


def settings(learned, form=None):
    return [one for one in learned["membership"] if form in (None, one["form"])]


def test_without_noise_a_neighbour_is_certain(learned):
    bare = [one for one in settings(learned) if math.isinf(one["proved_epsilon"])]
    assert {(one["method"], one["form"]) for one in bare} == {
        ("admm", "corrected"),
        ("pvp", "listed"),
    }
    for one in bare:
        assert one["auc"] > 0.99 and one["tpr_1"] > 0.99
    for attribute in learned["attributes"]:
        assert all(
            one["accuracy"] == 1.0 for one in attribute["rows"] if math.isinf(one["proved_epsilon"])
        )


def test_corrected_forms_are_near_chance(learned):
    """8 targets, 16 times either way: an area of 0.5 has a standard deviation of about 0.036;
    five of them.
    """
    ours = [one for one in settings(learned, "corrected") if one["method"] != "admm"]
    assert {one["claimed_epsilon"] for one in ours} == {1.0, 4.0}
    for one in ours:
        assert abs(one["auc"] - 0.5) < 0.18
        assert one["proved_epsilon"] == pytest.approx(one["claimed_epsilon"], rel=1e-6)
        # the largest area that epsilon allows
        limit = 1.0 / (1.0 + math.exp(-one["claimed_epsilon"]))
        assert one["auc_interval"][0] < limit


def test_intervals_hold_their_values_and_curves_rise(learned):
    for one in settings(learned):
        for what in ("auc", "tpr_1", "tpr_10"):
            low, high = one[f"{what}_interval"]
            assert 0.0 <= low <= one[what] + 1e-9 and one[what] <= high + 1e-9 <= 1.0 + 2e-9
        assert np.all(np.diff(one["tpr"]) >= 0) and one["tpr"][-1] == pytest.approx(1.0)
        if one["auc"] > 0.99:  # all 8 targets agree: 0.025 ** (1 / 8)
            assert one["auc_interval"][0] == pytest.approx(0.025**0.125)
    for attribute in learned["attributes"]:
        assert sum(attribute["prior"]) == pytest.approx(1.0)
        assert attribute["commoner"] == attribute["values"][int(np.argmax(attribute["prior"]))]


@pytest.mark.parametrize(("method", "most"), [("dvp", 0.85), ("prox_admm", 0.85)])
def test_the_attack_sees_through_little_noise(method, most):
    """Control: chance above is the noise's doing, not the attack's."""
    stage = inference_attacks._deal_adult_rows(4, 7)
    seen = inference_attacks._play_setting(
        RunConfig(method=method, epsilon=1000.0, rounds=2), stage, 8, 3
    )
    fpr, tpr = inference_attacks.curve(seen.inside, seen.outside, np.ones((1, 4)))
    assert inference_attacks.area_under_curves(fpr, tpr)[0] > most


def test_scores_are_likelihood_ratios():
    """Under the other row the mean likelihood ratio is 1: a wrong density or a wrong scale of
    noise would move it.
    """
    stage = inference_attacks._deal_adult_rows(6, 1)
    seen = inference_attacks._play_setting(
        RunConfig(method="dvp", epsilon=20.0, rounds=2), stage, 40, 5
    )
    ratios = np.exp(seen.outside).ravel()
    assert abs(ratios.mean() - 1.0) < 5.0 * ratios.std() / math.sqrt(ratios.size)
    assert seen.inside.mean() > 0.0 > seen.outside.mean()


def test_interval_of_rate_is_open_where_all_targets_agree():
    """Nothing in 8 targets, and all of 8: Clopper and Pearson's limits, not 0 and 1 themselves."""
    limit = 0.025**0.125
    never = inference_attacks._interval_of_rate(0.0, np.zeros(400), 8)
    always = inference_attacks._interval_of_rate(1.0, np.ones(400), 8)
    assert never == pytest.approx([0.0, 1.0 - limit])
    assert always == pytest.approx([limit, 1.0])


def test_curve_counts_ties_by_half_and_weighs_targets():
    inside, outside = np.array([[1.0], [0.0]]), np.array([[0.0], [0.0]])
    fpr, tpr = inference_attacks.curve(
        inside, outside, np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    )
    assert inference_attacks.area_under_curves(fpr, tpr) == pytest.approx([0.75, 1.0, 0.5])
    assert inference_attacks.reach(fpr, tpr, 0.1) == pytest.approx([0.5, 1.0, 0.0])


def verdict(method, form, claimed, bound, exact=None, why="two tables"):
    return Verdict(
        method, form, claimed, claimed, bound, 0.0, 0.95, 4000, 2, "likelihood ratio", why, 1, exact
    )


VERDICTS = [
    verdict("dvp", "corrected", 1.0, 0.9),
    verdict("output", "corrected", 1.0, 0.9, exact=1.0),
    verdict("dvp", "printed", 1.0, 1.8, why='<script>alert("x")</script> & more'),
    verdict("pvp", "listed", 1.0, 6.0),
    verdict("generalised", "printed", 1.0, 0.95, exact=1.405),
    verdict("ipp_admm", "printed", 1.0, 0.0),
]


class Page(HTMLParser):
    """Tags that close as they open, and what the page would fetch."""

    def __init__(self, text):
        super().__init__()
        self.open, self.fetched, self.tags, self.rows, self.text = [], [], [], 0, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.rows += (tag, dict(attrs).get("class")) == ("tr", "verdict")
        self.fetched += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "data", "action")
        ]

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def written(learned, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "audit.html"
    report.write(path, VERDICTS, learned, "sottovoce audit all --report 'a<b.html'")
    return path.read_text(encoding="utf-8")


def test_page_is_whole_and_fetches_nothing(written):
    page = Page(written)
    assert not page.open and not page.fetched
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    for outside in ("http:", "https:", "@import", "url("):
        assert outside not in written
    assert "nan" not in page.text.lower().split()


def test_page_has_every_verdict_and_escapes(written):
    page = Page(written)
    assert page.rows == len(VERDICTS)
    assert "&lt;script&gt;alert" in written and "a&lt;b.html" in written
    assert '<script>alert("x")</script> & more' in page.text


def test_wording_of_the_headline_counts(written):
    assert report.counts(VERDICTS) == {
        "claims": 6,
        "refuted": 2,
        "corrected": 2,
        "corrected_refuted": 0,
        "printed": 4,
        "printed_refuted": 2,
        "exact_only": 1,
    }
    said = report.summarise_counts(VERDICTS)
    assert said == (
        "6 claims were attacked and 2 refuted: 2 of 4 as printed in the papers, 0 of 2 as "
        "corrected here; 1 more by exact quadrature alone."
    )
    assert said in Page(written).text
    broken = [*VERDICTS, verdict("mr_admm", "corrected", 1.0, 1.2)]
    assert "1 of 3" in report.summarise_counts(broken)


def test_page_tells_how_it_was_made(written, learned):
    text = Page(written).text
    for word in ("Replace-one", "numpy", "scipy", "Python", "95% confidence", "a<b.html", "seed 0"):
        assert word in text
    command_line = "sottovoce audit all --report 'a<b.html'"
    assert written == report.render_audit_page(VERDICTS, learned, command_line)


def test_command_writes_the_page_beside_json(learned, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        command, "targets", lambda form: [("output", "corrected"), ("output", "printed")]
    )
    monkeypatch.setattr(
        command,
        "measure_inference_attacks",
        lambda seed, quick: asked.append((seed, quick)) or learned,
    )
    path = tmp_path / "audit.html"
    words = ["all", "--quick", "--seed", "3", "--report", str(path), "--json"]
    result = CliRunner().invoke(command.audit, words)
    assert result.exit_code == 0 and asked == [(3, True)]
    assert result.stdout.startswith("[") and result.stdout.count('"replicates": 4000') == 2
    assert "1 of 2:" in result.stderr
    text = Page(path.read_text(encoding="utf-8")).text
    # The page names the command that makes it, with the file's name and not its folder.
    command_line = "sottovoce audit all --seed 3 --report audit.html --quick --json"
    assert command_line in text and str(tmp_path) not in text


def test_page_shows_an_adversary_as_a_claim_of_its_own(learned):
    text = Page(
        report.render_audit_page(
            [verdict("stopping", "corrected", 2.0, 2.02, 2.05)], learned, "sottovoce audit all"
        )
    ).text
    assert "stopping" in text and "Stopping, refusals, labels" in text and "last quote" in text


def test_command_refuses_a_folder_that_is_not_there_before_any_attack(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "attack", lambda *a, **k: pytest.fail("attacked"))
    result = CliRunner().invoke(
        command.audit, ["all", "--report", str(tmp_path / "none" / "a.html")]
    )
    assert result.exit_code != 0
