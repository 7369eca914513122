"""Clients come home to this broker, and every broker is told where they are and what they want.

Any broker may be a producer's home, so each has the whole table (`consumers.py`). It is soft state: a home
renews the registrations of its clients with all who were told, and who is not renewed is forgotten. A version
says which of two registrations is the newer; a handoff (`handoff.py`) makes the next one.

News of a consumer may set events free that waited for it (`strays.py`, `backlog.py`); they go on from here.
"""

from collections.abc import Callable

from roamcast.event import EventId
from roamcast.host import Host
from roamcast.strategy.opportunistic.backlog import Backlog
from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.clients import CLIENTS_MAX, Arrival, Client
from roamcast.strategy.opportunistic.consumers import first_version
from roamcast.strategy.opportunistic.dispatch import CONSUMERS_PER_LETTER, Dispatch, undelivered
from roamcast.strategy.opportunistic.messages import (
    Attach,
    Deliver,
    Here,
    Interest,
    Introduced,
    Missing,
    NewHome,
    NotHome,
    Register,
    Renew,
    Salvaged,
    Skip,
    Want,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.post import Post
from roamcast.units import SECOND, Micros, NodeId, micros

INTRODUCED_MAX = 1_000
INTRODUCED_CONSUMERS_MAX = 3_000  # so many names fit into one letter
RENEWALS_PER_LIFETIME = 3
SERVE_AFTER: Micros = 2 * SECOND  # in the beginning, when we hear of one consumer after the other

TO_A_CLIENT = (Deliver, Skip, NewHome, NotHome)

RegistrationLetter = Attach | Want | Here | Register | Renew | Missing


class Registrations:
    """Timers are `"renew"` and `"serve"`."""

    def __init__(
        self,
        host: Host,
        options: OpportunisticOptions,
        post: Post,
        manager: BrokerManager,
        dispatch: Dispatch,
        backlog: Backlog,
    ) -> None:
        self._host = host
        self._options = options
        self._post = post
        self._manager = manager
        self._dispatch = dispatch
        self._backlog = backlog
        self._clients = dispatch.clients
        self._consumers = dispatch.consumers
        self._introduced: dict[NodeId, Micros] = {}  # brokers that no path may lead to yet, and until when
        self._to_serve: dict[NodeId, tuple[Interest, ...]] = {}  # consumers that we know of only now
        self.moved_away: dict[NodeId, Micros] = {}  # clients handed off lately: they will hear where they are
        # The handoff's say, set by `Handoffs`: it hears of newer registrations, knows whose next home tells
        # the others, and gives back what it moved away in vain.
        self.on_superseded: Callable[[NodeId, int], None] = lambda consumer, version: None
        self.is_switching: Callable[[NodeId], bool] = lambda consumer: False
        self.on_return: Callable[[NodeId], Client | None] = lambda consumer: None

    # Inputs.

    def on_start(self) -> None:
        # Brokers that start together do not renew together.
        first = int(self._renewal_period() * (0.3 + 0.7 * self._host.random.random()))
        self._host.set_timer("renew", self._host.now() + first)

    def on_renew(self) -> None:
        """Soft state: say to all who were told that our clients are still here, and forget the silent."""
        now = self._host.now()
        self._host.set_timer("renew", now + self._renewal_period())
        self._consumers.forget_silent(now - micros(self._options.registration_lifetime), self._clients)
        for node in [node for node, until in self.moved_away.items() if until < now]:
            del self.moved_away[node]
        self._dispatch.strays.forget()
        self.serve()
        self._backlog.forget()
        told: dict[NodeId, list[Client]] = {}
        for client in list(self._clients.values()):
            if self._is_gone(client):
                del self._clients[client.node]
                self._post.take_back(client.node, TO_A_CLIENT)
        for client in self._clients.values():
            for broker in list(client.told):
                if not self._manager.topology.is_broker(broker) and broker not in self._introduced:
                    del client.told[broker]  # it is no more
                else:
                    told.setdefault(broker, []).append(client)
        for broker, clients in told.items():
            for at in range(0, len(clients), CONSUMERS_PER_LETTER):
                part = clients[at : at + CONSUMERS_PER_LETTER]
                self._post.write(broker, Renew(tuple(c.node for c in part), tuple(c.version for c in part)))

    def on_letter(self, sender: NodeId, message: RegistrationLetter) -> None:
        match message:
            case Attach():
                self._on_attach(sender, message)
            case Want() | Here():
                self._on_client_news(sender, message)
            case Register():
                self.on_registration(message)
            case Renew():
                self._on_renewed(sender, message)
            case Missing():
                for consumer in message.consumers:
                    if consumer in self._clients:
                        self.register(self._clients[consumer], [sender])

    def on_registration(self, message: Register, *, is_detour: bool = False) -> None:
        """`is_detour`: the news of a handoff, whose parties see to what is on its way."""
        known = self._consumers.find(message.consumer)
        if known is not None and message.version < known.version:
            return
        if message.home != self._host.node:
            self.on_superseded(message.consumer, message.version)
            client = self._clients.get(message.consumer)
            if client is not None and client.version < message.version:
                self._give_up(client, message.home)
        self._enter(message, is_detour=is_detour)

    def on_topology_changed(self, *, only_producers: bool = False) -> None:
        """Brokers that no path led to before hear of our clients; or those of them that have producers."""
        if not self._clients:
            return
        brokers = self._brokers()
        if only_producers:
            brokers = [broker for broker in brokers if self._manager.producers_of(broker)]
        for client in self._clients.values():
            new = [broker for broker in brokers if broker not in client.told]
            if new and not self.is_switching(client.node):  # else its next home tells them
                self.register(client, new)

    def serve(self) -> None:
        """What waited for consumers that we did not know goes to them, event by event: so one frame may have
        an event for many of them."""
        waiting, self._to_serve = self._to_serve, {}
        copies: dict[EventId, list[tuple[NodeId, Arrival]]] = {}
        for consumer, interests in waiting.items():
            for arrival in self._backlog.matching(consumer, interests):
                copies.setdefault(arrival.event.id, []).append((consumer, arrival))
        for event in sorted(copies):
            for consumer, arrival in copies[event]:
                self._send(consumer, arrival)

    def on_introduce(self, sender: NodeId) -> None:
        """A node that is about to be a broker must know whom its events are for."""
        if len(self._introduced) >= INTRODUCED_MAX:
            del self._introduced[next(iter(self._introduced))]
        self._introduced[sender] = self._host.now() + micros(self._options.registration_lifetime)
        for client in self._clients.values():
            if not self.is_switching(client.node):
                self.register(client, [sender])  # again, if it was told when it was a broker before
        # Nobody can tell it of those who were at home there before it restarted: they come by themselves.
        known = self._consumers.versions(but_at=sender)[:INTRODUCED_CONSUMERS_MAX]
        consumers, versions = tuple(node for node, _ in known), tuple(version for _, version in known)
        brokers = tuple(self._manager.topology.reachable())[:INTRODUCED_CONSUMERS_MAX]
        self._post.write(sender, Introduced(consumers, versions, brokers))

    def on_reset(self, peer: NodeId) -> None:
        """A broker restarted: it knows nobody."""
        for client in self._clients.values():
            if peer in client.told:
                self.register(client, [peer])

    def register(self, client: Client, brokers: list[NodeId]) -> None:
        """Tell brokers where this client is at home and what it wants."""
        own = self._host.node
        self._enter(Register(client.node, client.version, own, client.interests))
        for broker in brokers:
            if broker != own:
                client.told[broker] = None
                self._post.write(broker, Register(client.node, client.version, own, client.interests))

    # Questions.

    def is_served(self, consumer: NodeId) -> bool:
        """Whether it has got what was there before it was known; else it gets what comes with that."""
        return consumer not in self._to_serve

    def was_introduced(self, broker: NodeId) -> bool:
        """Lately: it may know less than others think that it was told before."""
        return broker in self._introduced

    # Clients.

    def _on_attach(self, node: NodeId, attach: Attach) -> None:
        known = self._clients.get(node) or self.on_return(node)
        if known is not None and known.generation >= attach.generation:
            return
        if known is None and len(self._clients) >= CLIENTS_MAX:
            self._post.write(node, NotHome(attach.generation))
            return
        waiting = self._post.take_back(node, TO_A_CLIENT)  # numbered for the generation before
        version = first_version(attach.generation)
        self.on_superseded(node, version)
        client = Client(
            node, attach.generation, version, attach.produces, attach.distance, heard_at=self._host.now()
        )
        self._clients[node] = client
        if known is not None:  # it lost sight of us, or restarted: its modulators go on
            client.interests, client.modulators = known.interests, known.modulators
            client.windows, client.late, client.told = known.windows, known.late, known.told
        client.wants(attach.interests)
        self._dispatch.places.install(client)
        for letter in waiting:
            if isinstance(letter, Deliver):
                self._dispatch.redeliver(client, undelivered(letter))
        self.register(client, self._brokers())

    def _on_client_news(self, node: NodeId, message: Want | Here) -> None:
        client = self._clients.get(node)
        if client is None or client.generation != message.generation:
            if client is None and self.moved_away.get(node, 0) <= self._host.now():
                self._post.write(node, NotHome(message.generation))
            return
        client.heard_at = self._host.now()
        if isinstance(message, Here):
            client.produces, client.distance = message.produces, message.distance
            if self._host.now() - client.access_at > 3 * micros(self._options.broker_discovery):
                client.access = None  # it has found no broker nearer than this one for a while
        elif client.interests != message.interests:
            client.wants(message.interests)
            self._dispatch.places.install(client)
            self.register(client, list(client.told))

    def _give_up(self, client: Client, home: NodeId) -> None:
        """The client has chosen another home by itself: what it has not got from us goes there."""
        del self._clients[client.node]
        for letter in self._post.take_back(client.node, TO_A_CLIENT):
            if isinstance(letter, Deliver):
                self._post.write(home, Salvaged(client.node, undelivered(letter)))

    def _is_gone(self, client: Client) -> bool:
        """Clients that may move say every period that they are there."""
        if client.node == self._host.node or self._options.mode == "static":
            return False
        patience = self._options.registration_lifetime + 3 * self._options.broker_discovery
        return self._host.now() - client.heard_at > micros(patience)

    # The table of all consumers.

    def _enter(self, message: Register, *, is_detour: bool = False) -> None:
        """Into our own table; what had to wait for it goes on. A home that changes without a detour was lost:
        the client chose another, or a handoff has failed."""
        consumer, version, home = message.consumer, message.version, message.home
        known = self._consumers.find(consumer)
        if not self._consumers.update(consumer, version, home, message.interests, self._host.now()):
            return
        before = () if known is None else known.interests
        new = tuple(i for i in message.interests if i not in before)
        if known is None and self._backlog.is_beginning():
            if not self._to_serve:
                self._host.set_timer("serve", self._host.now() + SERVE_AFTER)
            self._to_serve[consumer] = new
        else:
            self._serve_stored(consumer, new)
        if known is not None and known.home != home and not is_detour:
            self._dispatch.send_again(consumer, known.home)
        self._dispatch.release(consumer)

    def _serve_stored(self, consumer: NodeId, interests: tuple[Interest, ...]) -> None:
        if interests:
            for arrival in self._backlog.matching(consumer, interests):
                self._send(consumer, arrival)

    def _send(self, consumer: NodeId, arrival: Arrival) -> None:
        known = self._consumers.find(consumer)
        if known is None:
            return
        if known.home == self._host.node:
            self._dispatch.arrive(consumer, arrival)
        else:
            self._dispatch.forward(known.home, [consumer], arrival)

    def _on_renewed(self, sender: NodeId, message: Renew) -> None:
        missing = []
        for consumer, version in zip(message.consumers, message.versions, strict=False):
            if not self._consumers.renew(consumer, version, sender, self._host.now()):
                known = self._consumers.find(consumer)
                if known is None or known.version < version:
                    missing.append(consumer)
            else:
                self._dispatch.release(consumer)
        if missing:
            self._post.write(sender, Missing(tuple(missing)))

    def _brokers(self) -> list[NodeId]:
        """Who shall know of our clients: brokers that a path leads to, and those that will be some."""
        reachable = self._manager.topology.reachable()
        now = self._host.now()
        for broker in [b for b, until in self._introduced.items() if until <= now]:
            del self._introduced[broker]
        return [*reachable, *(broker for broker in self._introduced if broker not in reachable)]

    def _renewal_period(self) -> Micros:
        period = micros(self._options.registration_lifetime) // RENEWALS_PER_LIFETIME
        return int(period * (0.8 + 0.2 * self._host.random.random()))
