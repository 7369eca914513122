"""Soft state: tables whose entries end by themselves, and the one timer that removes them.

The timer is set for the earliest deadline there is when it is set. It is not moved when deadlines are
extended, which happens to most of them, nor for a new entry with an earlier deadline. If nothing is due when
it fires, it is set for the next deadline. So a table may hold what has expired; whoever looks something up
compares its deadline.
"""

from collections.abc import Callable
from typing import Protocol

from roamcast.host import Host
from roamcast.kit.protocol import Timer
from roamcast.units import Micros


class Expiring(Protocol):
    """A table such as `tables.ExpiringDict`."""

    def expire(self, now: Micros) -> object: ...

    def next_expiry(self) -> Micros | None: ...


class SoftState:
    def __init__(self, host: Host, on_expired: Callable[[Micros], object]) -> None:
        """`on_expired` is called after the tables were purged."""
        self._host = host
        self._tables: list[Expiring] = []
        self._on_expired = on_expired
        self._timer = Timer(host, self._due)
        self.is_watched = False  # the timer is set

    def add(self, *tables: Expiring) -> None:
        self._tables += tables

    def watch(self) -> None:
        """Something may have been entered."""
        if not self.is_watched:
            deadlines = [table.next_expiry() for table in self._tables]
            at = min((deadline for deadline in deadlines if deadline is not None), default=None)
            if at is not None:
                self.is_watched = True
                self._timer.at(at)

    def _due(self) -> None:
        self.is_watched = False
        now = self._host.now()
        for table in self._tables:
            table.expire(now)
        self._on_expired(now)
        self.watch()
