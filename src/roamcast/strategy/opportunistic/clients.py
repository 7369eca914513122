"""CIT, the Client Information Table: the clients that this broker is home to (section 3.3)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.modulator import Modulator
from roamcast.strategy.opportunistic.demand import WINDOW, Demand
from roamcast.strategy.opportunistic.messages import Interest
from roamcast.strategy.opportunistic.windows import Windows
from roamcast.units import SECOND, Micros, NodeId

CLIENTS_MAX = 4_096


class Arrival(NamedTuple):
    """An event for a client: from which producers' broker, how old and how far it was `at` this time."""

    sender: NodeId
    event: Event
    age: Micros
    hops: int
    at: Micros
    shared: int = 1  # how many consumers the copy was for that brought it here


@dataclass
class Traffic:
    """What a client's modulators took in and gave out since the last reading of the monitor."""

    since: Micros
    octets_from: dict[NodeId, float] = field(default_factory=dict)  # by the producers' broker
    octets_out: int = 0
    took: Micros = 0


@dataclass
class Gate:
    """Keeps one producers' broker in order while its events come by two ways (`ways.py`)."""

    is_switched: bool  # it sends here by the new way now; the other way comes before
    is_closed: bool = False  # the other way has come to its end
    relayed: list[Arrival] = field(default_factory=list)  # by the other way, too early
    direct: list[Arrival] = field(default_factory=list)  # by the new way, too early


@dataclass
class Client:
    """One row."""

    node: NodeId
    generation: int
    version: int  # of the registration that stands
    produces: bool = False
    distance: int = 0  # hops to this broker, as the client last said
    heard_at: Micros = 0
    next_number: int = 0
    tried: int = 0  # the version of the last attempt to move it
    access: NodeId | None = None  # the broker nearest to the client, where that is another one
    access_at: Micros = 0  # when the client last said so
    interests: tuple[Interest, ...] = ()
    filters: dict[int, Filter] = field(default_factory=dict)
    modulators: dict[int, Modulator | None] = field(default_factory=dict)  # None: cut off
    took: dict[int, Micros] = field(default_factory=dict)  # time of each modulator
    demand: Demand = field(default_factory=Demand)  # of all its modulators, on a broker of capacity 1
    work_before: float = 0.0  # per second, as the broker said that it came from
    came_at: Micros = 0
    nearest: NodeId | None = None  # the broker that it found last
    traffic: Traffic = field(default_factory=lambda: Traffic(0))
    told: dict[NodeId, None] = field(default_factory=dict)  # brokers that know the registration
    windows: Windows = field(default_factory=Windows)
    # The same for subscriptions that came later than others: memorized events that the client had by another
    # one are new to them.
    late: dict[int, Windows] = field(default_factory=dict)
    gates: dict[NodeId, Gate] = field(default_factory=dict)

    def wants(self, interests: tuple[Interest, ...]) -> None:
        """Its subscriptions are these now; a modulator whose parameters changed begins anew."""
        before = {interest.number: interest for interest in self.interests}
        for interest in interests:
            known = before.get(interest.number)
            if known is not None and known.modulator != interest.modulator:
                self.modulators.pop(interest.number, None)
            if before and known != interest:
                self.late[interest.number] = Windows()
        for number in set(self.late) - {interest.number for interest in interests}:
            del self.late[number]
        self.interests = interests
        self.filters = {}
        for interest in interests:
            try:
                self.filters[interest.number] = Filter.decode(interest.filter)
            except WireError:
                continue  # what cannot be read matches nothing

    def work(self, now: Micros) -> float:
        """Modulators' microseconds per second on a broker of capacity 1, lately; what the window has of the
        time before the client came is the word of the broker before."""
        before = max(WINDOW - (now - self.came_at), 0) / WINDOW
        return self.demand.total(now) * SECOND / WINDOW + self.work_before * before

    def matching(self, event: Event) -> Iterable[Interest]:
        if event.wants_subscribers:
            for interest in self.interests:
                wanted = self.filters.get(interest.number)
                if wanted is not None and wanted.matches(event):
                    yield interest

    @property
    def has_modulators(self) -> bool:
        return any(interest.modulator is not None for interest in self.interests)
