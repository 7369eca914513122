"""One input at a time: the clock advances, the handler runs, then applications get their deliveries.

Everything that happens to a node's layers (a frame, a timer, a failure of a frame, the start) comes
through here, so that no handler is called while another one runs. An exception in a handler costs that
input and not the node: it is logged with its traceback and counted, and the node goes on. Tests replace
`on_error` and see the exception.
"""

import logging
from collections.abc import Callable

from roamcast.runtime.live.port.clock import Clock
from roamcast.runtime.live.report.counters import Counters
from roamcast.units import Micros

logger = logging.getLogger("roamcast.node")


class Inputs:
    def __init__(self, clock: Clock, counters: Counters) -> None:
        self.clock = clock
        self.after: Callable[[], None] = lambda: None  # runs when a handler has returned
        self.on_error: Callable[[Exception], None] = _log
        self._counters = counters
        self._running = False
        self._open = True

    def close(self) -> None:
        """From here on nothing reaches a layer."""
        self._open = False

    def handle(self, handler: Callable[..., None], *arguments: object) -> None:
        self.clock.enter()
        self._run(handler, arguments)

    def handle_not_before(self, at: Micros, handler: Callable[..., None], *arguments: object) -> None:
        self.clock.enter_not_before(at)
        self._run(handler, arguments)

    def _run(self, handler: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if not self._open:
            return
        assert not self._running, "an input came while another one was being handled"
        self._running = True
        try:
            handler(*arguments)
        except Exception as error:
            self._counters.count("handler_errors_total")
            self.on_error(error)
        finally:
            self._running = False
        self.after()


def _log(error: Exception) -> None:
    logger.error("a handler raised an error; the input is dropped", exc_info=error)
