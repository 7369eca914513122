"""Gossip: a node passes an event on with some probability (GOSSIP1 of Haas, Halpern and Li, INFOCOM 2002).

Each node relays the first copy of an event by one broadcast, after a random delay, and drops later ones.
Near the publisher every node relays, so that an event does not die where it began; beyond `certain_hops`
some stay silent, which spares transmissions. Delivery is best effort.
"""

from typing import Annotated

import msgspec

from roamcast.errors import WireError
from roamcast.event import Count, Event, EventId
from roamcast.host import Frame, Kind, TimerName
from roamcast.strategy import STRATEGIES, Strategy, StrategyContext
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros
from roamcast.wire import Codec


class GossipOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7  # that a node passes an event on
    certain_hops: Annotated[int, msgspec.Meta(ge=0, le=255)] = 2  # so near to the publisher, every node does
    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # seconds; each relay waits up to this
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # events that wait for their jitter to end


class Rumour(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """One event on its way. `hops`: radio hops before this one; `age`: time since publication."""

    event: Event
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)]
    age: Count


CODEC: Codec[Rumour] = Codec("gossip", 1, Rumour)


class Gossip(Strategy):
    def __init__(self, context: StrategyContext, options: GossipOptions) -> None:
        self._host = context.host
        self._broker = context.broker
        self._options = options
        self._pending: dict[EventId, tuple[Rumour, Micros]] = {}  # with its time of arrival

    def publish(self, event: Event) -> None:
        self._send(Rumour(event, 0, 0))

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            rumour = CODEC.decode(payload)
        except WireError:
            self._host.trace(Dropped(self._host.now(), self._host.node, DropReason.WIRE, "gossip"))
            return
        event, hops = rumour.event, min(rumour.hops + 1, 255)
        if not self._broker.observe(event.id, event.lifetime - rumour.age):
            return  # a copy of what was here already
        self._broker.deliver(event, hops, rumour.age)
        if hops >= self._options.certain_hops and self._host.random.random() >= self._options.probability:
            return
        if hops == 255 or len(self._pending) >= self._options.pending_max:
            self._broker.drop(event.id, DropReason.QUEUE_FULL, "gossip")
            return
        self._pending[event.id] = Rumour(event, hops, rumour.age), self._host.now()
        wait = int(self._host.random.random() * micros(self._options.jitter))
        self._host.set_timer(event.id, self._host.now() + wait)

    def on_timer(self, name: TimerName) -> None:
        assert isinstance(name, EventId)
        rumour, arrived = self._pending.pop(name)
        self._send(Rumour(rumour.event, rumour.hops, rumour.age + self._host.now() - arrived))

    def _send(self, rumour: Rumour) -> None:
        octets = CODEC.encode(rumour)
        self._host.broadcast(Frame(octets, Kind.DATA, "gossip", rumour.event.id, rumour.hops == 0))


STRATEGIES.add("gossip", GossipOptions, Gossip, default_underlay="none")
