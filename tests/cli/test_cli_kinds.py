"""Training from the command line on labels of several classes and on numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call

from sottovoce import ConsensusRegressor
from sottovoce.answers.saved import public_record
from sottovoce.reports import page
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import Result

COLUMNS = """
[columns.age]
kind = "number"
lo = 20
hi = 80

[columns.ward]
kind = "category"
values = ["north", "south"]
"""
KINDS = ["home", "rehab", "died"]
SLOPE, SOUTH = 0.3, 5.0  # days a year of age, days in the south


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where people go after how many days, by age and ward."""
    place, rng, n = tmp_path_factory.mktemp("kinds"), np.random.default_rng(0), 4000
    age, south = rng.uniform(20, 80, n), rng.integers(2, size=n)
    scores = np.stack([-0.1 * (age - 50), 2.0 * south, 0.1 * (age - 50)], axis=1) + rng.gumbel(
        size=(n, 3)
    )
    kind = np.array(KINDS)[scores.argmax(axis=1)]
    days = 15.0 + SLOPE * (age - 50) + SOUTH * south + 2.0 * rng.normal(size=n)
    days[:7] = 300.0
    ward = np.array(["north", "south"])[south]
    with (place / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "ward", "kind", "days"])
        writer.writerows(zip(age.round(2), ward, kind, days.round(3), strict=True))
    values = ", ".join(f'"{name}"' for name in KINDS)
    (place / "kinds.toml").write_text(
        f'ignore = ["days"]\nlabel = {{ column = "kind", values = [{values}] }}{COLUMNS}'
    )
    days_label = 'label = { column = "days", lo = 0, hi = 40, unit = "days" }'
    (place / "days.toml").write_text(f'intercept = true\nignore = ["kind"]\n{days_label}{COLUMNS}')
    return place


def train(folder: Path, schema: str, *more: object) -> tuple[Any, ...]:
    return ("train", "--data", folder / "rows.csv", "--schema", folder / schema, *more)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


class TestSeveralClasses:
    KNOBS = ("--method", "prox_admm", "--rounds", 5, "--epsilon", 3)

    def test_softmax_is_trained_scored_by_class_saved_and_used(
        self, folder: Path, ok: Call, tmp_path: Path
    ) -> None:
        run = tmp_path / "run.npz"
        report = ok(*train(folder, "kinds.toml", *self.KNOBS, "--save", run, "--json")).json
        assert report["config"]["loss"] == "softmax:3" and report["privacy"]["epsilon"] <= 3
        assert report["test_error"] < report["majority_test_error"] - 0.1
        of_class = report["test_details"]
        assert list(of_class) == [f"accuracy on {name}" for name in KINDS]
        assert all(0.0 <= value <= 1.0 for value in of_class.values())

        answers = table(ok("predict", run, folder / "rows.csv", "--proba").out)
        truth = table((folder / "rows.csv").read_text())
        right = np.mean([a["prediction"] == t["kind"] for a, t in zip(answers, truth, strict=True)])
        assert abs((1.0 - right) - report["test_error"]) < 0.05
        for answer in answers[:50]:
            chances = {name: float(answer[f"probability of {name}"]) for name in KINDS}
            assert sum(chances.values()) == pytest.approx(1.0, abs=1e-5)
            assert max(chances, key=chances.__getitem__) == answer["prediction"]
        assert table(ok("predict", run, folder / "rows.csv").out)[0].keys() == {"prediction"}

    def test_accuracies_by_class_are_shown_as_the_holders_alone(
        self, folder: Path, ok: Call
    ) -> None:
        shown = ok(*train(folder, "kinds.toml", *self.KNOBS)).out
        assert all(f"accuracy on {name}" in shown for name in KINDS)
        assert "holder only" in shown and "without noise" in shown

    def test_auto_chooses_among_methods_for_softmax(self, folder: Path, ok: Call) -> None:
        report = ok(*train(folder, "kinds.toml", "--epsilon", 3, "--trust", "sum", "--json")).json
        assert report["config"]["loss"] == "softmax:3" and "choice" in report
        assert report["test_error"] < report["majority_test_error"] - 0.1

    def test_held_out_rows_are_asked_by_class(self, folder: Path, ok: Call, tmp_path: Path) -> None:
        """The held-out rows' accuracies within their intervals; unknown labels are in no cell
        and change no rows.
        """
        (tmp_path / "rows.csv").write_text(
            (folder / "rows.csv").read_text().replace(",rehab,1", ",lost,1")
        )
        (tmp_path / "kinds.toml").write_text((folder / "kinds.toml").read_text())
        run = tmp_path / "run.npz"
        for place in (folder, tmp_path):
            given = train(place, "kinds.toml", *self.KNOBS, "--evaluation", 3)
            report = ok(*given, "--save", run, "--json").json
            held, exact = report["evaluation"], report["evaluation"]["exact"]
            assert held["privacy"]["epsilon"] <= 3 and held["rows"] == 800
            assert report["n_test"] == 800 and (exact["rows"] == 800) is (place is folder)
            assert exact["accuracy"] == pytest.approx(1.0 - report["test_error"])
            for one in held["classes"]:
                assert (
                    exact[f"recall on {one['name']}"]
                    == report["test_details"][f"accuracy on {one['name']}"]
                )
                low, high = (
                    one["recall"][end] - 0.05 * sign for end, sign in (("low", 1), ("high", -1))
                )
                assert low <= exact[f"recall on {one['name']}"] <= high
            assert np.sum(held["confusion"]) == pytest.approx(exact["rows"], abs=40)
        shown = ok(*given).out
        assert "(recall)" in shown and "answered" in shown and all(name in shown for name in KINDS)
        told = ok("evaluate", run, folder / "rows.csv", "--epsilon", 2, "--json").json
        assert told["accuracy"]["low"] <= told["exact"]["accuracy"] <= told["accuracy"]["high"]
        released = ok(
            "evaluate", run, folder / "rows.csv", "--epsilon", 2, "--json", "--system-noise"
        ).json
        assert released["exact"] is None
        said = page(public_record(Result.load(run)))
        assert "correctly" in said and "found (recall)" in said and "predicted rehab" in said

    def test_what_several_classes_cannot_have_is_refused(self, folder: Path, run: Call) -> None:
        for more, said in (
            (("--method", "dvp", "--pure"), "rank one"),
            (("--set", "loss=huber:0.5"), "use 'softmax:3'"),
            (("--inference",), "two classes"),
            (("--evaluation", "0.5", "--set", "by=ward", *self.KNOBS), "two classes"),
            (("--evaluation", "0.5", "--set", "cut=0.3", *self.KNOBS), "two classes"),
        ):
            refused = run(*train(folder, "kinds.toml", *more))
            assert refused.code == 2 and said in refused.err and refused.err.count("\n") == 1


class TestNumbers:
    SUM = ("--trust", "sum", "--epsilon", 3)

    def test_least_squares_is_trained_scored_saved_used_and_evaluated(
        self, folder: Path, ok: Call, tmp_path: Path
    ) -> None:
        run = tmp_path / "run.json"
        report = ok(
            *train(folder, "days.toml", *self.SUM, "--evaluation", 2, "--save", run, "--json")
        ).json
        assert report["method"] == "least squares" and report["privacy"]["epsilon"] <= 3
        found = {(line["name"], line["level"]): line["estimate"] for line in report["coefficients"]}
        assert found["age", None] == pytest.approx(SLOPE, abs=0.03)
        assert found["ward", "south"] == pytest.approx(SOUTH, abs=1.0)
        assert found["(constant)", None] == pytest.approx(15.0 - 50 * SLOPE, abs=1.5)
        exact, held = report["exact"], report["evaluation"]
        assert exact["r2"] > 0.7 and report["test_error"] == exact["root_mean_squared_error"]
        assert report["test_error"] < 0.6 * report["mean_test_error"]
        for name in ("r2", "mean_absolute_error", "root_mean_squared_error"):
            assert held[name]["low"] <= held["exact"][name] <= held[name]["high"]
        assert held["privacy"]["epsilon"] <= 2 and held["unit"] == "days"
        assert any("7 labels" in note for note in report["notes"])

        kept = run.read_text()
        assert '"exact"' not in kept and "labels beyond" not in kept and '"seconds"' not in kept
        days = [
            float(row["prediction"]) for row in table(ok("predict", run, folder / "rows.csv").out)
        ]
        truth = np.clip(
            [float(row["days"]) for row in table((folder / "rows.csv").read_text())], 0, 40
        )
        assert float(np.sqrt(np.mean((days - truth) ** 2))) == pytest.approx(
            report["test_error"], rel=0.2
        )
        assert min(days) >= 0.0 and max(days) <= 40.0

        told = ok("evaluate", run, folder / "rows.csv", "--epsilon", 1, "--json").json
        assert told["mean_absolute_error"]["low"] <= told["exact"]["mean_absolute_error"]
        assert told["exact"]["mean_absolute_error"] <= told["mean_absolute_error"]["high"]
        released = ok(
            "evaluate", run, folder / "rows.csv", "--epsilon", 1, "--json", "--system-noise"
        ).json
        assert released["exact"] is None

    def test_inference_gives_intervals_in_the_targets_unit(
        self, folder: Path, ok: Call, tmp_path: Path
    ) -> None:
        run = tmp_path / "run.json"
        more = (*self.SUM, "--inference", "--evaluation", 2)
        report = ok(*train(folder, "days.toml", *more, "--save", run, "--json")).json
        lines = {(line["name"], line["level"]): line for line in report["coefficients"]}
        for key, truth in (
            (("age", None), SLOPE),
            (("ward", "south"), SOUTH),
            (("(constant)", None), 15 - 50 * SLOPE),
        ):
            line = lines[key]
            assert abs(line["estimate"] - truth) < 4 * line["standard_error"], key
            assert line["low"] < line["estimate"] < line["high"] and 0 < line["noise_share"] < 1
            assert (line["p"] < 0.05) is (truth != 0)
        assert lines["ward", "south"]["reference"] == "north" and report["needs"] is None
        assert [one["release"] for one in report["asked"]][-1] == "last gradient"
        assert sum(one["share"] for one in report["asked"]) == pytest.approx(1.0)
        kept = json.loads(run.read_text())["record"]
        assert kept["coefficients"] == report["coefficients"] and "exact" not in kept
        said = page(kept)
        assert "odds" not in said and "mean of days" in said and "Which columns matter" in said
        days = [
            float(row["prediction"]) for row in table(ok("predict", run, folder / "rows.csv").out)
        ]
        truth = np.clip(
            [float(row["days"]) for row in table((folder / "rows.csv").read_text())], 0, 40
        )
        assert float(np.sqrt(np.mean((days - truth) ** 2))) == pytest.approx(
            report["test_error"], rel=0.2
        )
        sure = table(ok("predict", run, folder / "rows.csv", "--interval", 0.95).out)
        assert all(
            float(row["low"]) < float(row["prediction"]) < float(row["high"]) for row in sure
        )
        shown = ok(*train(folder, "days.toml", *more)).out
        assert "95% interval" in shown and "coefficients in days" in shown and "odds" not in shown
        refused = ok(*train(folder, "days.toml", "--epsilon", 0.02, "--inference")).out
        assert "refused" in refused and "odds" not in refused
        enough = re.search(r"epsilon ([\d.]+) or ([\d,]+) rows", " ".join(refused.split()))
        assert enough is not None and float(enough[1]) > 0.02

    def test_a_ledger_on_disk_replays_the_fit(self, folder: Path, ok: Call, tmp_path: Path) -> None:
        ok(
            "ledger",
            "init",
            tmp_path / "five.ledger",
            "--epsilon",
            4,
            "--delta",
            1e-4,
            "--nodes",
            5,
        )
        more = ("--epsilon", 1, "--ledger", tmp_path / "five.ledger", "--system-noise", "--json")
        first, again = (ok(*train(folder, "days.toml", *more)).json for _ in range(2))
        assert (
            first["coefficients"] == again["coefficients"] and first["privacy"] == again["privacy"]
        )
        assert len(ok("ledger", "show", tmp_path / "five.ledger", "--json").json["runs"]) == 1

    @pytest.mark.parametrize(
        ("classes", "more"),
        [
            (False, ()),
            (False, ("--inference",)),
            (False, ("--inference", "--trust", "sum")),
            (True, ("--inference",)),
            (True, ("--inference", "--trust", "sum")),
        ],
    )
    def test_a_killed_recipe_goes_on_from_its_checkpoint_bit_by_bit(
        self,
        folder: Path,
        run: Call,
        ok: Call,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        classes: bool,
        more: tuple[str, ...],
    ) -> None:
        """Also with noise of the operating system, where a ledger keeps what was answered."""
        data = ("train", "--data", "synthetic:n=2000,d=3,seed=1", "--epsilon", 1)
        plain = (
            (*data, *more, "--json") if classes else (*train(folder, "days.toml", *more), "--json")
        )
        ok(
            "ledger",
            "init",
            tmp_path / "five.ledger",
            "--epsilon",
            4,
            "--delta",
            1e-4,
            "--nodes",
            5,
        )
        whole, asks, real = ok(*plain).json, [0], RowGuard._charge_and_draw

        def dies(guard: RowGuard, *asked: Any) -> Any:
            asks[0] += 1
            if asks[0] == 2:
                raise KeyboardInterrupt
            return real(guard, *asked)

        for book in ((), ("--ledger", tmp_path / "five.ledger", "--system-noise")):
            path = tmp_path / f"half{len(book)}.npz"
            with monkeypatch.context() as patched:
                patched.setattr(RowGuard, "_charge_and_draw", dies)
                asks[0] = 0
                assert run(*plain, *book, "--checkpoint", path).code == 130 and path.exists()
                resumed = ok(*plain, *book, "--checkpoint", path).json
                # the first answer is not asked for again
                assert asks[0] == 2 + len(whole["asked"]) - 1
                again = ok(*plain, *book, "--checkpoint", path).json
                assert (
                    asks[0] == 2 + len(whole["asked"]) - 1
                    and again["coefficients"] == resumed["coefficients"]
                )
            if not book:
                assert resumed | {"seconds": 0} == whole | {"seconds": 0}
        shown = ok("ledger", "show", tmp_path / "five.ledger", "--json").json
        assert len(shown["runs"]) == 1 and shown["releases"] == len(whole["asked"])

    def test_people_read_units_and_what_is_exact(self, folder: Path, ok: Call) -> None:
        shown = ok(*train(folder, "days.toml", *self.SUM)).out
        units = dict(re.findall(r"(coefficient|mean absolute error|R2) +\(?(\w+)\)?", shown))
        assert units["coefficient"] == units["mean absolute error"] == "days" != units["R2"]
        assert "holder only" in shown
        shown = ok(*train(folder, "days.toml", *self.SUM, "--evaluation", 2)).out
        assert "95% interval" in shown and "of held-out rows" in shown

    @pytest.mark.filterwarnings("ignore:.* lie beyond y_bounds")  # a few of them do
    def test_least_squares_without_noise_equals_the_regressor(self, folder: Path, ok: Call) -> None:
        """The same recipe without noise: the estimator's coefficients, from another map into the
        ball.
        """
        given = ("--epsilon", "inf", "--set", "test_share=0.01", "--set", "loss=squared", "--json")
        report = ok(*train(folder, "days.toml", *given)).json
        rows = table((folder / "rows.csv").read_text())
        order = np.random.default_rng(0).permutation(len(rows))
        kept = np.sort(order[round(0.01 * len(rows)) :])
        X = np.array([[(float(row["age"]) - 50) / 30, row["ward"] == "south"] for row in rows])[
            kept
        ]
        y = np.array([float(row["days"]) for row in rows])[kept]
        plain = ConsensusRegressor((0, 40), data_norm=1.5, epsilon=np.inf, random_state=0).fit(X, y)
        age, south, constant = (line["estimate"] for line in report["coefficients"])
        mine = [30 * age, south, constant + 50 * age]
        np.testing.assert_allclose(mine, [*plain.coef_, plain.intercept_], rtol=0.02, atol=0.1)

    def test_other_losses_train_by_rounds(self, folder: Path, ok: Call, tmp_path: Path) -> None:
        run = tmp_path / "run.npz"
        more = (
            "--set",
            "loss=quantile:0.5",
            "--method",
            "prox_admm",
            "--epsilon",
            8,
            "--nodes",
            2,
            "--save",
            run,
        )
        report = ok(*train(folder, "days.toml", *more, "--evaluation", 4, "--json")).json
        assert report["config"]["loss"] == "quantile:0.5"
        assert set(report["test_details"]) == {"R2", "mean absolute error"}
        held = report["evaluation"]["mean_absolute_error"]
        assert held["low"] <= report["test_details"]["mean absolute error"] <= held["high"]
        days = [
            float(row["prediction"]) for row in table(ok("predict", run, folder / "rows.csv").out)
        ]
        assert 0.0 <= min(days) < max(days) <= 40.0
        named = ok(
            *train(folder, "days.toml", "--method", "prox_admm", "--rounds", 3, "--json")
        ).json
        assert named["config"]["loss"] == "huber-residual:0.25"

    @pytest.mark.filterwarnings("ignore:.* lie beyond y_bounds")  # a few of them do
    def test_a_robust_loss_is_trained_as_the_estimators_do(self, folder: Path, ok: Call) -> None:
        """By momentum under the trust that is asked; a method, rounds or a pure epsilon that are
        given win.
        """
        for more, method, rounds in (
            ((), "momentum", 100),
            (("--trust", "sum"), "sum_momentum", 100),
            (("--rounds", 7), "momentum", 7),
            (("--trust", "curator"), "central_momentum", 100),
            (("--method", "prox_admm"), "prox_admm", 10),
            (("--pure",), "prox_admm", 10),
        ):
            report = ok(
                *train(folder, "days.toml", "--set", "loss=log-cosh:0.25", *more, "--json")
            ).json
            assert (report["method"], report["rounds_asked"]) == (method, rounds), more
        report = ok(
            *train(folder, "days.toml", "--set", "loss=huber-residual:0.25", *self.SUM, "--json")
        ).json
        rows = table((folder / "rows.csv").read_text())
        order = np.random.default_rng(0).permutation(len(rows))
        test, kept = np.sort(order[:800]), np.sort(order[800:])
        X = np.array(
            [
                [(float(row["age"]) - 50) / 30, row["ward"] == "south", row["ward"] == "north"]
                for row in rows
            ]
        )
        y = np.array([float(row["days"]) for row in rows])
        model = ConsensusRegressor(
            (0, 40),
            loss="huber-residual:0.25",
            data_norm=1.5,
            trust="sum",
            epsilon=3.0,
            random_state=0,
        )
        errors = np.clip(y[test], 0, 40) - model.fit(X[kept], y[kept]).predict(X[test])
        assert abs(report["test_error"] - np.sqrt(np.mean(errors**2))) < 0.1

    def test_what_a_number_cannot_have_is_refused(self, folder: Path, run: Call) -> None:
        for more, said in (
            (("--inference", "--method", "momentum"), "a method of its own"),
            (("--inference", "--pure"), "no pure epsilon"),
            (("--set", "loss=huber:0.5"), "numeric labels"),
            (("--pure",), "no pure epsilon"),
            (("--evaluation", "1", "--set", "by=ward"), "two classes"),
            (("--replicates", 2), "other seeds"),
            (("--set", "loss=squared", "--method", "prox_admm"), "a method of its own"),
        ):
            refused = run(*train(folder, "days.toml", *more))
            assert refused.code == 2 and said in refused.err and refused.err.count("\n") == 1, more
        refused = run(*train(folder, "kinds.toml", "--set", "loss=squared"))
        assert refused.code == 2 and "lo and hi" in refused.err


class TestWeights:
    """Half of the rows are nonsense, and count next to nothing or nothing."""

    @pytest.fixture
    def weighted(self, tmp_path: Path) -> Path:
        rng, n = np.random.default_rng(1), 3000
        age, bad = rng.uniform(20, 80, n), rng.random(n) < 0.5
        sick = np.where(bad, age < 50, age > 50)
        days = np.where(bad, 40 - 0.5 * (age - 20), 5 + 0.5 * (age - 20))
        with (tmp_path / "rows.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["age", "outcome", "days", "w"])
            for a, s, d, b in zip(age, sick, days, bad, strict=True):
                writer.writerow([f"{a:.3f}", "sick" if s else "well", f"{d:.3f}", 0 if b else 7])
        columns = COLUMNS.partition("[columns.ward]")[0]
        weight = 'intercept = true\nignore = ["*"]\nweight = { column = "w", max = 3 }\n'
        two = 'label = { column = "outcome", values = ["well", "sick"] }\n'
        (tmp_path / "two.toml").write_text(f"{weight}{two}{columns}")
        (tmp_path / "days.toml").write_text(
            f'{weight}label = {{ column = "days", lo = 0, hi = 40 }}\n{columns}'
        )
        of_class = 'intercept = true\nignore = ["*"]\nclass_weight = { sick = 50 }\n'
        (tmp_path / "classes.toml").write_text(f"{of_class}{two}{columns}")
        return tmp_path

    def test_rows_of_weight_nothing_teach_nothing(
        self, weighted: Path, ok: Call, tmp_path: Path
    ) -> None:
        run = tmp_path / "run.npz"
        more = ("--method", "prox_admm", "--epsilon", 5, "--save", run, "--json")
        report = ok(*train(weighted, "two.toml", *more)).json
        assert report["privacy"]["epsilon"] <= 5
        assert any(note.startswith("1") and "above their cap" in note for note in report["notes"])
        (tmp_path / "new.csv").write_text("age\n25\n75\n")
        assert [
            row["prediction"] for row in table(ok("predict", run, tmp_path / "new.csv").out)
        ] == ["well", "sick"]
        fitted = ok(*train(weighted, "days.toml", "--trust", "sum", "--epsilon", 5, "--json")).json
        assert fitted["coefficients"][0]["estimate"] == pytest.approx(0.5, abs=0.05)

    def test_class_weights_shift_the_answers(
        self, weighted: Path, ok: Call, tmp_path: Path
    ) -> None:
        run = tmp_path / "run.npz"
        ok(*train(weighted, "classes.toml", "--method", "prox_admm", "--epsilon", 5, "--save", run))
        answers = [
            row["prediction"] for row in table(ok("predict", run, weighted / "rows.csv").out)
        ]
        # labels say nothing here, and one class counts 50 times as much
        assert answers.count("sick") > 2900

    def test_a_price_does_not_depend_on_weights(self, weighted: Path, ok: Call) -> None:
        more = ("--method", "mr_admm", "--pure", "--set", "noise=2.0", "--rounds", 3, "--json")
        schema = (weighted / "two.toml").read_text()
        (weighted / "plain.toml").write_text(
            schema.replace('weight = { column = "w", max = 3 }\n', "")
        )
        prices = [
            ok(*train(weighted, name, *more)).json["privacy"]["epsilon"]
            for name in ("two.toml", "plain.toml")
        ]
        assert prices[0] == prices[1] > 0

    def test_what_weights_cannot_be_is_refused(self, weighted: Path, run: Call) -> None:
        schema, rows = (weighted / "two.toml").read_text(), (weighted / "rows.csv").read_text()
        for old, new, said in (
            ("max = 3", "max = 0", "above 0"),
            ("max = 3", "least = 3", "column and max"),
            ("weight = {", 'class_weight = "balanced"\nweight = {', "counts off private rows"),
            ("weight = {", "class_weight = { died = 2 }\nweight = {", "declared class"),
        ):
            (weighted / "wrong.toml").write_text(schema.replace(old, new))
            refused = run(*train(weighted, "wrong.toml"))
            assert refused.code == 2 and said in refused.err and refused.err.count("\n") == 1, (
                new,
                refused.err,
            )
        refused = run(*train(weighted, "two.toml", "--inference"))
        assert refused.code == 2 and "equal weight" in refused.err
        for value in ("-7", "many", ""):
            (weighted / "rows.csv").write_text(rows.replace(",7\n", f",{value}\n", 1))
            refused = run(*train(weighted, "two.toml"))
            assert refused.code == 2 and refused.err.startswith("error: w"), refused.err
            assert "-7" not in refused.err and "many" not in refused.err


class TestAnEvaluationThatCannotBeAsked:
    """It is refused before the training asks for anything."""

    ROUNDS = ("--method", "prox_admm", "--rounds", 2, "--nodes", 2)

    @pytest.mark.parametrize(
        ("schema", "more", "said"),
        [
            ("sick.toml", ("--inference", "--set", "by=age"), "declares levels"),
            ("sick.toml", ("--inference", "--set", "cut=1.5"), "inside (0, 1)"),
            ("sick.toml", (*ROUNDS, "--set", "by=nowhere"), "declares levels"),
            ("sick.toml", (*ROUNDS, "--set", "cut=0"), "inside (0, 1)"),
            ("sick.toml", ("--method", "mr_admm", "--rounds", 2, "--pure"), "no pure epsilon"),
            ("days.toml", ("--set", "by=ward"), "two classes"),
            ("days.toml", (*ROUNDS, "--set", "by=ward"), "two classes"),
            ("days.toml", ("--set", "cut=0.3"), "two classes"),
        ],
    )
    def test_an_evaluation_that_is_refused_spends_nothing(
        self,
        folder: Path,
        run: Call,
        monkeypatch: pytest.MonkeyPatch,
        schema: str,
        more: tuple[Any, ...],
        said: str,
    ) -> None:
        label = 'label = { column = "kind", positive = "died" }'
        (folder / "sick.toml").write_text(f'intercept = true\nignore = ["days"]\n{label}{COLUMNS}')
        asked = []
        monkeypatch.setattr(RowGuard, "_charge_and_draw", lambda *_: asked.append(1))
        refused = run(*train(folder, schema, "--evaluation", 1, *more))
        assert (
            refused.code == 2
            and said in refused.err
            and refused.err.count("\n") == 1
            and asked == []
        )


@pytest.mark.parametrize("more", [("days.toml",), ("kinds.toml", "--method", "output", "--eta", 1)])
def test_an_evaluation_of_fewer_rows_than_sites_is_refused_before_anything_is_released(
    run: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[Any, ...]
) -> None:
    monkeypatch.setattr(RowGuard, "_charge_and_draw", lambda *_: pytest.fail("a release"))
    few = ("--set", "test_share=0.0005", "--nodes", 5, "--evaluation", 1)
    ran = run(*train(folder, *more), *few)
    assert ran.code == 2 and "2 test rows" in ran.err
