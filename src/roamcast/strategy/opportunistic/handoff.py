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

Here are the whole, and what a broker does that is neither source nor destination. The parts:
`handoff_source.py`, `handoff_destination.py`, and `ways.py` for events that come by the old way and the new.
"""

from collections.abc import Callable

from roamcast.host import Host
from roamcast.strategy.opportunistic.clients import Arrival
from roamcast.strategy.opportunistic.dispatch import Dispatch
from roamcast.strategy.opportunistic.handoff_destination import Destination
from roamcast.strategy.opportunistic.handoff_source import Source
from roamcast.strategy.opportunistic.messages import (
    Accepted,
    Cancelled,
    Closed,
    Detour,
    Handoff,
    Letters,
    Moved,
    MovedDelivery,
    MovedState,
    MovedWindows,
    Register,
    Relay,
    Switched,
    Taken,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.registrations import Registrations
from roamcast.strategy.opportunistic.ways import Gates, OpenWays
from roamcast.units import Micros, NodeId

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


class Handoffs:
    """Timers are `("handoff", client)`, `("coming", client)`, `("gates", client)` and `("open", client)`."""

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
        self.open_ways = OpenWays(host, options, post, dispatch)
        self.gates = Gates(host, dispatch)
        self.source = Source(host, options, post, dispatch, registrations, self.open_ways, self.gates)
        self.destination = Destination(host, options, post, dispatch, registrations)
        dispatch.on_stray = self._on_stray
        dispatch.on_closing = self.source.on_closing
        dispatch.on_hold = self._holds
        registrations.on_superseded = self._on_superseded
        registrations.is_switching = self.source.is_switching
        registrations.on_return = self.source.on_return

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
        return self.source.relocate(node, to, on_done, below)

    def on_letter(self, sender: NodeId, message: HandoffLetter, hops: int, held: Micros) -> None:
        match message:
            case Handoff():
                self.destination.on_handoff(sender, message)
            case Accepted():
                self.source.on_accepted(sender, message)
            case Detour():
                self._on_detour(message)
            case Switched():
                self._on_switched(sender, message)
            case MovedDelivery() | MovedState() | MovedWindows():
                self.destination.on_luggage(sender, message, held)
            case Moved():
                self.destination.on_moved(sender, message)
            case Taken():
                self.source.on_taken(message)
            case Cancelled():
                self.destination.on_cancelled(message)
            case Relay():
                self.gates.on_relay(message, hops, held)
            case Closed():
                self.gates.on_closed(message)

    def on_timer(self, name: tuple[str, NodeId]) -> None:
        kind, node = name
        match kind:
            case "handoff":
                self.source.on_late(node)
            case "gates":
                self.gates.on_late(node)
            case "coming":
                self.destination.forget(node)
            case "open":
                self.open_ways.forget(node)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        """A broker restarted, or forgot us: it knows of no handoff and has switched nothing."""
        self.source.on_reset(peer)
        self.destination.on_reset(peer)
        self.gates.on_reset(peer)
        self.open_ways.on_reset(peer)
        for letter in unconfirmed:
            if isinstance(letter, Relay):
                arrival = Arrival(letter.sender, letter.event, letter.age, letter.hops, self._host.now())
                self._dispatch.arrive(letter.consumer, arrival)

    # Questions.

    def is_moving(self, node: NodeId) -> bool:
        return self.source.is_moving(node)

    def may_move(self, node: NodeId) -> bool:
        """Whether a client of ours can begin to move."""
        return self.source.may_move(node)

    def work_coming(self) -> int:
        """What the modulators of clients on their way here take: microseconds per second at capacity 1."""
        return self.destination.work_coming()

    def is_idle(self) -> bool:
        """Whether nothing is under way, nor anything left that others may still ask for."""
        return self.source.is_idle() and self.destination.is_idle() and self.open_ways.is_idle()

    def _holds(self, producer: NodeId) -> bool:
        """Whether events of a producer wait here for a handoff to end."""
        return self.destination.holds(producer) or self.source.holds(producer) or self.gates.holds(producer)

    # Every broker.

    def _on_detour(self, message: Detour) -> None:
        """Step 4. The answer goes out whether or not it was news: the source waits for it."""
        node = message.consumer
        self.destination.on_detour(message)
        registration = Register(node, message.version, message.home, message.interests)
        self._registrations.on_registration(registration, is_detour=True)
        self._post.write(message.source, Switched(node, message.version))
        if message.is_back:
            self._post.write(message.home, Switched(node, message.version))
        if message.is_back and message.source != self._host.node:
            # If it is alive it gives back what it got; what it has not confirmed may never have come there.
            # Behind our word that we have switched, so that it waits there for what was given back.
            self._dispatch.send_again(node, message.source)

    def _on_switched(self, sender: NodeId, message: Switched) -> None:
        """To whom it is said, the version tells: to the source, before or after the client has gone, to a
        destination that gives the client back, or to the home that had it rolled back."""
        self.source.on_switched(sender, message)
        self.open_ways.on_switched(sender, message)
        self.destination.on_switched(sender, message)
        self.gates.on_switched(sender, message)

    def _on_stray(self, node: NodeId, arrival: Arrival) -> bool:
        """An event for a client that is not at home here: ours to keep, to relay, or not."""
        return self.destination.on_stray(node, arrival) or self.open_ways.on_stray(node, arrival)

    def _on_superseded(self, node: NodeId, version: int) -> None:
        """A newer registration of the client: whatever is under way here is over."""
        self.source.on_superseded(node, version)
        self.destination.on_superseded(node, version)
