"""The clients at home in a broker: what they want, and their modulators at work (section 2.1).

A client's row on the board says where it is at home. It has the version that its client's own choice
(`generation`) and the handoffs since then gave it, so of two rows the newer is known.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from roamcast.chunks import is_chunk
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.kit.protocol import Timer, trace_drop
from roamcast.kit.tables import ExpiringDict, unreported
from roamcast.modulator import Modulator
from roamcast.strategy.opportunistic.board import CLIENT
from roamcast.strategy.opportunistic.consumers import first_version, opened
from roamcast.strategy.opportunistic.copies import EventCopy
from roamcast.strategy.opportunistic.messages import (
    STORED_MAX,
    AttachMessage,
    ClientRow,
    Deliver,
    Here,
    Interest,
    ModulatorFailed,
    NewHome,
    NotHome,
    Salvaged,
    Skip,
    octets,
)
from roamcast.strategy.opportunistic.modulators import WINDOW, Demand, ModelledMeter, Places, Processor
from roamcast.strategy.opportunistic.readers import EventReader, NodeReading
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId, micros

CLIENTS_MAX = 4_096
TO_A_CLIENT = (Deliver, Skip, NewHome, NotHome)
CHECKS_PER_LIFETIME = 3


@dataclass
class Traffic:
    """What a client's modulators took in and gave out since the last reading of the monitor."""

    octets_of: dict[NodeId, float] = field(default_factory=dict)  # by producer
    octets_out: int = 0
    took: Micros = 0


@dataclass
class HomeClient:
    """One row."""

    node: NodeId
    generation: int
    version: int  # of its row on the board
    produces: bool = False
    distance: int = 0  # hops to this broker, as the client last said
    heard_at: Micros = 0
    next_number: int = 0
    tried: int = 0  # the version of the last attempt to move it
    access: NodeId | None = None  # the broker nearest to the client, where that is another one
    access_at: Micros = 0  # when the client last said so
    interests: tuple[Interest, ...] = ()
    since: dict[int, Micros] = field(default_factory=dict)  # when each subscription was made
    filters: dict[int, Filter] = field(default_factory=dict)
    modulators: dict[int, Modulator | None] = field(default_factory=dict)  # None: cut off
    demand: Demand = field(default_factory=Demand)  # of all its modulators, on a broker of capacity 1
    work_before: float = 0.0  # per second, as the broker said that it came from
    came_at: Micros = 0
    nearest: NodeId | None = None  # the broker that it found last
    traffic: Traffic = field(default_factory=Traffic)
    has_modulators: bool = False
    reader: EventReader | None = None  # of its modulators; None: it has none
    is_closing: bool = False  # it leaves: nothing is read for it here any more
    # Memorized events that each modulator has had: several brokers may serve old ones.
    stored: dict[int, dict[EventId, None]] = field(default_factory=dict)

    def wants(self, interests: tuple[Interest, ...], ages: tuple[int, ...], now: Micros) -> None:
        """Its subscriptions are these now; a modulator whose parameters changed begins anew."""
        before = {interest.number: interest for interest in self.interests}
        for interest in interests:
            known = before.get(interest.number)
            if known is not None and known.modulator != interest.modulator:
                self.modulators.pop(interest.number, None)
                self.stored.pop(interest.number, None)
        self.interests = interests
        self.has_modulators = any(interest.modulator is not None for interest in interests)
        since = {one.number: now - age for one, age in zip(interests, ages, strict=False)}
        self.since = {number: self.since.get(number, at) for number, at in since.items()}
        filters, self.filters = self.filters, {}
        for interest in interests:
            known = before.get(interest.number)
            if known is not None and known.filter == interest.filter and interest.number in filters:
                self.filters[interest.number] = filters[interest.number]
                continue
            wanted = opened(interest.filter)
            if wanted is not None:
                self.filters[interest.number] = wanted

    def read(self, on_next: Callable[[EventCopy], None], cursors: Iterable[tuple[NodeId, int]]) -> None:
        """Begin to read for its modulators, if it has any, or go on."""
        if not self.has_modulators:
            self.reader = None
            return
        since = min(self.since[i.number] for i in self.interests if i.modulator is not None)
        if self.reader is None:
            self.reader = EventReader(
                self.node, is_modulated=True, since=since, on_next=on_next, cursors=cursors
            )

    def ages(self, now: Micros) -> tuple[int, ...]:
        return tuple(max(now - self.since.get(interest.number, now), 0) for interest in self.interests)

    def work(self, now: Micros) -> float:
        """Modulators' microseconds per second on a broker of capacity 1, lately; what the window has of the
        time before the client came is as the broker before said."""
        before = max(WINDOW - (now - self.came_at), 0) / WINDOW
        return self.demand.total(now) * SECOND / WINDOW + self.work_before * before

    def modulated(self, event: Event) -> Iterable[Interest]:
        """Those with a modulator that an event is for. A chunk is no event for a function: it is a piece."""
        if event.wants_subscribers and not is_chunk(event):
            for interest in self.interests:
                wanted = self.filters.get(interest.number)
                if interest.modulator is not None and wanted is not None and wanted.matches(event):
                    yield interest

    def observe(self, interest: Interest, event: Event) -> bool:
        """Whether an event is the first of its identity for a modulator; asked about memorized ones."""
        if event.event_class is not EventClass.MEMORIZED:
            return True
        had = self.stored.setdefault(interest.number, {})
        if event.id in had:
            return False
        if len(had) >= STORED_MAX:
            del had[next(iter(had))]
        had[event.id] = None
        return True


class Homes(NodePart):
    def __init__(self, shared: SharedParts, reading: NodeReading) -> None:
        super().__init__(shared)
        host, options = self._host, self._options
        self._reading = reading
        self._renewal = Timer(host, self._renew)
        self.processor = Processor(host, options.capacities.get(str(host.node), options.capacity))
        meter = shared.context.meter or ModelledMeter(micros(options.modulator_limit))
        self.places = Places(meter, self._on_modulator_failure)
        self.clients: dict[NodeId, HomeClient] = {}  # CIT
        # Handed off, and until when they may say so.
        self.moved_away: ExpiringDict[NodeId, Micros] = ExpiringDict(CLIENTS_MAX, unreported, int)

    # Inputs.

    def on_start(self) -> None:
        self._renewal.after(micros(self._options.registration_lifetime) // CHECKS_PER_LIFETIME)

    def on_end(self) -> None:
        self._renewal.cancel()
        self.processor.stop()

    def _renew(self) -> None:
        self.on_start()
        self.moved_away.expire(self._host.now())
        for client in [client for client in self.clients.values() if self._is_gone(client)]:
            self.remove(client)
            self._streams.take_back(client.node, TO_A_CLIENT)
            client.interests, client.produces, client.version = (), False, client.version + 1
            self.tell(client)

    def on_attach(
        self,
        node: NodeId,
        attach: AttachMessage,
        held: Micros,
        returned: HomeClient | None,
        deliveries: Iterable[Deliver] = (),
    ) -> None:
        """`returned`: as it was when it left, if what it had is still here, or has come here; `deliveries`:
        what it has not confirmed then."""
        known = self.clients.get(node)
        now = self._host.now()
        ages = tuple(age + held for age in attach.ages)
        if known is not None and known.generation == attach.generation:
            self._on_wants(known, attach, ages)
            return
        if known is not None and known.generation > attach.generation:
            return
        if known is None and len(self.clients) >= CLIENTS_MAX:
            self._streams.write(node, NotHome(attach.generation))
            return
        before = known or returned
        waiting = self._streams.take_back(node, TO_A_CLIENT)  # numbered for the generation before
        client = HomeClient(node, attach.generation, first_version(attach.generation) + 1)
        client.produces, client.distance, client.heard_at = attach.produces, attach.distance, now
        got = list(zip(attach.got[::2], attach.got[1::2], strict=False))
        cursors = [(producer, sequence - 1) for producer, sequence in got]  # its products may have parted
        if before is not None:  # it lost sight of us, or restarted: its modulators go on
            client.interests, client.since, client.modulators = (
                before.interests,
                before.since,
                before.modulators,
            )
            client.stored = before.stored
            cursors = [] if before.reader is None else list(before.reader.cursors.items())
        client.wants(attach.interests, ages, now)
        self.moved_away.pop(node, None)
        # Before anything that its modulators make of what waits here.
        for delivery in deliveries:
            self.redeliver(client, delivery)
        for message in waiting:
            if isinstance(message, Deliver):
                self.redeliver(client, message)
        self.enter(client, cursors)
        self.tell(client)

    def on_here(self, node: NodeId, message: Here, held: Micros) -> None:
        client = self.clients.get(node)
        if client is None or client.generation != message.generation:
            if client is None and not self.was_moved(node):
                self._streams.write(node, NotHome(message.generation))
            return
        client.heard_at = self._host.now()
        client.distance = message.distance
        if message.produces != client.produces:
            self._set_produces(client, message.produces)
        if self._host.now() - client.access_at > 3 * micros(self._options.broker_discovery):
            client.access = None  # it has found no broker nearer than this one for a while

    def on_published(self, node: NodeId) -> None:
        client = self.clients.get(node)
        if client is not None:
            client.heard_at = self._host.now()
            if not client.produces:
                self._set_produces(client, True)

    def on_row(self, node: NodeId, version: int, row: ClientRow) -> None:
        """A row from another broker: the client has chosen it, or was moved by somebody else. Or a forged one
        in our name, which is outbid."""
        client = self.clients.get(node)
        if client is not None and row.home == self._host.node and client.version < version:
            client.version = version + 1
            self.tell(client)
        elif client is not None and row.home != self._host.node and client.version < version:
            self.remove(client)
            for message in self._streams.take_back(node, TO_A_CLIENT):
                if isinstance(message, Deliver):
                    self._streams.write(row.home, Salvaged(node, message))

    # Who is at home here.

    def enter(
        self,
        client: HomeClient,
        cursors: list[tuple[NodeId, int]],
        states: dict[int, bytes] | None = None,
    ) -> None:
        self.clients[client.node] = client
        client.is_closing = False
        self.places.install(client, states)
        self._read(client, cursors)

    def remove(self, client: HomeClient) -> None:
        self.clients.pop(client.node, None)
        self._reading.end(client.node)

    def tell(self, client: HomeClient) -> None:
        """Everyone where this client is at home and what it wants."""
        row = ClientRow(self._host.node, self._overlay.boot, client.produces, client.interests)
        self._board.post(CLIENT, client.node, client.version, row)

    def was_moved(self, node: NodeId) -> bool:
        """Whether a client was handed off from here lately: it will be told where it is at home."""
        return self.moved_away.get(node, 0) > self._host.now()

    def producers(self) -> int:
        """How many of our clients publish (BIT)."""
        return sum(client.produces for client in self.clients.values())

    def _on_wants(self, client: HomeClient, attach: AttachMessage, ages: tuple[int, ...]) -> None:
        client.heard_at = self._host.now()
        if (client.interests, client.produces) != (attach.interests, attach.produces):
            client.produces = attach.produces
            client.wants(attach.interests, ages, self._host.now())
            self.places.install(client)
            self._read(client, [])
            client.version += 1
            self.tell(client)

    def _read(self, client: HomeClient, cursors: list[tuple[NodeId, int]]) -> None:
        client.read(lambda copy: self.process(client, copy), cursors)
        if client.reader is None:
            self._reading.end(client.node)
        elif not client.is_closing and self._reading.find(client.node, True) is not client.reader:
            self._reading.begin(client.reader)

    def _set_produces(self, client: HomeClient, produces: bool) -> None:
        client.produces = produces
        client.version += 1
        self.tell(client)

    def _is_gone(self, client: HomeClient) -> bool:
        """Clients that may move say every period that they are there."""
        if client.node == self._host.node or self._options.mode == "static":
            return False
        longest = self._options.registration_lifetime + 3 * self._options.broker_discovery
        return self._host.now() - client.heard_at > micros(longest)

    # Modulators at work.

    def process(self, client: HomeClient, copy: EventCopy) -> None:
        """The next event of its producer, or a memorized one from before a subscription."""
        event = copy.event
        matched = [one for one in client.modulated(event) if self._is_wanted(client, one, copy)]
        if not matched:
            return
        cost = self.places.cost(client, event, matched)
        client.demand.add(self._host.now(), cost)
        octets_of = client.traffic.octets_of
        octets_of[event.publisher] = octets_of.get(event.publisher, 0) + octets(event)
        if not self.processor.submit(cost, partial(self._finish, client, copy, matched, cost)):
            self._streams.drop(DropReason.QUEUE_FULL, "processor", event.id)

    def _is_wanted(self, client: HomeClient, interest: Interest, copy: EventCopy) -> bool:
        is_late = copy.published_at < client.since.get(interest.number, 0)
        if is_late and copy.event.event_class is not EventClass.MEMORIZED:
            return False
        return client.observe(interest, copy.event)

    def _finish(self, client: HomeClient, copy: EventCopy, matched: list[Interest], cost: Micros) -> None:
        """`cost`: what the modulators had said that it would be."""
        took_before, age = client.traffic.took, copy.age(self._host.now())
        for interest in matched:
            product = self.places.run(client, interest.number, copy.event)
            if product is not None:
                self._deliver(client, product, age, copy.hops, interest.number)
        more = client.traffic.took - took_before - cost  # a live node measures what they really take
        if more > 0:
            client.demand.add(self._host.now(), more)
            self.processor.on_spent(more)

    def _deliver(self, client: HomeClient, event: Event, age: Micros, hops: int, subscription: int) -> None:
        generation, number = client.generation, client.next_number
        message = Deliver(event, age, min(hops, 255), generation, number, subscription)
        if self._streams.write(client.node, message):
            client.next_number += 1
            client.traffic.octets_out += octets(event)

    def redeliver(self, client: HomeClient, delivery: Deliver) -> None:
        """Modulators have run on it; it gets the next number."""
        self._deliver(client, delivery.event, delivery.age, delivery.hops, delivery.subscription)

    def salvage(self, consumer: NodeId, delivery: Deliver) -> None:
        """A delivery that the client has not got from its previous home goes to its present home."""
        client, known = self.clients.get(consumer), self._consumers.find(consumer)
        if client is not None:
            self.redeliver(client, delivery)
        elif known is not None and known.home != self._host.node:
            self._streams.write(known.home, Salvaged(consumer, delivery))
        else:
            self._streams.drop(DropReason.STALE, "salvaged", delivery.event.id, consumer)

    def _on_modulator_failure(self, client: HomeClient, subscription: int, problem: str) -> None:
        trace_drop(self._host, DropReason.MODULATOR, "modulator", to=client.node, detail=problem)
        self._streams.write(client.node, ModulatorFailed(client.generation, subscription, problem[:400]))
