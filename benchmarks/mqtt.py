"""Events through one node by MQTT: throughput, latency, CPU, beside mosquitto on the same loopback.

    python benchmarks/mqtt.py [--seconds N] [--strategy NAME] [--json] [--profile]

A live node on the loopback interface (sealed frames, its own UDP broadcasts included), a publisher and a
subscriber, each a process of its own; 200-octet payloads, MQTT 3.1.1. The generators send and read blocks of
equal packets, so they cost little beside the server. Three figures per server and QoS:

- `events_per_s`: as fast as the server takes them (QoS 1: with 100 unacknowledged at most);
- `cpu_us_per_event`: CPU time of the server's process over events delivered, in the same run;
- `p50_ms`, `p99_ms`: publish to delivery at `RATE` events/s, half of the goal of 20,000.

mosquitto, where it is installed, is run the same way in the same run; compare by the ratios.
Exits 1 when the node misses its goals: 20,000 events/s of QoS 0, p99 under 10 ms at half of that.
"""

import argparse
import cProfile
import json
import multiprocessing
import os
import pstats
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from roamcast.daemon.fresh import write_fresh
from roamcast.daemon.run import run as run_daemon

PAYLOAD = 200
TOPIC = b"bench/events"
RATE = 10_000
GOAL_EVENTS_PER_S = 20_000
GOAL_P99_MS = 10.0
INFLIGHT = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--strategy", default="epidemic")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="where the node's time goes; no mosquitto")
    options = parser.parse_args()
    if options.profile:
        with Server.node(options.strategy, profiled=True) as server:
            throughput(server, 0, options.seconds)
        return 0
    figures: dict[str, Any] = {}
    with Server.node(options.strategy, profiled=False) as server:
        figures["roamcast"] = measured(server, options.seconds)
    if shutil.which("mosquitto"):
        with Server.mosquitto() as server:
            figures["mosquitto"] = measured(server, options.seconds)
        figures["ratio"] = {
            name: round(value / figures["mosquitto"][name], 3) if figures["mosquitto"][name] else None
            for name, value in figures["roamcast"].items()
        }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, values in figures.items():
            print(name)
            for key, value in values.items():
                print(f"  {key:28} {value}")
    ours = figures["roamcast"]
    missed = ours["qos0_events_per_s"] < GOAL_EVENTS_PER_S or ours["qos0_p99_ms"] > GOAL_P99_MS
    return 1 if missed else 0


def measured(server: "Server", seconds: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for qos in (0, 1):
        rate, cpu = throughput(server, qos, seconds)
        found[f"qos{qos}_events_per_s"] = round(rate)
        found[f"qos{qos}_cpu_us_per_event"] = round(cpu * 1e6, 1)
        p50, p99, arrived = latency(server, qos, seconds)
        found[f"qos{qos}_p50_ms"] = round(p50, 3)
        found[f"qos{qos}_p99_ms"] = round(p99, 3)
        found[f"qos{qos}_arrived"] = round(arrived, 4)
    return found


def throughput(server: "Server", qos: int, seconds: float) -> tuple[float, float]:
    """Events per second delivered, and the server's CPU seconds for each."""
    before = server.cpu()
    times, started, _ = run(server.port, qos, seconds, rate=0)
    spent = server.cpu() - before
    arrived = len(times)
    return arrived / (times[-1, 1] - started) * 1e9, spent / arrived


def latency(server: "Server", qos: int, seconds: float) -> tuple[float, float, float]:
    """Median and 99th percentile in milliseconds, and the share that arrived, at RATE."""
    times, _, sent = run(server.port, qos, seconds, rate=RATE)
    settled = times[len(times) // 10 :]  # the first tenth warms up
    delays = (settled[:, 1] - settled[:, 0]) / 1e6
    return float(np.percentile(delays, 50)), float(np.percentile(delays, 99)), len(times) / sent


def run(port: int, qos: int, seconds: float, rate: int) -> tuple[np.ndarray, int, int]:
    """Times sent and received, when it began, and how many were sent."""
    ours, theirs = multiprocessing.Pipe()
    reader = multiprocessing.Process(target=subscribe, args=(port, qos, theirs))
    reader.start()
    ours.recv()
    their_pipe, its_pipe = multiprocessing.Pipe()
    writer = multiprocessing.Process(target=publish, args=(port, qos, seconds, rate, its_pipe))
    writer.start()
    started, sent = their_pipe.recv()
    writer.join()
    ours.send(sent)
    times = ours.recv()
    reader.join()
    return times, started, sent


# The generators. All packets are equally long, so many are read and written at a time.


def publish(port: int, qos: int, seconds: float, rate: int, pipe: Connection) -> None:
    link = connected(port, b"bench-publisher")
    size = 2 + len(TOPIC) + (2 if qos else 0) + PAYLOAD
    head = bytes([0x30 | qos << 1]) + remaining(size) + len(TOPIC).to_bytes(2, "big") + TOPIC
    stride = len(head) + size - 2 - len(TOPIC)
    block = INFLIGHT if qos else 200
    packets = np.zeros((block, stride), dtype=np.uint8)
    packets[:, : len(head)] = np.frombuffer(head, dtype=np.uint8)
    if qos:
        identifiers = np.arange(1, block + 1, dtype=">u2").view(np.uint8).reshape(block, 2)
        packets[:, len(head) : len(head) + 2] = identifiers
    stamp_at = stride - PAYLOAD
    started = time.monotonic_ns()
    until = started + int(seconds * 1e9)
    sent = 0
    while (now := time.monotonic_ns()) < until:
        count = block
        if rate:
            due = int((now - started) * rate / 1e9) - sent
            count = min(block, due)
            if count <= 0:
                time.sleep(0.0005)
                continue
        stamp = np.frombuffer(now.to_bytes(8, "little"), dtype=np.uint8)
        packets[:count, stamp_at : stamp_at + 8] = stamp
        link.sendall(packets[:count].tobytes())
        if qos:
            read_exactly(link, 4 * count)
        sent += count
    pipe.send((started, sent))
    link.sendall(b"\xe0\x00")
    link.close()


def subscribe(port: int, qos: int, pipe: Connection) -> None:
    link = connected(port, b"bench-subscriber")
    body = (1).to_bytes(2, "big") + len(TOPIC).to_bytes(2, "big") + TOPIC + bytes([qos])
    link.sendall(b"\x82" + remaining(len(body)) + body)
    assert read_exactly(link, 5)[0] == 0x90
    pipe.send("ready")
    size = 2 + len(TOPIC) + (2 if qos else 0) + PAYLOAD
    stride = 1 + len(remaining(size)) + size
    stamp_at = stride - PAYLOAD
    kept: list[np.ndarray] = []
    left = b""
    expected: int | None = None
    arrived = 0
    link.settimeout(0.5)
    quiet = 0
    while expected is None or (arrived < expected and quiet < 4):
        if expected is None and pipe.poll():
            expected = pipe.recv()
        try:
            data = link.recv(1 << 20)
        except TimeoutError:
            quiet += 1
            continue
        quiet = 0
        now = time.monotonic_ns()
        data = left + data
        count = len(data) // stride
        left = data[count * stride :]
        packets = np.frombuffer(data, dtype=np.uint8, count=count * stride).reshape(count, stride)
        if qos and count:
            acknowledgements = np.zeros((count, 4), dtype=np.uint8)
            acknowledgements[:, 0] = 0x40
            acknowledgements[:, 1] = 2
            acknowledgements[:, 2:] = packets[:, stamp_at - 2 : stamp_at]
            link.sendall(acknowledgements.tobytes())
        stamps = packets[:, stamp_at : stamp_at + 8].copy().view("<i8").reshape(count)
        kept.append(np.column_stack((stamps, np.full(count, now, dtype=np.int64))))
        arrived += count
    pipe.send(np.concatenate(kept))
    link.close()


def connected(port: int, client: bytes) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(client).to_bytes(2, "big") + client
    link.sendall(b"\x10" + remaining(len(body)) + body)
    assert read_exactly(link, 4) == b"\x20\x02\x00\x00"
    return link


def read_exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return data


def remaining(length: int) -> bytes:
    return bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])


# The servers.


class Server:
    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self._process = process
        self.port = port
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)

    @classmethod
    def node(cls, strategy: str, *, profiled: bool) -> "Server":
        """The daemon, as `roamcast node` runs it."""
        port = free_port()
        config = Path(tempfile.mkdtemp(prefix="roamcast-bench-")) / "bench.toml"
        write_fresh(config, interface="lo")
        text = config.read_text().replace('state = "', '# state = "')
        text = text.replace("# port = 4747 ", f"port = {free_port()} ")
        tables = f'\n[strategy]\nname = "{strategy}"\n[mqtt]\nport = {port}\n'
        config.write_text(text + tables + f'inflight_max = {INFLIGHT}\n[log]\nlevel = "error"\n')
        command = [sys.executable, __file__, "--serve", str(config), "profiled" if profiled else "plain"]
        return cls(subprocess.Popen(command, stdout=subprocess.PIPE, text=True), port)

    @classmethod
    def mosquitto(cls) -> "Server":
        port = free_port()
        folder = Path(tempfile.mkdtemp(prefix="roamcast-bench-"))
        config = folder / "mosquitto.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages {INFLIGHT}\n"
            "max_queued_messages 100000\nset_tcp_nodelay true\nlog_type none\n"
        )
        return cls(subprocess.Popen(["mosquitto", "-c", str(config)], text=True), port)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        if self._process.stdout is not None:
            print(self._process.stdout.read(), end="")
        self._process.wait(10)

    def cpu(self) -> float:
        """Seconds of CPU that the process has used, its own and the kernel's for it."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve_profiled(config: Path) -> None:
    profile = cProfile.Profile()
    profile.runcall(run_daemon, config)
    pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve = serve_profiled if sys.argv[3] == "profiled" else run_daemon
        serve(Path(sys.argv[2]))
    else:
        sys.exit(main())
