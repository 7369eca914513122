"""Offering events to one neighbour by their identifiers, so that only those it lacks are sent.

One offer is outstanding at a time. It is repeated until the neighbour has answered which of the events it
wants, and given up after `TRIES` times: then the link is probably gone, and a new link starts anew.

The neighbour asks for few events at a time (`WANTED_MAX`) and acknowledges them; only then is the next offer
sent. So recovery runs at the speed of the radio. Sent all at once, the events of a long break would fill
the radio's queue, and frames that a full queue refuses would look like another broken link.

The constants are chosen by us.
"""

from collections.abc import Iterable

from roamcast.event import EventId
from roamcast.strategy.tree.content.messages import EventOffer, WantAnswer

WANTED_MAX = 8  # events asked for at a time
TRIES = 4  # of one offer
QUEUE_MAX = 10_000  # events waiting to be offered


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
        """The neighbour has examined the first of the events; the others are offered again later.

        Returns those it examined, or nothing if the answer is to an earlier offer.
        """
        if want.number != self._number or not self._outstanding:
            return ()
        answered, rest = self._outstanding[: want.examined], self._outstanding[want.examined :]
        self._outstanding = ()
        self._queue = dict.fromkeys(rest) | self._queue
        self._is_sending = bool(want.events)
        return answered

    def on_received(self, number: int) -> bool:
        """True if the wanted events of the last offer have arrived, and the next offer may be sent."""
        if number != self._number or not self._is_sending:
            return False
        self._is_sending = False
        return True

    @property
    def is_busy(self) -> bool:
        """Whether an offer awaits its answer, or the events that were wanted are on their way."""
        return bool(self._outstanding) or self._is_sending


class Wanted:
    """The receiver's side: the events that were asked for and have not arrived yet."""

    def __init__(self) -> None:
        self._number = 0
        self._missing: set[EventId] = set()

    def on_asked(self, number: int, events: Iterable[EventId]) -> None:
        self._number = number
        self._missing = set(events)

    def on_event(self, event: EventId) -> int | None:
        """The number of the offer if all events wanted of it have now arrived."""
        if event not in self._missing:
            return None
        self._missing.discard(event)
        return None if self._missing else self._number
