"""`roamcast watch --web`: the whole mesh on a page, from what the stream computes, on this machine alone."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType

from roamcast.gateway.options import WebOptions
from roamcast.gateway.web.answers import JSON, Document
from roamcast.gateway.web.server import WebServer
from roamcast.runtime.live.report.counters import Counters

START_SECONDS = 30.0


class MeshPage:
    """A server in a thread of its own, for as long as the context lasts."""

    def __init__(self, document: Callable[[], bytes], port: int) -> None:
        documents = {"/mesh.json": Document(JSON, document)}
        options = WebOptions(port=port)
        self._server = WebServer(options, {}, Counters(), documents, page="live/mesh.html")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def address(self) -> str:
        return self._server.address

    def wait(self) -> None:
        """Until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()

    def __enter__(self) -> "MeshPage":
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(START_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(START_SECONDS)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()
