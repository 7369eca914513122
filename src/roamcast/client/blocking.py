"""The same client for programs without asyncio: a loop of its own in a thread of its own.

```python
from roamcast.client import blocking

with blocking.connect("roamcast.sock") as client:
    with client.subscribe(topic="alarm/#") as alarms:
        client.publish(topic="alarm/fire", attributes={"level": 5})
        print(alarms.next(timeout=5.0))
```
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from roamcast.client import client as asynchronous
from roamcast.client.asking import Answer, IncomingRequest, QueryResult, Reached
from roamcast.client.client import Message, filter_from
from roamcast.client.connect import DEFAULT_SOCKET, open_client
from roamcast.client.publication import PublicationKeywords
from roamcast.event import EventId, Value
from roamcast.units import NodeId
from roamcast.wire.status import NodeStatus

if TYPE_CHECKING:
    from roamcast.filter import Filter
    from roamcast.modulator import ModulatorSpec

Result = TypeVar("Result")


@contextmanager
def connect(
    path: str | Path = DEFAULT_SOCKET, *, name: str = "", addressed: bool = False, wait: float = 0.0
) -> Iterator["BlockingClient"]:
    """A client of the node that listens at `path`; ClientError if none does within `wait` seconds."""
    with _loop_in_a_thread() as loop:
        client = BlockingClient(loop, path, name, addressed, wait)
        try:
            yield client
        finally:
            client.close()


class BlockingClient:
    def __init__(
        self, loop: "_Loop", path: str | Path, name: str, addressed: bool, wait: float = 0.0
    ) -> None:
        self._loop = loop
        self._client = loop.run(open_client(path, name=name, addressed=addressed, wait=wait))

    @property
    def node(self) -> NodeId:
        return self._client.node

    @overload
    def publish(self, **keywords: Unpack[PublicationKeywords]) -> EventId: ...

    @overload
    def publish(
        self,
        *,
        reached: int | Iterable[NodeId | str],
        deadline: float = 5.0,
        **keywords: Unpack[PublicationKeywords],
    ) -> Reached: ...

    def publish(
        self,
        *,
        reached: int | Iterable[NodeId | str] | None = None,
        deadline: float = 5.0,
        **keywords: Unpack[PublicationKeywords],
    ) -> EventId | Reached:
        """As `Client.publish`."""
        if reached is None:
            return self._loop.run(self._client.publish(**keywords))
        return self._loop.run(self._client.publish(reached=reached, deadline=deadline, **keywords))

    def request(
        self,
        *,
        deadline: float = 5.0,
        answers: int | None = 1,
        memorized: bool = False,
        **keywords: Unpack[PublicationKeywords],
    ) -> Iterator[Answer]:
        """As `Client.request`."""
        return self._each(
            self._client.request(deadline=deadline, answers=answers, memorized=memorized, **keywords)
        )

    def requests(
        self,
        topic: str | None = None,
        *,
        wanted: "Filter | None" = None,
        sql: str | None = None,
        type: str | None = None,
    ) -> Iterator["BlockingRequest"]:
        """As `Client.requests`."""
        for request in self._each(self._client.requests(topic, wanted=wanted, sql=sql, type=type)):
            yield BlockingRequest(self._loop, request)

    def query(
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
        """As `Client.query`."""
        chosen = filter_from(wanted, topic=topic, sql=sql, type=type, xpath=xpath)
        return self._loop.run(
            self._client.query(wanted=chosen, latest=latest, limit=limit, deadline=deadline)
        )

    def status(self) -> NodeStatus:
        """As `Client.status`."""
        return self._loop.run(self._client.status())

    def advertise(self, type: str) -> None:
        """As `Client.advertise`."""
        self._loop.run(self._client.advertise(type))

    def withdraw(self, type: str) -> None:
        """As `Client.withdraw`."""
        self._loop.run(self._client.withdraw(type))

    @contextmanager
    def subscribe(
        self,
        wanted: "Filter | None" = None,
        *,
        topic: str | None = None,
        sql: str | None = None,
        type: str | None = None,
        xpath: str | None = None,
        modulator: "ModulatorSpec | None" = None,
    ) -> Iterator["BlockingSubscription"]:
        """As `Client.subscribe`."""
        whole = filter_from(wanted, topic=topic, sql=sql, type=type, xpath=xpath)
        subscription = self._loop.run(self._client.open_subscription(whole, modulator=modulator))
        try:
            yield BlockingSubscription(self._loop, subscription)
        finally:
            self._loop.run(subscription.close())

    @property
    def addressed(self) -> "BlockingSubscription":
        return BlockingSubscription(self._loop, self._client.addressed)

    def close(self) -> None:
        self._loop.run(self._client.close())

    def _each(self, source: AsyncGenerator[Result, None]) -> Iterator[Result]:
        """What an iterator of the loop gives; it is closed when nobody wants more of it."""

        async def following() -> tuple[Result] | None:
            async for one in source:
                return (one,)
            return None

        try:
            while (found := self._loop.run(following())) is not None:
                yield found[0]
        finally:
            self._loop.run(source.aclose())


class BlockingRequest:
    """As `IncomingRequest`."""

    def __init__(self, loop: "_Loop", request: IncomingRequest) -> None:
        self._loop = loop
        self._request = request
        self.event = request.event
        self.topic = request.topic
        self.payload = request.payload
        self.hops = request.hops

    def reply(
        self, payload: bytes | bytearray | str = b"", attributes: Mapping[str, Value] | None = None
    ) -> EventId:
        return self._loop.run(self._request.reply(payload, attributes))


class BlockingSubscription:
    def __init__(self, loop: "_Loop", subscription: asynchronous.ClientSubscription) -> None:
        self._loop = loop
        self._subscription = subscription

    def __iter__(self) -> "BlockingSubscription":
        return self

    def __next__(self) -> Message:
        return self.next()

    def next(self, timeout: float | None = None) -> Message:
        """The next message; TimeoutError after `timeout` seconds."""
        return self._loop.run(self._subscription.next(timeout))


class _Loop:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="roamcast-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        future: Future[Result] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C while waiting: do not leave the coroutine behind
            future.cancel()
            raise

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


@contextmanager
def _loop_in_a_thread() -> Iterator[_Loop]:
    loop = _Loop()
    try:
        yield loop
    finally:
        loop.stop()
