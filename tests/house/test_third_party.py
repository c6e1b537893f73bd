"""A package of somebody else, as an installer leaves it, brings a method, a command and an
audit.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import click
import numpy as np
import pytest
import warm
from click.testing import CliRunner
from problems import unlike_sites

from sottovoce import ConsensusClassifier
from sottovoce.algorithms import KNOBS, REGISTRY
from sottovoce.audit import Adversary, Claim, attack, forms_of, make_case, targets
from sottovoce.audit.game import record_transcripts
from sottovoce.cli import cli
from sottovoce.data.rows import Rows
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.errors import CheckpointError, InvalidInput
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.prepare import prepare
from sottovoce.runs.registering import unregister
from sottovoce.runs.simulate import Result, RunConfig, pooled_minimiser, simulate
from sottovoce.util import plugins
from sottovoce_papers.studies import spec
from sottovoce_papers.studies.run import digest, run
from sottovoce_papers.studies.verdicts import judged

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"
CHILD = """
import json, sys
from sottovoce.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

Install = Callable[..., Path]


def entry_points(project: Path) -> dict[str, dict[str, str]]:
    declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]
    assert isinstance(declared, dict)
    return declared


def written(groups: dict[str, dict[str, str]]) -> str:
    """The file that an installer writes."""
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    return "\n".join(lines)


def forget() -> None:
    """Undo what the use of an outside package leaves in this process."""
    brought = [name for name, method in REGISTRY.items() if method.__module__.startswith("dp_")]
    for name in brought:
        unregister(name)
    for name in [
        name for name in sys.modules if name.startswith(("dp_extra", "dp_other", "dp_broken"))
    ]:
        del sys.modules[name]


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, on the path of this process and of those that it starts."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    )
    yield folder
    forget()


@pytest.fixture
def extra(site_packages: Path) -> Path:
    """The package of examples/plugin, installed."""
    shutil.copytree(PLUGIN / "src" / "dp_extra", site_packages / "dp_extra")
    declare(site_packages, "dp_extra", entry_points(PLUGIN / "pyproject.toml"))
    return site_packages / "dp_extra"


def declare(folder: Path, package: str, groups: dict[str, dict[str, str]]) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(written(groups), encoding="utf-8")


def loaded() -> bool:
    return any(name.startswith("dp_extra.") for name in sys.modules)


def test_help_shows_its_command_and_runs_nothing_of_it(extra: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("  rounds "))
    assert "how the noise" in line
    modules = json.loads(done.stderr.splitlines()[-1])
    assert not [
        name for name in modules if name.startswith(("dp_extra", "sottovoce_papers", "numpy"))
    ]


def test_a_command_of_another_package_runs(extra: Path) -> None:
    ran = CliRunner().invoke(cli, ["rounds", "--rows", "500", "--json"])
    assert ran.exit_code == 0, ran.output
    sigma = [row["sigma"] for row in json.loads(ran.output)]
    assert sigma == sorted(sigma) and sigma[1] / sigma[0] == pytest.approx(math.sqrt(3.0), rel=1e-3)


def test_train_takes_a_method_of_another_package_by_name(extra: Path, tmp_path: Path) -> None:
    small = ["--data", "synthetic:n=400,d=3", "--nodes", "3", "--rounds", "2", "--epsilon", "2"]
    words = [sys.executable, "-m", "sottovoce", "train", "--method", "combine", *small, "--json"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    told = json.loads(ran.stdout)
    assert told["method"] == told["algorithm"]["name"] == "combine"
    assert 1.99 < told["privacy"]["epsilon"] <= 2.0 and told["privacy"]["form"] == "corrected"


def test_a_method_of_another_package_costs_what_its_releases_cost(extra: Path, rows: Rows) -> None:
    config = RunConfig(method="combine", epsilon=1.0, delta=1e-5, rounds=6)
    planned = prepare(config, rows.n, rows.d).plan_ledger().rows
    mu = np.sqrt(sum((row.sensitivity / row.sigma) ** 2 for row in planned))  # type: ignore[attr-defined]
    bound = gaussian_mu(1.0, 1e-5)
    assert np.all(mu <= bound) and np.all(mu > 0.999 * bound)
    result = simulate(config, rows)
    assert result.ledger == [row.to_dict() for row in planned] and len(result.ledger) == 6
    assert 0.999 < result.statement.epsilon <= 1.0 and result.statement.delta == 1e-5


def test_a_method_of_another_package_without_noise_solves_the_pooled_problem(extra: Path) -> None:
    """At a small step, up to the bias that gradient descent over a graph has."""
    rows, config = (
        unlike_sites(),
        RunConfig(method="combine", epsilon=math.inf, rounds=1500, rho=0.1, eta=20.0),
    )
    wanted = pooled_minimiser(rows, config, l2=0.1 / 5)
    assert np.linalg.norm(
        simulate(config, rows).models[0] - wanted, axis=-1
    ).max() < 0.05 * np.linalg.norm(wanted)


def test_a_method_of_another_package_is_audited_by_name(extra: Path) -> None:
    assert not loaded()
    verdict = attack("combine", claim=Claim(delta=1e-2), replicates=4000)
    assert not verdict.refuted and verdict.lower_bound > 0.4
    assert 0.99 < record_transcripts(make_case("combine", delta=1e-2), 0, 2, 0).proved <= 1.0


def test_an_audit_of_another_package_is_a_target_and_can_refute(extra: Path) -> None:
    assert ("count", "corrected") in targets()
    verdict = attack("count", replicates=4000)
    assert verdict.claimed_epsilon == 1.0 and 0.5 < verdict.lower_bound <= 1.0


def test_a_study_compares_it_with_ours(extra: Path, tmp_path: Path) -> None:
    study = spec.load(str(PLUGIN / "study.toml"))
    done = run(study, tmp_path, jobs=1)
    assert {row["method"] for row in done.rows} == {"combine", "dgd"} and done.cells == 2
    assert all(row["epsilon_proved"] <= 2.0 for row in done.rows)
    (claim,) = judged(study, done.rows)
    assert claim.verdicts["proved"].word == "holds"
    again = run(study, tmp_path, jobs=1)
    assert again.reused == 2


def test_a_finished_cell_counts_no_longer_when_its_package_changes(extra: Path) -> None:
    before = {name: digest("training.run", {"method": name}) for name in ("combine", "dgd")}
    nested = digest("training.run", {"method": "dgd", "match": {"method": "combine"}})
    with (extra / "audits.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    after = {name: digest("training.run", {"method": name}) for name in ("combine", "dgd")}
    assert before["combine"] != after["combine"] and before["dgd"] == after["dgd"]
    assert nested != digest("training.run", {"method": "dgd", "match": {"method": "combine"}})


def test_the_list_of_methods_names_it_and_loads_nothing(extra: Path) -> None:
    shown = CliRunner().invoke(cli, ["methods"])
    assert "--method combine" in shown.output and "Every node averages" in " ".join(
        shown.output.split()
    )
    with pytest.raises(InvalidInput) as refused:
        RunConfig(method="combined")
    assert "'combine'" in refused.value.rule and not loaded()


def test_a_plan_of_others_loads_no_package(extra: Path, tmp_path: Path) -> None:
    sites = [Member(name, 50, SigningKey.make().public) for name in ("north", "east", "south")]
    config = RunConfig(method="combine", epsilon=1.0, delta=1e-5, rounds=2, seed=None)
    write_plan_file(
        make_calibrated_plan(Proposal("trial", config, sites, 3)), tmp_path / "plan.json"
    )
    read_plan_file(tmp_path / "plan.json")  # where the program has registered the method itself
    forget()
    with pytest.raises(InvalidInput) as refused:
        read_plan_file(tmp_path / "plan.json")
    assert refused.value.field == "plan" and "'combine'" in refused.value.rule and not loaded()


def test_a_saved_run_of_others_loads_no_package(extra: Path, rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    result = simulate(RunConfig(method="combine", epsilon=5.0, delta=1e-5, rounds=2), rows)
    result.save(path)
    # where the program has registered the method itself
    assert Result.load(path).config == result.config
    forget()
    with pytest.raises(CheckpointError, match="method 'combine'"):
        Result.load(path)
    with pytest.raises(InvalidInput) as refused:
        RunConfig.from_record(result.config.to_dict())
    assert refused.value.field == "method" and not loaded()
    ran = CliRunner().invoke(cli, ["report", str(path), "--out", str(tmp_path / "run.html")])
    assert isinstance(ran.exception, CheckpointError) and not loaded()
    ran = CliRunner().invoke(
        cli, ["report", str(path), "--out", str(tmp_path / "run.html"), "--method", "combine"]
    )
    assert ran.exit_code == 0 and loaded() and (tmp_path / "run.html").is_file()


def test_a_saved_estimator_of_others_loads_no_package(extra: Path, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(600, 3)) / 4
    y = (X[:, 0] > 0).astype(int)
    path = tmp_path / "model.npz"
    made = ConsensusClassifier(
        method="dgd", epsilon=50.0, classes=[0, 1], n_sites=3, rounds=4, random_state=0
    )
    made.fit(X, y).save(path)
    assert ConsensusClassifier.load(path).method == "dgd"
    arrays = dict(np.load(path))
    meta = json.loads(str(arrays["meta"]))
    pairs = meta["extra"]["estimator"]["parameters"]["dict"]
    pairs[pairs.index(["method", "dgd"])] = ["method", "combine"]
    np.savez(path, **(arrays | {"meta": np.array(json.dumps(meta))}))
    with pytest.raises(CheckpointError, match="method 'combine'"):
        ConsensusClassifier.load(path)
    assert not loaded()


def test_an_audit_of_the_name_of_a_method_is_refused_whatever_is_loaded(extra: Path) -> None:
    declare(
        extra.parent,
        "dp_other",
        {plugins.AUDITS: {"combine": "dp_extra.audits:COUNT", "dgd": "dp_other:absent"}},
    )
    for _ in range(2):
        with pytest.raises(InvalidInput) as refused:
            attack("combine", claim=Claim(delta=1e-2), replicates=200)
        assert refused.value.field == "audit" and "dp_other" in refused.value.rule
        RunConfig(method="combine", delta=1e-5)  # which loads and registers it
    assert forms_of("dgd") == tuple(REGISTRY["dgd"].forms)  # what is of this package stays so


def test_audits_of_everything_name_installed_methods(extra: Path) -> None:
    assert ("combine", "corrected") in targets()


def test_what_is_no_audit_is_refused_in_one_line(site_packages: Path) -> None:
    (site_packages / "dp_broken.py").write_text("nothing = 5\n", encoding="utf-8")
    declare(site_packages, "dp_broken", {plugins.AUDITS: {"broken": "dp_broken:nothing"}})
    with pytest.raises(InvalidInput) as refused:
        attack("broken")
    assert refused.value.field == "audit" and "dp_broken" in refused.value.rule


def test_a_file_for_config_loads_no_package(extra: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('method = "combine"\n', encoding="utf-8")
    words = ["plan", "--config", str(tmp_path / "run.toml"), "--json"]
    ran = CliRunner().invoke(cli, words)
    assert (
        isinstance(ran.exception, InvalidInput)
        and ran.exception.field == "config: method"
        and not loaded()
    )
    ran = CliRunner().invoke(cli, [*words, "--method", "combine"])
    assert ran.exit_code == 0 and loaded()


def test_what_two_packages_bring_is_refused_by_both_names(extra: Path) -> None:
    declare(extra.parent, "dp_other", {plugins.COMMANDS: {"rounds": "dp_other:rounds"}})
    ran = CliRunner().invoke(cli, ["rounds"])
    assert isinstance(ran.exception, InvalidInput) and ran.exception.field == "command"
    assert "dp_extra" in ran.exception.rule and "dp_other" in ran.exception.rule


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("dp_broken:absent", "cannot be loaded"),
        ("dp_absent.methods:Method", "cannot be loaded"),
        ("dp_broken:Named", "is named 'otherwise'"),
        ("dp_broken:nothing", "is named None"),
        ("dp_broken_text:Method", "cannot be loaded"),
        ("dp_broken_value:Method", "cannot be loaded"),
        ("dp_broken_exit:Method", "cannot be loaded"),
    ],
)
def test_what_is_no_method_is_refused_in_one_line(
    site_packages: Path, value: str, says: str
) -> None:
    code = "nothing = 5\nclass Named:\n    name = 'otherwise'\n"
    (site_packages / "dp_broken.py").write_text(code, encoding="utf-8")
    (site_packages / "dp_broken_text.py").write_text("def (:\n", encoding="utf-8")
    (site_packages / "dp_broken_value.py").write_text("raise ValueError('x')\n", encoding="utf-8")
    (site_packages / "dp_broken_exit.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    declare(site_packages, "dp_broken", {plugins.METHODS: {"broken": value}})
    with pytest.raises(InvalidInput) as refused:
        RunConfig(method="broken")
    assert refused.value.field == "method" and says in refused.value.rule


KNOBBED = """
from dataclasses import dataclass
from sottovoce.algorithms.gradient import DGD
from sottovoce.algorithms.knobs import CappedOptions, knob
from sottovoce.util.constraints import Interval

@dataclass(frozen=True)
class Options(CappedOptions):
    {knob}: float = knob(0.5, "Something of its own.", Interval(low=0))

@dataclass(frozen=True)
class Knobbed(DGD):
    options: Options = Options()
    name = "knobbed"
"""
ASKS_ONCE = """
import json
from sottovoce import RunConfig
from sottovoce.algorithms import KNOBS
from sottovoce.errors import InvalidInput
asked = {"method": "dgd", "epsilon": 0.2, "delta": 1e-6, "copies": 3, "seed": None}
before = RunConfig.from_dict(asked)
try:
    RunConfig(method="knobbed", delta=1e-5)
except InvalidInput as error:
    field = error.field
print(json.dumps([field, sorted(KNOBS), before == RunConfig.from_dict(asked)]))
"""


@pytest.mark.parametrize("name", ["copies", "pull"])
def test_a_new_knob_of_an_entry_point_is_refused_whatever_is_loaded(
    site_packages: Path, name: str
) -> None:
    (site_packages / "dp_other.py").write_text(KNOBBED.format(knob=name), encoding="utf-8")
    declare(site_packages, "dp_other", {plugins.METHODS: {"knobbed": "dp_other:Knobbed"}})
    with pytest.raises(InvalidInput) as refused:
        RunConfig(method="knobbed")
    assert refused.value.field == "method" and "knobbed" not in REGISTRY and name not in KNOBS
    new = warm.run(["-c", ASKS_ONCE])
    assert json.loads(new.stdout) == ["method", sorted(KNOBS), True]


def test_a_command_of_ours_stays_ours(site_packages: Path) -> None:
    (site_packages / "dp_other.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    declare(site_packages, "dp_other", {plugins.COMMANDS: {"methods": "dp_other:methods"}})
    assert CliRunner().invoke(cli, ["methods", "--json"]).exit_code == 0


def test_what_the_papers_bring_is_there_and_of_its_kind() -> None:
    for value in entry_points(ROOT / "pyproject.toml")["sottovoce.commands"].values():
        module, name = value.split(":")
        assert isinstance(getattr(import_module(module), name), click.Command)
    for value in entry_points(ROOT / "pyproject.toml")["sottovoce.audits"].values():
        module, name = value.split(":")
        assert isinstance(getattr(import_module(module), name), Adversary)


def test_the_installed_entry_points_are_those_of_this_tree() -> None:
    """Otherwise install again: ``pip install --editable .``; commands are found where the
    package was installed.
    """
    installed: dict[str, dict[str, str]] = {}
    for entry in distribution("sottovoce").entry_points:
        installed.setdefault(entry.group, {})[entry.name] = entry.value
    del installed["console_scripts"]
    assert installed == entry_points(ROOT / "pyproject.toml")


def test_the_files_of_installers_are_read_as_the_standard_library_reads_them() -> None:
    for group in (plugins.COMMANDS, plugins.AUDITS):
        found = [
            entry for entries in plugins.installed_entry_points(group).values() for entry in entries
        ]
        ours = {(entry.name, f"{entry.module}:{entry.attribute}") for entry in found}
        theirs = {
            (one.name, one.value)
            for one in import_module("importlib.metadata").entry_points(group=group)
        }
        assert ours == theirs and len(ours) >= 3
