"""Events through nodes by MQTT: throughput, latency, CPU, beside mosquitto on the same loopback.

    python benchmarks/mqtt.py [--seconds N] [--strategy NAME …] [--busy] [--json] [--one-hop | --three-hops]
    python benchmarks/mqtt.py --profile [--qos 1] [--strategy NAME]

Live nodes on the loopback interface (sealed frames, their own UDP broadcasts included), a publisher and a
subscriber, each a process of its own; 200-octet payloads, MQTT 3.1.1. The nodes have a disk, as those that
`node --init` makes: QoS 1 is acknowledged after the commit. The generators send and read blocks of equal
packets, so they cost little beside the server.

Through one node, and through mosquitto where it is installed, the same way in the same run; compare by the
ratios. Figures per server and QoS:

- `events_per_s`: as fast as the server takes them (QoS 1: with 100 unacknowledged at most);
- `cpu_us_per_event`: CPU time of the server's process over events delivered, in the same run;
- `p50_ms`, `p99_ms`: publish to delivery at half of the goal: medians of `RUNS` runs; with `--busy` beside
  another process that never waits;
- `longest_turn_ms`: the longest turn of the node's event loop in those runs, in CPU time. On a shared machine
  this is what the node itself may add to a latency; wall-clock time says little there.

Through three nodes in a line, publisher at the first, subscriber at the last; 1 and 3 do not hear each other:
latency at `LINE_RATE` events/s; the highest of `LINE_RATES` at which 99% come through; and the rate and the
share that come through when the first node is given as much as it accepts: there is no flow control between
nodes, and a relay drops what its queue cannot hold. The relays' jitter is 0 here; by default they wait up to
20 ms (`tree` 10 ms), so that radios do not send at the same time.

Exits 1 when a node misses its goals with one of the strategies and a QoS: 30,000 events/s or 0.7 of
mosquitto's rate, p99 under 10 ms at half of that.
"""

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import os
import pstats
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import series
from roamcast.daemon import Daemon
from roamcast.daemon.run import run as run_daemon
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.sealing import GroupKey, Identity

PAYLOAD = 200
TOPIC = b"bench/events"
LINE_RATE = 1_000
LINE_RATES = (1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000)
RUNS = 5
GOAL_EVENTS_PER_S = 30_000
GOAL_SHARE = 0.7  # of mosquitto's rate, where that is less
GOAL_P99_MS = 10.0
INFLIGHT = 100
LINE_STRATEGIES = ("flooding", "epidemic", "tree")
STRATEGIES = ("flooding", "epidemic", "tree", "chapar", "odmrp", "opportunistic")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--strategy", nargs="+", default=["epidemic"], help="names, or `all`")
    parser.add_argument("--busy", action="store_true", help="latency beside a process that never waits")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--qos", type=int, default=0, help="of --profile")
    parser.add_argument("--profile", action="store_true", help="where the node's time goes; no mosquitto")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--one-hop", action="store_true", help="only through one node")
    which.add_argument("--three-hops", action="store_true", help="only through three")
    options = parser.parse_args()
    strategies = STRATEGIES if options.strategy == ["all"] else options.strategy
    if options.profile:
        with Server.node(strategies[0], profiled=True) as server:
            throughput(server, options.qos, options.seconds)
        return 0
    figures: dict[str, Any] = {}
    if not options.three_hops:
        figures |= through_one(strategies, options.seconds, busy=options.busy)
    if not options.one_hop:
        for strategy in LINE_STRATEGIES:
            figures[f"three nodes, {strategy}"] = through_three(strategy, options.seconds)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, values in figures.items():
            print(name)
            for key, value in values.items():
                print(f"  {key:28} {value}")
    if options.three_hops:
        return 0
    if "epidemic" in figures and "mosquitto" in figures:  # wall-clock, with clients on the same cores
        rate = figures["epidemic"]["qos0_events_per_s"] / figures["mosquitto"]["qos0_events_per_s"]
        series.give("QoS 0 over mosquitto", rate, better="higher", judged=False)
    missed = False
    for strategy in strategies:
        for qos in (0, 1):
            rate, p99 = (figures[strategy][f"qos{qos}_{name}"] for name in ("events_per_s", "p99_ms"))
            wanted = goal(figures, qos)
            if rate < wanted or p99 > GOAL_P99_MS:
                print(
                    f"missed: {strategy}, QoS {qos}: {rate} of {wanted:.0f} events/s, p99 {p99} ms",
                    file=sys.stderr,
                )
                missed = True
    return 1 if missed else 0


def goal(figures: dict[str, Any], qos: int) -> float:
    """Events per second."""
    mosquitto = figures.get("mosquitto")
    if mosquitto is None:
        return GOAL_EVENTS_PER_S
    return min(GOAL_EVENTS_PER_S, GOAL_SHARE * float(mosquitto[f"qos{qos}_events_per_s"]))


def through_one(strategies: Sequence[str], seconds: float, *, busy: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if shutil.which("mosquitto"):
        with Server.mosquitto() as server:
            figures["mosquitto"] = measured(server, seconds, figures, busy=busy)
    for strategy in strategies:
        with Server.node(strategy, profiled=False) as server:
            figures[strategy] = measured(server, seconds, figures, busy=busy)
    return figures


def measured(server: "Server", seconds: float, figures: dict[str, Any], *, busy: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for qos in (0, 1):
        rate, _, cpu = throughput(server, qos, seconds)
        found[f"qos{qos}_events_per_s"] = round(rate)
        found[f"qos{qos}_cpu_us_per_event"] = round(cpu[0] * 1e6, 1)
        server.longest_turns()
        half = int(goal(figures, qos) / 2)
        with busy_process() if busy else nullcontext():
            runs = [latency(server, qos, seconds / RUNS, half) for _ in range(RUNS)]
        for number, name in enumerate(("p50_ms", "p99_ms", "arrived")):
            found[f"qos{qos}_{name}"] = round(statistics.median(one[number] for one in runs), 3)
        for turn in server.longest_turns():
            found[f"qos{qos}_longest_turn_ms"] = turn
    return found


@contextmanager
def busy_process() -> Iterator[None]:
    """Another process, at the same priority, that takes all the time it is given."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def through_three(strategy: str, seconds: float) -> dict[str, Any]:
    with Server.line(3, strategy) as server:
        server.wait_for_way()
        runs = [latency(server, 0, seconds / RUNS, LINE_RATE) for _ in range(RUNS)]
        whole = 0
        for rate in LINE_RATES:
            if latency(server, 0, seconds / RUNS, rate)[2] < 0.99:
                break
            whole = rate
        most, arrived, cpu = throughput(server, 0, seconds)
    return {
        f"p50_ms_at_{LINE_RATE}": round(statistics.median(one[0] for one in runs), 3),
        f"p99_ms_at_{LINE_RATE}": round(statistics.median(one[1] for one in runs), 3),
        f"arrived_at_{LINE_RATE}": round(statistics.mean(one[2] for one in runs), 4),
        "events_per_s_99_percent": whole,
        "events_per_s_offered_all": round(most),
        "arrived_offered_all": round(arrived, 4),
        "cpu_us_per_event": " ".join(str(round(one * 1e6, 1)) for one in cpu),
    }


def throughput(server: "Server", qos: int, seconds: float) -> tuple[float, float, list[float]]:
    """Events per second delivered, the share that was, and the CPU seconds of each process for each."""
    before = server.cpu()
    times, started, sent = run(server, qos, seconds, rate=0)
    arrived = len(times)
    cpu = [(after - first) / arrived for after, first in zip(server.cpu(), before, strict=True)]
    return arrived / (times[-1, 1] - started) * 1e9, arrived / sent, cpu


def latency(server: "Server", qos: int, seconds: float, rate: int) -> tuple[float, float, float]:
    """Median and 99th percentile in milliseconds, and the share that arrived."""
    times, _, sent = run(server, qos, seconds, rate)
    settled = times[len(times) // 10 :]  # the first tenth warms up
    delays = (settled[:, 1] - settled[:, 0]) / 1e6
    return float(np.percentile(delays, 50)), float(np.percentile(delays, 99)), len(times) / sent


def run(server: "Server", qos: int, seconds: float, rate: int) -> tuple[np.ndarray, int, int]:
    """Times sent and received, when it began, and how many were sent."""
    ours, theirs = multiprocessing.Pipe()
    reader = multiprocessing.Process(target=subscribe, args=(server.last_port, qos, theirs))
    reader.start()
    ours.recv()
    if server.last_port != server.port:
        time.sleep(1.0)  # until the other end has the subscription
    their_pipe, its_pipe = multiprocessing.Pipe()
    writer = multiprocessing.Process(target=publish, args=(server.port, qos, seconds, rate, its_pipe))
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
    subscribe_to(link, qos)
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


def subscribe_to(link: socket.socket, qos: int) -> None:
    body = (1).to_bytes(2, "big") + len(TOPIC).to_bytes(2, "big") + TOPIC + bytes([qos])
    link.sendall(b"\x82" + remaining(len(body)) + body)
    assert read_exactly(link, 5)[0] == 0x90


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
    """One process, or a line of them; published at the first's port, subscribed at the last's."""

    def __init__(self, processes: "list[subprocess.Popen[str]]", port: int, last_port: int) -> None:
        self._processes = processes
        self.port = port
        self.last_port = last_port
        until = time.monotonic() + 60
        for one in (port, last_port):
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", one)).close()
                    break
                except OSError:
                    time.sleep(0.05)

    @classmethod
    def node(cls, strategy: str, *, profiled: bool) -> "Server":
        return cls.line(1, strategy, profiled=profiled)

    @classmethod
    def line(cls, nodes: int, strategy: str, *, profiled: bool = False) -> "Server":
        """Daemons as `roamcast node` runs them, except that each hears only its neighbours in the line."""
        folder = Path(tempfile.mkdtemp(prefix="roamcast-bench-"))
        group, air, ports = GroupKey.generate().to_text(), free_port(), [free_port() for _ in range(nodes)]
        jitter = "jitter = 0.0" if strategy in LINE_STRATEGIES else ""
        processes = []
        for number, port in enumerate(ports, 1):
            config = folder / f"node{number}.toml"
            config.write_text(
                f'[node]\nnumber = {number}\nstate = "node{number}.db"\n'
                f'[keys]\nidentity = "{Identity.generate().to_text()}"\n'
                f'group = ["{group}"]\n[air]\ninterface = "lo"\nport = {air}\n'
                f'[strategy]\nname = "{strategy}"\n[strategy.options]\n{jitter}\n'
                f'[mqtt]\nport = {port}\ninflight_max = {INFLIGHT}\n[log]\nlevel = "error"\n'
            )
            config.chmod(0o600)
            command = [
                sys.executable,
                str(Path(__file__).resolve()),
                "--serve",
                str(config),
                "profiled" if profiled else "plain",
            ]
            command += [str(number - 1), str(number + 1)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return cls(processes, ports[0], ports[-1])

    @classmethod
    def mosquitto(cls) -> "Server":
        port = free_port()
        folder = Path(tempfile.mkdtemp(prefix="roamcast-bench-"))
        config = folder / "mosquitto.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages {INFLIGHT}\n"
            "max_queued_messages 100000\nset_tcp_nodelay true\nlog_type none\n"
        )
        return cls([subprocess.Popen(["mosquitto", "-c", str(config)], text=True)], port, port)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
            if process.stdout is not None:
                print(process.stdout.read(), end="")
            process.wait(10)

    def cpu(self) -> list[float]:
        """Seconds of CPU that each process has used, its own and the kernel's for it."""
        used = []
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        return used

    def memory(self) -> int:
        """Resident octets of the first process."""
        return int(Path(f"/proc/{self._processes[0].pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    def longest_turns(self) -> list[float]:
        """CPU milliseconds of the longest turn of each node's loop since this was last asked."""
        turns = []
        for process in self._processes:
            if process.stdout is not None:
                process.send_signal(signal.SIGUSR1)
                turns.append(round(float(process.stdout.readline()), 2))
        return turns

    def wait_for_way(self) -> None:
        """Wait until an event from the first node arrives at the last: a tree has to be built first."""
        with connected(self.last_port, b"way-out") as last, connected(self.port, b"way-in") as first:
            subscribe_to(last, 0)
            last.settimeout(0.2)
            until = time.monotonic() + 60
            while time.monotonic() < until:
                size = 2 + len(TOPIC)
                first.sendall(b"\x30" + remaining(size) + len(TOPIC).to_bytes(2, "big") + TOPIC)
                try:
                    last.recv(1024)
                    return
                except TimeoutError:
                    continue
        raise TimeoutError("no way through the line of nodes")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(config: Path, heard: list[int], *, profiled: bool) -> None:
    def on_ready(daemon: Daemon) -> None:
        air = daemon.node.radio.air
        receive = air.on_datagram

        def in_range(data: bytes, source: Endpoint) -> None:
            if int.from_bytes(data[4:8], "big") in heard:  # the sender in a seal's header
                receive(data, source)

        air.on_datagram = in_range

    if profiled:
        profile = cProfile.Profile()
        profile.runcall(run_daemon, config, on_ready)
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)
    else:
        watch_turns()
        run_daemon(config, on_ready)


def watch_turns() -> None:
    """On SIGUSR1, print the longest turn since the last signal."""
    longest = 0.0
    run_callback = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal longest
        began = time.thread_time()
        run_callback(handle)
        longest = max(longest, time.thread_time() - began)

    def tell(*_: object) -> None:
        nonlocal longest
        print(longest * 1e3, flush=True)
        longest = 0.0

    asyncio.Handle._run = timed  # type: ignore[method-assign,assignment]
    signal.signal(signal.SIGUSR1, tell)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), [int(text) for text in sys.argv[4:]], profiled=sys.argv[3] == "profiled")
    else:
        sys.exit(main())
