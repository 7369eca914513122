"""One node's exchanges: what its gateways ask, and what it answers by itself.

Deliveries that are addressed to the node, or speak of receipts, pass by here (`Applications.intercept`).
Replies and receipts go to their inquiries, a publisher's "enough" to the receipts that wait, and neither to
any application.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Protocol

from roamcast.applications import Applications
from roamcast.broker.core import Delivery
from roamcast.broker.store import StoreFullError
from roamcast.errors import InputError
from roamcast.event import Event, EventId, Publication
from roamcast.exchange.inquiries import ExchangeHost, Inquiries, Inquiry, OnAnswer, Question, enough
from roamcast.exchange.queries import OnFound, Queries, QueryQuestion
from roamcast.exchange.receipts import Receipts
from roamcast.units import Micros
from roamcast.wire.exchange import RECEIPT, REPLY

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
        counters.gauge("inquiries", lambda: len(self._inquiries))
        counters.gauge("queries", lambda: len(self._queries))
        counters.gauge("receipts_sent_total", lambda: self._receipts.sent)

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
            with suppress(InputError, StoreFullError):  # then the receipts come that it would have spared
                self._session.publish(word)

    def _age(self, event: Event) -> Micros:
        """0 for an event that is not stored: a real-time one is handed over when it comes."""
        stored = self._applications.node.broker.store.find(event.id)
        return 0 if stored is None else max(0, self._host.now() - (stored.expires_at - event.lifetime))
