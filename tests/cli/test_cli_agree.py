"""Plans between sites are agreed to before anything is spent: `site agree`, and a site that stays.

Each test types commands, as people would, and edits no folder by hand.
"""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from command_line import Call, Ran
from person_at_terminal import Person

from sottovoce.deploy import certificates
from sottovoce.deploy.demonstration import find_free_port
from sottovoce.deploy.invitation import Answer, plan_comparison_code
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.ledger.durable import DurableLedger

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

NAMES = ("north", "east")
SCHEMA = """
label = {column = "ill", positive = "yes", negative = "no"}
intercept = true

[columns.age]
kind = "number"
lo = 0
hi = 100
"""
STOLEN_KEY = (
    "sottovoce hub revoke hub NAME",
    "hub invite NAME",
    "sottovoce site join NAME.invite --folder NAME",
    "hub admit",
)
"""Commands of the page for a stolen TLS key, in order."""
BUDGET = ("--epsilon", "3", "--delta", "1e-5")


@dataclass
class Study:
    """Two sites and a hub, in one folder; every method types a command."""

    run: Call
    folder: Path
    port: int
    opened: ExitStack
    office: str = "hub"

    def invite_and_join(self, *more: str) -> None:
        """Invite both sites, let them join, and admit them by their codes."""
        self.invite(*NAMES)
        for name in NAMES:
            self.join(name, *BUDGET, *more)
            self.admit(name)

    def invite(self, *names: str) -> None:
        """Invite sites to the hub."""
        host = ("--host", f"localhost:{self.port}", "--schema", "schema.toml")
        invited = self.run("hub", "invite", *names, *host, "--folder", self.office)
        assert invited.code == 0, invited.err

    def join(self, name: str, *more: str) -> Ran:
        """Let a site join by its invitation."""
        words = (f"{self.office}/{name}.invite", "--data", f"{name}.csv", *more)
        joined = self.run("site", "join", *words)
        assert joined.code == 0, joined.err
        return joined

    def admit(self, name: str, folder: str | None = None) -> None:
        """Admit a site's answer by the code that it shows."""
        file = f"{folder or name}/{name}.joined"
        code = Answer.read(Path(file)).comparison_code
        admitted = self.run("hub", "admit", self.office, file, "--code", f"{name}={code}")
        assert admitted.code == 0, admitted.err

    def plan(self, name: str, epsilon: str, folders: tuple[str, ...] = NAMES) -> str:
        """Write the hub's plan, and return its code."""
        answers = [f"{place}/{one}.joined" for place, one in zip(folders, NAMES, strict=True)]
        sites = [word for answer in answers for word in ("--site", answer)]
        wrote = self.run(
            *(
                "plan",
                "--write",
                f"{self.office}/plan.json",
                "--run",
                name,
                "--schema",
                "schema.toml",
            ),
            *sites,
            *("--method", "prox_admm", "--rounds", "2", "--epsilon", epsilon, "--delta", "1e-5"),
            *("--set", "centre=no"),
        )
        assert wrote.code == 0, wrote.err
        return plan_comparison_code(read_plan_file(f"{self.office}/plan.json").digest)

    def person(self, command: str) -> Person:
        """Start a command that stays; it is stopped at the end of the test."""
        person = Person(self.folder, command)
        self.opened.callback(self.stop, person)
        return person

    def hub(self) -> Person:
        """Start the hub, which then listens."""
        hub = self.person(f"hub run {self.office} --listen localhost:{self.port} --page none")
        hub.reads("listening on port")
        return hub

    @staticmethod
    def stop(person: Person) -> None:
        if person.process.poll() is None:
            person.stops(signal.SIGKILL)


@pytest.fixture
def study(run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    """A study of two sites; whoever asks for a line typed finds the end of the input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    Path("schema.toml").write_text(SCHEMA)
    for seed, name in enumerate(NAMES):
        rng = np.random.default_rng(seed)
        ages = rng.integers(0, 101, 400)
        rows = [f"{age},{'yes' if age > 50 else 'no'}" for age in ages]
        Path(f"{name}.csv").write_text("\n".join(["age,ill", *rows]) + "\n")
    with ExitStack() as opened:
        yield Study(run, tmp_path, find_free_port(), opened)


def consents(name: str) -> list[tuple[str, str]]:
    """The run and the person of each consent in a site's ledger."""
    with DurableLedger.open(f"{name}/{name}.ledger") as ledger:
        return [(one.run, one.by) for one in ledger.consents]


def runs(name: str) -> dict[str, str]:
    """The state of each run in a site's ledger."""
    with DurableLedger.open(f"{name}/{name}.ledger") as ledger:
        return {run: one.state for run, one in ledger.runs.items()}


def test_a_plan_that_is_too_expensive_or_refused_leaves_the_way_open_for_the_next(
    study: Study,
) -> None:
    study.invite_and_join()
    dear = study.plan("dear", "9")
    hub = study.hub()
    # too expensive: refused with its code, and nothing is recorded or installed
    refused = study.run("site", "agree", "north", dear, "--by", "anna")
    assert refused.code == 2 and "above the ledger's budget" in refused.err
    waits = study.run("site", "run", "north/site.toml")
    assert waits.code == 2 and "sottovoce site agree" in waits.err
    assert not Path("north/plan.json").exists() and consents("north") == [] == [*runs("north")]
    joined = study.run("site", "join", "hub/north.invite", "--folder", "north", "--wait")
    assert joined.code == 2 and "above the ledger's budget" in joined.err
    # the operator writes a cheaper one, and stops and starts the hub
    hub.stops()
    cheap = study.plan("cheap", "1")
    study.hub()
    wrong = study.run("site", "agree", "north", dear, "--by", "anna")
    assert wrong.code == 2 and "is not the code of this plan" in wrong.err
    assert "run cheap, in place of its earlier proposal of run dear" in wrong.err
    silent = study.run("site", "agree", "north")
    assert silent.code == 2 and "no terminal" in silent.err
    for word in (
        "columns: age; label ill",
        "this run will take",
        "who sees what: the hub and east",
    ):
        assert word in " ".join(silent.out.split()), silent.out
    # a newer one comes while somebody is at the prompt of `join --wait`
    person = study.person("site join hub/north.invite --folder north --wait --by anna")
    person.reads("type the plan's code")
    newest = study.plan("newest", "1")
    person.types(newest)
    person.reads("run newest, in place of its earlier proposal of run cheap")
    person.reads("run newest(?s:.*)type the plan's code")
    assert consents("north") == []
    person.types(newest)
    person.reads("anna agreed to run newest")
    assert consents("north") == [("newest", "anna")]
    assert newest != cheap
    person.stops(signal.SIGKILL)


def test_a_service_runs_each_plan_that_people_agreed_to_and_no_other(study: Study) -> None:
    study.invite_and_join()
    # east's site asks for two people
    Path("four").mkdir()
    code = study.plan("trial-1", "0.5")
    hub = study.hub()
    sites = {name: study.person(f"site run {name}/site.toml --stay") for name in NAMES}
    for person in sites.values():
        person.reads("run trial-1 waits until somebody agrees")
    # a service that is killed goes on by the same command
    sites["north"].stops(signal.SIGKILL)
    sites["north"] = study.person("site run north/site.toml --stay")
    for name in NAMES:
        agreed = study.run("site", "agree", name, code, "--by", f"anna of {name}")
        assert agreed.code == 0, agreed.err
    for person in sites.values():
        person.reads("2 rounds")
    assert runs("north") == {"trial-1": "closed"} == runs("east")
    hub.stops()
    # the next plan waits, and is agreed to once more
    code = study.plan("trial-2", "0.5")
    study.hub()
    for person in sites.values():
        person.reads("run trial-2 waits until somebody agrees")
    assert [*runs("north")] == ["trial-1"]
    for name in NAMES:
        assert study.run("site", "agree", name, code, "--by", f"anna of {name}").code == 0
    for person in sites.values():
        person.reads("2 rounds(?s:.*)2 rounds")
    shown = study.run("ledger", "show", "north/north.ledger").out
    assert "anna of north agreed to run trial-2" in " ".join(shown.split())
    assert "2 consents to plans" in study.run("ledger", "verify", "north/north.ledger").out
    study.run("ledger", "export", "north/north.ledger", "out.jsonl")
    kinds = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()[1:]]
    said = [(one["record"]["kind"], one["record"].get("run")) for one in kinds]
    for name in ("trial-1", "trial-2"):
        assert said.index(("consent", name)) < said.index(("reserve", name))
        summary = next(Path("north").glob(f"north*{name}.json"), Path("north/north.json"))
        assert json.loads(summary.read_text())["run"] == name


def test_two_people_must_agree_where_a_site_asks_for_four_eyes(study: Study) -> None:
    study.invite_and_join("--four-eyes")
    code = study.plan("trial-1", "0.5")
    study.hub()
    first = study.run("site", "agree", "north", code, "--by", "anna")
    assert first.code == 0 and "a second person must agree" in first.out
    again = study.run("site", "agree", "north", code, "--by", " Anna ")
    assert again.code == 0 and "had agreed before" in again.out
    assert not Path("north/plan.json").exists()
    refused = study.run("site", "run", "north/site.toml")
    assert refused.code == 2 and not runs("north")
    second = study.run("site", "agree", "north", code, "--by", "bert")
    assert second.code == 0 and "second person" not in second.out
    assert consents("north") == [("trial-1", "anna"), ("trial-1", "bert")]
    assert Path("north/plan.json").exists()


def test_a_site_whose_tls_key_was_stolen_goes_on_with_its_ledger_by_three_commands(
    study: Study,
) -> None:
    study.invite_and_join()
    code = study.plan("trial-1", "0.5")
    hub = study.hub()
    sites = {name: study.person(f"site run {name}/site.toml --stay") for name in NAMES}
    for name in NAMES:
        assert study.run("site", "agree", name, code, "--by", "anna").code == 0
    for person in sites.values():
        person.reads("2 rounds")
    sites["north"].stops()
    stolen = {end: Path(f"north/north.{end}").read_bytes() for end in ("key", "crt")}
    signing = Path("north/north.signing").read_bytes()
    # the hub: revoke and invite again; a second revocation finds no file, and is as good
    revoked = study.run("hub", "revoke", "hub", "north")
    assert revoked.code == 0 and "hub invite north" in revoked.out
    assert "never in a new one" in revoked.out
    assert study.run("hub", "revoke", "hub", "north").code == 0
    study.invite("north")
    # the site: a new folder is refused, in words that lead to the old one
    other = study.run(
        *("site", "join", "hub/north.invite", "--data", "north.csv", "--folder", "other", *BUDGET)
    )
    assert other.code == 2 and "--folder` with its folder goes on" in other.err
    joined = study.join("north")
    assert "signing key, ledger and budget stay" in joined.out and "this code" in joined.out
    assert Path("north/north.signing").read_bytes() == signing
    assert Path("north/north.key").read_bytes() != stolen["key"]
    study.admit("north")
    hub.stops()
    code = study.plan("trial-2", "0.5")
    study.hub()
    north = study.person("site run north/site.toml --stay")
    for name in NAMES:
        agreed = study.run("site", "agree", name, code, "--by", "anna")
        assert agreed.code == 0, agreed.err
    north.reads("2 rounds")
    assert runs("north") == {"trial-1": "closed", "trial-2": "closed"}
    assert len([*Path(".").glob("*/north*.ledger")]) == 1
    assert read_plan_file("north/plan.trial-1.json").run == "trial-1"
    # what was stolen opens nothing
    for end, data in stolen.items():
        Path(f"north/north.{end}").write_bytes(data)
    thief = study.run("site", "agree", "north", code)
    assert thief.code == 3 and "was revoked" in thief.err


def test_the_page_has_the_commands_for_a_stolen_key() -> None:
    """They are those that the test above types."""
    page = (Path(__file__).parents[2] / "docs/deploy/it.md").read_text()
    steps = page[page.index("### A stolen TLS key") : page.index("### Step by step")]
    found = [steps.index(words) for words in STOLEN_KEY]
    assert found == sorted(found)


def test_a_renewed_certificate_is_put_in_use_by_a_command(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.invite_and_join()
    study.plan("trial-1", "0.5")
    study.hub()
    # the certificate comes with the proposal
    assert study.run("site", "agree", "north").code == 2 and Path("north/north.crt").exists()
    ledger = Path("north/north.ledger").read_bytes()
    made = study.run("site", "renew", "north/site.toml")
    assert made.code == 0 and "--take north.crt" in made.out
    assert study.run("hub", "admit", "hub", "north/renewal/north.csr", "--renew").code == 0
    old = Path("north/north.key").read_bytes()
    take = ("site", "renew", "north/site.toml", "--take")
    wrong = study.run(*take, "hub/east.crt")
    assert wrong.code == 2 and Path("north/north.key").read_bytes() == old
    replace_file = certificates._replace_file

    def stop(path: Path, data: bytes, *, secret: bool = False) -> None:
        if path.suffix == ".crt":
            raise KeyboardInterrupt
        replace_file(path, data, secret=secret)

    # stopped between the key and the certificate: the same command goes on
    monkeypatch.setattr(certificates, "_replace_file", stop)
    assert study.run(*take, "hub/renewal/north.crt").code == 130
    monkeypatch.setattr(certificates, "_replace_file", replace_file)
    assert study.run(*take, "hub/renewal/north.crt").code == 0
    assert Path("north/north.key").read_bytes() != old and not Path("north/renewal").exists()
    assert Path("north/north.crt").read_bytes() == Path("hub/renewal/north.crt").read_bytes()
    assert Path("north/north.ledger").read_bytes() == ledger
    newer = study.plan("trial-2", "0.5")
    assert study.run("site", "agree", "north", newer, "--by", "anna").code == 0


def test_a_site_that_was_invited_with_a_wrong_port_joins_again_in_its_folder(study: Study) -> None:
    right, study.port = study.port, 1
    study.invite_and_join()
    # the port was wrong; inviting again says what to do first
    study.port = right
    again = study.run("hub", "invite", "north", "--host", f"localhost:{right}")
    assert again.code == 2 and "`sottovoce hub revoke hub north` first" in again.err
    for name in NAMES:
        assert study.run("hub", "revoke", "hub", name).code == 0
    study.invite(*NAMES)
    for name in NAMES:
        joined = study.join(name)
        assert f"localhost:{right}, which was at localhost:1" in " ".join(joined.out.split())
        study.admit(name)
    code = study.plan("trial-1", "0.5")
    study.hub()
    agreed = study.run("site", "agree", "north", code)
    assert agreed.code == 0, agreed.err
    # an invitation of another hub, or to another site, changes nothing
    study.office = "hub2"
    study.invite("north", "west")
    before = Path("north/site.toml").read_bytes(), Path("north/north.key").read_bytes()
    other = study.run("site", "join", "hub2/north.invite", "--folder", "north")
    assert other.code == 2 and "--ledger" in other.err and "--new-hub" in other.err
    west = study.run("site", "join", "hub2/west.invite", "--folder", "north")
    assert west.code == 2 and "is to 'west', and this folder is of 'north'" in west.err
    assert before == (Path("north/site.toml").read_bytes(), Path("north/north.key").read_bytes())
    moved = study.run("site", "join", "hub2/north.invite", "--folder", "north", "--new-hub")
    assert moved.code == 0, moved.err


def test_two_hubs_share_one_ledger_and_its_budget(study: Study, run: Call) -> None:
    study.invite_and_join()
    second = Study(run, study.folder, find_free_port(), study.opened, "hub2")
    second.invite(*NAMES)
    folders = ("north-2", "east-2")
    given = study.run(
        *("site", "join", "hub2/north.invite", "--data", "north.csv", "--folder", "north-2"),
        *("--ledger", "north/north.ledger", *BUDGET),
    )
    assert given.code == 2 and "whose budget never changes" in given.err
    wrong = study.run(
        *("site", "join", "hub2/north.invite", "--data", "north.csv", "--folder", "north-2"),
        *("--ledger", "east/east.ledger"),
    )
    assert wrong.code == 2 and "is not the ledger of north.csv" in wrong.err
    for name, folder in zip(NAMES, folders, strict=True):
        second.join(name, "--folder", folder, "--ledger", f"{name}/{name}.ledger")
        second.admit(name, folder)
    studies = {NAMES: (study, study.plan("first", "0.5"))}
    studies[folders] = second, second.plan("second", "0.5", folders)
    for one, _ in studies.values():
        one.hub()
    # both runs at a time, in one ledger at each site
    people = [
        study.person(f"site run {place}/site.toml --stay") for places in studies for place in places
    ]
    for places, (_, code) in studies.items():
        for place in places:
            assert study.run("site", "agree", place, code, "--by", "anna").code == 0
    for person in people:
        person.reads("2 rounds")
    for name in NAMES:
        assert runs(name) == {"first": "closed", "second": "closed"}
        assert study.run("ledger", "verify", f"{name}/{name}.ledger").code == 0
    with DurableLedger.open("north/north.ledger") as ledger:
        spent = ledger.total()
    assert 1.0 < spent < 3.0
    # what one hub's run has spent is missing at the other
    code = second.plan("third", "4", folders)
    dear = study.run("site", "agree", "north-2", code)
    assert dear.code == 2 and f"from {spent:.6g}" in dear.err


def test_a_lifetime_budget_is_never_taken_in_silence(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    invited = study.run(
        *("hub", "invite", "north", "--host", f"localhost:{study.port}", "--schema", "schema.toml"),
        *("--epsilon", "1e6", "--delta", "0.5"),
    )
    assert invited.code == 0
    words = ("site", "join", "hub/north.invite", "--data", "north.csv")
    silent = study.run(*words)
    assert silent.code == 2 and "only the site decides it" in silent.err
    assert "above 10" in silent.err and not Path("north").exists()
    half = study.run(*words, "--epsilon", "3")
    assert half.code == 2 and "epsilon 3 and delta 0.5" in half.err and not Path("north").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert study.run(*words).code == 2 and not Path("north").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    taken = study.run(*words, "--ceiling", "0.25")
    assert taken.code == 0 and "at least one over the number of rows" in taken.err
    with DurableLedger.open("north/north.ledger") as ledger:
        assert float(ledger.epsilon[0]) == 1e6
    # the ceiling binds, and the site may change it
    study.invite("east")
    study.join("east", *BUDGET)
    study.admit("east")
    study.admit("north")
    code = study.plan("trial-1", "0.5")
    study.hub()
    refused = study.run("site", "agree", "north", code)
    assert refused.code == 2 and "above the ceiling that this site set itself" in refused.err
