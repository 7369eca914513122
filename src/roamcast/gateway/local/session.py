"""One client of the local socket: its requests become calls on sessions of the node, its events messages.

Each subscription has a session of its own, so each gets every event once, and what is memorized when it
begins: two subscriptions of one program are as independent as those of two.

No I/O here: the server moves the octets, an in-process client passes the messages as they are.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from roamcast.applications import AdmissionOutcome, ApplicationSession, LargePublication
from roamcast.broker.core import Delivery
from roamcast.broker.retained import AT, FLAGS, clears
from roamcast.broker.store import StoreFullError
from roamcast.errors import InputError, WireError
from roamcast.event import Event, EventId, Publication
from roamcast.exchange import FoundEvents, QueryQuestion, Question
from roamcast.filter import Filter
from roamcast.gateway.access import TopicRights
from roamcast.gateway.node import GatewayNode
from roamcast.modulator import ModulatorSpec
from roamcast.units import Micros
from roamcast.wire.exchange import RECEIPT
from roamcast.wire.local import (
    PARTS_AHEAD,
    AdvertiseRequest,
    AnswerMessage,
    AskRequest,
    ClientHello,
    ClientMessage,
    DeliveryMessage,
    Done,
    EndRequest,
    Failed,
    ForgetRequest,
    LargeRequest,
    NodeMessage,
    Over,
    PartsPublished,
    PayloadPart,
    PublishRequest,
    QueryRequest,
    RevokeRequest,
    StatusAnswer,
    StatusRequest,
    SubscribeRequest,
    UnreadableMessageError,
    UnsubscribeRequest,
    WayAnswer,
    WayRequest,
    Welcome,
    WithdrawRequest,
)

if TYPE_CHECKING:
    from roamcast.client import Client

SUBSCRIPTIONS_MAX = 10_000  # of one client
ASKED_MAX = 1_000  # requests and queries of one client that are open; chosen by us
TRANSFERS_MAX = 8  # large payloads that one client publishes at a time; chosen by us


class LocalSession:
    def __init__(
        self, node: GatewayNode, send: Callable[[NodeMessage], None], rights: TopicRights | None = None
    ) -> None:
        """`rights`: what this client may do; None: everything."""
        self._node = node
        self._rights = rights
        self._send = send
        # For publications, and for what is addressed to the node.
        self._session: ApplicationSession | None = None
        self._subscriptions: dict[int, ApplicationSession] = {}  # by the client's number
        # What ends each open request and query of the client, by its number.
        self._asked: dict[int, Callable[[], None]] = {}
        self._large: dict[int, LargePublication] = {}  # by the client's request
        self.wait = 0.0  # seconds until the client's next message, where it publishes too fast

    def on_message(self, message: ClientMessage) -> None:
        """WireError if the client breaks the protocol; the caller then ends the connection."""
        if isinstance(message, ClientHello):
            if self._session is not None:
                raise WireError("hello", 0, "came twice")
            self._session = self._node.applications.open(
                partial(self._on_delivery, ()), addressed=message.addressed and self._rights is None
            )
            self._send(Welcome(self._node.number, self._node.name))
            return
        if self._session is None:
            raise WireError("client message", 0, "came before the hello")
        try:
            match message:
                case PublishRequest():
                    event = self._publish(self._session, message.publication)
                    self._confirm(message.request, event.sequence, event.lifetime)
                case LargeRequest():
                    self._begin(self._session, message)
                case PayloadPart():
                    self._on_part(message)
                case SubscribeRequest():
                    self._subscribe(message)
                case UnsubscribeRequest():
                    self._unsubscribe(message.number)
                    self._send(Done(message.request))
                case AdvertiseRequest():
                    self._session.advertise(message.type)
                    self._send(Done(message.request))
                case WithdrawRequest():
                    self._session.withdraw(message.type)
                    self._send(Done(message.request))
                case AskRequest():
                    self._ask(self._session, message)
                case QueryRequest():
                    self._query(message)
                case EndRequest():
                    self._asked.pop(message.ended, _nothing)()
                    self._send(Done(message.request))
                case StatusRequest():
                    self._send(StatusAnswer(message.request, self._node.status()))
                case WayRequest():
                    way = self._node.way_of(EventId(message.publisher, message.sequence))
                    self._send(WayAnswer(message.request, way))
                case RevokeRequest() | ForgetRequest():
                    if self._rights is not None:
                        raise InputError("the request", "is refused: this user has rights by topic only")
                    if isinstance(message, RevokeRequest):
                        self._node.revoke(message.device, undo=message.undo)
                    else:
                        self._node.forget(message.device)
                    self._send(Done(message.request))
        except (InputError, StoreFullError, WireError) as error:
            # Request 0 asks for no answer, but a refusal is always sent.
            self._send(Failed(message.request, str(error)[:1000]))

    def on_unreadable(self, error: UnreadableMessageError) -> None:
        """A message that is none, such as a publication that can be no event. The client is told why."""
        if self._session is None:
            raise WireError("client message", 0, "came before the hello")
        self._send(Failed(error.request, error.problem.removeprefix("cannot be read: ")[:1000]))

    def close(self) -> None:
        for end in self._asked.values():
            end()
        self._asked.clear()
        for large in self._large.values():
            large.cancel()
        self._large.clear()
        for number in sorted(self._subscriptions):
            self._unsubscribe(number)
        if self._session is not None:
            self._session.close()
            self._session = None

    def _publish(self, session: ApplicationSession, publication: Publication) -> Event:
        """`InputError` for what this client may not publish, or not now."""
        if self._rights is not None:
            self._rights.check_publication(publication)
        admission = session.publish(publication)
        if admission.published is not None or admission.outcome is AdmissionOutcome.SHED:
            self._node.counters.count("local_received_total")
        self.wait = admission.wait
        return admission.published or admission.event  # the second one says why there is none

    def _confirm(self, request: int, sequence: int, lifetime: Micros) -> None:
        if not request:
            return
        done = Done(request, sequence)
        if lifetime:
            self._node.when_durable(lambda: self._send(done), lambda error: self._on_unkept(request, error))
        else:
            self._send(done)

    def _on_unkept(self, request: int, error: StoreFullError) -> None:
        """It is in the mesh, but a crash of this node would lose it."""
        self._asked.pop(request, _nothing)()
        self._send(Failed(request, str(error)[:1000]))

    def _ask(self, session: ApplicationSession, message: AskRequest) -> None:
        request = message.request
        self._check_asked(request)
        inquiry = self._node.exchanges.ask(
            message.publication,
            Question(message.within, message.answers, message.receipts, message.named),
            lambda answer, after: self._answer(request, answer.event, answer.hops, after),
            lambda: self._over(request, inquiry.answers),
        )
        self._asked[request] = inquiry.close
        try:
            event = self._publish(session, inquiry.publication)
        except BaseException:
            del self._asked[request]
            inquiry.close()
            raise
        inquiry.published(event)
        self._confirm(request, event.sequence, event.lifetime)

    def _query(self, message: QueryRequest) -> None:
        request = message.request
        self._check_asked(request)
        wanted = Filter.decode(message.filter)
        if self._rights is not None:
            wanted = self._rights.narrowed(wanted)

        def on_found(found: FoundEvents) -> None:
            for event, hops, age in found.events:
                self._answer(request, plain(event), hops, age)
            self._over(request, found.total)

        question = QueryQuestion(wanted, message.within, message.latest, message.limit)
        self._asked[request] = _nothing
        try:
            end = self._node.exchanges.query(question, on_found)
        except InputError:
            del self._asked[request]
            raise
        if request in self._asked:
            self._asked[request] = end
        self._send(Done(request))

    def _check_asked(self, request: int) -> None:
        if not request or request in self._asked:
            raise InputError("request", f"has the number {request}; allowed: one that is not in use")
        if len(self._asked) >= ASKED_MAX:
            raise InputError("request", f"is one too many; a client may have {ASKED_MAX} open")

    def _answer(self, request: int, event: Event, hops: int, after: Micros) -> None:
        self._send(AnswerMessage(request, event, hops, after))

    def _over(self, request: int, total: int) -> None:
        self._asked.pop(request, None)
        self._send(Over(request, total))

    def _begin(self, session: ApplicationSession, message: LargeRequest) -> None:
        request = message.request
        if self._rights is not None:
            self._rights.check_publication(message.frame)
        if len(self._large) >= TRANSFERS_MAX or request in self._large:
            problem = f"is one too many; a client may publish {TRANSFERS_MAX} large ones at a time"
            raise InputError("publication", problem)
        self._large[request] = session.begin(
            message.frame,
            message.size,
            message.digest,
            on_end=lambda error: self._on_large_end(request, error),
            on_progress=lambda parts: self._send(PartsPublished(request, parts)),
        )

    def _on_part(self, message: PayloadPart) -> None:
        large = self._large.get(message.request)
        if large is None:
            return  # what follows a request that failed
        if len(large.waiting) >= PARTS_AHEAD:
            raise WireError("payload part", 0, f"is more than {PARTS_AHEAD} ahead")
        large.add([message.octets])

    def _on_large_end(self, request: int, error: Exception | None) -> None:
        transfer = self._large.pop(request).transfer
        if error is None:
            self._node.counters.count("local_received_total")
            self._confirm(request, transfer.first, transfer.lifetime)
        else:
            self._send(Failed(request, str(error)[:1000]))

    def _subscribe(self, message: SubscribeRequest) -> None:
        wanted = Filter.decode(message.filter)
        if self._rights is not None:
            wanted = self._rights.narrowed(wanted)
        modulator = ModulatorSpec(message.modulator, message.parameters) if message.modulator else None
        if modulator is not None:
            self._node.applications.node.check_modulator(modulator)  # before the answer
        self._unsubscribe(message.number)
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise InputError("subscription", f"is one too many; a client may have {SUBSCRIPTIONS_MAX}")
        session = self._node.applications.open(partial(self._on_delivery, (message.number,)))
        self._subscriptions[message.number] = session
        self._send(Done(message.request))  # before the stored events that match
        session.subscribe(wanted, modulator)

    def _unsubscribe(self, number: int) -> None:
        session = self._subscriptions.pop(number, None)
        if session is not None:
            session.close()

    def _on_delivery(self, numbers: tuple[int, ...], delivery: Delivery) -> None:
        if not delivery.event.payload and clears(delivery.event):
            return  # a message between MQTT gateways
        self._send(DeliveryMessage(plain(delivery.event), numbers, delivery.hops))


INTERNAL = {FLAGS, AT, RECEIPT}
"""Attributes that are words between nodes."""


def plain(event: Event) -> Event:
    """An event as its publisher meant it."""
    if not INTERNAL & event.attributes.keys():
        return event
    kept = {name: value for name, value in event.attributes.items() if name not in INTERNAL}
    return msgspec.structs.replace(event, attributes=kept)


def _nothing() -> None:
    pass


class DirectLink:
    """Client and session in one process (`roamcast.client.NodeLink`): without a socket and without octets."""

    def __init__(self, node: GatewayNode, on_message: Callable[[NodeMessage], None]) -> None:
        self._session = LocalSession(node, on_message)

    def send(self, message: ClientMessage) -> None:
        self._session.on_message(message)

    async def drain(self) -> None:
        """Nothing waits: a message has been handled when `send` returns."""

    def close(self) -> None:
        self._session.close()


async def client_of(node: GatewayNode, *, name: str = "", addressed: bool = False) -> "Client":
    """A client of a node that runs in this process and loop."""
    from roamcast.client import Client  # half a megabyte, which other nodes do not need

    return await Client.open(
        lambda on_message, on_lost: DirectLink(node, on_message), name=name, addressed=addressed
    )
