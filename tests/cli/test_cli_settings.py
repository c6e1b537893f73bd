"""Options by groups, settings by ``--set``, and files that hold a run."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import ROWS, SMALL, Call, Clinic, numbers

from sottovoce.algorithms import KNOBS, REGISTRY, knobs_of
from sottovoce.answers import forecast
from sottovoce.cli import cli
from sottovoce.cli.run_command import RunCommand
from sottovoce.runs.simulate import Result


def names(text: str) -> list[str]:
    return text.split()


KEPT = names("""
data schema method trust colluders epsilon delta nodes graph partition rounds rho eta form replicates seed inference
evaluation save json ledger run checkpoint
""")
OF_BOTH = names("""
participants accountant sites_per_row relation noise noise_growth loss C eta_growth phi law max_grad_norm gamma
perturbation positives threshold momentum correlation batches tol start public dropout cut by
""")
MOVED = {
    "train": [*OF_BOTH, *names("strength sizes test_share public_share")],
    "plan": [
        *OF_BOTH,
        *names(
            "expect_positives expect_share expect_correlation expect_residuals holdout norm_cap "
            "deadline patience"
        ),
    ],
}
SWITCHES = {
    "--centre": "centre=yes",
    "--no-centre": "centre=no",
    "--site-constants": "site_constants=yes",
    "--one-constant": "site_constants=no",
}
PLANNED = ("plan", "--sizes", 120, "--features", 5, "--method", "mr_admm", "--pure", "--json")


def command(name: str) -> RunCommand:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, RunCommand)
    return found


# What stands where


@pytest.mark.parametrize("name", ["train", "plan"])
def test_help_fits_on_two_screens(run: Call, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = run(name, "--help").out.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 100


def test_everyday_options_keep_their_names() -> None:
    flags = {flag for param in command("train").params for flag in param.opts}
    assert {f"--{name}" for name in KEPT} <= flags
    assert len(flags) <= 30


@pytest.mark.parametrize("name", ["train", "plan"])
def test_every_parameter_has_a_heading_and_is_an_option_or_a_setting(ok: Call, name: str) -> None:
    asked = command(name)
    shown = ok(name, "--help").out
    settings = {str(one.name) for one in asked.settings_of_method()}
    for param in asked.params:
        assert bool(param.opts) == (param.name not in settings)
        word = param.opts[0] if param.opts else str(param.name)
        assert re.search(rf"(?<![\w-]){word}(?![\w-])", shown), word


@pytest.mark.parametrize(
    ("name", "setting"), [(name, each) for name, moved in MOVED.items() for each in moved]
)
def test_a_removed_option_names_the_setting_that_replaced_it(
    refused: Callable[..., str], name: str, setting: str
) -> None:
    flag = f"--{setting.replace('_', '-')}"
    said = refused(name, flag, "1")
    assert said.startswith(f"error: {flag}: ") and said.rstrip().endswith(f"--set {setting}=VALUE")


@pytest.mark.parametrize("flag", sorted(SWITCHES))
@pytest.mark.parametrize("name", ["train", "plan"])
def test_a_removed_switch_names_what_to_set(
    refused: Callable[..., str], name: str, flag: str
) -> None:
    assert refused(name, flag).rstrip().endswith(f"--set {SWITCHES[flag]}")


def test_every_removed_option_is_in_a_table_of_the_changelog() -> None:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    for setting in {each for moved in MOVED.values() for each in moved}:
        assert f"`{setting}`" in text, setting


def test_an_unknown_option_is_refused_with_those_like_it(run: Call) -> None:
    assert "--rounds" in run("train", "--round", 3).err
    assert "max_grad_norm" in run("train", "--max-grad-nrm", 3).err
    assert run("train", "--nothing-like-it").code == 2


# --set


def test_set_gives_knobs_and_options_by_their_names(ok: Call) -> None:
    given = ok(*PLANNED, "--set", "gamma=0.2", "--set", "rho=0.02", "--set", "sites-per-row=2").json
    typed = ok(*PLANNED, "--set", "gamma = 0.2", "--rho", 0.02, "--set", "sites_per_row=2").json
    assert given == typed and given["algorithm"]["gamma"] == 0.2
    assert given != ok(*PLANNED, "--set", "gamma=0.2", "--set", "rho=0.02").json


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--set", "gamma=0.2", "--set", "gamma=0.3"), "gamma"),
        (("--set", "rho=0.2", "--rho", 0.3), "rho"),
        (("--set", "gamma"), "set='gamma'"),
        (("--set", "gamma=small"), "gamma='small'"),
        (("--set", "sites_per_row=1.5"), "sites_per_row='1.5'"),
        (("--set", "gamma=-1"), "gamma=-1.0"),
        (("--set", "centre=perhaps"), "centre='perhaps'"),
        (("--set", "eta_growth=1,x"), "eta_growth='1,x'"),
        (("--set", "relation=add-one"), "relation='add-one'"),
        (("--set", "config=x.toml"), "set='config=x.toml'"),
        (("--set", ""), "set=''"),
        (("--set", "=1"), "set='=1'"),
    ],
)
def test_what_cannot_be_set_is_refused_in_one_line(
    refused: Callable[..., str], words: tuple[object, ...], field: str
) -> None:
    for name in (("train", *SMALL), ("plan", "--method", "mr_admm", "--pure")):
        assert refused(*name, *words).startswith(f"error: {field}:")


def test_an_unknown_name_is_answered_with_the_nearest_and_those_of_the_method(
    refused: Callable[..., str],
) -> None:
    said = refused("train", *SMALL, "--set", "gama=0.2")
    rule, _, remedy = said.partition("; did you mean ")
    assert remedy.startswith("gamma?")
    own = set(knobs_of(REGISTRY["mr_admm"].options))
    others = {name for name, knob in KNOBS.items() if knob.offered} - own
    assert "gamma" in own and "phi" in others
    listed = set(rule.partition("settings are ")[2].split(", "))
    assert not listed & others and {"gamma", "loss", "tol", "centre"} <= listed
    assert "phi" in refused("train", *ROWS, "--set", "nothing=1")  # auto may be any method


def test_settings_are_explained_for_all_methods_or_for_one(ok: Call) -> None:
    every = ok("train", "--set", "help").out
    own = ok("train", "--method", "momentum", "--set", "help").out
    assert re.search(r"^  phi +Extra", every, re.M) and not re.search(r"^  phi ", own, re.M)
    assert re.search(r"^  momentum .*", own, re.M) and "[default: 0.8]" in " ".join(own.split())


def test_a_setting_may_hold_equals_signs_and_come_several_times(
    ok: Call, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "REAL_WORLDS", 3)  # of how many tables is not asked here
    monkeypatch.setattr(forecast, "EVEN_WORLDS", 2)
    monkeypatch.setattr(forecast, "CLOSE", 2.0)  # nor how closely the rows that it needs are found
    schema = Path("s.toml")
    schema.write_text(
        'label = { column = "y", positive = "1", negative = "0" }\n'
        '[columns.stage]\nkind = "category"\nvalues = ["a", "b", "c"]\n'
    )
    asked = ("plan", "--inference", "--schema", schema, "--sizes", 4000, "--epsilon", 3, "--json")
    even = ok(*asked).json
    rare = ok(
        *asked, "--set", "expect_share=stage: b=0.05", "--set", "expect_share=stage: c=0.1"
    ).json
    assert even["forecast"] != rare["forecast"]
    Path("run.toml").write_text('expect_share = ["stage: b=0.05", "stage: c=0.1"]\n')
    assert ok(*asked, "--config", "run.toml").json == rare


# --config


FILE = """
data = "synthetic:n=600,d=5,seed=1"
method = "mr_admm"
epsilon = 5
rho = 0.02
eta = 0.05
rounds = 6
pure = true
"""


def test_a_file_holds_a_run(ok: Call) -> None:
    settings = ("--set", "gamma=0.2", "--set", "centre=no")
    typed = ok("train", *SMALL, "--epsilon", 5, *settings, "--json").json
    Path("flat.toml").write_text(f"{FILE}gamma = 0.2\ncentre = false\n")
    Path("table.toml").write_text(f"{FILE}[set]\ngamma = 0.2\ncentre = false\n")
    for name in ("flat.toml", "table.toml"):
        assert numbers(ok("train", "--config", name, "--json").json) == numbers(typed)


def test_what_is_typed_or_set_wins_over_the_file(ok: Call) -> None:
    Path("run.toml").write_text(f"{FILE}gamma = 0.2\n")
    typed = ok("train", *SMALL, "--epsilon", 3, "--set", "gamma=0.3", "--json").json
    from_file = ok(
        "train", "--config", "run.toml", "--epsilon", 3, "--set", "gamma=0.3", "--json"
    ).json
    assert numbers(from_file) == numbers(typed)


def test_auto_keeps_what_a_file_gives(ok: Call) -> None:
    Path("run.toml").write_text(
        "rounds = 6\neta = 0.05\nrho = 0.02\nmax_grad_norm = inf\nepsilon = 5\n"
    )
    words = ("--data", "synthetic:n=600,d=5,seed=1", "--json")
    assert ok("train", *words, "--config", "run.toml").json["choice"]["chosen"]["rounds"] == 6


def test_one_file_serves_a_plan_and_its_training(run: Call) -> None:
    Path("run.toml").write_text(f"{FILE}sizes = [120, 120, 120, 120, 120]\nfeatures = 5\n")
    planned = run("plan", "--config", "run.toml", "--json")
    trained = run("train", "--config", "run.toml", "--json")
    assert planned.code == trained.code == 0
    assert planned.json["privacy"]["epsilon"] == trained.json["privacy"]["epsilon"]
    assert planned.json["n"] == [120] * 5
    for told, passed_over in ((planned.err, {"data"}), (trained.err, {"features"})):
        ignored = re.findall(r"config: (\w+) is an option .* ignored", told)
        assert set(ignored) == passed_over


@pytest.mark.parametrize("key", ["life", "holdout"])
def test_a_limit_that_a_command_does_not_keep_is_refused(
    refused: Callable[..., str], ok: Call, key: str
) -> None:
    Path("run.toml").write_text(f"epsilon = 5\n[set]\n{key} = 0.1\n")
    assert refused("train", *SMALL, "--config", "run.toml").startswith(f"error: config: {key}:")
    ok("plan", "--config", "run.toml", "--method", "mr_admm", "--pure", "--json")


TYPED = ("holder", "json", "save", "report", "checkpoint", "write", "ledger", "system_noise")


@pytest.mark.parametrize("key", TYPED)
def test_a_file_does_not_say_what_is_spent_written_or_shown(
    refused: Callable[..., str], key: str
) -> None:
    kept = Path("mine.txt")
    kept.write_text("something of mine")
    value = "true" if key in ("holder", "json", "system_noise") else '"mine.txt"'
    Path("run.toml").write_text(f"{key.replace('_', '-')} = {value}\n")
    for name in (("train", *SMALL), ("plan", "--method", "mr_admm", "--pure")):
        assert refused(*name, "--config", "run.toml").startswith(f"error: config: {key}:")
    assert kept.read_text() == "something of mine"


def test_what_must_be_typed_is_what_writes_spends_or_shows() -> None:
    marked = {
        key
        for name in ("train", "plan")
        for key, one in command(name).parameters_by_key().items()
        if one.typed_only
    }
    assert marked == set(TYPED)
    writing = {
        key
        for name in ("train", "plan")
        for key, one in command(name).parameters_by_key().items()
        if isinstance(one.type, click.Path) and one.group == "Output"
    }
    assert writing <= marked


def test_what_is_typed_of_pure_and_delta_wins_over_the_other_in_a_file(ok: Call) -> None:
    words = ("plan", "--sizes", 120, "--features", 5, "--method", "mr_admm", "--json")
    Path("pure.toml").write_text("pure = true\n")
    assert ok(*words, "--config", "pure.toml", "--delta", 1e-6).json["privacy"]["delta"] == 1e-6
    assert ok(*words, "--config", "pure.toml", "--set", "pure=no").json["privacy"]["delta"] > 0
    Path("delta.toml").write_text("delta = 1e-6\n")
    assert ok(*words, "--config", "delta.toml", "--pure").json["privacy"]["delta"] == 0


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("round = 3", "config: round"),
        ("rounds = 2.5", "config: rounds='2.5'"),
        ("rounds = true", "config: rounds"),
        ("rounds = [1, 2]", "config: rounds"),
        ("rounds = { a = 1 }", "config: rounds"),
        ("method = 2020-01-01", "config: method"),
        ("rho = 'x'", "config: rho='x'"),
        ("set = 3", "config: set"),
        ("rho = 1\n[set]\nrho = 2", "config: rho"),
        ("max_grad_norm = 1\nmax-grad-norm = 1", "config: max_grad_norm"),
        ("config = 'other.toml'", "config: config"),
        ("rounds", "config="),
        ("epsilon = -1", "epsilon=-1.0"),
        ("pure = 3", "config: pure='3'"),
        ("eta = [[1]]", "config: eta"),
        ("set.a.b = 1", "config: a"),
    ],
)
def test_a_wrong_entry_is_refused_in_one_line(
    refused: Callable[..., str], text: str, field: str
) -> None:
    Path("run.toml").write_text(text + "\n")
    for name in ("train", "plan"):
        assert refused(name, "--config", "run.toml").startswith(f"error: {field}")


def test_a_file_that_is_missing_or_no_toml_is_refused(refused: Callable[..., str]) -> None:
    assert refused("train", "--config", "absent.toml").startswith("error: config=")
    Path("run.toml").write_bytes(b"\xff\xfe")
    assert refused("train", "--config", "run.toml").startswith("error: config=")


# --save-config, and the record of a command


def test_the_file_of_a_command_is_the_same_run(ok: Call) -> None:
    words = (
        "--set",
        "gamma=0.2",
        "--set",
        "sizes=1,2,3,4,5",
        "--set",
        "centre=no",
        "--rho",
        0.02,
        "--json",
    )
    typed = ok(
        "train", *SMALL[:-3], "--pure", *words, "--method", "mr_admm", "--save-config", "run.toml"
    ).json
    held: dict[str, Any] = tomllib.loads(Path("run.toml").read_text())
    assert held["rho"] == 0.02 and held["pure"] is True
    assert held["set"] == {"gamma": 0.2, "sizes": [1, 2, 3, 4, 5], "centre": False}
    assert "json" not in held
    command, typed_only = Path("run.toml").read_text().splitlines()[0].split(" --config THIS_FILE ")
    assert command.endswith(" train") and typed_only == "--json"
    assert numbers(ok("train", "--config", "run.toml", "--json").json) == numbers(typed)
    planned = ok(*PLANNED, "--set", "noise=0.3", "--save-config", "plan.toml").json
    assert ok("plan", "--config", "plan.toml", "--json").json == planned


def test_the_file_of_a_command_does_not_replace_what_the_command_reads(
    clinic: Clinic, refused: Callable[..., str]
) -> None:
    assert refused(*clinic.train, "--save-config", clinic.schema).startswith("error: save_config=")
    Path("run.toml").write_text("rounds = 2\n")
    assert refused(*clinic.train, "--config", "run.toml", "--save", "run.toml").startswith(
        "error: save="
    )


def test_a_record_tells_the_whole_command_without_folders(ok: Call, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    first, second = folder / "first.npz", folder / "second.npz"
    ok("train", *SMALL, "--epsilon", 5, "--save", first)
    Path("run.toml").write_text("rounds = 3\ngamma = 0.2\n")
    ok(
        "train",
        *SMALL[:4],
        "--eta",
        0.05,
        "--method",
        "mr_admm",
        "--pure",
        "--config",
        "run.toml",
        "--set",
        f"start={first}",
        "--set",
        "sizes=1,2",
        "--save",
        second,
    )
    told = Result.load(second).extra["command"]
    assert "private" not in told and "run.toml" not in told
    for words in ("--rounds 3", "--pure", "--seed 0"):
        assert words in told
    for setting in ("gamma=0.2", "start=first.npz", "sizes=1.0,2.0"):
        assert f"--set {setting}" in told
    assert json.dumps(told)
