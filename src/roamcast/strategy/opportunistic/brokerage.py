"""A node as a broker: its parts, which of them each input is for, and how it ends.

A broker that was made at run time retires in this order, so that nothing is lost: it takes no clients any
more (`FULL`), its adaptors give the clients away by handoffs, its producers say that they have left, what it
has to do and to deliver is done; then it withdraws its row of the topology, gives memorized events to its
nearest neighbour, and is a broker no more once all that is confirmed, or a registration's lifetime is over.
"""

from typing import get_args

from roamcast.host import Host, TimerName
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.opportunistic.backlog import Backlog
from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.discovery import RingSearch
from roamcast.strategy.opportunistic.dispatch import Dispatch, DispatchLetter
from roamcast.strategy.opportunistic.handoff import HandoffLetter, Handoffs
from roamcast.strategy.opportunistic.introduction import Introduction
from roamcast.strategy.opportunistic.managers import ClientManager
from roamcast.strategy.opportunistic.messages import (
    FULL,
    Accepted,
    Attach,
    Barrier,
    Detour,
    Handoff,
    Here,
    Introduce,
    Introduced,
    Keep,
    Leave,
    Left,
    Letters,
    Nearer,
    NotHome,
    Passed,
    Publish,
    Returned,
    Switched,
    Want,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.places import ModelledMeter
from roamcast.strategy.opportunistic.post import Post
from roamcast.strategy.opportunistic.registrations import RegistrationLetter, Registrations
from roamcast.trace import OverlayChanged
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

DISPATCH_LETTERS = get_args(DispatchLetter)
REGISTRATION_LETTERS = get_args(RegistrationLetter)
HANDOFF_LETTERS = get_args(HandoffLetter)
# When brokers that are new to us are told of our clients: so long for each broker that there is, and at most.
SOON_EACH: Micros = 25 * MILLISECOND
SOON: Micros = SECOND
LATER_EACH: Micros = 700 * MILLISECOND
LATER: Micros = 20 * SECOND
FEW = 8  # so many may be told at once


class Brokerage:
    def __init__(
        self,
        context: StrategyContext,
        options: OpportunisticOptions,
        post: Post,
        search: RingSearch,
        *,
        sequence: int,
        was_made: bool = False,
    ) -> None:
        """Its rows of the topology are numbered from `sequence` on. `was_made`: at run time."""
        self._host = context.host
        self._options = options
        self.underlay = context.underlay
        self.was_made = was_made
        self._post = post
        self.manager = BrokerManager(
            context.host,
            context.underlay,
            options,
            search,
            post.transport.send,
            sequence=sequence,
            load=self.load,
            producers=lambda: self.dispatch.producers(),
            on_changed=lambda: self._on_topology_changed(),
        )
        meter = context.meter or ModelledMeter(micros(options.modulator_limit))
        self.backlog = Backlog(context.host, context.broker, options, post)
        self.dispatch = Dispatch(context.host, options, post, self.backlog, meter)
        self.registrations = Registrations(
            context.host, options, post, self.manager, self.dispatch, self.backlog
        )
        self.dispatch.is_served = self.registrations.is_served
        self.handoffs = Handoffs(context.host, options, post, self.dispatch, self.registrations)
        self.clients = ClientManager(context.host, self.manager, self.dispatch, self.handoffs)
        self.retirement = Retirement(context.host, options, self)
        self._is_telling = False
        # Nobody needs a broker that is made before it is ready; one that has restarted has clients.
        patience = micros(options.registration_lifetime if was_made else options.handoff_timeout)
        self.introduction = Introduction(context.host, post, self.dispatch.consumers, patience)
        if was_made:
            self.backlog.kept = set()
        self.backlog.later = self._later
        self.backlog.is_learning = lambda: not self.introduction.is_ready()
        self.handoffs.destination.load = self.load
        self.handoffs.destination.refuses = self._refuses
        self.handoffs.source.on_load_heard = self.manager.on_load_heard

    # Inputs.

    def on_start(self) -> None:
        now, node = self._host.now(), self._host.node
        self._host.trace(OverlayChanged(now, node, "role_on", role="broker"))
        if self._post.boot > 1 and not self.was_made:
            self.introduction.begin()  # it has forgotten who wants what, and clients may come back at once
        self.manager.on_start()
        self.registrations.on_start()

    def on_end(self) -> None:
        for name in ("broker update", "updates taken", "renew", "tell first", "tell", "serve", "processor"):
            self._host.cancel_timer(name)
        now, node = self._host.now(), self._host.node
        self._host.trace(OverlayChanged(now, node, "role_off", role="broker"))

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "broker update" | "updates taken":
                self.manager.on_timer(name)
            case "renew":
                self.registrations.on_renew()
            case "tell first":
                self.registrations.on_topology_changed(only_producers=True)
            case "tell":
                self._is_telling = False
                self.registrations.on_topology_changed()
            case "serve":
                self.registrations.serve()
            case "processor":
                self.dispatch.processor.on_timer(name)
            case (str() as kind, int() as node):
                self.handoffs.on_timer((kind, node))
                self.dispatch.barriers.check()

    def on_letter(self, sender: NodeId, message: Letters, hops: int, held: Micros) -> None:
        self.retirement.on_letter(sender, message)
        if isinstance(message, Publish):
            must_serve = not self.backlog.is_young(message.event)
        else:
            must_serve = isinstance(message, Leave | Barrier | Detour)
        if must_serve:
            self.registrations.serve()  # what is older goes first
        if isinstance(message, Attach) and not self.takes_clients:
            self._post.write(sender, NotHome(message.generation, is_broker=False))
        elif isinstance(message, Introduce):
            self.registrations.on_introduce(sender)
        elif isinstance(message, Introduced):
            self.introduction.on_introduced(sender, message)
        elif isinstance(message, Keep):
            self.backlog.on_keep(message, held)
        elif isinstance(message, DISPATCH_LETTERS):
            self.dispatch.on_letter(sender, message, hops, held)
        elif isinstance(message, REGISTRATION_LETTERS):
            self.registrations.on_letter(sender, message)
        elif isinstance(message, HANDOFF_LETTERS):
            self.handoffs.on_letter(sender, message, hops, held)
            self.dispatch.barriers.check()
        elif isinstance(message, Nearer):
            self.clients.on_nearer(sender, message)

    def on_reset(self, peer: NodeId, unconfirmed: list[Letters]) -> None:
        self.handoffs.on_reset(peer, unconfirmed)
        self.registrations.on_reset(peer)
        self.dispatch.on_reset(peer, unconfirmed)

    def _on_topology_changed(self) -> None:
        self.introduction.on_neighbours([near.broker for near in self.manager.neighbours()])
        if not self._is_telling and self.dispatch.clients:
            # Brokers that are heard of within some time are told together, and not by all of us at once:
            # those that have producers soon, others when they may have some.
            self._is_telling = True
            soon = min(SOON_EACH * len(self.manager.topology.reachable()), SOON)
            for name, span in (("tell first", soon), ("tell", soon + self._later())):
                wait = int(span * (0.5 + 0.5 * self._host.random.random()))
                self._host.set_timer(name, self._host.now() + wait)

    # Questions.

    def _later(self) -> Micros:
        """How much longer than others brokers without producers wait to be told, where there are many."""
        return min(LATER_EACH * max(len(self.manager.topology.reachable()) - FEW, 0), LATER)

    @property
    def takes_clients(self) -> bool:
        return self.introduction.is_ready() and not self.retirement.is_begun

    def load(self) -> int:
        """What others are told: hundredths of the capacity."""
        return self.clients.load() if self.takes_clients else FULL

    def way(self, to: NodeId) -> tuple[NodeId, ...]:
        """Source routing between brokers; a client is reached by the underlay alone, or through the broker
        nearest to it where its modulators run elsewhere."""
        client = self.dispatch.clients.get(to)
        if client is not None and client.access is not None:
            return self.manager.path(client.access)[1:]
        return self.manager.path(to)[1:-1]

    def _refuses(self, message: Handoff) -> bool:
        """Whether a client that another broker wants to give us is too much."""
        if not self.takes_clients:
            return True
        more = 100 * message.work / SECOND / self.dispatch.processor.capacity
        return message.below is not None and self.clients.load() + more > message.below


class Retirement:
    def __init__(self, host: Host, options: OpportunisticOptions, brokerage: Brokerage) -> None:
        self._host = host
        self._patience = micros(options.registration_lifetime)
        self._brokerage = brokerage
        self._publishers: set[NodeId] = set()  # who may give us more events
        self._empty_since: Micros | None = None
        self._withdrawn_at: Micros | None = None
        self.is_begun = False

    def begin(self) -> None:
        self.is_begun = True

    def cancel(self) -> None:
        """The broker is needed after all, unless it has said its farewell."""
        if self._withdrawn_at is None:
            self.is_begun = False

    def on_letter(self, sender: NodeId, message: Letters) -> None:
        if isinstance(message, Publish):
            self._publishers.add(sender)
        elif isinstance(message, Leave):
            self._publishers.discard(sender)

    def is_over(self) -> bool:
        """Go on with it; whether the broker can end now."""
        brokerage, now = self._brokerage, self._host.now()
        if not self.is_begun:
            return False
        if brokerage.dispatch.clients or not brokerage.handoffs.is_idle():
            self._empty_since = None
            return False
        if self._empty_since is None:
            self._empty_since = now
        is_late = now - self._empty_since >= self._patience
        if not is_late and (self._publishers or not brokerage.dispatch.is_idle()):
            return False
        if self._withdrawn_at is None:
            self._withdrawn_at = now
            brokerage.manager.withdraw()
            is_broker = brokerage.manager.topology.is_broker
            others = [near.broker for near in brokerage.manager.neighbours() if is_broker(near.broker)]
            if others:
                brokerage.backlog.give_to(others[0])
        is_all_said = brokerage.manager.is_taken and brokerage.dispatch.is_idle()
        return is_all_said or now - self._withdrawn_at >= self._patience


def answer_for_no_broker(post: Post, sender: NodeId, message: Letters, held: Micros) -> None:
    """What a node that is a broker no more says to those who have not heard of it. Events go back to their
    clients; whoever waits for a word gets it."""
    match message:
        case Attach() | Want() | Here() | Nearer():
            post.write(sender, NotHome(message.generation, is_broker=False))
        case Publish():
            post.write(sender, Returned(message.event, message.age + held))
        case Leave():
            post.write(sender, Left(message.number))
        case Barrier():
            post.write(sender, Passed(message.producer, message.number))
        case Introduce():
            post.write(sender, Introduced((), (), ()))
        case Handoff():
            post.write(sender, Accepted(message.consumer, message.version, "no broker", FULL))
        case Detour():
            post.write(message.source, Switched(message.consumer, message.version))
            if message.is_back:
                post.write(message.home, Switched(message.consumer, message.version))
        case _:
            pass  # registrations and the like: nothing here depends on them
