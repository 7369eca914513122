"""One node's exchanges: what its gateways ask, and what it answers by itself.

Deliveries that are addressed to the node, or are about receipts, come here first (`Applications.intercept`).
Replies and receipts go to their inquiries, and a publisher's "enough" to the receipts that wait; applications
see none of them.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from roamcast.applications import Applications, ApplicationSession
from roamcast.broker.core import Delivery
from roamcast.broker.retained import clears, is_retained, order_of
from roamcast.broker.store import StoredEvent, StoreFullError
from roamcast.errors import InputError, WireError
from roamcast.event import PAYLOAD_BYTES_MAX, Event, EventId, Publication, is_sealed
from roamcast.exchange.inquiries import ExchangeHost, Inquiries, Inquiry, OnAnswer, Question, enough
from roamcast.filter import Filter
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import MILLISECOND, SECOND, Micros
from roamcast.wire.exchange import (
    APPLICATIONS,
    NODE_NAME,
    RECEIPT,
    REPLY,
    ReceiptWanted,
    ReplyAddress,
    reply_topic,
    wanted_of,
)

# Chosen by us.
SPACING: Micros = 20 * MILLISECOND  # about the time of a receipt and of "enough" over a hop
WAITING_MAX = 1_000
DONE_KEPT = 10_000
PER_SECOND = 100  # receipts of one node, so that a flood of events that want them makes no flood of these


class WaitingReceipt(msgspec.Struct, eq=False):
    wanted: ReceiptWanted
    applications: int  # that were handed the event so far
    until: Micros  # the publisher's deadline
    cancel: Callable[[], None] = lambda: None


class Receipts:
    """A node that has handed an event to an application says so, if the publisher wants to know.

    An event that reaches two hundred nodes, of which any three suffice, must not make two hundred receipts.
    So a node waits before it confirms, the nearest ones least, and the publisher says once when it has
    enough:

        wait = (hops - 1 + a draw between 0 and 1) x SPACING x (nodes heard + 1), at most half of the deadline

    The nodes of each ring of hops confirm one after the other, about `SPACING` apart where all of a ring hear
    each other, and the next ring waits until this one has had its time. The publisher's word "enough" cancels
    what waits. Where that word is lost, there are some more receipts.

    Nodes that are asked for by name are few: they only draw within one ring's time.
    """

    def __init__(
        self,
        host: ExchangeHost,
        session: ApplicationSession,
        random: Random,
        on_dropped: Callable[[str], None],
    ) -> None:
        self._host = host
        self._session = session
        self._random = random
        self._on_dropped = on_dropped
        self._waiting: BoundedDict[EventId, WaitingReceipt] = BoundedDict(WAITING_MAX, self._on_evicted)
        self._done: BoundedDict[EventId, None] = BoundedDict(DONE_KEPT, unreported)
        self._second: Micros = 0  # in which `_in_second` receipts were sent
        self._in_second = 0
        self.sent = 0

    def on_event(self, delivery: Delivery, applications: int, age: Micros) -> None:
        """An event that wants receipts is handed over to so many applications."""
        event = delivery.event
        if event.publisher == self._host.number or event.id in self._done:
            return
        if (waiting := self._waiting.get(event.id)) is not None:
            waiting.applications += applications
            return
        try:
            wanted = wanted_of(event)
        except WireError:
            self._on_dropped("malformed")
            return
        left = wanted.within - age
        if left <= 0 or (wanted.named and not {self._host.name, str(self._host.number)} & set(wanted.named)):
            return
        waiting = WaitingReceipt(wanted, applications, self._host.now() + left)
        self._waiting[event.id] = waiting
        waiting.cancel = self._host.later(
            self._delay(wanted, delivery.hops, left), lambda: self._on_due(event)
        )

    def on_enough(self, about: EventId) -> None:
        """The publisher's word that it has receipts enough."""
        self._done[about] = None
        if (waiting := self._waiting.pop(about, None)) is not None:
            waiting.cancel()

    def close(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def _delay(self, wanted: ReceiptWanted, hops: int, left: Micros) -> Micros:
        ring = SPACING * (len(wanted.named) if wanted.named else self._host.heard() + 1)
        rings = 0 if wanted.named else max(hops, 1) - 1
        draw = self._random.random()
        return min(int(ring * (rings + draw)), int(left / 2 * (1 + draw) / 2))

    def _on_due(self, event: Event) -> None:
        waiting = self._waiting.pop(event.id, None)
        if waiting is None:
            return
        self._done[event.id] = None
        address = ReplyAddress(event.publisher, waiting.wanted.token)
        receipt = Publication(
            {NODE_NAME: self._host.name, APPLICATIONS: waiting.applications},
            topic=reply_topic(address),
            # That of a memorized event may have to wait, as the event itself had to.
            lifetime=max(0, waiting.until - self._host.now()) if event.lifetime else 0,
        )
        if not self._has_room():
            self._on_dropped("too_many")
            return
        try:
            self._session.publish(receipt).check()
            self.sent += 1
        except InputError:  # shed or refused
            self._on_dropped("too_many")
        except StoreFullError:
            self._on_dropped("store_full")

    def _has_room(self) -> bool:
        second = self._host.now() // SECOND
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= PER_SECOND

    def _on_evicted(self, event: EventId, waiting: WaitingReceipt) -> None:
        waiting.cancel()
        self._on_dropped("too_many")


# Chosen by us.
WITHIN_MAX: Micros = 600 * SECOND
LIMIT_MAX = 10_000  # events in one answer: what a store holds
OCTETS_MAX = 2 * 1024 * 1024  # of one answer
OPEN_MAX = 100  # queries of one node


class QueryQuestion(NamedTuple):
    wanted: Filter
    within: Micros  # for the mesh to bring what it has
    latest: bool = False  # of each topic the newest only
    limit: int = 1_000  # the newest ones

    def check(self) -> None:
        """`InputError` for what nobody can want."""
        if not 0 <= self.within <= WITHIN_MAX:
            most, given = WITHIN_MAX // SECOND, self.within / SECOND
            raise InputError("deadline", f"is {given:g} seconds; allowed: 0 to {most}")
        if not 1 <= self.limit <= LIMIT_MAX:
            raise InputError("limit", f"is {self.limit}; allowed: 1 to {LIMIT_MAX}")


class FoundEvent(NamedTuple):
    event: Event
    hops: int
    age: Micros  # since its publication, as far as this node knows


class FoundEvents(NamedTuple):
    events: tuple[FoundEvent, ...]  # oldest first
    total: int  # more than the events where limit or octets cut the answer


OnFound: TypeAlias = Callable[[FoundEvents], None]


class Queries:
    """Queries over what the mesh has memorized.

    Every strategy brings memorized events to a new subscriber, from wherever it keeps them. So a query is a
    subscription that stands for a moment, and its answer is read from this node's store, where the events
    have come together: each once, of retained ones the newest, none that has expired. Where the strategy
    keeps everything on every node there is nothing to wait for.
    """

    def __init__(self, host: ExchangeHost, applications: Applications, session: ApplicationSession) -> None:
        self._host = host
        self._applications = applications
        self._session = session
        self._open: set[Callable[[], None]] = set()  # what ends each of them

    def __len__(self) -> int:
        return len(self._open)

    def open(self, question: QueryQuestion, on_found: OnFound) -> Callable[[], None]:
        """The answer comes by the call-back, maybe at once. What is returned ends the query without it."""
        question.check()
        if not question.within or self._applications.node.declared.stores_everywhere:
            on_found(self._found(question))
            return lambda: None
        if len(self._open) >= OPEN_MAX:
            raise InputError("query", f"is one too many; a node has at most {OPEN_MAX} open")
        session = self._applications.open(lambda _: None)
        session.subscribe(question.wanted)

        def end() -> None:
            self._open.discard(end)
            cancel()
            session.close()

        def answer() -> None:
            found = self._found(question)
            end()
            on_found(found)

        cancel = self._host.later(question.within, answer)
        self._open.add(end)
        return end

    def close(self) -> None:
        for end in list(self._open):
            end()

    def _found(self, question: QueryQuestion) -> FoundEvents:
        matching = self._matching(question.wanted)
        now = self._host.now()
        if question.latest:
            matching = newest_of_each_topic(matching)
        matching = sorted((one for one in matching if not clears(one[1])), key=_published)
        chosen: list[FoundEvent] = []
        octets = 0
        for stored, readable in reversed(matching[-question.limit :]):
            if len(readable.payload) > PAYLOAD_BYTES_MAX:
                continue  # an answer goes to a client in one message
            octets += stored.size
            if octets > OCTETS_MAX:
                break
            chosen.append(FoundEvent(readable, stored.hops, max(0, now - _published((stored, readable))[0])))
        return FoundEvents(tuple(reversed(chosen)), len(matching))

    def _matching(self, wanted: Filter) -> list[tuple[StoredEvent, Event]]:
        """What is kept, with the event as applications of this node may see it."""
        clear = [(one, one.event) for one in self._session.stored(wanted) if not is_sealed(one.event)]
        broker = self._applications.node.broker
        sealed = [one for one in broker.store.standing(self._host.now()) if is_sealed(one.event)]
        opened = [(one, broker.readable(one.event)) for one in sealed]
        return clear + [one for one in opened if one[1].wants_subscribers and wanted.matches(one[1])]


def newest_of_each_topic(found: Iterable[tuple[StoredEvent, Event]]) -> list[tuple[StoredEvent, Event]]:
    """Events without a topic count by type. Retained ones are compared by their order, the same on all nodes
    (`broker/retained.py`). Others have no stamp: this node compares when they were published."""
    retained: dict[str, tuple[StoredEvent, Event]] = {}
    others: dict[str, tuple[StoredEvent, Event]] = {}
    for one in found:
        event = one[1]
        topic = event.topic or event.type
        if is_retained(event):
            before = retained.get(topic)
            if before is None or order_of(before[1]) < order_of(event):
                retained[topic] = one
        else:
            before = others.get(topic)
            if before is None or _published(before) < _published(one):
                others[topic] = one
    for topic, one in retained.items():
        if topic not in others or _published(others[topic]) < _published(one):
            others[topic] = one
    return list(others.values())


def _published(found: tuple[StoredEvent, Event]) -> tuple[Micros, int, int]:
    """When, on this node's clock, as far as its age is known here; then by publisher and number."""
    stored, event = found
    return stored.expires_at - event.lifetime, event.publisher, event.sequence


__all__ = ["ExchangeHost", "Exchanges"]


class NodeCounters(Protocol):
    def count(self, name: str, amount: float = 1, **labels: str) -> None: ...

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None: ...


class Exchanges:
    def __init__(
        self, host: ExchangeHost, applications: Applications, random: Random, counters: NodeCounters
    ) -> None:
        self._host = host
        self._applications = applications
        self._session = applications.open(lambda _: None)
        self._inquiries = Inquiries(
            host, random, lambda reason: counters.count("answers_dropped_total", reason=reason)
        )
        self._receipts = Receipts(
            host,
            self._session,
            random,
            lambda reason: counters.count("receipts_dropped_total", reason=reason),
        )
        self._queries = Queries(host, applications, self._session)
        applications.intercept(self._intercept)
        counters.gauge("inquiries", lambda: self.inquiries)
        counters.gauge("queries", lambda: len(self._queries))
        counters.gauge("receipts_sent_total", lambda: self.receipts_sent)
        self._counters = counters

    @property
    def receipts_sent(self) -> int:
        return self._receipts.sent

    @property
    def inquiries(self) -> int:
        """How many are open."""
        return len(self._inquiries)

    def ask(
        self, publication: Publication, question: Question, on_answer: OnAnswer, on_over: Callable[[], None]
    ) -> Inquiry:
        """An open inquiry; the caller publishes its `publication` and says so to it, or closes it.
        `InputError` for what cannot be asked."""
        return self._inquiries.open(publication, question, on_answer, on_over)

    def query(self, question: QueryQuestion, on_found: OnFound) -> Callable[[], None]:
        """The answer comes by the call-back, maybe at once. What is returned ends the query without it."""
        return self._queries.open(question, on_found)

    def close(self) -> None:
        self._inquiries.close_all()
        self._queries.close()
        self._receipts.close()
        self._applications.intercept(None)
        self._session.close()

    def _intercept(self, delivery: Delivery) -> bool:
        """Whether a delivery is none for applications."""
        event = delivery.event
        if RECEIPT in event.attributes:
            wanted = event.attributes[RECEIPT]
            if type(wanted) is int:
                self._receipts.on_enough(EventId(event.publisher, wanted))
                return True
            self._receipts.on_event(delivery, self._applications.takers(delivery), self._age(event))
        if delivery.subscriptions or not event.topic.startswith(REPLY):
            return False
        self._on_answer(delivery)
        return True

    def _on_answer(self, delivery: Delivery) -> None:
        ended = self._inquiries.on_answer(delivery)
        word = None if ended is None else enough(ended)
        if word is not None:
            with suppress(InputError, StoreFullError):  # without it, receipts come that nobody needs
                self._session.publish(word).check()
                self._counters.count("receipts_enough_total")

    def _age(self, event: Event) -> Micros:
        """0 for an event that is not stored: a real-time one is handed over when it comes."""
        stored = self._applications.node.broker.store.find(event.id)
        return 0 if stored is None else max(0, self._host.now() - (stored.expires_at - event.lifetime))
