"""What happens inside a broker, and the internal system channel on which its parts hear of it (section 3.3):
from monitor, broker manager and client manager to the adaptors."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from roamcast.units import Micros, NodeId

EVENTS_MAX = 1_000

Handler = Callable[[Any], None]
Wanted = Callable[[Any], bool]


class BrokerDiscovered(NamedTuple):
    """A client found a broker nearer than its home (2.4, step 1), or came into another network whose broker
    that is (channels, 3.1). Distances from the client, in the unit of `BrokerManager.path`."""

    client: NodeId
    candidate: NodeId
    distance: float
    home_distance: float
    load: float  # of the candidate, as a share of its capacity


class Measured(NamedTuple):
    """One reading of a resource monitor. What `values` holds is said in `monitor.py`, per kind."""

    kind: str
    node: NodeId
    values: Mapping[str, int | float]


class TimeCame(NamedTuple):
    """A period of the broker ended, e.g. "broker_update"."""

    name: str
    now: Micros


class NeighboursFound(NamedTuple):
    """The search for neighbours has ended, and the broker's own row says what it found."""


class Overloaded(NamedTuple):
    """A broker has more to do than it can, and found no other with room."""

    broker: NodeId
    load: float


SystemEvent: TypeAlias = BrokerDiscovered | Measured | TimeCame | NeighboursFound | Overloaded


class SystemChannel:
    """An event said while another is being handled waits its turn, so that no adaptor is called from within
    itself. An adaptor that answers its own events for ever would never give the broker back: one input may
    cause `EVENTS_MAX` events, what is beyond is thrown away and counted."""

    def __init__(self) -> None:
        self._subscribers: dict[type, list[tuple[Handler, Wanted | None]]] = {}
        self._waiting: deque[SystemEvent] = deque()
        self._running = False
        self.thrown_away = 0

    def subscribe(self, kind: type, handler: Handler, wanted: Wanted | None = None) -> None:
        """`handler` hears of every event of this class that `wanted` lets pass."""
        self._subscribers.setdefault(kind, []).append((handler, wanted))

    def clear(self) -> None:
        """Nobody listens any more."""
        self._subscribers.clear()

    def publish(self, event: SystemEvent) -> None:
        """Subscribers hear of it in the order in which they subscribed."""
        if type(event) in self._subscribers:
            self._waiting.append(event)
            if not self._running:
                self._run()

    def _run(self) -> None:
        self._running = True
        handled = 0
        try:
            while self._waiting:
                if handled == EVENTS_MAX:
                    self.thrown_away += len(self._waiting)
                    self._waiting.clear()
                    return
                event = self._waiting.popleft()
                handled += 1
                for handler, wanted in self._subscribers.get(type(event), ()):
                    if wanted is None or wanted(event):
                        handler(event)
        finally:
            self._running = False
