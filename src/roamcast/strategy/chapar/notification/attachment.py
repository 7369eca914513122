"""A node and its broker: one-hop subscription, publication and notification (section 4.2), kept up to date.

In the paper a subscriber sends its subscription to one broker in its neighbourhood, and brokers look for
absent subscribers that have come back (equation 4). Brokers crash, frames are lost and nodes move from one
broker to the next. So here each node is responsible for its own state: its interests and the memorized
events it published. When it changes its broker, and once per consistency interval, it sends `Attach`: a
few octets of version and digests. The broker answers only if they differ, and only what one of the
two lacks is sent. The third digest is of the events that the node has received: it tells the broker which
notifications are done, so brokers need not tell each other.

The paper's own way is an option (`absent_subscribers`): whoever is available when an event comes counts as
notified; once per interval a broker sends its neighbours what they lack by its table (equations 4 and 5).
With purging (6) it then takes every available node off its list, because that node's own broker does the
same. An event is lost to a node whose broker failed to hand it over.
"""

from roamcast.event import EventId
from roamcast.kit.protocol import overflow_traced
from roamcast.strategy.chapar.messages import LIST_MAX, Attach, BrokerAnswer, Decline, WantOffered
from roamcast.strategy.chapar.notification.multicast import available, returned
from roamcast.strategy.chapar.notification.own_events import OwnEvents
from roamcast.strategy.chapar.state import State
from roamcast.strategy.chapar.tables import digest_of
from roamcast.strategy.chapar.tables.event_table import Memo
from roamcast.units import SECOND, Micros, NodeId, micros

DECLINED_FOR: Micros = 5 * SECOND  # how long a node that declined is not asked again; chosen by us
OFFER_MAX = 128  # events in one offer, so that it fits a frame; the next follows when it is answered
OWN_MAX = 1_000  # own memorized events in the digest; further ones are left to the brokers


class Attachment:
    def __init__(self, state: State) -> None:
        self._state = state
        self._declined: dict[NodeId, Micros] = {}
        self._own = OwnEvents(OWN_MAX, overflow_traced(state.host, "memorized", "OWN_MAX"))
        self._tried: set[EventId] = set()  # own events whose first frame was lost and repeated
        self._offers: dict[NodeId, frozenset[EventId]] = {}  # the latest offer to each node
        self._has_passes = state.options.absent_subscribers != "digest"

    # The node's side.

    def choose(self) -> None:
        """Keep the broker while it is a neighbouring broker, else take the lowest-numbered of those."""
        state = self._state
        if state.is_broker:
            state.attached = None
            return
        now = state.host.now()
        self._declined = {node: until for node, until in self._declined.items() if until > now}
        adjacent = state.adjacent_brokers()
        # If there is no other, one that declined (it may be appointed by now) or whose link has just failed
        # is better than none.
        candidates = [node for node in adjacent if node not in self._declined] or adjacent
        candidates = [node for node in candidates if not state.is_broken(node)] or candidates
        if state.attached in candidates:
            return
        state.attached = candidates[0] if candidates else None
        if state.attached is not None:
            self.check()

    def on_failure(self) -> None:
        """A frame to the broker was lost: take another one, or ask the same again in a moment."""
        state = self._state
        self.choose()
        state.host.set_timer("attach", state.host.now() + micros(state.in_force.retry_delay))

    def check(self) -> None:
        """Compare versions and digests with the broker, and ask for what is missing."""
        state = self._state
        broker = state.attached
        if broker is None:
            return
        self._forget_expired()
        received = (memo.id for memo in state.inbox.kept() if self._is_mine(memo))
        attach = Attach(
            state.interests.version,
            digest_of((memo.event.sequence,) for memo in self._own.in_order()),
            b"" if self._has_passes else digest_of(received),
            tuple(state.inbox.ask()),
        )
        state.send(broker, attach, own=True, on_failure=self.on_failure)

    def answer_for(self, memo: Memo) -> None:
        """Add a memorized event of this node to those it is responsible for."""
        self._own.add(memo)

    def hand_in(self, broker: NodeId, memo: Memo) -> None:
        """Publish in one hop: send an own event to the broker, in the order of the calls."""
        state = self._state

        def make() -> None:
            if memo.expires_at > state.host.now():
                message = memo.message(state.host.now())
                state.send(broker, message, own=True, on_failure=lambda: self._hand_in_again(memo))

        state.transfer(broker, memo.id, make)

    def own_events(self) -> list[Memo]:
        self._forget_expired()
        return self._own.in_order()

    def own_event(self, event: EventId) -> Memo | None:
        return self._own.find(event)

    def previous(self) -> tuple[int, Micros] | None:
        """The latest own memorized event that has not expired, and its remaining lifetime."""
        self._forget_expired()
        latest = self._own.latest()
        if latest is None:
            return None
        return latest.event.sequence, latest.expires_at - self._state.host.now()

    def on_answer(self, sender: NodeId, answer: BrokerAnswer) -> None:
        state = self._state
        if sender != state.attached:
            return
        if answer.version != state.interests.version:
            state.interests.overtake(answer.version)
            state.send_registers(sender, [state.register(state.node)], own=True)
        if answer.published is not None:
            held = set(answer.published)
            for memo in self.own_events():
                if memo.event.sequence not in held:
                    self.hand_in(sender, memo)
        offered = [EventId(*key) for key in answer.offered]
        missing = None if answer.missing is None else [EventId(*key) for key in answer.missing]
        lacking = state.inbox.learn(offered, missing)
        if offered:
            state.send(sender, WantOffered(tuple(lacking)), own=True)

    def on_decline(self, sender: NodeId) -> None:
        """The sender is no broker, although our routing table says it is."""
        self._declined[sender] = self._state.host.now() + DECLINED_FOR
        self.choose()

    # The broker's side.

    def on_attach(self, sender: NodeId, attach: Attach) -> None:
        state = self._state
        if not state.is_broker:
            state.send(sender, Decline())
            return
        state.events.forget_expired(state.host.now())
        version = state.filters.version(sender)
        of_sender = [key.sequence for key in state.events.known() if key.publisher == sender]
        published = None
        if digest_of((sequence,) for sequence in of_sender) != attach.published:
            published = tuple(of_sender[-LIST_MAX:])
        offered: tuple[EventId, ...] = ()
        if version == attach.version and not self._has_passes:
            offered = self._offer(sender, attach.received)
        missing = None
        if version == attach.version:
            unknown = [EventId(*key) for key in attach.waiting if EventId(*key) not in state.events]
            missing = (*state.events.missing(state.host.now()), *unknown)
            if len(offered) == OFFER_MAX or len(missing) > OFFER_MAX + len(unknown):
                missing = None  # there may be more than one message can tell
        if version != attach.version or published is not None or offered or attach.waiting:
            state.send(sender, BrokerAnswer(version, published, offered, missing))

    def notify(self, subscriber: NodeId) -> None:
        """Instant notification: the subscriber's interests have changed, so offer it what matches now."""
        offered = self._offer(subscriber, None)
        if offered:
            version = self._state.filters.version(subscriber)
            self._state.send(subscriber, BrokerAnswer(version, None, offered))

    def keep_list(self, memo: Memo) -> None:
        """The paper's way: USNV is whoever wants a new event and is not available now."""
        state = self._state
        if self._has_passes:
            memo.notified |= available(state.wanted_by(memo), state.available_vector())

    def pass_over(self) -> None:
        """The paper's periodic pass over the table: equations (4) and (5), and (6) with purging."""
        state = self._state
        if not self._has_passes:
            return
        neighbours, known = state.plain_neighbours(), state.available_vector()
        state.events.forget_expired(state.host.now())
        for memo in state.events.entries():
            unavailable = memo.unavailable(state.wanted_by(memo))
            for node in state.addresses.nodes(returned(unavailable, neighbours)):
                memo.notified |= state.addresses.bit(node)
                self._transfer(node, memo)
            if state.options.absent_subscribers == "pass_and_purge":
                memo.notified |= available(unavailable, known)

    def on_want(self, sender: NodeId, want: WantOffered) -> None:
        state = self._state
        if not state.is_broker:
            return
        bit = state.addresses.bit(sender)
        wanted = {EventId(*key) for key in want.events}
        offered = self._offers.pop(sender, frozenset())
        for memo in self._lacking(sender):
            if memo.id not in offered:
                continue  # came after the offer; it is offered next time
            memo.notified |= bit  # has it, or will get it now
            if memo.id in wanted:
                self._transfer(sender, memo)
        self.notify(sender)  # what an offer of `OFFER_MAX` events left out

    # Private.

    def _offer(self, subscriber: NodeId, received: bytes | None) -> tuple[EventId, ...]:
        """Equation (4) for one neighbour: the events that it wants and is not known to have."""
        lacking = self._lacking(subscriber)
        if not lacking:
            return ()
        if received is not None:
            bit = self._state.addresses.bit(subscriber)
            wanted = [memo for memo in self._state.events.entries() if self._state.wanted_by(memo) & bit]
            if digest_of(memo.id for memo in wanted if memo.event.publisher != subscriber) == received:
                for memo in lacking:
                    memo.notified |= bit  # equation (5): removed from USNV
                return ()
        offered = tuple(memo.id for memo in lacking[:OFFER_MAX])
        self._offers[subscriber] = frozenset(offered)
        return offered

    def _lacking(self, subscriber: NodeId) -> list[Memo]:
        state = self._state
        state.events.forget_expired(state.host.now())
        bit = state.addresses.bit(subscriber)
        return [
            memo
            for memo in state.events.entries()
            if memo.event.publisher != subscriber and returned(memo.unavailable(state.wanted_by(memo)), bit)
        ]

    def _transfer(self, to: NodeId, memo: Memo, tries: int = 2) -> None:
        """Send one event to a subscriber; if that fails, the subscriber counts as unavailable again."""
        state = self._state

        def make() -> None:
            def failed() -> None:
                memo.notified &= ~state.addresses.bit(to)
                if tries > 1:
                    self._transfer(to, memo, tries - 1)

            if state.is_broker and memo.expires_at > state.host.now():
                memo.notified |= state.addresses.bit(to)
                state.send(to, memo.message(state.host.now()), on_failure=failed)
            else:
                memo.notified &= ~state.addresses.bit(to)  # dismissed meanwhile: it was not sent

        state.transfer(to, memo.id, make)

    def _hand_in_again(self, memo: Memo) -> None:
        self.on_failure()
        if self._state.attached is not None and memo.id not in self._tried:
            self._tried.add(memo.id)  # repeated once at once; after that, `Attach` finds it
            self.hand_in(self._state.attached, memo)

    def _is_mine(self, memo: Memo) -> bool:
        return memo.event.publisher != self._state.node and self._state.may_match(memo.event, memo.event_id)

    def _forget_expired(self) -> None:
        now = self._state.host.now()
        self._state.inbox.forget_expired()
        self._own.forget_expired(now)
        self._tried = {event for event in self._tried if self._own.find(event) is not None}
