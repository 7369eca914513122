"""Live nodes on the loopback: throughput, latency, memory, and the cost of hostile datagrams.

    python benchmarks/live.py [--quick]

Nodes and clients are processes of their own, as on a device. Through one node: publisher → node → subscriber.
Through three: publisher → node 1 → node 2 → node 3 → subscriber; nodes 1 and 3 do not hear each other. On a
busy machine wall-clock time says little, so the node's own CPU time is printed too: events per CPU second
is what one node does on one core.
"""

import argparse
import asyncio
import multiprocessing
import resource
import secrets
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from roamcast.client import connect
from roamcast.daemon import Daemon, collector, load_config
from roamcast.filter import Filter
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.sealing import GroupKey, Identity, KeyRing, Sealer

PAYLOAD_BYTES = 200
STAMP = struct.Struct("!q")
BURST = 20
RUNS = 5  # of which the one with the median p99 is shown
SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a tenth of the events")
    quick = arguments.parse_args().quick
    events = 10_000 if quick else 100_000
    load = psutil.getloadavg()[0]
    print(f"{events:,} events of {PAYLOAD_BYTES} octets; {psutil.cpu_count()} cores; load {load:.1f}")
    show_idle(quick)
    for strategy in ("flooding", "epidemic", "tree", "chapar"):
        show("one node", strategy, through(1, strategy, events, rate=None))
    runs = [through(1, "epidemic", events // 4, rate=10_000) for _ in range(RUNS)]
    show("one node, 10,000/s", "epidemic", sorted(runs, key=lambda passed: passed.latency(0.99))[RUNS // 2])
    for strategy in ("flooding", "epidemic", "tree"):
        show("three nodes, 1,000/s", strategy, through(3, strategy, events // 20, rate=1_000))
    show("three nodes", "tree", through(3, "tree", events // 5, rate=None))
    show_garbage(2.0 if quick else 10.0)


@dataclass(frozen=True)
class Passed:
    sent: int
    arrived: int
    seconds: float
    latencies: list[float]  # seconds
    cpu: list[float]  # of each node, seconds

    @property
    def per_second(self) -> float:
        return self.arrived / self.seconds

    def latency(self, share: float) -> float:
        """A quantile, in milliseconds; the first tenth warms up."""
        ordered = sorted(self.latencies[len(self.latencies) // 10 :])
        return ordered[int(len(ordered) * share)] * 1000 if ordered else 0.0


def show(what: str, strategy: str, passed: Passed) -> None:
    p50, p99 = passed.latency(0.5), passed.latency(0.99)
    cpu = " ".join(f"{1e6 * seconds / passed.sent:.1f}" for seconds in passed.cpu)
    busiest = passed.sent / max(passed.cpu)
    print(
        f"{what:22} {strategy:9} {passed.per_second:8,.0f} events/s  arrived {passed.arrived}/{passed.sent}"
        f"  p50 {p50:7.2f} ms  p99 {p99:7.2f} ms"
        f"  node CPU {cpu} us/event = {busiest:,.0f} events per CPU second"
    )


def through(nodes: int, strategy: str, events: int, rate: float | None) -> Passed:
    """Events from a client of the first node to a client of the last."""
    with tempfile.TemporaryDirectory() as folder, line_of(nodes, strategy, Path(folder)) as started:
        first, last = Path(folder, "node1.sock"), Path(folder, f"node{nodes}.sock")
        ours, theirs = SPAWN.Pipe()
        subscriber = SPAWN.Process(target=subscribe, args=(str(last), theirs), daemon=True)
        subscriber.start()
        ours.recv()
        publisher_ours, publisher_theirs = SPAWN.Pipe()
        publisher = SPAWN.Process(target=publish, args=(str(first), publisher_theirs), daemon=True)
        publisher.start()
        # Until the path stands: a tree has to be built first.
        deadline = time.monotonic() + 60
        while not ours.poll(0.2) and time.monotonic() < deadline:
            publisher_ours.send((1, None))
            publisher_ours.recv()
        ours.recv()
        time.sleep(0.5)
        ours.send("count")
        ours.recv()
        cpu = [process_cpu(process) for process in started]
        publisher_ours.send((events, rate))
        publisher_ours.recv()
        arrived, seconds, latencies = ours.recv() if ours.poll(120) else (0, 1.0, [])
        used = [process_cpu(process) - before for process, before in zip(started, cpu, strict=True)]
        for process in (publisher, subscriber):
            process.kill()
            process.join()
        return Passed(events, arrived, seconds, latencies, used)


def publish(path: str, control: Connection) -> None:
    async def play() -> None:
        filling = bytes(PAYLOAD_BYTES - STAMP.size)
        async with connect(path) as client:
            while True:
                while not control.poll():
                    await asyncio.sleep(0.005)
                events, rate = control.recv()
                began = time.monotonic()
                for number in range(events):
                    await client.publish_soon(
                        topic="bench/a",
                        attributes={"level": 5},
                        payload=STAMP.pack(time.monotonic_ns()) + filling,
                    )
                    if number % BURST == BURST - 1:
                        ahead = 0.0 if rate is None else began + (number + 1) / rate - time.monotonic()
                        await asyncio.sleep(max(0.0, ahead))
                control.send("done")

    asyncio.run(play())


def subscribe(path: str, control: Connection) -> None:
    quiet = 2.0

    async def play() -> None:
        async with connect(path) as client, client.subscribe(Filter.sql("level > 3")) as wanted:
            control.send("ready")
            await anext(wanted)
            control.send("first")
            while not control.poll():
                await asyncio.sleep(0.01)
            control.recv()
            while wanted._waiting:
                wanted._waiting.popleft()
            control.send("counting")
            latencies: list[float] = []
            began = ended = 0.0
            try:
                while True:
                    message = await wanted.next(quiet if latencies else 30)
                    ended = time.monotonic()
                    sent = STAMP.unpack_from(message.event.payload)[0] / 1e9
                    began = began or sent
                    latencies.append(ended - sent)
            except TimeoutError:
                control.send((len(latencies), max(ended - began, 1e-9), latencies))

    asyncio.run(play())


@contextmanager
def line_of(nodes: int, strategy: str, folder: Path) -> Iterator[list[Any]]:
    """Node processes in a line: each hears only its neighbours."""
    group, port = GroupKey.generate().to_text(), free_port()
    options = "jitter = 0.0" if strategy in ("flooding", "epidemic", "tree") else ""
    processes = []
    for number in range(1, nodes + 1):
        config = folder / f"node{number}.toml"
        config.write_text(
            f'[node]\nnumber = {number}\n[keys]\nidentity = "{Identity.generate().to_text()}"\n'
            f'group = ["{group}"]\n[air]\ninterface = "lo"\nport = {port}\n'
            f'[strategy]\nname = "{strategy}"\n[strategy.options]\n{options}\n'
            f'[clients]\nsocket = "node{number}.sock"\n[log]\nlevel = "warning"\n'
        )
        heard = [number - 1, number + 1]
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=run_node, args=(config, heard, theirs), daemon=True)
        process.start()
        ours.recv()
        processes.append(process)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()


def run_node(config: Path, heard: list[int], ready: Connection) -> None:
    async def play() -> None:
        daemon = Daemon(load_config(config), config.parent)
        await daemon.start()
        air = daemon.node.radio.air
        receive = air.on_datagram

        def in_range(data: bytes, source: Endpoint) -> None:
            if int.from_bytes(data[4:8], "big") in heard:  # the sender in a seal's header
                receive(data, source)

        air.on_datagram = in_range
        collector.calm(asyncio.get_running_loop())
        ready.send(daemon.node.radio.air.port)
        await asyncio.Event().wait()

    asyncio.run(play())


def show_idle(quick: bool) -> None:
    """Memory and CPU of a node that nobody uses, and with many subscriptions."""
    with tempfile.TemporaryDirectory() as folder, line_of(1, "epidemic", Path(folder)) as (node,):
        process = psutil.Process(node.pid)
        time.sleep(1)
        memory, cpu, seconds = process.memory_info().rss, process_cpu(node), 2.0 if quick else 10.0
        time.sleep(seconds)
        share = (process_cpu(node) - cpu) / seconds

        async def add(count: int) -> None:
            async with connect(Path(folder, "node1.sock")) as client:
                for number in range(count):
                    await client.open_subscription(
                        Filter.sql(f"room = 'b{number}' AND level > {number % 10}")
                    )
                grown = process.memory_info().rss - memory
                print(
                    f"idle node: {memory / 1e6:.1f} MB resident, {100 * share:.2f}% of a core; "
                    f"{1000 * grown / count / 1e6:.2f} MB per 1,000 subscriptions"
                )

        asyncio.run(add(2_000 if quick else 10_000))


def show_garbage(seconds: float) -> None:
    """10,000 hostile datagrams per second beside 500 events per second."""
    with tempfile.TemporaryDirectory() as folder, line_of(1, "flooding", Path(folder)) as (node,):
        text = Path(folder, "node1.toml").read_text()
        air_port = int(text.split("port = ")[1].split("\n")[0])
        hostile = hostile_datagrams()
        process = psutil.Process(node.pid)
        asyncio.run(attacked(Path(folder, "node1.sock"), process, node, air_port, hostile, seconds))


async def attacked(
    path: Path, process: psutil.Process, node: Any, port: int, hostile: list[bytes], seconds: float
) -> None:
    latencies: list[float] = []
    async with connect(path) as client, client.subscribe(Filter.everything()) as wanted:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
            attacker.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            memory, cpu, began, sent = process.memory_info().rss, process_cpu(node), time.monotonic(), 0
            while (now := time.monotonic()) < began + seconds:
                for _ in range(min(int((now - began) * 10_000) - sent, 2_000)):
                    attacker.sendto(hostile[sent % len(hostile)], ("127.255.255.255", port))
                    sent += 1
                asked = time.monotonic()
                await client.publish_soon(attributes={"n": 1})
                await wanted.next(10)
                latencies.append(time.monotonic() - asked)
                await asyncio.sleep(0.002)
            took = time.monotonic() - began
            share = (process_cpu(node) - cpu) / took
            print(
                f"garbage: {sent / took:,.0f} hostile datagrams/s for {took:.0f} s "
                f"cost {100 * share:.0f}% of a core; "
                f"memory {memory / 1e6:.1f} -> {process.memory_info().rss / 1e6:.1f} MB; "
                f"own events meanwhile p50 {1000 * statistics.median(latencies):.1f} ms"
            )


def hostile_datagrams() -> list[bytes]:
    foreign = Sealer(Identity.generate(9), KeyRing(GroupKey.generate()), epoch=1)
    made = []
    for _ in range(500):
        good = foreign.seal(frames.RECORDS, secrets.token_bytes(200))
        made += [secrets.token_bytes(200), good[: secrets.randbelow(len(good))], good, b"\x10" + good[1:]]
    return made


def process_cpu(process: Any) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
