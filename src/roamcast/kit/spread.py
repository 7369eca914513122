"""Events for all: copies that name their relays, and anti-entropy for whoever missed them.

A node that a copy names passes it on, once, in its turn (`cover.py`), unless by then all its neighbours are
covered: each copy that was heard covers its sender and the sender's neighbours, and when all of ours are
covered, another one would reach nobody new (Peng and Lu, "On the reduction of broadcast redundancy in mobile
ad hoc networks", 2000).
Beacons are up to an interval old and frames get lost, so a choice can be wrong; `anti_entropy.py` then
repairs it.

A sender can only name whom it knows. So a node passes a copy on unasked, as if all were named, if its
sender's last beacon does not name it, or if it has just met somebody itself; and a sender that knows nobody
names all.
"""

from collections.abc import Callable, Collection
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from roamcast.broker.core import Broker
from roamcast.broker.store import StoredEvent
from roamcast.event import Count, Event, EventClass, EventId
from roamcast.host import Host, Kind
from roamcast.kit.anti_entropy import WANTED_MAX, AntiEntropy, Handed, HandedToAll, Hops, NodesAround
from roamcast.kit.cover import NAME_BYTES, Names, names_of, place_of, turn, two_hop_relays
from roamcast.kit.newcomers import Newcomers
from roamcast.kit.protocol import MessageLayer, WireMessage, random_below
from roamcast.kit.relay import Relay
from roamcast.kit.repair import RECENT_TIME, Holding
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId, micros, seconds
from roamcast.wire import Codec


class SpreadingUnderlay(NodesAround, Protocol):
    def take_along(self, passenger: Callable[[], bytes]) -> bool: ...

    def hear_riders(self, on_rider: Callable[[NodeId, bytes], object]) -> None: ...


class SpreadingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a strategy that is made of this. Times are in seconds; the defaults are chosen by us."""

    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = (
        0.02  # seconds; a relay that is not named waits so long
    )
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64  # radio hops
    # Do not pass a copy on if, by the beacons, all neighbours have heard one; and name who passes it on.
    suppress: bool = True
    digest_interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0  # seconds
    # Seconds for which a real-time event is offered to neighbours that missed it.
    recent_time: Annotated[float, msgspec.Meta(ge=0, le=60)] = seconds(RECENT_TIME)
    recent_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # real-time events kept for that
    request_max: Annotated[int, msgspec.Meta(ge=1, le=WANTED_MAX)] = 64  # events in one request
    request_timeout: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.5  # seconds; then it asks again
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # copies that wait for their turn
    beacon_interval: Annotated[float, msgspec.Meta(ge=0.01, le=3600)] = 1.0  # seconds
    allowed_beacon_loss: Annotated[int, msgspec.Meta(ge=0, le=100)] = 2  # beacons in a row

    def underlay_options(self) -> dict[str, Any]:
        """The options of `beacons`, which this strategy runs on."""
        own = {"interval": self.beacon_interval, "allowed_loss": self.allowed_beacon_loss}
        return {**own, "prompt": True, "brief": True}


NAMED_WITHIN: Micros = SECOND // 2  # of the first copy a later one may name this node; chosen by us
CROWD = 5  # so many others that heard a copy, or more, and a relay waits for the whole jitter; chosen by us


class FloodedEvent(WireMessage, frozen=True, tag=1):
    """An event for all who hear it. `hops`: radio hops before this one; `age`: time since publication;
    `relays`: who passes it on, None for all."""

    name = "copy"
    kind = Kind.DATA

    event: Event
    hops: Hops
    age: Count
    relays: Names | None = None

    @property
    def event_id(self) -> EventId:
        return self.event.id


class PassedOn(FloodedEvent, frozen=True, tag=6):
    """An event for all who hear it, from a node that could not keep it: those before it still have to."""

    name = "passed on"


class WaitingCopy(NamedTuple):
    event: Event
    hops: int  # so far
    age: Micros  # at its arrival
    arrived: Micros
    is_kept: bool
    covered: set[NodeId]


class Audience(Newcomers):
    """Who would hear a broadcast. A newcomer counts as a neighbour that has nothing.

    A node that has lost its last neighbour broadcasts nothing of its own: whoever comes next meets it first,
    and then gets its events by the digest. The cars of `examples/emulate/driving.toml` sent 63% of their
    copies to nobody."""

    def __init__(self, node: NodeId, underlay: NodesAround, *, suppress: bool) -> None:
        super().__init__()
        self._node = node
        self._underlay = underlay
        self._suppress = suppress
        self._had_any = False  # an underlay may name none, ever

    def on_up(self, node: NodeId) -> None:
        super().on_up(node)
        self._had_any = True

    def may_hear(self, now: Micros) -> bool:
        """Whether a broadcast may reach somebody."""
        return not (self._suppress and self._had_any) or bool(self._all(now))

    def lacks(self, covered: set[NodeId], now: Micros) -> bool:
        """Whether a copy would reach a neighbour that has none. Without any known neighbour it is sent: a new
        neighbour's beacon may not have come yet."""
        neighbours = self._all(now) if self._suppress else []
        return not neighbours or not covered.issuperset(neighbours)

    def crowd(self, sender: NodeId) -> int:
        """How many others heard what `sender` broadcast: up to `CROWD`, and that if it is not known.

        Where few can send at once there is little to wait for: along a line the wait is a fifth.
        """
        heard_by = self._underlay.neighbours_of(sender)
        return min(CROWD, len(heard_by) - 1) if heard_by else CROWD

    def relays(self, covered: Collection[NodeId], now: Micros) -> list[NodeId] | None:
        """Who should pass on what this node broadcasts; None: all who hear it."""
        near = self._all(now) if self._suppress else []
        if not near:
            return None
        return two_hop_relays(self._node, near, self._underlay.neighbours_of, covered)

    def is_overlooked(self, sender: NodeId, now: Micros) -> bool:
        """Whether a sender could not know that a copy from this node may reach somebody."""
        return self._node not in self._underlay.neighbours_of(sender) or bool(self.lately(now))

    def _all(self, now: Micros) -> list[NodeId]:
        return self._underlay.neighbours() + (self.lately(now) if self._met else [])


class Spreading(MessageLayer):
    """A strategy that gives every event to every node; beside `Strategy`, whose inputs it handles."""

    def __init__(
        self,
        host: Host,
        codec: Codec[Any],
        broker: Broker,
        underlay: SpreadingUnderlay,
        options: SpreadingOptions,
        passenger: Callable[[], bytes] | None = None,
    ) -> None:
        """`passenger`: what goes with each beacon, if not the fingerprint alone."""
        super().__init__(host, codec)
        self.broker = broker
        self.underlay = underlay
        self._jitter = micros(options.jitter)
        self._hop_limit = options.hop_limit
        self.around = Audience(host.node, underlay, suppress=options.suppress)
        self.relay: Relay[EventId, WaitingCopy] = Relay(
            host, send=self._pass_on, most=options.pending_max, is_needed=self._reaches_somebody_new
        )
        # What others pass on, with those who are covered so far.
        self._unnamed: BoundedDict[EventId, WaitingCopy] = BoundedDict(options.pending_max, unreported)
        self.is_compared = underlay.take_along(passenger or self._fingerprint)
        self.repair = AntiEntropy(
            self.messenger,
            broker,
            underlay,
            options,
            is_compared=self.is_compared,
            on_evicted=self._on_forgotten,
            handed=self._handed,
        )
        underlay.hear_riders(self.on_rider)
        self.note_sender = self._meet
        self.handlers = {
            FloodedEvent: self.on_copy,
            Handed: self.on_copy,
            HandedToAll: self.on_copy,
            PassedOn: self.on_copy,
            **self.repair.handlers,
        }

    # Inputs.

    def on_start(self) -> None:
        self.around.known.update(self.underlay.neighbours())
        self.repair.on_start()

    def publish(self, event: Event) -> None:
        now = self.host.now()
        if event.event_class is EventClass.REALTIME:
            self.repair.holdings.remember(event, 0, 0, now)
        if self.around.may_hear(now):
            self._broadcast(FloodedEvent, event, 0, 0, ())

    def seal_id(self, clear: Event) -> bytes | None:
        return b""  # every node gets every event

    def settled(self, stored: list[StoredEvent]) -> list[StoredEvent]:
        return self.repair.custody.settled(stored)

    def on_rider(self, neighbour: NodeId, rider: bytes) -> None:
        self.repair.on_fingerprint(neighbour, rider)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self.around.on_up(neighbour)
        self.repair.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self.around.on_down(neighbour)
        self.repair.on_neighbour_down(neighbour)

    # Copies.

    def on_copy(self, sender: NodeId, copy: FloodedEvent | Handed) -> None:
        event = copy.event
        key = event.id
        if event.lifetime and not self.broker.has_room_for(event, copy.hops + 1, copy.age):
            return  # the sender keeps it, and offers it again
        self.repair.on_copy(sender, key)
        if self.broker.observe(key, event.lifetime - copy.age):
            self._take(sender, copy)
        if event.lifetime and type(copy) is not PassedOn:
            self.repair.custody.on_held(sender, (key,))
        waiting = self.relay.find(key) or self._named_later(key, copy)
        if waiting is not None:
            waiting.covered.add(sender)
            if type(copy) is not Handed:
                waiting.covered.update(self.underlay.neighbours_of(sender))
        if isinstance(copy, Handed):
            self.repair.ask_on(sender)

    def _take(self, sender: NodeId, copy: FloodedEvent | Handed) -> None:
        """The first copy: deliver it, and pass it on in our turn."""
        event, hops, now = copy.event, copy.hops + 1, self.host.now()
        is_memorized = event.event_class is EventClass.MEMORIZED
        if is_memorized and event.lifetime <= copy.age:
            self.broker.drop(event.id, DropReason.EXPIRED, "copy")
            return
        is_kept = self.deliver(event, hops, copy.age)
        if not is_memorized:
            self.repair.holdings.remember(event, hops, copy.age, now)
        self._spread(sender, copy, is_kept=is_kept)

    def deliver(self, event: Event, hops: int, age: Micros) -> bool:
        """The first copy is here. Whether it is kept, if it is to be."""
        return self.broker.deliver(event, hops, age)

    def _spread(self, sender: NodeId, copy: FloodedEvent | Handed, *, is_kept: bool) -> None:
        event, hops, now = copy.event, copy.hops + 1, self.host.now()
        if hops >= self._hop_limit:
            self.broker.drop(event.id, DropReason.EXPIRED, "copy")
        elif self.relay.is_full:
            self.broker.drop(event.id, DropReason.QUEUE_FULL, "copy")
        else:
            # This node lacked the event. Neighbours that hold something else than this node are taken to have
            # it.
            covered = set(self.repair.differing) if isinstance(copy, Handed) else set()
            waiting = WaitingCopy(event, hops, copy.age, now, is_kept, covered)
            wait = self._wait(sender, copy)
            if wait is None:
                self._unnamed.forget_oldest(lambda one: now - one.arrived > NAMED_WITHIN)
                self._unnamed[event.id] = waiting
            else:
                self.relay.add(event.id, waiting, wait)

    def _wait(self, sender: NodeId, copy: FloodedEvent | Handed) -> Micros | None:
        """Before the copy is passed on; None: others do it."""
        if copy.relays is not None:
            place = place_of(self.host.node, copy.relays)
            if place is not None:
                return turn(self.host, place, copy.event)
            if not self.around.is_overlooked(sender, self.host.now()):
                return None
        # After those who are named: their copies may make this one needless.
        after = turn(self.host, len(copy.relays or b"") // NAME_BYTES, copy.event)
        return after + random_below(self.host, self._jitter * self.around.crowd(sender) // CROWD)

    def _named_later(self, key: EventId, copy: FloodedEvent | Handed) -> WaitingCopy | None:
        """A later copy of an event that was not ours to pass on: it is ours now if this copy names us."""
        waiting = self._unnamed.get(key)
        if waiting is not None and copy.relays is not None:
            place = place_of(self.host.node, copy.relays)
            if place is not None and not self.relay.is_full:
                del self._unnamed[key]
                self.relay.add(key, waiting, turn(self.host, place, copy.event))
        return waiting

    def _reaches_somebody_new(self, _: EventId, copy: WaitingCopy) -> bool:
        return self.around.lacks(copy.covered, self.host.now())

    def _pass_on(self, _: EventId, copy: WaitingCopy) -> None:
        age = copy.age + self.host.now() - copy.arrived
        message = FloodedEvent if copy.is_kept else PassedOn
        self._broadcast(message, copy.event, copy.hops, age, copy.covered)

    def _broadcast(
        self, message: type[FloodedEvent], event: Event, hops: int, age: Micros, covered: Collection[NodeId]
    ) -> None:
        relays = self.around.relays(covered, self.host.now())
        names = None if relays is None else names_of(relays)
        self.messenger.send(message(event, hops, age, names), own=not hops)

    def _handed(self, holding: Holding) -> WireMessage:
        return Handed(*holding)

    def _meet(self, sender: NodeId) -> None:
        if sender not in self.around.known and self.around.meet(sender, self.host.now()):
            self.underlay.on_acquainted(sender)  # it may be waiting for our beacon, too

    def _fingerprint(self) -> bytes:
        return self.repair.fingerprint()

    def _on_forgotten(self, event: EventId, _: object) -> None:
        """A recent event was evicted early. Without neighbours nobody would have asked for it."""
        if self.around.known:
            self.messenger.overflow("copy", "recent_max", event)
