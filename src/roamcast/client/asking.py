"""What a client says and gets back: the keywords of a publication, defined once for both clients and the
command; answers to its requests, receipts of its publications, what a query found."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypedDict, TypeVar

from roamcast.errors import EventError, InputError
from roamcast.event import Event, EventId, Publication, Value
from roamcast.units import Micros, NodeId, micros, seconds
from roamcast.wire.exchange import (
    APPLICATIONS,
    CORRELATION,
    EXPIRY,
    FLAGS,
    NODE_NAME,
    PLAIN_QOS,
    REPLY,
    response_topic,
)
from roamcast.wire.local import AnswerMessage

if TYPE_CHECKING:
    from roamcast.client.client import Client, Message


def publication(
    *,
    topic: str = "",
    attributes: Mapping[str, Value] | None = None,
    payload: bytes | bytearray | str = b"",
    type: str = "",
    lifetime: float | None = None,
    to: Iterable[NodeId] = (),
    multimode: bool = False,
    sealed: bool = False,
) -> Publication:
    """The publication that the keywords describe; `EventError` if they make no valid event.

    With a `lifetime` (seconds) the event is memorized: kept for absent and later subscribers. `to` names
    nodes; with `multimode` subscribers get it too. `sealed`: only nodes with the same content key can read
    it, relays only carry it.
    """
    lifetime_micros = 0 if lifetime is None else micros(lifetime)
    if lifetime is not None and lifetime_micros <= 0:
        raise EventError("lifetime", f"is {lifetime}; a memorized event lives for more than 0 seconds")
    if isinstance(payload, str):
        payload = payload.encode()
    elif isinstance(payload, bytearray):
        payload = bytes(payload)
    copied = dict(attributes) if attributes else {}
    return Publication(copied, payload, topic, type, lifetime_micros, tuple(to), multimode, sealed)


class PublicationKeywords(TypedDict, total=False):
    """The keywords of `publication`, as a type for `**keywords`."""

    topic: str
    attributes: Mapping[str, Value] | None
    payload: bytes | bytearray | str
    type: str
    lifetime: float | None
    to: Iterable[NodeId]
    multimode: bool
    sealed: bool


ANSWERS_MAX = 1_000  # as `exchange/inquiries.py` has it

Item = TypeVar("Item")


class Answer(NamedTuple):
    """One reply to a request."""

    event: Event
    hops: int
    after: float  # seconds since the request

    @property
    def payload(self) -> bytes:
        return self.event.payload

    @property
    def node(self) -> NodeId:
        """The node whose application answered."""
        return self.event.publisher


class Receipt(NamedTuple):
    """A node says that it has handed the event over."""

    node: NodeId
    name: str
    applications: int  # to so many of its programs; 0: it was addressed to the node, and none listens there
    after: float  # seconds since the publication


class Reached(NamedTuple):
    """Whom an event has reached when enough was known, or the deadline had come."""

    event: EventId
    receipts: tuple[Receipt, ...]
    missing: tuple[str, ...]  # nodes that were named and have not confirmed
    is_complete: bool  # whether as many confirmed as were asked for


class QueryResult(NamedTuple):
    """What was found, oldest first. `cut`: limit or octets allowed no more; the newest are here."""

    messages: "tuple[Message, ...]"
    ages: tuple[float, ...]  # seconds since the publication of each
    found: int

    @property
    def cut(self) -> bool:
        return self.found > len(self.messages)


class IncomingRequest:
    """A request of somebody on the mesh, to be answered once, several times or not at all."""

    def __init__(self, client: "Client", message: "Message", expires_at: float | None) -> None:
        self._client = client
        self.event = message.event
        self.hops = message.hops
        self.expires_at = expires_at  # on the loop's clock; None: the request has no deadline

    @property
    def topic(self) -> str:
        return self.event.topic

    @property
    def payload(self) -> bytes:
        return self.event.payload

    async def reply(
        self, payload: bytes | bytearray | str = b"", attributes: Mapping[str, Value] | None = None
    ) -> EventId:
        """`ClientError` if this program may not publish on the topic that the request names."""
        event, topic = self.event, response_topic(self.event)
        given: dict[str, Value] = {FLAGS: PLAIN_QOS, **(attributes or {})}
        if (correlation := event.attributes.get(CORRELATION)) is not None:
            given[CORRELATION] = correlation
        # To subscribers, and to the node that asked: its subscription may be too new to be known here.
        is_own = topic.startswith(REPLY)
        return await self._client.send(
            publication(
                topic=topic,
                payload=payload,
                attributes=given,
                lifetime=seconds(event.lifetime) if event.lifetime else None,
                to=() if is_own else (event.publisher,),
                multimode=not is_own,
            )
        )


class AnswerInbox(Generic[Item]):
    """What comes for a program, until it is taken. Iterate over it."""

    def __init__(self) -> None:
        self._waiting: deque[Item] = deque()
        self._arrival = asyncio.Event()
        self._ended: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        while not self._waiting:
            if self._ended is not None:
                raise self._ended
            self._arrival.clear()
            await self._arrival.wait()
        return self._waiting.popleft()

    @property
    def is_open(self) -> bool:
        return self._ended is None

    def put(self, item: Item) -> None:
        self._waiting.append(item)
        self._arrival.set()

    def end(self, error: Exception | None = None) -> None:
        """What has arrived can still be taken; then comes the error, or the end of the iteration."""
        self._ended = error or StopAsyncIteration()
        self._arrival.set()


class OpenRequest(AnswerInbox[AnswerMessage]):
    """A request of a client, and what the node brings for it until it says that it is over."""

    total = 0  # as the node says when it is over


def deadline_micros(deadline: float) -> Micros:
    """The deadline as the node takes it; the node says which values are allowed."""
    if not isinstance(deadline, int | float) or not 0 <= deadline < 1e9:
        raise InputError("deadline", f"is {deadline!r}; allowed: seconds")
    return micros(deadline)


def receipt_of(answer: AnswerMessage) -> Receipt:
    """The receipt in an answer, which may claim anything."""
    attributes = answer.event.attributes
    name, served = attributes.get(NODE_NAME), attributes.get(APPLICATIONS)
    return Receipt(
        answer.event.publisher,
        name if isinstance(name, str) else "",
        served if type(served) is int and served > 0 else 0,
        seconds(answer.after),
    )


def reached_of(event: EventId, wanted: int, named: tuple[str, ...], receipts: tuple[Receipt, ...]) -> Reached:
    confirmed = {str(one.node) for one in receipts} | {one.name for one in receipts}
    missing = tuple(name for name in named if name not in confirmed)
    return Reached(event, receipts, missing, not missing if named else len(receipts) >= wanted)


def expiry_of(event: Event) -> float | None:
    """Seconds that a request gives, counted from its arrival here: MQTT's message expiry."""
    expiry = event.attributes.get(EXPIRY)
    return float(expiry) if type(expiry) is int and expiry >= 0 else None
