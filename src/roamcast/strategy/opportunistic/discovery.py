"""Expanding ring search: which brokers are near? (section 2.3, step 1; section 2.4, step 1)

A search goes out with reach 1; every node passes it on once while it is within reach; brokers answer. If too
few have answered when the ring's time is over, the next ring is one hop wider. The hops that a search took to
a broker are its distance.
"""

from collections.abc import Callable
from typing import NamedTuple

from roamcast.broker.seen import SeenEvents, event_key
from roamcast.host import Frame, Host, Kind, TimerName
from roamcast.strategy.opportunistic.messages import FRAMES, Found, Search
from roamcast.units import MILLISECOND, Micros, NodeId

JITTER: Micros = 10 * MILLISECOND
PENDING_MAX = 1_000
SEARCHES_PER_BOOT = 1 << 32


class Near(NamedTuple):
    """A broker, in the order of preference: the nearest, of those the least loaded."""

    distance: int
    load: int
    broker: NodeId


class RingSearch:
    """One search at a time; a new one replaces it. Timers are `"ring"` and `("pass on", …)`."""

    def __init__(self, host: Host, *, ring_max: int, ring_wait: Micros, boot: int) -> None:
        self._host = host
        self._ring_max = ring_max
        self._ring_wait = ring_wait
        self._number = boot * SEARCHES_PER_BOOT  # others remember the numbers of an earlier boot
        self._first_number = 0  # of the search under way; answers to any of its rings count
        self._reach = 0
        self._wanted = 0
        self._found: dict[NodeId, Near] = {}
        self._done: Callable[[list[Near], int], None] | None = None
        self._seen = SeenEvents()
        self._waiting: dict[tuple[NodeId, int], Search] = {}

    def start(self, wanted: int, done: Callable[[list[Near], int], None]) -> None:
        """Find at least `wanted` brokers; `done` gets those found, nearest first, and how far was looked."""
        self._wanted, self._done = wanted, done
        self._begin(1)

    def start_wide(self, done: Callable[[list[Near], int], None]) -> None:
        """Find all brokers as far as a search may go, at once."""
        self._wanted, self._done = 0, done
        self._begin(self._ring_max)

    def on_found(self, broker: NodeId, found: Found) -> None:
        if self._done is None or not self._first_number <= found.number <= self._number:
            return
        near = Near(found.hops, found.load, broker)
        known = self._found.get(broker)
        if known is None or near < known:
            self._found[broker] = near

    def on_search(self, search: Search) -> bool:
        """A search came by; True if a broker should answer it."""
        key = (search.origin, search.number)
        if search.origin == self._host.node or not self._seen.observe(event_key(*key), self._host.now()):
            return False
        if search.hops + 1 < search.reach and len(self._waiting) < PENDING_MAX:
            self._waiting[key] = search
            delay = int(self._host.random.random() * JITTER)
            self._host.set_timer(("pass on", *key), self._host.now() + delay)
        return True

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "ring":
                if len(self._found) >= self._wanted or self._reach >= self._ring_max:
                    done, self._done = self._done, None
                    if done is not None:
                        done(sorted(self._found.values()), self._reach)
                else:
                    self._next_ring()
            case ("pass on", int() as origin, int() as number):
                search = self._waiting.pop((origin, number))
                self._send(Search(search.origin, search.number, search.reach, search.hops + 1))

    def _begin(self, reach: int) -> None:
        self._found = {}
        self._reach = reach - 1
        self._first_number = self._number + 1
        self._next_ring()

    def _next_ring(self) -> None:
        self._reach += 1
        self._number += 1
        self._send(Search(self._host.node, self._number, self._reach, 0))
        self._host.set_timer("ring", self._host.now() + self._ring_wait * self._reach)

    def _send(self, search: Search) -> None:
        own = search.origin == self._host.node
        self._host.broadcast(Frame(FRAMES.encode(search), Kind.CONTROL, "search", None, own))
