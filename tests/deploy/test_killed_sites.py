"""The programs that kill hubs and sites, in little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import warm

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

PROGRAM = Path(__file__).parents[1] / "faults" / "sites.py"


def test_killed_processes_leave_no_trace() -> None:
    options = ["--kills", "4", "--sites", "3", "--rounds", "8", "--json", "--forks"]
    done = warm.run([PROGRAM, *options], timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == report["of_hub"] + report["of_sites"] >= 4
    # greeting, mean twice
    assert report["difference"] == 0.0 and report["messages"] == report["runs"] * 3 * 12


def test_restarts_during_questions_resume() -> None:
    options = ["--restarts", "10", "--rounds", "3", "--json"]
    done = warm.run([PROGRAM.with_name("restarts.py"), *options], timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (
        report["restarts"] == 10
        and report["with_the_dead_process_still_asking"] >= 3
        and report["exit_3"] == 0
    )


def test_killed_processes_of_a_run_of_sums_leave_no_trace() -> None:
    """Two runs: in the second a site is lost for good."""
    options = [
        "--kills",
        "4",
        "--sites",
        "5",
        "--rounds",
        "6",
        "--patience",
        "8",
        "--runs",
        "2",
        "--json",
        "--forks",
    ]
    done = warm.run([PROGRAM.with_name("sums_sites.py"), *options], timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == report["of_hub"] + report["of_sites"] >= 4
    assert report["runs"] >= 2 and report["with_a_site_lost"] >= 1 and report["gone"] >= 1
    # the mean, and six rounds
    assert report["opened"] + report["lost_attempts"] == 7 * report["runs"]
