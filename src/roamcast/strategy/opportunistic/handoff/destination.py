"""The destination of a handoff: it expects a client, keeps what comes before it, and becomes its home.

`handoff/__init__.py` has the whole of it; the numbers of the steps are those of section 2.4, step 3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from roamcast.event import EventId
from roamcast.kit.protocol import Timers
from roamcast.strategy.opportunistic.consumers import first_version
from roamcast.strategy.opportunistic.homes import CLIENTS_MAX, HomeClient, Homes
from roamcast.strategy.opportunistic.messages import (
    SUBSCRIPTIONS_MAX,
    Accepted,
    AttachMessage,
    Cancelled,
    CarryMessage,
    Deliver,
    Detour,
    Handoff,
    MovedDelivery,
    MovedMessage,
    MovedState,
    NewHome,
    Switched,
    Taken,
)
from roamcast.strategy.opportunistic.readers import HeldCarry
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId, micros

HELD_BACK_MAX = 10_000


@dataclass
class Coming:
    """A client on its way here."""

    source: NodeId
    version: int
    work: int = 0  # of its modulators, as the source said
    carries: list[HeldCarry] = field(default_factory=list)
    deliveries: list[Deliver] = field(default_factory=list)
    attach: AttachMessage | None = None  # it has chosen us by itself, then
    attached_at: Micros = 0
    is_known_there: bool = False  # the home that was given up has confirmed our question
    claim: Detour | None = None  # it has chosen another broker by itself: it goes there when it has come
    states: dict[int, bytes] = field(default_factory=dict)
    stored: dict[int, dict[EventId, None]] = field(default_factory=dict)


class BrokerLoad(Protocol):
    def load(self) -> int:
        """What the broker tells others: hundredths of its capacity."""

    def refuses(self, message: Handoff) -> bool:
        """Whether a client that another broker wants to give us is too much."""


class Destination(NodePart):
    def __init__(
        self, shared: SharedParts, homes: Homes, broker: BrokerLoad, on_carry: Callable[[CarryMessage], None]
    ) -> None:
        """`on_carry` gets the events that waited here for a client, when it has come or does not come."""
        super().__init__(shared)
        self._homes = homes
        self._broker = broker
        self._on_carry = on_carry
        # How long to wait for modulators that the abandoned home may still have: routes and streams take time
        # to heal.
        self._timeout = 2 * micros(self._options.handoff_timeout)
        self._coming: dict[NodeId, Coming] = {}
        self._timers = Timers(self._host, self.on_late)

    # Inputs.

    def on_attach(self, node: NodeId, attach: AttachMessage, held: Micros) -> None:
        """A client has chosen us by itself, and the home that it gave up may still have its modulators: ask
        for them, and wait for a while. What they made and the client has not got comes with them."""
        assert attach.before is not None
        now, version = self._host.now(), first_version(attach.generation) + 1
        coming = self._coming.get(node)
        if coming is None or coming.version != version:
            known = coming or Coming(attach.before, version)  # a handoff to us may be under way
            coming = self._expect(node, attach.before, version)
            self._timers.after(node, self._timeout)
            coming.carries, coming.deliveries = known.carries, known.deliveries
            coming.states, coming.stored = known.states, known.stored
            self._homes.moved_away[node] = now + 3 * self._timeout
            own = self._host.node
            self._streams.write(attach.before, Detour(node, version, own, own))
        coming.attach, coming.attached_at = attach, now - held

    def on_switched(self, message: Switched) -> None:
        """The home that a client gave up has not got its modulators."""
        coming = self._coming.get(message.consumer)
        if coming is not None and coming.attach is not None and coming.version == message.version:
            coming.is_known_there = True
            self.on_late(message.consumer)

    def on_late(self, node: NodeId) -> None:
        """A client's modulators have not come in time. If it has chosen us by itself, they begin anew."""
        coming = self._coming.get(node)
        if coming is not None and coming.attach is not None and not coming.is_known_there:
            coming.is_known_there = not self._streams.waiting(coming.source)
            if coming.is_known_there:  # it has our question, and will answer
                self._timers.after(node, self._timeout)
                return
        carries = self._forget(node)
        if coming is not None and coming.attach is not None:
            held = self._host.now() - coming.attached_at
            self._homes.on_attach(node, coming.attach, held, None, coming.deliveries)
        self._release(carries)

    def on_claimed(self, message: Detour) -> bool:
        """Whether a client that has chosen another broker by itself is on its way here."""
        coming = self._coming.get(message.consumer)
        if coming is None or coming.attach is not None or coming.version >= message.version:
            return False
        coming.claim = message
        return True

    def claim_of(self, node: NodeId) -> Detour | None:
        coming = self._coming.get(node)
        return None if coming is None else coming.claim

    def on_handoff(self, source: NodeId, message: Handoff, held: Micros) -> None:
        """Step 2."""
        node, version = message.consumer, message.version
        problem = ""
        if len(self._homes.clients) + len(self._coming) >= CLIENTS_MAX:
            problem = "full"
        elif node not in self._homes.clients and self._broker.refuses(message):
            problem = "no room"
        elif node in self._homes.clients or self._consumers.version(node) > version:
            problem = "outdated"
        elif not all(map(self._homes.places.knows, message.interests)):
            problem = "unknown modulator"
        elif node not in self._coming or self._coming[node].version < version:
            self._forget(node)
            self._expect(node, source, version, message.work)
        self._streams.write(source, Accepted(node, version, problem, self._broker.load()))

    def on_carry(self, carry: CarryMessage) -> bool:
        """Step 6: whether an event is for a client on its way here, and waits for it."""
        coming = self._coming.get(carry.consumer)
        if coming is None:
            return False
        if len(coming.carries) >= HELD_BACK_MAX:
            self._streams.drop(DropReason.QUEUE_FULL, "handoff", carry.event.id)
        else:
            coming.carries.append(HeldCarry(carry, self._host.now()))
        return True

    def on_luggage(self, source: NodeId, message: MovedDelivery | MovedState, held: Micros) -> None:
        """Step 7: what comes before the client itself."""
        coming = self._owner(source, message.consumer, message.version)
        if coming is None:
            if isinstance(message, MovedDelivery):
                self._homes.salvage(message.consumer, message.delivery.aged(held))
            return
        if coming.attach is not None:
            self._timers.after(message.consumer, self._timeout)
        match message:
            case MovedDelivery() if len(coming.deliveries) < HELD_BACK_MAX:
                coming.deliveries.append(message.delivery.aged(held))
            case MovedState() if len(coming.states) < SUBSCRIPTIONS_MAX:
                coming.states[message.subscription] = message.state
                pairs = zip(message.stored[::2], message.stored[1::2], strict=False)
                coming.stored[message.subscription] = {EventId(*pair): None for pair in pairs}

    def on_moved(self, source: NodeId, message: MovedMessage, held: Micros) -> None:
        """Step 8; what has waited for the client goes to its modulators."""
        node = message.consumer
        if self._is_outdated(node, message.version):
            self._streams.write(source, Taken(node, message.version))
            return
        coming = self._coming.pop(node, None) or Coming(source, message.version)
        self._timers.cancel(node)
        client = self._client(message, coming, held)
        cursors = list(zip(message.cursors[::2], message.cursors[1::2], strict=False))
        self._homes.moved_away.pop(node, None)
        self._streams.write(source, Taken(node, message.version))
        if coming.attach is not None:
            self._homes.places.install(client, coming.states)
            client.read(lambda copy: None, cursors)
            waited = self._host.now() - coming.attached_at
            self._homes.on_attach(node, coming.attach, waited, client, coming.deliveries)
        else:
            self._streams.write(node, NewHome(message.generation, message.version))
            for delivery in coming.deliveries:
                self._streams.write(node, msgspec.structs.replace(delivery, generation=message.generation))
            self._homes.enter(client, cursors, coming.states if message.has_states else None)
            self._homes.tell(client)
        self._release(coming.carries)

    def on_cancelled(self, sender: NodeId, message: Cancelled, held: Micros) -> None:
        """The source gave the handoff up."""
        coming = self._coming.get(message.consumer)
        if coming is not None and coming.version == message.version:
            self._release(self._forget(message.consumer))

    def on_superseded(self, node: NodeId, version: int) -> None:
        """A newer row of the client: it goes elsewhere."""
        coming = self._coming.get(node)
        if coming is not None and version > coming.version:
            self._release(self._forget(node))

    def on_reset(self, peer: NodeId) -> None:
        """A source that restarted has nobody to send."""
        for node in [node for node, coming in self._coming.items() if coming.source == peer]:
            self.on_late(node)

    def _forget(self, node: NodeId) -> list[HeldCarry]:
        """It does not come: what has arrived for it goes where it is now."""
        coming = self._coming.pop(node, None)
        self._timers.cancel(node)
        if coming is None:
            return []
        if coming.attach is None:
            for delivery in coming.deliveries:
                self._homes.salvage(node, delivery)
        return coming.carries

    # Questions.

    def is_attaching(self, node: NodeId, generation: int) -> bool:
        """Whether a client that chose us by itself, in that generation, waits for its modulators."""
        coming = self._coming.get(node)
        return coming is not None and coming.attach is not None and coming.attach.generation == generation

    def work_coming(self) -> int:
        """What the modulators of clients on their way here take: microseconds per second at capacity 1."""
        return sum(coming.work for coming in self._coming.values())

    def is_idle(self) -> bool:
        return not self._coming

    # Private.

    def _release(self, carries: list[HeldCarry]) -> None:
        for held in carries:
            self._on_carry(held.aged(self._host.now()))

    def _expect(self, node: NodeId, source: NodeId, version: int, work: int = 0) -> Coming:
        coming = self._coming[node] = Coming(source, version, work)
        # With parties that may be behind a partition: twice as long as a row lasts.
        self._timers.after(node, 2 * micros(self._options.registration_lifetime))
        return coming

    def _owner(self, source: NodeId, node: NodeId, version: int) -> Coming | None:
        """Whose luggage it is; it may be the first that we hear of this client."""
        coming = self._coming.get(node)
        if coming is None or coming.version < version:
            if self._is_outdated(node, version):
                return None
            before = self._forget(node)
            if len(self._coming) >= CLIENTS_MAX:
                return None
            coming = self._expect(node, source, version)
            coming.carries = before
        # What a handoff that was under way brings is what a client that chose us waits for.
        return coming if coming.version == version or coming.attach is not None else None

    def _is_outdated(self, node: NodeId, version: int) -> bool:
        """A second copy, and the client is here already; or it has moved on."""
        standing = self._homes.clients.get(node)
        return self._consumers.version(node) > version or (
            standing is not None and standing.version >= version
        )

    def _client(self, message: MovedMessage, coming: Coming, held: Micros) -> HomeClient:
        """The client as it was at the source."""
        own, now = self._host.node, self._host.now()
        client = HomeClient(
            message.consumer, message.generation, message.version, message.produces, message.distance, now
        )
        client.next_number = message.next_number
        client.work_before, client.came_at = float(message.work), now
        client.access = None if message.access == own else message.access
        client.access_at = now
        client.wants(message.interests, tuple(age + held for age in message.ages), now)
        client.stored = coming.stored
        return client
