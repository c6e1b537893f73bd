"""Numbers in a plan that no run can mean are refused by their names, before arithmetic meets them;
a certificate that begins later says that clocks differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sites_in_tests import Consortium, consortium

from sottovoce.deploy import certificates
from sottovoce.deploy.certificates import check_tls_files
from sottovoce.deploy.plan import digest_of_plan
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.waits import Waits
from sottovoce.errors import InvalidInput, SottovoceError


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    folder = tmp_path_factory.mktemp("sites")
    return consortium(folder, delta=1e-5, method="prox_admm", epsilon=2.0)


def write_changed(path: Path, plain: dict[str, Any], place: str, value: object) -> None:
    """Write a plan with another value at a place, under the digest that is right for it."""
    changed = json.loads(json.dumps(plain))
    *names, last = place.split(".")
    inner = changed
    for name in names:
        inner = inner[name]
    inner[last] = value
    path.write_text(json.dumps(changed | {"digest": digest_of_plan(changed)}))


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("config.noise.growth", 1e308, "config.noise.growth"),
        ("config.noise.growth", 1e-90, "config.noise"),
        ("config.noise.growth", 1e90, "config.noise"),
        ("config.noise.start", 5e-324, "config.noise.start"),
        ("config.eta.factor", 1e308, "config.eta.factor"),
        ("config.noise_growth", -1.0, "config.noise_growth"),
        ("config.delta", 0.5, "config.delta"),
        ("config.epsilon", 1e18, "config.epsilon"),
        ("config.epsilon", True, "epsilon"),
        ("config.rounds", True, "rounds"),
        ("config.noise.start", True, "start"),
        ("waits.deadline", 1e-320, "waits.deadline"),
        ("waits.deadline", True, "deadline"),
        ("waits.deadline", 1e-9, "deadline"),
        ("norm_cap", 1e308, "norm_cap"),
        ("edges", [[False, True], [1, 2]], "edges"),
    ],
)
def test_senseless_numbers_of_a_plan_are_refused_by_name(
    noisy: Consortium, tmp_path: Path, place: str, value: object, named: str
) -> None:
    plain, path = noisy.plan.to_dict(), tmp_path / "plan.json"
    write_changed(path, plain, place, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidInput) as caught:
            read_plan_file(path)
    assert caught.value.field == named and str(caught.value).count("\n") == 0


def test_a_plan_that_is_read_is_priced_without_warnings(noisy: Consortium, tmp_path: Path) -> None:
    """Each number of the plan's configuration replaced: refused, or its price is computed in
    silence.
    """
    plain, path = noisy.plan.to_dict(), tmp_path / "plan.json"
    places = [
        f"config.{name}" for name, one in plain["config"].items() if isinstance(one, int | float)
    ]
    places += [f"config.{one}.{part}" for one in ("eta", "noise") for part in ("start", "growth")]
    refused = 0
    for place in places:
        for value in (1e308, 1e99, 1e18, 0.5, 0.0, -1.0, 1e-99, 1e-320, True):
            write_changed(path, plain, place, value)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    assert read_plan_file(path).planned_privacy.statement.epsilon >= 0.0
                except SottovoceError:
                    refused += 1
    assert len(places) > 10 and refused > 5 * len(places)


def test_a_plan_with_senseless_numbers_is_not_written(noisy: Consortium, tmp_path: Path) -> None:
    from dataclasses import replace

    plan = replace(noisy.plan, config=noisy.plan.config.but(delta=0.5))
    with pytest.raises(InvalidInput, match=r"^config\.delta=0\.5: "):
        write_plan_file(plan, tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()
    for seconds in (1e-320, 1e-4):
        with pytest.raises(InvalidInput, match=r"^deadline="):
            Waits(seconds, 600.0)


def test_a_certificate_that_begins_later_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography")
    day = timedelta(days=1)

    class Clock(datetime):
        """A clock that is a day ahead, as the hub's is when it signs."""

        ahead = day

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + cls.ahead

    monkeypatch.setattr(certificates, "datetime", Clock)
    authority = certificates.Authority.make(tmp_path)
    authority.write_hub_certificate(tmp_path, ["localhost"])
    files = [(tmp_path / name).read_bytes() for name in ("ca.crt", "hub.crt", "hub.key")]
    check_tls_files("hub", *files)
    begins = (datetime.now(UTC) + day - timedelta(hours=1)).strftime("%Y-%m-%d")
    Clock.ahead = timedelta(0)
    with pytest.raises(InvalidInput, match=rf"begins at {begins} .*compare the clocks"):
        check_tls_files("hub", *files)
    Clock.ahead = 4000 * day
    with pytest.raises(InvalidInput, match="expired"):
        check_tls_files("hub", *files)


def test_a_site_that_waits_for_a_hub_says_so_in_its_own_words_only() -> None:
    """gRPC is imported only after it was told to be quiet."""
    pytest.importorskip("grpc")
    code = """
import os
from sottovoce.deploy import relay
def tell(line):
    print(line)
    raise SystemExit(os.environ.get("GRPC_VERBOSITY"))
relay.request_certificate_and_plan("127.0.0.1:1", (b"x", b"x", b"x"), tell)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert "it is not running" in ended.stdout and ended.stderr == "NONE\n"
