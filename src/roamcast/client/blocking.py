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
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from roamcast.client import client as asynchronous
from roamcast.client.client import Message, filter_from
from roamcast.client.connect import DEFAULT_SOCKET, open_client
from roamcast.client.publication import PublicationKeywords
from roamcast.event import EventId
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

    def publish(self, **keywords: Unpack[PublicationKeywords]) -> EventId:
        """As `Client.publish`."""
        return self._loop.run(self._client.publish(**keywords))

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
