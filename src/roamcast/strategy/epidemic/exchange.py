"""Requests for what a neighbour holds and we have not seen: each event from one neighbour at a time."""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import filterfalse, islice

from roamcast.event import EventId
from roamcast.strategy.newest import newest_first
from roamcast.units import Micros, NodeId

OFFERED_MAX = 10_000  # identifiers remembered per neighbour; this and the next: chosen by us
NEIGHBOURS_MAX = 1_000


class EventRequests:
    def __init__(self, has_seen: Callable[[EventId], bool], *, request_max: int, timeout: Micros) -> None:
        self._has_seen = has_seen
        self._request_max = request_max
        self._timeout = timeout
        self._offered: dict[NodeId, deque[EventId]] = {}  # by neighbour, until seen; in the order to ask for
        self._asked: dict[EventId, Micros] = {}  # until when the answer may come
        self._owed: dict[NodeId, dict[EventId, Micros]] = {}  # the same, by neighbour

    def on_offer(self, neighbour: NodeId, events: Iterable[EventId]) -> bool:
        """A neighbour's digest; it replaces what that neighbour offered before. False if there is no room for
        all of it; it will be offered again."""
        if neighbour not in self._offered and len(self._offered) >= NEIGHBOURS_MAX:
            return False
        # The newest first: a contact may be too short for all of them.
        missing = newest_first(islice(filterfalse(self._has_seen, events), 2 * OFFERED_MAX))
        if missing:
            self._offered[neighbour] = deque(islice(missing, OFFERED_MAX))
        else:  # nearly always; an empty deque has 600 octets
            self._offered.pop(neighbour, None)
        return len(missing) <= OFFERED_MAX

    def request(self, neighbour: NodeId, now: Micros) -> list[EventId]:
        """What to ask this neighbour for now; nothing while it owes us as much as one request holds."""
        offered = self._offered.get(neighbour)
        if not offered:
            return []
        owed = self._owed.setdefault(neighbour, {})
        for event in [event for event, until in owed.items() if until <= now]:
            del owed[event]  # the request or the answer was lost; it may be asked for again
        wanted: list[EventId] = []
        still: deque[EventId] = deque()
        while offered and len(wanted) + len(owed) < self._request_max:
            event = offered.popleft()
            if self._has_seen(event):
                continue
            still.append(event)
            if self._asked.get(event, 0) <= now:
                wanted.append(event)
        still.extend(offered)  # those examined keep their place at the front
        self._offered[neighbour] = still
        for event in wanted:
            owed[event] = self._asked[event] = now + self._timeout
        self._forget(now)
        return wanted

    def on_copy(self, neighbour: NodeId, event: EventId) -> None:
        """An event came; asked for or not, it is not owed any more."""
        self._asked.pop(event, None)
        owed = self._owed.get(neighbour)
        if owed is not None:
            owed.pop(event, None)

    def has_offers(self, neighbour: NodeId) -> bool:
        return bool(self._offered.get(neighbour))

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._offered.pop(neighbour, None)
        for event in self._owed.pop(neighbour, ()):
            self._asked.pop(event, None)  # another neighbour may be asked at once

    def _forget(self, now: Micros) -> None:
        if len(self._asked) > OFFERED_MAX:
            self._asked = {event: until for event, until in self._asked.items() if until > now}
