"""``hub invite`` and ``site join``: the six commands of docs/deploy, and what a man in the
middle gets.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import Call
from person_at_terminal import Person

from sottovoce.deploy.certificates import Authority
from sottovoce.deploy.demonstration import find_free_port
from sottovoce.deploy.invitation import (
    Answer,
    Invitation,
    comparison_code,
    matches_code,
    plan_comparison_code,
)
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.ledger.durable import DurableLedger

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

PAGE = (Path(__file__).parents[2] / "docs/deploy/index.md").read_text()
PAGE = PAGE[PAGE.index("## From nothing to a run") : PAGE.index("## How a run goes on")]
COMMANDS = [
    line.split("$ sottovoce ", 1)
    for block in re.findall(r"```console\n(.*?)```", PAGE, flags=re.S)
    for line in block.replace("\\\n", " ").splitlines()
]
NAMES = ("north", "east", "south")


def test_six_commands_and_six_files_of_the_page_lead_to_three_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = find_free_port()
    monkeypatch.chdir(tmp_path)
    tables, schema = (
        re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.S)[0] for kind in ("python", "toml")
    )
    exec(compile(tables, "page", "exec"), {})
    office = tmp_path / "office"
    office.mkdir()
    (office / "schema.toml").write_text(schema)
    sent = []

    def send(file: Path, to: Path) -> None:
        shutil.copy(file, to)
        sent.append(file.name)

    def command(k: int) -> Person:
        who, text = COMMANDS[k]
        for place in ("hub.example.org:8443", "0.0.0.0:8443"):
            text = text.replace(place, f"localhost:{port}")
        return Person(office if who == "hub" else tmp_path / who, text)

    assert [who for who, _ in COMMANDS] == ["hub", *NAMES, "hub", "hub"]
    command(0).ends()
    for name in NAMES:
        send(office / "hub" / f"{name}.invite", tmp_path / name)
    sites = dict(zip(NAMES, map(command, (1, 2, 3)), strict=True))
    codes = {}
    for name, person in sites.items():
        codes[name] = person.reads("this code: (.*)\n")
        person.reads("waits for the hub")
        send(tmp_path / name / name / f"{name}.joined", office)
    planner = command(4)
    planner.ends()
    agreed = planner.reads("telephone: (.*)\n")
    hub = command(5)
    for name in NAMES:
        hub.reads(f"{name}: the code")
        hub.types(codes[name].replace("-", " ").lower())  # as somebody types what was heard
    for person in sites.values():
        person.reads("this run will take")
        person.reads("type the plan's code")
        person.types(agreed)
    for person in (*sites.values(), hub):
        person.ends()
    assert len(sent) == 6
    plan = read_plan_file(office / "hub/plan.json")
    for name in NAMES:
        page = (tmp_path / name / name / f"{name}.html").read_text()
        assert f"Site {name}" in page and "held-out" in page
        summary = json.loads((tmp_path / name / name / f"{name}.json").read_text())
        assert summary["plan"] == plan.digest and summary["privacy"]["release"]
        assert f'agreed = "{plan.digest}"' in (tmp_path / name / name / "site.toml").read_text()
    assert (office / "hub/hub.html").exists()
    # a second run: two commands at the hub, one at each site, and no file is sent
    Person(
        office, COMMANDS[4][1].replace("trial-1", "trial-2").replace("--rounds 30", "--rounds 3")
    ).ends()
    agreed = plan_comparison_code(read_plan_file(office / "hub/plan.json").digest)
    hub = Person(office, f"hub run hub --listen localhost:{port} --once")
    sites = {
        name: Person(tmp_path / name, f"site join {name}.invite --wait --plan-code {agreed}")
        for name in NAMES
    }
    for person in (*sites.values(), hub):
        person.ends()
    for name in NAMES:
        assert json.loads((tmp_path / name / name / f"{name}.json").read_text())["run"] == "trial-2"
        assert (tmp_path / name / name / f"{name}.trial-1.json").exists()


@pytest.fixture
def invited(run: Call, tmp_path: Path) -> tuple[Invitation, Answer]:
    """North, invited and joined."""
    made, schema = (
        re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.S)[0] for kind in ("python", "toml")
    )
    exec(compile(made, "page", "exec"), {})
    Path("schema.toml").write_text(schema)
    assert (
        run("hub", "invite", "north", "--host", "hub.example.org", "--schema", "schema.toml").code
        == 0
    )
    joined = run(
        "site",
        "join",
        "hub/north.invite",
        "--data",
        "north/rows.csv",
        "--folder",
        "site",
        "--epsilon",
        "2",
        "--delta",
        "1e-5",
    )
    budget = re.search(r"epsilon ([^,;]+), delta ([^,;]+)", joined.out)
    assert joined.code == 0 and budget is not None and budget.groups() == ("2", "1e-05")
    answer = Answer.read(Path("site/north.joined"))
    assert answer.comparison_code in joined.out
    return Invitation.read(Path("hub/north.invite")), answer


def test_a_joined_site_has_what_it_needs(run: Call, invited: tuple[Invitation, Answer]) -> None:
    # the same command goes on, and tells the code again
    again = run("site", "join", "hub/north.invite", "--folder", "site")
    assert again.code == 0 and invited[1].comparison_code in again.out
    with DurableLedger.open("site/north.ledger") as ledger:
        assert float(ledger.epsilon[0]) == 2.0
    assert invited[1].member.key == SigningKey.read("site/north.signing").public
    assert oct(Path("hub/north.invite").stat().st_mode)[-3:] == "600"
    second = run(
        *("site", "join", "hub/north.invite", "--data", "north/rows.csv", "--folder", "other"),
        *("--epsilon", "2", "--delta", "1e-5"),
    )
    assert second.code == 2 and "second budget" in second.err
    admitted = run(
        "hub", "admit", "hub", "site/north.joined", "--code", f"north={invited[1].comparison_code}"
    )
    assert admitted.code == 0 and Path("hub/north.crt").exists()


@pytest.mark.parametrize("changed", ["key", "request", "rows", "name", "invitation"])
def test_an_answer_that_was_changed_on_its_way_is_not_admitted(
    run: Call, invited: tuple[Invitation, Answer], changed: str
) -> None:
    plain = json.loads(Path("site/north.joined").read_text())
    elsewhere = {
        "key": SigningKey.make().public,
        "rows": 1999,
        "name": "north2",
        "invitation": "0" * 64,
    }
    assert (
        run("hub", "invite", "north2").code == 0
        and Invitation.read(Path("hub/north2.invite")).hub == invited[0].hub
    )
    if changed == "request":
        from sottovoce.deploy.certificates import write_certificate_request

        Path("thief").mkdir()
        write_certificate_request(Path("thief"), "north")
        elsewhere["request"] = Path("thief/north.csr").read_text()
    Path("forged.joined").write_text(json.dumps(plain | {changed: elsewhere[changed]}))
    refused = run(
        "hub",
        "admit",
        "hub",
        "forged.joined",
        "--code",
        f"north={invited[1].comparison_code}",
        "--code",
        "north2=0",
    )
    assert (
        refused.code == 2
        and not Path("hub/north.crt").exists()
        and not Path("hub/north2.crt").exists()
    )
    changes_code = changed in ("key", "request", "rows")
    assert ("not the code" if changes_code else "another invitation") in refused.err


def test_an_invitation_that_was_changed_on_its_way_is_noticed(
    run: Call, invited: tuple[Invitation, Answer]
) -> None:
    """The man in the middle has an authority of his own, and answers the hub for the site as
    well as he can.
    """
    honest = invited[0]
    Path("middle").mkdir()
    Authority.make(Path("middle"))
    Path("bad.invite").write_text(
        Invitation(
            **(
                vars(honest)
                | {"authority": Path("middle/ca.crt").read_text(), "hub": "evil.example:1"}
            )
        ).text()
    )
    shutil.rmtree("site")
    joined = run(
        *("site", "join", "bad.invite", "--data", "north/rows.csv", "--folder", "site"),
        *("--epsilon", "3", "--delta", "1e-5"),
    )
    heard = Answer.read(Path("site/north.joined")).comparison_code
    assert heard in joined.out
    passed = run("hub", "admit", "hub", "site/north.joined", "--code", f"north={heard}")
    assert passed.code == 2 and "another invitation" in passed.err
    plain = json.loads(Path("site/north.joined").read_text()) | {"invitation": honest.digest}
    Path("forged.joined").write_text(json.dumps(plain))
    forged = run("hub", "admit", "hub", "forged.joined", "--code", f"north={heard}")
    assert forged.code == 2 and "not the code" in forged.err and not Path("hub/north.crt").exists()


def test_codes_are_typed_in_any_way_and_differ_in_every_bit() -> None:
    code = comparison_code(b"public")
    assert re.fullmatch("([0-9A-HJKMNP-TV-Z]{4}-){2}[0-9A-HJKMNP-TV-Z]{4}", code)
    assert matches_code(code.lower().replace("-", " "), code) and matches_code(
        code.replace("0", "O").replace("1", "l"), code
    )
    assert not matches_code(code[:-1], code) and not matches_code(
        code[:-1] + ("A" if code[-1] != "A" else "B"), code
    )
    assert len(plan_comparison_code("a").split("-")) == 5 and plan_comparison_code(
        "a"
    ) != plan_comparison_code("b")


def test_an_invitation_opens_what_is_public_and_nothing_else(
    run: Call, invited: tuple[Invitation, Answer], tmp_path: Path
) -> None:
    import grpc

    from sottovoce.cli.serving import files_for_invited_site
    from sottovoce.deploy.hub import Hub
    from sottovoce.deploy.hublog import HubLog
    from sottovoce.deploy.relay import Credentials, start_relay

    wrote = run(
        "plan",
        "--write",
        "hub/plan.json",
        "--run",
        "r",
        "--schema",
        "schema.toml",
        "--site",
        "site/north.joined",
        "--site",
        _second(run),
        "--method",
        "prox_admm",
        "--rounds",
        "2",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--json",
    ).json
    assert wrote["code"] == plan_comparison_code(wrote["digest"])
    assert (
        run(
            "hub",
            "admit",
            "hub",
            "site/north.joined",
            "--code",
            f"north={invited[1].comparison_code}",
        ).code
        == 0
    )
    one, hub = invited[0], Path("hub")
    with HubLog("hub/hub.log") as log:
        plan = read_plan_file("hub/plan.json")
        refusals: list[tuple[str, str]] = []
        server, port = start_relay(
            Hub(plan, log),
            Credentials(hub / "ca.crt", hub / "hub.crt", hub / "hub.key"),
            "localhost:0",
            lambda *told: refusals.append(told),
            welcome=lambda name: files_for_invited_site(hub, name),
        )
        own = (one.authority.encode(), one.certificate.encode(), one.key.encode())
        options = [("grpc.ssl_target_name_override", "hub.example.org")]
        with grpc.secure_channel(
            f"localhost:{port}", grpc.ssl_channel_credentials(own[0], own[2], own[1]), options
        ) as channel:
            for method in ("highest", "exchange", "leave"):
                with pytest.raises(grpc.RpcError):
                    channel.unary_unary(f"/sottovoce.Relay/{method}")(
                        json.dumps(
                            {
                                "run": "r",
                                "plan": plan.digest,
                                "round": 0,
                                "message": "",
                                "farewell": "",
                            }
                        ).encode()
                    )
            given = json.loads(channel.unary_unary("/sottovoce.Relay/welcome")(b"{}"))
        assert given["certificate"] == (hub / "north.crt").read_text() and set(given) == {
            "certificate",
            "plan",
        }
        (who, why), *_ = refusals
        assert who == "invitation of north" and why.startswith(f"site={who!r}: ")
        assert "not a site" in why
        server.stop(0).wait()


def _second(run: Call) -> str:
    assert run("hub", "invite", "east").code == 0
    assert (
        run(
            "site",
            "join",
            "hub/east.invite",
            "--data",
            "east/rows.csv",
            "--folder",
            "site2",
            "--schema",
            "schema.toml",
            "--epsilon",
            "3",
            "--delta",
            "1e-5",
        ).code
        == 0
    )
    return "site2/east.joined"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("hub", "invite", "north", "--folder", "h"), "--host hub.example.org"),
        (
            ("hub", "invite", "ca", "--host", "h.example"),
            "own files",
        ),
        (("hub", "invite", "a", "A", "--host", "h.example", "--folder", "h"), "is given twice"),
        (("hub", "invite", "north", "--host", "other.example"), "is not in the hub's certificate"),
        (("hub", "invite", "north"), "was invited or admitted before"),
        (("hub", "invite", "west", "--epsilon", "0"), "must be above 0"),
        (("hub", "admit", "hub", "site/north.joined", "--code", "north"), "must be NAME=CODE"),
        (
            ("hub", "admit", "hub", "site/north.joined", *("--code", "north=0") * 2),
            "given twice for north",
        ),
        (("site", "join", "schema.toml", "--data", "north/rows.csv"), "not an invitation"),
        (("site", "join", "hub/north.invite", "--folder", "hub2"), "--data rows.csv"),
        (
            (
                "plan",
                "--write",
                "p.json",
                "--run",
                "r",
                "--schema",
                "schema.toml",
                "--site",
                "bad.joined",
            ),
            "joined",
        ),
    ],
)
def test_wrong_invitations_and_answers_are_refused_in_one_line(
    run: Call, invited: tuple[Invitation, Answer], words: tuple[str, ...], why: str
) -> None:
    Path("bad.joined").write_text("{}")
    refused = run(*words)
    assert refused.code == 2 and why in refused.err and len(refused.err.splitlines()) == 1
