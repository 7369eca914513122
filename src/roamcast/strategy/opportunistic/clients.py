"""CIT, the Client Information Table: the clients that this broker is home to (section 3.3)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.modulator import Modulator
from roamcast.strategy.opportunistic.messages import Interest
from roamcast.strategy.opportunistic.windows import Windows
from roamcast.units import Micros, NodeId

CLIENTS_MAX = 4_096


class Arrival(NamedTuple):
    """An event for a client: from which producers' broker, how old and how far it was `at` this time."""

    sender: NodeId
    event: Event
    age: Micros
    hops: int
    at: Micros


@dataclass
class Gate:
    """Keeps one producers' broker in order while its events come by two ways (`handoff.py`)."""

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
    interests: tuple[Interest, ...] = ()
    filters: dict[int, Filter] = field(default_factory=dict)
    modulators: dict[int, Modulator | None] = field(default_factory=dict)  # None: cut off
    took: dict[int, Micros] = field(default_factory=dict)  # time of each modulator, lately
    told: dict[NodeId, None] = field(default_factory=dict)  # brokers that know the registration
    windows: Windows = field(default_factory=Windows)
    gates: dict[NodeId, Gate] = field(default_factory=dict)

    def wants(self, interests: tuple[Interest, ...]) -> None:
        """Its subscriptions are these now; a modulator whose parameters changed begins anew."""
        specs = {interest.number: interest.modulator for interest in self.interests}
        for interest in interests:
            if interest.number in specs and specs[interest.number] != interest.modulator:
                self.modulators.pop(interest.number, None)
        self.interests = interests
        self.filters = {}
        for interest in interests:
            try:
                self.filters[interest.number] = Filter.decode(interest.filter)
            except WireError:
                continue  # what cannot be read matches nothing

    def matching(self, event: Event) -> Iterable[Interest]:
        if event.wants_subscribers:
            for interest in self.interests:
                wanted = self.filters.get(interest.number)
                if wanted is not None and wanted.matches(event):
                    yield interest

    @property
    def has_modulators(self) -> bool:
        return any(interest.modulator is not None for interest in self.interests)
