"""The source of a handoff: it moves a client of its own to another broker, or goes on serving it.

`handoff/__init__.py` has the whole of it, with a picture of the phases; the numbers of the steps are those of
section 2.4, step 3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from roamcast.kit.protocol import Timers
from roamcast.strategy.opportunistic.consumers import generation_of
from roamcast.strategy.opportunistic.homes import HomeClient, Homes
from roamcast.strategy.opportunistic.messages import (
    Accepted,
    Cancelled,
    CarryMessage,
    Deliver,
    Detour,
    Handoff,
    MovedDelivery,
    MovedMessage,
    MovedState,
    NewHome,
    Skip,
    Switched,
    Taken,
)
from roamcast.strategy.opportunistic.readers import HeldCarry, NodeReading, carried
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.trace import HandedOff
from roamcast.units import Micros, NodeId, micros

NUMBERS_SKIPPED = 1 << 20
VERSIONS_PER_ATTEMPT = 64  # between them a client's subscriptions may change


class Phase(Enum):
    ASKED = "asked"
    SWITCHING = "switching"
    MOVED = "moved"


@dataclass
class Leaving:
    """A client on its way from here."""

    client: HomeClient
    to: NodeId
    version: int  # of the row at the destination
    started: Micros
    on_done: Callable[[bool], None]
    phase: Phase = Phase.ASKED
    waiting: set[NodeId] = field(default_factory=set)  # producers' brokers that have not switched
    asked: int = 0  # how many there were
    undelivered: list[Deliver] = field(default_factory=list)
    is_closing: bool = False  # nothing is read here any more; what came is still at work
    behind: list[HeldCarry] = field(default_factory=list)  # came meanwhile, and goes with the client
    claimed: int | None = None  # the generation in which the client chose the destination by itself


class Source(NodePart):
    def __init__(self, shared: SharedParts, homes: Homes, reading: NodeReading) -> None:
        super().__init__(shared)
        self._homes = homes
        self._reading = reading
        self._timeout = micros(self._options.handoff_timeout)
        self._timers = Timers(self._host, self._on_late)
        self._leaving: dict[NodeId, Leaving] = {}

    # Inputs.

    def relocate(self, node: NodeId, to: NodeId, on_done: Callable[[bool], None], below: int | None) -> bool:
        """Step 1; see `BrokerClients.relocate`."""
        client = self._homes.clients.get(node)
        if client is None or to == self._host.node or node in self._leaving:
            return False
        # A version of its own for each attempt, so that a late answer to one is not taken for another's; the
        # one after it is for a roll back.
        client.tried = max(client.version, client.tried) + VERSIONS_PER_ATTEMPT
        leaving = Leaving(client, to, client.tried, self._host.now(), on_done)
        self._leaving[node] = leaving
        if self._options.handoff != "strict":
            leaving.phase = Phase.SWITCHING
            self._close(leaving)
        else:
            self._timers.after(node, self._timeout)
            work = round(client.work(self._host.now()))
            self._streams.write(
                to, Handoff(node, leaving.version, client.generation, client.interests, work, below)
            )
        return True

    def on_accepted(self, sender: NodeId, message: Accepted, held: Micros) -> None:
        leaving = self._find(message, Phase.ASKED)
        if leaving is None or sender != leaving.to:
            return
        self._overlay.on_load_heard(sender, message.load)
        if message.problem:
            self._end(leaving, "refused")
            return
        self._switch(leaving)

    def on_switched(self, sender: NodeId, message: Switched) -> None:
        leaving = self._find(message, Phase.SWITCHING)
        if leaving is not None and sender in leaving.waiting:
            leaving.waiting.discard(sender)
            if not leaving.waiting:
                self._close(leaving)

    def on_taken(self, sender: NodeId, message: Taken, held: Micros) -> None:
        leaving = self._find(message, Phase.MOVED)
        if leaving is not None:
            self._end(leaving, "moved")

    def on_claimed(self, message: Detour, boot: int) -> bool:
        """A client of ours has chosen another home by itself: whether it moves there from here.

        A client that is on its way to a third broker moves too, until that broker has confirmed it.
        Modulators make the same product of the same event, so two brokers that both process an event make no
        duplicate.
        """
        node, generation = message.consumer, generation_of(message.version)
        before = self._leaving.get(node)
        client = self._homes.clients.get(node) if before is None else before.client
        if client is None or client.generation >= generation:
            return False
        claimed = Leaving(client, message.home, message.version, self._host.now(), lambda moved: None)
        claimed.phase, claimed.claimed = Phase.SWITCHING, generation
        if before is not None:
            if before.phase is not Phase.MOVED:
                self._streams.write(before.to, Cancelled(node, before.version))
            claimed.behind, claimed.undelivered = before.behind, before.undelivered
            self._end(before, "superseded")
        self._consumers.switch(node, message.version, message.home, boot)
        self._leaving[node] = claimed
        self._close(claimed)
        return True

    def _on_late(self, node: NodeId) -> None:
        leaving = self._leaving.get(node)
        if leaving is None:
            return
        match leaving.phase:
            case Phase.ASKED:
                self._streams.write(leaving.to, Cancelled(leaving.client.node, leaving.version))
                self._end(leaving, "aborted")
            case Phase.SWITCHING if self._streams.silence(leaving.to) >= self._timeout // 2:
                self._roll_back(leaving)
            case Phase.SWITCHING:
                self._close(leaving)  # a producers' broker does not answer: its events are asked for
            case Phase.MOVED:
                self._resume(leaving)

    def on_carry(self, carry: CarryMessage) -> bool:
        """Whether an event for a client's modulators goes with the client."""
        leaving = self._leaving.get(carry.consumer)
        if leaving is None:
            return False
        if leaving.phase is Phase.MOVED:
            self._streams.write(leaving.to, carry)
        elif leaving.is_closing:
            leaving.behind.append(HeldCarry(carry, self._host.now()))
        else:
            return False
        return True

    def on_return(self, node: NodeId) -> HomeClient | None:
        """A client that was moved away has chosen us again. If the destination never confirmed that it came,
        we have all that it had here; what it has not got is written to it as before."""
        leaving = self._leaving.get(node)
        if leaving is None or leaving.phase is not Phase.MOVED:
            return None
        messages = self._streams.unconfirmed(leaving.to)
        if not any(isinstance(message, MovedMessage) and message.consumer == node for message in messages):
            return None
        for message in leaving.undelivered:
            self._streams.write(node, message)
        return leaving.client

    def on_superseded(self, node: NodeId, version: int) -> None:
        """A newer row of the client: whatever is under way here is over."""
        leaving = self._leaving.get(node)
        if leaving is not None and version > leaving.version + 1:
            self._end(leaving, "superseded")

    def on_reset(self, peer: NodeId) -> None:
        """A broker that restarted is no destination any more, and switches nothing."""
        for leaving in list(self._leaving.values()):
            if leaving.to == peer:
                match leaving.phase:
                    case Phase.ASKED:
                        self._end(leaving, "aborted")
                    case Phase.SWITCHING if not leaving.is_closing:
                        self._roll_back(leaving)
                    case Phase.MOVED:
                        self._resume(leaving)
            elif peer in leaving.waiting:
                leaving.waiting.discard(peer)
                if not leaving.waiting and leaving.phase is Phase.SWITCHING:
                    self._close(leaving)

    # Questions.

    def is_moving(self, node: NodeId) -> bool:
        return node in self._leaving

    def is_idle(self) -> bool:
        return not self._leaving

    # Private.

    def _find(self, message: Accepted | Switched | Taken, phase: Phase) -> Leaving | None:
        leaving = self._leaving.get(message.consumer)
        is_it = leaving is not None and leaving.phase is phase and leaving.version == message.version
        return leaving if is_it else None

    def _switch(self, leaving: Leaving) -> None:
        """Step 3. Our own table switches at once."""
        leaving.phase = Phase.SWITCHING
        leaving.waiting = self._suppliers(leaving.client)
        leaving.asked = len(leaving.waiting) + 1
        self._detour(leaving, leaving.version, leaving.to)
        if not leaving.waiting:
            self._close(leaving)

    def _suppliers(self, client: HomeClient) -> set[NodeId]:
        """The home brokers of all producers; of those that it has read nothing of, if a way leads there."""
        if client.reader is None:
            return set()
        read, homes = client.reader.cursors, self._consumers.producers()
        found = {home for node, home in homes.items() if node in read or self._is_reachable(home)}
        return found - {self._host.node}

    def _is_reachable(self, broker: NodeId) -> bool:
        return self._underlay.distance(broker) is not None

    def _detour(self, leaving: Leaving, version: int, home: NodeId) -> None:
        node = leaving.client.node
        self._consumers.switch(node, version, home, self._overlay.boot_of(home))
        for broker in sorted(leaving.waiting):
            self._streams.write(broker, Detour(node, version, home, self._host.node))

    def _close(self, leaving: Leaving) -> None:
        """All have switched, or shall not be waited for. Behind all work that this client still has here."""
        if not leaving.is_closing:
            leaving.is_closing = leaving.client.is_closing = True
            self._reading.end(leaving.client.node)
            self._homes.processor.submit(0, lambda: self._move(leaving))

    def _move(self, leaving: Leaving) -> None:
        """Step 7."""
        client, to, now = leaving.client, leaving.to, self._host.now()
        node = client.node
        if self._leaving.get(node) is not leaving or leaving.phase is not Phase.SWITCHING:
            return  # superseded while it waited for the processor
        leaving.phase = Phase.MOVED
        self._homes.remove(client)
        # A second copy of the messages that brought it here is outdated from now on, and events follow it.
        self._consumers.switch(node, leaving.version, to, self._overlay.boot_of(to))
        until = now + max(2 * self._timeout, micros(self._options.home_timeout))
        self._homes.moved_away[node] = until
        self._send_luggage(leaving)
        self._streams.write(to, self._moved(leaving))
        behind, leaving.behind = leaving.behind, []
        for held in behind:
            self._streams.write(to, held.aged(now))
        for early in [] if client.reader is None else client.reader.take_waiting():
            if self._copies.flood(early.copy.event.id) is None:
                self._streams.write(to, carried(early.copy, node, True, early.base, now))
        # For a destination that may be behind a partition by now: as long as a row lasts.
        self._timers.after(node, micros(self._options.registration_lifetime))

    def _send_luggage(self, leaving: Leaving) -> None:
        """What goes before the client itself: deliveries that it has not confirmed, and what its modulators
        remember."""
        client, to, version = leaving.client, leaving.to, leaving.version
        node = client.node
        for message in self._streams.abandon(node):
            if isinstance(message, Deliver) and message.generation == client.generation:
                leaving.undelivered.append(message)
            elif not isinstance(message, NewHome):
                self._streams.write(node, message)
        for message in leaving.undelivered:
            self._streams.write(to, MovedDelivery(node, version, message))
        states = self._homes.places.states(client) if self._keeps_states(leaving) else {}
        for subscription, state in states.items():
            stored = tuple(n for event in client.stored.get(subscription, ()) for n in event)
            self._streams.write(to, MovedState(node, version, subscription, state, stored))

    def _moved(self, leaving: Leaving) -> MovedMessage:
        client, now = leaving.client, self._host.now()
        cursors = () if client.reader is None else client.reader.cursors.items()
        return MovedMessage(
            client.node,
            leaving.version,
            client.generation if leaving.claimed is None else leaving.claimed,
            client.interests,
            client.ages(now),
            client.next_number,
            tuple(number for pair in cursors for number in pair),
            client.produces,
            client.distance,
            round(client.work(now)),
            client.access,
            self._keeps_states(leaving),
        )

    def _keeps_states(self, leaving: Leaving) -> bool:
        return self._options.handoff != "stateless" or leaving.claimed is not None

    # Going on here.

    def _roll_back(self, leaving: Leaving) -> None:
        """The destination does not answer, and nothing has moved: everyone sends here again. Where the move
        waited for the processor nothing was read meanwhile; what came is read now."""
        client = leaving.client
        client.version = leaving.version + 1
        leaving.waiting = self._suppliers(client)
        self._detour(leaving, client.version, self._host.node)
        self._streams.write(leaving.to, Cancelled(client.node, leaving.version))
        self._end(leaving, "rolled_back")
        self._homes.enter(client, [])
        self._homes.tell(client)
        for held in leaving.behind:
            self._reading.on_carried(held.aged(self._host.now()))

    def _resume(self, leaving: Leaving) -> None:
        """The destination has lost what we gave it: serve the client again, from what we kept."""
        client = leaving.client
        self._end(leaving, "resumed" if leaving.claimed is None else "superseded")
        if leaving.claimed is not None or self._consumers.version(client.node) > leaving.version:
            return  # somebody else serves it by now, or it will choose again
        client.version = leaving.version + 1
        self._homes.enter(client, [])
        self._homes.tell(client)
        for message in leaving.undelivered:
            self._streams.write(client.node, message)
        # The destination may have delivered under the next numbers: begin far behind them.
        first, client.next_number = client.next_number, client.next_number + NUMBERS_SKIPPED
        self._streams.write(client.node, Skip(client.generation, first, client.next_number))
        self._streams.write(client.node, NewHome(client.generation, client.version))

    def _end(self, leaving: Leaving, outcome: str) -> None:
        node = leaving.client.node
        del self._leaving[node]
        self._timers.cancel(node)
        now = self._host.now()
        self._host.trace(
            HandedOff(now, node, self._host.node, leaving.to, leaving.started, leaving.asked, outcome)
        )
        leaving.on_done(outcome == "moved")
