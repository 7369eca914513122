"""What the parts of one Chapar node share: its tables, its role, and how it sends."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from roamcast.broker.core import Broker
from roamcast.event import Event, EventId
from roamcast.host import Frame, Host, Kind, SendFailure
from roamcast.kit.protocol import overflow_traced
from roamcast.kit.repair import fragments
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.chapar.interests import VersionedInterests
from roamcast.strategy.chapar.messages import (
    CODEC,
    AnyMessage,
    Carry,
    Check,
    InterestChange,
    InterestRegister,
    Lists,
    Memorized,
    Recap,
    Records,
    Request,
    Spread,
)
from roamcast.strategy.chapar.notification.inbox import Inbox
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.roles import Role
from roamcast.strategy.chapar.tables.event_table import EventTable, Memo
from roamcast.strategy.chapar.tables.filter_table import EVERYTHING, FilterTable
from roamcast.strategy.chapar.tables.identifiers import IdentifierLayout
from roamcast.strategy.chapar.tables.node_vector import (
    BloomAddresses,
    NodeBits,
    NodeVector,
    OrderedAddresses,
    vector_of,
)
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, Micros, NodeId, micros

RECORDS_BYTES = 1_200  # of registers in one frame; a larger register is sent alone. Chosen by us
REGISTER_BYTES_MAX = 60_000  # of one register: a frame holds it, sealed too
# A radio's queue is short. This and the next: chosen by us.
TRANSFER_BURST = 4  # frames of a transfer at once, or pieces of large ones
SPACING: Micros = 10 * MILLISECOND  # between bursts
TRANSFERS_MAX = 16_384  # frames that wait for their turn in a transfer


class WaitingFrame(NamedTuple):
    """A frame that waits for its turn. `make` builds it when it is sent, because ages grow meanwhile."""

    to: NodeId | None
    make: Callable[[], AnyMessage | None]


class State:
    def __init__(self, context: StrategyContext, options: ChaparOptions) -> None:
        self.host: Host = context.host
        self.node: NodeId = context.host.node
        self.broker: Broker = context.broker
        self.underlay: Underlay = context.underlay
        self.options = options
        self.in_force = options.in_force()  # the options that a preset may set
        self.layout = IdentifierLayout(options.hash_bits, options.attribute_slots)
        self.addresses: NodeBits = (
            OrderedAddresses(0, options.nodes_max)
            if options.node_vectors == "bitmap"
            else BloomAddresses(options.nodes_max, self._make_room)
        )
        self.interests = VersionedInterests(self.layout, self.host.stable)
        self.inbox = Inbox(self.host, self.broker, micros(options.order_timeout))
        self.role = Role.NODE
        self.filters = self.empty_filters()
        self.events = EventTable(
            entries_max=self.in_force.met_entries_max,
            on_forgotten=overflow_traced(self.host, "memorized", "KNOWN_MAX_FACTOR"),
        )
        self.brokers: frozenset[NodeId] = frozenset()  # as this node computes them
        self.attached: NodeId | None = None  # this node's broker, if it is none itself
        self.broken: dict[NodeId, Micros] = {}  # links that failed, and until when they are not trusted
        self._floods: dict[object, WaitingFrame] = {}
        self._transfers: dict[object, WaitingFrame] = {}

    # Questions.

    @property
    def is_broker(self) -> bool:
        return self.role is Role.BROKER

    @property
    def host_vector(self) -> NodeVector:
        """HNV."""
        return self.addresses.bit(self.node)

    def available_vector(self) -> NodeVector:
        """ANV, this node included."""
        return vector_of(self.addresses, self.underlay.known_nodes()) | self.host_vector

    def adjacent_brokers(self) -> list[NodeId]:
        return [node for node in self.underlay.neighbours() if node in self.brokers]

    def is_broken(self, neighbour: NodeId) -> bool:
        """Whether a frame to it failed less than `link_hold` ago, and nothing came from it since."""
        return self.broken.get(neighbour, 0) > self.host.now()

    def plain_neighbours(self) -> NodeVector:
        """NNV: the neighbours that are no brokers."""
        return vector_of(self.addresses, (n for n in self.underlay.neighbours() if n not in self.brokers))

    def event_id(self, event: Event, sealed: bytes) -> int:
        """EID: given with a sealed event, computed for a clear one."""
        return self.layout.decode(sealed) if sealed else self.layout.event_id(event)

    def wanted_by(self, memo: Memo) -> NodeVector:
        """Who should get a memorized event, as far as this broker knows: subscribers and destinations."""
        wanted = vector_of(self.addresses, memo.event.destinations)
        if memo.event.wants_subscribers:
            wanted |= self.filters.lookup(memo.event_id)
        return wanted

    def may_match(self, event: Event, event_id: int) -> bool:
        """Whether a local application may want it, by the identifiers alone."""
        return self.node in event.destinations or (
            event.wants_subscribers and self.interests.select(event_id)
        )

    def register(self, subscriber: NodeId) -> InterestRegister:
        if subscriber == self.node:
            version, filter_ids = self.interests.version, sorted(self.interests.filter_ids())
        else:
            version = self.filters.version(subscriber)
            filter_ids = self.filters.filter_ids(subscriber)
        encoded = tuple(self.layout.encode(f) for f in filter_ids)
        if _octets_of(encoded) > REGISTER_BYTES_MAX:
            encoded = (self.layout.encode(EVERYTHING),)  # as in a full table: nobody misses an event
        return InterestRegister(subscriber, version, encoded)

    def empty_filters(self) -> FilterTable:
        bits = self.layout.hash_bits * self.layout.slots
        return FilterTable(self.addresses, bits, entries_max=self.options.fmt_entries_max)

    def _make_room(self, node: NodeId, numbered: Sequence[NodeId]) -> NodeId | None:
        """Of the nodes that have a bit, the oldest that no route leads to; only for a node that one leads to.
        So numbers that somebody invents cannot take the places of nodes that are there."""
        known = {*self.underlay.known_nodes(), self.node}
        leaves = next((other for other in numbered if other not in known), None)
        if node not in known or leaves is None:
            return None
        self.filters.forget(leaves)
        self.events.forget_notified(self.addresses.bit(leaves))
        self.drop(DropReason.STORE_FULL, "subscribe", f"nodes_max: node {leaves} is forgotten")
        return leaves

    # Sending.

    def send(
        self,
        to: NodeId | None,
        message: AnyMessage,
        *,
        own: bool = False,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """To one neighbour, or to all with None. `own`: on behalf of this node's own applications."""
        kind, name, event = label(message)
        frame = Frame(CODEC.encode(message), kind, name, event, own)
        if to is None:
            self.host.broadcast(frame)
        elif to != self.node:

            def failed(failure: SendFailure) -> None:
                if failure is SendFailure.LINK:  # a full queue of our own says nothing about the link
                    self.broken[to] = self.host.now() + micros(self.in_force.link_hold)
                    self.underlay.on_link_failure(to)
                if on_failure is not None:
                    on_failure()

            self.host.unicast(to, frame, failed)

    def send_registers(
        self, to: NodeId | None, registers: list[InterestRegister], *, own: bool = False
    ) -> None:
        """Send registers in frames of up to `RECORDS_BYTES`."""
        batch: list[InterestRegister] = []
        size = 0
        for register in registers:
            octets = _octets_of(register.filter_ids)
            if batch and size + octets > RECORDS_BYTES:
                self.send(to, Records(tuple(batch)), own=own)
                batch, size = [], 0
            batch.append(register)
            size += octets
        if batch:
            self.send(to, Records(tuple(batch)), own=own)

    def flood(self, key: object, make: Callable[[], AnyMessage | None]) -> None:
        """Broadcast after a random delay, so that the receivers of one frame do not all send together.

        A newer frame under the same key replaces the one that waits.
        """
        if not self.underlay.neighbours():
            return  # no neighbours; a later consistency check will spread it
        if self._is_full(self._floods, key, self.options.pending_max):
            return
        if not self._floods:
            delay = int(self.host.random.random() * micros(self.options.jitter))
            self.host.set_timer("flood", self.host.now() + delay)
        self._floods[key] = WaitingFrame(None, make)

    def transfer(self, to: NodeId, key: object, make: Callable[[], AnyMessage | None]) -> None:
        """Send to a neighbour in turn: `TRANSFER_BURST` frames, then a pause."""
        if self._is_full(self._transfers, (to, key), TRANSFERS_MAX):
            return
        if not self._transfers:
            self.host.set_timer("transfer", self.host.now())
        self._transfers[to, key] = WaitingFrame(to, make)

    def on_flood_due(self) -> None:
        waiting, self._floods = self._floods, {}
        for _, make in waiting.values():
            message = make()
            if message is not None:
                self.send(None, message)

    @property
    def is_transferring(self) -> bool:
        return bool(self._transfers)

    def on_transfer_due(self) -> None:
        sent = 0
        while self._transfers and sent < TRANSFER_BURST:
            to, make = self._transfers.pop(next(iter(self._transfers)))
            message = make()
            if message is not None:
                self.send(to, message)
            sent += fragments(len(message.event.payload) if isinstance(message, Memorized) else 0)
        if self._transfers:
            self.host.set_timer("transfer", self.host.now() + SPACING)

    def drop(self, reason: DropReason, message: str, detail: str = "", to: NodeId | None = None) -> None:
        now = self.host.now()
        self.host.trace(Dropped(now, self.node, reason, message, detail=detail, to=to))

    def drop_event(self, event: EventId, reason: DropReason, message: str, detail: str = "") -> None:
        now = self.host.now()
        self.host.trace(
            Dropped(now, self.node, reason, message, event.publisher, event.sequence, detail=detail)
        )

    def _is_full(self, waiting: dict[object, WaitingFrame], key: object, most: int) -> bool:
        if key in waiting or len(waiting) < most:
            return False
        self.drop(DropReason.QUEUE_FULL, "consistency", "too many frames wait for their turn")
        return True


def _octets_of(filter_ids: Sequence[bytes]) -> int:
    """Of a register with these identifiers, at most."""
    return 16 + sum(2 + len(each) for each in filter_ids)


def label(message: AnyMessage) -> tuple[Kind, str, EventId | None]:
    """Kind, name and event under which the trace counts a message."""
    match message:
        case Carry(event=event) | Spread(event=event):
            return Kind.DATA, "event", event.id
        case Memorized(event=event):
            return Kind.DATA, "memorized", event.id
        case InterestChange(stands=stands):
            return Kind.CONTROL, "subscribe" if stands else "unsubscribe", None
        case Check() | Lists() | Request() | Records():
            return Kind.CONTROL, "consistency", None
        case Recap():
            return Kind.CONTROL, "recap", None
    return Kind.CONTROL, "attach", None
