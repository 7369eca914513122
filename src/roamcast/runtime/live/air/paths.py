"""The ways to one neighbour, and which of them is used.

A *path* is an interface of ours and an address of the neighbour's. A node with several interfaces says hello
on each of them separately, so that its neighbours know all paths and how well each is heard.

The path in use stays while it is heard and works. When it has been silent for `settled`, or frames over it
failed, the best other one takes its place at once. Where it still works, another takes its place only if that
is heard clearly better, or as well and by an interface that its owner prefers; and only after it has
acknowledged a datagram, so that neither a link that carries one direction only nor an outsider who sends on
what he picked up gets a neighbour's frames.
"""

from roamcast.runtime.live.air.interface import Endpoint
from roamcast.units import SECOND, Micros

# Chosen by us.
SLOTS = 10  # that a quality is computed from
SLOTS_MIN = 3  # fewer say nothing
PATHS_MAX = 8  # to one neighbour
SETTLED: Micros = 2 * SECOND  # a path is kept for this long without a datagram from it: two announcements
BETTER = 0.3  # difference of two qualities that is worth a change
PROBE_INTERVAL: Micros = 1 * SECOND
FAILED_FOR: Micros = (
    10 * SECOND
)  # a path that failed is not preferred for so long, unless the others fail too
_ALL_SLOTS = (1 << SLOTS) - 1


class HeardSlots:
    """In which of the last `SLOTS` slots something was heard; a bit for each, the latest lowest."""

    __slots__ = ("_bits", "_first", "_length", "_slot")

    def __init__(self, length: Micros, now: Micros) -> None:
        self._length = length
        self.begin(now)

    def begin(self, now: Micros) -> None:
        self._first = self._slot = now // self._length
        self._bits = 1

    def heard(self, now: Micros) -> bool:
        """Whether this is the first time in its slot."""
        slot = now // self._length
        if slot == self._slot:
            return False
        self._bits = (self._bits << min(slot - self._slot, SLOTS) | 1) & _ALL_SLOTS
        self._slot = slot
        return True

    def quality(self, now: Micros) -> float | None:
        """The share of slots; None: too few. A slot that is not over counts only if something was heard."""
        slot = now // self._length
        bits = (self._bits << min(slot - self._slot, SLOTS)) & _ALL_SLOTS
        lasting = min(slot - self._first + 1, SLOTS)
        if not bits & 1 and lasting > 1:
            bits, lasting = bits >> 1, lasting - 1
        return None if lasting < SLOTS_MIN else bits.bit_count() / lasting


class Path:
    __slots__ = ("endpoint", "failed_at", "heard_at", "slots")

    def __init__(self, endpoint: Endpoint, slot_length: Micros, now: Micros) -> None:
        self.endpoint = endpoint
        self.heard_at = now
        self.failed_at: Micros = -FAILED_FOR
        self.slots = HeardSlots(slot_length, now)

    def works(self, now: Micros, settled: Micros) -> bool:
        """Heard lately, and since frames over it failed."""
        return now - self.heard_at < settled and self.failed_at < self.heard_at


class Probe:
    """A datagram that a path must acknowledge before it is used."""

    __slots__ = ("at", "endpoint", "number")

    def __init__(self, endpoint: Endpoint, number: int, at: Micros) -> None:
        self.endpoint = endpoint
        self.number = number
        self.at = at
