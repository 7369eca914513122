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

from roamcast.broker.core import Broker
from roamcast.broker.seen import EventKey, event_key
from roamcast.errors import WireError
from roamcast.event import Count, Event, EventClass
from roamcast.host import Frame, Host, Kind, TimerName
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros
from roamcast.wire import Codec


class FloodingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # seconds; each relay waits up to this
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64  # radio hops
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # events waiting for their jitter to end


class Flood(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """One event on its way. `hops`: radio hops before this one; `age`: time since publication."""

    event: Event
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)]
    age: Count


CODEC: Codec[Flood] = Codec("flood", 1, Flood)


class Relay(msgspec.Struct, frozen=True, eq=False):  # without `eq`, a name of a timer that costs no hashing
    """A flood that waits for its jitter to end."""

    flood: Flood
    arrived: Micros


class LastHeard:
    """The frame that was decoded last, for all nodes of this process: one broadcast reaches many nodes of a
    simulation as the same object, most of them as a duplicate, so what follows from it is kept beside it."""

    __slots__ = ("flood", "key", "payload")
    payload: bytes | None
    flood: Flood
    key: EventKey

    def __init__(self) -> None:
        self.payload = None

    def decode(self, payload: bytes) -> None:
        flood = CODEC.decode(payload)
        self.payload, self.flood = payload, flood
        self.key = event_key(flood.event.publisher, flood.event.sequence)


HEARD = LastHeard()
DATA, MEMORIZED = Kind.DATA, EventClass.MEMORIZED  # a global name is found faster than a member of a class


class Flooding(Strategy):
    def __init__(self, context: StrategyContext, options: FloodingOptions) -> None:
        self._host: Host = context.host
        self._broker: Broker = context.broker
        self._seen_lately = context.broker.seen_lately
        self._jitter: Micros = micros(options.jitter)
        self._hop_limit = options.hop_limit
        self._pending_max = options.pending_max
        self._pending = 0

    def publish(self, event: Event) -> None:
        self._send(Flood(event, 0, 0))

    def seal_id(self, clear: Event) -> bytes | None:
        return b""  # every node gets every event

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        heard = HEARD
        if payload is not heard.payload:
            try:
                heard.decode(payload)
            except WireError as error:
                now = self._host.now()
                record = Dropped(now, self._host.node, DropReason.WIRE, "flood", detail=str(error))
                self._host.trace(record)
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
            now = self._host.now()
            self._host.set_timer(Relay(flood, now), now + int(self._host.random.random() * self._jitter))

    def on_timer(self, name: TimerName) -> None:
        assert isinstance(name, Relay)
        self._pending -= 1
        flood = name.flood
        self._send(Flood(flood.event, flood.hops + 1, flood.age + self._host.now() - name.arrived))

    def _send(self, flood: Flood) -> None:
        frame = Frame(CODEC.encode(flood), DATA, "flood", flood.event.id, flood.hops == 0)
        self._host.broadcast(frame)
