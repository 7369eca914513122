"""CIT, the Client Information Table: the clients that this broker is home to (section 3.3)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from roamcast.chunks.form import is_chunk
from roamcast.errors import WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.modulator import Modulator
from roamcast.strategy.opportunistic.events.copies import EventCopy
from roamcast.strategy.opportunistic.events.readers import EventReader
from roamcast.strategy.opportunistic.homes.demand import WINDOW, Demand
from roamcast.strategy.opportunistic.wire.messages import STORED_MAX, Interest
from roamcast.units import SECOND, Micros, NodeId

CLIENTS_MAX = 4_096


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
            try:
                self.filters[interest.number] = Filter.decode(interest.filter)
            except WireError:
                continue  # what cannot be read matches nothing

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
        time before the client came is the word of the broker before."""
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
