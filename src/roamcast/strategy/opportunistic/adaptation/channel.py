"""The internal system channel: how the parts of one broker tell each other what happened (section 3.3).

An event said while another is being handled waits its turn, so that no adaptor is called from within
itself. An adaptor that answers its own events for ever would never give the broker back: one input may
cause `EVENTS_MAX` events, what is beyond is thrown away and counted.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from roamcast.strategy.opportunistic.adaptation.events import SystemEvent

EVENTS_MAX = 1_000

Handler = Callable[[Any], None]
Wanted = Callable[[Any], bool]


class SystemChannel:
    def __init__(self) -> None:
        self._subscribers: dict[type, list[tuple[Handler, Wanted | None]]] = {}
        self._waiting: deque[SystemEvent] = deque()
        self._running = False
        self.thrown_away = 0

    def subscribe(self, kind: type, handler: Handler, wanted: Wanted | None = None) -> None:
        """`handler` hears of every event of this class that `wanted` lets pass."""
        self._subscribers.setdefault(kind, []).append((handler, wanted))

    def clear(self) -> None:
        """Nobody listens any more."""
        self._subscribers.clear()

    def publish(self, event: SystemEvent) -> None:
        """Subscribers hear of it in the order in which they subscribed."""
        if type(event) in self._subscribers:
            self._waiting.append(event)
            if not self._running:
                self._run()

    def _run(self) -> None:
        self._running = True
        handled = 0
        try:
            while self._waiting:
                if handled == EVENTS_MAX:
                    self.thrown_away += len(self._waiting)
                    self._waiting.clear()
                    return
                event = self._waiting.popleft()
                handled += 1
                for handler, wanted in self._subscribers.get(type(event), ()):
                    if wanted is None or wanted(event):
                        handler(event)
        finally:
            self._running = False
