"""Devices that offer no broker, and the brokers that serve them (sections 3.5 and 4).

- `ClientPost`: unicast between both, over paths that their own messages leave behind. A search leaves the
  path back to the client at each node that passes it on, and every message on its way leaves the path to its
  origin, as Join Requests do in the mesh. So no routing protocol is needed below; paths are soft state.
- `RemoteClient`: it looks for a broker when its applications want, publish or advertise something. The first
  to answer is taken: it is the nearest in time. The registration is renewed before its lease ends; where that
  gets no answer, or the link layer reports that the first hop is gone, another broker is looked for. What is
  published meanwhile waits: a real-time event for `SETTLE_TIME`, a memorized one as long as it lives.
- `ClientService`: a broker's side. To the mesh its clients' subscriptions are this broker's own: they are
  part of its summary, and it joins for them. Their events are repeated until they confirm them.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from roamcast.broker.core import Broker
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.host import SendFailure
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.kit.protocol import Messenger, Timer, overflow_traced, random_below
from roamcast.kit.relay import Relay
from roamcast.kit.tables import BoundedDict, ExpiringDict
from roamcast.strategy.odmrp.messages import (
    FILTER_BYTES_MAX,
    FILTERS_MAX,
    HOPS_MAX,
    TYPES_MAX,
    AnyMessage,
    BrokerOffer,
    BrokerSearch,
    Carried,
    ClientContent,
    ClientEvent,
    EventReceipt,
    Registered,
    Registration,
)
from roamcast.strategy.odmrp.options import SETTLE_TIME, OdmrpOptions
from roamcast.trace import DropReason
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Times and bounds are chosen by us.
SEARCHES_MAX = 256  # that wait to be passed on
DELIVERY = Backoff(250 * MILLISECOND, attempts=5)  # until a client confirms an event
SEARCH = Backoff(250 * MILLISECOND, longest=4 * SECOND)
REGISTRATION = Backoff(250 * MILLISECOND, attempts=4)
REPEAT_INTERVAL: Micros = 500 * MILLISECOND  # between two attempts to publish
REGISTRATION_BYTES_MAX = 32_768  # of filters; with more, the broker is asked for everything


class ClientPost:
    def __init__(
        self,
        messenger: Messenger[AnyMessage],
        options: OdmrpOptions,
        on_lost: Callable[[NodeId], None],
    ) -> None:
        """`on_lost`: the first hop to this node cannot be reached."""
        host = messenger.host
        self._messenger = messenger
        self._host = host
        self._on_lost = on_lost
        self._options = options
        self._hold = micros(options.forwarding_timeout)
        is_full = overflow_traced(host, "broker_search", "publishers_max")
        self.paths: ExpiringDict[NodeId, tuple[NodeId, Micros]] = ExpiringDict(
            options.publishers_max, is_full, lambda path: path[1]
        )
        # The last search of each client that was heard.
        self.searches: ExpiringDict[NodeId, tuple[int, Micros]] = ExpiringDict(
            options.publishers_max, is_full, lambda search: search[1]
        )
        self._relay: Relay[NodeId, BrokerSearch] = Relay(
            host, send=lambda _, search: messenger.send(search, own=False), most=SEARCHES_MAX
        )

    def search(self, number: int) -> None:
        """Ask for brokers around this node."""
        self._messenger.send(BrokerSearch(self._host.node, number, 0))

    def send(self, to: NodeId, content: ClientContent) -> None:
        self._carry(Carried(self._host.node, to, 0, content), own=True)

    def on_search(self, sender: NodeId, search: BrokerSearch, *, has_room: bool) -> None:
        """Offer this node if it is a broker that has room for one more client; else pass the search on."""
        client = search.client
        if client == self._host.node or self.searches.get(client, (-1, 0))[0] >= search.number:
            return
        self.learn(client, sender)
        self.searches[client] = (search.number, self._host.now() + self._hold)
        if has_room:
            self.send(client, BrokerOffer(search.number))
        elif search.hops + 1 < self._options.client_hops and not self._relay.is_full:
            wait = random_below(self._host, micros(self._options.jitter))
            self._relay.add(client, BrokerSearch(client, search.number, search.hops + 1), wait)

    def on_carried(self, sender: NodeId, carried: Carried) -> ClientContent | None:
        """The content, if it is for this node; otherwise it is passed on."""
        if carried.origin == self._host.node:
            return None
        self.learn(carried.origin, sender)
        content = carried.content
        if carried.target == self._host.node:
            return content
        if carried.hops + 1 >= self._options.hop_limit or carried.target not in self.paths:
            self._messenger.drop(DropReason.NO_ROUTE, content.name, content.event_id)
        else:
            self._carry(Carried(carried.origin, carried.target, carried.hops + 1, content), own=False)
        return None

    def learn(self, origin: NodeId, sender: NodeId) -> None:
        """A message of `origin` came by `sender`: answers can go the same way back."""
        self.paths[origin] = (sender, self._host.now() + self._hold)

    def _carry(self, carried: Carried, *, own: bool) -> None:
        target = carried.target
        next_hop = self.paths[target][0] if target in self.paths else target

        def on_failure(failure: SendFailure) -> None:
            if failure is SendFailure.LINK and self.paths.get(target, (next_hop,))[0] == next_hop:
                self.paths.pop(target, None)
                if own:
                    self._on_lost(target)

        self._messenger.send(carried, next_hop, own=own, like=carried.content, on_failure=on_failure)


class ServedClient(msgspec.Struct, eq=False):
    version: int
    filters: list[Filter]
    types: tuple[str, ...]
    expires_at: Micros

    def wants(self, event: Event) -> bool:
        return event.wants_subscribers and any(wanted.matches(event) for wanted in self.filters)


class UnconfirmedEvent(msgspec.Struct, eq=False):
    """An event that a client has not confirmed yet; `arrived`: when its age was `age`."""

    event: Event
    hops: int
    age: Micros
    arrived: Micros
    repetition: Repetition


class ClientService:
    def __init__(
        self,
        messenger: Messenger[AnyMessage],
        broker: Broker,
        post: ClientPost,
        options: OdmrpOptions,
        on_change: Callable[[], None],
        on_published: Callable[[NodeId, Event, int, Micros], None],
    ) -> None:
        """`on_change`: clients want or advertise something else. `on_published`: a client has published, with
        the hops and the age of its event."""
        self._messenger = messenger
        self._host = messenger.host
        self._broker = broker
        self._post = post
        self._on_change = on_change
        self._on_published = on_published
        self._options = options
        self._clients: ExpiringDict[NodeId, ServedClient] = ExpiringDict(
            options.clients_max, lambda *_: on_change(), lambda client: client.expires_at
        )
        self._sent: dict[tuple[NodeId, EventId], UnconfirmedEvent] = {}

    # Inputs.

    def on_content(self, origin: NodeId, content: ClientContent, hops: int) -> None:
        match content:
            case Registration():
                self._on_registration(origin, content)
            case ClientEvent(before, age, event):
                self._post.send(origin, EventReceipt(event.publisher, event.sequence))
                self._on_published(origin, event, min(before + hops + 1, HOPS_MAX), age)
            case EventReceipt(publisher, sequence):
                sent = self._sent.pop((origin, EventId(publisher, sequence)), None)
                if sent is not None:
                    sent.repetition.end()
            case _:
                pass  # for a client

    def serve(self, event: Event, hops: int, age: Micros, but: NodeId | None = None) -> None:
        """An event is here: send it to the clients that want it, or that it names."""
        for client, served in list(self._clients.items()) if self._clients else ():
            if client not in (but, event.publisher) and (served.wants(event) or client in event.destinations):
                self._send(client, event, hops, age)

    def expire(self, now: Micros) -> None:
        if self._clients.expire(now):
            self._on_change()

    # Questions.

    def next_expiry(self) -> Micros | None:
        return self._clients.next_expiry()

    def has_room_for(self, client: NodeId) -> bool:
        return client in self._clients or not self._clients.is_full

    def filters(self) -> Sequence[Filter]:
        return [wanted for client in sorted(self._clients) for wanted in self._clients[client].filters]

    def types(self) -> set[str]:
        return {type for client in self._clients.values() for type in client.types}

    def wants(self, event: Event) -> bool:
        return any(client.wants(event) for client in self._clients.values())

    def named(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        """The nodes among these that are clients of this broker."""
        return [node for node in nodes if node in self._clients]

    def __len__(self) -> int:
        return len(self._clients) + len(self._sent)

    # Private.

    def _on_registration(self, client: NodeId, registration: Registration) -> None:
        known = self._clients.get(client)
        until = self._host.now() + micros(self._options.forwarding_timeout)
        if registration.filters is None:
            if known is None or known.version != registration.version:
                self._post.send(client, Registered(registration.version, False))
                return
            known.expires_at = until
        elif not self.has_room_for(client):
            self._messenger.overflow("registration", "clients_max")  # no answer: it looks for another broker
            return
        else:
            filters = [Filter.decode(octets) for octets in registration.filters]
            self._clients[client] = ServedClient(registration.version, filters, registration.types, until)
            if known is None or known.filters != filters:
                self._serve_stored(client)
            self._on_change()
        self._post.send(client, Registered(registration.version, True))

    def _serve_stored(self, client: NodeId) -> None:
        now = self._host.now()
        served = self._clients[client]
        for stored in self._broker.store.standing(now):
            event = stored.event
            if event.publisher != client and (served.wants(event) or client in event.destinations):
                self._send(client, event, stored.hops, now - (stored.expires_at - event.lifetime))

    def _send(self, client: NodeId, event: Event, hops: int, age: Micros) -> None:
        key = (client, event.id)
        if key in self._sent:
            return
        if len(self._sent) >= self._options.pending_max:
            self._messenger.overflow("client_event", "pending_max")
            return
        repetition = Repetition(self._host, Timer(self._host, lambda: self._repeat(*key)), DELIVERY)
        self._sent[key] = UnconfirmedEvent(event, hops, age, self._host.now(), repetition)
        repetition.attempt()
        self._post.send(client, ClientEvent(hops, age, event))

    def _repeat(self, client: NodeId, event: EventId) -> None:
        sent = self._sent[client, event]
        if client in self._clients and sent.repetition.attempt():
            age = sent.age + self._host.now() - sent.arrived
            self._post.send(client, ClientEvent(sent.hops, age, sent.event))
        else:
            del self._sent[client, event]
            self._broker.drop(event, DropReason.RETRIES, "client_event")


class RemoteClient:
    def __init__(
        self,
        messenger: Messenger[AnyMessage],
        broker: Broker,
        post: ClientPost,
        wanted: Callable[[], Sequence[Filter]],
        options: OdmrpOptions,
        number: Callable[[], int],
    ) -> None:
        """`number`: a new one each time, after a restart too: brokers take a lower one for an old search."""
        host = messenger.host
        self._host = host
        self._broker = broker
        self._post = post
        self._wanted = wanted
        self._renewal = micros(options.refresh_interval)
        self.home: NodeId | None = None  # this client's broker
        self._searching = False
        self._take_number = number
        self._number = -1  # of the last search
        self._version = 0  # of what is wanted
        self._types: tuple[str, ...] = ()
        self._search = Repetition(host, Timer(host, self._search_again), SEARCH)
        self._registration = Repetition(host, Timer(host, self._register), REGISTRATION)
        self._renew_timer = Timer(host, self._renew)
        self._repeat_timer = Timer(host, self._repeat)
        # What no broker has confirmed yet, with its time.
        self._outbox: BoundedDict[EventId, tuple[Event, Micros]] = BoundedDict(
            options.recent_max, lambda event, _: broker.drop(event, DropReason.STORE_FULL, "client_event")
        )

    # Inputs.

    def publish(self, event: Event) -> None:
        self._outbox[event.id] = (event, self._host.now())
        if self.home is None:
            self._look()
        else:
            self._send(event, self._host.now())
        self._repeat_timer.after(REPEAT_INTERVAL)

    def advertise(self, types: Collection[str]) -> None:
        self._types = tuple(sorted(types))[:TYPES_MAX]
        self.on_interests()

    def on_interests(self) -> None:
        """Subscriptions or advertisements have changed."""
        self._version += 1
        if self.home is None:
            self._look()
        else:
            self._registration.restart()
            self._register()

    def on_content(self, origin: NodeId, content: ClientContent, hops: int) -> None:
        match content:
            case BrokerOffer(number) if self._searching and number == self._number:
                self._on_offer(origin)
            case Registered(version, known) if origin == self.home and version == self._version:
                self._on_registered(known)
            case ClientEvent(before, age, event):
                self._post.send(origin, EventReceipt(event.publisher, event.sequence))
                if self._broker.observe((event.publisher, event.sequence), event.lifetime - age):
                    self._broker.deliver(event, min(before + hops + 1, HOPS_MAX), age)
            case EventReceipt(publisher, sequence):
                self._outbox.pop(EventId(publisher, sequence), None)
            case _:
                pass  # for a broker

    def on_lost(self, target: NodeId) -> None:
        """The first hop to the broker is gone."""
        if target == self.home:
            self._leave()

    # Finding a broker.

    @property
    def _needs_one(self) -> bool:
        return bool(self._outbox or self._types or self._wanted())

    def _look(self) -> None:
        if not self._searching and self._needs_one:
            self._searching = True
            self._search.restart()
            self._search_again()

    def _search_again(self) -> None:
        if not self._needs_one:
            self._searching = False
            return
        self._number = self._take_number()
        self._search.attempt()
        self._post.search(self._number)

    def _on_offer(self, broker: NodeId) -> None:
        self._searching = False
        self._search.end()
        self.home = broker
        self._registration.restart()
        self._register()
        for event, published_at in list(self._outbox.values()):
            self._send(event, published_at)

    def _leave(self) -> None:
        self.home = None
        self._registration.end()
        self._renew_timer.cancel()
        self._look()

    # The registration.

    def _renew(self) -> None:
        self._registration.restart()
        self._register(full=False)

    def _register(self, *, full: bool = True) -> None:
        if self.home is None:
            return
        if not self._registration.attempt():
            self._leave()
            return
        filters = self._filters() if full or self._registration.attempts > 1 else None
        self._post.send(self.home, Registration(self._version, filters, self._types))

    def _on_registered(self, known: bool) -> None:
        if not known:
            self._register()
            return
        self._registration.end()
        if self._wanted() or self._types:
            self._renew_timer.after(self._renewal)

    def _filters(self) -> tuple[bytes, ...]:
        """All that is wanted; where that is too much for a message, everything, and it is sorted out here."""
        filters = tuple(wanted.encode() for wanted in self._wanted())
        fits = len(filters) <= FILTERS_MAX and sum(map(len, filters)) <= REGISTRATION_BYTES_MAX
        if fits and all(len(each) <= FILTER_BYTES_MAX for each in filters):
            return filters
        return (Filter.everything().encode(),)

    # Publications.

    def _repeat(self) -> None:
        now = self._host.now()
        for event, published_at in list(self._outbox.values()):
            memorized = event.event_class is EventClass.MEMORIZED
            if now - published_at > (event.lifetime if memorized else SETTLE_TIME):
                del self._outbox[event.id]
                self._broker.drop(event.id, DropReason.NO_ROUTE, "client_event")
            elif self.home is not None:
                self._send(event, published_at)
        if self._outbox:
            self._repeat_timer.after(REPEAT_INTERVAL)

    def _send(self, event: Event, published_at: Micros) -> None:
        assert self.home is not None
        self._post.send(self.home, ClientEvent(0, self._host.now() - published_at, event))
