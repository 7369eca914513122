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
from roamcast.errors import WireError
from roamcast.event import Count, Event, EventClass, EventId
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


class Flooding(Strategy):
    def __init__(self, context: StrategyContext, options: FloodingOptions) -> None:
        self._host: Host = context.host
        self._broker: Broker = context.broker
        self._seen_lately = context.broker.seen_lately
        self._jitter: Micros = micros(options.jitter)
        self._hop_limit = options.hop_limit
        self._pending_max = options.pending_max
        self._pending: dict[EventId, tuple[Flood, Micros]] = {}  # with its time of arrival

    def publish(self, event: Event) -> None:
        self._send(event.id, Flood(event, 0, 0))

    def seal_id(self, clear: Event) -> bytes | None:
        return b""  # every node gets every event

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            flood = CODEC.decode(payload)
        except WireError as error:
            now = self._host.now()
            self._host.trace(Dropped(now, self._host.node, DropReason.WIRE, "flood", detail=str(error)))
            return
        event = flood.event
        # `event_key`, written out: most copies are duplicates, so these lines are a simulation's hottest.
        if event.publisher << 64 | event.sequence in self._seen_lately:
            return
        event_id = event.id
        lives_for = event.lifetime - flood.age
        if not self._broker.observe(event_id, lives_for):
            return
        if event.event_class is EventClass.MEMORIZED and lives_for <= 0:
            self._broker.drop(event_id, DropReason.EXPIRED, "flood")
            return
        self._broker.deliver(event, flood.hops + 1, flood.age)
        if flood.hops + 1 >= self._hop_limit:
            self._broker.drop(event_id, DropReason.EXPIRED, "flood")
        elif len(self._pending) >= self._pending_max:
            self._broker.drop(event_id, DropReason.QUEUE_FULL, "flood")
        else:
            now = self._host.now()
            self._pending[event_id] = (flood, now)
            self._host.set_timer(event_id, now + int(self._host.random.random() * self._jitter))

    def on_timer(self, name: TimerName) -> None:
        assert isinstance(name, EventId)
        flood, arrived = self._pending.pop(name)
        waited = self._host.now() - arrived
        self._send(name, Flood(flood.event, flood.hops + 1, flood.age + waited))

    def _send(self, event_id: EventId, flood: Flood) -> None:
        self._host.broadcast(Frame(CODEC.encode(flood), Kind.DATA, "flood", event_id, flood.hops == 0))
