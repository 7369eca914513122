"""Chapar: brokers are multipoint relays. Here: role, timers, and which part handles what.

Read `__init__` first.
"""

from roamcast.broker.core import Subscription
from roamcast.errors import InputError, WireError
from roamcast.event import Event, EventClass, EventId
from roamcast.host import TimerName
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.chapar.consistency.check import Consistency
from roamcast.strategy.chapar.consistency.memory import Memory
from roamcast.strategy.chapar.interests import Move
from roamcast.strategy.chapar.messages import (
    CODEC,
    Attach,
    BrokerAnswer,
    Carry,
    Check,
    Decline,
    InterestChange,
    Lists,
    Memorized,
    Recap,
    Records,
    Request,
    Spread,
    WantOffered,
)
from roamcast.strategy.chapar.notification.attachment import Attachment
from roamcast.strategy.chapar.notification.courier import NotificationCourier
from roamcast.strategy.chapar.notification.recapitulation import Recapitulation
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.roles import BROKERS_MIN, TRANSITIONS, Role, elected
from roamcast.strategy.chapar.sealing import ContentReader
from roamcast.strategy.chapar.state import State
from roamcast.trace import DropReason, OverlayChanged
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

RECONSIDER_DELAY: Micros = 50 * MILLISECOND  # routes change in bursts; one look serves a burst
CHECK_OUT_PATIENCE: Micros = 2 * SECOND  # time-out from sending a broker what it lacks to asking again


class Chapar(Strategy):
    def __init__(self, context: StrategyContext, options: ChaparOptions) -> None:
        self.state = State(context, options)
        if not self.state.host_vector:
            raise InputError(
                "strategy.options.nodes_max",
                f"is {options.nodes_max}; node {self.state.node} needs more, or node_vectors = 'bloom'",
            )
        self._attachment = Attachment(self.state)
        self._recapitulation = Recapitulation(self.state)
        self._courier = NotificationCourier(self.state, self._attachment, self._recapitulation)
        self._memory = Memory(self.state, self._attachment)
        self._consistency = Consistency(self.state, self._memory, self._attachment)
        self._consistency.on_checked_out = self._drop_tables
        in_force = self.state.in_force
        self._interval = micros(in_force.consistency_interval)
        self._reconsidering = False
        self._role_interval = micros(in_force.role_interval)
        self._considered_at: Micros = -self._role_interval
        self._is_stopping = False

    # Inputs from applications.

    def publish(self, event: Event) -> None:
        self.publish_sealed(event, b"")

    def publish_sealed(self, event: Event, event_id: bytes) -> None:
        """Publish an encrypted event: matched by its identifier (`seal_id`), opened by its readers."""
        if event.event_class is EventClass.REALTIME or not self._memory.publish(event, event_id):
            self._courier.publish(event, event_id)

    def seal_id(self, clear: Event) -> bytes:
        """The identifier under which `publish_sealed` sends an event."""
        return self.state.layout.encode(self.state.layout.event_id(clear))

    def open_with(self, opener: ContentReader) -> None:
        """Set what opens sealed events on this node."""
        self.state.inbox.opener = opener

    def on_subscribed(self, subscription: Subscription) -> None:
        state = self.state
        for stored in state.broker.store.standing(state.host.now()):
            if stored.event.wants_subscribers and subscription.filter.matches(stored.event):
                state.inbox.mark_handed(stored.event.id)  # the core hands it over right after this
        move = state.interests.add(subscription)
        if move is not None:
            state.inbox.want_more(move.filter_id)
        self._spread(move)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._spread(self.state.interests.remove(subscription))

    # Inputs from the host and the underlay.

    def on_start(self) -> None:
        self._memory.resume()
        self._reconsider()
        host = self.state.host
        # Neighbours check at different instants, so that most find their tables equal already.
        host.set_timer("tick", host.now() + int(host.random.random() * self._interval))

    def on_stop(self) -> None:
        """A node with tables checks out, as if dismissed: another broker gets what only this node has."""
        self._is_stopping = True
        self._consistency.has_checked_out = False
        if self.state.is_broker:
            self._turn("dismissed")
        elif self.state.role is not Role.NODE:
            self._check_out()

    @property
    def is_leaving(self) -> bool:
        state = self.state
        if not self._is_stopping or state.role is Role.NODE or state.attached is None:
            return False
        return not self._consistency.has_checked_out or state.is_transferring

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self.state.broken.pop(neighbour, None)
        self._recapitulation.on_neighbour_up(neighbour)
        self._reconsider_soon()

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._recapitulation.on_neighbour_down(neighbour)
        self._reconsider_soon()

    def on_routes_changed(self) -> None:
        self._reconsider_soon()

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "tick":
                self._tick()
            case "reconsider":
                self._reconsidering = False
                self._reconsider()
            case "flood":
                self.state.on_flood_due()
            case "transfer":
                self.state.on_transfer_due()
            case "order":
                self._memory.on_order_due()
            case "attach":
                self._attachment.check()
            case "ask":
                self._memory.on_ask_due()
            case "dismissal":
                self._turn("time is over")
                self._check_out()
            case "check out":
                self._check_out()
            case "early check":
                self._consistency.on_early_due()
            case ("answer", int(broker)):
                self._consistency.on_answer_due(broker)
            case "recap":
                self._recapitulation.on_due()
            case ("overhear", int(publisher), int(sequence)):
                self._courier.on_overheard_due(EventId(publisher, sequence))
            case ("retry", int(number)):
                self._courier.on_retry(number)
            case _:
                raise AssertionError(f"a timer that nobody set: {name}")

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        try:
            message = CODEC.decode(payload)
        except WireError as error:
            self.state.drop(DropReason.WIRE, "chapar", str(error))
            return
        self.state.broken.pop(sender, None)
        match message:
            case Carry():
                self._courier.on_carry(sender, message)
            case Spread():
                self._courier.on_spread(sender, message)
            case Recap():
                self._recapitulation.on_recap(sender, message)
            case Memorized():
                self._memory.on_memorized(sender, message)
            case InterestChange():
                self._consistency.on_interest(sender, message)
            case Check():
                self._consistency.on_check(sender, message)
            case Lists():
                self._consistency.on_lists(sender, message)
            case Request():
                self._on_request(sender, message)
            case Records():
                self._consistency.on_records(sender, message)
            case Attach():
                self._attachment.on_attach(sender, message)
            case BrokerAnswer():
                self._attachment.on_answer(sender, message)
                self._memory.watch_order()
            case WantOffered():
                self._attachment.on_want(sender, message)
            case Decline():
                self._attachment.on_decline(sender)

    def _on_request(self, sender: NodeId, request: Request) -> None:
        """For real-time events that were broadcast lately, and for what the tables hold."""
        kept = tuple(key for key in request.events if not self._recapitulation.answer(sender, EventId(*key)))
        self._consistency.on_request(sender, Request(kept, request.subscribers))

    # The role.

    def _reconsider_soon(self) -> None:
        if not self._reconsidering:
            self._reconsidering = True
            at = max(self.state.host.now() + RECONSIDER_DELAY, self._considered_at + self._role_interval)
            self.state.host.set_timer("reconsider", at)

    def _reconsider(self) -> None:
        """Compute the brokers from the current routes, and whether this node is one."""
        state = self.state
        if self._is_stopping:
            return
        self._considered_at = state.host.now()
        state.brokers = self._brokers()
        if state.node in state.brokers and not state.is_broker:
            self._turn("appointed")
        elif state.node not in state.brokers and state.is_broker:
            self._turn("dismissed")
        self._attachment.choose()
        self._consistency.look()

    def _brokers(self) -> frozenset[NodeId]:
        underlay = self.state.underlay
        if self.state.options.brokers == "all":
            return frozenset([*underlay.known_nodes(), self.state.node])
        relays = underlay.relays()
        # The usual case needs no routes, which the underlay would have to compute just for this. A relay
        # within one hop proves that the relays are of this network, not of one that the node has left.
        around = {*underlay.neighbours(), self.state.node}
        if len(relays) >= BROKERS_MIN and not around.isdisjoint(relays):
            return frozenset(relays)
        return frozenset(elected(relays, [*underlay.known_nodes(), self.state.node]))

    def _turn(self, cause: str) -> None:
        """One transition of the role, with all that begins or ends with it."""
        state = self.state
        host = state.host
        before, state.role = state.role, TRANSITIONS[state.role, cause]
        match before, state.role:
            case _, Role.BROKER:
                host.cancel_timer("dismissal")
                host.cancel_timer("check out")
                host.trace(OverlayChanged(host.now(), state.node, "role_on", role="broker"))
                self._consistency.enter_own()
                self._memory.adopt([*state.inbox.kept(), *self._attachment.own_events()])
                if before is Role.NODE:
                    self._inherit()
            case Role.BROKER, _:
                host.trace(OverlayChanged(host.now(), state.node, "role_off", role="broker"))
                wait = micros(state.options.dismissal_transient_time)
                host.set_timer("dismissal", host.now() + wait)
                self._attachment.choose()
                self._check_out()
            case _, Role.NODE:
                state.filters = state.empty_filters()
                state.events.clear()

    def _inherit(self) -> None:
        brokers = self.state.adjacent_brokers()
        if brokers:
            attached = self.state.attached
            source = attached if attached in brokers else brokers[0]
            self._consistency.inherit(source)

    def _check_out(self) -> None:
        """Send a broker what it lacks. A node in `LEAVING` repeats this until the broker lacks nothing."""
        state = self.state
        if state.attached is not None:
            self._consistency.check_one(state.attached)
        if state.role is Role.LEAVING:
            state.host.set_timer("check out", state.host.now() + CHECK_OUT_PATIENCE)

    def _drop_tables(self) -> None:
        self.state.host.cancel_timer("check out")
        self._turn("checked out")

    # Private.

    def _tick(self) -> None:
        """The periodic table consistency check; nodes without tables check their own state with a broker."""
        state = self.state
        self._reconsider()  # an underlay need not report changes far away
        state.inbox.forget_expired()
        if state.is_broker:
            self._attachment.pass_over()
            self._consistency.check_all()
        else:
            self._attachment.check()
        early = int(state.host.random.random() * self._interval / 10)
        state.host.set_timer("tick", state.host.now() + self._interval - early)

    def _spread(self, move: Move | None) -> None:
        """Send a change of this node's interests to its broker or, as a broker, to all brokers."""
        if move is None:
            return
        state = self.state
        interest = InterestChange(state.node, move.version, state.layout.encode(move.filter_id), move.stands)
        if state.role is not Role.NODE:
            self._consistency.on_interest(state.node, interest)
        if not state.is_broker and state.attached is not None:
            state.send(state.attached, interest, own=True, on_failure=self._attachment.on_failure)
        # Without a neighbouring broker it waits for the next one, which learns of it by `Attach`.
