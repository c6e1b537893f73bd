"""Names that could stand for another file, and files that a name must not write over."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sites_in_tests import Consortium, consortium, rewrite

from sottovoce.cli import main
from sottovoce.deploy import certificates
from sottovoce.deploy.members import Member
from sottovoce.deploy.names import check_run_name, check_site_name
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.deploy.report import put_other_results_aside, run_in_the_way, write_summary
from sottovoce.deploy.settings import SiteSettings, write_settings
from sottovoce.errors import InvalidInput

pytest.importorskip("cryptography")

KEY = "A" * 42 + "8="
TAKEN = (
    "ca",
    "CA",
    "hub",
    "Hub",
    "plan",
    "PLAN",
    "site",
    "rows",
    "errors",
    "renewal",
    "server",
    "ca.2",
    "hub.trial",
)
DEVICES = ("con", "NUL", "aux.txt", "Com1", "lpt9.x", "prn")
UNFIT = (
    "",
    ".",
    "..",
    ".north",
    "-north",
    "_north",
    "north.",
    "../north",
    "a/b",
    "a\\b",
    "a b",
    "a\n",
    "a\x00",
    "a\x1b[2J",
    "a" * 64,
    "nörth",
    "a:b",
    "a\u2215b",
)
FIT = (
    "north",
    "North-1",
    "a",
    "0",
    "a" * 63,
    "caen",
    "hubert",
    "plan-b",
    "north.2",
    "x_y.z-0",
    "console",
    "com",
    "lpt10",
)


@pytest.mark.parametrize("name", [*TAKEN, *DEVICES, *UNFIT])
@pytest.mark.parametrize(
    "use",
    [
        lambda name, folder: check_site_name("name", name),
        lambda name, folder: Member(name, 10, KEY),
        lambda name, folder: certificates.write_certificate_request(folder, name),
        lambda name, folder: SiteSettings.read(
            write_settings(folder, name, "h:1", Path("rows.csv"))
        ),
        lambda name, folder: main(
            [
                "site",
                "init",
                str(folder / "new"),
                "--name",
                name,
                "--hub",
                "h:1",
                "--data",
                "x.csv",
                "--schema",
                "s",
                "--epsilon",
                "1",
            ]
        ),
    ],
    ids=["check", "plan", "request", "settings", "init"],
)
def test_invalid_site_name_is_refused(
    tmp_path: Path,
    name: str,
    use: Callable[[str, Path], object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises((InvalidInput, SystemExit)) as caught:
        use(name, tmp_path)
    said = str(caught.value)
    if isinstance(caught.value, SystemExit):
        said = capsys.readouterr().err.removeprefix("error: ").removesuffix("\n")
        assert caught.value.code == 2
    assert said.startswith("name") and "'north-1'" in said and said.isprintable(), said
    assert [path.name for path in tmp_path.iterdir()] in ([], ["site.toml"])


@pytest.mark.parametrize("name", FIT)
def test_valid_site_name_is_accepted(name: str) -> None:
    check_site_name("name", name)
    check_run_name("run", name)


def test_a_request_for_a_taken_name_is_not_signed(tmp_path: Path) -> None:
    authority = certificates.Authority.make(tmp_path)
    before = (tmp_path / "ca.crt").read_bytes()
    for name in ("ca", "HUB", "plan", "a/b", "con"):
        with pytest.raises(InvalidInput, match="request"):
            authority.sign_site_request(asking_for(name))
    assert (tmp_path / "ca.crt").read_bytes() == before


def asking_for(name: str) -> bytes:
    """A sound request that no command of ours would make."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    key = certificates._generate_tls_key()
    asked = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(certificates._common_name(name))
        .sign(key, SHA256())
    )
    return certificates._to_pem(asked)


def said_by(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    try:
        main([str(argument) for argument in arguments])
        found = 0
    except SystemExit as stop:
        found = int(stop.code or 0)
    said = capsys.readouterr()
    assert found == code, said
    assert code == 0 or said.err.count("\n") == 1, said.err
    return said.out + said.err


def test_admission_writes_over_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub = tmp_path / "hub"
    said_by(capsys, 0, "hub", "init", hub, "--host", "127.0.0.1")
    for name in ("north", "North", "east"):
        (tmp_path / f"{name}-1.csr").write_bytes(asking_for(name))
    for name in ("ca", "Hub"):
        (tmp_path / f"{name}.csr").write_bytes(asking_for(name))
    before = {path.name: path.read_bytes() for path in hub.iterdir()}
    for requests in (
        ["ca.csr"],
        ["Hub.csr"],
        ["east-1.csr", "ca.csr"],
        ["north-1.csr", "North-1.csr"],
        ["none.csr"],
    ):
        said_by(capsys, 2, "hub", "admit", hub, *(tmp_path / request for request in requests))
        # all requests, or none
        assert {path.name: path.read_bytes() for path in hub.iterdir()} == before
    said_by(capsys, 0, "hub", "admit", hub, tmp_path / "north-1.csr", tmp_path / "east-1.csr")
    first = (hub / "north.crt").read_bytes()
    for again in ("north-1.csr", "North-1.csr"):
        assert "use --renew" in said_by(capsys, 2, "hub", "admit", hub, tmp_path / again)
    said_by(capsys, 0, "hub", "admit", hub, "--renew", tmp_path / "north-1.csr")
    assert "remove it" in said_by(
        capsys, 2, "hub", "admit", hub, "--renew", tmp_path / "north-1.csr"
    )
    assert (hub / "north.crt").read_bytes() == first != (hub / "renewal" / "north.crt").read_bytes()
    assert {name: (hub / name).read_bytes() for name in before} == before
    (hub / "ca.key").rename(tmp_path / "ca.key")  # kept elsewhere between admissions
    said_by(capsys, 2, "hub", "init", hub, "--host", "127.0.0.1")
    assert {
        name: (hub / name).read_bytes() for name in before if name != "ca.key"
    }.items() <= before.items()
    assert not (hub / "ca.key").exists()


@pytest.mark.parametrize(
    "there", ["north.key", "north.csr", "north.signing", "north.public.json", "north.ledger"]
)
def test_a_site_is_made_in_a_folder_without_files_of_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    (tmp_path / "rows.csv").write_text("age,ill\n" + "30,yes\n60,no\n" * 5)
    (tmp_path / "s.toml").write_text(
        'label = {column = "ill", positive = "yes", negative = '
        '"no"}\n[columns.age]\nkind="number"\nlo=0\nhi=100\n'
    )
    folder = tmp_path / "north"
    folder.mkdir()
    (folder / there).write_text("somebody's")
    options = ("--data", tmp_path / "rows.csv", "--schema", tmp_path / "s.toml", "--epsilon", 1)
    said = said_by(capsys, 2, "site", "init", folder, "--name", "north", "--hub", "h:1", *options)
    assert there in said and "exists" in said
    assert {path.name: path.read_text() for path in folder.iterdir()} == {there: "somebody's"}
    (folder / there).unlink()
    said_by(capsys, 0, "site", "init", folder, "--name", "north", "--hub", "h:1", *options)
    secret = {path.name for path in folder.iterdir() if path.stat().st_mode & 0o077 == 0}
    assert secret == {"north.key", "north.signing", "north.ledger"}


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    return consortium(tmp_path / "sites")


def test_names_equal_without_case_are_refused(sites: Consortium) -> None:
    first, second, third = sites.plan.sites
    with pytest.raises(InvalidInput, match="sites='North': must differ"):
        replace(sites.plan, sites=(first, replace(second, name="North"), third))


def test_a_run_is_not_called_like_a_sites_public_file(sites: Consortium) -> None:
    for name in ("public", "Public", "public.1", "nul", "", "a/b"):
        with pytest.raises(InvalidInput, match="run"):
            replace(sites.plan, run=name)


def test_results_of_another_run_are_kept_under_names_that_are_free(
    sites: Consortium, tmp_path: Path
) -> None:
    stem = tmp_path / "north"

    def results(run: str, plan: str) -> None:
        for ending in ("html", "npz"):
            (tmp_path / f"north.{ending}").write_text(f"{run} {plan}")
        write_summary(stem, {"run": run, "plan": plan})

    for plan in ("first", "second", "third"):
        results("one", plan)
        put_other_results_aside(stem, sites.plan)
    assert [(tmp_path / f"north.{run}.npz").read_text() for run in ("one", "one-2", "one-3")] == [
        "one first",
        "one second",
        "one third",
    ]
    results("trial", sites.plan.digest)
    put_other_results_aside(stem, sites.plan)
    assert (tmp_path / "north.npz").exists()
    for content in (
        '{"run": "../../x"}',
        '{"run": "public"}',
        "[]",
        "not JSON",
        '{"run": 3}',
        "[" * 100_000,
    ):
        (tmp_path / "north.json").write_text(content)
        with pytest.raises(InvalidInput, match=r"^results="):
            run_in_the_way(stem, sites.plan)
    assert json.loads((tmp_path / "north.one.json").read_text())["plan"] == "first"


def test_plan_with_reserved_site_name_is_refused(sites: Consortium, tmp_path: Path) -> None:
    for name in ("hub", "ca", "../x", "con", "plan"):
        text = json.dumps(sites.plan.to_dict()).replace('"north"', json.dumps(name))
        rewrite(tmp_path / "plan.json", json.loads(text))
        with pytest.raises(InvalidInput, match=f"name='{name}'"):
            read_plan_file(tmp_path / "plan.json")
