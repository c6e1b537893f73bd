"""The recording of a run's packets, in little: it needs a Linux that lets anybody make a network
of their own.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("fcntl")

PROGRAM = Path(__file__).parents[1] / "faults" / "wire.py"
UNABLE = 77
SPEC = importlib.util.spec_from_file_location("wire", PROGRAM)
assert SPEC is not None and SPEC.loader is not None
wire = importlib.util.module_from_spec(SPEC)
sys.modules["wire"] = wire
SPEC.loader.exec_module(wire)


def test_packets_of_a_run_in_a_closed_network_are_tls() -> None:
    command = [sys.executable, str(PROGRAM), "--sites", "3", "--rounds", "5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode == UNABLE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["streams"] >= 6 and report["records"] > 60 and report["bytes"] > 20_000
    assert report["difference"] == 0.0


def packet(flags: int, at: int, payload: bytes = b"", to: str = "127.0.0.1") -> Any:
    """A TCP segment from port 1000 to 2000."""
    segment = struct.pack("!HHIIBBHHH", 1000, 2000, at % 2**32, 0, 5 << 4, flags, 0, 0, 0) + payload
    ends = ipaddress.ip_address("127.0.0.1").packed + ipaddress.ip_address(to).packed
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0) + ends
    return wire.Packet(0.0, bytes(12) + b"\x08\x00" + header + segment)


HELLO = b"\x16\x03\x01\x00\x04\x01\x00\x00\x00"
DATA = b"\x17\x03\x03\x00\x03abc"


@pytest.mark.parametrize(
    ("packets", "fault"),
    [
        ([packet(2, 9), packet(16, 10, HELLO), packet(16, 19, DATA)], ""),
        (
            [packet(2, 9), packet(16, 19, DATA), packet(16, 10, HELLO), packet(16, 10, HELLO)],
            "",
        ),  # out of order, twice
        (
            [packet(2, 2**32 - 4), packet(16, 2**32 - 3, HELLO), packet(16, 6, DATA)],
            "",
        ),  # numbers start again at 0
        (
            [packet(2, 9), packet(16, 10, HELLO), packet(16, 19, DATA[:6]), packet(4, 25)],
            "",
        ),  # cut by a reset
        ([packet(2, 9), packet(16, 10, HELLO), packet(16, 19, DATA[:6])], "last record is cut"),
        ([packet(2, 9), packet(16, 10, HELLO), packet(16, 20, DATA)], "bytes are missing"),
        (
            [packet(2, 9), packet(16, 10, HELLO), packet(16, 19, b"clear")],
            "byte 9 begins no TLS record",
        ),
        ([packet(2, 9), packet(16, 10, DATA)], "byte 0 begins no TLS record"),
        ([packet(2, 9, b"early"), packet(16, 10, HELLO)], "data before the connection"),
        (
            [packet(2, 9), packet(16, 10, b"clear"), packet(2, 99), packet(16, 100, HELLO)],
            "begins no TLS record",
        ),
        ([packet(16, 10, HELLO)], "data without a beginning"),
        ([packet(2, 9, to="192.0.2.7")], "to 192.0.2.7"),
        ([packet(2, 9), packet(4, 10)], "nothing at all"),
    ],
)
def test_packet_judge_finds_each_fault(packets: list[Any], fault: str) -> None:
    found, faults = wire.judge(packets)
    assert (faults == []) == (fault == "") and all(fault in each for each in faults[:1]), faults
    assert found["packets"] == len(packets)
