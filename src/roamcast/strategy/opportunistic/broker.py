"""A node as a broker: its parts, which of them each input is for, and how it ends.

A broker that was made at run time retires in this order, so that nothing is lost: it takes no clients any
more (`FULL`), its adaptors give the clients away by handoffs, its producers publish elsewhere, what it has to
do and to deliver is done; then it gives memorized events to its nearest neighbour, and once all letters are
confirmed, or a row's lifetime is over, its row says that it is a broker no more.
"""

from typing import get_args

import msgspec

from roamcast.host import Host, TimerName
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.opportunistic.adaptation.managers import BrokerClients
from roamcast.strategy.opportunistic.adaptation.monitor import ProcessorWatch
from roamcast.strategy.opportunistic.board import Board
from roamcast.strategy.opportunistic.consumers import (
    Consumers,
    EventTarget,
    first_version,
    generation_of,
)
from roamcast.strategy.opportunistic.copies import Copies, EventCopy
from roamcast.strategy.opportunistic.dispatch import Backlog, Dispatch, NodeReading
from roamcast.strategy.opportunistic.floods import Floods
from roamcast.strategy.opportunistic.handoff.destination import Destination
from roamcast.strategy.opportunistic.handoff.handoff import HandoffLetter, Handoffs, passed_on
from roamcast.strategy.opportunistic.handoff.source import Source
from roamcast.strategy.opportunistic.homes import Homes
from roamcast.strategy.opportunistic.messages import (
    FULL,
    HOPS_MAX,
    Accepted,
    AttachLetter,
    CarryLetter,
    ClientRow,
    Detour,
    Handoff,
    Here,
    Interest,
    Keep,
    Letter,
    NotHome,
    PublishLetter,
    Returned,
    Salvaged,
    Switched,
)
from roamcast.strategy.opportunistic.modulators import ModelledMeter
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.overlay import BrokerOverlay, OwnWord
from roamcast.strategy.opportunistic.stream import Post
from roamcast.trace import DropReason, OverlayChanged
from roamcast.units import SECOND, Micros, NodeId, micros

HANDOFF_LETTERS = get_args(HandoffLetter)


class Brokerage:
    def __init__(
        self,
        context: StrategyContext,
        options: OpportunisticOptions,
        post: Post,
        board: Board,
        overlay: BrokerOverlay,
        consumers: Consumers,
        copies: Copies,
        floods: Floods,
        reading: NodeReading,
        *,
        was_made: bool = False,
    ) -> None:
        """`was_made`: at run time."""
        self._host = context.host
        self._post = post
        self.overlay = overlay
        self.consumers = consumers
        self._reading = reading
        self.was_made = was_made
        meter = context.meter or ModelledMeter(micros(options.modulator_limit))
        self.backlog = Backlog(context.host, context.broker, post)
        self.homes = Homes(context.host, options, post, board, overlay, consumers, reading, meter)
        self.dispatch = Dispatch(
            context.host,
            context.underlay,
            post,
            copies,
            floods,
            consumers,
            is_alive=overlay.is_alive,
        )
        source = Source(context.host, options, post, overlay, consumers, copies, reading, self.homes)
        destination = Destination(
            context.host, options, post, consumers, self.homes, load=self.load, refuses=self._refuses
        )
        self.handoffs = Handoffs(
            context.host, post, overlay, consumers, source, destination, self._on_released
        )
        self.processor = ProcessorWatch(context.host, context.machine)
        self.clients = BrokerClients(
            context.host, overlay, consumers, self.homes, self.handoffs, self.processor
        )
        self.retirement = Retirement(context.host, options, self)

    # Inputs.

    def on_start(self) -> None:
        now, node = self._host.now(), self._host.node
        self._host.trace(OverlayChanged(now, node, "role_on", role="broker"))
        self.overlay.start(OwnWord(self.load, self.homes.producers))
        self.homes.on_start()

    def on_end(self) -> None:
        self.overlay.stop()
        self.homes.on_end()
        now, node = self._host.now(), self._host.node
        self._host.trace(OverlayChanged(now, node, "role_off", role="broker"))

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "broker update":
                self.overlay.on_timer()
            case "renew" | "processor":
                self.homes.on_timer(name)
            case (("handoff" | "coming") as kind, int() as node):
                self.handoffs.on_timer(kind, node)

    def on_letter(self, sender: NodeId, message: Letter, hops: int, held: Micros) -> None:
        match message:
            case AttachLetter() if not self.takes_clients and sender not in self.homes.clients:
                self._post.write(sender, NotHome(message.generation, is_broker=False))
            case AttachLetter():
                self._on_attach(sender, message, held)
            case PublishLetter() if message.event.publisher == sender:  # nobody publishes in another's name
                self.homes.on_published(sender)
                age, hops = message.age + held, message.hops + hops
                copy = EventCopy(message.event, message.previous, message.gap, hops, self._host.now() - age)
                self.backlog.on_published(copy)
                self.dispatch.on_published(copy)
            case Keep():
                self.backlog.on_keep(message, held)
            case Salvaged():
                self.homes.salvage(message.consumer, message.delivery, held)
            case Here():
                self.homes.on_here(sender, message)
        if isinstance(message, HANDOFF_LETTERS):
            self.handoffs.on_letter(sender, message, held)

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
        if before is not None and (before.home, before.boot) != (row.home, row.boot):
            self.dispatch.send_heads(EventTarget(node, True), row.home)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letter]) -> None:
        self.handoffs.on_reset(peer)
        for letter in unconfirmed:
            if isinstance(letter, Salvaged):
                self.homes.salvage(letter.consumer, letter.delivery)
            elif letter_survives(letter, self.homes, peer):
                self._post.write(peer, letter)

    def _on_attach(self, node: NodeId, attach: AttachLetter, held: Micros) -> None:
        known = self.homes.clients.get(node)
        if self.handoffs.destination.is_attaching(node, attach.generation):
            self.handoffs.destination.on_attach(node, attach, held)
            return
        if known is None and generation_of(self.consumers.version(node)) >= attach.generation:
            # Said before it heard that it has been moved; or a word from long ago.
            if not self.homes.was_moved(node):
                self._post.write(node, NotHome(attach.generation))
            return
        returned = None
        if known is None or known.generation < attach.generation:
            returned = self.handoffs.source.on_return(node)
            self.handoffs.on_superseded(node, first_version(attach.generation))
        if known is None and returned is None and self._may_have_modulators(attach):
            self.handoffs.destination.on_attach(node, attach, held)
        else:
            self.homes.on_attach(node, attach, held, returned)

    def _may_have_modulators(self, attach: AttachLetter) -> bool:
        """Whether the home that a client gave up can still have what its modulators remember."""
        before = attach.before
        # One that is a broker no more knows to whom it handed the client on.
        is_there = (
            before is not None and before != self._host.node and self.overlay.topology.row(before) is not None
        )
        return is_there and any(map(self.homes.places.keeps_state, attach.interests))

    def _on_released(self, carry: CarryLetter) -> None:
        on_carry(self._host, self._post, self._reading, self.consumers, self, carry, 0, 0)

    # Questions.

    @property
    def takes_clients(self) -> bool:
        return not self.retirement.is_begun

    def load(self) -> int:
        """What others are told: hundredths of the capacity."""
        return self.clients.load() if self.takes_clients else FULL

    def way(self, to: NodeId) -> tuple[NodeId, ...]:
        """Source routing: to a broker through those between; to a client through its home, or through the
        broker nearest to it where its modulators run elsewhere."""
        client = self.homes.clients.get(to)
        if client is not None:
            return () if client.access is None else self.overlay.path(client.access)[1:]
        row = self.consumers.find(to)
        if (
            row is not None
            and row.home not in (to, self._host.node)
            and not self.overlay.topology.is_broker(to)
        ):
            return self.overlay.path(row.home)[1:]
        return self.overlay.path(to)[1:-1]

    def _refuses(self, message: Handoff) -> bool:
        """Whether a client that another broker wants to give us is too much."""
        if not self.takes_clients:
            return True
        more = 100 * message.work / SECOND / self.homes.processor.capacity
        return message.below is not None and self.clients.load() + more > message.below


class Retirement:
    def __init__(self, host: Host, options: OpportunisticOptions, brokerage: Brokerage) -> None:
        self._host = host
        self._patience = micros(options.registration_lifetime)
        self._brokerage = brokerage
        self._empty_since: Micros | None = None
        self._said_at: Micros | None = None
        self.is_begun = False

    def begin(self) -> None:
        self.is_begun = True

    def cancel(self) -> None:
        """The broker is needed after all, unless it has said its farewell."""
        if self._said_at is None:
            self.is_begun = False

    def is_over(self, *, is_idle: bool) -> bool:
        """Go on with it; whether the broker can end now. `is_idle`: no letter waits in this node."""
        brokerage, now = self._brokerage, self._host.now()
        if not self.is_begun:
            return False
        if brokerage.homes.clients or not brokerage.handoffs.is_idle():
            self._empty_since = None
            return False
        if self._empty_since is None:
            self._empty_since = now
        is_late = now - self._empty_since >= self._patience
        if not is_late and (brokerage.homes.processor.waiting() or not is_idle):
            return False
        if self._said_at is None:
            self._said_at = now
            is_broker = brokerage.overlay.topology.is_broker
            others = [near.broker for near in brokerage.overlay.neighbours() if is_broker(near.broker)]
            if others:
                brokerage.backlog.give_to(others[0])
            return False
        return is_idle or now - self._said_at >= self._patience


def letter_survives(letter: Letter, homes: Homes, peer: NodeId) -> bool:
    """What a client or a reader that has restarted still needs of us."""
    if isinstance(letter, CarryLetter):
        return True
    client = homes.clients.get(peer)
    generation = getattr(letter, "generation", None)
    return client is not None and generation == client.generation


def on_carry(
    host: Host,
    post: Post,
    reading: NodeReading,
    consumers: Consumers,
    broker: Brokerage | None,
    carry: CarryLetter,
    hops: int,
    held: Micros,
) -> None:
    """An event for a consumer that this node reads for, or that is on the move."""
    now, own = host.now(), host.node
    hops, age = carry.hops + hops, carry.age + held
    copy = EventCopy(carry.event, carry.previous, carry.gap, hops, now - age)
    if not carry.is_modulated:
        if carry.consumer == own:
            reading.on_carried(copy, carry)
        return
    carry = msgspec.structs.replace(carry, age=age, hops=min(hops, 255))
    if broker is not None:
        if broker.handoffs.on_carry(carry):
            return
        client = broker.homes.clients.get(carry.consumer)
        if client is not None:
            if carry.is_stored:
                broker.homes.process(client, copy)
            else:
                reading.on_carried(copy, carry)
            return
    row = consumers.find(carry.consumer)
    if row is not None and row.home != own and hops < HOPS_MAX:
        post.write(row.home, carry)  # it was moved, and the sender had not heard of it
    else:
        post.drop(DropReason.STALE, "carry", carry.event.id, carry.consumer)


def answer_for_no_broker(
    post: Post,
    consumers: Consumers,
    overlay: BrokerOverlay,
    sender: NodeId,
    message: Letter,
    held: Micros,
) -> None:
    """What a node that is a broker no more says to those who have not heard of it. Events go back to their
    clients; whoever waits for a word gets it, and whoever looks for a client is led on."""
    match message:
        case AttachLetter() | Here():
            post.write(sender, NotHome(message.generation, is_broker=False))
        case PublishLetter():
            aged = PublishLetter(message.event, message.age + held, 0, message.previous, message.gap)
            post.write(sender, Returned(aged))
        case Handoff():
            post.write(sender, Accepted(message.consumer, message.version, "no broker", FULL))
        case Detour() if not passed_on(message, post, consumers, overlay):
            post.write(message.source, Switched(message.consumer, message.version))
        case _:
            pass  # nothing here depends on it
