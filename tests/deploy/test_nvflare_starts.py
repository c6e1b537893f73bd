"""A site's start in a job compares and erases what `sottovoce site run` does.  Skipped without
NVFlare.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from sites_in_tests import Consortium, consortium, settle
from sums_in_tests import summed

pytest.importorskip(
    "nvflare",
    reason="NVFlare is not installed: the extra nvflare has narrow pins, so the extra test lacks "
    "it",
)

from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.known import Known
from sottovoce.deploy.lock import exclusive_lock
from sottovoce.deploy.nvflare import layout, tasks
from sottovoce.deploy.nvflare.executor import SiteExecutor
from sottovoce.deploy.settings import SiteSettings, load_rows
from sottovoce.deploy.sums.masks import RunKey
from sottovoce.ledger.durable import rows_digest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # NVFlare's own


def started(sites: Consortium, caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """Why the session of north failed, as the hub and as the site's log has it; the job ends at
    its first request.
    """
    executor = SiteExecutor()
    executor._post.close_with_reason("the job is over")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        executor._run_session(sites.folder, "north")
    return executor._post.carry_task({}, 0.0)[tasks.ENDED], caplog.text


def before(sites: Consortium, closed: tuple[str, ...], still_open: tuple[str, ...] = ()) -> str:
    """Runs in north's ledger; its head."""
    rows = load_rows(sites.folder / "data", None)
    with sites.ledger("north") as ledger:
        ledger.identity.bind_to_rows(rows_digest(*rows.fingerprint_arrays()))
        for name in closed + still_open:
            ledger.reserve(name, "a plan", sites.plan.planned_privacy.events("north")[:1])
        for name in closed:
            ledger.close_run(name, reclaim=True)
        return str(ledger.file.head())


def only_class(name: str) -> str:
    """What the hub is told of an error at a site: its class, and nothing of its message."""
    return f"{name}; the site's log says why"


ASKED = only_class("Unreachable")
"""The site had nothing against it, and asked the hub."""


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    """The first of five sites of a plan of sums, which has agreed to it."""
    made = summed(tmp_path / "sites")
    path = settle(made, tmp_path / "home") / "site.toml"
    path.write_text(f'agreed = "{made.plan.digest}"\n{path.read_text()}')
    return made


def test_a_plan_of_sums_needs_the_sites_agreement(
    sites: Consortium, caplog: pytest.LogCaptureFixture
) -> None:
    assert started(sites, caplog)[0] == ASKED
    path = sites.folder / "site.toml"
    text = path.read_text()
    for line, rule in (("", "is missing"), (f'agreed = "{"0" * 64}"', "is not the digest")):
        path.write_text("\n".join([line, *text.splitlines()[1:]]))
        failure, logged = started(sites, caplog)
        assert failure == only_class("InvalidInput") and rule in logged


def test_another_key_of_a_known_site_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sites = consortium(tmp_path / "sites")
    known = settle(sites, tmp_path / "home") / "north.known"
    head = before(sites, ("before",))
    keys = {site.name: site.key for site in sites.plan.sites if site.name != "north"}
    Known("before", head, keys).write(known)
    assert started(sites, caplog)[0] == ASKED
    Known("before", head, keys | {"east": SigningKey.make().public}).write(known)
    failure, logged = started(sites, caplog)
    assert failure == only_class("InvalidInput") and "key of east" in logged


def test_an_older_ledger_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sites = consortium(tmp_path / "sites")
    home = settle(sites, tmp_path / "home")
    (home / "north.before.json").write_text(json.dumps({"site": "north", "run": "before"}))
    failure, logged = started(sites, caplog)
    assert failure == only_class("LedgerCorrupt") and "'north.before.json'" in logged


def test_a_start_erases_keys_of_runs_that_cannot_go_on(
    sites: Consortium, caplog: pytest.LogCaptureFixture
) -> None:
    home = sites.folder
    before(sites, ("left",), ("open",))
    for name in ("north.open", "north.left"):
        RunKey.make(home / f"{name}.masks")
    failure, logged = started(sites, caplog)
    assert failure == ASKED and [path.name for path in home.glob("*.masks")] == ["north.open.masks"]
    assert "run left" in logged
    assert "its key stays" in logged
    RunKey.make(home / "north.before.masks")
    failure, logged = started(sites, caplog)
    assert failure == only_class("LedgerCorrupt") and "holds a key" in logged
    assert (home / "north.before.masks").read_bytes() == b""


def test_nothing_is_erased_while_another_process_takes_part(
    sites: Consortium, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of the job before may still be at its end."""
    monkeypatch.setattr(layout, "LET_GO", 0.1)
    before(sites, ("left",))
    RunKey.make(sites.folder / "north.left.masks")
    with exclusive_lock(SiteSettings.read(sites.folder / "site.toml").lock_file):
        assert started(sites, caplog)[0] == only_class("Busy")
        assert (sites.folder / "north.left.masks").exists()
    assert started(sites, caplog)[0] == ASKED and not (sites.folder / "north.left.masks").exists()


def test_a_kit_of_another_site_erases_nothing(
    sites: Consortium, caplog: pytest.LogCaptureFixture
) -> None:
    before(sites, ("left",))
    RunKey.make(sites.folder / "north.left.masks")
    executor = SiteExecutor()
    executor._run_session(sites.folder, "east")
    assert executor._post.carry_task({}, 0.0) == {tasks.ENDED: only_class("InvalidInput")}
    assert "for 'east'" in caplog.text and (sites.folder / "north.left.masks").exists()
