"""`roamcast watch --web`: the whole mesh on a page, from what the stream computes, on this machine alone."""

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType

from roamcast.client.blocking import LoopThread
from roamcast.gateway.options import WebOptions
from roamcast.gateway.web.answers import JSON, Document
from roamcast.gateway.web.server import WebServer
from roamcast.runtime.live.report.counters import Counters


class MeshPage:
    """A server in a thread of its own, for as long as the context lasts."""

    def __init__(self, document: Callable[[], bytes], port: int) -> None:
        documents = {"/mesh.json": Document(JSON, document)}
        options = WebOptions(port=port)
        self._server = WebServer(options, {}, Counters(), documents, page="live/mesh.html")

    @property
    def address(self) -> str:
        return self._server.address

    def wait(self) -> None:
        """Until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()

    def __enter__(self) -> "MeshPage":
        self._thread = LoopThread()
        try:
            self._thread.run(self._server.start())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._server.stop())
        self._thread.stop()
