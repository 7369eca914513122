"""Sent until confirmed: by an acknowledgement, or by overhearing the next hop send it on.

- `Backoff` is a rule: how long to wait, and how many attempts at most.
- `Repetition` is one message that is repeated by such a rule until it is answered.
- `Unconfirmed` is all that a node has sent and that is not confirmed yet, each until a deadline.
- `RoundTrip` and `RetransmissionTimeout` measure how long a confirmation takes (RFC 6298).

The protocol decides what to send, what counts as a confirmation, and what to do when none comes in time.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from roamcast.host import Host, TimerName
from roamcast.kit.protocol import Timer
from roamcast.units import Micros

Key = TypeVar("Key")
Item = TypeVar("Item")

DOUBLINGS_MAX = 32  # bounds the shift of an endless repetition; any value far beyond `longest` works


class Backoff(NamedTuple):
    """Waits that double from `first` on, up to `longest`. Attempts count from 0."""

    first: Micros
    attempts: int | None = None  # at most; None: without end
    longest: Micros | None = None

    def is_over(self, attempt: int) -> bool:
        """Whether this attempt exceeds the limit."""
        return self.attempts is not None and attempt >= self.attempts

    def wait(self, attempt: int) -> Micros:
        """How long to wait after this attempt."""
        wait = self.first << min(attempt, DOUBLINGS_MAX)
        return wait if self.longest is None else min(wait, self.longest)


class Repetition:
    """The owner calls `attempt`, sends if that returns True, and does both again when the timer is due."""

    def __init__(self, host: Host, timer: TimerName, backoff: Backoff) -> None:
        self._host = host
        self._timer = timer
        self._backoff = backoff
        self.attempts = 0

    def attempt(self) -> bool:
        """Count one more attempt and set the timer for the next. False if the limit is reached."""
        if self._backoff.is_over(self.attempts):
            return False
        self.attempts += 1
        self.wait_again()
        return True

    def wait_again(self) -> None:
        """Set the timer again: from now on, as long as after the last attempt."""
        self.wait(self._backoff.wait(max(self.attempts - 1, 0)))

    def wait(self, time: Micros) -> None:
        """The next attempt is due after this time, whatever the rule says."""
        self._host.set_timer(self._timer, self._host.now() + time)

    def restart(self) -> None:
        """The message has changed: count attempts from the beginning."""
        self.attempts = 0

    def take_back(self) -> None:
        """Do not count the last attempt: nothing left this node."""
        self.attempts -= 1

    def end(self) -> None:
        """The message is answered, or needs no answer any more."""
        self._host.cancel_timer(self._timer)


class Unconfirmed(Generic[Key, Item]):
    """What was sent and is not confirmed yet, by key. One timer serves all; it is set for the earliest
    deadline, and `on_overdue` gets everything that is overdue then, in the order in which it was sent.

    It has no bound of its own: only what this node sends itself is entered, and each entry ends at its
    deadline."""

    def __init__(self, host: Host, on_overdue: Callable[[list[tuple[Key, Item]]], object]) -> None:
        self._host = host
        self._on_overdue = on_overdue
        self._timer = Timer(host, self._due)
        self._due_at: Micros | None = None  # when the timer is due, if it is set
        self._awaited: dict[Key, tuple[Item, Micros]] = {}

    def expect(self, key: Key, item: Item, within: Micros) -> None:
        """It has been sent. If it was sent before, only this confirmation is awaited."""
        deadline = self._host.now() + within
        self._awaited.pop(key, None)
        self._awaited[key] = item, deadline
        if self._due_at is None or deadline < self._due_at:
            self._set(deadline)

    def find(self, key: Key) -> Item | None:
        found = self._awaited.get(key)
        return None if found is None else found[0]

    def confirm(self, key: Key) -> Item | None:
        """It is confirmed, or needs no confirmation any more. None if it was not awaited."""
        found = self._awaited.pop(key, None)
        if not self._awaited and self._due_at is not None:
            self._timer.cancel()
            self._due_at = None
        return None if found is None else found[0]

    def clear(self) -> None:
        self._awaited.clear()
        self._timer.cancel()
        self._due_at = None

    def __len__(self) -> int:
        return len(self._awaited)

    def _set(self, at: Micros) -> None:
        self._due_at = at
        self._timer.at(at)

    def _due(self) -> None:
        now, self._due_at = self._host.now(), None
        overdue = [(key, item) for key, (item, deadline) in self._awaited.items() if deadline <= now]
        for key, _ in overdue:
            del self._awaited[key]
        if self._awaited:
            self._set(min(deadline for _, deadline in self._awaited.values()))
        if overdue:
            self._on_overdue(overdue)


class RoundTrip(NamedTuple):
    """The smoothed round-trip time and its variation (RFC 6298, section 2: SRTT and RTTVAR)."""

    smoothed: Micros
    variation: Micros

    @classmethod
    def first(cls, took: Micros) -> "RoundTrip":
        return cls(took, took // 2)

    def then(self, took: Micros) -> "RoundTrip":
        """The estimate after one more measurement."""
        variation = self.variation + (abs(self.smoothed - took) - self.variation) // 4
        return RoundTrip(self.smoothed + (took - self.smoothed) // 8, variation)

    @property
    def bound(self) -> Micros:
        """The time within which nearly every confirmation comes."""
        return self.smoothed + 4 * self.variation


class RetransmissionTimeout:
    """How long to wait for a confirmation: `first` until one was measured, then the measured bound; doubled
    after each wait in vain (RFC 6298). On a full medium everything takes longer. If the wait stayed the same,
    every message would be sent twice and the medium would stay full."""

    def __init__(self, first: Micros, shortest: Micros, longest: Micros) -> None:
        self.wait = first
        self._shortest = shortest
        self._longest = longest
        self._round_trip: RoundTrip | None = None

    def on_confirmed(self, took: Micros) -> None:
        known = self._round_trip
        self._round_trip = RoundTrip.first(took) if known is None else known.then(took)
        self.wait = min(max(self._shortest, self.measured), self._longest)

    def on_missed(self) -> None:
        self.wait = min(2 * self.wait, self._longest)

    @property
    def measured(self) -> Micros:
        """The bound without shortest, longest and doubling; 0 before anything was measured."""
        return 0 if self._round_trip is None else self._round_trip.bound
