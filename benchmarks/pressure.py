"""Three hops at full load: what a publisher is allowed, what arrives, and whether the two agree.

Four live nodes in a row on the loopback, each in a process of its own; a node hears its two neighbours only.
A program on the first publishes as fast as it may, one on the last counts. The third node is slow, so that
it is the bottleneck on any machine.

    python benchmarks/pressure.py [--seconds 30] [--memorized] [--unlimited] [--relay 0.01]
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from roamcast.applications import ApplicationSession
from roamcast.broker.core import Delivery
from roamcast.client import connect
from roamcast.client.client import ClientError
from roamcast.filter import Filter
from roamcast.gateway.local import LocalServer
from roamcast.gateway.options import LocalOptions
from roamcast.pressure import NoPressure
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.settings import AirSettings, KeySettings, LiveSettings, NodeSettings
from roamcast.sealing import GroupKey, Identity

NODES = 4
AT_ONCE = 500  # publications whose answers are awaited together
SETTLED = 0.5  # the share of the run after which rates are compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--memorized", action="store_true")
    parser.add_argument("--unlimited", action="store_true", help="without back-pressure, for comparison")
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument(
        "--relay", type=float, default=0.01, help="seconds per datagram that the third node needs"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(play(Path(folder), options))


def play(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    group = GroupKey.generate().to_text()
    base = 20_000 + int(time.time()) % 20_000
    pipes: list[Connection] = []
    context = multiprocessing.get_context("spawn")
    processes: list[multiprocessing.context.SpawnProcess] = []
    for number in range(NODES):
        ours, theirs = context.Pipe()
        process = context.Process(target=_node, args=(number, group, base, str(folder), options, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()  # it runs, and hears its neighbours
    pipes[0].send("publish")
    published: dict[str, Any] = pipes[0].recv()
    time.sleep(5.0 if not options.memorized else 30.0)  # for what is on its way
    pipes[-1].send("stop")
    arrived: list[tuple[float, int]] = pipes[-1].recv()
    for pipe in pipes[:-1]:
        pipe.send("stop")
    for process in processes:
        process.join()
    accepted: list[tuple[float, int]] = published["accepted"]
    begin = accepted[0][0] + SETTLED * options.seconds
    end = accepted[0][0] + options.seconds
    late = {number for at, number in accepted if begin <= at <= end}
    came = {number for _, number in arrived}
    return {
        "accepted": len(accepted),
        "shed": published["shed"],
        "arrived": len(came),
        "share of accepted": round(len(came) / len(accepted), 4),
        "accepted per second, second half": round(len(late) / (end - begin)),
        "share of those": round(len(late & came) / max(1, len(late)), 4),
        "doubled": len(arrived) - len(came),
    }


def _node(
    number: int, group: str, base: int, folder: str, options: argparse.Namespace, pipe: Connection
) -> None:
    asyncio.run(_run(number, group, base, Path(folder), options, pipe))


async def _run(
    number: int, group: str, base: int, folder: Path, options: argparse.Namespace, pipe: Connection
) -> None:
    settings = LiveSettings(
        node=NodeSettings(number=number + 1, state=f"{number}.db"),
        keys=KeySettings(identity=Identity.generate().to_text(), group=(group,)),
        air=AirSettings(interface="lo", port=base, own_port=base + 1 + number),
    )
    node = await LiveNode.start(settings, folder)
    if options.unlimited:
        node.applications.pressure = NoPressure()
    _hear_only(node, {base + number, base + 2 + number}, options.relay if number == 2 else 0.0)
    neighbours = 1 if number in (0, NODES - 1) else 2
    while len(node.node.underlay.neighbours()) != neighbours:
        await asyncio.sleep(0.05)
    server = LocalServer(node, LocalOptions(socket=str(folder / f"{number}.sock")))
    await server.start()
    arrived: list[tuple[float, int]] = []

    def on_delivery(delivery: Delivery) -> None:
        arrived.append((time.monotonic(), int(str(delivery.event.attributes["n"]))))

    session: ApplicationSession = node.applications.open(on_delivery)
    if number == NODES - 1:
        session.subscribe(Filter.sql("n >= 0"))
    pipe.send("ready")
    loop = asyncio.get_running_loop()
    if number == 0:
        await loop.run_in_executor(None, pipe.recv)
        pipe.send(await _publish(folder / "0.sock", options))
    await loop.run_in_executor(None, pipe.recv)
    if number == NODES - 1:
        pipe.send(arrived)
    await server.stop()
    await node.stop()


def _hear_only(node: LiveNode, ports: set[int], seconds: float) -> None:
    air = node.radio.air
    hear = air.on_datagram

    def on_datagram(data: bytes, source: Endpoint) -> None:
        if source[1] in ports:
            time.sleep(seconds)  # as a slow device
            hear(data, source)

    air.on_datagram = on_datagram


async def _publish(socket: Path, options: argparse.Namespace) -> dict[str, Any]:
    accepted: list[tuple[float, int]] = []
    shed = 0
    async with connect(socket) as client:
        until = time.monotonic() + options.seconds
        number = 0
        memorized: dict[str, Any] = {"lifetime": 600.0} if options.memorized else {}

        async def one(mine: int) -> None:
            nonlocal shed
            try:
                await client.publish(attributes={"n": mine}, payload=bytes(options.size), **memorized)
                accepted.append((time.monotonic(), mine))
            except ClientError:
                shed += 1

        while time.monotonic() < until:
            await asyncio.gather(*(one(number + more) for more in range(AT_ONCE)))
            number += AT_ONCE
    return {"accepted": accepted, "shed": shed}


if __name__ == "__main__":
    main()
