"""A set of TCP peers that stays connected, without cycles, while peers come and go.

The peers know nothing of publish/subscribe. They have TCP links of their own and give the care for them
to Roamcast's reactive overlay manager: it says which links to open, they say which ones broke. Control
messages travel as UDP datagrams on the loopback, to everybody, as a radio would have it.

    python examples/keep_connected.py
"""

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any

from roamcast.host import Frame, Position, SendFailure, TimerName
from roamcast.strategy.tree.overlay.manager import ReactiveManager
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.trace import Record
from roamcast.units import SECOND, Micros, NodeId

OPTIONS = TreeOptions(hello_interval=0.4, discover_timeout=0.2, reconnection_trigger=1, request_retries=1)


class Peer:
    """One TCP peer: the owner of a manager, and its connector."""

    def __init__(self, number: NodeId, directory: dict[NodeId, int]) -> None:
        self.links: dict[NodeId, asyncio.StreamWriter] = {}
        self._number = number
        self._directory = directory  # UDP ports of all peers
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._host = LoopHost(self._number, self._directory)
        await self._host.open()
        self._manager = ReactiveManager(self._host, OPTIONS, self)
        self._host.attach(self._manager)
        self._manager.on_start()

    async def stop(self) -> None:
        """Disappear without a word to the manager's peers; their TCP connections will tell them."""
        self._host.close()
        assert self._server is not None
        self._server.close()
        for writer in list(self.links.values()):
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # The connector.

    def id(self) -> NodeId:
        return self._number

    def neighbours(self) -> list[NodeId]:
        return sorted(self.links)

    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"tcp://{host}:{port}/{self._number}"

    def open_link(self, url: str) -> None:
        address, number = url.removeprefix("tcp://").split("/")
        host, port = address.split(":")
        self._spawn(self._connect(host, int(port), int(number)))

    def close_link(self, neighbour: NodeId) -> None:
        if neighbour in self.links:
            self.links[neighbour].close()

    # TCP.

    async def _connect(self, host: str, port: int, number: NodeId) -> None:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            self._manager.signal_lost_neighbour(number)
            return
        writer.write(f"{self._number}\n".encode())
        await self._hold(number, reader, writer)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._greet(reader, writer))

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = await reader.readline()
        if greeting:
            await self._hold(int(greeting), reader, writer)

    async def _hold(self, number: NodeId, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep a link until it ends; an application would read and write here."""
        self.links[number] = writer
        try:
            while await reader.read(1024):
                pass
        except OSError:
            pass
        writer.close()
        if self.links.get(number) is writer:
            del self.links[number]
            self._manager.signal_lost_neighbour(number)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class LoopHost(asyncio.DatagramProtocol):
    """The port of `roamcast.host` on an asyncio loop: timers, and datagrams to everybody."""

    def __init__(self, node: NodeId, directory: dict[NodeId, int]) -> None:
        self.node = node
        self.random = random.Random()
        self.stable: MutableMapping[str, bytes] = {}
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._timers: dict[TimerName, asyncio.TimerHandle] = {}
        self._now: Micros = 0

    async def open(self) -> None:
        self._transport, _ = await self._loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self._directory[self.node] = self._transport.get_extra_info("sockname")[1]

    def close(self) -> None:
        del self._directory[self.node]
        self._transport.close()
        for timer in self._timers.values():
            timer.cancel()

    def attach(self, manager: ReactiveManager) -> None:
        self._manager = manager

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._manager.on_receive(int.from_bytes(data[:4], "big"), data[4:])

    def now(self) -> Micros:
        self._now = max(self._now, round(self._loop.time() * SECOND))
        return self._now

    def set_timer(self, name: TimerName, at: Micros) -> None:
        self.cancel_timer(name)
        self._timers[name] = self._loop.call_at(at / SECOND, self._on_due, name, at)

    def cancel_timer(self, name: TimerName) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def broadcast(self, frame: Frame) -> None:
        for number in sorted(self._directory):
            if number != self.node:
                self.unicast(number, frame)

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        if to in self._directory:
            datagram = self.node.to_bytes(4, "big") + frame.payload
            self._transport.sendto(datagram, ("127.0.0.1", self._directory[to]))
        elif on_failure is not None:
            self._loop.call_soon(on_failure, SendFailure.LINK)

    def position(self) -> Position | None:
        return None

    def trace(self, record: Record) -> None:
        """An application could keep these."""

    def _on_due(self, name: TimerName, at: Micros) -> None:
        del self._timers[name]
        self._now = max(self._now, at)  # the loop may wake us a clock tick early
        self._manager.on_timer(name)


def is_tree(peers: dict[NodeId, Peer]) -> bool:
    """Whether the TCP links join all peers, without a cycle."""
    links = {tuple(sorted((number, other))) for number, peer in peers.items() for other in peer.links}
    reached, frontier = set(), [min(peers)]
    while frontier:
        number = frontier.pop()
        if number not in reached and number in peers:
            reached.add(number)
            frontier += peers[number].links
    return reached == set(peers) and len(links) == len(peers) - 1


async def wait_for_tree(peers: dict[NodeId, Peer], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not is_tree(peers):
            await asyncio.sleep(0.02)
    for number, peer in sorted(peers.items()):
        sys.stdout.write(f"  {number}: {peer.neighbours()}\n")


async def main() -> None:
    directory: dict[NodeId, int] = {}
    peers = {number: Peer(number, directory) for number in range(1, 7)}
    for peer in peers.values():
        await peer.start()
    sys.stdout.write("six peers start:\n")
    await wait_for_tree(peers)

    busiest = max(peers, key=lambda number: len(peers[number].links))
    await peers.pop(busiest).stop()
    sys.stdout.write(f"peer {busiest} is gone:\n")
    await wait_for_tree(peers)

    peers[busiest] = Peer(busiest, directory)
    await peers[busiest].start()
    sys.stdout.write(f"peer {busiest} is back:\n")
    await wait_for_tree(peers)
    for peer in peers.values():
        await peer.stop()


if __name__ == "__main__":
    asyncio.run(main())
