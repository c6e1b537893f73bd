"""Record what a run puts on the wire, with every other network closed, and check that it is TLS and
nothing else.

``python tests/faults/wire.py [--transport relay] [--sites 5] [--rounds 30] [--pcap FILE] [--json]``

``sottovoce demo`` runs in a network of its own (Linux, ``unshare``; no root needed) in which there
is nothing but a loopback interface.  Every address of the world leads to it, and so does the name
server, so that whoever looks up a name or calls home is seen.  Every packet is recorded.  Checked
is that all are TCP between loopback addresses, and that every stream is TLS records from its first
byte, a greeting, to its last, none missing.  Before that, the same check must catch a look-up, a
call to the world and a message in the clear.  What is inside a record it cannot tell, and no other
recorder could.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import ipaddress
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ETH_ALL, ETH_IPV4, ETH_IPV6 = 0x0003, 0x0800, 0x86DD
INCOMING, STATISTICS, IGNORE_OUTGOING, SOL_PACKET, RCVBUFFORCE = 0, 6, 23, 263, 33
UNABLE = 77
"""Exit code where a network of one's own, or a look at it, is not allowed."""
TCP, SYN, RST = 6, 0x02, 0x04
HANDSHAKE, HELLOS = 22, (1, 2)
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))
SIOCSIFFLAGS = 0x8914
CLEAR, WORLD = b"in the clear", "192.0.2.1"
NAMES = {
    "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
    "nsswitch.conf": "hosts: files dns\n",
}


class Packet(NamedTuple):
    """One packet, from its Ethernet header on, and when it came."""

    seconds: float
    data: bytes


class Recorder:
    """Everything that comes in on the loopback interface."""

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        wishes = (
            (socket.SOL_SOCKET, socket.SO_RCVBUF, 2**26),
            (socket.SOL_SOCKET, RCVBUFFORCE, 2**26),
        )
        for level, option, value in (*wishes, (SOL_PACKET, IGNORE_OUTGOING, 1)):
            with contextlib.suppress(OSError):  # a smaller buffer will do on most machines
                self._socket.setsockopt(level, option, value)
        self.failure: OSError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                data, where = self._socket.recvfrom(2**17)
            except TimeoutError:
                continue
            except OSError as error:
                self.failure = error
                return
            if where[2] == INCOMING:  # each packet of the loopback interface goes out, too
                self.packets.append(Packet(time.time(), data))

    def close(self) -> list[Packet]:
        """End, and give back what came.  Fails if a packet was missed."""
        time.sleep(0.5)
        self._stop.set()
        self._thread.join()
        lost = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, STATISTICS, 8))[1]
        self._socket.close()
        if lost or self.failure:
            raise SystemExit(
                f"{lost} packets were missed ({self.failure}): run it again on a machine with less "
                "to do"
            )
        return self.packets


@dataclass
class Stream:
    """One direction of a TCP connection."""

    name: str
    first: int
    """Sequence number of its first byte."""
    pieces: dict[int, bytes] = field(default_factory=dict)
    reset: bool = False

    def faults(self) -> tuple[int, int, str]:
        """Bytes, records, and what is wrong, if anything."""
        whole = bytearray()
        for offset, payload in sorted(self.pieces.items()):
            if offset > len(whole):
                return len(whole), 0, f"{self.name}: bytes are missing"
            whole += payload[len(whole) - offset :]
        at = records = 0
        while at < len(whole):
            kind, version, size = (
                whole[at],
                whole[at + 1 : at + 2],
                int.from_bytes(whole[at + 3 : at + 5], "big"),
            )
            greeting = at > 0 or (kind == HANDSHAKE and len(whole) > 5 and whole[5] in HELLOS)
            if not (
                20 <= kind <= 23 and version in (b"\x03", b"") and size <= 2**14 + 256 and greeting
            ):
                return len(whole), records, f"{self.name}: byte {at} begins no TLS record"
            at, records = at + 5 + size, records + 1
        cut = at > len(whole) and not self.reset
        return len(whole), records, f"{self.name}: its last record is cut" if cut else ""


def judge(packets: list[Packet]) -> tuple[dict[str, int], list[str]]:
    """How much of what there was, and everything that is not a piece of a TLS record."""
    open_now: dict[tuple[Any, ...], Stream] = {}
    streams, faults = [], []
    for _, data in packets:
        kind, body = int.from_bytes(data[12:14], "big"), data[14:]
        if kind == ETH_IPV4:
            size, protocol, ends = 4 * (body[0] & 15), body[9], (body[12:16], body[16:20])
            body = body[: int.from_bytes(body[2:4], "big") or None]
        elif kind == ETH_IPV6:
            size, protocol, ends = 40, body[6], (body[8:24], body[24:40])
        else:
            faults.append(f"a frame of type {kind:#06x}")
            continue
        source, target = map(ipaddress.ip_address, ends)
        segment = body[size:]
        if not all(any(end in network for network in LOOPBACK) for end in (source, target)):
            faults.append(f"a packet from {source} to {target}")
        if protocol != TCP:
            faults.append(
                f"a packet of protocol {protocol} to port {int.from_bytes(segment[2:4], 'big')}"
            )
            continue
        near, far, at = struct.unpack("!HHI", segment[:8])
        flags, payload = segment[13], segment[4 * (segment[12] >> 4) :]
        key = (source, near, target, far)
        known = open_now.get(key)
        if flags & SYN:
            if payload:
                faults.append(f"TCP from port {near} to {far}: data before the connection")
            if known is None or known.first != at + 1:  # not one that is repeated
                open_now[key] = Stream(f"TCP from port {near} to {far}", at + 1)
                streams.append(open_now[key])
        elif known is None:
            faults.append(
                f"TCP from port {near} to {far}: data without a beginning" if payload else ""
            )
        else:
            offset = (at - known.first) % 2**32
            known.reset |= bool(flags & RST)
            if payload:
                known.pieces[offset] = max(payload, known.pieces.get(offset, b""), key=len)
    judged = [stream.faults() for stream in streams if stream.pieces]
    found = {
        "packets": len(packets),
        "streams": len(judged),
        "bytes": sum(each[0] for each in judged),
        "records": sum(each[1] for each in judged),
    }
    faults += [each[2] for each in judged]
    if not judged:
        faults.append("nothing at all")
    return found, [fault for fault in faults if fault]


def control() -> None:
    """Fail unless the check sees a look-up, a call to the world, and a message in the clear."""
    recorder = Recorder()
    with contextlib.suppress(socket.gaierror):
        socket.getaddrinfo("hub.example.org", 443)
    with contextlib.suppress(OSError):
        socket.create_connection((WORLD, 443), timeout=5.0).close()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        client.sendall(CLEAR)
        near, _ = server.accept()
        near.recv(len(CLEAR), socket.MSG_WAITALL)
        near.close()
    _, faults = judge(recorder.close())
    for seen in ("to port 53", f"to {WORLD}", "no TLS record"):
        if not any(seen in fault for fault in faults):
            print(
                f"this system hides what is to be seen: nothing {seen} in {faults}", file=sys.stderr
            )
            sys.exit(UNABLE)


def close_network(folder: Path) -> None:
    """Leave a loopback interface that is up and stands for the whole world, and a name server on
    it.
    """
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", 1))  # IFF_UP
    for family in (socket.AF_INET, socket.AF_INET6):
        with (
            contextlib.suppress(OSError) if family == socket.AF_INET6 else contextlib.nullcontext()
        ):
            _everything_is_here(family)
    for name, text in NAMES.items():
        (folder / name).write_text(text)
        if Path("/etc", name).exists():
            subprocess.run(["mount", "--bind", str(folder / name), f"/etc/{name}"], check=True)


def _everything_is_here(family: int) -> None:
    """`ip route add local default dev lo`, without the command."""
    new_route, request = 24, 0x405  # RTM_NEWROUTE; NLM_F_REQUEST, ACK and CREATE
    table, boot, host, local, interface = 255, 3, 254, 2, 4
    body = struct.pack("8BI", family, 0, 0, 0, table, boot, host, local, 0)
    body += struct.pack("HHI", 8, interface, socket.if_nametoindex("lo"))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.bind((0, 0))
        kernel.send(struct.pack("IHHII", 16 + len(body), new_route, request, 1, 0) + body)
        (error,) = struct.unpack("i", kernel.recv(4096)[16:20])
    if error:
        raise OSError(-error, os.strerror(-error))


def write_pcap(path: Path, packets: list[Packet]) -> None:
    """For Wireshark and its like."""
    with path.open("wb") as file:
        file.write(struct.pack("IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 2**18, 1))
        for seconds, data in packets:
            file.write(
                struct.pack("IIII", int(seconds), int(seconds % 1 * 1e6), len(data), len(data))
                + data
            )


def record(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the demonstration and judge the wire."""
    with tempfile.TemporaryDirectory() as name:
        try:
            close_network(Path(name))
            control()
            recorder = Recorder()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"this system does not allow it: {error}", file=sys.stderr)
            sys.exit(UNABLE)
        command = [
            sys.executable,
            "-m",
            "sottovoce",
            "demo",
            "--json",
            "--transport",
            arguments.transport,
        ]
        command += ["--sites", str(arguments.sites), "--rounds", str(arguments.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        packets = recorder.close()
    if arguments.pcap:
        write_pcap(arguments.pcap, packets)
    if done.returncode:
        raise SystemExit(f"the demonstration failed: {done.stderr.strip()}")
    demo = json.loads(done.stdout)
    found, faults = judge(packets)
    if any(demo["plan"].encode() in data for _, data in packets):
        faults.append("the plan's digest, in the clear")
    if faults:
        raise SystemExit("\n".join(["on the wire, and not TLS:", *sorted(set(faults))]))
    return {key: demo[key] for key in ("transport", "sites", "rounds", "difference")} | found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--transport", default="relay", choices=["relay", "nvflare"])
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--pcap", type=Path, help="write the packets here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        own = ["unshare", "-rnm"]
        if (
            shutil.which("unshare") is None
            or subprocess.run([*own, "true"], check=False).returncode
        ):
            print(
                "this needs Linux, the command unshare, and leave to make a network of one's own",
                file=sys.stderr,
            )
            sys.exit(UNABLE)
        os.execvp("unshare", [*own, sys.executable, __file__, *sys.argv[1:], "--inside"])
    report = record(arguments)
    if arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{name:12} {value}" for name, value in report.items()))
        print("nothing but TLS, no look-up, and nothing to anywhere else")


if __name__ == "__main__":
    main()
