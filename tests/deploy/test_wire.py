"""The recording of a run's packets, in little: it needs a Linux that lets anybody make a network of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

BENCH = Path(__file__).parents[2] / "bench" / "wire.py"
OWN_NETWORK = ("unshare", "-rnm", "true")


def test_packets_of_a_run_in_a_closed_network_are_tls() -> None:
    if shutil.which("unshare") is None or subprocess.run(OWN_NETWORK, capture_output=True, check=False).returncode:
        pytest.skip("no network of one's own on this system")
    command = [sys.executable, str(BENCH), "--sites", "3", "--rounds", "5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["streams"] >= 6 and report["records"] > 60 and report["bytes"] > 20_000
    assert report["not_tls"] == report["look_ups"] == 0 and report["difference"] == 0.0
