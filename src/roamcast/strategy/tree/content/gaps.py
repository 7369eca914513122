"""Detecting lost broadcasts: both ends of a link count the events that were broadcast over it.

Nobody acknowledges a broadcast. So each one carries, for each neighbour it is meant for, a sequence number
of their link. A receiver that finds a gap in the numbers asks for the missing ones. The last broadcast
before a silence is followed by the number alone (`Tally`); otherwise its loss would go unnoticed.

The constants are chosen by us: larger ones recover more and cost more memory and air.
"""

from roamcast.strategy.tree.content.recent import EventCopy

HISTORY = 256  # broadcasts per link that can be asked for
GAP_MAX = 64  # missing numbers remembered; a longer gap is a broken link
ASKED_MAX = 4  # at a time, so that repeats cannot fill the radio's queue
TRIES = 3  # requests for one number


class SentCasts:
    """The broadcasts over a link, at the sender's end."""

    def __init__(self) -> None:
        self.count = 0
        self.tallied = 0  # the last count that a `Tally` carried
        self._history: dict[int, EventCopy] = {}

    def add(self, copy: EventCopy) -> int:
        self.count += 1
        self._history[self.count] = copy
        self._history.pop(self.count - HISTORY, None)
        return self.count

    def find(self, number: int) -> EventCopy | None:
        return self._history.get(number)


class HeardCasts:
    """The same at the receiver's end."""

    def __init__(self) -> None:
        self._count = 0
        self._missing: dict[int, int] = {}  # lost numbers, and how often each was asked for
        self._asked: set[int] = set()

    def on_cast(self, number: int) -> bool:
        """True if this number shows that earlier ones are missing."""
        self._missing.pop(number, None)
        return self._advance(number, number - 1)

    def on_tally(self, number: int) -> bool:
        return self._advance(number, number)

    def on_recovered(self, number: int) -> bool:
        """True if all that was asked for has come, and there is more to ask for."""
        self._missing.pop(number, None)
        if number not in self._asked:
            return False
        self._asked.discard(number)
        return not self._asked and bool(self._missing)

    def take_missing(self) -> list[int]:
        """The numbers to ask for now: the newest, since on a busy radio the oldest come too late anyway.
        Numbers that were asked for `TRIES` times are given up."""
        self._missing = {number: tries for number, tries in self._missing.items() if tries < TRIES}
        self._asked = set(sorted(self._missing)[-ASKED_MAX:])
        for number in self._asked:
            self._missing[number] += 1
        return sorted(self._asked)

    @property
    def tries(self) -> int:
        """The most requests made for one missing number; 0 without gaps."""
        return max(self._missing.values(), default=0)

    def _advance(self, number: int, last: int) -> bool:
        if number <= self._count:
            return False
        missed = range(max(self._count + 1, last - GAP_MAX + 1), last + 1)
        self._missing.update(dict.fromkeys(missed, 0))
        # The lowest numbers are the oldest broadcasts, which would come too late first.
        while len(self._missing) > GAP_MAX:
            del self._missing[min(self._missing)]
        self._count = number
        return len(missed) > 0
