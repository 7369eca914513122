"""A large payload over three hops, cut in the middle; and what small events notice of it.

    python benchmarks/large.py [--strategies epidemic,tree,chapar] [--size 5000000] [--cut 3] [--simulate]

Four emulated nodes in a row (whole daemons, a namespace each), a radio of 11 Mbit/s for each. A program on
the first publishes the payload, one on the last waits for it; both also have small real-time events, 20 per
second. The middle link is cut `--cut` seconds after the payload began, for five seconds. A run takes about a
minute and needs the machine for itself. With `--simulate` the same nodes run in virtual time: no processor
time is in the figures then, and no machine is too slow.

seconds      from the publication to the delivery of the whole, and until the last chunk was in the mesh
octets       of frames with a chunk, all nodes, per octet of payload; three hops need 3
resumed      of those, what the node before the cut sent after it, beside the share of the payload that had
             not crossed by then: about the same if it goes on, the whole if it begins anew
small        latency of small events in ms, median and 95th percentile: before, while the payload is under
             way, and after the link is back until the payload is whole
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roamcast.applications import Applications
from roamcast.broker.core import Delivery
from roamcast.chunks import count_of, digest_of, pieces
from roamcast.client import connect
from roamcast.event import EventId, Publication
from roamcast.filter import Filter
from roamcast.pressure import NoPressure
from roamcast.runtime.emulate.emulation import Emulation, EmulationResult
from roamcast.runtime.emulate.stage import Stage
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import DiskMedium
from roamcast.scenario import scenario_from
from roamcast.testing import network
from roamcast.trace import Trace, Transmitted
from roamcast.units import SECOND, Micros, micros
from roamcast.world.radio import DiskRadio

CALM = 6.0  # seconds of small events alone
CUT_SECONDS = 5.0
SMALL_INTERVAL = 0.05

Row = dict[str, Any]


class Observed:
    """What the two programs saw; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self.zero = 0.0  # when the emulated world began
        self.latencies: list[tuple[float, float]] = []  # when published, how long it took
        self.began = self.published = self.whole = 0.0
        self.event = EventId(0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategies", default="epidemic,tree,chapar")
    parser.add_argument("--size", type=int, default=5_000_000)
    parser.add_argument("--cut", type=float, default=3.0, help="seconds after the payload began; 0: no cut")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    for strategy in options.strategies.split(","):
        row = simulated(strategy, options) if options.simulate else play(strategy, options)
        print(json.dumps(row), flush=True)


def play(strategy: str, options: argparse.Namespace) -> Row:
    with tempfile.TemporaryDirectory(prefix="large-") as name:
        base = Path(name)
        cut_at = CALM + 4.0 + options.cut if options.cut else None
        (base / "plan.csv").write_text(plan(cut_at))
        scenario = scenario_from(tables(strategy, options.seconds), base)
        folder = base / "run"
        folder.mkdir()
        seen = Observed()
        started = threading.Event()

        def on_progress(_: float) -> None:
            started.set()

        result: list[EmulationResult] = []
        emulation = Emulation(scenario, folder=folder)
        thread = threading.Thread(target=lambda: result.append(emulation.run(on_progress)))
        thread.start()
        started.wait(60)
        seen.zero = time.monotonic()
        asyncio.run(programs(Stage(folder), seen, options))
        thread.join()
        return {**row_of(strategy, seen, result[0].trace, options, cut_at), "remark": result[0].remark}


def plan(cut_at: float | None) -> str:
    rows = ["time,i,j,state", "0.0,0,1,up", "0.0,1,2,up", "0.0,2,3,up"]
    if cut_at is not None:
        rows += [f"{cut_at},1,2,down", f"{cut_at + CUT_SECONDS},1,2,up"]
    return "\n".join(rows) + "\n"


def tables(strategy: str, seconds: float) -> dict[str, Any]:
    return {
        "scenario": {"name": "large", "duration": seconds},
        "world": {
            "nodes": 4,
            "contacts": "plan.csv",
            "radio": {"model": "disk", "bitrate": 11_000_000, "delay": 0.001, "queue": 500},
        },
        "roles": {"publishers": 0, "subscribers": 0},
        "workload": {"rate": 0.0},
        "strategy": {"name": strategy},
    }


async def programs(stage: Stage, seen: Observed, options: argparse.Namespace) -> None:
    payload = random.Random(1).randbytes(options.size)
    async with (
        connect(stage.socket_of(0), wait=20.0) as first,
        connect(stage.socket_of(3), wait=20.0) as last,
        last.subscribe(topic="small") as small,
        last.subscribe(topic="large") as large,
    ):

        async def chatter() -> None:
            while True:
                await first.publish(topic="small", attributes={"t": time.monotonic_ns()})
                await asyncio.sleep(SMALL_INTERVAL)

        async def listen() -> None:
            async for message in small:
                sent = int(str(message.event.attributes["t"])) / 1e9
                seen.latencies.append((sent, time.monotonic() - sent))

        others = [asyncio.ensure_future(chatter()), asyncio.ensure_future(listen())]
        await asyncio.sleep(CALM + 4.0 - (time.monotonic() - seen.zero))
        seen.began = time.monotonic()
        seen.event = await first.publish(topic="large", payload=payload)
        seen.published = time.monotonic()
        try:
            message = await large.next(options.seconds - 5.0 - (time.monotonic() - seen.zero))
            assert message.event.payload == payload and message.event.id == seen.event
            seen.whole = time.monotonic()
        except TimeoutError:
            print("the payload did not arrive", file=sys.stderr)
        await asyncio.sleep(1.0)
        for other in others:
            other.cancel()


class SlowRadio(DiskMedium):
    """A channel of 11 Mbit/s for each node."""

    def __init__(
        self, engine: Engine, links: RadioLinks, trace: Trace, stream: random.Random, _: float
    ) -> None:
        radio = DiskRadio(bitrate=11_000_000, delay=0.001, queue=500)
        super().__init__(engine, links, trace, stream, radio)
        self.payloads: list[bytes] = []


class VirtualNodes:
    """Nodes with applications in virtual time; chunks take their turns by its clock."""

    def __init__(self, strategy: str) -> None:
        network._Overheard = SlowRadio  # type: ignore[assignment,misc]
        self.network = network.Network(4, strategy, links=network.line(4))
        self.applications = [Applications(self, NoPressure(), self._later) for _ in range(4)]
        for number, applications in enumerate(self.applications):
            node = self.network.node(number)
            applications.bind(node)
            node.broker._application = applications

    def enter(self) -> None:
        pass

    def now(self) -> Micros:
        return self.network.engine.now

    @property
    def seconds(self) -> float:
        return self.now() / SECOND

    def run(self, seconds: float, chatter: Callable[[], None]) -> None:
        """In steps of half a millisecond, after which applications get what has come."""
        for _ in range(round(seconds * 2000)):
            self.network.run(0.0005)
            for applications in self.applications:
                applications.drain()
            if self.now() % micros(SMALL_INTERVAL) == 0:
                chatter()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.network.engine.at(self.now() + micros(seconds), lambda _: action(), None)


def simulated(strategy: str, options: argparse.Namespace) -> Row:
    nodes, seen = VirtualNodes(strategy), Observed()
    payload = random.Random(1).randbytes(options.size)
    wholes: list[float] = []

    def on_delivery(delivery: Delivery) -> None:
        if delivery.event.topic == "large":
            assert delivery.event.payload == payload
            wholes.append(nodes.seconds)
        else:
            sent = int(str(delivery.event.attributes["t"])) / SECOND
            seen.latencies.append((sent, nodes.seconds - sent))

    subscriber, publisher = (
        nodes.applications[3].open(on_delivery),
        nodes.applications[0].open(lambda _: None),
    )
    for topic in ("small", "large"):
        subscriber.subscribe(Filter.topic(topic))

    def chatter() -> None:
        publisher.publish(Publication({"t": nodes.now()}, topic="small"))

    nodes.run(CALM + 8.0, chatter)
    seen.began = nodes.seconds
    transfer = publisher.begin(Publication(topic="large"), options.size, digest_of(payload)).transfer
    seen.event = EventId(0, transfer.first)
    octets = pieces(payload)

    def step() -> bool:
        transfer.add(next(octets))
        if transfer.is_over:
            seen.published = nodes.seconds
        return not transfer.is_over

    nodes.applications[0].chunks.add(step)
    cut_at = seen.began + options.cut if options.cut else None
    if cut_at is not None:
        nodes.run(options.cut, chatter)
        nodes.network.cut((1, 2))
        nodes.run(CUT_SECONDS, chatter)
        nodes.network.connect((1, 2))
    while not wholes and nodes.seconds < options.seconds:
        nodes.run(0.1, chatter)
    seen.whole = wholes[0] if wholes else 0.0
    return row_of(strategy, seen, nodes.network.trace, options, cut_at)


def row_of(
    strategy: str, seen: Observed, trace: Trace, options: argparse.Namespace, cut_at: float | None
) -> Row:
    first, count = seen.event.sequence, count_of(options.size)
    sent = [
        one
        for one in trace.of(Transmitted)
        if one.publisher == 0 and one.sequence is not None and first <= one.sequence < first + count
    ]
    whole = seen.whole or seen.zero + options.seconds
    cut = (0.0, 0.0) if cut_at is None else (seen.zero + cut_at - 0.2, seen.zero + cut_at + CUT_SECONDS)
    under_way = (seen.began, whole if cut_at is None else cut[0])
    return {
        "strategy": strategy,
        "seconds": round(whole - seen.began, 2) if seen.whole else None,
        "seconds until published": round(seen.published - seen.began, 2),
        "octets": round(sum(one.size for one in sent) / options.size, 2),
        "resumed": None if cut_at is None else resumed(sent, cut_at, count, options.size),
        "small, before": latency(seen, seen.began - CALM + 1.0, seen.began),
        "small, under way": latency(seen, *under_way),
        "small, after the cut": None if cut_at is None else latency(seen, cut[1] + 1.0, whole),
    }


def resumed(sent: list[Transmitted], cut_at: float, count: int, size: int) -> list[float]:
    """Octets over the healed link per octet of payload, and the share of chunks that were still to cross."""
    healed = micros(cut_at + CUT_SECONDS)
    crossed = {one.sequence for one in sent if one.node == 2 and one.t < healed}
    again = sum(one.size for one in sent if one.node == 1 and one.t >= healed)
    return [round(again / size, 2), round(1 - len(crossed) / count, 2)]


def latency(seen: Observed, begin: float, end: float) -> list[float] | None:
    """Median and 95th percentile in ms, and how many."""
    found = sorted(took for sent, took in seen.latencies if begin <= sent < end)
    if len(found) < 5:
        return None
    high = found[min(len(found) - 1, round(0.95 * len(found)))]
    return [round(1e3 * statistics.median(found), 1), round(1e3 * high, 1), len(found)]


if __name__ == "__main__":
    main()
