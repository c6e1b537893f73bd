"""The benchmarks and the fuzzer run in little and print what they promise; nothing here measures
time.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from in_process import ran
from scipy import stats
from sklearn.linear_model import Lasso

from sottovoce.privacy.gaussian import gaussian_epsilon

ROOT = Path(__file__).parents[2]
ACCURACY, FAULTS = ROOT / "bench" / "accuracy", ROOT / "tests" / "faults"


def run(name: str, *more: str) -> dict[str, Any]:
    done = warm.run([ROOT / name, "--quick", "--json", *more], timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_roofline() -> None:
    answer = run("bench/speed/roofline.py")
    assert answer["assumptions"]
    for load in answer["workloads"]:
        assert load["seconds"] > 0 and load["operations"] > 0 and load["bytes"] > 0
        assert load["seconds"] >= sum(load["parts"].values()) * (1 - 1e-12)
        assert all(rate > 0 for rate in load["rates"].values())


def test_compare() -> None:
    answer = run("bench/speed/compare.py")
    ratios = {
        "ratio_scipy",
        "ratio_scipy_single",
        "ratio_newton",
        "ratio_floor",
        "ratio_floor_study",
    }
    ratios |= {"ratio_matched", "ratio_matched_single", "ratio_merged_single", "ratio_merged_many"}
    slopes = {"slope_rows", "slope_replicates", "slope_rounds"}
    figures = {"seconds_study", "seconds_1000_nodes", "memory_mib_1000_nodes", "difference"}
    assert ratios | slopes | figures <= set(answer)
    assert all(answer[name] > 0 for name in ratios)
    for problem in (
        "Adult",
        "dense",
        "sparse",
    ):  # each solve of ours has its certificate, or the part would end
        assert answer[f"ratio_{problem}_lbfgs"] > 0
        assert f"ratio_{problem}_glum" in answer or "glum" in answer[f"peer_{problem}_glum"]
    # Same noise, same recurrence, same certificate: the same models.
    assert answer["certificate_scipy"] <= answer["certificate"]
    assert answer["certificate_newton"] <= answer["certificate"]
    largest = max(answer["difference"], answer["difference_newton"], answer["difference_batch"])
    assert largest <= 1e-5 * max(1.0, answer["largest_weight"])


def test_sites() -> None:
    """A row for each kind of run, whose parts add up."""
    pytest.importorskip("cryptography")
    answer = run("bench/speed/sites.py")
    assert [one["kind"] for one in answer["runs"]] == ["graph", "sums"]
    assert all(
        one["site"] > 0 < one["hub"] and one["round"] == one["site"] + one["hub"]
        for one in answer["runs"]
    )
    assert answer["start"] > 0


def test_startup() -> None:
    """One process a command: seconds are told, and libraries with whoever wanted them."""
    answer = run("bench/speed/startup.py")["commands"]
    assert {"python -c pass", "sottovoce --help", "sottovoce --version", "sottovoce train"} <= set(
        answer
    )
    for entry in answer.values():
        assert 0 <= entry["least"] <= entry["median"] and entry["modules"] > 10
        assert sum(library["modules"] for library in entry["libraries"]) == entry["modules"]
    wanted = {
        name: {library["library"]: library["because"] for library in entry["libraries"]}
        for name, entry in answer.items()
    }
    assert wanted["sottovoce train"]["numpy"].startswith("sottovoce.")
    assert wanted["sottovoce --help"]["click"].startswith("sottovoce.cli:")
    only_numpy = "python -c 'import numpy'"
    assert "numpy" not in wanted["sottovoce --help"] and "numpy" in wanted[only_numpy]


def test_felt() -> None:
    """Seconds of whole commands, and of fits alone, each beside the line that it is meant to
    keep.
    """
    answer = run("bench/speed/felt.py")
    fit_of_estimator = "PrivateClassifier, 40,000 x 100"
    assert set(answer) == {"train", fit_of_estimator}
    for entry in answer.values():
        assert entry["here"] > 0 and entry["line"] > 0
    fit = answer[fit_of_estimator]
    assert 0 < fit["here_fit"] < fit["here"] and answer["train"]["here_fit"] is None


def test_large_csv() -> None:
    """Seconds and memory of reading, encoding and training, and of the peers."""
    pytest.importorskip("pandas")
    (answer,) = run("bench/speed/large_csv.py").values()
    ratio = answer.pop("ratio")
    assert set(answer) == {"read_csv", "sklearn", "read", "encode", "train"}
    assert all(one["seconds"] > 0 and one["mib"] > 10 for one in answer.values())
    assert ratio == answer["train"]["seconds"] / answer["sklearn"]["seconds"]


def test_fuzz() -> None:
    """300 inputs of one seed: no exception, no data value, nothing spent on a refusal."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("cryptography")
    answer = run("tests/faults/fuzz.py")
    assert answer["failures"] == [] and answer["inputs"] == 300
    counts = answer["targets"].values()
    assert len(counts) >= 13 and sum(count["inputs"] for count in counts) == 300
    # the mutations do break something
    assert sum(count.get("refused", 0) for count in counts) > 150
    # and what they are made from is sound
    assert sum(count.get("accepted", 0) for count in counts) > 10


def test_fuzz_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("cryptography")
    monkeypatch.syspath_prepend(str(FAULTS))
    import fuzz

    made = fuzz.Fixture(tmp_path, [["4417.0593", "3141.5926", "wquarzberg", "nweidach", "sick"]])
    monkeypatch.setattr(fuzz, "head", lambda path: (7, b"after"))

    def judge(
        code: int, out: str, err: str, error: str = "", before: object = (7, b"after")
    ) -> list[str]:
        return fuzz.judge(made, "csv", fuzz.Said(code, out, err, error), before)

    assert judge(0, "fine\n", "") == []
    refusals_as_they_should_be = (
        "error: x: is odd; mend it\n",
        "Usage: x\n\nError: No such option\n",
    )
    assert [judge(2, "", text) for text in refusals_as_they_should_be] == [[], []]

    def fault(*said: Any, **more: Any) -> str:
        (found,) = judge(*said, **more)
        return found

    traceback = "Traceback ...\nValueError: 1"
    assert fault(0, "", "", traceback) == "exception: ValueError: 1"
    assert fault(1, "", "error: x\n") == "exit code 1"
    for two_lines in ("error: x\nerror: y\n", "error: x\nwarning\n"):
        assert fault(2, "", two_lines).startswith("2 lines")
    assert "on standard error" in fault(0, "", "RuntimeWarning\n")
    assert fault(2, "", "error: wquarzberg, 4417.0593\n").startswith("shows 2 values")
    assert fault(2, "", "error: \x1b[31m\n") == "control characters"
    assert fault(2, "{}", "error: x\n").startswith("an answer beside")
    assert fault(2, "", "error: x\n", before=(6, b"before")).startswith("spent though")


def test_fuzz_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FAULTS))
    import _mutations
    import numpy as np

    plain = {"a": [1, 2.5, "x"], "b": {"c": None, "d": [True]}}
    data = json.dumps(plain).encode()
    for seed in range(200):
        values, texts = [], []
        for _ in range(2):
            rng = np.random.default_rng([3, seed])
            values.append(repr(_mutations.mutate(rng, plain)))
            texts.append(_mutations.scramble(rng, data, text=True))
        assert values[0] == values[1] and texts[0] == texts[1]
    assert plain == json.loads(data)


def test_fill(tmp_path: Path) -> None:
    """Every change to the schema is tried, and a typical row is as long as the schema says where
    it says so.
    """
    cells = json.loads(ran(ACCURACY / "fill.py", "--quick", "--json", into=tmp_path))["cells"]
    names = {cell["rows"] for cell in cells}
    assert {"bounds only", "`scale`", "`unit`", "`typical`", "`intercept = 0.5`"} < names
    assert len(cells) == len(names) * len({cell["method"] for cell in cells})
    for cell in cells:
        assert 0 < cell["norm"] <= 1 and 0 <= cell["accuracy"] <= 100 and cell["sd"] >= 0
        if "`typical`" in cell["rows"]:
            assert abs(cell["norm"] - cell["expected_norm"]) < 0.1


@pytest.mark.parametrize(
    ("name", "ways"), [("zero_point", {"today", "moved"}), ("curved", {"as it is", "50 waves"})]
)
def test_encodings(name: str, ways: set[str]) -> None:
    """Each encoding is measured on the same deals, and waves tell crescents apart, which a line
    does not.
    """
    cells = run(f"bench/accuracy/{name}.py", "--workers", "1")
    assert {key.split(" ", 1)[1].removesuffix(" 1") for key in cells} == ways
    errors = {key: sum(cell["errors"]) / len(cell["errors"]) for key, cell in cells.items()}
    assert all(
        0 < error < 60 and cell["centred"]
        for error, cell in zip(errors.values(), cells.values(), strict=True)
    )
    if name == "curved":
        waves, linear = "crescents 50 waves 1", "crescents as it is 1"
        assert errors[waves] < errors[linear] - 15


def test_accuracy(tmp_path: Path) -> None:
    """Every picture has its cells and is drawn; every lever has its mean; the same cells give
    the same bytes.
    """
    pytest.importorskip("matplotlib")
    said = ran(ACCURACY / "accuracy.py", "--quick", "--jobs", "1", "--out", tmp_path, into=tmp_path)
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert set(numbers["pictures"]) == {"cap", "norm", "rounds", "levers"}
    for name, cells in numbers["pictures"].items():
        assert (tmp_path / f"{name}.svg").read_bytes().startswith(b"<?xml")
        for cell in cells:
            assert 0 <= cell["error"] <= 100 and cell["sd"] >= 0
            assert abs(sum(cell["errors"]) / len(cell["errors"]) - cell["error"]) < 1e-3
            assert len(cell["errors"]) == (1 if cell["method"] == "none" else numbers["replicates"])
    means = {entry["lever"]: entry["error"] for entry in numbers["levers"]}
    assert len(means) == 6 and all(f"| {lever} |" in said for lever in means)
    assert means["no privacy"] < means["first guess"]


def test_accuracy_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lever's bar is a mean over tables, and the curator alone is the best over caps."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ACCURACY))
    import _accuracy_cells as cells

    def cell(table: str, method: str, error: float, epsilon: float | None = 1.0) -> dict[str, Any]:
        return {
            "table": table,
            "method": method,
            "epsilon": epsilon,
            "error": error,
            "sd": error / 10,
        }

    some = []
    for table, more in (("a", 0.0), ("b", 10.0)):
        some += [
            cell(table, "none", 5.0 + more, None),
            *(cell(table, "prox_admm", e + more) for e in (40.0, 30.0, 20.0)),
        ]
        some += [
            cell(table, "auto", 18.0),
            *(cell(table, "central_momentum", e + more) for e in (12.0, 9.0, 11.0)),
        ]
    found = {entry["lever"]: (entry["error"], entry["sd"]) for entry in cells.levers(some)}
    assert [found[lever][0] for lever in cells.LEVERS] == [45.0, 35.0, 25.0, 18.0, 14.0, 10.0]
    assert found["first guess"][1] == pytest.approx(((4.0**2 + 5.0**2) / 2) ** 0.5)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("", "40 col"),
        ("_numbers", "normal, n = 2"),
        ("_quality", "three"),
        ("_strangers", "no eff"),
    ],
)
def test_coverage(tmp_path: Path, name: str, cell: str) -> None:
    """The table of a few data sets, and again from those that were kept, without a new one.

    The first is a process, as it starts processes of its own; the second has nothing left to
    measure.
    """
    pytest.importorskip("matplotlib")
    kept, table, script = (
        tmp_path / "kept",
        tmp_path / "table.json",
        ACCURACY / f"coverage{name}.py",
    )
    words = ["--sets", "1", "--jobs", "1", "--cells", cell]
    words += ["--out", str(kept), "--json", str(table)]
    done = warm.run([script, *words], timeout=120)
    assert done.returncode == 0, done.stderr
    said = [(done.stdout, kept.read_bytes())]
    said.append((ran(script, *words, "--minutes", "0", into=tmp_path), kept.read_bytes()))
    cells = json.loads(table.read_text())
    assert (
        said[0] == said[1]
        and cells
        and all(one["sets"] == 1 and one["cell"] in said[0][0] for one in cells)
    )


def test_start(tmp_path: Path) -> None:
    """Every line has its four accuracies; a start changes no price, which the benchmark checks
    itself.
    """
    lines = json.loads(ran(ACCURACY / "start.py", "--quick", "--json", into=tmp_path))
    assert len(lines) == 12 and {line["epsilon"] for line in lines} == {0.1, 0.5}
    for line in lines:
        assert all(0 <= line[name][0] <= 100 for name in ("zero", "from start", "stiff", "public"))


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the benchmark on tables of others that need no package of theirs."""
    monkeypatch.syspath_prepend(str(ACCURACY))
    import _tables_data
    import _tables_house
    import _tables_peers
    import _tables_report
    import _tables_search
    import numpy as np

    from sottovoce.data import Schema, fill

    sources = _tables_data.SOURCES
    assert len(sources) >= 8 and 2 * sum(source.numeric for source in sources.values()) > len(
        sources
    )
    for source in sources.values():
        assert Schema.from_toml(source.schema).label is not None
        assert fill(Schema.from_toml(source.schema)).fine
    # What version 0.1 read, which the cells of before.json were made from.
    with monkeypatch.context() as older:
        older.setattr(_tables_data, "KNOWS_TYPICAL", False)
        old = [_tables_data.schema_text(name) for name in sorted(sources)]
    assert hashlib.sha256("".join(old).encode()).hexdigest()[:16] == "1e141c27a5add1a0"
    for grid in _tables_house.grids():
        for setting in grid.draw(np.random.default_rng(0)):
            n = np.full((5, 1), 200.0)
            assert _tables_house.configured(setting, 1.0, n, 6).method == setting["method"]
            assert all(setting != other for other in grid.neighbours(setting))

    # The search finds the least of a bowl, and a lucky half of the replicates does not count in
    # `crossed`.
    grid = _tables_search.Grid({"x": range(9), "y": range(9)}, 10)

    def bowl(setting: dict[str, int], full: bool) -> np.ndarray:
        luck = np.array([[0.1, -0.1]]) * (1 if setting["x"] == 4 else -1)
        return (setting["x"] - 4) ** 2 + (setting["y"] - 4) ** 2 + luck * full

    found = _tables_search.search([grid], bowl, finalists=5, climbs=20)
    assert found.setting == {"x": 4, "y": 4} and found.errors.mean() == 0.0

    # AMP's minimiser has a gradient of the norm that its accounting assumes.
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((50, 4)) / 4, rng.standard_normal(4) / 10
    for loss in ("logistic", "huber"):
        w = _tables_peers.minimum(a, loss, 0.1, b, 1e-8)
        assert w is not None
        slope, _ = _tables_peers.slope_and_bend(loss, a @ w)
        assert np.linalg.norm(a.T @ slope / 50 + 0.1 * w + b) <= 1e-8
        z, h = np.linspace(-2, 3, 1001), 1e-6
        rise = (_tables_peers.value(loss, z + h) - _tables_peers.value(loss, z - h)) / (2 * h)
        assert np.abs(rise - _tables_peers.slope_and_bend(loss, z)[0]).max() < 1e-4

    def cell(who: str, nodes: int, error: float, **more: float) -> dict[str, Any]:
        return {
            "table": "t",
            "nodes": nodes,
            "partition": "iid",
            "epsilon": 1.0,
            "who": who,
            "error": error,
        } | more

    cells = [cell("auto", 5, 20.0, nonprivate=5.0), cell("fixed", 5, 19.0, crossed=19.5)]
    cells += [
        cell("auto", 1, 12.0, nonprivate=5.0),
        *(cell(peer, 1, 12.0) for peer in _tables_peers.PEERS),
    ]
    before = [cell("auto", 5, 25.0), cell("auto", 1, 24.0)]
    said = _tables_report.summary(
        *({str(k): c for k, c in enumerate(some)} for some in (cells, before)), {"t"}
    )
    assert (
        said["regret"]["mean"] == 1.0
        and not said["regret"]["yes"]
        and said["crossed regret"]["worst"] == 0.5
    )
    share_won, one_site = "at least as good on", "fall at one site"
    assert said["peers"]["yes"] and said["peers"][share_won] == 1.0
    assert not said["fall"]["yes"] and said[one_site]["yes"]
    assert len(_tables_report.verdicts(said)) == 5
    # With fresh noise the best peer is the one chosen before, even if another has less there.
    for number, one in enumerate(cells[2:]):
        one["fresh"] = 13.0 - number
    cells[-1]["error"] = 11.0
    cells[-2]["fresh"] = 1.0
    said = _tables_report.summary({str(k): c for k, c in enumerate(cells)}, {}, {"t"})
    assert said["peers"]["behind"] == 1.0 and said["fresh peers"]["behind"] == 3.0
    assert len(_tables_report.verdicts(said)) == 4


def test_private_admm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accountant of the benchmark meets exact Gaussians, and without noise its iteration
    ends at the Lasso.
    """
    monkeypatch.syspath_prepend(str(ACCURACY))
    bench = importlib.import_module("private_admm")
    exact = gaussian_epsilon(bench.DELTA, math.sqrt(50) / 10.0)
    assert exact <= bench.sampled_epsilon(10.0, 1.0 - 1e-12, 50) <= 1.1 * exact
    for multiplier in (0.5, 1.0, 4.0):
        one = bench.one_round_epsilon(multiplier, 0.125)
        assert one < bench.sampled_epsilon(multiplier, 0.125, 1) < one + 1.0
        x = np.linspace(-12.0 * multiplier, 1.0 + 12.0 * multiplier, 400_001)
        without, taking = (stats.norm.pdf(x, centre, multiplier) for centre in (0.0, 1.0))
        more = np.maximum(0.0, 0.875 * without + 0.125 * taking - np.exp(one) * without)
        assert np.sum(more) * (x[1] - x[0]) == pytest.approx(bench.DELTA, rel=1e-3)
    assert bench.sampled_epsilon(
        bench.multiplier_for(1.0, 0.125, 100), 0.125, 100
    ) == pytest.approx(1.0, rel=1e-4)
    problem = bench.Problem.draw(0)
    w, _ = bench.iterate(problem, 400, 1.0, 0.0, np.random.default_rng(0), clip=math.inf)
    wanted = (
        Lasso(alpha=problem.kappa / 2.0, fit_intercept=False, tol=1e-8)
        .fit(problem.X, problem.y)
        .coef_
    )
    np.testing.assert_allclose(w, wanted, atol=5e-3)  # and 0.8 from zero
