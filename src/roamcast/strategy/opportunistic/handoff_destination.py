"""The destination of a handoff: it expects a client, keeps what comes before it, and becomes its home.

`handoff.py` has the whole of it; the numbers of the steps are those of section 2.4, step 3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from roamcast.host import Host
from roamcast.strategy.opportunistic.clients import CLIENTS_MAX, Arrival, Client, Gate
from roamcast.strategy.opportunistic.dispatch import HELD_BACK_MAX, Dispatch
from roamcast.strategy.opportunistic.messages import (
    SUBSCRIPTIONS_MAX,
    Accepted,
    Cancelled,
    Closed,
    Deliver,
    Detour,
    Handoff,
    Moved,
    MovedDelivery,
    MovedState,
    MovedWindows,
    NewHome,
    Switched,
    Taken,
    Undelivered,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.registrations import Registrations
from roamcast.strategy.opportunistic.windows import Windows
from roamcast.units import Micros, NodeId, micros


@dataclass
class Coming:
    """A client on its way here."""

    source: NodeId
    version: int
    work: int = 0  # of its modulators, as the source said
    arrivals: list[Arrival] = field(default_factory=list)
    deliveries: list[Undelivered] = field(default_factory=list)
    states: dict[int, bytes] = field(default_factory=dict)
    windows: dict[int | None, Windows] = field(default_factory=dict)
    is_back: bool = False  # the source wants it back


class Destination:
    """Timers are `("coming", client)` and, for the client's gates, `("gates", client)`."""

    def __init__(
        self,
        host: Host,
        options: OpportunisticOptions,
        post: Post,
        dispatch: Dispatch,
        registrations: Registrations,
    ) -> None:
        self._host = host
        self._post = post
        self._dispatch = dispatch
        self._registrations = registrations
        # With parties that may be behind a partition: as long as a registration lasts.
        self._patience = micros(options.registration_lifetime)
        self._coming: dict[NodeId, Coming] = {}
        # What the broker says of itself.
        self.load: Callable[[], int] = lambda: 0
        self.refuses: Callable[[Handoff], bool] = lambda message: False

    # Inputs.

    def on_handoff(self, source: NodeId, message: Handoff) -> None:
        """Step 2."""
        node = message.consumer
        known = self._dispatch.consumers.find(node)
        problem = ""
        if len(self._dispatch.clients) + len(self._coming) >= CLIENTS_MAX:
            problem = "full"
        elif node not in self._dispatch.clients and self.refuses(message):
            problem = "no room"
        elif node in self._dispatch.clients or (known is not None and known.version > message.version):
            problem = "outdated"
        elif node not in self._coming or self._coming[node].version < message.version:
            self._expect(node, source, message.version, message.work)
        self._post.write(source, Accepted(node, message.version, problem, self.load()))

    def on_detour(self, message: Detour) -> None:
        """Step 4, where the client is on its way to us, perhaps without our having been asked, or is wanted
        back."""
        node, own = message.consumer, self._host.node
        coming = self._coming.get(node)
        if coming is not None and message.home != own and message.version == coming.version + 1:
            coming.is_back = True
        known = self._dispatch.consumers.find(node)
        is_old = known is not None and known.version > message.version  # a second copy, and it has moved on
        is_ours = message.home == own and not is_old and node not in self._dispatch.clients
        if coming is None and is_ours and len(self._coming) < CLIENTS_MAX:
            self._expect(node, message.source, message.version)

    def on_stray(self, node: NodeId, arrival: Arrival) -> bool:
        """Step 6: whether an event is for a client on its way here, and waits for it."""
        coming = self._coming.get(node)
        if coming is None:
            return False
        self._dispatch.hold_back(coming.arrivals, arrival)
        return True

    def on_luggage(
        self, source: NodeId, message: MovedDelivery | MovedState | MovedWindows, held: Micros
    ) -> None:
        """Step 7: what comes before the client itself."""
        coming = self._owner(source, message.consumer, message.version)
        if coming is None:
            return
        match message:
            case MovedDelivery() if len(coming.deliveries) < HELD_BACK_MAX:
                delivery = message.delivery
                coming.deliveries.append(msgspec.structs.replace(delivery, age=delivery.age + held))
            case MovedState() if len(coming.states) < SUBSCRIPTIONS_MAX:
                coming.states[message.subscription] = message.state
            case MovedWindows() if len(coming.windows) <= SUBSCRIPTIONS_MAX:
                coming.windows[message.subscription] = Windows(message.windows)

    def on_moved(self, source: NodeId, message: Moved) -> None:
        """Step 8."""
        node = message.consumer
        known = self._dispatch.consumers.find(node)
        if self._is_outdated(node, message.version):
            self._post.write(source, Taken(node, message.version))
            return
        coming = self._coming.pop(node, None) or Coming(source, message.version)
        self._host.cancel_timer(("coming", node))
        client = self._client(message, coming)
        if client.gates:
            self._host.set_timer(("gates", node), self._host.now() + self._patience)
        self._dispatch.clients[node] = client
        self._registrations.moved_away.pop(node, None)
        self._dispatch.places.install(client, coming.states)
        self._post.write(node, NewHome(message.generation, message.version))
        for d in coming.deliveries:
            letter = Deliver(message.generation, d.number, d.age, d.hops, d.subscription, d.event)
            self._post.write(node, letter)
        # Our own table, if nobody has told us; brokers that nobody has told; interests that have changed.
        is_changed = known is None or known.interests != message.interests
        self._registrations.register(client, list(client.told) if is_changed else [])
        self._registrations.on_topology_changed()
        for arrival in coming.arrivals:
            self._dispatch.arrive(node, arrival)
        self._post.write(source, Taken(node, message.version))

    def on_switched(self, sender: NodeId, message: Switched) -> None:
        """Roll back: the sender gives its events to the source again; what it sent here goes there too."""
        node = message.consumer
        coming = self._coming.get(node)
        if coming is None or message.version != coming.version + 1:
            return
        coming.is_back = True  # the source's own word may still be on its way
        mine = [arrival for arrival in coming.arrivals if arrival.sender == sender]
        coming.arrivals = [arrival for arrival in coming.arrivals if arrival.sender != sender]
        for arrival in mine:
            self._dispatch.relay(coming.source, node, message.version, arrival)
        self._post.write(coming.source, Closed(node, message.version, sender))

    def on_cancelled(self, message: Cancelled) -> None:
        coming = self._coming.get(message.consumer)
        if coming is not None and coming.version == message.version:
            self.forget(message.consumer)

    def on_superseded(self, node: NodeId, version: int) -> None:
        """A newer registration of the client: it goes elsewhere. One that is rolled back has a newer version,
        too, and what came for it is given back in order."""
        coming = self._coming.get(node)
        if coming is not None and version > coming.version and not coming.is_back:
            self.forget(node)

    def on_reset(self, peer: NodeId) -> None:
        """A source that restarted has nobody to send."""
        for node, coming in list(self._coming.items()):
            if coming.source == peer:
                self.forget(node)

    def forget(self, node: NodeId) -> None:
        """It does not come: what has arrived for it goes where it is now."""
        coming = self._coming.pop(node, None)
        self._host.cancel_timer(("coming", node))
        if coming is not None:
            for delivery in coming.deliveries:
                self._dispatch.salvage(node, delivery)
            for arrival in coming.arrivals:
                self._dispatch.arrive(node, arrival)

    # Questions.

    def work_coming(self) -> int:
        """What the modulators of clients on their way here take: microseconds per second at capacity 1."""
        return sum(coming.work for coming in self._coming.values())

    def is_idle(self) -> bool:
        return not self._coming

    def holds(self, producer: NodeId) -> bool:
        """Whether events of a producer wait here for a client."""
        return any(
            arrival.event.publisher == producer
            for coming in self._coming.values()
            for arrival in coming.arrivals
        )

    # Private.

    def _expect(self, node: NodeId, source: NodeId, version: int, work: int = 0) -> Coming:
        coming = self._coming[node] = Coming(source, version, work)
        self._host.set_timer(("coming", node), self._host.now() + 2 * self._patience)
        return coming

    def _owner(self, source: NodeId, node: NodeId, version: int) -> Coming | None:
        """Whose luggage it is; it may be the first that we hear of this client."""
        coming = self._coming.get(node)
        if coming is None or coming.version < version:
            if self._is_outdated(node, version):
                return None
            self.forget(node)
            if len(self._coming) >= CLIENTS_MAX:
                return None
            coming = self._expect(node, source, version)
        return coming if coming.version == version else None

    def _is_outdated(self, node: NodeId, version: int) -> bool:
        """A second copy, and the client is here already; or it has moved on."""
        known, standing = self._dispatch.consumers.find(node), self._dispatch.clients.get(node)
        is_old = known is not None and known.version > version
        return is_old or (standing is not None and standing.version >= version)

    def _client(self, message: Moved, coming: Coming) -> Client:
        """As it was at the source."""
        own, now = self._host.node, self._host.now()
        client = Client(
            message.consumer, message.generation, message.version, message.produces, message.distance, now
        )
        client.next_number = message.next_number
        client.work_before, client.came_at = float(message.work), now
        client.access = None if message.access == own else message.access
        client.access_at = now
        client.windows = coming.windows.pop(None, client.windows)
        told = (broker for broker in message.told if not self._registrations.was_introduced(broker))
        client.told = dict.fromkeys(broker for broker in told if broker != own)
        client.wants(message.interests)
        client.late = {number: windows for number, windows in coming.windows.items() if number is not None}
        client.gates = {broker: Gate(True) for broker in message.open}
        return client
