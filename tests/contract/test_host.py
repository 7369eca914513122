"""The promises of `roamcast.host.Host`, checked on every runtime that implements it.

A runtime joins by adding a `Harness` to `HARNESSES`: a way to make a few connected hosts and to let
time pass. The suite speaks of promises only, never of a runtime's insides.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.runtime.live.nodes import faults
from tests.runtime.live.worlds import world

from roamcast.host import Channel, Host, Layer
from roamcast.runtime.live.layers import LiveLayers
from roamcast.runtime.live.settings import AirSettings
from roamcast.runtime.sim.csma import CsmaMedium
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.host import SimHost
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import DiskMedium, IdealMedium, Medium
from roamcast.sealing import GroupKey, Identity, KeyRing
from roamcast.streams import stream
from roamcast.testing.contract import Harness, HostContract
from roamcast.trace import Trace
from roamcast.units import SECOND, Micros, NodeId
from roamcast.world.radio import CsmaRadio, DiskRadio


class SimHarness:
    def __init__(self, make: Callable[[Engine, RadioLinks, Trace], Medium]) -> None:
        self.engine = Engine()
        links = RadioLinks(3)
        links.plan(0, 1, True)
        links.plan(1, 0, True)
        trace = Trace()
        self.medium = make(self.engine, links, trace)
        self.hosts = [
            SimHost(n, Channel.STRATEGY, self.engine, self.medium, trace, stream(1, "node", n), {}, None)
            for n in range(3)
        ]

    def host(self, node: NodeId) -> Host:
        return self.hosts[node]

    def attach(self, node: NodeId, layer: Layer) -> None:
        self.hosts[node].attach(layer)
        self.medium.receivers[Channel.STRATEGY][node] = layer.on_receive

    def run(self, by: Micros) -> None:
        self.engine.run(self.engine.now + by)

    def inside(self, action: Callable[[], None]) -> None:
        self.engine.at(self.engine.now, lambda _: action())

    def close(self) -> None:
        pass


class LiveHarness:
    """Real time passes, so a long run ends when nothing is under way any more."""

    QUIET_LOOKS = 3

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        ring = KeyRing(GroupKey.generate())
        here, elsewhere = free_port(), free_port()
        self.parts = [
            LiveLayers(
                Identity.generate(n),
                ring,
                AirSettings(interface="lo", port=elsewhere if n == 2 else here),
                world=world(self.loop),
            )
            for n in range(3)
        ]
        self.stack = ExitStack()
        self.errors = self.stack.enter_context(faults())
        for part in self.parts:
            self.loop.run_until_complete(part.radio.open())
        books = [part.radio.peers for part in self.parts[:2]]
        self.loop.run_until_complete(self.until(lambda: 1 in books[0] and 0 in books[1]))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    def host(self, node: NodeId) -> Host:
        return self.parts[node].host(Channel.STRATEGY)

    def attach(self, node: NodeId, layer: Layer) -> None:
        self.parts[node].host(Channel.STRATEGY).attach(layer)
        for part in self.parts:
            part.clock.enter()

    def run(self, by: Micros) -> None:
        if by >= SECOND:
            self.loop.run_until_complete(self.quiet(by))
        else:
            # To the instant, and no further: what else is due in the same turn of the loop waits.
            until = max(part.clock.now for part in self.parts) + by

            def stop() -> None:
                raise KeyboardInterrupt

            self.loop.call_later((until - self.parts[0].clock.read()) / SECOND, stop)
            with pytest.raises(KeyboardInterrupt):
                self.loop.run_forever()
        if self.errors:
            raise self.errors[0]

    async def quiet(self, by: Micros) -> None:
        end, looks = self.loop.time() + by / SECOND, 0
        while looks < self.QUIET_LOOKS and self.loop.time() < end:
            await asyncio.sleep(0.02)
            looks = 0 if any(len(part.timers) or part.radio.is_busy for part in self.parts) else looks + 1

    def inside(self, action: Callable[[], None]) -> None:
        self.loop.call_soon(self.parts[0].inputs.handle, action)

    def close(self) -> None:
        for part in self.parts:
            part.timers.close()
            self.loop.run_until_complete(part.radio.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.stack.close()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


HARNESSES: dict[str, Callable[[], Harness]] = {
    "sim-ideal": lambda: SimHarness(lambda e, links, t: IdealMedium(e, links, t, stream(1, "radio"), 0.0)),
    "sim-disk": lambda: SimHarness(
        lambda e, links, t: DiskMedium(e, links, t, stream(1, "radio"), DiskRadio())
    ),
    "sim-disk-random": lambda: SimHarness(
        lambda e, links, t: DiskMedium(e, links, t, stream(1, "radio"), DiskRadio(delay=(0.0, 0.2)))
    ),
    "sim-csma": lambda: SimHarness(
        lambda e, links, t: CsmaMedium(e, links, links, t, stream(1, "radio"), CsmaRadio(), 1)
    ),
    "live": LiveHarness,
}


class TestHost(HostContract):
    @pytest.fixture(
        params=[
            pytest.param(name, marks=pytest.mark.realtime if name == "live" else ())
            for name in sorted(HARNESSES)
        ]
    )
    def harness(self, request: pytest.FixtureRequest) -> Iterator[Harness]:
        made = HARNESSES[request.param]()
        yield made
        made.close()
