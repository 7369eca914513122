"""The source of a handoff: it moves a client of its own to another broker, or takes it back.

`handoff.py` has the whole of it, with a picture of the phases; the numbers of the steps are those of section
2.4, step 3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from roamcast.host import Host
from roamcast.strategy.opportunistic.clients import Arrival, Client, Gate
from roamcast.strategy.opportunistic.dispatch import Dispatch, undelivered
from roamcast.strategy.opportunistic.messages import (
    BROKERS_MAX,
    Accepted,
    Cancelled,
    Deliver,
    Detour,
    Handoff,
    Moved,
    MovedDelivery,
    MovedState,
    MovedWindows,
    NewHome,
    Skip,
    Switched,
    Taken,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.registrations import Registrations
from roamcast.strategy.opportunistic.ways import Gates, OpenWays
from roamcast.strategy.opportunistic.windows import WINDOWS_MAX
from roamcast.trace import HandedOff
from roamcast.units import Micros, NodeId, micros

NUMBERS_SKIPPED = 1 << 20


class Phase(Enum):
    ASKED = "asked"
    SWITCHING = "switching"
    MOVED = "moved"
    BACK = "back"


@dataclass
class Leaving:
    """A client on its way from here."""

    client: Client
    to: NodeId
    version: int  # of the registration at the destination
    started: Micros
    on_done: Callable[[bool], None]
    phase: Phase = Phase.ASKED
    waiting: set[NodeId] = field(default_factory=set)  # producers' brokers that have not switched
    asked: int = 0  # how many there were
    undelivered: list[Deliver] = field(default_factory=list)
    # It moves although somebody has not switched, as soon as the processor has done what was there. What
    # comes meanwhile is not for this broker's modulators any more.
    is_closing: bool = False
    behind: list[Arrival] = field(default_factory=list)


class Source:
    """Timers are `("handoff", client)` and, for the gates of one that is rolled back, `("gates", client)`."""

    def __init__(
        self,
        host: Host,
        options: OpportunisticOptions,
        post: Post,
        dispatch: Dispatch,
        registrations: Registrations,
        open_ways: OpenWays,
        gates: Gates,
    ) -> None:
        self._host = host
        self._options = options
        self._post = post
        self._dispatch = dispatch
        self._registrations = registrations
        self._open_ways = open_ways
        self._gates = gates
        self._timeout = micros(options.handoff_timeout)
        self._leaving: dict[NodeId, Leaving] = {}
        # What the broker hears of others' loads.
        self.on_load_heard: Callable[[NodeId, int], None] = lambda broker, load: None
        gates.on_all_released = self._on_all_released

    # Inputs.

    def relocate(self, node: NodeId, to: NodeId, on_done: Callable[[bool], None], below: int | None) -> bool:
        """Step 1; see `Handoffs.relocate`."""
        client = self._dispatch.clients.get(node)
        if client is None or to == self._host.node or not self.may_move(node):
            return False
        # A version of its own for each attempt, so that a late answer to one is not taken for another's; the
        # one after it is for a roll back.
        client.tried = max(client.version, client.tried) + 2
        leaving = Leaving(client, to, client.tried, self._host.now(), on_done)
        self._leaving[node] = leaving
        if self._options.handoff == "loose":
            self._switch(leaving)
            leaving.waiting.clear()
            leaving.is_closing = True  # the processor may be busy: what comes meanwhile goes with the client
            self._dispatch.processor.submit(0, lambda: self._move(leaving))
        else:
            self._host.set_timer(("handoff", node), self._host.now() + self._timeout)
            work = round(client.work(self._host.now()))
            self._post.write(
                to, Handoff(node, leaving.version, client.generation, client.interests, work, below)
            )
        return True

    def on_accepted(self, sender: NodeId, message: Accepted) -> None:
        leaving = self._leaving.get(message.consumer)
        if leaving is None or leaving.phase is not Phase.ASKED or leaving.version != message.version:
            return
        if sender != leaving.to:
            return
        self.on_load_heard(sender, message.load)
        if message.problem:
            self._end(leaving, "refused")
            return
        self._switch(leaving)
        self._check_switched(leaving)

    def on_switched(self, sender: NodeId, message: Switched) -> None:
        leaving = self._leaving.get(message.consumer)
        if leaving is not None and message.version == leaving.version:
            leaving.waiting.discard(sender)
            self._check_switched(leaving)

    def on_taken(self, message: Taken) -> None:
        leaving = self._leaving.get(message.consumer)
        if leaving is not None and leaving.phase is Phase.MOVED and leaving.version == message.version:
            self._end(leaving, "moved")

    def on_late(self, node: NodeId) -> None:
        leaving = self._leaving.get(node)
        if leaving is None:
            return
        match leaving.phase:
            case Phase.ASKED:
                self._post.write(leaving.to, Cancelled(leaving.client.node, leaving.version))
                self._end(leaving, "aborted")
            case Phase.SWITCHING if self._post.silence(leaving.to) >= self._timeout // 2:
                self._roll_back(leaving)
            case Phase.SWITCHING:
                leaving.is_closing = True
                self._dispatch.processor.submit(0, lambda: self._move(leaving))
            case Phase.MOVED:
                self._resume(leaving)
            case Phase.BACK:
                self._end(leaving, "rolled_back")

    def on_closing(self, node: NodeId, arrival: Arrival) -> bool:
        """Whether an event for a client of ours goes with the client."""
        leaving = self._leaving.get(node)
        if leaving is None or not leaving.is_closing or leaving.phase is not Phase.SWITCHING:
            return False
        leaving.behind.append(arrival)
        return True

    def on_return(self, node: NodeId) -> Client | None:
        """A client that was moved away has chosen us again. If the destination never confirmed that it came,
        we have all that it had here; what it has not got is written to it as before."""
        leaving = self._leaving.get(node)
        if leaving is None or leaving.phase is not Phase.MOVED:
            return None
        letters = self._post.unconfirmed(leaving.to)
        if not any(isinstance(letter, Moved) and letter.consumer == node for letter in letters):
            return None
        for letter in leaving.undelivered:
            self._post.write(node, letter)
        return leaving.client

    def on_superseded(self, node: NodeId, version: int) -> None:
        """A newer registration of the client: whatever is under way here is over."""
        leaving = self._leaving.get(node)
        if leaving is not None and version > leaving.version + 1:
            self._end(leaving, "superseded")

    def on_reset(self, peer: NodeId) -> None:
        """A broker that restarted is no destination any more, and has nothing on the old way."""
        for leaving in list(self._leaving.values()):
            if leaving.to == peer:
                self._on_destination_lost(leaving)
            elif peer in leaving.waiting:
                leaving.waiting.discard(peer)
                self._check_switched(leaving)

    # Questions.

    def is_moving(self, node: NodeId) -> bool:
        return node in self._leaving

    def is_switching(self, node: NodeId) -> bool:
        """Whether producers' brokers are being told of a client's next home, or of its way back."""
        leaving = self._leaving.get(node)
        return leaving is not None and leaving.phase is not Phase.ASKED

    def may_move(self, node: NodeId) -> bool:
        """Whether a client of ours can begin to move."""
        return node not in self._leaving and not self._dispatch.clients[node].gates

    def is_idle(self) -> bool:
        return not self._leaving

    def holds(self, producer: NodeId) -> bool:
        """Whether events of a producer wait here to go with a client."""
        return any(
            arrival.event.publisher == producer
            for leaving in self._leaving.values()
            for arrival in leaving.behind
        )

    # Going.

    def _switch(self, leaving: Leaving) -> None:
        """Step 3. Our own table switches at once: what our producers sent before has been taken already."""
        client, own = leaving.client, self._host.node
        leaving.phase = Phase.SWITCHING
        leaving.waiting = set(client.told) - {own}
        leaving.asked = len(leaving.waiting) + 1
        self._detour(client, leaving.version, leaving.to, own)

    def _detour(
        self, client: Client, version: int, home: NodeId, source: NodeId, is_back: bool = False
    ) -> None:
        self._dispatch.consumers.update(client.node, version, home, client.interests, self._host.now())
        for broker in client.told:
            if broker != self._host.node:
                letter = Detour(client.node, version, home, source, client.interests, is_back)
                self._post.write(broker, letter)

    def _check_switched(self, leaving: Leaving) -> None:
        if leaving.phase is Phase.SWITCHING and not leaving.waiting:
            # Behind all work that this client still has here.
            self._dispatch.processor.submit(0, lambda: self._move(leaving))

    def _move(self, leaving: Leaving) -> None:
        """Step 7."""
        client, to = leaving.client, leaving.to
        node = client.node
        if self._leaving.get(node) is not leaving or leaving.phase is not Phase.SWITCHING:
            return  # superseded while it waited for the processor
        leaving.phase = Phase.MOVED
        del self._dispatch.clients[node]
        until = self._host.now() + max(2 * self._timeout, micros(self._options.home_timeout))
        self._registrations.moved_away[node] = until
        self._send_luggage(leaving)
        still_open = leaving.waiting | {arrival.sender for arrival in leaving.behind}
        self._post.write(to, self._moved(leaving, still_open))
        if still_open:
            self._open_ways.begin(node, to, leaving.version, still_open)
            behind, leaving.behind = leaving.behind, []
            for arrival in behind:
                self._dispatch.relay(to, node, leaving.version, arrival)
            for broker in sorted(still_open - leaving.waiting):
                self._open_ways.close(node, broker)
        # For a destination that may be behind a partition by now: as long as a registration lasts.
        patience = micros(self._options.registration_lifetime)
        self._host.set_timer(("handoff", node), self._host.now() + patience)

    def _send_luggage(self, leaving: Leaving) -> None:
        """What goes before the client itself: deliveries that it has not confirmed, and what its modulators
        and its windows remember."""
        client, to, version = leaving.client, leaving.to, leaving.version
        node = client.node
        for letter in self._post.abandon(node):
            if isinstance(letter, Deliver) and letter.generation == client.generation:
                leaving.undelivered.append(letter)
            elif not isinstance(letter, NewHome):
                self._post.write(node, letter)
        for letter in leaving.undelivered:
            self._post.write(to, MovedDelivery(node, version, undelivered(letter)))
        for subscription, state in self._dispatch.places.states(client).items():
            self._post.write(to, MovedState(node, version, subscription, state))
        for number, windows in [(None, client.windows), *client.late.items()]:
            self._post.write(to, MovedWindows(node, version, windows.export()[:WINDOWS_MAX], number))

    def _moved(self, leaving: Leaving, still_open: set[NodeId]) -> Moved:
        client = leaving.client
        told = {**client.told, self._host.node: None}
        told.pop(leaving.to, None)
        return Moved(
            client.node,
            leaving.version,
            client.generation,
            client.interests,
            client.next_number,
            tuple(told)[:BROKERS_MAX],
            tuple(sorted(still_open))[:BROKERS_MAX],
            client.produces,
            client.distance,
            round(client.work(self._host.now())),
            client.access,
        )

    # Coming back.

    def _roll_back(self, leaving: Leaving) -> None:
        """Everyone sends here again. Until the destination has given back what it got from a broker, that
        broker's new events wait."""
        client, own = leaving.client, self._host.node
        leaving.phase = Phase.BACK
        client.version = leaving.version + 1
        client.gates = {broker: Gate(False) for broker in client.told if broker != own}
        client.gates[own] = Gate(True)
        client.gates.setdefault(leaving.to, Gate(False))
        client.told.setdefault(leaving.to, None)
        self._detour(client, client.version, own, leaving.to, is_back=True)
        self._post.write(leaving.to, Switched(client.node, client.version))
        # The destination is out of sight, perhaps for ever.
        until = self._host.now() + max(micros(self._options.home_timeout), self._timeout)
        self._host.set_timer(("handoff", client.node), until)
        self._host.set_timer(("gates", client.node), until)
        self._dispatch.send_again(client.node, leaving.to)

    def _on_all_released(self, client: Client) -> None:
        """All of a roll back has come home."""
        leaving = self._leaving.get(client.node)
        if leaving is not None and leaving.phase is Phase.BACK:
            self._post.write(leaving.to, Cancelled(client.node, leaving.version))
            self._end(leaving, "rolled_back")

    def _on_destination_lost(self, leaving: Leaving) -> None:
        """The destination restarted: it has none of what we gave it."""
        match leaving.phase:
            case Phase.ASKED:
                self._end(leaving, "aborted")
            case Phase.SWITCHING | Phase.MOVED:
                self._resume(leaving)
            case Phase.BACK:
                self._gates.release_all(leaving.client)

    def _resume(self, leaving: Leaving) -> None:
        """Serve the client again, from what we kept."""
        client = leaving.client
        known = self._dispatch.consumers.find(client.node)
        self._end(leaving, "resumed")
        if known is not None and known.version > leaving.version:
            return  # somebody else serves it by now
        client.version = leaving.version + 1
        client.gates.clear()
        self._open_ways.forget(client.node)
        self._dispatch.clients[client.node] = client
        client.told.setdefault(leaving.to, None)
        self._registrations.register(client, list(client.told))
        for letter in leaving.undelivered:
            self._post.write(client.node, letter)
        # The destination may have delivered under the next numbers: begin far behind them.
        first, client.next_number = client.next_number, client.next_number + NUMBERS_SKIPPED
        self._post.write(client.node, Skip(client.generation, first, client.next_number))
        self._post.write(client.node, NewHome(client.generation, client.version))

    def _end(self, leaving: Leaving, outcome: str) -> None:
        node = leaving.client.node
        del self._leaving[node]
        self._host.cancel_timer(("handoff", node))
        now = self._host.now()
        self._host.trace(
            HandedOff(now, node, self._host.node, leaving.to, leaving.started, leaving.asked, outcome)
        )
        for arrival in leaving.behind:
            self._dispatch.arrive(node, arrival)
        if outcome != "moved":
            self._registrations.on_topology_changed()  # those that nobody told while it was on its way
        leaving.on_done(outcome == "moved")
