"""Record what a run puts on the wire, with every other network closed, and check that it is TLS and nothing else.

``python bench/wire.py [--transport relay] [--sites 5] [--rounds 30] [--pcap FILE] [--json]``

``sottovoce demo`` runs in a network of its own (Linux, ``unshare``; no root needed) in which there is nothing but a
loopback interface, and a name server on it that does not exist: whoever looks up a name has to ask there, and is seen.
Every packet is recorded.  Checked is that all of them are TCP, that every stream is TLS records from its first byte to
its last, and, before that, that the same check catches a look-up and a message in the clear.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

ETH_ALL, ETH_IPV4, ETH_IPV6 = 0x0003, 0x0800, 0x86DD
INCOMING, STATISTICS, IGNORE_OUTGOING, SOL_PACKET, RCVBUFFORCE = 0, 6, 23, 263, 33
UNABLE = 77
"""Exit code where a network of one's own, or a look at it, is not allowed."""
TCP, SYN = 6, 0x02
CLEAR = b"in the clear"
NAMES = {"resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", "nsswitch.conf": "hosts: files dns\n"}


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
        wishes = ((socket.SOL_SOCKET, socket.SO_RCVBUF, 2**26), (socket.SOL_SOCKET, RCVBUFFORCE, 2**26))
        for level, option, value in (*wishes, (SOL_PACKET, IGNORE_OUTGOING, 1)):
            with contextlib.suppress(OSError):  # a smaller buffer will do on most machines
                self._socket.setsockopt(level, option, value)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                data, where = self._socket.recvfrom(2**17)
            except TimeoutError:
                if self._stop.is_set():
                    return
                continue
            if where[2] == INCOMING:  # each packet of the loopback interface goes out, too
                self.packets.append(Packet(time.time(), data))

    def close(self) -> list[Packet]:
        """End, and give back what came.  Fails if a packet was missed."""
        self._stop.set()
        self._thread.join()
        lost = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, STATISTICS, 8))[1]
        self._socket.close()
        if lost:
            raise SystemExit(f"{lost} packets were missed: run it again on a machine with less to do")
        return self.packets


def judge(packets: list[Packet]) -> tuple[dict[str, int], list[str]]:
    """How much of what there was, and everything that is not a piece of a TLS record."""
    streams: dict[tuple[bytes, int, bytes, int], dict[int, bytes]] = defaultdict(dict)
    first: dict[tuple[bytes, int, bytes, int], int] = {}
    faults = []
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
        segment = body[size:]
        if protocol != TCP:
            faults.append(f"a packet of protocol {protocol} to port {int.from_bytes(segment[2:4], 'big')}")
            continue
        source, target, at = struct.unpack("!HHI", segment[:8])
        stream = (ends[0], source, ends[1], target)
        if segment[13] & SYN:
            first[stream] = at + 1
            streams[stream] = {}
        elif len(segment) > 4 * (segment[12] >> 4):
            offset = (at - first[stream]) % 2**32
            payload = segment[4 * (segment[12] >> 4) :]
            streams[stream][offset] = max(payload, streams[stream].get(offset, b""), key=len)
    found = {"packets": len(packets), "streams": 0, "bytes": 0, "records": 0}
    for (_, source, _, target), pieces in streams.items():
        whole = bytearray()
        for offset, payload in sorted(pieces.items()):
            whole += payload[len(whole) - offset :] if offset <= len(whole) else b""
        at = 0
        while at < len(whole):
            kind, version, size = whole[at], whole[at + 1 : at + 2], int.from_bytes(whole[at + 3 : at + 5], "big")
            greeting = at > 0 or kind == 22  # a stream begins with a handshake
            if not (20 <= kind <= 23 and version in (b"\x03", b"") and size <= 2**14 + 256 and greeting):
                faults.append(f"TCP from port {source} to {target}: byte {at} begins no TLS record")
                break
            found["records"] += 1
            at += 5 + size
        found["streams"] += bool(whole)
        found["bytes"] += len(whole)
    return found, faults


def control() -> None:
    """Fail unless the check sees a look-up and a message in the clear."""
    recorder = Recorder()
    with contextlib.suppress(socket.gaierror):
        socket.getaddrinfo("hub.example.org", 443)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(CLEAR)
        near, _ = server.accept()
        near.recv(len(CLEAR), socket.MSG_WAITALL)
        near.close()
    _, faults = judge(recorder.close())
    if not any("to port 53" in fault for fault in faults) or not any("no TLS record" in fault for fault in faults):
        raise SystemExit(f"the check is blind: it saw {faults} in a look-up and a message in the clear")


def close_network(folder: Path) -> None:
    """Leave a loopback interface that is up, and a name server that would be seen."""
    with socket.socket() as any_socket:
        request = array.array("B", struct.pack("16sH14x", b"lo", 1))  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS
    for name, text in NAMES.items():
        (folder / name).write_text(text)
        if Path("/etc", name).exists():
            subprocess.run(["mount", "--bind", str(folder / name), f"/etc/{name}"], check=True)


def write_pcap(path: Path, packets: list[Packet]) -> None:
    """For Wireshark and its like."""
    with path.open("wb") as file:
        file.write(struct.pack("IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 2**18, 1))
        for seconds, data in packets:
            file.write(struct.pack("IIII", int(seconds), int(seconds % 1 * 1e6), len(data), len(data)) + data)


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
        command = [sys.executable, "-m", "sottovoce", "demo", "--json", "--transport", arguments.transport]
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
    shown = ("transport", "sites", "rounds", "difference")
    return {key: demo[key] for key in shown} | found | {"not_tls": 0, "look_ups": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", default="relay", choices=["relay", "nvflare"])
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--pcap", type=Path, help="write the packets here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        try:
            os.execvp("unshare", ["unshare", "-rnm", sys.executable, __file__, *sys.argv[1:], "--inside"])
        except FileNotFoundError:
            raise SystemExit("this needs Linux and the command unshare") from None
    report = record(arguments)
    if arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{name:12} {value}" for name, value in report.items()))
        print("nothing but TLS, and no look-up")


if __name__ == "__main__":
    main()
