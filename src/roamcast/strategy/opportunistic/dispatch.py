"""A node as a broker: clients come home to it, events are dispatched from it and arrive at it (section 2.1).

An event goes from its producer's home broker to the home brokers of all its consumers, one copy each, by
source routing over the overlay; there each consumer's modulators run, and what they make goes to the client.
Who wants what is told to every broker, so that each can be a producer's home. Handoffs are in `handoff.py`.

A home that a client has lost, or that has restarted, serves nobody: what no one has confirmed goes to the
client's next home, and waits for that here (`strays.py`).
"""

from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from roamcast.broker.core import Broker
from roamcast.broker.store import StoreFullError
from roamcast.event import Event, EventClass, EventId
from roamcast.host import Host
from roamcast.modulator import Meter
from roamcast.strategy.opportunistic.barriers import Barriers
from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.clients import CLIENTS_MAX, Arrival, Client
from roamcast.strategy.opportunistic.consumers import Consumers, first_version
from roamcast.strategy.opportunistic.messages import (
    CONSUMERS_MAX,
    NO_GENERATION,
    Attach,
    Barrier,
    Deliver,
    Forward,
    Here,
    Interest,
    Introduced,
    Keep,
    Leave,
    Letters,
    Missing,
    ModulatorFailed,
    MovedDelivery,
    NewHome,
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
from roamcast.strategy.opportunistic.places import Places, Processor, octets
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.reliable import BODY_BYTES_MAX
from roamcast.strategy.opportunistic.strays import Strays
from roamcast.trace import Dropped, DropReason
from roamcast.units import SECOND, Micros, NodeId, micros

INTRODUCED_MAX = 1_000
INTRODUCED_CONSUMERS_MAX = 3_000  # so many names fit into one letter
RENEWALS_PER_LIFETIME = 3
CONSUMERS_PER_LETTER = 1_000
LEARNING_MORE: Micros = 2 * SECOND  # after the period in which clients say that they are there
YOUNG_MAX = 1_000
HELD_BACK_MAX = 10_000  # events of one client from one broker, or at a destination
OCTETS_PER_NODE = 9  # at most, of a number on the wire
CONSUMERS_SURELY = 16  # fit into one letter with any event

EVENT_ENCODER = msgspec.msgpack.Encoder()

TO_A_CLIENT = (Deliver, Skip, NewHome, NotHome)

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
    """Timers are `"renew"` and the processor's."""

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
        self.strays = Strays(host, options, post)
        # A broker that has just started knows no consumers, and so not whom its first events are for.
        self._learned_at = host.now() + micros(options.broker_discovery) + LEARNING_MORE
        self._young: deque[Arrival] = deque(maxlen=YOUNG_MAX)
        self.clients: dict[NodeId, Client] = {}  # CIT
        self._introduced: dict[NodeId, Micros] = {}  # brokers that no path may lead to yet, and until when
        self.moved_away: dict[NodeId, Micros] = {}  # clients handed off lately: they will hear where they are
        # The handoff's say, set by `Handoffs`: it may take an arrival that is not for a client at home, hears
        # of newer registrations, knows which producers' events are held back, and gives back what it
        # moved away in vain.
        self.on_stray: Callable[[NodeId, Arrival], bool] = lambda consumer, arrival: False
        self.on_superseded: Callable[[NodeId, int], None] = lambda consumer, version: None
        self.on_hold: Callable[[NodeId], bool] = lambda producer: False
        self.on_closing: Callable[[NodeId, Arrival], bool] = lambda consumer, arrival: False
        # Of a broker made at run time: which memorized events were given to it as a broker. Others' are
        # stored in this node, too, and their home brokers serve them.
        self.kept: set[EventId] | None = None
        # While a broker made at run time learns of consumers, their subscriptions are no news to the others.
        self.is_learning: Callable[[], bool] = lambda: False
        self.is_switching: Callable[[NodeId], bool] = lambda consumer: False
        self.on_return: Callable[[NodeId], Client | None] = lambda consumer: None
        self.barriers = Barriers(post, lambda producer: self.on_hold(producer))

    # Inputs.

    def on_start(self) -> None:
        self._host.set_timer("renew", self._host.now() + self._renewal_period())

    def on_renew(self) -> None:
        """Soft state: say to all who were told that our clients are still here, and forget the silent."""
        now = self._host.now()
        self._host.set_timer("renew", now + self._renewal_period())
        if self.kept is not None:
            self.kept.intersection_update([event for event in self.kept if event in self._core.store])
        self.consumers.forget_silent(now - micros(self._options.registration_lifetime), self.clients)
        for node in [node for node, until in self.moved_away.items() if until < now]:
            del self.moved_away[node]
        self.strays.forget()
        if now >= self._learned_at:
            self._young.clear()
        told: dict[NodeId, list[Client]] = {}
        for client in list(self.clients.values()):
            if self._is_gone(client):
                del self.clients[client.node]
                self._post.take_back(client.node, TO_A_CLIENT)
        for client in self.clients.values():
            for broker in list(client.told):
                if not self._manager.topology.is_broker(broker) and broker not in self._introduced:
                    del client.told[broker]  # it is no more
                else:
                    told.setdefault(broker, []).append(client)
        for broker, clients in told.items():
            for at in range(0, len(clients), CONSUMERS_PER_LETTER):
                part = clients[at : at + CONSUMERS_PER_LETTER]
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
                    sender,
                    message.event,
                    message.age + held,
                    message.hops + hops,
                    self._host.now(),
                    max(len(message.consumers), 1),
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
                delivery = message.delivery
                self.salvage(message.consumer, msgspec.structs.replace(delivery, age=delivery.age + held))

    def on_topology_changed(self) -> None:
        """Brokers that no path led to before hear of our clients."""
        if not self.clients:
            return
        brokers = self._brokers()
        for client in self.clients.values():
            new = [broker for broker in brokers if broker not in client.told]
            if new and not self.is_switching(client.node):  # else its next home tells them
                self.register(client, new)

    def on_introduce(self, sender: NodeId) -> None:
        """A node that is about to be a broker must know whom its events are for."""
        if len(self._introduced) >= INTRODUCED_MAX:
            del self._introduced[next(iter(self._introduced))]
        self._introduced[sender] = self._host.now() + micros(self._options.registration_lifetime)
        for client in self.clients.values():
            if not self.is_switching(client.node):
                self.register(client, [sender])  # again, if it was told when it was a broker before
        # Nobody can tell it of those who were at home there before it restarted: they come by themselves.
        known = self.consumers.versions(but_at=sender)[:INTRODUCED_CONSUMERS_MAX]
        consumers, versions = tuple(node for node, _ in known), tuple(version for _, version in known)
        brokers = tuple(self._manager.topology.reachable())[:INTRODUCED_CONSUMERS_MAX]
        self._post.write(sender, Introduced(consumers, versions, brokers))

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        """A broker restarted: it knows nobody. What it had not confirmed is sent on as things are now; who
        was at home there may have to come back first."""
        for client in self.clients.values():
            if peer in client.told:
                self.register(client, [peer])
        self.barriers.on_reset(peer)
        doubtful = self.consumers.doubt(peer)
        for at in range(0, len(doubtful), CONSUMERS_PER_LETTER):
            self._post.write(peer, Missing(tuple(doubtful[at : at + CONSUMERS_PER_LETTER])))
        for letter in unconfirmed:
            match letter:
                case Forward():
                    for consumer in letter.consumers:
                        self.arrive(consumer, self._again(letter))
                case Salvaged():
                    self.salvage(letter.consumer, letter.delivery)
                case Deliver() if peer in self.clients and letter.generation == self.clients[peer].generation:
                    self._post.write(peer, letter)
                case _:
                    pass

    # Clients.

    def _on_attach(self, node: NodeId, attach: Attach) -> None:
        known = self.clients.get(node) or self.on_return(node)
        if known is not None and known.generation >= attach.generation:
            return
        if known is None and len(self.clients) >= CLIENTS_MAX:
            self._post.write(node, NotHome(attach.generation))
            return
        waiting = self._post.take_back(node, TO_A_CLIENT)  # numbered for the generation before
        version = first_version(attach.generation)
        self.on_superseded(node, version)
        client = Client(
            node, attach.generation, version, attach.produces, attach.distance, heard_at=self._host.now()
        )
        self.clients[node] = client
        if known is not None:  # it lost sight of us, or restarted: its modulators go on
            client.interests, client.modulators = known.interests, known.modulators
            client.windows, client.late, client.told = known.windows, known.late, known.told
        client.wants(attach.interests)
        self.places.install(client)
        for letter in waiting:
            if isinstance(letter, Deliver):
                self._redeliver(client, undelivered(letter))
        self.register(client, self._brokers())

    def _on_client_news(self, node: NodeId, message: Want | Here) -> None:
        client = self.clients.get(node)
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
            self.places.install(client)
            self.register(client, list(client.told))

    def register(self, client: Client, brokers: list[NodeId]) -> None:
        """Tell brokers where this client is at home and what it wants."""
        own = self._host.node
        self._enter(Register(client.node, client.version, own, client.interests))
        for broker in brokers:
            if broker != own:
                client.told[broker] = None
                self._post.write(broker, Register(client.node, client.version, own, client.interests))

    def on_registration(self, message: Register, *, is_detour: bool = False) -> None:
        known = self.consumers.find(message.consumer)
        if known is not None and message.version < known.version:
            return
        if message.home != self._host.node:
            self.on_superseded(message.consumer, message.version)
            client = self.clients.get(message.consumer)
            if client is not None and client.version < message.version:
                self._give_up(client, message.home)
        self._enter(message, is_detour=is_detour)

    def _enter(self, message: Register, *, is_detour: bool = False) -> None:
        """Into our own table; what had to wait for it goes on. A home that changes without a detour was lost:
        the client chose another, or a handoff has failed."""
        consumer, version, home = message.consumer, message.version, message.home
        known = self.consumers.find(consumer)
        if not self.consumers.update(consumer, version, home, message.interests, self._host.now()):
            return
        before = () if known is None else known.interests
        self._serve_stored(consumer, tuple(i for i in message.interests if i not in before))
        if known is not None and known.home != home and not is_detour:
            self.send_again(consumer, known.home)
        for arrival in self.strays.release(consumer):
            self.arrive(consumer, arrival)

    def send_again(self, consumer: NodeId, lost: NodeId) -> None:
        """What the home that was lost has not confirmed goes to the one that is, in the same order; if it had
        arrived after all, it is known by its identity. The old home keeps its copies: it may be alive."""
        for letter in self._post.unconfirmed(lost):
            match letter:
                case Forward() if consumer in letter.consumers:
                    self.arrive(consumer, self._again(letter))
                case Relay() if consumer == letter.consumer:
                    self.arrive(consumer, self._again(letter))
                case MovedDelivery() | Salvaged() if consumer == letter.consumer:
                    self.salvage(consumer, letter.delivery)
                case _:
                    pass

    def _again(self, letter: Forward | Relay) -> Arrival:
        sender = letter.sender if isinstance(letter, Relay) else self._host.node
        return Arrival(sender, letter.event, letter.age, letter.hops, self._host.now())

    def _give_up(self, client: Client, home: NodeId) -> None:
        """The client has chosen another home by itself: what it has not got from us goes there."""
        del self.clients[client.node]
        for letter in self._post.take_back(client.node, TO_A_CLIENT):
            if isinstance(letter, Deliver):
                self._post.write(home, Salvaged(client.node, undelivered(letter)))

    def salvage(self, consumer: NodeId, delivery: Undelivered) -> None:
        client, known = self.clients.get(consumer), self.consumers.find(consumer)
        if client is not None:
            self._redeliver(client, delivery)
        elif known is not None and known.home != self._host.node:
            self._post.write(known.home, Salvaged(consumer, delivery))
        else:
            self._post.drop(DropReason.STALE, "salvaged", delivery.event.id, consumer)

    def _redeliver(self, client: Client, delivery: Undelivered) -> None:
        self.deliver(client, delivery.event, delivery.age, delivery.hops, delivery.subscription)

    def _on_renewed(self, sender: NodeId, message: Renew) -> None:
        missing = []
        for consumer, version in zip(message.consumers, message.versions, strict=False):
            if not self.consumers.renew(consumer, version, sender, self._host.now()):
                known = self.consumers.find(consumer)
                if known is None or known.version < version:
                    missing.append(consumer)
            else:
                for arrival in self.strays.release(consumer):
                    self.arrive(consumer, arrival)
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
            self._keep(event, message.hops + hops, age)
        if event.event_class is EventClass.MEMORIZED and self.kept is not None:
            self.kept.add(event.id)
        arrival = Arrival(self._host.node, event, age, min(message.hops + hops, 255), self._host.now())
        is_young = self._host.now() < self._learned_at or self.is_learning()
        if is_young and event.event_class is not EventClass.MEMORIZED:
            self._young.append(arrival)
        for home, consumers in self.consumers.matching(event).items():
            if home == self._host.node:
                for consumer in consumers:
                    self.arrive(consumer, arrival)
                continue
            sure = []
            for consumer in consumers:
                if self.consumers.is_doubtful(consumer):
                    self.strays.hold(consumer, arrival)
                else:
                    sure.append(consumer)
            self._forward(home, sure, arrival)
        for node in event.destinations:
            if self.consumers.find(node) is None and node != event.publisher:
                # It is at home nowhere: it has neither subscribed nor published. The underlay finds it.
                self._post.write(node, Deliver(NO_GENERATION, 0, event, age, arrival.hops))

    def _forward(self, home: NodeId, consumers: list[NodeId], arrival: Arrival) -> None:
        """One copy, unless there are more consumers than one letter can name."""
        event, age = arrival.event, arrival.age + self._host.now() - arrival.at
        at_once = CONSUMERS_SURELY
        if len(consumers) > at_once:
            room = (BODY_BYTES_MAX - len(EVENT_ENCODER.encode(event))) // OCTETS_PER_NODE - 8
            at_once = min(max(room, at_once), CONSUMERS_MAX)
        for at in range(0, len(consumers), at_once):
            self.barriers.on_sent(event.publisher, home)
            part = tuple(consumers[at : at + at_once])
            self._post.write(home, Forward(event, part, age, min(arrival.hops, 255)))

    def keep_for(self, broker: NodeId) -> None:
        """We end: another broker shall keep what was given to us for later subscribers."""
        now = self._host.now()
        for one in self._core.store.standing(now):
            if self.kept is not None and one.event.id not in self.kept:
                continue
            age = max(one.event.lifetime - (one.expires_at - now), 0)
            self._post.write(broker, Keep(one.event, age, min(one.hops, 255)))

    def on_keep(self, message: Keep, held: Micros) -> None:
        age = message.age + held
        if message.event.event_class is EventClass.MEMORIZED and age < message.event.lifetime:
            self._keep(message.event, message.hops, age)
            if self.kept is not None:
                self.kept.add(message.event.id)

    def _keep(self, event: Event, hops: int, age: Micros) -> None:
        """For later subscribers. This node's own application gets its copy by the way of all others."""
        try:
            self._core.keep(event, hops, age)
        except StoreFullError:
            self._core.drop(event.id, DropReason.STORE_FULL, "store")

    def _serve_stored(self, consumer: NodeId, interests: tuple[Interest, ...]) -> None:
        """Memorized events of our producers, for a subscription made after them; and what came before we
        could know of it."""
        known = self.consumers.find(consumer)
        if known is None or not interests:
            return
        now = self._host.now()
        probe = Client(consumer, 0, 0)
        probe.wants(interests)
        stored = [
            Arrival(self._host.node, one.event, one.event.lifetime - (one.expires_at - now), one.hops, now)
            for one in self._core.store.standing(now)
            if (self.kept is None or one.event.id in self.kept) and not self.is_learning()
        ]
        for arrival in stored + list(self._young):
            event = arrival.event
            is_own = event.publisher == consumer  # its plain subscriptions are served already
            if not any(not is_own or one.modulator is not None for one in probe.matching(event)):
                continue
            if known.home == self._host.node:
                self.arrive(consumer, arrival)
            else:
                self._forward(known.home, [consumer], arrival)

    # Events for consumers.

    def arrive(self, consumer: NodeId, arrival: Arrival) -> None:
        client = self.clients.get(consumer)
        if client is not None:
            gate = client.gates.get(arrival.sender)
            if gate is not None and gate.is_switched:
                self.hold_back(gate.direct, arrival)
            elif not self.on_closing(consumer, arrival):
                self.process(client, arrival)
        elif not self.on_stray(consumer, arrival):
            self._pass_on(consumer, arrival)

    def hold_back(self, held: list[Arrival], arrival: Arrival) -> None:
        """Until its turn comes; bounded, like everything that waits."""
        if len(held) >= HELD_BACK_MAX:
            self._post.drop(DropReason.QUEUE_FULL, "handoff", arrival.event.id)
        else:
            held.append(arrival)

    def _pass_on(self, consumer: NodeId, arrival: Arrival) -> None:
        """It came to the wrong broker: who sent it had not heard of a move."""
        known = self.consumers.find(consumer)
        if known is None or known.home == self._host.node or self.consumers.is_doubtful(consumer):
            self.strays.hold(consumer, arrival)
        else:
            self._forward(known.home, [consumer], arrival)

    def process(self, client: Client, arrival: Arrival) -> None:
        """Run the client's modulators on an event and deliver what they make of it."""
        event = arrival.event
        is_memorized = event.event_class is EventClass.MEMORIZED
        is_new = client.windows.observe(event.id, is_memorized=is_memorized)
        matched = list(client.matching(event))
        late = [
            one
            for one in matched
            if one.number in client.late
            and client.late[one.number].observe(event.id, is_memorized=is_memorized)
        ]
        if not is_new:
            if not late or not is_memorized:
                return
            matched = late
        if not client.has_modulators:
            self._finish(client, arrival, matched, 0)
            return
        cost = self.places.cost(client, event, matched)
        client.demand.add(self._host.now(), cost)
        octets_from = client.traffic.octets_from
        octets_from[arrival.sender] = octets_from.get(arrival.sender, 0) + octets(event) / arrival.shared
        if not self.processor.submit(cost, partial(self._finish, client, arrival, matched, cost)):
            self._post.drop(DropReason.QUEUE_FULL, "processor", event.id)

    def _finish(self, client: Client, arrival: Arrival, matched: list[Interest], cost: Micros) -> None:
        """`cost`: what the modulators had said that it would be."""
        event, took_before = arrival.event, client.traffic.took
        age = arrival.age + self._host.now() - arrival.at
        is_addressed = client.node in event.destinations
        if event.publisher != client.node and (is_addressed or any(i.modulator is None for i in matched)):
            self.deliver(client, event, age, arrival.hops, None)
        for interest in matched:
            if interest.modulator is not None:
                product = self.places.run(client, interest.number, event)
                if product is not None:
                    self.deliver(client, product, age, arrival.hops, interest.number)
        more = client.traffic.took - took_before - cost  # a live node measures what they really take
        if more > 0:
            client.demand.add(self._host.now(), more)
            self.processor.on_spent(more)

    def deliver(self, client: Client, event: Event, age: Micros, hops: int, subscription: int | None) -> None:
        letter = Deliver(client.generation, client.next_number, event, age, min(hops, 255), subscription)
        if self._post.write(client.node, letter):
            client.next_number += 1
            if client.has_modulators:
                client.traffic.octets_out += octets(event)

    def _on_modulator_failure(self, client: Client, subscription: int, problem: str) -> None:
        now, own = self._host.now(), self._host.node
        self._host.trace(Dropped(now, own, DropReason.MODULATOR, "modulator", to=client.node, detail=problem))
        self._post.write(client.node, ModulatorFailed(client.generation, subscription, problem[:400]))

    def _brokers(self) -> list[NodeId]:
        """Who shall know of our clients: brokers that a path leads to, and those that will be some."""
        reachable = self._manager.topology.reachable()
        now = self._host.now()
        for broker in [b for b, until in self._introduced.items() if until <= now]:
            del self._introduced[broker]
        return [*reachable, *(broker for broker in self._introduced if broker not in reachable)]

    def was_introduced(self, broker: NodeId) -> bool:
        """Lately: it may know less than others think that it was told before."""
        return broker in self._introduced

    def is_idle(self) -> bool:
        """Whether nothing is left to do, to answer and to send."""
        return not self.processor.waiting() and self.barriers.is_idle() and self._post.is_idle()

    def producers(self) -> int:
        """How many of our clients publish (BIT)."""
        return sum(client.produces for client in self.clients.values())


def undelivered(letter: Deliver) -> Undelivered:
    return Undelivered(letter.number, letter.event, letter.age, letter.hops, letter.subscription)
