"""Long work in slices, so that nobody waits for it: thousands of subscriptions that come, or end, at once.

All chores of a listener share one slice in each turn of the loop, first come, first served.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator

SLICE_SECONDS = 0.004  # of one turn, at least one step; chosen by us


class Chores:
    def __init__(self) -> None:
        self._waiting: deque[Iterator[None]] = deque()
        self._next: asyncio.Handle | None = None

    def add(self, steps: Iterator[None]) -> None:
        """Do some of it now if nothing else waits, and the rest later."""
        self._waiting.append(steps)
        if self._next is None:
            self._work()

    def finish(self) -> None:
        """Do all of it now."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._waiting:
            for _ in self._waiting.popleft():
                pass

    def _work(self) -> None:
        self._next = asyncio.get_running_loop().call_soon(self._work)  # first: a step may add a chore
        until = time.perf_counter() + SLICE_SECONDS
        while self._waiting:
            for _ in self._waiting[0]:
                if time.perf_counter() >= until:
                    return
            self._waiting.popleft()
        self._next.cancel()
        self._next = None
