"""Receipts: a node that has handed an event to an application says so, if the publisher wants to know.

An event that reaches two hundred nodes, of which any three suffice, must not make two hundred receipts. So a
node waits before it confirms, the nearest ones least, and the publisher says once when it has enough:

    wait = (hops - 1 + a draw between 0 and 1) x SPACING x (nodes heard + 1), at most half of the deadline

The nodes of each ring of hops confirm one after the other, about `SPACING` apart where all of a ring hear
each other, and the next ring waits until this one has had its time. The publisher's word "enough" cancels
what waits. It is lost for some perhaps: then there are some receipts more.

Nodes that are asked for by name are few: they only draw within one ring's time.
"""

from collections.abc import Callable
from random import Random

from roamcast.applications import ApplicationSession
from roamcast.broker.core import Delivery
from roamcast.broker.store import StoreFullError
from roamcast.errors import InputError, WireError
from roamcast.event import Event, EventId, Publication
from roamcast.exchange.inquiries import ExchangeHost
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import MILLISECOND, SECOND, Micros
from roamcast.wire.exchange import (
    APPLICATIONS,
    NODE_NAME,
    ReceiptWanted,
    ReplyAddress,
    reply_topic,
    wanted_of,
)

# Chosen by us.
SPACING: Micros = 20 * MILLISECOND  # about the time of a receipt and of "enough" over a hop
WAITING_MAX = 1_000
DONE_KEPT = 10_000
PER_SECOND = 100  # receipts of one node: a flood of events that want them makes no flood of receipts


class WaitingReceipt:
    __slots__ = ("applications", "cancel", "until", "wanted")

    def __init__(self, wanted: ReceiptWanted, applications: int, until: Micros) -> None:
        self.wanted = wanted
        self.applications = applications  # that were handed the event so far
        self.until = until  # the publisher's deadline
        self.cancel: Callable[[], None] = lambda: None


class Receipts:
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
