"""What a site keeps of its runs, and what is refused because of it: other keys, an older ledger,
a second ledger.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from relay_in_tests import certify
from sites_in_tests import NAMES, Consortium, Fragile, Stop, consortium, settle
from sums_in_tests import summed
from test_statements import clinic

from sottovoce.cli import main
from sottovoce.cli import site as command
from sottovoce.data.schema import Schema
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.plan_file import write_plan_file
from sottovoce.deploy.session import Finished
from sottovoce.deploy.settings import SiteSettings, load_rows
from sottovoce.errors import InvalidInput, LedgerCorrupt
from sottovoce.ledger.durable import DurableLedger, rows_digest

pytest.importorskip("cryptography")

REAL = {"seed": None, "method": "prox_admm", "delta": 1e-5, "graph": "complete"}
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Exit code and all that a command prints."""

    def call(*arguments: object) -> tuple[int, str]:
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return call


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    """Three sites of a plan that is no demonstration, with the files of the first in ``home``."""
    sites = consortium(tmp_path / "sites", **REAL)
    certify(settle(sites, tmp_path / "home"), ("north",))
    return sites


def planned(sites: Consortium, run: str, **keys: SigningKey) -> Consortium:
    """The same sites with another plan, which the first one has in its folder."""
    known = sites.keys | keys
    members = tuple(
        Member(site.name, site.rows, known[site.name].public) for site in sites.plan.sites
    )
    again = replace(sites, plan=replace(sites.plan, run=run, sites=members), keys=known)
    write_plan_file(again.plan, sites.folder / "plan.json")
    return again


def through(sites: Consortium, **options: Any) -> Finished:
    """The whole run; the first site takes part as `site run` does."""
    with HubLog(sites.folder.parent / "hub.log") as log, ThreadPoolExecutor(3) as pool:
        hub = Hub(sites.plan, log)
        others = [
            pool.submit(sites.run_site, name, LocalTransport(hub, name))
            for name in sites.plan.names[1:]
        ]
        found = SiteSettings.read(sites.folder / "site.toml")
        ended = found.run_and_write_results(LocalTransport(hub, "north"), **options)
        assert all(job.result() for job in others)
    return ended


class Unasked:
    """A hub that nobody may ask."""

    def highest_stored_round(self, plan: str) -> int:
        raise AssertionError("was asked")


# Known keys


def test_a_known_site_with_another_key_is_refused_unless_it_is_said_to_have_one(
    sites: Consortium, say: Say
) -> None:
    settings = sites.folder / "site.toml"
    through(sites)
    again = planned(sites, "trial-2", east=SigningKey.make())
    for asked in (("check", settings), ("run", settings)):
        code, told = say("site", *asked)
        assert code == 2 and "key of east" in told and "--new-keys" in told and "south" not in told
    assert say("site", "check", settings, "--new-keys")[0] == 0
    found = SiteSettings.read(settings)
    with pytest.raises(InvalidInput, match="key of east"):
        found.run_and_write_results(Unasked())
    through(again, new_keys=True)
    planned(again, "trial-3")
    assert say("site", "check", settings)[0] == 0  # the new key is the known one
    planned(sites, "trial-3")
    code, told = say("site", "check", settings)
    assert code == 2 and "key of east" in told


def test_a_known_site_is_known_under_its_name_in_other_capitals(
    sites: Consortium, say: Say
) -> None:
    """As in a plan, where no two names may differ in capitals only."""
    through(sites)
    members = tuple(
        replace(s, name=s.name.capitalize()) if s.name == "east" else s for s in sites.plan.sites
    )
    other = tuple(
        replace(s, key=SigningKey.make().public) if s.name == "East" else s for s in members
    )
    for sites_of, code in ((members, 0), (other, 2)):
        write_plan_file(
            replace(sites.plan, run="trial-2", sites=sites_of), sites.folder / "plan.json"
        )
        ended, told = say("site", "check", sites.folder / "site.toml")
        assert ended == code and ("key of East" in told) == (code == 2) and "not in any" not in told


def test_a_run_that_had_begun_with_new_keys_goes_on_without_being_asked_again(
    sites: Consortium,
) -> None:
    through(sites)
    again = planned(sites, "trial-2", south=SigningKey.make())
    found = SiteSettings.read(sites.folder / "site.toml")
    with HubLog(sites.folder.parent / "hub.log") as log:
        transport = Fragile(LocalTransport(Hub(again.plan, log), "north"), 0, False)
        with pytest.raises(Stop):
            found.run_and_write_results(transport, new_keys=True)
    through(again)


def test_keys_of_a_run_that_ended_early_are_not_taken_for_known(sites: Consortium) -> None:
    with HubLog(sites.folder.parent / "hub.log") as log:
        log.decisions.record_end_of_run(sites.plan.run)
        found = SiteSettings.read(sites.folder / "site.toml")
        found.run_and_write_results(LocalTransport(Hub(sites.plan, log), "north"))
    known = json.loads((sites.folder / "north.known").read_text())
    assert known["run"] == "trial" and known["keys"] == {}


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"run": 3}', '{"keys": {"east": 1}}', '{"other": 1}']
)
def test_a_damaged_file_of_known_keys_is_not_taken_for_an_empty_one(
    sites: Consortium, say: Say, content: str
) -> None:
    through(sites)
    (sites.folder / "north.known").write_text(content)
    planned(sites, "trial-2")
    code, told = say("site", "check", sites.folder / "site.toml")
    assert code == 2 and "`site run`" in told


def test_sites_that_were_in_no_run_before_are_named(sites: Consortium, say: Say) -> None:
    through(sites)
    west = SigningKey.make()
    members = (*sites.plan.sites[:2], Member("west", sites.plan.sites[2].rows, west.public))
    write_plan_file(replace(sites.plan, run="trial-2", sites=members), sites.folder / "plan.json")
    code, told = say("site", "check", sites.folder / "site.toml")
    assert code == 0 and "in no earlier run of this site: west" in told


# The agreed plan


def test_sums_need_the_digest_of_the_plan_that_was_agreed_on(tmp_path: Path, say: Say) -> None:
    sites = summed(tmp_path / "sites")
    home = settle(sites, tmp_path / "home")
    certify(home, ("north",))
    settings, line = home / "site.toml", f'agreed = "{sites.plan.digest}"'
    text = settings.read_text()
    for wrong in ("", f'agreed = "{"0" * 64}"\n'):
        settings.write_text(wrong + text)
        for asked in ("check", "run"):
            code, told = say("site", asked, settings)
            assert code == 2 and line in told and "compare the digest" in told, told
        with pytest.raises(InvalidInput, match="compare the digest"):
            SiteSettings.read(settings).run_and_write_results(Unasked())
    settings.write_text(f"{line}\n{text}")
    code, told = say("site", "check", settings)
    assert code == 0 and "everything fits" in told and "agreed =" not in told
    with pytest.raises(AssertionError, match="was asked"):
        SiteSettings.read(settings).run_and_write_results(Unasked())


def test_agreed_digest_is_optional_but_checked_without_sums(sites: Consortium, say: Say) -> None:
    settings, line = sites.folder / "site.toml", f'agreed = "{sites.plan.digest}"'
    code, told = say("site", "check", settings)
    assert code == 0 and "above [data]" in told and line in told
    settings.write_text(f"{line}\n{settings.read_text()}")
    assert say("site", "check", settings)[0] == 0
    planned(sites, "trial-2")
    code, told = say("site", "check", settings)
    assert code == 2 and "not the digest" in told and sites.plan.digest in told


# An older ledger


@pytest.mark.parametrize("left", ["north.json", "north.known", "north.kept.json"])
def test_restored_ledger_is_refused_by_any_trace_of_later_run(
    sites: Consortium, say: Say, left: str
) -> None:
    home = sites.folder
    shutil.copy(home / "north.ledger", home.parent / "backup")
    through(sites)
    shutil.copy(home.parent / "backup", home / "north.ledger")
    (home / "north.json").rename(home / "north.kept.json") if left == "north.kept.json" else None
    for name in {"north.json", "north.known", "north.kept.json"} - {left}:
        (home / name).unlink(missing_ok=True)
    planned(sites, "trial-2")
    before = (home / "north.ledger").read_bytes()
    for asked in ("check", "run"):
        code, told = say("site", asked, home / "site.toml")
        assert code == 2 and "the run 'trial'" in told and left in told and "older copy" in told
    with pytest.raises(LedgerCorrupt, match="lacks the run"):
        SiteSettings.read(home / "site.toml").run_and_write_results(Unasked())
    assert (home / "north.ledger").read_bytes() == before


def test_a_ledger_that_knows_the_run_but_not_its_end_is_refused(
    sites: Consortium, say: Say
) -> None:
    home = sites.folder
    found = SiteSettings.read(home / "site.toml")
    with HubLog(home.parent / "hub.log") as log:
        transport = Fragile(LocalTransport(Hub(sites.plan, log), "north"), 0, False)
        with pytest.raises(Stop):
            found.run_and_write_results(transport)
    shutil.copy(home / "north.ledger", home.parent / "backup")
    ended = through(sites)
    with DurableLedger.open(home / "north.ledger") as ledger:
        assert (
            ended.head
            == ledger.file.head()
            == json.loads((home / "north.json").read_text())["head"]
        )
    newest = (home / "north.ledger").read_bytes()
    assert say("site", "run", home / "site.toml")[0] == 0
    shutil.copy(home.parent / "backup", home / "north.ledger")
    code, told = say("site", "run", home / "site.toml")  # of the run itself, which is over
    assert code == 2 and "lacks records" in told
    (home / "north.ledger").write_bytes(newest)
    planned(sites, "trial-2")
    assert say("site", "check", home / "site.toml")[0] == 0
    shutil.copy(home.parent / "backup", home / "north.ledger")
    code, told = say("site", "check", home / "site.toml")
    assert code == 2 and "lacks records" in told


def test_the_key_of_a_run_of_sums_that_the_ledger_lacks_shows_that_it_is_older(
    tmp_path: Path, say: Say
) -> None:
    sites = summed(tmp_path / "sites")
    home = settle(sites, tmp_path / "home")
    certify(home, ("north",))
    (home / "site.toml").write_text(
        f'agreed = "{sites.plan.digest}"\n' + (home / "site.toml").read_text()
    )
    assert say("site", "check", home / "site.toml")[0] == 0
    (home / "north.trial-1.masks").write_text("the private half of a key")
    for _ in range(2):  # the key is erased, and what shows that there was one stays
        code, told = say("site", "check", home / "site.toml")
        assert code == 2 and "holds a key" in told
        assert (home / "north.trial-1.masks").read_bytes() == b""


def test_results_of_known_runs_or_other_sites_are_accepted(sites: Consortium, say: Say) -> None:
    home = sites.folder
    through(sites)
    second = planned(sites, "trial-2")
    through(second)
    kept = json.loads((home / "north.trial.json").read_text())
    (home / "north.west.json").write_text(json.dumps(kept | {"site": "north.west", "run": "other"}))
    (home / "north.notes.json").write_text("{}")
    old = {key: value for key, value in kept.items() if key != "head"}  # of version 0.1
    (home / "north.trial.json").write_text(json.dumps(old))
    planned(sites, "trial-3")
    assert say("site", "check", home / "site.toml")[0] == 0


def test_hub_reveals_older_ledger_if_local_records_are_gone(
    sites: Consortium,
) -> None:
    home = sites.folder
    shutil.copy(home / "north.ledger", home.parent / "backup")
    through(sites)
    shutil.copy(home.parent / "backup", home / "north.ledger")
    for name in ("north.json", "north.known"):
        (home / name).unlink()
    found = SiteSettings.read(home / "site.toml")
    with HubLog(home.parent / "hub.log") as log:
        transport = LocalTransport(Hub(sites.plan, log), "north")
        with pytest.raises(LedgerCorrupt, match="holds round 5"):
            found.run_and_write_results(transport)
    with sites.ledger("north") as ledger:
        assert not ledger.runs and ledger.rows == ()


def test_a_hub_that_lies_can_stop_a_site_and_not_make_it_spend(sites: Consortium) -> None:
    class Lies(Unasked):
        def highest_stored_round(self, plan: str) -> int:
            return 3

    found = SiteSettings.read(sites.folder / "site.toml")
    with pytest.raises(LedgerCorrupt, match="holds round 3"):
        found.run_and_write_results(Lies())
    with sites.ledger("north") as ledger:
        assert not ledger.runs and ledger.rows == ()


# A second ledger


def made(say: Say, folder: Path, data: Path, schema: Path, *budget: object) -> tuple[int, str]:
    options = ("--name", "north", "--hub", "h:1", "--data", data, "--schema", schema)
    return say("site", "init", folder, *options, *(budget or ("--epsilon", 3, "--delta", 1e-5)))


def test_a_second_ledger_of_the_same_rows_is_refused(tmp_path: Path, say: Say) -> None:
    home = clinic(tmp_path / "rows", False).folder
    there = tmp_path / "sites"
    there.mkdir()
    code, told = made(say, there / "north", home / "north.csv", home / "schema.toml")
    ledger = there / "north" / "north.ledger"
    before = ledger.read_bytes()
    assert code == 0
    shutil.copy(home / "north.csv", tmp_path / "copy.csv")
    for data, folder in ((home / "north.csv", "again"), (tmp_path / "copy.csv", "north-2")):
        code, told = made(say, there / folder, data, home / "schema.toml")
        assert code == 2 and f"has the ledger {ledger}" in told and "use that ledger" in told
        assert not (there / folder).exists() and ledger.read_bytes() == before
    assert made(say, there / "east", home / "east.csv", home / "schema.toml")[0] == 0  # other rows
    away = tmp_path / "away" / "deep"
    away.mkdir(parents=True)
    shutil.copy(ledger, home / "book.ledger")
    # it is where the data are
    code, told = made(say, away / "north", home / "north.csv", home / "schema.toml")
    assert code == 2 and "book.ledger" in told
    link = tmp_path / "links" / "rows.csv"
    link.parent.mkdir()
    link.symlink_to(home / "east.csv")
    (there / "east" / "north.ledger").rename(link.parent / "east.ledger")
    # it is where a link to the data is
    code, told = made(say, away / "north", link, home / "schema.toml")
    assert code == 2 and "east.ledger" in told


def test_empty_demonstration_or_damaged_ledgers_do_not_block(tmp_path: Path, say: Say) -> None:
    home = clinic(tmp_path / "rows", False).folder
    assert made(say, tmp_path / "north", home / "north.csv", home / "schema.toml")[0] == 0
    found = SiteSettings.read(tmp_path / "north" / "site.toml")
    with DurableLedger.open(found.ledger) as ledger:
        assert ledger.identity.bound
    found.ledger.rename(home / "damaged.ledger")
    (home / "damaged.ledger").write_bytes((home / "damaged.ledger").read_bytes()[:5000])
    DurableLedger.create(home / "unused.ledger", epsilon=3.0).close()
    digest = rows_digest(
        *load_rows(home / "north.csv", Schema.from_toml(home / "schema.toml")).fingerprint_arrays()
    )
    DurableLedger.create(
        home / "shown.ledger", epsilon=3.0, fingerprint=digest, demonstration=True
    ).close()
    (home / "text.ledger").write_text("a ledger of another program")
    code, told = made(say, tmp_path / "again", home / "north.csv", home / "schema.toml")
    assert code == 0 and told.count("could not check") == 2 and "damaged.ledger" in told


# Times


@pytest.mark.parametrize("asked", [(), ("--times",)])
def test_the_last_line_holds_no_times_unless_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...]
) -> None:
    sites = consortium(tmp_path / "sites", names=("north",), sizes=(60,), **REAL)
    home = settle(sites, tmp_path / "home")
    certify(home, ("north",))
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)

        @contextmanager
        def near(*_: object) -> Iterator[LocalTransport]:
            yield LocalTransport(hub, "north")

        monkeypatch.setattr(command, "RelayTransport", near)
        runs = [
            CliRunner().invoke(
                command.site,
                ["run", str(home / "site.toml"), *kind, *asked],
                catch_exceptions=False,
            )
            for kind in (["--json"], [])
        ]
        (home / "north.json").unlink()
        runs.append(
            CliRunner().invoke(
                command.site, ["run", str(home / "site.toml"), *asked], catch_exceptions=False
            )
        )
    last = json.loads(runs[0].stdout.splitlines()[-1])
    assert (
        ({"seconds", "waited"} <= last.keys())
        == bool(asked)
        == bool({"seconds", "waited"} & last.keys())
    )
    assert (" s, " in runs[2].stdout) == bool(asked)
    with DurableLedger.open(home / "north.ledger") as ledger:
        assert last["head"] == ledger.file.head()


def test_messages_hold_no_ledger_head_and_no_times(sites: Consortium) -> None:
    """What a hub holds names neither a ledger's head nor any time of a site."""
    ended = through(sites)
    with HubLog(sites.folder.parent / "hub.log") as log:
        sent = b"".join(log.messages(sites.plan.run).values())
    assert (
        ended.head.encode() not in sent
        and b"seconds" not in sent
        and set(sites.plan.names) == set(NAMES)
    )


def test_the_guide_to_transports_takes_part(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python of docs/howto/extend.md, for the site and for the hub, as it stands there."""
    from sottovoce.deploy import hub, hublog, lock, plan_file, report, session, settings

    names: dict[str, Any] = {}
    for module in (hub, hublog, lock, plan_file, report, session, settings):
        names |= vars(module)
    page = Path(__file__).parents[2] / "docs" / "howto" / "extend.md"
    _, _, guide = page.read_text(encoding="utf-8").partition("\n## A transport\n")
    guide, _, _ = guide.partition("\n## ")
    taking, serving = re.findall(r"```python\n(.*?)```", guide, re.S)[-2:]
    folder = tmp_path / "hub"
    folder.mkdir()
    write_plan_file(sites.plan, folder / "plan.json")
    with HubLog(folder / "hub.log") as log, ThreadPoolExecutor(2) as pool:
        served = Hub(sites.plan, log)
        for name in sites.plan.names[1:]:
            pool.submit(sites.run_site, name, LocalTransport(served, name))
        (tmp_path / "north").symlink_to(sites.folder)
        monkeypatch.chdir(tmp_path)
        names |= {"Path": Path, "FolderTransport": lambda *_: LocalTransport(served, "north")}
        exec(compile(taking, "the site", "exec"), names)
        assert served.all_sites_left
    exec(compile(serving, "the hub", "exec"), names | {"folder": folder})
    assert (folder / "hub.html").exists() or list(folder.glob("*.html"))
