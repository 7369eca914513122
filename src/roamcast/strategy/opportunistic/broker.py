"""A node as a broker: its parts, which of them each input is for, and how it ends.

A broker that was made at run time retires in this order, so that nothing is lost: it takes no clients any
more (`FULL`), its adaptors give the clients away by handoffs, its producers publish elsewhere, what it has to
do and to deliver is done; then it gives memorized events to its nearest neighbour, and once all messages are
confirmed, or a row's lifetime is over, its row says that it is no broker any more.
"""

from collections.abc import Callable, Iterator

from roamcast.strategy.opportunistic.adaptation.layer import BrokerClients
from roamcast.strategy.opportunistic.consumers import EventTarget, first_version, generation_of
from roamcast.strategy.opportunistic.copies import EventCopy
from roamcast.strategy.opportunistic.dispatch import Backlog, Dispatch
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.handoff import Handoffs, pass_claim_on
from roamcast.strategy.opportunistic.homes import Homes
from roamcast.strategy.opportunistic.messages import (
    FULL,
    Accepted,
    AttachMessage,
    CarryMessage,
    ClientRow,
    Detour,
    Handoff,
    Here,
    Interest,
    Keep,
    NotHome,
    PublishMessage,
    Returned,
    Salvaged,
    StreamMessage,
    Switched,
    TopologyMessage,
)
from roamcast.strategy.opportunistic.overlay import OwnState
from roamcast.strategy.opportunistic.readers import NodeReading
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts, StreamHandlers
from roamcast.trace import OverlayChanged
from roamcast.units import SECOND, Micros, NodeId, micros


class Brokerage(NodePart):
    def __init__(
        self,
        shared: SharedParts,
        reading: NodeReading,
        floods: Floods,
        on_carry: Callable[[CarryMessage], None],
        *,
        was_made: bool = False,
    ) -> None:
        """`on_carry` gets events that waited here for a client on the move; `was_made`: at run time."""
        super().__init__(shared)
        self.was_made = was_made
        self.consumers, self.overlay = shared.consumers, shared.overlay
        self.backlog = Backlog(shared)
        self.dispatch = Dispatch(shared, floods)
        self.homes = Homes(shared, reading)
        self.handoffs = Handoffs(shared, self.homes, reading, self, on_carry)
        self.clients = BrokerClients(shared, self.homes, self.handoffs)
        self.retirement = Retirement(shared, self)
        self._handlers: StreamHandlers = {
            AttachMessage: self._on_attach,
            PublishMessage: self._on_publish,
            Keep: self._on_keep,
            Salvaged: self._on_salvaged,
            TopologyMessage: self._overlay.on_topology,
            Here: self.homes.on_here,
            **self.handoffs.messages,
        }

    # Inputs.

    def on_start(self) -> None:
        self._trace_role("role_on")
        self._overlay.start(OwnState(self.load, self.homes.producers))
        self.homes.on_start()

    def on_end(self) -> None:
        self._overlay.stop()
        self.homes.on_end()
        self._trace_role("role_off")

    def on_message(self, sender: NodeId, message: StreamMessage, held: Micros) -> None:
        self._handlers[type(message)](sender, message, held)

    def _on_publish(self, sender: NodeId, message: PublishMessage, held: Micros) -> None:
        if message.event.publisher == sender:  # nobody publishes in another's name
            self.homes.on_published(sender)
            if self.dispatch.on_published(EventCopy.of(message, self._host.now())):
                self.backlog.keep(Keep(message.event, message.age, message.hops))

    def _on_keep(self, sender: NodeId, message: Keep, held: Micros) -> None:
        self.backlog.keep(message)

    def _on_salvaged(self, sender: NodeId, message: Salvaged, held: Micros) -> None:
        self.homes.salvage(message.consumer, message.delivery.aged(held))

    def on_client_row(
        self, node: NodeId, version: int, row: ClientRow, before: ClientRow | None, new: tuple[Interest, ...]
    ) -> None:
        """News of a client, ours or another's: `before`, and which of its interests are new."""
        if row.home != self._host.node:
            self.handoffs.on_superseded(node, version)
        self.homes.on_row(node, version, row)
        if new:
            self.backlog.serve(node, row.home, new)
        if before is None:
            for is_modulated in {interest.modulator is not None for interest in row.interests}:
                self.dispatch.on_consumer(EventTarget(node, is_modulated))
        elif (before.home, before.boot) != (row.home, row.boot):
            self.dispatch.send_heads(EventTarget(node, True), row.home)

    def on_reset(self, peer: NodeId, unconfirmed: list[StreamMessage]) -> None:
        """Write again what a client or a reader that has restarted still needs of us."""
        self.handoffs.on_reset(peer)
        self._overlay.on_reset(peer)
        client = self.homes.clients.get(peer)
        for message in unconfirmed:
            generation = getattr(message, "generation", None)
            is_current = client is not None and generation == client.generation
            if isinstance(message, Salvaged):
                self.homes.salvage(message.consumer, message.delivery)
            elif isinstance(message, CarryMessage) or is_current:
                self._streams.write(peer, message)

    def _on_attach(self, node: NodeId, attach: AttachMessage, held: Micros) -> None:
        known, destination = self.homes.clients.get(node), self.handoffs.destination
        if known is None and not self.takes_clients:
            self._streams.write(node, NotHome(attach.generation, is_broker=False))
            return
        if destination.is_attaching(node, attach.generation):
            destination.on_attach(node, attach, held)
            return
        if known is None and generation_of(self._consumers.version(node)) >= attach.generation:
            # The client wrote this before it heard that it has been moved; or the message is very old.
            if not self.homes.was_moved(node):
                self._streams.write(node, NotHome(attach.generation))
            return
        returned = None
        if known is None or known.generation < attach.generation:
            returned = self.handoffs.source.on_return(node)
            self.handoffs.on_superseded(node, first_version(attach.generation))
        if known is None and returned is None and self._may_have_modulators(attach):
            destination.on_attach(node, attach, held)
        else:
            self.homes.on_attach(node, attach, held, returned)

    def _may_have_modulators(self, attach: AttachMessage) -> bool:
        """Whether the home that a client gave up may still have the state of its modulators."""
        before = attach.before
        # One that is no broker any more knows to whom it handed the client over.
        is_there = (
            before is not None
            and before != self._host.node
            and self._overlay.topology.row(before) is not None
        )
        return is_there and any(map(self.homes.places.keeps_state, attach.interests))

    def _trace_role(self, change: str) -> None:
        self._host.trace(OverlayChanged(self._host.now(), self._host.node, change, role="broker"))

    # Questions.

    @property
    def takes_clients(self) -> bool:
        return not self.retirement.is_begun

    def load(self) -> int:
        """What others are told: hundredths of the capacity."""
        return self.clients.load() if self.takes_clients else FULL

    def refuses(self, message: Handoff) -> bool:
        """Whether a client that another broker wants to give us is too much."""
        if not self.takes_clients:
            return True
        more = 100 * message.work / SECOND / self.homes.processor.capacity
        return message.below is not None and self.clients.load() + more > message.below

    def way(self, to: NodeId) -> tuple[NodeId, ...]:
        """Source routing: to a broker through those between; to a client through its home, or through the
        broker nearest to it where its modulators run elsewhere."""
        client, overlay = self.homes.clients.get(to), self._overlay
        if client is not None:
            return () if client.access is None else overlay.path(client.access)[1:]
        row = self._consumers.find(to)
        is_elsewhere = row is not None and row.home not in (to, self._host.node)
        if row is not None and is_elsewhere and not overlay.topology.is_broker(to):
            return overlay.path(row.home)[1:]
        return overlay.path(to)[1:-1]

    def event_paths(self) -> Iterator[tuple[NodeId, ...]]:
        """Which way events would go at this instant: what figures 7, 8 and 10 to 12 compare (section 4.1).
        `brokers`: from this broker to every other, on its own view of the overlay. `clients`: from each of
        its producers, through this broker and the consumer's home broker as known here, to every consumer."""
        if self._options.paths != "clients":
            yield from self._overlay.paths() if self._options.paths == "brokers" else ()
            return
        for producer in self.homes.clients.values():
            for consumer in self._consumers.consumers() if producer.produces else ():
                known = self._consumers.find(consumer)
                if consumer != producer.node and known is not None and known.interests:
                    yield (producer.node, *self._overlay.path(known.home), consumer)


class Retirement(NodePart):
    def __init__(self, shared: SharedParts, brokerage: Brokerage) -> None:
        super().__init__(shared)
        self._brokerage = brokerage
        self._empty_since: Micros | None = None
        self._gave_at: Micros | None = None  # memorized events to another broker
        self.is_begun = False

    def begin(self) -> None:
        self.is_begun = True

    def cancel(self) -> None:
        """The broker is needed after all, unless it has given away what it kept."""
        if self._gave_at is None:
            self.is_begun = False

    def is_over(self) -> bool:
        """Go on with it; whether the broker can end now."""
        brokerage, now, is_idle = self._brokerage, self._host.now(), self._streams.is_idle()
        longest = micros(self._options.registration_lifetime)
        if not self.is_begun:
            return False
        if brokerage.homes.clients or not brokerage.handoffs.is_idle():
            self._empty_since = None
            return False
        if self._empty_since is None:
            self._empty_since = now
        is_late = now - self._empty_since >= longest
        if not is_late and (brokerage.homes.processor.waiting() or not is_idle):
            return False
        if self._gave_at is None:
            self._gave_at = now
            is_broker = self._overlay.topology.is_broker
            others = [near.broker for near in self._overlay.neighbours() if is_broker(near.broker)]
            if others:
                brokerage.backlog.give_to(others[0])
            return False
        return is_idle or now - self._gave_at >= longest


def answer_for_no_broker(shared: SharedParts, sender: NodeId, message: StreamMessage) -> None:
    """What a node that is no broker any more answers to those who have not heard of that. Events go back to
    their clients; whoever waits for an answer gets it, and whoever looks for a client is led on."""
    write = shared.streams.write
    match message:
        case AttachMessage() | Here():
            write(sender, NotHome(message.generation, is_broker=False))
        case PublishMessage():
            write(sender, Returned(message))
        case Handoff():
            write(sender, Accepted(message.consumer, message.version, "no broker", FULL))
        case Detour() if not pass_claim_on(shared, message):
            write(message.source, Switched(message.consumer, message.version))
        case _:
            pass  # nothing here depends on it
