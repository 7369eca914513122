"""A node as a broker: clients come home to it, events are dispatched from it and arrive at it (section 2.1).

An event goes from its producer's home broker to the home brokers of all its consumers, one copy each, by
source routing over the overlay; there each consumer's modulators run, and what they make goes to the client.
Who wants what is told to every broker, so that each can be a producer's home. Handoffs are in `handoff.py`.

What is waiting for a node that cannot be reached is looked through every few seconds, and events whose time
is over are given up (`partition.py`); everything else waits.
"""

from collections.abc import Callable
from functools import partial

from roamcast.broker.core import Broker
from roamcast.event import Event, EventClass
from roamcast.host import Host
from roamcast.modulator import Meter
from roamcast.strategy.opportunistic.barriers import Barriers
from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.clients import CLIENTS_MAX, Arrival, Client
from roamcast.strategy.opportunistic.consumers import Consumers, first_version
from roamcast.strategy.opportunistic.messages import (
    Attach,
    Barrier,
    Deliver,
    Forward,
    Here,
    Interest,
    Leave,
    Letters,
    Missing,
    ModulatorFailed,
    NotHome,
    Passed,
    Publish,
    Register,
    Relay,
    Renew,
    Salvaged,
    Skip,
    Undelivered,
    Want,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.partition import is_over
from roamcast.strategy.opportunistic.places import Places, Processor
from roamcast.strategy.opportunistic.post import Post
from roamcast.trace import Dropped, DropReason
from roamcast.units import SECOND, Micros, NodeId, micros

LOOK_THROUGH_EVERY: Micros = 5 * SECOND
RENEWALS_PER_LIFETIME = 3
CONSUMERS_PER_LETTER = 1_000

DispatchLetter = (
    Attach
    | Want
    | Here
    | Publish
    | Leave
    | Barrier
    | Passed
    | Register
    | Renew
    | Missing
    | Forward
    | Salvaged
)


class Dispatch:
    """Timers are `"renew"` and `("look through", peer)`, and the processor's."""

    def __init__(
        self,
        host: Host,
        core: Broker,
        options: OpportunisticOptions,
        post: Post,
        manager: BrokerManager,
        meter: Meter,
    ) -> None:
        self._host = host
        self._core = core
        self._options = options
        self._post = post
        self._manager = manager
        self.processor = Processor(host, options.capacities.get(str(host.node), options.capacity))
        self.places = Places(self.processor, meter, self._on_modulator_failure)
        self.consumers = Consumers()
        self.clients: dict[NodeId, Client] = {}  # CIT
        self.moved_away: dict[NodeId, Micros] = {}  # clients handed off lately: they will hear where they are
        # The handoff's say, set by `Handoffs`: it may take an arrival that is not for a client at home, hears
        # of newer registrations, and knows which producers' events are held back.
        self.on_stray: Callable[[NodeId, Arrival], bool] = lambda consumer, arrival: False
        self.on_superseded: Callable[[NodeId, int], None] = lambda consumer, version: None
        self.on_hold: Callable[[NodeId], bool] = lambda producer: False
        self.barriers = Barriers(post, lambda producer: self.on_hold(producer))

    # Inputs.

    def on_start(self) -> None:
        self._host.set_timer("renew", self._host.now() + self._renewal_period())

    def on_renew(self) -> None:
        """Soft state: say to all who were told that our clients are still here, and forget the silent."""
        now = self._host.now()
        self._host.set_timer("renew", now + self._renewal_period())
        self.consumers.forget_silent(now - micros(self._options.registration_lifetime), self.clients)
        for node in [node for node, until in self.moved_away.items() if until < now]:
            del self.moved_away[node]
        told: dict[NodeId, list[Client]] = {}
        for client in list(self.clients.values()):
            if self._is_gone(client):
                del self.clients[client.node]
                self._post.abandon(client.node)
        for client in self.clients.values():
            for broker in list(client.told):
                if self._manager.topology.row(broker) is None:
                    del client.told[broker]  # it is no more
                else:
                    told.setdefault(broker, []).append(client)
        for broker, clients in told.items():
            part = clients[:CONSUMERS_PER_LETTER]
            self._post.write(broker, Renew(tuple(c.node for c in part), tuple(c.version for c in part)))

    def on_letter(self, sender: NodeId, message: DispatchLetter, hops: int, held: Micros) -> None:
        match message:
            case Attach():
                self._on_attach(sender, message)
            case Want() | Here():
                self._on_client_news(sender, message)
            case Publish():
                self._on_publish(sender, message, hops, held)
            case Forward():
                arrival = Arrival(
                    sender, message.event, message.age + held, message.hops + hops, self._host.now()
                )
                for consumer in message.consumers:
                    self.arrive(consumer, arrival)
            case Register():
                self.on_registration(message)
            case Renew():
                self._on_renewed(sender, message)
            case Missing():
                for consumer in message.consumers:
                    if consumer in self.clients:
                        self.register(self.clients[consumer], [sender])
            case Leave():
                self.barriers.ask(sender, sender, message.number, is_leave=True)
            case Barrier():
                self.barriers.ask(sender, message.producer, message.number, is_leave=False)
            case Passed():
                self.barriers.on_passed(sender, message)
            case Salvaged():
                client = self.clients.get(message.consumer)
                if client is not None:
                    self._redeliver(client, message.delivery)

    def on_topology_changed(self) -> None:
        """Brokers that no path led to before hear of our clients."""
        if not self.clients:
            return
        reachable = self._manager.topology.reachable()
        for client in self.clients.values():
            new = [broker for broker in reachable if broker not in client.told]
            if new:
                self.register(client, new)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        """A broker restarted: it knows nobody, and what it had not confirmed is sent on as things are now."""
        for client in self.clients.values():
            if peer in client.told:
                self.register(client, [peer])
        self.barriers.on_reset(peer)
        for letter in unconfirmed:
            match letter:
                case Forward():
                    arrival = Arrival(
                        self._host.node, letter.event, letter.age, letter.hops, self._host.now()
                    )
                    for consumer in letter.consumers:
                        self._pass_on(consumer, arrival)
                case Deliver() if peer in self.clients and letter.generation == self.clients[peer].generation:
                    self._post.write(peer, letter)
                case _:
                    pass

    def on_unreachable(self, peer: NodeId) -> None:
        self._host.set_timer(("look through", peer), self._host.now() + LOOK_THROUGH_EVERY)

    def on_look_through(self, peer: NodeId) -> None:
        """Drop what has waited too long for `peer`; the rest is written again in its order. What had arrived
        without our knowing arrives twice then, and is known by its number or identity."""
        if not self._post.waiting(peer):
            return
        self._host.set_timer(("look through", peer), self._host.now() + LOOK_THROUGH_EVERY)
        if not any(self._is_over(letter) for letter in self._post.unconfirmed(peer)):
            return
        for letter in self._post.abandon(peer):
            if isinstance(letter, Forward | Deliver | Relay) and self._is_over(letter):
                self._post.drop(DropReason.EXPIRED, type(letter).__name__.lower(), letter.event.id, peer)
                if isinstance(letter, Deliver):
                    self._post.write(peer, Skip(letter.generation, letter.number, letter.number + 1))
            else:
                self._post.write(peer, letter)

    def _is_over(self, letter: Letters) -> bool:
        return isinstance(letter, Forward | Deliver | Relay) and is_over(
            letter.event, letter.age, self._options
        )

    # Clients.

    def _on_attach(self, node: NodeId, attach: Attach) -> None:
        known = self.clients.get(node)
        if known is not None and known.generation >= attach.generation:
            return
        if known is None and len(self.clients) >= CLIENTS_MAX:
            self._post.write(node, NotHome(attach.generation))
            return
        version = first_version(attach.generation)
        self.on_superseded(node, version)
        client = Client(
            node, attach.generation, version, attach.produces, attach.distance, heard_at=self._host.now()
        )
        self.clients[node] = client
        if known is not None:  # it lost sight of us, or restarted: its modulators go on
            client.interests, client.modulators = known.interests, known.modulators
            client.windows, client.told = known.windows, known.told
        client.wants(attach.interests)
        self.places.install(client)
        self.register(client, self._manager.topology.reachable())
        if known is not None:
            for letter in self._post.abandon(node):
                if isinstance(letter, Deliver):
                    self._redeliver(client, undelivered(letter))

    def _on_client_news(self, node: NodeId, message: Want | Here) -> None:
        client = self.clients.get(node)
        if client is None or client.generation != message.generation:
            if client is None and node not in self.moved_away:
                self._post.write(node, NotHome(message.generation))
            return
        client.heard_at = self._host.now()
        if isinstance(message, Here):
            client.produces, client.distance = message.produces, message.distance
        elif client.interests != message.interests:
            client.wants(message.interests)
            self.places.install(client)
            self.register(client, list(client.told))

    def register(self, client: Client, brokers: list[NodeId]) -> None:
        """Tell brokers where this client is at home and what it wants."""
        now, own = self._host.now(), self._host.node
        known = self.consumers.find(client.node)
        before = () if known is None else known.interests
        if self.consumers.update(client.node, client.version, own, client.interests, now):
            self._serve_stored(client.node, tuple(i for i in client.interests if i not in before))
        for broker in brokers:
            if broker != own:
                client.told[broker] = None
                self._post.write(broker, Register(client.node, client.version, own, client.interests))

    def on_registration(self, message: Register) -> None:
        known = self.consumers.find(message.consumer)
        if known is not None and message.version < known.version:
            return
        if message.home != self._host.node:
            self.on_superseded(message.consumer, message.version)
            client = self.clients.get(message.consumer)
            if client is not None and client.version < message.version:
                self._give_up(client, message.home)
        before = () if known is None else known.interests
        self.consumers.update(
            message.consumer, message.version, message.home, message.interests, self._host.now()
        )
        self._serve_stored(message.consumer, tuple(i for i in message.interests if i not in before))

    def _give_up(self, client: Client, home: NodeId) -> None:
        """The client has chosen another home by itself: what it has not got from us goes there."""
        del self.clients[client.node]
        for letter in self._post.abandon(client.node):
            if isinstance(letter, Deliver):
                self._post.write(home, Salvaged(client.node, undelivered(letter)))

    def _redeliver(self, client: Client, delivery: Undelivered) -> None:
        self.deliver(client, delivery.event, delivery.age, delivery.hops, delivery.subscription)

    def _on_renewed(self, sender: NodeId, message: Renew) -> None:
        missing = []
        for consumer, version in zip(message.consumers, message.versions, strict=False):
            if not self.consumers.renew(consumer, version, sender, self._host.now()):
                known = self.consumers.find(consumer)
                if known is None or known.version < version:
                    missing.append(consumer)
        if missing:
            self._post.write(sender, Missing(tuple(missing)))

    def _is_gone(self, client: Client) -> bool:
        """Clients that may move say every period that they are there."""
        if client.node == self._host.node or self._options.mode == "static":
            return False
        patience = self._options.registration_lifetime + 3 * self._options.broker_discovery
        return self._host.now() - client.heard_at > micros(patience)

    def _renewal_period(self) -> Micros:
        period = micros(self._options.registration_lifetime) // RENEWALS_PER_LIFETIME
        return int(period * (0.8 + 0.2 * self._host.random.random()))

    # Producers.

    def _on_publish(self, node: NodeId, message: Publish, hops: int, held: Micros) -> None:
        client = self.clients.get(node)
        if client is not None:
            client.produces, client.heard_at = True, self._host.now()
        event, age = message.event, message.age + held
        if event.publisher != node:
            return  # nobody publishes in another's name
        if event.event_class is EventClass.MEMORIZED and node != self._host.node:
            self._core.deliver(event, message.hops + hops, age)  # kept here for later subscribers
        for home, consumers in self.consumers.matching(event).items():
            if home == self._host.node:
                for consumer in consumers:
                    self.arrive(consumer, Arrival(home, event, age, message.hops + hops, self._host.now()))
            else:
                self.barriers.on_sent(event.publisher, home)
                self._post.write(home, Forward(event, tuple(consumers), age, message.hops + hops))

    def _serve_stored(self, consumer: NodeId, interests: tuple[Interest, ...]) -> None:
        """Memorized events of our producers, for a subscription made after them."""
        known = self.consumers.find(consumer)
        if known is None or not interests:
            return
        now = self._host.now()
        probe = Client(consumer, 0, 0)
        probe.wants(interests)
        for stored in self._core.store.standing(now):
            event = stored.event
            if event.publisher == consumer or not any(True for _ in probe.matching(event)):
                continue
            age = event.lifetime - (stored.expires_at - now)
            if known.home == self._host.node:
                self.arrive(consumer, Arrival(known.home, event, age, stored.hops, now))
            else:
                self._post.write(known.home, Forward(event, (consumer,), age, stored.hops))

    # Events for consumers.

    def arrive(self, consumer: NodeId, arrival: Arrival) -> None:
        client = self.clients.get(consumer)
        if client is not None:
            gate = client.gates.get(arrival.sender)
            if gate is not None and gate.is_switched:
                gate.direct.append(arrival)
            else:
                self.process(client, arrival)
        elif not self.on_stray(consumer, arrival):
            self._pass_on(consumer, arrival)

    def _pass_on(self, consumer: NodeId, arrival: Arrival) -> None:
        """It came to the wrong broker: who sent it had not heard of a move."""
        known = self.consumers.find(consumer)
        if known is None or known.home == self._host.node:
            self._post.drop(DropReason.STALE, "forward", arrival.event.id)
            return
        age = arrival.age + self._host.now() - arrival.at
        self.barriers.on_sent(arrival.event.publisher, known.home)
        self._post.write(known.home, Forward(arrival.event, (consumer,), age, min(arrival.hops, 255)))

    def process(self, client: Client, arrival: Arrival) -> None:
        """Run the client's modulators on an event and deliver what they make of it."""
        event = arrival.event
        if not client.windows.observe(event.id):
            return
        matched = list(client.matching(event))
        if not client.has_modulators:
            self._finish(client, arrival, matched)
            return
        cost = self.places.cost(client, event, matched)
        if not self.processor.submit(cost, partial(self._finish, client, arrival, matched)):
            self._post.drop(DropReason.QUEUE_FULL, "processor", event.id)

    def _finish(self, client: Client, arrival: Arrival, matched: list[Interest]) -> None:
        event = arrival.event
        age = arrival.age + self._host.now() - arrival.at
        is_addressed = client.node in event.destinations
        if event.publisher != client.node and (is_addressed or any(i.modulator is None for i in matched)):
            self.deliver(client, event, age, arrival.hops, None)
        for interest in matched:
            if interest.modulator is not None:
                product = self.places.run(client, interest.number, event)
                if product is not None:
                    self.deliver(client, product, age, arrival.hops, interest.number)

    def deliver(self, client: Client, event: Event, age: Micros, hops: int, subscription: int | None) -> None:
        letter = Deliver(client.generation, client.next_number, event, age, min(hops, 255), subscription)
        if self._post.write(client.node, letter):
            client.next_number += 1

    def _on_modulator_failure(self, client: Client, subscription: int, problem: str) -> None:
        now, own = self._host.now(), self._host.node
        self._host.trace(Dropped(now, own, DropReason.MODULATOR, "modulator", to=client.node, detail=problem))
        self._post.write(client.node, ModulatorFailed(client.generation, subscription, problem[:400]))

    def producers(self) -> int:
        """How many of our clients publish (BIT)."""
        return sum(client.produces for client in self.clients.values())


def undelivered(letter: Deliver) -> Undelivered:
    return Undelivered(letter.number, letter.event, letter.age, letter.hops, letter.subscription)
