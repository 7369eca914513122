"""The strategy `odmrp`: what a node does with each message and call.

The parts: `Routes` (the reverse paths to publishers) and `ForwardingGroup` (for whom this node relays),
`JoinTables` (what it sends upstream), `Publisher` (its own events), a `MeshContext` (what is attached to
packets, and how it is processed), and for clients without a broker `ClientPost`, with `ClientService` on a
broker and `RemoteClient` on a device that is no broker. Such a device relays, but joins no mesh.

All of it is soft state: every entry has a deadline, and one timer removes expired entries. Only the numbers
of requests, packets and epochs survive a crash, so that a new one is never taken for an old one.
"""

from collections.abc import Collection, Sequence

import msgspec

from roamcast.broker.core import Subscription
from roamcast.broker.seen import PUBLISHER, EventKey, SeenEvents
from roamcast.errors import WireError
from roamcast.event import Event, EventClass
from roamcast.filter import Filter
from roamcast.kit.numbers import StableCounter
from roamcast.kit.protocol import MessageLayer, Timer, overflow_traced, random_below
from roamcast.kit.relay import Relay
from roamcast.kit.soft_state import SoftState
from roamcast.kit.tables import ExpiringDict
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.odmrp.clients import ClientPost, ClientService, RemoteClient
from roamcast.strategy.odmrp.context import NO_SUBSCRIPTIONS, MeshContext, SubscriptionContext
from roamcast.strategy.odmrp.join_tables import JoinTables
from roamcast.strategy.odmrp.messages import (
    CODEC,
    HOLD_MAX,
    HOPS_MAX,
    BrokerSearch,
    Carried,
    DataPacket,
    HandedEvent,
    HeldEvents,
    HeldGroup,
    JoinRequest,
    JoinTable,
    LackedEvents,
    PublisherRow,
    SenderPosition,
)
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.publisher import Publisher
from roamcast.strategy.odmrp.repair import MeshRepair
from roamcast.strategy.odmrp.routes import ForwardingGroup, PublisherRoute, Routes, link_lifetime
from roamcast.trace import DropReason, OverlayChanged
from roamcast.units import MILLISECOND, Micros, NodeId, micros

ROLE = "forwarding"
NUMBERS = "odmrp.number"  # key in stable storage: of Join Requests and data packets
NUMBERS_BLOCK = 1_000  # numbers that one stable write reserves; chosen by us, a crash loses the rest
EPOCHS = "odmrp.epoch"  # the same, of announcements of the channels
EPOCHS_BLOCK = 100  # likewise
HOLD_FACTOR = 10  # hold times that others ask for are cut to so many forwarding timeouts; chosen by us
REQUESTS_MAX = 10_000  # that wait for their jitter to end; chosen by us
INTERESTS_DELAY = 100 * MILLISECOND  # subscriptions made together share a message; chosen by us


class Odmrp(MessageLayer, Strategy):
    def __init__(self, context: StrategyContext, options: OdmrpOptions) -> None:
        host, broker = context.host, context.broker
        super().__init__(host, CODEC)
        self._broker = broker
        self._options = options
        self._jitter = micros(options.jitter)
        numbers = StableCounter(host.stable, NUMBERS, NUMBERS_BLOCK)
        hold_max = min(HOLD_FACTOR * micros(options.forwarding_timeout), HOLD_MAX)
        too_many_publishers = overflow_traced(host, "join_request", "publishers_max")
        self.routes = Routes(options.publishers_max, too_many_publishers, hold_max)
        self.forwarding = ForwardingGroup(options.publishers_max, options.members_max)
        self._advertised: frozenset[str] = frozenset()  # by applications of this node
        self.post = ClientPost(self.messenger, options, self._on_unreachable)
        self.client: RemoteClient | None = None
        self.service: ClientService | None = None
        if context.is_broker:
            self.service = ClientService(
                self.messenger, broker, self.post, options, self._on_clients, self._on_client_event
            )
        else:
            self.client = RemoteClient(
                self.messenger, broker, self.post, self._local_filters, options, numbers.take
            )
        if options.grouping == "none":
            self.context = MeshContext(self._filters)
        else:
            too_many_members = overflow_traced(host, "join_table", "SUMMARIES_MAX")
            epochs = StableCounter(host.stable, EPOCHS, EPOCHS_BLOCK)
            self.context = SubscriptionContext(
                host.node, self._filters, options, host.random, epochs.take, too_many_members
            )
        self.tables = JoinTables(self.messenger, self.routes, self.context, options)
        self._soft_state = SoftState(host, self._on_expired)
        self._soft_state.add(self.routes, self.forwarding, self.context)
        self.repair = MeshRepair(
            self.messenger,
            broker,
            self.context,
            self.post,
            options,
            self._concerns,
            carries=options.carry and context.is_broker,
        )
        self.publisher = Publisher(
            self.messenger, broker, self.context, options, numbers.take, self._soft_state, self.repair
        )
        # Whose events this node joined for, and until when.
        self.member_table: ExpiringDict[NodeId, Micros] = ExpiringDict(
            options.publishers_max, too_many_publishers, lambda until: until
        )
        self._soft_state.add(self.member_table, self.tables.known, self.post.paths, self.post.searches)
        self._soft_state.add(self.repair.told)
        if self.service is not None:
            self._soft_state.add(self.service)
        self._packets = SeenEvents()
        self._packets_lately = self._packets.lately
        self._requests: Relay[NodeId, None] = Relay(host, send=self._relay_request, most=REQUESTS_MAX)
        # With their time of arrival.
        self._data: Relay[EventKey, tuple[DataPacket, Micros]] = Relay(
            host, send=self._relay_data, most=options.pending_max
        )
        self._interests_timer = Timer(host, self._tell_interests)
        self._is_forwarding = False
        self.handlers = {
            JoinTable: self._on_join_table,
            JoinRequest: self._on_join_request,
            Carried: self._on_carried,
            BrokerSearch: self._on_search,
            HeldEvents: self._on_held,
        }

    def on_start(self) -> None:
        if self.service is not None:
            self.publisher.watch_store()  # what was memorized before a restart

    # Applications.

    def publish(self, event: Event) -> None:
        if self.service is not None:
            self.repair.on_event(event, 0, 0, self.context.digest(event), is_own=True)
            self.publisher.publish(event)
            self.service.serve(event, 0, 0)
        elif self.client is not None:
            self.client.publish(event)
        self._soft_state.watch()

    def advertise(self, types: Collection[str]) -> None:
        """Ask for members before there is an event (section 3.5.1)."""
        self._advertised = frozenset(types)
        if self.client is not None:
            self.client.advertise(self._advertised)
        else:
            self._advertise()
        self._soft_state.watch()

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
        self.repair.on_heard(sender)
        try:
            message = self._decode(payload)
            if type(message) is DataPacket:
                key = message.source * PUBLISHER + message.packet  # `event_key`, written out
                if key not in self._packets_lately:  # most are copies of what was here
                    self._on_data(message, key)
            else:
                self.handlers[type(message)](sender, message)
        except WireError as error:  # of the frame, or of what is attached: summaries, digests, filters
            self.messenger.drop(DropReason.WIRE, "odmrp", detail=str(error))

    # Join Requests (section 3.5.1).

    def _on_join_request(self, sender: NodeId, request: JoinRequest) -> None:
        node = self.host.node
        if request.publisher == node:
            return
        now = self.host.now()
        known = self.routes.standing(request.publisher, now)
        if known is not None and request.sequence <= known.request.sequence:
            known.on_copy(request, sender)
            return
        held = (group.digest for group in request.held if group.digest)
        for digest in (*request.digests, *request.advertisements, *held):
            self.context.check(digest)  # raises WireError before any state changes
        route = self.routes.on_request(request, sender, now, self._path_lifetime(request))
        if request.held:
            self.repair.on_named(sender, request)
        self._soft_state.watch()
        self._answer(route, now)
        if request.hops + 1 < self._options.hop_limit:
            self._requests.cancel(request.publisher)  # of the round before
            if not self._requests.add(request.publisher, None, random_below(self.host, self._jitter)):
                self.messenger.overflow("join_request", "REQUESTS_MAX")

    def _relay_request(self, publisher: NodeId, _: None) -> None:
        route = self.routes.standing(publisher, self.host.now())
        if route is None:
            return
        request = route.request
        place = self.host.position() if request.place is not None else None
        relayed = msgspec.structs.replace(
            request,
            hops=request.hops + 1,
            lifetime=route.lifetime,
            place=None if place is None else SenderPosition(*place),
        )
        self.messenger.send(relayed, own=False)

    def _path_lifetime(self, request: JoinRequest) -> Micros:
        here = self.host.position() if request.place is not None else None
        if request.place is None or here is None:
            return request.lifetime
        return min(request.lifetime, link_lifetime(request.place, here, self._options.radio_range))

    def _answer(self, route: PublisherRoute, now: Micros, *, changed: bool = False) -> None:
        """Join, or stay a member for a timeout after the last announcement that concerned this node."""
        request = route.request
        node = self.host.node
        news = changed or request.urgent or request.publisher not in self.member_table
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
        node = self.host.node
        for row in table.rows:
            if row.next_hop == node:
                self._on_row(sender, row)
        self.tables.on_table(sender, table)
        if not self._soft_state.is_watched:
            self._soft_state.watch()

    def _on_row(self, sender: NodeId, row: PublisherRow) -> None:
        if row.publisher == self.host.node:
            self._on_own_members(sender, row)
            return
        now = self.host.now()
        route = self.routes.standing(row.publisher, now)
        if route is None:
            return  # no acknowledgement: the sender will try another upstream node
        route.lifetime = min(route.lifetime, row.lifetime)
        for entry in row.entries:
            if entry.member in (self.host.node, row.publisher):
                continue
            if not self.context.learn(entry.member, entry.version, entry.summary, route.expires_at):
                continue
            known = self.forwarding.has(row.publisher, entry.member, entry.version)
            news = route.request.urgent or not known
            if self.forwarding.refresh(row.publisher, entry.member, entry.version, route.expires_at):
                self.tables.tell(row.publisher, entry.member, entry.version, news=news)
            else:
                self.messenger.overflow("join_table", "publishers_max or members_max")
        self._note_role(now)

    def _on_own_members(self, sender: NodeId, row: PublisherRow) -> None:
        """The Join Table has arrived at its publisher, this node."""
        until = self.publisher.round_ends
        if until is None or until <= self.host.now():
            return
        for entry in row.entries:
            if entry.member == self.host.node:
                continue
            if self.context.learn(entry.member, entry.version, entry.summary, until):
                direct = entry.member == sender
                self.publisher.on_member(entry.member, entry.version, row.lifetime, direct=direct)
                self.tables.acknowledge(row.publisher, row.sequence, entry.member)

    def _tell_interests_soon(self) -> None:
        self._interests_timer.after(INTERESTS_DELAY)

    def _tell_interests(self) -> None:
        """Subscriptions changed: publishers with a standing route get a Join Table still in this round."""
        if self.client is not None:
            self.client.on_interests()
            return
        now = self.host.now()
        wanted = self._filters()
        for source in sorted(self.routes):
            route = self.routes.standing(source, now)
            if route is None:
                continue
            if not wanted and self.host.node not in route.request.destinations:
                self.member_table.pop(source, None)  # to leave is to stop answering (section 3.6)
            else:
                self._answer(route, now, changed=True)

    # Data (section 3.5.3).

    def _on_data(self, data: DataPacket, key: EventKey) -> None:
        event = data.event
        if data.source == self.host.node:
            self.publisher.on_echo(data.packet)
            return
        now = self.host.now()
        if not self._packets.observe(key, now):
            return
        lives_for = event.lifetime - data.age
        if event.event_class is EventClass.MEMORIZED and lives_for <= 0:
            self._broker.drop(event.id, DropReason.EXPIRED, "data")
            return
        if data.digest:
            self.context.check(data.digest)  # raises WireError before delivery
        if self._broker.observe((event.publisher, event.sequence), lives_for):
            self._hand_over(event, data.hops + 1, data.age, data.digest)
        if self._forwards(data, now):
            self._relay_later(data, key, now)

    def _hand_over(self, event: Event, hops: int, age: Micros, digest: bytes) -> None:
        """The first copy of an event."""
        if event.event_class is EventClass.REALTIME and not self._broker.lived_through(age):
            # Published before this node booted: it may have been delivered before a crash erased the memory
            # of it, and a real-time event is not for nodes that come later.
            self._broker.drop(event.id, DropReason.EXPIRED, "data")
            return
        self._broker.deliver(event, hops, age)
        self.repair.on_event(event, hops, age, digest)
        self._soft_state.watch()
        if self.service is None:
            return  # overheard: this node's broker decides what it gets, and may send it again
        self.service.serve(event, hops, age)
        self.publisher.watch_store()
        if self.context.claims(digest) and not (self._broker.wants(event) or self.service.wants(event)):
            self._broker.drop(event.id, DropReason.FALSE_POSITIVE, "data")

    def _forwards(self, data: DataPacket, now: Micros) -> bool:
        """Whether this node is in the forwarding group and a branch behind it may want the event."""
        event = data.event
        branches = self.forwarding.branches(data.source)
        if data.members:
            return self.forwarding.names_any(data.source, data.members, now)
        if self.context.asks_everyone and event.wants_subscribers:
            # In ODMRP the FG flag belongs to the group, not to a source, and plain ODMRP has one group.
            return self._is_forwarding and self.forwarding.stands(now)
        if not branches:
            return False
        if event.destinations and self.forwarding.names_any(data.source, event.destinations, now):
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

    def _relay_later(self, data: DataPacket, key: EventKey, now: Micros) -> None:
        if data.hops + 1 >= self._options.hop_limit:
            self._broker.drop(data.event.id, DropReason.EXPIRED, "data")
        elif self._data.is_full:
            self._broker.drop(data.event.id, DropReason.QUEUE_FULL, "data")
        else:
            self._data.add(key, (data, now), random_below(self.host, self._jitter))

    def _relay_data(self, _: EventKey, waiting: tuple[DataPacket, Micros]) -> None:
        data, arrived = waiting
        age = data.age + self.host.now() - arrived
        self.messenger.send(msgspec.structs.replace(data, hops=data.hops + 1, age=age), own=False)
        self.repair.tell(data.event, data.digest)

    # Clients without a broker (sections 3.5 and 4).

    def _on_search(self, sender: NodeId, search: BrokerSearch) -> None:
        has_room = self.service is not None and self.service.has_room_for(search.client)
        self.post.on_search(sender, search, has_room=has_room)
        self._soft_state.watch()

    def _on_carried(self, sender: NodeId, carried: Carried) -> None:
        origin, content = carried.origin, carried.content
        if type(content) is LackedEvents and origin != self.host.node:
            self.post.learn(origin, sender)
            rest = self.repair.on_want(origin, content)
            if rest is None:
                return
            carried = msgspec.structs.replace(carried, content=rest)
        elif type(content) is HandedEvent:  # who passes it on has it, too
            self._on_handed(carried, content)
        for_us = self.post.on_carried(sender, carried)
        if for_us is not None and type(for_us) is not HandedEvent:
            if self.service is not None:
                self.service.on_content(origin, for_us, carried.hops)
            elif self.client is not None:
                self.client.on_content(origin, for_us, carried.hops)
        self._soft_state.watch()

    def _on_handed(self, carried: Carried, handed: HandedEvent) -> None:
        event, hops = handed.event, min(handed.hops + carried.hops + 1, HOPS_MAX)
        self.repair.on_handed(carried.origin, event.id)
        lives_for = event.lifetime - handed.age
        if event.lifetime and lives_for <= 0:
            self._broker.drop(event.id, DropReason.EXPIRED, "handed")
        elif self._broker.observe((event.publisher, event.sequence), lives_for):
            digest = self.context.digest(event)
            self._hand_over(event, hops, handed.age, digest)
            self.repair.tell(event, digest)

    def _concerns(self, publisher: NodeId, group: HeldGroup) -> bool:
        """Whether this node wants events, for its applications, its clients or the members behind it."""
        digest, named = group.digest, group.destinations
        if self.service is not None and (self.host.node in named or self.service.named(named)):
            return True
        if digest is not None and self.context.concerns(digest):
            return True
        now = self.host.now()
        if named and self.forwarding.names_any(publisher, named, now):
            return True
        return digest is not None and any(
            now < branch.expires_at and self.context.wants(member, branch.version, digest)
            for member, branch in self.forwarding.branches(publisher).items()
        )

    def _on_held(self, sender: NodeId, held: HeldEvents) -> None:
        self.repair.on_held(sender, held)
        self._soft_state.watch()

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
        self.repair.on_event(event, hops, age, self.context.digest(event), is_own=True)
        self.service.serve(event, hops, age, but=origin)
        self.publisher.publish(event, age)

    def _filters(self) -> Sequence[Filter]:
        """What this node wants of the mesh: what its applications want, and its clients."""
        if self.service is None:
            return ()
        return [*self._local_filters(), *self.service.filters()]

    def _local_filters(self) -> Sequence[Filter]:
        return [subscription.filter for subscription in self._broker.subscriptions()]

    def _on_expired(self, now: Micros) -> None:
        if not self.routes:
            self.tables.forget_all()
        self._note_role(now)

    def _note_role(self, now: Micros) -> None:
        stands = self.forwarding.stands(now)
        if stands != self._is_forwarding:
            self._is_forwarding = stands
            change = "role_on" if stands else "role_off"
            self.host.trace(OverlayChanged(now, self.host.node, change, role=ROLE))
