"""The turn of chunks: one after the other, for all large payloads of a node, when the mesh has room.

Small events go straight to the mesh. Chunks wait here until `bulk_wait` of the node's `PublishPressure` says
that they do not stand in an event's way, and no more than `PER_SECOND` go in any case: what a node sends in
a burst waits in the queues of its neighbours, and events wait behind it. A turn that comes late shows that
the processor has no time for more: the next one waits for longer.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

PER_SECOND = 200.0  # chunks, 0.8 MB; chosen by us, as fast as strategies hand events over
LATE_FACTOR = 2  # seconds to wait for each second that a turn came late: chunks get a third of the time
LATE_WAIT_MAX = 0.1  # seconds

Step: TypeAlias = Callable[[], bool]
"""Publishes one chunk; False if there is none left, or none yet."""
Later: TypeAlias = Callable[[float, Callable[[], None]], object]
"""Calls back after so many seconds."""


class ChunkQueue:
    def __init__(
        self, bulk_wait: Callable[[], float], later: Later | None, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`later` of None: there is no time between chunks, so all go at once. `clock`: its seconds."""
        self._bulk_wait = bulk_wait
        self._later = later
        self._clock = clock
        self._due: float | None = None  # when the next turn should come
        self._steps: deque[Step] = deque()
        self._is_under_way = False  # a turn runs, or will come

    def add(self, step: Step) -> None:
        """Take turns with the others, until it returns False."""
        self._steps.append(step)
        if not self._is_under_way:
            self._turn()

    def remove(self, step: Step) -> None:
        """One that was not added, or is over, is no error."""
        self._steps = deque(one for one in self._steps if one != step)

    def close(self) -> None:
        """The node stops: what was to come never does."""
        self._steps.clear()

    def _turn(self) -> None:
        self._is_under_way = False
        late = 0.0 if self._due is None else max(0.0, self._clock() - self._due)
        self._due = None
        while self._steps:
            wait = self._bulk_wait()
            if not wait:
                self._is_under_way = True  # what a step causes may add another one
                try:
                    self._step()
                finally:
                    self._is_under_way = False
                wait = 1 / PER_SECOND + min(LATE_FACTOR * late, LATE_WAIT_MAX)
            if self._later is not None:
                self._is_under_way = True
                self._due = self._clock() + wait
                self._later(wait, self._turn)
                return

    def _step(self) -> None:
        step = self._steps.popleft()
        if step():
            self._steps.append(step)
