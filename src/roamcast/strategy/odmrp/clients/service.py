"""A broker's side of clients without one: their registrations, and their events until they confirm them.

To the mesh their subscriptions are this broker's own: they are part of its summary, and it joins for them.
"""

from collections.abc import Callable, Sequence

from roamcast.broker.core import Broker
from roamcast.event import Event, EventId
from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.kit.protocol import trace_overflow
from roamcast.kit.tables import ExpiringDict
from roamcast.strategy.odmrp.clients.messages import (
    HOPS_MAX,
    BrokerOffer,
    BrokerSearch,
    ClientContent,
    ClientEvent,
    EventReceipt,
    Registered,
    Registration,
)
from roamcast.strategy.odmrp.clients.post import Post
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.trace import DropReason
from roamcast.units import MILLISECOND, Micros, NodeId, micros

DELIVERY = Backoff(250 * MILLISECOND, attempts=5)  # until a client confirms an event; chosen by us
TIMER = "client"


class ServedClient:
    __slots__ = ("expires_at", "filters", "types", "version")

    def __init__(self, version: int, filters: list[Filter], types: tuple[str, ...], until: Micros) -> None:
        self.version = version
        self.filters = filters
        self.types = types
        self.expires_at = until

    def wants(self, event: Event) -> bool:
        return event.wants_subscribers and any(wanted.matches(event) for wanted in self.filters)


class _Sent:
    """An event that a client has not confirmed yet; `arrived`: when its age was `age`."""

    __slots__ = ("age", "arrived", "event", "hops", "repetition")

    def __init__(self, event: Event, hops: int, age: Micros, arrived: Micros, repetition: Repetition) -> None:
        self.event = event
        self.hops = hops
        self.age = age
        self.arrived = arrived
        self.repetition = repetition


class ClientService:
    def __init__(
        self,
        host: Host,
        broker: Broker,
        post: Post,
        options: OdmrpOptions,
        on_change: Callable[[], None],
        on_published: Callable[[NodeId, Event, int, Micros], None],
    ) -> None:
        """`on_change`: clients want or advertise something else. `on_published`: a client has published, with
        the hops and the age of its event."""
        self._host = host
        self._broker = broker
        self._post = post
        self._on_change = on_change
        self._on_published = on_published
        self._hold = micros(options.forwarding_timeout)
        self._clients_max = options.clients_max
        self._pending_max = options.pending_max
        self._clients: ExpiringDict[NodeId, ServedClient] = ExpiringDict(
            options.clients_max, lambda *_: on_change(), lambda client: client.expires_at
        )
        self._sent: dict[tuple[NodeId, EventId], _Sent] = {}

    # Inputs.

    def on_search(self, search: BrokerSearch) -> None:
        """Offer this broker, unless it serves as many clients as it may."""
        if len(self._clients) < self._clients_max:
            self._post.send(search.client, BrokerOffer(search.number))

    def on_content(self, origin: NodeId, content: ClientContent, hops: int) -> None:
        match content:
            case Registration():
                self._on_registration(origin, content)
            case ClientEvent(before, age, event):
                self._post.send(origin, EventReceipt(event.publisher, event.sequence))
                self._on_published(origin, event, min(before + hops + 1, HOPS_MAX), age)
            case EventReceipt(publisher, sequence):
                self._confirm(origin, EventId(publisher, sequence))
            case _:
                pass  # for a client

    def serve(self, event: Event, hops: int, age: Micros, but: NodeId | None = None) -> None:
        """An event is here: send it to the clients that want it, or that it names."""
        for client, served in list(self._clients.items()) if self._clients else ():
            if client not in (but, event.publisher) and (served.wants(event) or client in event.destinations):
                self._send(client, event, hops, age)

    def on_repeat(self, client: NodeId, publisher: NodeId, sequence: int) -> None:
        key = (client, EventId(publisher, sequence))
        sent = self._sent.get(key)
        if sent is None:
            return
        if client in self._clients and sent.repetition.attempt():
            age = sent.age + self._host.now() - sent.arrived
            self._post.send(client, ClientEvent(sent.hops, age, sent.event))
        else:
            del self._sent[key]
            self._broker.drop(sent.event.id, DropReason.RETRIES, "client_event")

    def expire(self, now: Micros) -> None:
        if self._clients.expire(now):
            self._on_change()

    # Questions.

    def next_expiry(self) -> Micros | None:
        return self._clients.next_expiry()

    def filters(self) -> Sequence[Filter]:
        return [wanted for client in sorted(self._clients) for wanted in self._clients[client].filters]

    def types(self) -> set[str]:
        return {type for client in self._clients.values() for type in client.types}

    def wants(self, event: Event) -> bool:
        return any(client.wants(event) for client in self._clients.values())

    def named(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        """Those of the nodes that are clients of this broker."""
        return [node for node in nodes if node in self._clients]

    def __len__(self) -> int:
        return len(self._clients) + len(self._sent)

    # Private.

    def _on_registration(self, client: NodeId, registration: Registration) -> None:
        known = self._clients.get(client)
        until = self._host.now() + self._hold
        if registration.filters is None:
            if known is None or known.version != registration.version:
                self._post.send(client, Registered(registration.version, False))
                return
            known.expires_at = until
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
        if len(self._sent) >= self._pending_max:
            trace_overflow(self._host, "client_event", "pending_max")
            return
        timer = (TIMER, client, event.publisher, event.sequence)
        sent = _Sent(event, hops, age, self._host.now(), Repetition(self._host, timer, DELIVERY))
        self._sent[key] = sent
        sent.repetition.attempt()
        self._post.send(client, ClientEvent(hops, age, event))

    def _confirm(self, client: NodeId, event: EventId) -> None:
        sent = self._sent.pop((client, event), None)
        if sent is not None:
            sent.repetition.end()
