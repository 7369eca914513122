"""The duplicate filter: which events this node has already seen.

Bounded in count and in time without a timer. Real-time events go through two generations: an entry
lives in the current one, and when that is old or full it becomes the previous one and the one before
is forgotten. So an identifier is remembered for at least `hold`, unless more than `capacity / 2` newer
ones push it out. A memorized event can come again until it expires, so it is remembered until its lifetime
ends, and for half of `hold` at least after that: the age of a copy leaves out its time on the air, so some
nodes take it for alive a little longer. Above `capacity` of those, the first to expire is forgotten.

None of this may block a node. To copy or free a generation of 32,768 entries at once takes 10 to 20 ms, so an
entry only has the number of its generation, and each new entry removes a few forgotten ones. Keys are
numbers, because Python's cyclic garbage collector visits every tuple, but no numbers.
"""

import heapq
from collections import deque
from typing import Final, TypeAlias

from roamcast.units import SECOND, Micros, NodeId

HOLD: Micros = 120 * SECOND  # chosen by us: far above the transit time of any copy that still has hops left
CAPACITY = 65_536  # chosen by us
TAKEN_OUT = 4  # forgotten entries removed per new one: all are gone before the next generation is full

EventKey: TypeAlias = int
"""The key of an event, see `event_key`; or any other unique number."""

PUBLISHER: Final = 2**64 + 2_654_435_761
"""What a publisher counts in a key: more than any sequence number. Python hashes a number modulo 2^61 - 1;
with 2^64 alone a dict would see sequence + 8 * publisher, the same for several events of most networks.
What is added, the golden ratio of 2^32, spreads publishers over a dict of any size."""
_BITS: Final = (1 << 64) - 1
APPLICATION_AT: Final = 160  # the bits from here on are above every key of an event


def event_key(publisher: NodeId, sequence: int) -> EventKey:
    return publisher * PUBLISHER + sequence


def event_fingerprint(publisher: NodeId, sequence: int) -> int:
    """64 bits that are added up for a set of events. It must mix well, since sums of linear marks are the
    same for many sets; this is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), a quarter of a
    real hash's time."""
    mixed = (publisher * 0x9E3779B97F4A7C15 + sequence * 0xD1B54A32D192ED03 + 1) & _BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _BITS
    return mixed ^ mixed >> 31


class SeenEvents:
    def __init__(self, *, hold: Micros = HOLD, capacity: int = CAPACITY) -> None:
        assert hold > 0 and capacity >= 2
        self._hold = hold
        self._capacity = capacity
        self._generation_max = capacity // 2
        # Real-time events with the number of their generation, always the same object. Whatever is in here
        # has been seen, so a frequent caller may look here before it calls `observe`; a hit needs no clock.
        # Some entries are forgotten already: `observe` takes those for new.
        self.lately: dict[EventKey, int] = {}
        self._order: deque[EventKey] = deque()  # as in `lately`, oldest first
        self._generation = 1
        self._oldest = 0  # generation that is not forgotten
        self._forgotten = self._previous = 0  # how many of `_order`, from its beginning, are neither current
        self._full_at = self._generation_max  # the length of `_order` at which the current generation is full
        self._turns_at: Micros = hold
        self._lasting: set[EventKey] = set()
        # By expiry: those that came in that order, as most do, and all others.
        self._lasting_in_turn: deque[EventKey] = deque()
        self._ends_in_turn: deque[Micros] = deque()
        self._lasting_by_expiry: list[tuple[Micros, EventKey]] = []

    def observe(self, event: EventKey, now: Micros, until: Micros = 0) -> bool:
        """True the first time that `event` is seen. It is remembered for `hold`, and after `until` for half
        of that."""
        if now >= self._turns_at:
            self._turn(now)
        lately = self.lately
        if (event in lately and lately[event] >= self._oldest) or event in self._lasting:
            return False
        if until > now and until > now + self._hold // 2:
            self._remember(event, now, until + self._hold // 2)
            return True
        order = self._order
        if len(order) >= self._full_at:
            self._turn(now)
        if self._forgotten:
            self._take_out_forgotten()
        lately[event] = self._generation
        order.append(event)
        return True

    def __contains__(self, event: EventKey) -> bool:
        return self.lately.get(event, -1) >= self._oldest or event in self._lasting

    def unseen(self, events: frozenset[EventKey]) -> frozenset[EventKey]:
        """Those of many events for which `in` is false, without a call for each of them."""
        unseen = events.difference(self.lately)
        if unseen and self._lasting:
            unseen -= self._lasting
        if self._forgotten:  # some that are in `lately` still
            unseen |= {event for event in events if event not in self}
        return unseen

    def __len__(self) -> int:
        return len(self._order) + len(self._lasting)

    def _remember(self, event: EventKey, now: Micros, until: Micros) -> None:
        self._lasting.add(event)
        ends = self._ends_in_turn
        if ends and (until < ends[-1] or (until == ends[-1] and event < self._lasting_in_turn[-1])):
            heapq.heappush(self._lasting_by_expiry, (until, event))
        else:
            ends.append(until)
            self._lasting_in_turn.append(event)
        self._forget_lasting(now, self._capacity)

    def _turn(self, now: Micros) -> None:
        # After two hold times without events even the current generation is too old to keep.
        is_kept = now < self._turns_at + self._hold
        self._forgotten += self._previous
        self._previous = len(self._order) - self._forgotten
        if not is_kept:
            self._forgotten, self._previous = len(self._order), 0
        self._full_at = len(self._order) + self._generation_max
        self._oldest = self._generation if is_kept else self._generation + 1
        self._generation += 1
        self._turns_at = now + self._hold
        self._forget_lasting(now, len(self._lasting))

    def _forget_lasting(self, now: Micros, most: int) -> None:
        """Those that are over, and the first to expire of more than so many."""
        ends, others = self._ends_in_turn, self._lasting_by_expiry
        while (ends and ends[0] <= now) or (others and others[0][0] <= now) or len(self._lasting) > most:
            if others and (not ends or others[0] < (ends[0], self._lasting_in_turn[0])):
                self._lasting.discard(heapq.heappop(others)[1])
            else:
                ends.popleft()
                self._lasting.discard(self._lasting_in_turn.popleft())

    def _take_out_forgotten(self) -> None:
        out = min(self._forgotten, TAKEN_OUT)
        for _ in range(out):
            event = self._order.popleft()
            if self.lately.get(event, self._oldest) < self._oldest:  # and not seen again since
                del self.lately[event]
        self._forgotten -= out
        self._full_at -= out
