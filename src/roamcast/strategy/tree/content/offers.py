"""Offering events to one neighbour by name, so that only what it misses is sent.

One offer is on the way at a time. It is repeated until the neighbour has answered which of the events it
wants, and given up after a few times: then the link is as good as gone, and the next one begins afresh.

The neighbour wants few events at a time (`WANTED_MAX`) and says when they have come; only then does the
next offer go. So recovery runs at the speed of the radio: sent all at once, the events of a long
break fill its queue, and what a full queue refuses looks like another broken link.
"""

from collections.abc import Iterable

from roamcast.event import EventId
from roamcast.strategy.tree.content.messages import EventOffer, WantAnswer

WANTED_MAX = 8  # events asked for at a time
TRIES = 4
QUEUE_MAX = 10_000


class Offers:
    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._queue: dict[EventId, None] = {}
        self._number = 0
        self._outstanding: tuple[EventId, ...] = ()
        self._tries = 0
        self._is_sending = False

    def add(self, events: Iterable[EventId]) -> bool:
        """False if there was no room for all of them."""
        has_room = True
        for event in events:
            if len(self._queue) < QUEUE_MAX:
                self._queue[event] = None
            else:
                has_room = has_room and event in self._queue
        return has_room

    def due(self) -> EventOffer | None:
        """The offer to send now: the unanswered one again, or the next."""
        self._is_sending = False
        if self._outstanding and self._tries >= TRIES:
            self._outstanding = ()
        if not self._outstanding:
            self._outstanding = tuple(self._queue)[: self._events_max]
            for event in self._outstanding:
                del self._queue[event]
            self._number += 1
            self._tries = 0
        if not self._outstanding:
            return None
        self._tries += 1
        return EventOffer(
            self._number, tuple((event.publisher, event.sequence) for event in self._outstanding)
        )

    def on_answer(self, want: WantAnswer) -> tuple[EventId, ...]:
        """The neighbour has looked at so many of the events; the others are offered again later.

        Returns those it looked at, or nothing if the answer is an old one.
        """
        if want.number != self._number or not self._outstanding:
            return ()
        answered, rest = self._outstanding[: want.examined], self._outstanding[want.examined :]
        self._outstanding = ()
        self._queue = dict.fromkeys(rest) | self._queue
        self._is_sending = bool(want.events)
        return answered

    def on_received(self, number: int) -> bool:
        """True if what was wanted of the last offer has come, and the next one may go."""
        if number != self._number or not self._is_sending:
            return False
        self._is_sending = False
        return True

    @property
    def is_busy(self) -> bool:
        """Whether an offer awaits its answer, or the events that were wanted are on their way."""
        return bool(self._outstanding) or self._is_sending


class Wanted:
    """The other side: the events that were asked for and have not come yet."""

    def __init__(self) -> None:
        self._number = 0
        self._missing: set[EventId] = set()

    def on_asked(self, number: int, events: Iterable[EventId]) -> None:
        self._number = number
        self._missing = set(events)

    def on_event(self, event: EventId) -> int | None:
        """The number of the offer from which now everything has come."""
        if event not in self._missing:
            return None
        self._missing.discard(event)
        return None if self._missing else self._number
