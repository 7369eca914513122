"""The way of an event: from its producer's home broker to its consumers' (section 2.1).

An event goes from its producer's home broker to the home brokers of all its consumers, one copy each, by
source routing over the overlay; there each consumer's modulators run, and what they make goes to the client.
Who is at home where is in `registrations.py`, what waits for later consumers in `backlog.py`, and how a home
changes in `handoff.py`.

A home that a client has lost, or that has restarted, serves nobody: what no one has confirmed goes to the
client's next home, and waits for that here (`strays.py`).
"""

from collections.abc import Callable
from functools import partial

import msgspec

from roamcast.event import Event, EventClass
from roamcast.host import Host
from roamcast.modulator import Meter
from roamcast.strategy.opportunistic.backlog import Backlog
from roamcast.strategy.opportunistic.barriers import Barriers
from roamcast.strategy.opportunistic.clients import Arrival, Client
from roamcast.strategy.opportunistic.consumers import Consumers
from roamcast.strategy.opportunistic.messages import (
    CONSUMERS_MAX,
    NO_GENERATION,
    Barrier,
    Deliver,
    Forward,
    Interest,
    Leave,
    Letters,
    Missing,
    ModulatorFailed,
    MovedDelivery,
    Passed,
    Publish,
    Relay,
    Salvaged,
    Undelivered,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.places import Places, Processor, octets
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.reliable import BODY_BYTES_MAX
from roamcast.strategy.opportunistic.strays import Strays
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId

CONSUMERS_PER_LETTER = 1_000
HELD_BACK_MAX = 10_000  # events of one client from one broker, or at a destination
OCTETS_PER_NODE = 9  # at most, of a number on the wire
CONSUMERS_SURELY = 16  # fit into one letter with any event

EVENT_ENCODER = msgspec.msgpack.Encoder()

DispatchLetter = Publish | Forward | Salvaged | Leave | Barrier | Passed


class Dispatch:
    """The timer is the processor's."""

    def __init__(
        self, host: Host, options: OpportunisticOptions, post: Post, backlog: Backlog, meter: Meter
    ) -> None:
        self._host = host
        self._post = post
        self._backlog = backlog
        self.processor = Processor(host, options.capacities.get(str(host.node), options.capacity))
        self.places = Places(self.processor, meter, self._on_modulator_failure)
        self.consumers = Consumers()
        self.strays = Strays(host, options, post)
        self.clients: dict[NodeId, Client] = {}  # CIT
        # The handoff's say, set by `Handoffs`: it may take an arrival that is not for a client at home, or is
        # for one about to leave, and knows which producers' events are held back.
        self.on_stray: Callable[[NodeId, Arrival], bool] = lambda consumer, arrival: False
        self.on_closing: Callable[[NodeId, Arrival], bool] = lambda consumer, arrival: False
        self.on_hold: Callable[[NodeId], bool] = lambda producer: False
        # The registrations' say: consumers that have not got earlier events yet get this one behind them.
        self.is_served: Callable[[NodeId], bool] = lambda consumer: True
        self.barriers = Barriers(post, lambda producer: self.on_hold(producer))

    # Inputs.

    def on_letter(self, sender: NodeId, message: DispatchLetter, hops: int, held: Micros) -> None:
        match message:
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
                for consumer in message.consumers_at(self._host.node):
                    self.arrive(consumer, arrival)
            case Salvaged():
                delivery = message.delivery
                self.salvage(message.consumer, msgspec.structs.replace(delivery, age=delivery.age + held))
            case Leave():
                self.barriers.ask(sender, sender, message.number, is_leave=True)
            case Barrier():
                self.barriers.ask(sender, message.producer, message.number, is_leave=False)
            case Passed():
                self.barriers.on_passed(sender, message)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        """A broker restarted. What it had not confirmed is sent on as things are now; who was at home there
        may have to come back first."""
        self.barriers.on_reset(peer)
        doubtful = self.consumers.doubt(peer)
        for at in range(0, len(doubtful), CONSUMERS_PER_LETTER):
            self._post.write(peer, Missing(tuple(doubtful[at : at + CONSUMERS_PER_LETTER])))
        for letter in unconfirmed:
            match letter:
                case Forward():
                    for consumer in letter.consumers_at(peer):
                        self.arrive(consumer, self._again(letter))
                case Salvaged():
                    self.salvage(letter.consumer, letter.delivery)
                case Deliver() if peer in self.clients and letter.generation == self.clients[peer].generation:
                    self._post.write(peer, letter)
                case _:
                    pass

    # Questions.

    def is_idle(self) -> bool:
        """Whether nothing is left to do, to answer and to send."""
        return not self.processor.waiting() and self.barriers.is_idle() and self._post.is_idle()

    def producers(self) -> int:
        """How many of our clients publish (BIT)."""
        return sum(client.produces for client in self.clients.values())

    # From producers to the home brokers of consumers.

    def _on_publish(self, node: NodeId, message: Publish, hops: int, held: Micros) -> None:
        client = self.clients.get(node)
        if client is not None:
            client.produces, client.heard_at = True, self._host.now()
        event, age = message.event, message.age + held
        if event.publisher != node:
            return  # nobody publishes in another's name
        arrival = Arrival(self._host.node, event, age, min(message.hops + hops, 255), self._host.now())
        self._backlog.on_published(arrival, message.hops + hops)
        for home, matching in self.consumers.matching(event).items():
            consumers = [consumer for consumer in matching if self.is_served(consumer)]
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
            self.forward(home, sure, arrival)
        for node in event.destinations:
            if self.consumers.find(node) is None and node != event.publisher:
                # It is at home nowhere: it has neither subscribed nor published. The underlay finds it.
                self._post.write(node, Deliver(NO_GENERATION, 0, age, arrival.hops, None, event))

    def forward(self, home: NodeId, consumers: list[NodeId], arrival: Arrival) -> None:
        """One copy, unless there are more consumers than one letter can name."""
        event, age = arrival.event, arrival.age + self._host.now() - arrival.at
        at_once = CONSUMERS_SURELY
        if len(consumers) > at_once:
            room = (BODY_BYTES_MAX - len(EVENT_ENCODER.encode(event))) // OCTETS_PER_NODE - 8
            at_once = min(max(room, at_once), CONSUMERS_MAX)
        for at in range(0, len(consumers), at_once):
            self.barriers.on_sent(event.publisher, home)
            part = () if consumers == [home] else tuple(consumers[at : at + at_once])
            self._post.write(home, Forward(part, age, min(arrival.hops, 255), event))

    def relay(self, to: NodeId, consumer: NodeId, version: int, arrival: Arrival) -> None:
        """The same for one consumer on the move: the next home must know which broker the event came from, to
        keep its order (`ways.py`)."""
        age = arrival.age + self._host.now() - arrival.at
        hops = min(arrival.hops, 255)
        self.barriers.on_sent(arrival.event.publisher, to)
        self._post.write(to, Relay(consumer, version, arrival.sender, arrival.event, age, hops))

    # What a lost home had.

    def send_again(self, consumer: NodeId, lost: NodeId) -> None:
        """What the home that was lost has not confirmed goes to the one that is, in the same order; if it had
        arrived after all, it is known by its identity. The old home keeps its copies: it may be alive."""
        for letter in self._post.unconfirmed(lost):
            match letter:
                case Forward() if consumer in letter.consumers_at(lost):
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

    def salvage(self, consumer: NodeId, delivery: Undelivered) -> None:
        """A delivery that the client has not got from the home before goes to its home of now."""
        client, known = self.clients.get(consumer), self.consumers.find(consumer)
        if client is not None:
            self.redeliver(client, delivery)
        elif known is not None and known.home != self._host.node:
            self._post.write(known.home, Salvaged(consumer, delivery))
        else:
            self._post.drop(DropReason.STALE, "salvaged", delivery.event.id, consumer)

    def redeliver(self, client: Client, delivery: Undelivered) -> None:
        """Modulators have run on it; it gets the next number."""
        self._deliver(client, delivery.event, delivery.age, delivery.hops, delivery.subscription)

    def release(self, consumer: NodeId) -> None:
        """It is known where the consumer is: what waited for that goes on."""
        for arrival in self.strays.release(consumer):
            self.arrive(consumer, arrival)

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
            self.forward(known.home, [consumer], arrival)

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
            self._deliver(client, event, age, arrival.hops, None)
        for interest in matched:
            if interest.modulator is not None:
                product = self.places.run(client, interest.number, event)
                if product is not None:
                    self._deliver(client, product, age, arrival.hops, interest.number)
        more = client.traffic.took - took_before - cost  # a live node measures what they really take
        if more > 0:
            client.demand.add(self._host.now(), more)
            self.processor.on_spent(more)

    def _deliver(
        self, client: Client, event: Event, age: Micros, hops: int, subscription: int | None
    ) -> None:
        letter = Deliver(client.generation, client.next_number, age, min(hops, 255), subscription, event)
        if self._post.write(client.node, letter):
            client.next_number += 1
            if client.has_modulators:
                client.traffic.octets_out += octets(event)

    def _on_modulator_failure(self, client: Client, subscription: int, problem: str) -> None:
        now, own = self._host.now(), self._host.node
        self._host.trace(Dropped(now, own, DropReason.MODULATOR, "modulator", to=client.node, detail=problem))
        self._post.write(client.node, ModulatorFailed(client.generation, subscription, problem[:400]))


def undelivered(letter: Deliver) -> Undelivered:
    return Undelivered(letter.number, letter.event, letter.age, letter.hops, letter.subscription)
