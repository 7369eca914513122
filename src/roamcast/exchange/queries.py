"""Queries over what the mesh has memorized.

Every strategy brings memorized events to a new subscriber, from wherever it keeps them. So a query is a
subscription that stands for a moment, and its answer is read from this node's store, where the events
have come together: each once, of retained ones the newest, none that has expired. Where the strategy keeps
everything on every node there is nothing to wait for.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from roamcast.applications import Applications, ApplicationSession
from roamcast.broker.retained import clears, is_retained, order_of
from roamcast.broker.store import StoredEvent
from roamcast.errors import InputError
from roamcast.event import PAYLOAD_BYTES_MAX, Event
from roamcast.exchange.inquiries import ExchangeHost
from roamcast.filter import Filter
from roamcast.units import SECOND, Micros
from roamcast.wire.sealed_event import is_sealed

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
        if not question.within or self._applications.node.stores_everywhere:
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
            octets += stored.size
            if octets > OCTETS_MAX:
                break
            if len(readable.payload) > PAYLOAD_BYTES_MAX:
                continue  # an answer goes to a client in one message
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
