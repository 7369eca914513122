"""A set of TCP peers that stays connected, without cycles, while peers come and go.

The peers know nothing of publish/subscribe. They have TCP links of their own and give the care for them
to Roamcast's reactive overlay manager: it says which links to open, they say which ones broke. Its control
messages travel on Roamcast's radio, here on the loopback: sealed datagrams to everybody in reach.

    python examples/keep_connected.py
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from roamcast.host import Channel
from roamcast.runtime.live.layers import LiveLayers
from roamcast.runtime.live.settings import AirSettings
from roamcast.sealing import GroupKey, Identity, KeyRing
from roamcast.strategy.tree.overlay.manager import ReactiveManager
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId

OPTIONS = TreeOptions(hello_interval=0.4, discover_timeout=0.2, reconnection_trigger=1, request_retries=1)
AIR = AirSettings(interface="lo", port=47_470)
KEYS = KeyRing(GroupKey.generate())  # peers on several machines read the same one from a file


class Peer:
    """One TCP peer: the owner of a manager, and its connector."""

    def __init__(self, identity: Identity) -> None:
        self.links: dict[NodeId, asyncio.StreamWriter] = {}
        self._number = identity.node
        self._live = LiveLayers(identity, KEYS, AIR)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._manager = ReactiveManager(self._live.host(Channel.STRATEGY), OPTIONS, self)
        await self._live.start(self._manager)

    async def stop(self) -> None:
        """Disappear without a word to the manager's peers; their TCP connections will tell them."""
        await self._live.close()
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
            self._live.handle(self._manager.signal_lost_neighbour, number)
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
            self._live.handle(self._manager.signal_lost_neighbour, number)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


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
    identities = {number: Identity.generate(number) for number in range(1, 7)}
    peers = {number: Peer(identity) for number, identity in identities.items()}
    for peer in peers.values():
        await peer.start()
    sys.stdout.write("six peers start:\n")
    await wait_for_tree(peers)

    busiest = max(peers, key=lambda number: len(peers[number].links))
    await peers.pop(busiest).stop()
    sys.stdout.write(f"peer {busiest} is gone:\n")
    await wait_for_tree(peers)

    peers[busiest] = Peer(identities[busiest])
    await peers[busiest].start()
    sys.stdout.write(f"peer {busiest} is back:\n")
    await wait_for_tree(peers)
    for peer in peers.values():
        await peer.stop()


if __name__ == "__main__":
    asyncio.run(main())
