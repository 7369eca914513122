"""Layers of one's own on the live radio, without a node: no broker, no storage, no trace, no commands.

A program that has links of its own keeps them connected by an overlay manager
(`strategy/tree/overlay/manager.py`):

    live = LiveLayers(identity, KeyRing(group_key), AirSettings(interface="wlan0"))
    manager = ReactiveManager(live.host(Channel.STRATEGY), TreeOptions(), connector)
    await live.start(manager)
    live.handle(manager.signal_lost_neighbour, 7)  # what comes from outside is an input, like a frame
    await live.stop()

All who are to hear each other have the same group key and air port.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from random import Random
from typing import Protocol

from roamcast import __version__
from roamcast.host import Channel, Layer
from roamcast.runtime.live.air.radio import LiveRadio
from roamcast.runtime.live.inputs import Clock, Inputs, NodeTimers
from roamcast.runtime.live.linux import this_machine
from roamcast.runtime.live.node import FAREWELL_LOOK_SECONDS, FAREWELL_SECONDS, LiveHost
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.runtime.live.report.misfits import NodeProfile
from roamcast.runtime.live.settings import AirSettings
from roamcast.runtime.live.world import NodeWorld
from roamcast.sealing import Identity, KeyRing, Sealer, reserve_epoch
from roamcast.units import SECOND, NodeId


class LayerStack(Protocol):
    """Something that consists of layers, e.g. an overlay manager."""

    @property
    def layers(self) -> Mapping[Channel, Layer]:
        """Who handles the frames and timers of each channel."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Say goodbye."""


class LiveLayers:
    def __init__(
        self,
        identity: Identity,
        ring: KeyRing,
        air: AirSettings,
        stable: MutableMapping[str, bytes] | None = None,
        world: NodeWorld | None = None,
    ) -> None:
        """`stable`: what survives a restart, durable when a write returns. Without it a program that sends
        objects takes a new identity at each start, since its objects are numbered from the beginning. Others
        keep the key of a configured number: who has one keeps its identity too."""
        world = this_machine() if world is None else world
        self._stable = {} if stable is None else stable
        self._loop = world.loop
        self._random = world.random
        self.node: NodeId = identity.node
        self.clock = Clock(world.clock)
        self.counters = Counters()
        self.inputs = Inputs(self.clock, self.counters, lambda: None)
        self.timers = NodeTimers(self.inputs, world.loop)
        self._journal = NodeJournal(self.node, self.clock, self.counters, None)
        epoch = reserve_epoch(self._stable, world.wall() / SECOND, world.random.randrange)
        sealer, names = Sealer(identity, ring, epoch), air.wanted(world.network)
        self.radio = LiveRadio(world, air, names, sealer, self._stable, self.inputs, self._journal, self)
        self._hosts: dict[Channel, LiveHost] = {}
        self._stack: LayerStack | None = None

    def host(self, channel: Channel) -> LiveHost:
        if channel not in self._hosts:
            random = Random(self._random.getrandbits(256))
            self._hosts[channel] = LiveHost(
                self.node, channel, self.clock, self.timers, self.radio, self._journal, random, self._stable
            )
        return self._hosts[channel]

    async def start(self, stack: LayerStack) -> None:
        """Open the radio and start the layers; `InputError` if there is no such interface."""
        self._stack = stack
        for channel, layer in stack.layers.items():
            self.host(channel).attach(layer)
        try:
            await self.radio.open()
        except BaseException:
            await self.close()
            raise
        self.handle(stack.start)

    def handle(self, call: Callable[..., None], *arguments: object) -> None:
        """Call into the layers, at an instant of its own. An error is logged and counted, and ends nothing.
        Never from inside another call into them."""
        self.inputs.handle(call, *arguments)

    async def stop(self) -> None:
        """The layers say goodbye, and what they said is sent."""
        if self._stack is not None:
            self.handle(self._stack.stop)
        until = self._loop.time() + FAREWELL_SECONDS
        while self.radio.is_busy and self._loop.time() < until:
            await asyncio.sleep(FAREWELL_LOOK_SECONDS)
        await self.close()

    async def close(self) -> None:
        """Stop at once, without a goodbye."""
        self.inputs.close()
        self.timers.close()
        await self.radio.close()

    # For the radio.

    def profile(self) -> NodeProfile:
        return NodeProfile(__version__[:32], type(self._stack).__name__[:32], "", "", 0)

    def on_acquainted(self, node: NodeId) -> None:
        underlay = None if self._stack is None else self._stack.layers.get(Channel.UNDERLAY)
        if underlay is not None:
            underlay.on_acquainted(node)
