"""The client: requests and their answers, subscriptions and their messages. The link moves them.

A client may outlive its node: `resume` gives it a new link, and its subscriptions go on. After a restart a
node delivers stored events again, because it does not know which ones we have. The client leaves those out,
so each subscription gets each event once. A request without an answer fails; the node may have accepted it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar, Unpack, overload

import msgspec

from roamcast.broker.seen import SeenEvents, event_key
from roamcast.chunks import CHUNK_BYTES, digest_of, pieces
from roamcast.client.asking import (
    ANSWERS_MAX,
    Answer,
    AnswerInbox,
    IncomingRequest,
    OpenRequest,
    PublicationKeywords,
    QueryResult,
    Reached,
    deadline_micros,
    expiry_of,
    publication,
    reached_of,
    receipt_of,
)
from roamcast.client.near import FollowedCircle, Position, first_of, positions
from roamcast.errors import EventError, InputError, RoamcastError
from roamcast.event import PAYLOAD_BYTES_MAX, Event, EventId, Publication
from roamcast.units import NodeId, micros, seconds
from roamcast.wire.exchange import response_topic
from roamcast.wire.local import (
    FILTER_BYTES_MAX,
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
    LargeEventMessage,
    LargeRequest,
    MissedEvents,
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
    UnsubscribeRequest,
    WayAnswer,
    WayRequest,
    Welcome,
    WithdrawRequest,
)
from roamcast.wire.status import EventWay, NodeStatus

if TYPE_CHECKING:  # not loaded at run time: a program that only publishes needs neither
    from roamcast.filter import Filter
    from roamcast.modulator import ModulatorSpec


OnProgress: TypeAlias = Callable[[int, int], None]
"""Gets the octets that are in the mesh, and how many there are."""
Answered = TypeVar("Answered")


class LargeSending:
    """A payload above the bound of one event, on its way in parts, of which a few are sent at a time.

    The node says how many are in the mesh, so `on_progress` tells how far it really is, and small events of
    the same program never wait behind more than those few parts.
    """

    def __init__(self, link: "NodeLink", ready: Publication, request: int) -> None:
        self._link = link
        self._ready = ready
        self._request = request
        self._published = 0  # parts
        self._changed = asyncio.Event()

    def on_published(self, message: PartsPublished) -> None:
        self._published = message.parts
        self._changed.set()

    async def run(self, answer: "asyncio.Future[Answered]", on_progress: OnProgress | None) -> Answered:
        """The node's answer, which may be an error."""
        payload = self._ready.payload
        answer.add_done_callback(lambda _: self._changed.set())
        frame = self._ready.without_payload()
        self._link.send(LargeRequest(self._request, frame, len(payload), digest_of(payload)))
        parts = pieces(payload)
        sent = 0
        while not answer.done():
            while sent - self._published < PARTS_AHEAD and (part := next(parts, None)) is not None:
                self._link.send(PayloadPart(self._request, part))
                sent += 1
            self._changed.clear()
            await self._changed.wait()
            if on_progress is not None:
                on_progress(min(self._published * CHUNK_BYTES, len(payload)), len(payload))
        return await answer


NodeAnswer: TypeAlias = Done | StatusAnswer | WayAnswer
Kind = TypeVar("Kind", Done, StatusAnswer, WayAnswer)

WAITING_MAX = 100_000
"""Messages that may wait in one subscription for the program to take them; then the oldest is dropped. Chosen
by us; it bounds the memory."""


class ClientError(RoamcastError):
    """The node refused a request, or is gone."""


class NoEventError(EventError, ClientError):
    """What was to be published can be no event. Nothing was sent; the connection goes on."""


class Message(NamedTuple):
    event: Event
    hops: int  # radio hops of this copy; 0 for an event of this very node


class NodeLink(Protocol):
    """How messages get to the node."""

    def send(self, message: ClientMessage) -> None: ...

    async def drain(self) -> None:
        """Wait while the node reads more slowly than we write."""
        ...

    def close(self) -> None: ...


class ClientSubscription(AnswerInbox[Message]):
    """Iterate over it. Events wait here until they are taken; `missed` counts the dropped ones."""

    def __init__(
        self,
        client: "Client",
        number: int,
        wanted: "Filter | None" = None,
        modulator: "ModulatorSpec | None" = None,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        super().__init__()
        self._client = client
        self.number = number
        self.wanted = wanted
        self.modulator = modulator
        self.missed = 0
        self._had = SeenEvents()
        self._waiting_max = waiting_max
        self._closed = False
        self._circle: FollowedCircle | None = None

    async def next(self, timeout: float | None = None) -> Message:
        """The next message; TimeoutError after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            return await anext(self)

    def follow(self, circle: FollowedCircle) -> None:
        """Follow a position: `move` changes it from now on."""
        self._circle = circle

    async def move(self, latitude: float, longitude: float) -> None:
        """This program is somewhere else, in degrees: a subscription with `near` follows, where it must."""
        if self._circle is None:
            raise InputError("move", "is for subscriptions with near")
        if (wanted := self._circle.around(latitude, longitude)) is not None and not self._closed:
            self.wanted = wanted
            await self._client.renew(self)

    async def close(self) -> None:
        """End the subscription; what has arrived can still be taken."""
        if not self._closed:
            self._closed = True
            self.end()
            await self._client._end(self)

    def put(self, item: Message) -> None:
        event = item.event
        now = micros(asyncio.get_running_loop().time())
        key = event_key(event.publisher, event.sequence)
        if not self._had.observe(key, now, now + event.lifetime):
            return
        if len(self._waiting) >= self._waiting_max:
            self._waiting.popleft()
            self.missed += 1
        super().put(item)


class Client:
    """A program's connection to a node: publish, subscribe, ask. Made by `connect` or
    `roamcast.gateway.local.client_of`."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self.keep = False  # whether subscriptions outlive the link, because `resume` will be called
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # when the link ends
        self.node: NodeId = -1
        self.node_name = ""
        self.missed = 0  # events that the node left out because this program read too slowly
        self.refused = 0  # publications of `publish_soon` that the node refused or shed, and why the last one
        self.refused_because = ""
        self._link: NodeLink | None = None
        self._next_request = 1
        self._next_number = 1
        self._answers: dict[int, asyncio.Future[NodeAnswer]] = {}
        self._large: dict[int, LargeSending] = {}  # by request
        self._subscriptions: dict[int, ClientSubscription] = {}
        self._asked: dict[int, OpenRequest] = {}  # open requests and queries
        self._addressed: ClientSubscription | None = None
        self._advertised: set[str] = set()
        self._welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._lost: ClientError | None = ClientError("this client is not connected")

    @classmethod
    async def open(
        cls,
        link: Callable[[Callable[[NodeMessage], None], Callable[[str], None]], NodeLink],
        *,
        name: str = "",
        addressed: bool = False,
    ) -> "Client":
        """`link` is made with the two call-backs: for each message, and for the end of the link."""
        client = cls(name)
        if addressed:
            client._addressed = ClientSubscription(client, 0)
        await client.resume(link)
        return client

    async def resume(
        self, link: Callable[[Callable[[NodeMessage], None], Callable[[str], None]], NodeLink]
    ) -> None:
        """Go on over a new link: say hello, and renew all subscriptions."""
        loop = asyncio.get_running_loop()
        self.lost = loop.create_future()
        self._welcome = loop.create_future()
        self._link = link(self._on_message, self._on_lost)
        self._link.send(ClientHello(self._name, self._addressed is not None))
        welcome = await self._welcome
        self.node, self.node_name = welcome.node, welcome.name
        for subscription in list(self._subscriptions.values()):
            await self._ask(self._subscribe(subscription), self._link)
        for type in sorted(self._advertised):
            await self._ask(AdvertiseRequest(self._request(), type), self._link)
        if self.lost.done():
            raise ClientError(self.lost.result())
        self._lost = None  # only now: events published from here on reach all subscriptions

    @overload
    async def publish(self, **keywords: Unpack[PublicationKeywords]) -> EventId: ...

    @overload
    async def publish(
        self,
        *,
        reached: int | Iterable[NodeId | str],
        deadline: float = 5.0,
        **keywords: Unpack[PublicationKeywords],
    ) -> Reached: ...

    async def publish(
        self,
        *,
        reached: int | Iterable[NodeId | str] | None = None,
        deadline: float = 5.0,
        **keywords: Unpack[PublicationKeywords],
    ) -> EventId | Reached:
        """Publish what the keywords say (see `publication`), and wait until the node has accepted it.

        A memorized event, one with a `lifetime`, is on this node's disk when this returns. After an
        `NoEventError`, for keywords that make no valid event, nothing was sent.

        With `reached`, wait until so many other nodes have handed it to an application, or until the named
        ones have, at most `deadline` seconds, and tell which. Nodes named by number get it in any case.
        """
        ready = _checked(keywords)
        if reached is None:
            return await self.send(ready)
        named = () if isinstance(reached, int) else tuple(dict.fromkeys(str(one) for one in reached))
        wanted = reached if isinstance(reached, int) else max(1, len(named))
        if not isinstance(reached, int) and not named:
            raise InputError("reached", "names no node; allowed: how many, or which")
        within = deadline_micros(deadline)
        request = AskRequest(self._request(), _whole(ready), within, max(wanted, 0), True, named)
        async with self._asking(request) as (done, asked):
            receipts = tuple([receipt_of(answer) async for answer in asked])
        return reached_of(EventId(self.node, done.sequence), wanted, named, receipts)

    async def request(
        self,
        *,
        deadline: float = 5.0,
        answers: int | None = 1,
        memorized: bool = False,
        **keywords: Unpack[PublicationKeywords],
    ) -> AsyncGenerator[Answer, None]:
        """Publish a request and iterate over its replies: at most so many, within `deadline` seconds.

        With `answers=None` it lasts until the deadline. With `memorized`, request and replies are kept for
        that long, for nodes that cannot be reached at once.
        """
        if memorized:
            keywords["lifetime"] = deadline
        ready, most = _checked(keywords), ANSWERS_MAX if answers is None else max(answers, 0)
        request = AskRequest(self._request(), _whole(ready), deadline_micros(deadline), most)
        async with self._asking(request) as (_, asked):
            async for answer in asked:
                yield Answer(answer.event, answer.hops, seconds(answer.after))

    async def requests(
        self,
        topic: str | None = None,
        *,
        wanted: "Filter | None" = None,
        sql: str | None = None,
        type: str | None = None,
    ) -> AsyncGenerator[IncomingRequest, None]:
        """Iterate over requests that match; `await request.reply(…)` answers one."""
        async with self.subscribe(wanted, topic=topic, sql=sql, type=type) as subscription:
            async for message in subscription:
                if response_topic(message.event):
                    left, now = expiry_of(message.event), asyncio.get_running_loop().time()
                    yield IncomingRequest(self, message, None if left is None else now + left)

    async def query(
        self,
        topic: str | None = None,
        *,
        wanted: "Filter | None" = None,
        sql: str | None = None,
        type: str | None = None,
        xpath: str | None = None,
        latest: bool = False,
        limit: int = 1_000,
        deadline: float = 2.0,
    ) -> QueryResult:
        """What the mesh has memorized, as far as it comes within `deadline` seconds: the newest `limit`
        events, with `latest` the last of each topic."""
        encoded = _encoded(filter_from(wanted, topic=topic, sql=sql, type=type, xpath=xpath))
        within = deadline_micros(deadline)
        request = QueryRequest(self._request(), encoded, within, latest, max(limit, 0))
        async with self._asking(request) as (_, asked):
            found = [answer async for answer in asked]
        messages = tuple(Message(answer.event, answer.hops) for answer in found)
        return QueryResult(messages, tuple(seconds(answer.after) for answer in found), asked.total)

    async def publish_soon(self, **keywords: Unpack[PublicationKeywords]) -> None:
        """Publish without waiting for the node's answer; waits only for room in the send buffer. A payload
        that travels in chunks is waited for."""
        ready = _checked(keywords)
        if ready.is_large:
            await self.send(ready)
            return
        link = self._standing()
        link.send(PublishRequest(0, ready))
        await link.drain()

    async def send(self, ready: Publication, on_progress: OnProgress | None = None) -> EventId:
        """As `publish`, with a publication that was made before. `on_progress`: of a payload that travels in
        chunks, how many octets of how many are in the mesh."""
        if ready.is_large:
            return await self._send_large(ready, on_progress)
        done = await self._ask(PublishRequest(self._request(), ready))
        return EventId(self.node, done.sequence)

    async def status(self) -> NodeStatus:
        """What the node is, its peers, and what is wrong."""
        return (await self._ask(StatusRequest(self._request()), kind=StatusAnswer)).status

    async def way_of(self, event: EventId) -> EventWay:
        """Which way an event went, as far as the node knows."""
        request = WayRequest(self._request(), event.publisher, event.sequence)
        return (await self._ask(request, kind=WayAnswer)).way

    async def revoke(self, device: NodeId, *, undo: bool = False) -> None:
        """Exclude a lost device from the network, on every member that hears of it; `undo`: it was found."""
        await self._ask(RevokeRequest(self._request(), device, undo))

    async def forget(self, device: NodeId) -> None:
        """Another device has this number from now on; `ClientError` if the node knows no key for it."""
        await self._ask(ForgetRequest(self._request(), device))

    async def advertise(self, type: str) -> None:
        """Say that events of this type will come, if the node's strategy takes advertisements: the way to
        their subscribers is there before them. It stands until `withdraw`, or until this client closes."""
        await self._ask(AdvertiseRequest(self._request(), type))
        self._advertised.add(type)

    async def withdraw(self, type: str) -> None:
        """End an advertisement; `ClientError` for one that is not there, or not any more."""
        self._advertised.discard(type)
        await self._ask(WithdrawRequest(self._request(), type))

    @asynccontextmanager
    async def subscribe(
        self,
        wanted: "Filter | None" = None,
        *,
        topic: str | None = None,
        sql: str | None = None,
        type: str | None = None,
        xpath: str | None = None,
        modulator: "ModulatorSpec | None" = None,
        waiting_max: int = WAITING_MAX,
        near: float | None = None,
        position: Position | str | None = None,
    ) -> AsyncIterator[ClientSubscription]:
        """A subscription for the length of the block. All conditions that are given must hold.

        `near`: only events whose `lat` and `lon` are within so many metres of `position`: a pair of degrees
        that `subscription.move` changes, or where to look for it (`near.py`).

        With a `modulator`, its output, computed in a broker, comes instead of the events, if the node's
        strategy supports modulators (`docs/use/modulators.md`)."""
        is_bare = near is not None and (wanted, topic, sql, type, xpath) == (None,) * 5
        asked = None if is_bare else filter_from(wanted, topic=topic, sql=sql, type=type, xpath=xpath)
        circle, places, follower = None, None, None
        if near is not None:
            circle = FollowedCircle(asked, near)
            if position is None:
                raise InputError("near", "needs a position: degrees, gpsd or a file")
            if isinstance(position, str):
                places = positions(position)
                position = await first_of(places, position)
            asked = circle.around(*position)
        assert asked is not None
        subscription = await self.open_subscription(asked, modulator=modulator, waiting_max=waiting_max)
        if circle is not None:
            subscription.follow(circle)
        if places is not None:
            follower = asyncio.create_task(_follow(subscription, places))
        try:
            yield subscription
        finally:
            if follower is not None:
                follower.cancel()
                await asyncio.gather(follower, return_exceptions=True)
            await subscription.close()

    async def renew(self, subscription: ClientSubscription) -> None:
        """What it asks for has changed. While the node is away it is remembered."""
        try:
            await self._ask(self._subscribe(subscription))
        except ClientError:
            if not self.keep:
                raise

    async def open_subscription(
        self, wanted: "Filter", *, modulator: "ModulatorSpec | None" = None, waiting_max: int = WAITING_MAX
    ) -> ClientSubscription:
        """A subscription that lasts until it is closed."""
        number = self._next_number
        self._next_number += 1
        subscription = ClientSubscription(self, number, wanted, modulator, waiting_max)
        self._subscriptions[number] = subscription
        try:
            await self._ask(self._subscribe(subscription))
        except RoamcastError:
            self._subscriptions.pop(number, None)
            raise
        return subscription

    @property
    def addressed(self) -> ClientSubscription:
        """What is sent to this node by name, if the client was opened with `addressed`."""
        if self._addressed is None:
            raise ClientError("this client was not opened with addressed=True")
        return self._addressed

    async def close(self) -> None:
        self.keep = False
        if self._link is not None:
            link, self._link = self._link, None
            link.close()
        self._on_lost("this client is closed")

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Private.

    def _subscribe(self, subscription: ClientSubscription) -> SubscribeRequest:
        assert subscription.wanted is not None, "what is sent to the node by name needs no subscription"
        wanted, modulator = _encoded(subscription.wanted), subscription.modulator
        if modulator is None:
            return SubscribeRequest(self._request(), subscription.number, wanted)
        name, parameters = modulator.name, modulator.parameters
        return SubscribeRequest(self._request(), subscription.number, wanted, name, parameters)

    def _request(self) -> int:
        self._next_request += 1
        return self._next_request - 1

    def _standing(self) -> NodeLink:
        if self._lost is not None:
            raise self._lost
        assert self._link is not None
        return self._link

    async def _ask(
        self,
        message: PublishRequest
        | SubscribeRequest
        | UnsubscribeRequest
        | AdvertiseRequest
        | WithdrawRequest
        | StatusRequest
        | WayRequest
        | RevokeRequest
        | ForgetRequest
        | AskRequest
        | QueryRequest
        | EndRequest,
        link: NodeLink | None = None,
        kind: type[Kind] = Done,  # type: ignore[assignment]
    ) -> Kind:
        link = link or self._standing()
        future = self._answers[message.request] = asyncio.get_running_loop().create_future()
        try:
            link.send(message)
            answer = await future
        finally:
            self._answers.pop(message.request, None)
        assert isinstance(answer, kind)
        return answer

    @asynccontextmanager
    async def _asking(self, message: AskRequest | QueryRequest) -> AsyncIterator[tuple[Done, OpenRequest]]:
        """The node has accepted it; what comes back is there for the length of the block."""
        asked = self._asked[message.request] = OpenRequest()
        try:
            yield await self._ask(message), asked
        finally:
            del self._asked[message.request]
            if asked.is_open and self._lost is None:
                self._standing().send(EndRequest(self._request(), message.request))

    async def _send_large(self, ready: Publication, on_progress: OnProgress | None) -> EventId:
        request = self._request()
        sending = self._large[request] = LargeSending(self._standing(), ready, request)
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        try:
            done = await sending.run(answer, on_progress)
        finally:
            del self._large[request], self._answers[request]
        assert isinstance(done, Done)
        return EventId(self.node, done.sequence)

    async def _end(self, subscription: ClientSubscription) -> None:
        if self._subscriptions.pop(subscription.number, None) is not None and self._lost is None:
            await self._ask(UnsubscribeRequest(self._request(), subscription.number))

    def _on_message(self, message: NodeMessage) -> None:
        match message:
            case DeliveryMessage(event, numbers, hops):
                self._on_event(Message(event, hops), numbers)
            case LargeEventMessage(event, numbers, hops, payload):
                self._on_event(Message(msgspec.structs.replace(event, payload=payload), hops), numbers)
            case PartsPublished(request):
                if request in self._large:
                    self._large[request].on_published(message)
            case Done(request) | StatusAnswer(request) | WayAnswer(request):
                answer = self._answers.get(request)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case Failed(request, problem):
                answer = self._answers.get(request)
                if answer is not None and not answer.done():
                    answer.set_exception(ClientError(problem))
                elif not self._welcome.done():  # the node does not take this client
                    self._welcome.set_exception(ClientError(problem))
                elif not request:
                    self.refused += 1
                    self.refused_because = problem
            case AnswerMessage(request) if request in self._asked:
                self._asked[request].put(message)
            case Over(request, total) if request in self._asked:
                self._asked[request].total = total
                self._asked[request].end()
            case MissedEvents(events):
                self.missed += events
            case Welcome():
                if not self._welcome.done():
                    self._welcome.set_result(message)

    def _on_event(self, arrived: Message, numbers: tuple[int, ...]) -> None:
        if not numbers and self._addressed is not None:
            self._addressed.put(arrived)
        for number in numbers:
            subscription = self._subscriptions.get(number)
            if subscription is not None:
                subscription.put(arrived)

    def _on_lost(self, problem: str) -> None:
        if not self.lost.done():
            self.lost.set_result(problem)
            if not self._welcome.done():
                self._welcome.set_exception(ClientError(problem))
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ClientError(problem))
        self._lost = ClientError(problem)
        for asked in self._asked.values():
            asked.end(self._lost)
        if not self.keep:
            for subscription in [*self._subscriptions.values(), *filter(None, [self._addressed])]:
                subscription.end(self._lost)


def _checked(keywords: PublicationKeywords) -> Publication:
    try:
        return publication(**keywords)
    except EventError as error:
        raise NoEventError(*error.args) from None


def _whole(ready: Publication) -> Publication:
    """Not in chunks: those who answer, and say what has reached them, do so for one event."""
    if ready.is_large:
        allowed = f"{PAYLOAD_BYTES_MAX} are allowed for a request, and with `reached`"
        raise NoEventError("payload", f"has {len(ready.payload)} octets; {allowed}")
    return ready


def _encoded(wanted: "Filter") -> bytes:
    encoded = wanted.encode()
    if len(encoded) > FILTER_BYTES_MAX:
        raise InputError(
            "subscription", f"has a filter of {len(encoded)} octets; at most {FILTER_BYTES_MAX} are allowed"
        )
    return encoded


async def _follow(subscription: ClientSubscription, places: AsyncGenerator[Position, None]) -> None:
    async with aclosing(places):
        async for place in places:
            await subscription.move(*place)


def filter_from(
    wanted: "Filter | None" = None,
    *,
    topic: str | None = None,
    sql: str | None = None,
    type: str | None = None,
    xpath: str | None = None,
) -> "Filter":
    """All given conditions together; FilterError if one is outside its language, or none is given."""
    from roamcast.filter import Filter

    languages = ((Filter.topic, topic), (Filter.sql, sql), (Filter.of_type, type), (Filter.xpath, xpath))
    parts = [read(text) for read, text in languages if text is not None]
    if wanted is not None:
        parts.insert(0, wanted)
    if not parts:
        raise InputError("subscription", "say what is wanted: a topic, SQL, a type, XPath, or a Filter")
    return reduce(and_, parts)
