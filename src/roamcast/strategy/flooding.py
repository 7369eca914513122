"""Flooding: every node passes every event on once. The baseline for all other strategies.

Each node relays the first copy of an event by one broadcast, after a random delay (jitter) that keeps
the receivers of one broadcast from answering all at the same instant; later copies are dropped.
Subscriptions do not travel: filters are tried where the event arrives. Every node relays, whatever
the scenario's broker roles say.

Memorized events are kept by every node that heard them, so that a subscription made later on the same
node is served. A node that was out of reach while the event was flooded does not get it afterwards:
that is what the other strategies are for.

The defaults of the options are chosen by us: more jitter means fewer collisions and more latency per hop.
"""

from typing import Annotated

import msgspec

from roamcast.broker.seen import EventKey, event_key
from roamcast.event import Count, Event, EventClass, EventId
from roamcast.host import Kind
from roamcast.kit.protocol import MessageLayer, Messenger, WireMessage
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId, micros
from roamcast.wire import Codec


class FloodingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # seconds; each relay waits up to this
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64  # radio hops
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # events waiting for their jitter to end


class Flood(WireMessage, frozen=True, tag=1):
    """One event on its way. `hops`: radio hops before this one; `age`: time since publication."""

    name = "flood"
    kind = Kind.DATA

    event: Event
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)]
    age: Count

    @property
    def event_id(self) -> EventId:
        return self.event.id


CODEC: Codec[Flood] = Codec("flood", 2, Flood)


class PendingFlood(msgspec.Struct, frozen=True, eq=False):  # without `eq`, a timer's name is not hashed
    """A flood that waits for its jitter to end: `kit/relay.py` without a table, for nothing can make it
    needless."""

    flooding: "Flooding"
    flood: Flood
    arrived: Micros

    def due(self) -> None:
        self.flooding.pass_on(self.flood, self.arrived)


class LastHeard:
    """The frame that was decoded last, for all nodes of this process: one broadcast reaches many nodes of a
    simulation as the same object, most of them as a duplicate, so what follows from it is kept beside it."""

    __slots__ = ("flood", "key", "payload")
    payload: bytes | None
    flood: Flood
    key: EventKey

    def __init__(self) -> None:
        self.payload = None

    def decode(self, payload: bytes, messenger: Messenger[Flood]) -> bool:
        flood = messenger.decode(payload)
        if flood is None:
            return False
        self.payload, self.flood = payload, flood
        self.key = event_key(flood.event.publisher, flood.event.sequence)
        return True


HEARD = LastHeard()
MEMORIZED = EventClass.MEMORIZED  # a global name is found faster than a member of a class


class Flooding(MessageLayer, Strategy):
    def __init__(self, context: StrategyContext, options: FloodingOptions) -> None:
        super().__init__(context.host, CODEC)
        self._broker = context.broker
        self._seen_lately = context.broker.seen_lately
        self._jitter: Micros = micros(options.jitter)
        self._hop_limit = options.hop_limit
        self._pending_max = options.pending_max
        self._pending = 0

    def publish(self, event: Event) -> None:
        self.messenger.send(Flood(event, 0, 0))

    def seal_id(self, clear: Event) -> bytes | None:
        return b""  # every node gets every event

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        heard = HEARD
        if payload is not heard.payload and not heard.decode(payload, self.messenger):
            return
        if heard.key in self._seen_lately:  # most copies
            return
        flood = heard.flood
        event, age = flood.event, flood.age
        lives_for = event.lifetime - age
        broker = self._broker
        if not broker.observe_key(heard.key, lives_for):
            return
        if lives_for <= 0 and event.event_class is MEMORIZED:
            broker.drop(event.id, DropReason.EXPIRED, "flood")
            return
        broker.deliver(event, flood.hops + 1, age)
        if flood.hops + 1 >= self._hop_limit:
            broker.drop(event.id, DropReason.EXPIRED, "flood")
        elif self._pending >= self._pending_max:
            broker.drop(event.id, DropReason.QUEUE_FULL, "flood")
        else:
            self._pending += 1
            now = self.host.now()
            wait = int(self.host.random.random() * self._jitter)
            self.host.set_timer(PendingFlood(self, flood, now), now + wait)

    def pass_on(self, flood: Flood, arrived: Micros) -> None:
        """The jitter is over."""
        self._pending -= 1
        age = flood.age + self.host.now() - arrived
        self.messenger.send(Flood(flood.event, flood.hops + 1, age), own=False)
