"""Moving a client from one broker to another (section 2.4, step 3): the eight steps, made safe.

All letters between two brokers keep their order, so a broker's `Switched` is behind its last event on the old
way and before its first on the new. The steps, at the source broker:

    asked ──Accepted──▶ switching ──all Switched──▶ moved ──Taken──▶ done
      │ refused, late       │ late                    │ destination restarted
      ▼                     ▼                         ▼
    aborted              `open`, or rolled back     resumed here

- Late while asked: `Cancelled`; nothing had changed.
- Late while switching, because a producers' broker does not answer: the client moves all the same. That
  broker's way stays `open`: what still comes to the source goes on by `Relay`, the destination holds back
  what comes from it directly, and `Closed` says that the old way is at its end. Nothing is lost or reordered,
  and one broker behind a partition stops no other.
- Late while switching, because the destination does not answer: rolled back. Everyone is told to switch back;
  what the destination has got in the meantime goes back to the source by the same `Relay` and `Closed`, with
  the ways exchanged.
- A party that crashes takes what it alone had with it: the destination its buffer, the source its unconfirmed
  deliveries and the modulators' states. Whoever remains goes on.

`loose`: the client is moved at once with its state, and what comes late is passed on: order is not kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from roamcast.host import Host
from roamcast.strategy.opportunistic.clients import CLIENTS_MAX, Arrival, Client, Gate
from roamcast.strategy.opportunistic.dispatch import HELD_BACK_MAX, Dispatch, undelivered
from roamcast.strategy.opportunistic.messages import (
    BROKERS_MAX,
    SUBSCRIPTIONS_MAX,
    Accepted,
    Cancelled,
    Closed,
    Deliver,
    Detour,
    Handoff,
    Letters,
    Moved,
    MovedDelivery,
    MovedState,
    MovedWindows,
    NewHome,
    Register,
    Relay,
    Skip,
    Switched,
    Taken,
    Undelivered,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.windows import WINDOWS_MAX, Windows
from roamcast.trace import HandedOff
from roamcast.units import Micros, NodeId, micros

NUMBERS_SKIPPED = 1 << 20

HandoffLetter = (
    Handoff
    | Accepted
    | Detour
    | Switched
    | MovedDelivery
    | MovedState
    | MovedWindows
    | Moved
    | Taken
    | Cancelled
    | Relay
    | Closed
)


class Phase(Enum):
    ASKED = "asked"
    SWITCHING = "switching"
    MOVED = "moved"
    BACK = "back"


@dataclass
class Leaving:
    """At the source."""

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


@dataclass
class Coming:
    """At the destination."""

    source: NodeId
    version: int
    work: int = 0  # of its modulators, as the source said
    arrivals: list[Arrival] = field(default_factory=list)
    deliveries: list[Undelivered] = field(default_factory=list)
    states: dict[int, bytes] = field(default_factory=dict)
    windows: dict[int | None, Windows] = field(default_factory=dict)
    is_back: bool = False  # the source wants it back


@dataclass
class Open:
    """At a source that has moved a client while some brokers had not switched."""

    to: NodeId
    version: int
    brokers: set[NodeId]


class Handoffs:
    """Timers are `("handoff", client)`, `("coming", client)`, `("gates", client)` and `("open", client)`."""

    def __init__(self, host: Host, options: OpportunisticOptions, post: Post, dispatch: Dispatch) -> None:
        self._host = host
        self._options = options
        self._post = post
        self._dispatch = dispatch
        self._timeout = micros(options.handoff_timeout)
        self._leaving: dict[NodeId, Leaving] = {}
        self._coming: dict[NodeId, Coming] = {}
        self._open: dict[NodeId, Open] = {}
        # What the broker says of itself, and what it hears of others' loads.
        self.load: Callable[[], int] = lambda: 0
        self.refuses: Callable[[Handoff], bool] = lambda message: False
        self.on_load_heard: Callable[[NodeId, int], None] = lambda broker, load: None
        dispatch.on_stray = self._on_stray
        dispatch.on_superseded = self._on_superseded
        dispatch.on_hold = self._holds
        dispatch.on_closing = self._on_closing
        dispatch.is_switching = self._is_switching
        dispatch.on_return = self._on_return

    # Inputs.

    def relocate(
        self,
        node: NodeId,
        to: NodeId,
        on_done: Callable[[bool], None] = lambda moved: None,
        below: int | None = None,
    ) -> bool:
        """Begin to move a client; False if it is not at home here, or on the move already. `below`: only if
        the destination's load would stay below, in hundredths."""
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

    def on_letter(self, sender: NodeId, message: HandoffLetter, hops: int, held: Micros) -> None:
        match message:
            case Handoff():
                self._on_handoff(sender, message)
            case Accepted():
                self._on_accepted(sender, message)
            case Detour():
                self._on_detour(message)
            case Switched():
                self._on_switched(sender, message)
            case MovedDelivery() | MovedState() | MovedWindows():
                self._on_luggage(sender, message, held)
            case Moved():
                self._on_moved(sender, message)
            case Taken():
                self._on_taken(message)
            case Cancelled():
                coming = self._coming.get(message.consumer)
                if coming is not None and coming.version == message.version:
                    self._forget_coming(message.consumer)
            case Relay():
                self._on_relay(message, hops, held)
            case Closed():
                self._on_closed(message)

    def on_timer(self, name: tuple[str, NodeId]) -> None:
        kind, node = name
        match kind:
            case "handoff" if node in self._leaving:
                self._on_late(self._leaving[node])
            case "gates" if node in self._dispatch.clients:
                client = self._dispatch.clients[node]
                for broker in list(client.gates):
                    self._release(client, broker)
            case "coming":
                self._forget_coming(node)
            case "open":
                self._open.pop(node, None)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        """A broker restarted, or forgot us: it knows of no handoff and has switched nothing."""
        for leaving in list(self._leaving.values()):
            if leaving.to == peer:
                self._on_destination_lost(leaving)
            elif peer in leaving.waiting:
                leaving.waiting.discard(peer)
                self._check_switched(leaving)
        for node, coming in list(self._coming.items()):
            if coming.source == peer:
                self._forget_coming(node)
        for client in self._dispatch.clients.values():
            if peer in client.gates:
                self._release(client, peer)
        for node, gone in list(self._open.items()):
            if peer in gone.brokers:
                self._close(node, gone, peer)
        for letter in unconfirmed:
            if isinstance(letter, Relay):
                arrival = Arrival(letter.sender, letter.event, letter.age, letter.hops, self._host.now())
                self._dispatch.arrive(letter.consumer, arrival)

    # Questions.

    def is_moving(self, node: NodeId) -> bool:
        return node in self._leaving

    def _is_switching(self, node: NodeId) -> bool:
        """Whether producers' brokers are being told of a client's next home, or of its way back."""
        leaving = self._leaving.get(node)
        return leaving is not None and leaving.phase is not Phase.ASKED

    def may_move(self, node: NodeId) -> bool:
        """Whether a client of ours can begin to move."""
        return node not in self._leaving and not self._dispatch.clients[node].gates

    def work_coming(self) -> int:
        """What the modulators of clients on their way here take: microseconds per second at capacity 1."""
        return sum(coming.work for coming in self._coming.values())

    def is_idle(self) -> bool:
        """Whether nothing is under way, nor anything left that others may still ask for."""
        return not (self._leaving or self._coming or self._open)

    def _holds(self, producer: NodeId) -> bool:
        """Whether events of a producer wait here for a handoff to end."""
        for coming in self._coming.values():
            if any(arrival.event.publisher == producer for arrival in coming.arrivals):
                return True
        for leaving in self._leaving.values():
            if any(arrival.event.publisher == producer for arrival in leaving.behind):
                return True
        for client in self._dispatch.clients.values():
            for gate in client.gates.values():
                if any(arrival.event.publisher == producer for arrival in gate.relayed + gate.direct):
                    return True
        return False

    # The source.

    def _on_accepted(self, sender: NodeId, message: Accepted) -> None:
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
        self._dispatch.moved_away[node] = until
        for letter in self._post.abandon(node):
            if isinstance(letter, Deliver) and letter.generation == client.generation:
                leaving.undelivered.append(letter)
            elif not isinstance(letter, NewHome):
                self._post.write(node, letter)
        for letter in leaving.undelivered:
            self._post.write(to, MovedDelivery(node, leaving.version, undelivered(letter)))
        for subscription, state in self._dispatch.places.states(client).items():
            self._post.write(to, MovedState(node, leaving.version, subscription, state))
        for number, windows in [(None, client.windows), *client.late.items()]:
            self._post.write(to, MovedWindows(node, leaving.version, windows.export()[:WINDOWS_MAX], number))
        told = {**client.told, self._host.node: None}
        told.pop(to, None)
        still_open = leaving.waiting | {arrival.sender for arrival in leaving.behind}
        self._post.write(
            to,
            Moved(
                node,
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
            ),
        )
        if still_open:
            gone = self._open[node] = Open(to, leaving.version, still_open)
            self._host.set_timer(("open", node), self._host.now() + self._patience())
            behind, leaving.behind = leaving.behind, []
            for arrival in behind:
                self._relay(to, node, leaving.version, arrival)
            for broker in sorted(still_open - leaving.waiting):
                self._close(node, gone, broker)
        self._host.set_timer(("handoff", node), self._host.now() + self._patience())

    def _on_taken(self, message: Taken) -> None:
        leaving = self._leaving.get(message.consumer)
        if leaving is not None and leaving.phase is Phase.MOVED and leaving.version == message.version:
            self._end(leaving, "moved")

    def _on_late(self, leaving: Leaving) -> None:
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

    def _on_destination_lost(self, leaving: Leaving) -> None:
        """The destination restarted: it has none of what we gave it."""
        match leaving.phase:
            case Phase.ASKED:
                self._end(leaving, "aborted")
            case Phase.SWITCHING | Phase.MOVED:
                self._resume(leaving)
            case Phase.BACK:
                for broker in list(leaving.client.gates):
                    self._release(leaving.client, broker)

    def _resume(self, leaving: Leaving) -> None:
        """Serve the client again, from what we kept."""
        client = leaving.client
        known = self._dispatch.consumers.find(client.node)
        self._end(leaving, "resumed")
        if known is not None and known.version > leaving.version:
            return  # somebody else serves it by now
        client.version = leaving.version + 1
        client.gates.clear()
        self._open.pop(client.node, None)
        self._dispatch.clients[client.node] = client
        client.told.setdefault(leaving.to, None)
        self._dispatch.register(client, list(client.told))
        for letter in leaving.undelivered:
            self._post.write(client.node, letter)
        # The destination may have delivered under the next numbers: begin far behind them.
        first, client.next_number = client.next_number, client.next_number + NUMBERS_SKIPPED
        self._post.write(client.node, Skip(client.generation, first, client.next_number))
        self._post.write(client.node, NewHome(client.generation, client.version))

    def _on_return(self, node: NodeId) -> Client | None:
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
            self._dispatch.on_topology_changed()  # those that nobody told while it was on its way
        leaving.on_done(outcome == "moved")

    def _on_superseded(self, node: NodeId, version: int) -> None:
        """A newer registration of the client: whatever is under way here is over."""
        leaving = self._leaving.get(node)
        if leaving is not None and version > leaving.version + 1:
            self._end(leaving, "superseded")
        coming = self._coming.get(node)
        if coming is not None and version > coming.version and not coming.is_back:
            self._forget_coming(node)

    # Every broker.

    def _on_detour(self, message: Detour) -> None:
        """Step 4. The answer goes out whether or not it was news: the source waits for it."""
        node, own = message.consumer, self._host.node
        coming = self._coming.get(node)
        if coming is not None and message.home != own and message.version == coming.version + 1:
            coming.is_back = True
        known = self._dispatch.consumers.find(node)
        is_old = known is not None and known.version > message.version  # a second copy, and it has moved on
        is_ours = message.home == own and not is_old and node not in self._dispatch.clients
        if coming is None and is_ours and len(self._coming) < CLIENTS_MAX:
            self._expect(node, message.source, message.version)
        registration = Register(node, message.version, message.home, message.interests)
        self._dispatch.on_registration(registration, is_detour=True)
        self._post.write(message.source, Switched(node, message.version))
        if message.is_back:
            self._post.write(message.home, Switched(node, message.version))
        if message.is_back and message.source != own:
            # If it is alive it gives back what it got; what it has not confirmed may never have come there.
            # Behind our word that we have switched, so that it waits there for what was given back.
            self._dispatch.send_again(node, message.source)

    def _on_switched(self, sender: NodeId, message: Switched) -> None:
        node = message.consumer
        leaving = self._leaving.get(node)
        if leaving is not None and message.version == leaving.version:
            leaving.waiting.discard(sender)
            self._check_switched(leaving)
        gone = self._open.get(node)
        if gone is not None and message.version == gone.version and sender in gone.brokers:
            self._close(node, gone, sender)
        coming = self._coming.get(node)
        if coming is not None and message.version == coming.version + 1:
            coming.is_back = True  # the source's own word may still be on its way
            self._give_back(node, coming, sender)
        client = self._dispatch.clients.get(node)
        if client is not None and message.version == client.version and sender in client.gates:
            self._on_gate_switched(client, sender)

    def _on_closing(self, node: NodeId, arrival: Arrival) -> bool:
        """Whether an event for a client of ours goes with the client."""
        leaving = self._leaving.get(node)
        if leaving is None or not leaving.is_closing or leaving.phase is not Phase.SWITCHING:
            return False
        leaving.behind.append(arrival)
        return True

    def _on_stray(self, node: NodeId, arrival: Arrival) -> bool:
        """An event for a client that is not at home here: ours to keep, to relay, or not."""
        coming = self._coming.get(node)
        if coming is not None:
            self._dispatch.hold_back(coming.arrivals, arrival)
            return True
        gone = self._open.get(node)
        if gone is not None and arrival.sender in gone.brokers:
            self._relay(gone.to, node, gone.version, arrival)
            return True
        return False

    # Ways that are exchanged.

    def _relay(self, to: NodeId, node: NodeId, version: int, arrival: Arrival) -> None:
        age = arrival.age + self._host.now() - arrival.at
        hops = min(arrival.hops, 255)
        self._dispatch.barriers.on_sent(arrival.event.publisher, to)
        self._post.write(to, Relay(node, version, arrival.sender, arrival.event, age, hops))

    def _close(self, node: NodeId, gone: Open, broker: NodeId) -> None:
        gone.brokers.discard(broker)
        self._post.write(gone.to, Closed(node, gone.version, broker))
        if not gone.brokers:
            del self._open[node]

    def _give_back(self, node: NodeId, coming: Coming, broker: NodeId) -> None:
        """Roll back: `broker` sends to the source again; what it sent here goes there too."""
        mine = [arrival for arrival in coming.arrivals if arrival.sender == broker]
        coming.arrivals = [arrival for arrival in coming.arrivals if arrival.sender != broker]
        for arrival in mine:
            self._relay(coming.source, node, coming.version + 1, arrival)
        self._post.write(coming.source, Closed(node, coming.version + 1, broker))

    def _on_relay(self, message: Relay, hops: int, held: Micros) -> None:
        arrival = Arrival(
            message.sender, message.event, message.age + held, message.hops + hops, self._host.now()
        )
        client = self._dispatch.clients.get(message.consumer)
        if client is None:
            self._dispatch.arrive(message.consumer, arrival)
            return
        gate = client.gates.get(message.sender)
        if gate is not None and not gate.is_switched:
            self._dispatch.hold_back(gate.relayed, arrival)
        else:
            self._dispatch.process(client, arrival)

    def _on_gate_switched(self, client: Client, broker: NodeId) -> None:
        gate = client.gates[broker]
        gate.is_switched = True
        relayed, gate.relayed = gate.relayed, []
        for arrival in relayed:
            self._dispatch.process(client, arrival)
        if gate.is_closed:
            self._release(client, broker)

    def _on_closed(self, message: Closed) -> None:
        client = self._dispatch.clients.get(message.consumer)
        gate = None if client is None else client.gates.get(message.sender)
        if client is None or gate is None or message.version != client.version:
            return
        if gate.is_switched:
            self._release(client, message.sender)
        else:
            gate.is_closed = True

    def _release(self, client: Client, broker: NodeId) -> None:
        gate = client.gates.pop(broker)
        for arrival in gate.relayed + gate.direct:
            self._dispatch.process(client, arrival)
        if client.gates:
            return
        self._host.cancel_timer(("gates", client.node))
        leaving = self._leaving.get(client.node)
        if leaving is not None and leaving.phase is Phase.BACK:
            self._post.write(leaving.to, Cancelled(client.node, leaving.version))
            self._end(leaving, "rolled_back")

    # The destination.

    def _on_handoff(self, source: NodeId, message: Handoff) -> None:
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

    def _expect(self, node: NodeId, source: NodeId, version: int, work: int = 0) -> Coming:
        coming = self._coming[node] = Coming(source, version, work)
        self._host.set_timer(("coming", node), self._host.now() + 2 * self._patience())
        return coming

    def _on_moved(self, source: NodeId, message: Moved) -> None:
        """Step 8."""
        node, own = message.consumer, self._host.node
        known = self._dispatch.consumers.find(node)
        standing = self._dispatch.clients.get(node)
        is_old = known is not None and known.version > message.version
        if is_old or (standing is not None and standing.version >= message.version):
            self._post.write(source, Taken(node, message.version))
            return
        coming = self._coming.pop(node, None) or Coming(source, message.version)
        self._host.cancel_timer(("coming", node))
        client = Client(
            node, message.generation, message.version, message.produces, message.distance, self._host.now()
        )
        client.next_number = message.next_number
        client.work_before, client.came_at = float(message.work), self._host.now()
        client.access = None if message.access == own else message.access
        client.access_at = self._host.now()
        client.windows = coming.windows.pop(None, client.windows)
        told = (broker for broker in message.told if not self._dispatch.was_introduced(broker))
        client.told = dict.fromkeys(broker for broker in told if broker != own)
        client.wants(message.interests)
        client.late = {number: windows for number, windows in coming.windows.items() if number is not None}
        client.gates = {broker: Gate(True) for broker in message.open}
        if client.gates:
            self._host.set_timer(("gates", node), self._host.now() + self._patience())
        self._dispatch.clients[node] = client
        self._dispatch.moved_away.pop(node, None)
        self._dispatch.places.install(client, coming.states)
        self._post.write(node, NewHome(message.generation, message.version))
        for d in coming.deliveries:
            letter = Deliver(message.generation, d.number, d.event, d.age, d.hops, d.subscription)
            self._post.write(node, letter)
        # Our own table, if nobody has told us; brokers that nobody has told; interests that have changed.
        is_changed = known is None or known.interests != message.interests
        self._dispatch.register(client, list(client.told) if is_changed else [])
        self._dispatch.on_topology_changed()
        for arrival in coming.arrivals:
            self._dispatch.arrive(node, arrival)
        self._post.write(source, Taken(node, message.version))

    def _on_luggage(
        self, source: NodeId, message: MovedDelivery | MovedState | MovedWindows, held: Micros
    ) -> None:
        """What comes before the client itself."""
        node, version = message.consumer, message.version
        coming = self._coming.get(node)
        if coming is None or coming.version < version:
            known, standing = self._dispatch.consumers.find(node), self._dispatch.clients.get(node)
            if known is not None and known.version > version:
                return
            if standing is not None and standing.version >= version:
                return  # a second copy: it is here already
            self._forget_coming(node)
            if len(self._coming) >= CLIENTS_MAX:
                return
            coming = self._expect(node, source, version)
        if coming.version != version:
            return
        match message:
            case MovedDelivery() if len(coming.deliveries) < HELD_BACK_MAX:
                delivery = message.delivery
                coming.deliveries.append(msgspec.structs.replace(delivery, age=delivery.age + held))
            case MovedState() if len(coming.states) < SUBSCRIPTIONS_MAX:
                coming.states[message.subscription] = message.state
            case MovedWindows() if len(coming.windows) <= SUBSCRIPTIONS_MAX:
                coming.windows[message.subscription] = Windows(message.windows)

    def _forget_coming(self, node: NodeId) -> None:
        """It does not come: what has arrived for it goes where it is now."""
        coming = self._coming.pop(node, None)
        self._host.cancel_timer(("coming", node))
        if coming is not None:
            for delivery in coming.deliveries:
                self._dispatch.salvage(node, delivery)
            for arrival in coming.arrivals:
                self._dispatch.arrive(node, arrival)

    def _patience(self) -> Micros:
        """For parties that may be behind a partition: as long as a registration lasts."""
        return micros(self._options.registration_lifetime)
