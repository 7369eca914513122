"""The same client for programs without asyncio: a loop of its own in a thread of its own.

```python
from roamcast.client import blocking

with blocking.connect("roamcast.sock") as client:
    with client.subscribe(topic="alarm/#") as alarms:
        client.publish(topic="alarm/fire", attributes={"level": 5})
        print(alarms.next(timeout=5.0))
```

The methods are those of the asyncio client, with its signatures and its documentation: each is made from the
other's (`waiting`, `each`, `entered`) and waits for it in the loop's thread.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from roamcast.client.asking import IncomingRequest
from roamcast.client.client import Client, ClientSubscription
from roamcast.client.connect import DEFAULT_SOCKET, open_client
from roamcast.units import NodeId

Wrapped = TypeVar("Wrapped")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Blocking(Generic[Wrapped]):
    """Something of the asyncio client, and the loop that it lives in."""

    def __init__(self, loop: "LoopThread", wrapped: Wrapped) -> None:
        self._loop = loop
        self._wrapped = wrapped


def waiting(
    method: Callable[Concatenate[Wrapped, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Blocking[Wrapped], Arguments], Result]:
    """A method that waits for the result of the other."""

    @wraps(method)
    def call(self: Blocking[Wrapped], /, *given: Arguments.args, **named: Arguments.kwargs) -> Result:
        return self._loop.run(method(self._wrapped, *given, **named))

    return call


def each(
    method: Callable[Concatenate[Wrapped, Arguments], AsyncGenerator[Result, None]],
) -> Callable[Concatenate[Blocking[Wrapped], Arguments], Iterator[Result]]:
    """An iterator over what the other gives; that is closed when nobody wants more of it."""

    @wraps(method)
    def call(
        self: Blocking[Wrapped], /, *given: Arguments.args, **named: Arguments.kwargs
    ) -> Iterator[Result]:
        source = method(self._wrapped, *given, **named)

        async def following() -> tuple[Result] | None:
            async for one in source:
                return (one,)
            return None

        try:
            while (found := self._loop.run(following())) is not None:
                yield found[0]
        finally:
            self._loop.run(source.aclose())

    return call


def each_request(
    method: Callable[Concatenate[Wrapped, Arguments], AsyncGenerator[IncomingRequest, None]],
) -> Callable[Concatenate[Blocking[Wrapped], Arguments], Iterator["BlockingRequest"]]:
    """The same, with requests that can be answered without asyncio."""
    plain = each(method)

    @wraps(method)
    def call(
        self: Blocking[Wrapped], /, *given: Arguments.args, **named: Arguments.kwargs
    ) -> Iterator[BlockingRequest]:
        for request in plain(self, *given, **named):
            yield BlockingRequest(self._loop, request)

    return call


def entered(
    method: Callable[Concatenate[Wrapped, Arguments], AbstractAsyncContextManager[ClientSubscription]],
) -> Callable[Concatenate[Blocking[Wrapped], Arguments], AbstractContextManager["BlockingSubscription"]]:
    """A context manager that holds a subscription of the asyncio client."""

    @wraps(method)
    @contextmanager
    def call(
        self: Blocking[Wrapped], /, *given: Arguments.args, **named: Arguments.kwargs
    ) -> Iterator[BlockingSubscription]:
        context = method(self._wrapped, *given, **named)
        subscription = self._loop.run(context.__aenter__())
        try:
            yield BlockingSubscription(self._loop, subscription)
        finally:
            self._loop.run(context.__aexit__(None, None, None))

    return call


class BlockingSubscription(Blocking[ClientSubscription]):
    next = waiting(ClientSubscription.next)
    move = waiting(ClientSubscription.move)
    __next__ = waiting(ClientSubscription.__anext__)

    def __iter__(self) -> "BlockingSubscription":
        return self


class BlockingRequest(Blocking[IncomingRequest]):
    reply = waiting(IncomingRequest.reply)

    def __init__(self, loop: "LoopThread", request: IncomingRequest) -> None:
        super().__init__(loop, request)
        self.event = request.event
        self.topic = request.topic
        self.payload = request.payload
        self.hops = request.hops


class BlockingClient(Blocking[Client]):
    publish = waiting(Client.publish)
    request = each(Client.request)
    query = waiting(Client.query)
    subscribe = entered(Client.subscribe)
    status = waiting(Client.status)
    advertise = waiting(Client.advertise)
    withdraw = waiting(Client.withdraw)
    close = waiting(Client.close)
    requests = each_request(Client.requests)

    @property
    def node(self) -> NodeId:
        return self._wrapped.node

    @property
    def addressed(self) -> BlockingSubscription:
        return BlockingSubscription(self._loop, self._wrapped.addressed)


@contextmanager
def connect(
    path: str | Path = DEFAULT_SOCKET, *, name: str = "", addressed: bool = False, wait: float = 0.0
) -> Iterator[BlockingClient]:
    """A client of the node that listens at `path`; ClientError if none does within `wait` seconds."""
    loop = LoopThread()
    try:
        opened = loop.run(open_client(path, name=name, addressed=addressed, wait=wait))
        client = BlockingClient(loop, opened)
        try:
            yield client
        finally:
            client.close()
    finally:
        loop.stop()


class LoopThread:
    """A loop of its own in a thread of its own."""

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
