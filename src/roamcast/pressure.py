"""How fast the applications of one node may publish, where the mesh is slower than they are.

Nobody knows what a mesh can carry; it shows where something is lost. A node that loses frames because they
come faster than it handles them says so, to its own applications and to the whole mesh
(`runtime/live/air/congestion.py`). Whoever publishes then halves his rate, at most twice a second, and
raises it by a fifth each second without such a report: the rule of TCP (Chiu and Jain, 1989), with events
instead of octets. Without losses there is no limit.

Memorized and acknowledged publications are slowed: each is accepted, and the gateway reads the publisher's
next one when its time has come; where it cannot wait so long, it refuses with the reason. Real-time ones
are worth most when they are fresh, so none of them waits: what does not fit is shed at once, low priorities
first. Chunks of large payloads wait like the first and fit like the last: behind everything else.
"""

from typing import Protocol

from roamcast.event import Publication

PRIORITY = "priority"  # attribute: 0 to 9, `NORMAL` without it
NORMAL = 4

# Chosen by us.
RATE_MIN = 20.0  # events per second that are always allowed
DECREASE = 0.5
INCREASE = 0.2  # per second
DECREASE_EVERY = 0.5  # seconds: a report needs about as long to show an effect
BURST_SECONDS = 0.25  # of events that may come at once
FREE_AFTER = 10.0  # seconds without a report, at less than half of what is allowed: no limit any more
REFUSED_FROM = 5.0  # seconds of debt from which a publication that must not be lost is refused


class PublishPressure(Protocol):
    """What gateways ask before and after a publication."""

    def sheds(self, publication: Publication) -> bool:
        """Whether a real-time publication finds no room. Else it is counted as published."""
        ...

    def charge(self) -> float:
        """Count a publication that must not be lost: seconds until the publisher's next one."""
        ...

    def bulk_wait(self) -> float:
        """A chunk of a large payload: 0 and counted if it may go now, else seconds until it may ask again."""
        ...

    @property
    def refuses(self) -> bool:
        """Whether a publication that must not be lost would have to wait for too long."""
        ...

    @property
    def why(self) -> str:
        """The reason, for the publisher."""
        ...


class NoPressure:
    """No pressure at all: for nodes without a radio."""

    refuses = False
    why = ""

    def sheds(self, publication: Publication) -> bool:
        return False

    def charge(self) -> float:
        return 0.0

    def bulk_wait(self) -> float:
        return 0.0


class Allowance:
    """Time comes in by hand, in seconds on any clock that does not go back."""

    def __init__(self) -> None:
        self.rate: float | None = None  # events per second; None: no limit
        self._tokens = 0.0
        self._at = 0.0  # when tokens and rate were computed
        self._decreased_at = float("-inf")
        self._reported_at = float("-inf")
        self.counted = 0  # publications since `_counted_since`
        self._counted_since = 0.0
        self._recent = 0.0  # publications per second, lately

    # Inputs.

    def on_congestion(self, now: float) -> None:
        """Something was lost, here or elsewhere, because it came too fast."""
        self.advance(now)
        self._reported_at = now
        if now - self._decreased_at < DECREASE_EVERY:
            return
        published = max(self._recent, self.counted / max(now - self._counted_since, DECREASE_EVERY))
        before = published if self.rate is None else min(self.rate, published)
        self.rate = max(RATE_MIN, before * DECREASE)
        self._tokens = min(self._tokens, self.rate * BURST_SECONDS)
        self._decreased_at = now

    def take(self, now: float, priority: int) -> bool:
        """A real-time publication: whether it fits. The first half of a burst is for all, the last fifth for
        high priorities."""
        self.advance(now)
        self.counted += 1
        if self.rate is None:
            return True
        room = self.rate * BURST_SECONDS
        kept_for_others = 0.5 if priority < NORMAL else 0.2 if priority == NORMAL else 0.0
        if self._tokens < max(1.0, room * kept_for_others):
            self.counted -= 1
            return False
        self._tokens -= 1
        return True

    def bulk_wait(self, now: float) -> float:
        """A chunk of a large payload has the lowest priority: 0 if it fits, else seconds until a try."""
        return 0.0 if self.take(now, 0) or self.rate is None else 1 / self.rate

    def charge(self, now: float) -> float:
        """A publication that must not be lost: seconds until the next one."""
        self.advance(now)
        self.counted += 1
        if self.rate is None:
            return 0.0
        self._tokens -= 1
        return self.debt

    def advance(self, now: float) -> None:
        """Time passes. Whoever calls this often need not ask for a publication while there is no limit: it is
        enough that it is `counted`."""
        passed = now - self._at
        if passed > 0:
            self._at = now
        else:
            passed = 0.0
        if now - self._counted_since >= 1.0:
            self._recent = self.counted / (now - self._counted_since)
            self.counted, self._counted_since = 0, now
        if self.rate is None:
            return
        if now - self._decreased_at >= 1.0:
            self.rate *= 1 + INCREASE * min(passed, 1.0)
        self._tokens = min(self.rate * BURST_SECONDS, self._tokens + passed * self.rate)
        if now - self._reported_at >= FREE_AFTER and self._recent < self.rate / 2:
            self.rate = None
            self._tokens = 0.0

    # Questions.

    @property
    def debt(self) -> float:
        """Seconds until a publication fits again."""
        return 0.0 if self.rate is None else max(0.0, -self._tokens / self.rate)


def priority_of(publication: Publication) -> int:
    """The priority of a publication; an application may have given any text or number."""
    value = publication.attributes.get(PRIORITY)
    return min(max(value, 0), 9) if type(value) is int else NORMAL
