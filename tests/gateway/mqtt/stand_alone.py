"""A node that is alone: all that the listener needs, in this process, with a radio that nobody hears.

Run as a program it serves MQTT until it is stopped, for conformance suites and clients tried by hand:

    python tests/gateway/mqtt/stand_alone.py --port 1883 --state /tmp/state.db
"""

import argparse
import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from roamcast.applications import Applications
from roamcast.broker.store import EventStore, StoreFullError
from roamcast.event import EventId
from roamcast.exchange import Exchanges
from roamcast.gateway.mqtt.listener import MqttListener
from roamcast.gateway.options import MqttOptions
from roamcast.host import Channel, Frame
from roamcast.node import Node, NodeConfig
from roamcast.runtime.live.linux import LocalDisk, this_machine
from roamcast.runtime.live.storage.database import DurableEventStore, NodeStorage
from roamcast.runtime.live.world import NodeWorld
from roamcast.testing import FakeHost
from roamcast.trace import Record
from roamcast.units import Micros, NodeId
from roamcast.wire.status import EventWay, NodeStatus


class SilentHost(FakeHost):
    """Hands frames to who listens and forgets them, and all records: a long run must not grow."""

    def __init__(self, node: NodeId) -> None:
        super().__init__(node)
        self.listeners: list[Callable[[NodeId, bytes], None]] = []

    def broadcast(self, frame: Frame) -> None:
        for hear in self.listeners:
            asyncio.get_running_loop().call_soon(hear, self.node, frame.payload)

    def trace(self, record: Record) -> None:
        pass

    def now(self) -> Micros:
        return time.monotonic_ns() // 1_000


class Counts:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        shown = ",".join(labels.values())
        self.counts[f"{name}:{shown}" if shown else name] += int(amount)

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        self.gauges[name] = read


class StandAloneNode:
    """As `LiveNode`, without a radio. `host`: of each layer; by default one with a clock that runs."""

    def __init__(
        self,
        number: int = 1,
        storage: NodeStorage | None = None,
        *,
        strategy: str = "epidemic",
        host: Callable[[NodeId], FakeHost] = SilentHost,
    ) -> None:
        self.number = number
        self.name = f"node-{number}"
        self.storage = storage
        self.counters = Counts()
        self.hosts = {channel: host(number) for channel in Channel}
        self.applications = Applications(self)
        self._commit: asyncio.Handle | None = None
        store: EventStore | None = None
        if storage is not None:
            store = DurableEventStore(storage, self.now(), lambda: time.time_ns() // 1_000)
            for one in self.hosts.values():
                one.stable = storage.stable
        self.node = Node(NodeConfig(strategy), self.hosts.__getitem__, self.applications, store=store)
        self.applications.bind(self.node)
        self.exchanges = Exchanges(self, self.applications, Random(1), self.counters)

    @property
    def world(self) -> NodeWorld:
        return this_machine()

    def later(self, delay: Micros, action: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(delay / 1e6, action).cancel

    def heard(self) -> int:
        return 0

    def status(self) -> NodeStatus:
        """Empty, but for what the node is called."""
        empty = {"str": "", "int": 0, "float": 0.0, "bool": False}
        fields = {one.name: one for one in msgspec.structs.fields(NodeStatus) if one.required}
        values = {name: empty.get(getattr(one.type, "__name__", ""), ()) for name, one in fields.items()}
        values |= {"number": self.number, "names": {self.number: self.name}, "clients": {}}
        return msgspec.convert(values, NodeStatus)

    def forget(self, device: int) -> None:
        raise NotImplementedError

    def revoke(self, device: int, *, undo: bool = False) -> None:
        raise AssertionError("nobody asks this node")

    def way_of(self, event: EventId) -> EventWay:
        raise AssertionError("nobody asks this node")

    def hears(self, other: "StandAloneNode") -> None:
        """Every broadcast of another node from now on."""

        def hear(sender: NodeId, payload: bytes) -> None:
            self.node.strategy.on_receive(sender, payload)
            self.applications.drain()

        heard = other.hosts[Channel.STRATEGY]
        assert isinstance(heard, SilentHost)
        heard.listeners.append(hear)

    def enter(self) -> None:
        if self.storage is not None and self._commit is None:
            self._commit = asyncio.get_running_loop().call_soon(self._on_commit)

    def now(self) -> Micros:
        return self.hosts[Channel.STRATEGY].now()

    def when_durable(
        self, callback: Callable[[], None], on_failure: Callable[[StoreFullError], object] | None = None
    ) -> None:
        if self.storage is None:
            callback()
            return

        def durable(failure: StoreFullError | None) -> None:
            if failure is None:
                callback()
            elif on_failure is not None:
                on_failure(failure)

        self.storage.on_durable(durable)
        self.enter()

    def _on_commit(self) -> None:
        self._commit = None
        assert self.storage is not None
        self.storage.commit()


class StandingNode(StandAloneNode):
    """One whose clock stands, and whose disk is written when the test says so."""

    def __init__(self, *, durable_at_once: bool = True) -> None:
        super().__init__(7, host=FakeHost)
        self.unwritten: list[Callable[[], None]] = []
        self._durable_at_once = durable_at_once

    def when_durable(
        self, callback: Callable[[], None], on_failure: Callable[[StoreFullError], object] | None = None
    ) -> None:
        if self._durable_at_once:
            callback()
        else:
            self.unwritten.append(callback)


async def serve(options: MqttOptions, state: Path | None) -> None:
    storage = None if state is None else NodeStorage(LocalDisk(), state)
    listener = MqttListener(StandAloneNode(storage=storage), options)
    await listener.start()
    print(f"listening on {listener.port} {listener.tls_port}", flush=True)  # noqa: T201
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await listener.stop()
    if storage is not None:
        storage.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="an MQTT listener on a node that is alone")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--options", default="{}", help="more options, as JSON")
    arguments = parser.parse_args()
    fields = msgspec.json.decode(arguments.options)
    options = msgspec.convert({"port": arguments.port, **fields}, MqttOptions)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options, arguments.state))


if __name__ == "__main__":
    main()
