"""What a node broadcast lately, told once more: a neighbour that lacks an event it wants asks for it.

A broadcast has no link-layer acknowledgement. Next hops show by their own broadcast that they have the event
(`courier.py`); neighbours that have nothing to pass on show nothing. So a node names what it broadcast in
small frames afterwards, each event `TELLINGS` times, with the event's identifier. A receiver compares that
with its own filters, so it also finds events that it was not sent because the broker that looked them up did
not know its subscription yet.
"""

from typing import NamedTuple

from roamcast.bounded import BoundedDict, unreported
from roamcast.event import EventId
from roamcast.strategy.chapar.messages import RECAP_MAX, Carry, Recap, RecapEntry, Request
from roamcast.strategy.chapar.state import State
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

TELLINGS = 2  # this and all below: chosen by us
INTERVAL: Micros = 500 * MILLISECOND  # between two frames of a node that has something to tell
RECENT_FOR: Micros = 3 * SECOND  # how long an event can be asked for: a multiple of all tellings
RECENT_MAX = 512  # events; the oldest makes room
ASK_TIMEOUT: Micros = 600 * MILLISECOND  # then the next one that tells of an event may be asked for it
ASKED_MAX = 2  # times for one event: on a full medium, more requests would lose more events


class RecentEvent(NamedTuple):
    carry: Carry  # as it arrived here
    born: Micros  # when it was published, on this node's clock
    event_id: bytes
    until: Micros
    told: int


class Recapitulation:
    def __init__(self, state: State) -> None:
        self._state = state
        self._recent: BoundedDict[EventId, RecentEvent] = BoundedDict(RECENT_MAX, unreported)
        self._asked: BoundedDict[EventId, tuple[int, Micros]] = BoundedDict(RECENT_MAX, unreported)
        self._is_due = False

    def note(self, carry: Carry, born: Micros) -> None:
        """This node has broadcast an event."""
        state = self._state
        identifier = state.layout.encode(state.event_id(carry.event, carry.sealed))
        until = state.host.now() + RECENT_FOR
        self._recent.renew(carry.event.id, RecentEvent(carry, born, identifier, until, 0))
        if not self._is_due:
            self._is_due = True
            self._set_timer()

    def on_due(self) -> None:
        state, now = self._state, self._state.host.now()
        self._recent.forget_oldest(lambda recent: recent.until <= now)
        untold = [key for key, recent in self._recent.items() if recent.told < TELLINGS][:RECAP_MAX]
        entries = []
        for key in untold:
            recent = self._recent[key]
            self._recent[key] = recent._replace(told=recent.told + 1)
            entries.append(RecapEntry(*key, recent.event_id, now - recent.born))
        if entries:
            state.send(None, Recap(tuple(entries)))
        self._is_due = any(recent.told < TELLINGS for recent in self._recent.values())
        if self._is_due:
            self._set_timer()

    def on_recap(self, sender: NodeId, recap: Recap) -> None:
        """Ask for the events that this node wants and has not seen; each of one neighbour at a time."""
        state, now = self._state, self._state.host.now()
        lacking = []
        for entry in recap.entries:
            key = EventId(entry.publisher, entry.sequence)
            times, until = self._asked.get(key, (0, now))
            if (
                times < ASKED_MAX
                and until <= now
                and not state.broker.has_seen(key)
                and state.broker.lived_through(entry.age)
                and state.interests.select(state.layout.decode(entry.event_id))
            ):
                lacking.append(key)
                self._asked.renew(key, (times + 1, now + ASK_TIMEOUT))
        if lacking:
            state.send(sender, Request(tuple(lacking)), own=True)

    def answer(self, sender: NodeId, event: EventId) -> bool:
        """Send an event to a neighbour that asked for it; False if it was not broadcast lately."""
        recent = self._recent.get(event)
        if recent is None:
            return False
        state, carry = self._state, recent.carry
        vector = state.addresses.encode(state.addresses.bit(sender))
        age = state.host.now() - recent.born
        state.send(sender, Carry(carry.event, vector, carry.hops, carry.sealed, age))
        return True

    def _set_timer(self) -> None:
        host = self._state.host
        early = int(host.random.random() * INTERVAL / 2)  # so that neighbours do not tell together
        host.set_timer("recap", host.now() + INTERVAL - early)
