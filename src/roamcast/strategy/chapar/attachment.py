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
from roamcast.kit.protocol import Timer, overflow_traced
from roamcast.kit.tables import BoundedDict, ExpiringDict, LifetimeDict, unreported
from roamcast.strategy.chapar.identifiers import digest_of
from roamcast.strategy.chapar.memorized_event_table import EXPIRES_AT, Memo
from roamcast.strategy.chapar.messages import (
    LIST_MAX,
    Attach,
    BrokerAnswer,
    Chain,
    Decline,
    Memorized,
    WantOffered,
)
from roamcast.strategy.chapar.node_vectors import available, returned
from roamcast.strategy.chapar.part import Part, Shared
from roamcast.units import SECOND, Micros, NodeId, micros

# Chosen by us.
DECLINED_FOR: Micros = 5 * SECOND  # how long a node that declined is not asked again
OFFER_MAX = 128  # events in one offer, so that it fits a frame; the next follows when it is answered
OWN_MAX = 1_000  # own memorized events in the digest; further ones are left to the brokers
NODES_MAX = 1_024  # nodes that declined, or that something was offered to


class Attachment(Part):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.broker: NodeId | None = None  # this node's broker, if it is none itself
        self._check_timer = Timer(self._host, self.check)
        self._declined: ExpiringDict[NodeId, Micros] = ExpiringDict(NODES_MAX, unreported, int)
        # The memorized events that this node has published and answers for, in the order of publication.
        self.own: LifetimeDict[EventId, Memo] = LifetimeDict(
            OWN_MAX, overflow_traced(self._host, "memorized", "OWN_MAX"), EXPIRES_AT
        )
        # The latest offer to each node.
        self._offers: BoundedDict[NodeId, frozenset[EventId]] = BoundedDict(NODES_MAX, unreported)
        # The digest that did not fit although nothing was to be offered, and how often in a row.
        self._differed: BoundedDict[NodeId, tuple[bytes, int]] = BoundedDict(NODES_MAX, unreported)
        self._has_passes = self._in_force.absent_subscribers != "digest"

    # The node's side.

    def choose(self) -> None:
        """Keep the broker while it is a neighbouring broker, else take the lowest-numbered of those."""
        if self._brokers.is_broker:
            self.broker = None
            return
        self._declined.expire(self._host.now())
        adjacent = self._brokers.adjacent()
        # If there is no other, one that declined (it may be appointed by now) or whose link has just failed
        # is better than none.
        candidates = [node for node in adjacent if node not in self._declined] or adjacent
        candidates = [node for node in candidates if not self._messenger.is_broken(node)] or candidates
        if self.broker not in candidates:
            self.broker = candidates[0] if candidates else None
            self.check(at_once=self._in_force.meeting_check)

    def on_failure(self, _: object = None) -> None:
        """A frame to the broker was lost: take another one, or ask the same again in a moment."""
        self.choose()
        self._check_timer.after(micros(self._in_force.retry_delay))

    def check(self, at_once: bool = False) -> None:
        """Compare versions and digests with the broker, and ask for what is missing. Unless something waits
        for the answer it rides on the next HELLO, and is no frame of its own."""
        if self.broker is None:
            return
        own = self.own_events()
        received = (memo.id for memo in self._inbox.kept() if self._tables.may_match(memo))
        attach = Attach(
            self._tables.interests.version,
            digest_of((memo.event.sequence,) for memo in own),
            b"" if self._has_passes else digest_of(received),
            tuple(self._inbox.ask()),
            self.broker,
        )
        is_urgent = at_once or bool(attach.waiting)
        self._messenger.ride(attach, self.broker, at_once=is_urgent, own=True, on_failure=self.on_failure)

    def hand_in(self, memo: Memo) -> None:
        """Publish in one hop: send an own event to the broker, in the order of the calls. Without a
        neighbouring broker it waits for the next one, which learns of it by `Attach`."""

        def failed(_: object) -> None:
            self.on_failure()
            if self.broker is not None and not memo.is_repeated:
                memo.is_repeated = True  # repeated once at once; after that, `Attach` finds it
                self.hand_in(memo)

        if self.broker is not None:
            self._messenger.transfer(self.broker, memo.id, memo.unexpired, own=True, on_failure=failed)

    def own_events(self) -> list[Memo]:
        self._forget_expired()
        return [self.own[key] for key in sorted(self.own)]

    def previous(self, published_at: Micros) -> Chain:
        """The latest own memorized event that has not expired, and those before it that live longer."""
        self._forget_expired()
        return self.own[next(reversed(self.own))].chain(published_at) if self.own else ()

    def on_answer(self, sender: NodeId, answer: BrokerAnswer) -> None:
        if sender != self.broker:
            return
        interests = self._tables.interests
        if answer.version != interests.version:
            interests.overtake(answer.version)
            self._messenger.send_registers(sender, [self._tables.register(self._host.node)], own=True)
        if answer.published is not None:
            held = set(answer.published)
            for memo in self.own_events():
                if memo.event.sequence not in held:
                    self.hand_in(memo)
        offered = [EventId(*key) for key in answer.offered]
        missing = None if answer.missing is None else [EventId(*key) for key in answer.missing]
        lacking = self._inbox.learn(offered, missing)
        if offered:
            self._messenger.send(WantOffered(tuple(lacking)), sender, own=True)

    def on_decline(self, sender: NodeId, _: Decline) -> None:
        """The sender is no broker, although our routing table says it is."""
        self._declined[sender] = self._host.now() + DECLINED_FOR
        self.choose()

    # The broker's side.

    def on_attach(self, sender: NodeId, attach: Attach) -> None:
        if attach.to not in (None, self._host.node):
            return
        if not self._brokers.is_broker:
            self._messenger.decline(sender)
            return
        events, now = self._tables.events, self._host.now()
        events.forget_expired(now)
        version = self._tables.filters.version(sender)
        of_sender = [key.sequence for key in events.known() if key.publisher == sender]
        is_same = digest_of((sequence,) for sequence in of_sender) == attach.published
        published = None if is_same else tuple(of_sender[-LIST_MAX:])
        offered: tuple[EventId, ...] = ()
        missing = None
        if version == attach.version:
            if not self._has_passes:
                offered = self._offer(sender, attach.received)
            unknown = [EventId(*key) for key in attach.waiting if EventId(*key) not in events]
            missing = (*events.missing(now), *unknown)
            if len(offered) == OFFER_MAX or len(missing) > OFFER_MAX + len(unknown):
                missing = None  # there may be more than one message can tell
        if version != attach.version or published is not None or offered or attach.waiting:
            self._messenger.send(BrokerAnswer(version, published, offered, missing), sender)

    def notify(self, subscriber: NodeId) -> None:
        """Instant notification: the subscriber's interests have changed, so offer it what matches now."""
        offered = self._offer(subscriber, None)
        if offered:
            version = self._tables.filters.version(subscriber)
            self._messenger.send(BrokerAnswer(version, None, offered), subscriber)

    def keep_list(self, memo: Memo) -> None:
        """The paper's way: USNV is whoever wants a new event and is not available now."""
        if self._has_passes:
            memo.notified |= available(self._tables.wanted_by(memo), self._brokers.available_vector())

    def pass_over(self) -> None:
        """The paper's periodic pass over the table: equations (4) and (5), and (6) with purging."""
        if not self._has_passes:
            return
        neighbours, known = self._brokers.plain_neighbours(), self._brokers.available_vector()
        self._tables.events.forget_expired(self._host.now())
        for memo in self._tables.events.entries():
            unavailable = memo.unavailable(self._tables.wanted_by(memo))
            for node in self._tables.addresses.nodes(returned(unavailable, neighbours)):
                self._transfer(node, memo)
            if self._in_force.absent_subscribers == "pass_and_purge":
                memo.notified |= available(unavailable, known)

    def on_want(self, sender: NodeId, want: WantOffered) -> None:
        if not self._brokers.is_broker:
            return
        wanted = {EventId(*key) for key in want.events}
        offered = self._offers.pop(sender, frozenset())
        for memo in self._lacking(sender):
            if memo.id not in offered:
                continue  # came after the offer; it is offered next time
            if memo.id in wanted:
                self._transfer(sender, memo)
            else:
                memo.notified |= self._tables.addresses.bit(sender)  # it has it
        self.notify(sender)  # what an offer of `OFFER_MAX` events left out

    # Private.

    def _offer(self, subscriber: NodeId, received: bytes | None) -> tuple[EventId, ...]:
        """Equation (4) for one neighbour: the events that it wants and is not known to have."""
        lacking = self._lacking(subscriber)
        if received is not None:
            tables, bit = self._tables, self._tables.addresses.bit(subscriber)
            wanted = [memo for memo in tables.events.entries() if tables.wanted_by(memo) & bit]
            if digest_of(memo.id for memo in wanted if memo.event.publisher != subscriber) == received:
                for memo in lacking:
                    memo.notified |= bit  # equation (5): removed from USNV
                return ()
            if not lacking and self._has_lost(subscriber, received):
                for memo in wanted:
                    memo.notified &= ~bit
                lacking = self._lacking(subscriber)
        if not lacking:
            return ()
        offered = tuple(memo.id for memo in lacking[:OFFER_MAX])
        self._offers[subscriber] = frozenset(offered)
        return offered

    def _has_lost(self, subscriber: NodeId, received: bytes) -> bool:
        """Whether it says for the second time in a row that it lacks something, all of which has reached it:
        what waited for an earlier event, in memory, is gone when a node is killed. Once for each digest."""
        before, times = self._differed.get(subscriber, (b"", 0))
        times = 1 + times if before == received else 1
        self._differed[subscriber] = received, times
        return times == 2

    def _lacking(self, subscriber: NodeId) -> list[Memo]:
        tables, bit = self._tables, self._tables.addresses.bit(subscriber)
        tables.events.forget_expired(self._host.now())
        return [
            memo
            for memo in tables.events.entries()
            if memo.event.publisher != subscriber and returned(memo.unavailable(tables.wanted_by(memo)), bit)
        ]

    def _transfer(self, to: NodeId, memo: Memo, attempts: int = 2) -> None:
        """Send one event to a subscriber; if that fails, the subscriber counts as unavailable again."""
        bit = self._tables.addresses.bit(to)
        memo.notified |= bit

        def make(now: Micros) -> Memorized | None:
            if self._brokers.is_broker:
                return memo.unexpired(now)
            memo.notified &= ~bit  # dismissed meanwhile: it is not sent
            return None

        def failed(_: object) -> None:
            memo.notified &= ~bit
            if attempts > 1:
                self._transfer(to, memo, attempts - 1)

        self._messenger.transfer(to, memo.id, make, on_failure=failed)

    def _forget_expired(self) -> None:
        self._inbox.forget_expired()
        self.own.expire(self._host.now())
