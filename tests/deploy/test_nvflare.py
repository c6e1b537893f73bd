"""NVFlare itself: kits, a run of real processes, what a hub or an impostor cannot have.  Skipped
without NVFlare.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, Consortium, consortium

from sottovoce.deploy.messages import HUB

pytest.importorskip(
    "nvflare",
    reason="NVFlare is not installed: the extra nvflare has narrow pins, so the extra test lacks "
    "it",
)

from sottovoce.data.memmap import write_rows
from sottovoce.deploy import certificates, demonstration
from sottovoce.deploy.demonstration import find_free_port
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.nvflare import layout
from sottovoce.deploy.nvflare.loopback import SERVER, Federation, run_demonstration
from sottovoce.deploy.nvflare.provision import (
    SUPERVISOR,
    check_startup_kit,
    describe_project,
    make_startup_kits,
    write_project,
)
from sottovoce.deploy.nvflare.supervisor import Supervisor, open_session, write_job_folder
from sottovoce.deploy.plan_file import write_plan_file
from sottovoce.errors import InvalidInput, Refused
from sottovoce.runs.config import RunConfig

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # NVFlare's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
# Runs in every process that has its folder in PYTHONPATH, and writes down whom it asks for
# addresses or connects to.
_SPY = """
import sys
def spy(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect"):
        target = arguments[1] if event == "socket.connect" else arguments[0]
        with open({path!r}, "a") as file:
            file.write(str(target[0] if isinstance(target, tuple) else target) + chr(10))
sys.addaudithook(spy)
"""


@dataclass
class World:
    """A federation of three sites that is up."""

    sites: Consortium
    hub: Path
    kits: Path
    port: int
    federation: Federation
    asked: Path

    def sent(self) -> int:
        """How many messages the hub holds."""
        with HubLog(self.hub / layout.HUB_LOG) as log:
            return len(log.messages(self.sites.plan.run))


def settle(sites: Consortium, folder: Path) -> dict[str, Path]:
    """Each site's files, as its settings want them."""
    found = {}
    for i, name in enumerate(sites.plan.names):
        home = folder / name
        home.mkdir(parents=True)
        signed = sites.rows.rows_of_node(i).signed[0]
        y = np.where(np.arange(len(signed)) % 2, 1.0, -1.0)
        write_rows(home / "rows", [(0, signed * y[:, None], y)])
        write_plan_file(sites.plan, home / "plan.json")
        sites.keys[name].write(home / "signing")
        sites.folder = home
        sites.ledger(name).close()
        found[name] = home / "site.toml"
        found[name].write_text(
            f'name = "{name}"\nplan = "plan.json"\nledger = "{name}.ledger"\n'
            '[data]\nfile = "rows"\n[keys]\nsigning = "signing"\n'
        )
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("federation")
    sites, hub, port, spy = (
        consortium(folder / "sites"),
        folder / "hub",
        find_free_port(),
        folder / "spy",
    )
    hub.mkdir()
    spy.mkdir()
    (spy / "sitecustomize.py").write_text(_SPY.format(path=str(folder / "asked")))
    write_plan_file(sites.plan, hub / layout.PLAN_FILE)
    kits = make_startup_kits(
        describe_project(sites.plan, SERVER, port, store=folder / "store"), folder / "kits"
    )
    (kits / SERVER / "local" / layout.HUB_FOLDER).symlink_to(hub)
    for name, path in settle(sites, folder / "homes").items():
        (kits / name / "local" / layout.SITE_FILE).symlink_to(path)
    with Federation(kits, NAMES, {"PYTHONPATH": str(spy)}) as federation:
        yield World(sites, hub, kits, port, federation, folder / "asked")
    assert not federation.process_numbers_of()


def ended(world: World, job: Path) -> str:
    """Hand a job in, and say how it ended."""
    session = open_session(world.kits / SUPERVISOR, 60.0)
    try:
        name = session.submit_job(str(job))
        for _ in range(600):
            status = session.get_job_status(name)
            if status is not None and status.startswith("FINISHED"):
                return status
            time.sleep(0.2)
        raise AssertionError(f"the job has not ended: {status}")
    finally:
        with suppress(Exception):
            session.close()


def logs(world: World) -> str:
    return "".join(
        file.read_text() for name in ("log.txt", "console.txt") for file in world.kits.rglob(name)
    )


def test_every_kit_has_the_hardened_policies(world: World) -> None:
    for name in (SERVER, *NAMES):
        local = world.kits / name / "local"
        assert not list(local.glob("resources.json.default")) and not list(
            local.glob("authorization.json.default")
        )
        rights = json.loads((local / "authorization.json").read_text())["permissions"]
        assert all(role.get("byoc", "none") == "none" for role in rights.values())
        assert all(role.get("shell_commands", "none") == "none" for role in rights.values())
        resources = json.loads((local / "resources.json").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert all(entry.startswith("sottovoce.") for entry in resources["class_allow_list"])
        assert (
            json.loads((local / "comm_config.json").read_text())["internal"]["resources"]["secure"]
            is True
        )
        if name != SERVER:
            assert resources["allow_log_streaming"] is False
    assert "/tmp/nvflare" not in (world.kits / SERVER / "local" / "resources.json").read_text()


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("local/resources.json", "class_allow_list", ["*"]),
        ("local/authorization.json", "permissions", {"lead": "any"}),
        ("local/comm_config.json", "internal", {}),
        ("startup/fed_client.json", "client", {"connection_security": "tls"}),
    ],
)
def test_a_loosened_kit_is_found(
    world: World, tmp_path: Path, file: str, key: str, value: object
) -> None:
    kit = tmp_path / "north"
    for folder in ("local", "startup"):
        shutil.copytree(world.kits / "north" / folder, kit / folder, symlinks=True)
    check_startup_kit(kit)
    (kit / file).write_text(json.dumps(json.loads((kit / file).read_text()) | {key: value}))
    with pytest.raises(InvalidInput, match=re.escape(file)):
        check_startup_kit(kit)
    (kit / file).unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        check_startup_kit(kit)


def test_a_job_that_ships_code_is_refused(world: World, tmp_path: Path) -> None:
    job, canary, before = (
        write_job_folder(tmp_path / "trial", world.sites.plan),
        tmp_path / "ran",
        world.sent(),
    )
    for app in ("hub", "site"):
        custom = job / app / "custom"
        custom.mkdir()
        (custom / "sottovoce_extra.py").write_text(f"open({str(canary)!r}, 'w').close()\n")
        (custom / "sitecustomize.py").write_text(f"open({str(canary)!r}, 'w').close()\n")
    assert ended(world, job) != "FINISHED:COMPLETED"
    assert "BYOC not permitted" in logs(world)
    assert not canary.exists() and world.sent() == before


def test_a_job_that_names_another_class_is_refused(world: World, tmp_path: Path) -> None:
    job, before = write_job_folder(tmp_path / "trial", world.sites.plan), world.sent()
    path = "sottovoce.ledger.durable.DurableLedger"  # not even another one of ours
    file = job / "site/config/config_fed_client.json"
    config = json.loads(file.read_text())
    config["components"] = [{"id": "extra", "path": path, "args": {}}]
    file.write_text(json.dumps(config))
    assert ended(world, job) != "FINISHED:COMPLETED"
    assert f"Component {path!r} at" in logs(world) and world.sent() == before


def answered(context: ssl.SSLContext, plain: socket.socket) -> bytes:
    """What the other side says after the handshake; nothing if it refuses."""
    try:
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(b"hello")
            return secure.recv(1)
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.mark.parametrize("certificate", [None, "self-signed"])
def test_the_hub_answers_nobody_without_a_certificate_of_the_federation(
    world: World, tmp_path: Path, certificate: str | None
) -> None:
    context = ssl.create_default_context(cafile=str(world.kits / SERVER / "startup" / "rootCA.pem"))
    context.check_hostname = False
    if certificate is not None:
        authority = certificates.Authority.make(tmp_path)
        certificates.write_certificate_request(tmp_path, "north")
        (tmp_path / "north.crt").write_bytes(
            authority.sign_site_request((tmp_path / "north.csr").read_bytes())[1]
        )
        context.load_cert_chain(tmp_path / "north.crt", tmp_path / "north.key")
    with socket.create_connection(("127.0.0.1", world.port), timeout=10.0) as plain:
        assert not answered(context, plain)


def test_a_valid_certificate_under_another_name_is_refused(world: World, tmp_path: Path) -> None:
    impostor = tmp_path / "east"
    shutil.copytree(
        world.kits / "east", impostor, symlinks=True, ignore=shutil.ignore_patterns("*.txt", "*.fl")
    )
    for file in ("client.crt", "client.key"):
        shutil.copy(world.kits / "north" / "startup" / file, impostor / "startup" / file)
    (impostor / "local" / layout.SITE_FILE).unlink()
    refused, until = "authenticated as 'north' but claimed endpoint 'east'", time.monotonic() + 60.0
    with Federation(tmp_path, ("east",), server=False):
        while refused not in logs(world):
            assert time.monotonic() < until, "the impostor was not refused"
            time.sleep(0.5)


def test_a_run_of_real_processes(world: World, tmp_path: Path) -> None:
    plan, kit = world.sites.plan, world.kits / SUPERVISOR
    other = consortium(tmp_path / "other", seed=4)  # a plan that the sites do not have
    (tmp_path / "hub").mkdir()
    write_plan_file(other.plan, tmp_path / "hub" / layout.PLAN_FILE)
    link = world.kits / SERVER / "local" / layout.HUB_FOLDER
    link.unlink()
    link.symlink_to(tmp_path / "hub")
    with pytest.raises(Refused, match="1 more jobs") as caught:
        Supervisor(kit, tmp_path / "hub", tries=1).run()
    _, _, last_failure = str(caught.value).partition("; ")
    assert "Refused" in last_failure and "another plan" in last_failure
    link.unlink()
    link.symlink_to(world.hub)
    session = open_session(kit, 60.0)  # of a supervisor that was killed: its job is left over
    session.submit_job(str(write_job_folder(tmp_path / plan.run, plan)))
    session.close()
    supervisor = Supervisor(kit, world.hub)
    supervisor.run()
    assert len(supervisor.jobs) == 1
    twin = consortium(tmp_path / "twin")
    with HubLog(tmp_path / "twin.log") as log:
        finished = twin.run_locally(log)
    with HubLog(world.hub / layout.HUB_LOG) as log:
        models = Hub(plan, log).results.models()
    assert models is not None
    np.testing.assert_array_equal(models, [finished[name].model for name in plan.names])
    created = re.findall(r"Connection \[CN\d+ (.*?)\] is created", logs(world))
    assert created and all("SSL" in connection for connection in created)
    # Nobody's name is looked up.  To learn its own address NVFlare "connects" a datagram socket,
    # which sends nothing.
    assert set(world.asked.read_text().split()) <= {
        "localhost",
        "127.0.0.1",
        "::1",
        "10.255.255.255",
    }
    for name in NAMES:
        home = (world.kits / name / "local" / layout.SITE_FILE).resolve().parent
        known = json.loads((home / f"{name}.known").read_text())
        assert known["run"] == plan.run and known["keys"] == {
            s.name: s.key for s in plan.sites if s.name != name
        }
    before = world.sent()
    # complete already: sites repeat themselves, and nothing is added
    Supervisor(kit, world.hub).run()
    assert world.sent() == before


def test_a_run_that_the_hub_ended_has_an_exit_code_of_its_own(world: World, tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites", seed=5)
    hub = tmp_path / "hub"
    hub.mkdir()
    write_plan_file(sites.plan, hub / layout.PLAN_FILE)
    with HubLog(hub / layout.HUB_LOG) as log:
        log.decisions.record_end_of_run(sites.plan.run)
    links = {world.kits / SERVER / "local" / layout.HUB_FOLDER: hub} | {
        world.kits / name / "local" / layout.SITE_FILE: path
        for name, path in settle(sites, tmp_path / "homes").items()
    }
    before = {link: link.resolve() for link in links}
    try:
        for link, path in links.items():
            link.unlink()
            link.symlink_to(path)
        command = [
            sys.executable,
            "-m",
            "sottovoce.deploy.nvflare",
            "supervise",
            str(world.kits / SUPERVISOR),
            str(hub),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    finally:
        for link, path in before.items():
            link.unlink()
            link.symlink_to(path)
    assert ran.returncode == 4 and "the hub ended" in ran.stderr.splitlines()[-1], ran.stderr
    for name in NAMES:
        done = json.loads((tmp_path / "homes" / name / f"{name}.json").read_text())
        assert (done["stopped"], done["rounds"], done["spent"]) == (HUB, 0, 0.0)
        assert "seconds" in done  # of a demonstration
        assert json.loads((tmp_path / "homes" / name / f"{name}.known").read_text())["keys"] == {}


def test_a_supervisor_needs_its_own_kit(world: World) -> None:
    with pytest.raises(InvalidInput, match="supervisor's startup kit"):
        Supervisor(world.kits / "north", world.hub)


@pytest.mark.parametrize(("port", "store", "field"), [(0, "/s", "port"), (8002, "s", "store")])
def test_invalid_project_descriptions_are_refused(
    tmp_path: Path, port: int, store: str, field: str
) -> None:
    with pytest.raises(InvalidInput, match=field):
        describe_project(consortium(tmp_path).plan, SERVER, port, store=store)


def test_a_server_name_that_nvflare_refuses(tmp_path: Path) -> None:
    description = describe_project(consortium(tmp_path).plan, "no host name", 8002, store=tmp_path)
    with pytest.raises(InvalidInput, match="NVFlare refuses it"):
        make_startup_kits(description, tmp_path / "kits")


def test_the_project_file_is_that_of_nvflare(tmp_path: Path) -> None:
    from nvflare.lighter.utils import load_yaml

    description = describe_project(consortium(tmp_path).plan, SERVER, 8002, store=tmp_path)
    write_project(tmp_path / "project.yml", description)
    assert load_yaml(str(tmp_path / "project.yml")) == description


def test_a_demonstration_equals_the_run_in_one_process(tmp_path: Path) -> None:
    config = RunConfig(method="prox_admm", rounds=3, epsilon=1.0, delta=1e-5, graph="ring", seed=1)
    stage, ticks = demonstration.build_demonstration(tmp_path / "stage", config, 3), list[int]()
    run_demonstration(stage, lambda: ticks.append(1))
    report = demonstration.compare_with_simulation(stage, "nvflare", 0.0)
    assert report["difference"] == 0.0 and report["rounds"] == 3 and ticks
    assert not Federation(
        stage.folder / "nvflare" / "federation" / "sottovoce" / "prod_00", stage.plan.names
    ).process_numbers_of()
