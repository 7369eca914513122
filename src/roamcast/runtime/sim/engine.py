"""The queue of future actions. Everything in a simulation happens as one action of this queue.

Actions of the same instant run in the order in which they were scheduled. Changes of links and faults run
before them, so that a frame sent at an instant sees the links of that instant.

Every action pays for the length of the queue, and most of what thousands of nodes wait for is a second away.
So only the actions of the present slot, a sixtieth of a second, are kept in order; later ones lie unordered
in their slots until the turn comes to them (after the calendar queue: Brown, Comm. ACM 31(10), 1988).
"""

import sys
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from roamcast.units import Micros

Action = Callable[[Any], None]
Entry = tuple[Micros, int, Action, Any]  # with its place among the actions of the instant

LINKS_FIRST = -2  # rank of the contact plan's next change; there is one in the queue at a time
FAULTS_NEXT = -1  # rank of the next fault, likewise
SLOT_BITS = 14  # a slot of the calendar is 2^14 microseconds; chosen by us: some frames long, most timers far


class Engine:
    def __init__(self) -> None:
        self.now: Micros = 0
        self.end: Micros = sys.maxsize  # nothing is played from here on; for `spare` alone
        self.executed = 0
        self._number = 0
        self._queue: list[Entry] = []  # a heap of all that is due before `_horizon`
        self._horizon: Micros = 1 << SLOT_BITS
        self._later: dict[int, list[Entry]] = {}  # by slot
        self._slots: list[int] = []  # a heap of the keys of `_later`

    def at(self, time: Micros, action: Action, argument: Any = None) -> None:
        """Run `action(argument)` at `time`, after whatever is already due then."""
        self._number = number = self._number + 1
        if time < self._horizon:
            heappush(self._queue, (time, number, action, argument))
        else:
            self._put_off((time, number, action, argument))

    def take_number(self) -> int:
        """Reserve a place among the actions of one instant, for an action that `at_number` schedules now or
        later."""
        self._number = number = self._number + 1
        return number

    def at_number(self, time: Micros, number: int, action: Action, argument: Any) -> None:
        if time < self._horizon:
            heappush(self._queue, (time, number, action, argument))
        else:
            self._put_off((time, number, action, argument))

    def spare(self, time: Micros) -> None:
        """Count an action that need not be scheduled because it would do nothing: how many actions a run has
        does not depend on what is spared."""
        if time < self.end:
            self.executed += 1

    def in_turn(self, plans: Iterable[tuple[Micros, Any]], action: Action) -> None:
        """What `at` would do for each time and argument, times increasing; only the next one is in the queue:
        every action pays for the length of the queue."""
        numbered = []
        for time, argument in plans:
            self._number += 1
            numbered.append((time, self._number, argument))
        numbered.reverse()
        self._queue_next((numbered, action))

    def _queue_next(self, series: tuple[list[tuple[Micros, int, Any]], Action]) -> None:
        if series[0]:
            time, number, _ = series[0][-1]
            self.at_number(time, number, self._play_next, series)

    def _play_next(self, series: tuple[list[tuple[Micros, int, Any]], Action]) -> None:
        plans, action = series
        _, _, argument = plans.pop()
        self._queue_next(series)
        action(argument)

    def world_at(self, time: Micros, rank: int, action: Action, argument: Any = None) -> None:
        """Run a change of the world itself, before everything else of that instant."""
        self.at_number(time, rank, action, argument)

    def run(self, until: Micros) -> None:
        """Play everything due before `until`; the clock then stands at `until`."""
        queue = self._queue
        while self._anything_ahead() and queue[0][0] < until:
            self._play_slot(until)
        self.now = until

    def _play_slot(self, until: Micros) -> None:
        """Play what is in the queue. A method of its own: Python 3.11 makes a function faster once it has
        been called some times, but not while it runs, and a loop over all slots would be one call."""
        queue = self._queue
        executed = 0
        if self._horizon <= until:  # then all that comes into the queue is due before `until`
            while queue:
                self.now, _, action, argument = heappop(queue)
                action(argument)
                executed += 1
        else:
            while queue and queue[0][0] < until:
                self.now, _, action, argument = heappop(queue)
                action(argument)
                executed += 1
        self.executed += executed

    def _put_off(self, entry: Entry) -> None:
        slot = entry[0] >> SLOT_BITS
        entries = self._later.get(slot)
        if entries is None:
            self._later[slot] = [entry]
            heappush(self._slots, slot)
        else:
            entries.append(entry)

    def _anything_ahead(self) -> bool:
        """Whether there is a next action; if so, it is the first in the queue afterwards."""
        queue = self._queue
        if not queue and self._slots:
            slot = heappop(self._slots)
            queue.extend(self._later.pop(slot))
            heapify(queue)
            self._horizon = slot + 1 << SLOT_BITS
        return bool(queue)
