"""The strategy `odmrp`: what a node does with each message, timer and call.

The parts: `Routes` (the reverse paths to publishers), `ForwardingGroup` (for whom this node relays),
`JoinTables` (what it sends upstream), `Publisher` (its own events), a `MeshContext` (what is attached to
packets, and how it is processed), and for clients without a broker `Post`, with `ClientService` on a broker
and `RemoteClient` on a device that is none: that one relays, and joins no mesh.

All of it is soft state: every entry has a deadline, and one timer removes expired entries. Only the numbers
of requests and packets survive a crash, so that a new one is never taken for an old one.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from roamcast.broker.core import Subscription
from roamcast.broker.seen import PUBLISHER, EventKey, SeenEvents
from roamcast.errors import WireError
from roamcast.event import Event, EventClass
from roamcast.filter import Filter
from roamcast.host import Frame, Kind, TimerName
from roamcast.kit.numbers import StableCounter
from roamcast.kit.protocol import overflow_traced, trace_overflow
from roamcast.kit.tables import ExpiringDict
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.odmrp.clients import client, post, service
from roamcast.strategy.odmrp.clients.client import RemoteClient
from roamcast.strategy.odmrp.clients.messages import BrokerSearch, Carried
from roamcast.strategy.odmrp.clients.post import Post
from roamcast.strategy.odmrp.clients.service import ClientService
from roamcast.strategy.odmrp.context import MeshContext, PlainContext, SubscriptionContext
from roamcast.strategy.odmrp.mesh import join_tables, publisher
from roamcast.strategy.odmrp.mesh.forwarding_group import Branch, ForwardingGroup
from roamcast.strategy.odmrp.mesh.interests import NO_SUBSCRIPTIONS
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
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.units import MILLISECOND, Micros, NodeId, micros

ROLE = "forwarding"
NUMBERS = "odmrp.number"  # key in stable storage: of Join Requests and data packets
NUMBERS_BLOCK = 1_000  # numbers that one stable write reserves; chosen by us, a crash loses the rest
TIMER_EXPIRE = "expire"
TIMER_INTERESTS = "interests"
HOLD_FACTOR = 10  # hold times that others ask for are cut to so many forwarding timeouts; chosen by us
INTERESTS_DELAY = 100 * MILLISECOND  # subscriptions made together share a message; chosen by us
MEMBER = attrgetter("member")


class Odmrp(Strategy):
    def __init__(self, context: StrategyContext, options: OdmrpOptions) -> None:
        self._host = context.host
        self._broker = context.broker
        self._options = options
        self._jitter = micros(options.jitter)
        numbers = StableCounter(context.host.stable, NUMBERS, NUMBERS_BLOCK)
        hold_max = min(HOLD_FACTOR * micros(options.forwarding_timeout), HOLD_MAX)
        too_many_publishers = overflow_traced(context.host, "join_request", "publishers_max")
        self.routes = Routes(options.publishers_max, too_many_publishers, hold_max)
        self.forwarding = ForwardingGroup(options.publishers_max, options.members_max)
        self._advertised: frozenset[str] = frozenset()  # by applications of this node
        self.post = Post(context.host, options, context.is_broker, self._on_unreachable)
        self.client: RemoteClient | None = None
        self.service: ClientService | None = None
        if context.is_broker:
            self.service = ClientService(
                context.host, context.broker, self.post, options, self._on_clients, self._on_client_event
            )
        else:
            self.client = RemoteClient(
                context.host, context.broker, self.post, self._local_filters, options, numbers.take
            )
        self.context: MeshContext
        if options.grouping == "none":
            self.context = PlainContext(self._filters)
        else:
            too_many_members = overflow_traced(context.host, "join_table", "SUMMARIES_MAX")
            self.context = SubscriptionContext(
                context.host.node, self._filters, options, context.host.random, too_many_members
            )
        self.tables = JoinTables(context.host, self.routes, self.context, options)
        self.publisher = Publisher(context.host, context.broker, self.context, options, numbers.take)
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
        if self.service is not None:
            self.publisher.publish(event)
            self.service.serve(event, 0, 0)
        elif self.client is not None:
            self.client.publish(event)
        self._watch_deadlines()

    def advertise(self, types: Collection[str]) -> None:
        """Ask for members before there is an event (section 3.5.1)."""
        self._advertised = frozenset(types)
        if self.client is not None:
            self.client.advertise(self._advertised)
        else:
            self._advertise()
        self._watch_deadlines()

    def _advertise(self) -> None:
        assert self.service is not None
        self.publisher.advertise(self._advertised | self.service.types())

    def on_subscribed(self, subscription: Subscription) -> None:
        self.context.on_interests(added=subscription.filter)
        self._tell_interests_soon()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self.context.on_interests(removed=subscription.filter)
        self._tell_interests_soon()

    # The radio.

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            message = CODEC.decode(payload)
            if type(message) is DataPacket:
                key = message.source * PUBLISHER + message.packet  # `event_key`, written out
                if key not in self._packets_lately:  # most are copies of what was here
                    self._on_data(message, key)
            elif type(message) is JoinTable:
                self._on_join_table(sender, message)
            elif type(message) is JoinRequest:
                self._on_join_request(sender, message)
            elif type(message) is Carried:
                self._on_carried(sender, message)
            elif type(message) is BrokerSearch:
                self._on_search(sender, message)
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
            case (post.TIMER_SEARCH, int() as searcher):
                self.post.on_relay(searcher)
            case (service.TIMER, int() as served, int() as source, int() as sequence):
                if self.service is not None:
                    self.service.on_repeat(served, source, sequence)
            case client.TIMER_SEARCH | client.TIMER_REGISTER | client.TIMER_RENEW | client.TIMER_REPEAT:
                if self.client is not None:
                    self.client.on_timer(name)
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
        if known is not None and request.sequence <= known.sequence:
            known.on_copy(request, sender)
            return
        for digest in request.digests:
            self.context.check(digest)  # raises WireError before any state changes
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
        if self.service is None:
            return  # the broker of a client joins for it
        for named in self.service.named(request.destinations):
            self.tables.tell(request.publisher, named, NO_SUBSCRIPTIONS, news=news)
        if node in request.destinations or self.context.answers(request):
            self.member_table[request.publisher] = route.expires_at
        until = self.member_table.get(request.publisher)
        if until is None:
            return
        if until <= now:
            del self.member_table[request.publisher]
        else:
            self.tables.tell(request.publisher, node, self.context.version, news=news)

    # Join Tables (section 3.5.2).

    def _on_join_table(self, sender: NodeId, table: JoinTable) -> None:
        node = self._host.node
        for row in table.rows:
            if row.next_hop == node:
                self._on_row(sender, row)
        if self.tables.awaits(sender):  # most tables are overheard, and say nothing that this node waits for
            for row in table.rows:
                if row.next_hop != node:
                    self.tables.on_heard(sender, row.publisher, row.sequence, map(MEMBER, row.entries))
            for said in table.acknowledgements:
                self.tables.on_heard(sender, said.publisher, said.sequence, said.members)
        if self._expire_at is None:
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
            if not self.context.learn(entry.member, entry.version, entry.summary, route.expires_at):
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
            if self.context.learn(entry.member, entry.version, entry.summary, until):
                direct = entry.member == sender
                self.publisher.on_member(entry.member, entry.version, row.lifetime, direct=direct)
                self.tables.acknowledge(row.publisher, row.sequence, entry.member)

    def _tell_interests_soon(self) -> None:
        self._host.set_timer(TIMER_INTERESTS, self._host.now() + INTERESTS_DELAY)

    def _tell_interests(self) -> None:
        """Subscriptions changed: publishers with a standing route get a Join Table still in this round."""
        if self.client is not None:
            self.client.on_interests()
            return
        now = self._host.now()
        wanted = self._filters()
        for source in self.routes.publishers():
            route = self.routes.standing(source, now)
            if route is None:
                continue
            if not wanted and self._host.node not in route.request.destinations:
                self.member_table.pop(source, None)  # to leave is to stop answering (section 3.6)
            else:
                self._answer(route, now)

    # Data (section 3.5.3).

    def _on_data(self, data: DataPacket, key: EventKey) -> None:
        event = data.event
        if data.source == self._host.node:
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
            self.context.check(data.digest)  # raises WireError before delivery
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
        if self.service is None:
            return  # overheard: this node's broker decides what it gets, and may send it again
        self.service.serve(event, data.hops + 1, data.age)
        if self.context.claims(data.digest) and not (self._broker.wants(event) or self.service.wants(event)):
            self._broker.drop(event.id, DropReason.FALSE_POSITIVE, "data")

    def _forwards(self, data: DataPacket, now: Micros) -> bool:
        """Whether this node is in the forwarding group and a branch behind it may want the event."""
        event = data.event
        branches = self.forwarding.branches(data.source)
        if data.members:
            return _names_any(branches, data.members, now)
        if self.context.asks_everyone and event.wants_subscribers:
            # In ODMRP the FG flag belongs to the group, not to a source, and plain ODMRP has one group.
            return self._is_forwarding and self.forwarding.stands(now)
        if not branches:
            return False
        if event.destinations and _names_any(branches, event.destinations, now):
            return True
        if not event.wants_subscribers:
            return False
        route = self.routes.standing(data.source, now)
        # Where the packet names channels of another epoch, any branch may belong to them.
        bits = route.bits if route is not None and route.request.epoch == data.epoch else None
        by_channel = self._options.relay_filter == "channel" or not data.digest
        for member, branch in branches.items():  # a loop: the first that wants the event is enough
            if (
                now < branch.expires_at
                and (bits is None or bits.get(member, 1) & data.channels)
                and (by_channel or self.context.wants(member, branch.version, data.digest))
            ):
                return True
        return False

    def _relay_later(self, data: DataPacket, now: Micros) -> None:
        if data.hops + 1 >= self._options.hop_limit:
            self._broker.drop(data.event.id, DropReason.EXPIRED, "data")
        elif len(self._pending) >= self._options.pending_max:
            self._broker.drop(data.event.id, DropReason.QUEUE_FULL, "data")
        else:
            name = ("data", data.source, data.packet)
            self._pending[name] = (data, now)
            self._host.set_timer(name, now + int(self._host.random.random() * self._jitter))

    def _relay_data(self, name: TimerName) -> None:
        data, arrived = self._pending.pop(name)
        age = data.age + self._host.now() - arrived
        relayed = DataPacket(
            data.source,
            data.packet,
            data.epoch,
            data.channels,
            data.members,
            data.digest,
            data.hops + 1,
            age,
            data.event,
        )
        self._host.broadcast(Frame(CODEC.encode(relayed), Kind.DATA, "data", data.event.id, own=False))

    # Clients without a broker (sections 3.5 and 4).

    def _on_search(self, sender: NodeId, search: BrokerSearch) -> None:
        if self.post.on_search(sender, search) and self.service is not None:
            self.service.on_search(search)
        self._watch_deadlines()

    def _on_carried(self, sender: NodeId, carried: Carried) -> None:
        content = self.post.on_carried(sender, carried)
        if content is not None and self.service is not None:
            self.service.on_content(carried.origin, content, carried.hops)
        elif content is not None and self.client is not None:
            self.client.on_content(carried.origin, content, carried.hops)
        self._watch_deadlines()

    def _on_unreachable(self, target: NodeId) -> None:
        if self.client is not None:
            self.client.on_lost(target)

    def _on_clients(self) -> None:
        """Clients of this broker want or advertise something else."""
        self.context.on_interests()
        self._tell_interests_soon()
        self._advertise()

    def _on_client_event(self, origin: NodeId, event: Event, hops: int, age: Micros) -> None:
        """A client has published through this broker; or again, because it had no receipt."""
        assert self.service is not None
        if not self._broker.observe((event.publisher, event.sequence), event.lifetime - age):
            return
        self._broker.deliver(event, hops, age)
        self.service.serve(event, hops, age, but=origin)
        self.publisher.publish(event, age)

    def _filters(self) -> Sequence[Filter]:
        """What this node wants of the mesh: what its applications want, and its clients."""
        if self.service is None:
            return ()
        return [*self._local_filters(), *self.service.filters()]

    def _local_filters(self) -> Sequence[Filter]:
        return [subscription.filter for subscription in self._broker.subscriptions()]

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
            self.context.next_expiry(),
            self.publisher.next_expiry(),
            self.member_table.next_expiry(),
            self.post.next_expiry(),
            None if self.service is None else self.service.next_expiry(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _expire(self) -> None:
        now = self._host.now()
        self._expire_at = None
        self.routes.expire(now)
        self.forwarding.expire(now)
        self.context.expire(now)
        self.publisher.expire(now)
        self.member_table.expire(now)
        self.post.expire(now)
        if self.service is not None:
            self.service.expire(now)
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


def _names_any(branches: Mapping[NodeId, Branch], named: Sequence[NodeId], now: Micros) -> bool:
    return any(now < branches[member].expires_at for member in named if member in branches)
