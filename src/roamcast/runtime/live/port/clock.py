"""The clock of a live node: microseconds that stand still while a handler runs.

The machine's monotonic clock runs on; a layer sees it as it was when its input began. All layers of a
node share one clock, and so do all nodes of a machine: CLOCK_MONOTONIC counts from its boot.
"""

import time

from roamcast.units import Micros


def monotonic() -> Micros:
    """The machine's monotonic clock."""
    return time.monotonic_ns() // 1_000


class Clock:
    """`now` is the instant of the input being handled; it never goes back."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now: Micros = monotonic()

    def enter(self) -> None:
        """An input begins."""
        moment = time.monotonic_ns() // 1_000
        if moment > self.now:
            self.now = moment

    def enter_not_before(self, at: Micros) -> None:
        """A timer's input begins. The loop may wake us a tick early, but no layer sees a time before its own
        timer's."""
        moment = time.monotonic_ns() // 1_000
        if at > moment:
            moment = at
        if moment > self.now:
            self.now = moment
