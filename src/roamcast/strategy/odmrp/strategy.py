"""The strategy `odmrp`: what a node does with each message, timer and call.

The parts: `Routes` (the reverse paths to publishers), `ForwardingGroup` (for whom this node relays),
`JoinTables` (what it sends upstream), `Publisher` (its own events), `OwnInterests` and `KnownSummaries`
(who wants what). All of it is soft state: every entry has a deadline, and one timer removes expired entries.
Only the numbers of requests and packets survive a crash, so that a new one is never taken for an old one.
"""

from roamcast.bounded import ExpiringDict
from roamcast.broker.core import Subscription
from roamcast.broker.seen import SeenEvents
from roamcast.errors import WireError
from roamcast.event import Event, EventClass
from roamcast.host import Frame, Kind, TimerName
from roamcast.stable import StableCounter
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.odmrp.mesh import join_tables, publisher
from roamcast.strategy.odmrp.mesh.forwarding_group import ForwardingGroup
from roamcast.strategy.odmrp.mesh.interests import KnownSummaries, OwnInterests, decoded_digest
from roamcast.strategy.odmrp.mesh.join_tables import JoinTables
from roamcast.strategy.odmrp.mesh.messages import (
    CODEC,
    HOLD_MAX,
    DataPacket,
    JoinRequest,
    JoinTable,
    PublisherRow,
    SenderPosition,
)
from roamcast.strategy.odmrp.mesh.prediction import link_lifetime
from roamcast.strategy.odmrp.mesh.publisher import Publisher
from roamcast.strategy.odmrp.mesh.routes import PublisherRoute, Routes
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.overflow import trace_overflow, traced
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.units import MILLISECOND, Micros, NodeId, micros

ROLE = "forwarding"
NUMBERS = "odmrp.number"  # key in stable storage: of Join Requests and data packets
NUMBERS_BLOCK = 1_000  # numbers that one stable write reserves; chosen by us, a crash loses the rest
TIMER_EXPIRE = "expire"
TIMER_INTERESTS = "interests"
HOLD_FACTOR = 10  # hold times that others ask for are cut to so many forwarding timeouts; chosen by us
INTERESTS_DELAY = 100 * MILLISECOND  # subscriptions made together share a message; chosen by us


class Odmrp(Strategy):
    def __init__(self, context: StrategyContext, options: OdmrpOptions) -> None:
        self._host = context.host
        self._broker = context.broker
        self._options = options
        self._plain = options.grouping == "none"
        self._jitter = micros(options.jitter)
        self._summary_options = options.summary
        numbers = StableCounter(context.host.stable, NUMBERS, NUMBERS_BLOCK)
        hold_max = min(HOLD_FACTOR * micros(options.forwarding_timeout), HOLD_MAX)
        too_many_publishers = traced(context.host, "join_request", "publishers_max")
        self.routes = Routes(options.publishers_max, too_many_publishers, hold_max)
        self.forwarding = ForwardingGroup(options.publishers_max, options.members_max)
        too_many_members = traced(context.host, "join_table", "SUMMARIES_MAX")
        self.known = KnownSummaries(self._summary_options, too_many_members)
        self.own = OwnInterests(context.broker, self._summary_options, plain=self._plain)
        self.tables = JoinTables(context.host, self.routes, self.own, self.known, options)
        self.publisher = Publisher(context.host, context.broker, self.known, options, numbers.take)
        # Whose events this node joined for, and until when.
        self.member_table: ExpiringDict[NodeId, Micros] = ExpiringDict(
            options.publishers_max, too_many_publishers, lambda until: until
        )
        self._packets = SeenEvents()
        self._packets_lately = self._packets.lately
        self._pending: dict[TimerName, tuple[DataPacket, Micros]] = {}  # with their time of arrival
        self._booted_at: Micros = context.host.now()
        self._is_forwarding = False
        self._expire_at: Micros | None = None

    # Applications.

    def publish(self, event: Event) -> None:
        self.publisher.publish(event)
        self._watch_deadlines()

    def advertise(self, type: str) -> None:
        """Ask for members before there is an event (section 3.5.1; requires the option `advertisement`)."""
        self.publisher.advertise(type)
        self._watch_deadlines()

    def on_subscribed(self, subscription: Subscription) -> None:
        self._on_interests()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._on_interests()

    # The radio.

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            message = CODEC.decode(payload)
            if type(message) is DataPacket:
                self._on_data(message)
            elif type(message) is JoinRequest:
                self._on_join_request(sender, message)
            elif type(message) is JoinTable:
                self._on_join_table(sender, message)
        except WireError as error:
            now = self._host.now()
            self._host.trace(Dropped(now, self._host.node, DropReason.WIRE, "odmrp", detail=str(error)))

    def on_timer(self, name: TimerName) -> None:
        match name:
            case publisher.TIMER_REQUEST:
                self.publisher.on_request_due()
                self._watch_deadlines()
            case publisher.TIMER_SERVE:
                self.publisher.on_serve()
            case join_tables.TIMER_SEND:
                self.tables.on_send()
            case join_tables.TIMER_REPEAT:
                self.tables.on_repeat()
            case "expire":
                self._expire()
            case "interests":
                self._tell_interests()
            case (publisher.TIMER_ECHO, int() as packet):
                self.publisher.on_no_echo(packet)
            case ("request", int() as source):
                self._relay_request(source)
            case _:
                self._relay_data(name)

    # Join Requests (section 3.5.1).

    def _on_join_request(self, sender: NodeId, request: JoinRequest) -> None:
        node = self._host.node
        if request.publisher == node:
            return
        now = self._host.now()
        known = self.routes.standing(request.publisher, now)
        if known is None or request.sequence > known.sequence:
            for digest in request.digests:
                decoded_digest(digest, self._summary_options)  # raises WireError before any state changes
        route = self.routes.on_request(request, sender, now, self._path_lifetime(request))
        if route is None:
            return
        self._watch_deadlines()
        self._answer(route, now)
        if request.hops + 1 < self._options.hop_limit:
            wait = int(self._host.random.random() * self._jitter)
            self._host.set_timer(("request", request.publisher), now + wait)

    def _relay_request(self, source: NodeId) -> None:
        route = self.routes.standing(source, self._host.now())
        if route is None:
            return
        r = route.request
        place = self._host.position() if r.place is not None else None
        relayed = JoinRequest(
            r.publisher,
            r.sequence,
            r.hops + 1,
            r.hold,
            r.urgent,
            r.everyone,
            r.digests,
            r.types,
            r.destinations,
            r.epoch,
            r.channels,
            route.lifetime,
            None if place is None else SenderPosition(*place),
        )
        self._host.broadcast(Frame(CODEC.encode(relayed), Kind.CONTROL, "join_request", own=False))

    def _path_lifetime(self, request: JoinRequest) -> Micros:
        here = self._host.position() if request.place is not None else None
        if request.place is None or here is None:
            return request.lifetime
        return min(request.lifetime, link_lifetime(request.place, here, self._options.radio_range))

    def _answer(self, route: PublisherRoute, now: Micros) -> None:
        """Join, or stay a member for a timeout after the last announcement that concerned this node."""
        request = route.request
        node = self._host.node
        news = request.urgent or request.publisher not in self.member_table
        if node in request.destinations or self.own.answers(request):
            self.member_table[request.publisher] = route.expires_at
        until = self.member_table.get(request.publisher)
        if until is None:
            return
        if until <= now:
            del self.member_table[request.publisher]
        else:
            self.tables.tell(request.publisher, node, self.own.version, news=news)

    # Join Tables (section 3.5.2).

    def _on_join_table(self, sender: NodeId, table: JoinTable) -> None:
        awaited = self.tables.awaits(sender)
        for row in table.rows:
            if row.next_hop == self._host.node:
                self._on_row(sender, row)
            elif awaited:
                self.tables.on_heard(sender, row.publisher, row.sequence, [e.member for e in row.entries])
        for said in table.acknowledgements:
            self.tables.on_heard(sender, said.publisher, said.sequence, said.members)
        self._watch_deadlines()

    def _on_row(self, sender: NodeId, row: PublisherRow) -> None:
        if row.publisher == self._host.node:
            self._on_own_members(sender, row)
            return
        now = self._host.now()
        route = self.routes.standing(row.publisher, now)
        if route is None:
            return  # no acknowledgement: the sender will try another upstream node
        route.lifetime = min(route.lifetime, row.lifetime)
        for entry in row.entries:
            if entry.member in (self._host.node, row.publisher):
                continue
            if not self.known.learn(entry.member, entry.version, entry.summary, route.expires_at):
                continue
            known = self.forwarding.has(row.publisher, entry.member, entry.version)
            news = route.request.urgent or not known
            if self.forwarding.refresh(row.publisher, entry.member, entry.version, route.expires_at):
                self.tables.tell(row.publisher, entry.member, entry.version, news=news)
            else:
                trace_overflow(self._host, "join_table", "publishers_max or members_max")
        self._note_role(now)

    def _on_own_members(self, sender: NodeId, row: PublisherRow) -> None:
        """The Join Table has arrived at its publisher, this node."""
        until = self.publisher.round_ends()
        if until is None or until <= self._host.now():
            return
        for entry in row.entries:
            if entry.member == self._host.node:
                continue
            if self.known.learn(entry.member, entry.version, entry.summary, until):
                direct = entry.member == sender
                self.publisher.on_member(entry.member, entry.version, row.lifetime, direct=direct)
                self.tables.acknowledge(row.publisher, row.sequence, entry.member)

    def _on_interests(self) -> None:
        self.own.changed = True
        self._host.set_timer(TIMER_INTERESTS, self._host.now() + INTERESTS_DELAY)

    def _tell_interests(self) -> None:
        """Subscriptions changed: publishers with a standing route get a Join Table still in this round."""
        now = self._host.now()
        for source in self.routes.publishers():
            route = self.routes.standing(source, now)
            if route is None:
                continue
            if not self.own.any and self._host.node not in route.request.destinations:
                self.member_table.pop(source, None)  # to leave is to stop answering (section 3.6)
            else:
                self._answer(route, now)

    # Data (section 3.5.3).

    def _on_data(self, data: DataPacket) -> None:
        event = data.event
        key = event.publisher << 64 | data.packet  # `event_key`, written out
        if key in self._packets_lately:
            return
        if event.publisher == self._host.node:
            self.publisher.on_echo(data.packet)
            return
        now = self._host.now()
        if not self._packets.observe(key, now):
            return
        lives_for = event.lifetime - data.age
        if event.event_class is EventClass.MEMORIZED and lives_for <= 0:
            self._broker.drop(event.id, DropReason.EXPIRED, "data")
            return
        if data.digest:
            decoded_digest(data.digest, self._summary_options)  # raises WireError before delivery
        if self._broker.observe((event.publisher, event.sequence), lives_for):
            self._hand_over(data, now)
        if self._forwards(data, now):
            self._relay_later(data, now)

    def _hand_over(self, data: DataPacket, now: Micros) -> None:
        event = data.event
        if event.event_class is EventClass.REALTIME and data.age > now - self._booted_at:
            # Published before this node booted: it may have been delivered before a crash erased the memory
            # of it, and a real-time event is not for nodes that come later.
            self._broker.drop(event.id, DropReason.EXPIRED, "data")
            return
        self._broker.deliver(event, data.hops + 1, data.age)
        if data.digest and self.own.match(data.digest) and not self._broker.wants(event):
            self._broker.drop(event.id, DropReason.FALSE_POSITIVE, "data")

    def _forwards(self, data: DataPacket, now: Micros) -> bool:
        """Whether this node is in the forwarding group and a branch behind it may want the event."""
        event = data.event
        if data.members:
            branches = self.forwarding.branches(event.publisher, now)
            return any(member in data.members for member, _ in branches)
        if self._plain and event.wants_subscribers:
            # In ODMRP the FG flag belongs to the group, not to a source, and plain ODMRP has one group.
            return self._is_forwarding and self.forwarding.stands(now)
        branches = self.forwarding.branches(event.publisher, now)
        if not branches:
            return False
        if event.destinations and any(member in event.destinations for member, _ in branches):
            return True
        if not event.wants_subscribers:
            return False
        route = self.routes.standing(event.publisher, now)
        if route is not None and route.request.epoch == data.epoch:
            bits, channels = route.bits, data.channels
            branches = [branch for branch in branches if bits.get(branch[0], 1) & channels]
        # Otherwise the packet names channels of another epoch, and any branch may belong to them.
        if self._options.relay_filter == "channel" or not data.digest:
            return bool(branches)
        return any(self.known.match(member, version, data.digest) for member, version in branches)

    def _relay_later(self, data: DataPacket, now: Micros) -> None:
        if data.hops + 1 >= self._options.hop_limit:
            self._broker.drop(data.event.id, DropReason.EXPIRED, "data")
        elif len(self._pending) >= self._options.pending_max:
            self._broker.drop(data.event.id, DropReason.QUEUE_FULL, "data")
        else:
            name = ("data", data.event.publisher, data.packet)
            self._pending[name] = (data, now)
            self._host.set_timer(name, now + int(self._host.random.random() * self._jitter))

    def _relay_data(self, name: TimerName) -> None:
        data, arrived = self._pending.pop(name)
        age = data.age + self._host.now() - arrived
        relayed = DataPacket(
            data.packet, data.epoch, data.channels, data.members, data.digest, data.hops + 1, age, data.event
        )
        self._host.broadcast(Frame(CODEC.encode(relayed), Kind.DATA, "data", data.event.id, own=False))

    # Soft state.

    def _watch_deadlines(self) -> None:
        """Set the timer that removes expired entries. It is not moved when deadlines are extended, which most
        are before they are due: it then only looks for the next deadline."""
        if self._expire_at is None:
            self._expire_at = self._next_expiry()
            if self._expire_at is not None:
                self._host.set_timer(TIMER_EXPIRE, self._expire_at)

    def _next_expiry(self) -> Micros | None:
        deadlines = (
            self.routes.next_expiry(),
            self.forwarding.next_expiry(),
            self.known.next_expiry(),
            self.publisher.next_expiry(),
            self.member_table.next_expiry(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _expire(self) -> None:
        now = self._host.now()
        self._expire_at = None
        self.routes.expire(now)
        self.forwarding.expire(now)
        self.known.expire(now)
        self.publisher.expire(now)
        self.member_table.expire(now)
        if not self.routes:
            self.tables.forget_all()
        self._note_role(now)
        self._watch_deadlines()

    def _note_role(self, now: Micros) -> None:
        stands = self.forwarding.stands(now)
        if stands != self._is_forwarding:
            self._is_forwarding = stands
            change = "role_on" if stands else "role_off"
            self._host.trace(OverlayChanged(now, self._host.node, change, role=ROLE))
