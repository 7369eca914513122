"""What a node broadcast lately, told once more: a neighbour that lacks an event it wants asks for it.

A broadcast has no link-layer acknowledgement. Next hops show by their own broadcast that they have the event
(`event_multicasting.py`); neighbours that have nothing to pass on show nothing. So a node names what it
broadcast in small frames afterwards, each event `TELLINGS` times, with the event's identifier. A receiver
compares that with its own filters, so it also finds events that it was not sent because the broker that
looked them up did not know its subscription yet.

A broken link is noticed after three missing HELLOs. Until then the neighbour at its end gets nothing of what
this node broadcasts, and nothing shows it. So a node that has lost a neighbour asks another one which events
it had lately (an empty `Request`), and one whose HELLO is overdue gets an event by unicast, which shows
whether the link stands (`event_multicasting.py`). Neither on a medium that is full (`is_calm`), because it
would stay so.

Link state takes a moment to learn of a new link. So a new neighbour is told of what this node has had lately,
broadcast by it or not, and of what it publishes meanwhile. A node that gets an event late from a new
neighbour tells its other neighbours. It does so for new neighbours only: on a full medium, more would be a
storm (the league's `narrowband`, seed 22: 0.72 of the reachable pairs instead of 0.98).
"""

from typing import NamedTuple

from roamcast.event import EventId
from roamcast.kit.confirm import RetransmissionTimeout
from roamcast.kit.protocol import Timer, random_below
from roamcast.kit.repair import RECENT_TIME
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.chapar.messages import RECAP_MAX, Carry, Recap, RecapEntry, Request, Spread
from roamcast.strategy.chapar.node_vectors import NO_NODES, NodeVector
from roamcast.strategy.chapar.part import Part, Shared
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

TELLINGS = 2  # this and all below: chosen by us
INTERVAL: Micros = 500 * MILLISECOND  # between two frames of a node that has something to tell
NEW_FOR: Micros = 3 * SECOND  # how long what a new neighbour tells is news to others
INQUIRED_AGAIN: Micros = 1_500 * MILLISECOND  # after the first inquiry: one HELLO, and its neighbour's doubt
RECENT_MAX = 512  # events; the oldest makes room
ASK_TIMEOUT: Micros = 600 * MILLISECOND  # then the next one that tells of an event may be asked for it
# A neighbour that is back so soon was not away: on a full medium its HELLOs were lost, and more frames would
# lose more. Where the medium is calm `BACK_SOON` decides, else `FLAPPING`: cars do meet again and again.
BACK_SOON: Micros = 3 * SECOND
FLAPPING: Micros = 10 * SECOND  # so long after that the medium counts as full
# How long to wait for a next hop's own broadcast, for a relay's jitter and its queue.
FIRST_WAIT: Micros = 150 * MILLISECOND
SHORTEST_WAIT: Micros = 100 * MILLISECOND
LONGEST_WAIT: Micros = 2 * SECOND
CALM: Micros = 150 * MILLISECOND  # measured so: the medium has room for inquiries
MET_MAX = 256  # neighbours that came or went lately
ASKED_MAX = 2  # times for one event: on a full medium, more requests would lose more events


class RecentEvent(NamedTuple):
    carry: Carry  # as it arrived here
    born: Micros  # when it was published, on this node's clock
    until: Micros
    told: int


class AskedEvent(NamedTuple):
    times: int
    until: Micros  # then another neighbour may be asked
    is_news: bool  # to other neighbours, too


class Recapitulation(Part):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._recent: BoundedDict[EventId, RecentEvent] = BoundedDict(RECENT_MAX, unreported)
        self._asked: BoundedDict[EventId, AskedEvent] = BoundedDict(RECENT_MAX, unreported)
        self._asking: BoundedDict[EventId, NodeVector] = BoundedDict(RECENT_MAX, unreported)
        self._met: BoundedDict[NodeId, Micros] = BoundedDict(MET_MAX, unreported)
        self._gone: BoundedDict[NodeId, Micros] = BoundedDict(MET_MAX, unreported)
        self._timer = Timer(self._host, self._tell)
        self._is_due = False
        self._inquired_at: Micros = -INTERVAL
        self._flapped_at: Micros = -FLAPPING
        self.timeout = RetransmissionTimeout(FIRST_WAIT, SHORTEST_WAIT, LONGEST_WAIT)
        self._inquiry_timer = Timer(self._host, self._inquire)

    def remember(self, carry: Carry, born: Micros, *, told: int) -> None:
        """This node has an event, which neighbours may ask for. `told`: how often they were told of it, 0
        right after its broadcast."""
        until = self._host.now() + RECENT_TIME
        self._recent.renew(carry.event.id, RecentEvent(carry, born, until, told))
        if told < TELLINGS:
            self._tell_soon()

    def keep(self, carry: Carry, born: Micros, sender: NodeId | None) -> None:
        """This node has an event. What comes from a new neighbour is news to the others too: its broker may
        not know them yet; and so is what is published here, to a new neighbour. The rest is for newcomers."""
        key = carry.event.id
        if key not in self._recent:
            asked = self._asked.get(key)
            if asked is not None:
                is_news = asked.is_news
            else:
                new = (sender,) if sender is not None else self._met if self._in_force.meeting_check else ()
                is_news = any(map(self._is_new, new)) and self.is_calm
            self.remember(carry, born, told=0 if is_news else TELLINGS)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        now = self._host.now()
        away = now - self._gone.pop(neighbour, now - FLAPPING)
        if away < (BACK_SOON if self.is_calm else FLAPPING):
            self._flapped_at = now
            return
        self._met.renew(neighbour, now)
        self._recent.forget_oldest(lambda recent: recent.until <= now)
        for key, recent in self._recent.items():
            self._recent[key] = recent._replace(told=min(recent.told, TELLINGS - 1))
        self._tell_soon()

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """What it has broadcast since its last HELLO did not come here: another neighbour tells of it. It is
        asked twice, because the lost one may notice later than this node that it is lost."""
        self._gone.renew(neighbour, self._host.now())
        if self._in_force.notification == "broadcast":
            self._inquire()
            self._inquiry_timer.after(INQUIRED_AGAIN)

    @property
    def is_calm(self) -> bool:
        """Whether the medium has room: lately no neighbour was wrongly taken for lost, and broadcasts are
        passed on quickly."""
        return self._host.now() >= self._flapped_at + FLAPPING and self.timeout.measured < CALM

    def on_inquiry(self, sender: NodeId) -> None:
        """A neighbour has lost another one: tell it of all that was here lately."""
        now = self._host.now()
        self._recent.forget_oldest(lambda recent: recent.until <= now)
        settled = now + RECENT_TIME - INTERVAL  # what has just come here may be on its way there
        known = [key for key, recent in self._recent.items() if recent.until <= settled]
        if known:
            self._messenger.send(self._recap(known[-RECAP_MAX:]), sender)

    def on_recap(self, sender: NodeId, recap: Recap) -> None:
        """Ask for the events that this node wants and has not seen; each of one neighbour at a time."""
        now, layout, interests = self._host.now(), self._tables.layout, self._tables.interests
        lacking = []
        for entry in recap.entries:
            key = EventId(entry.publisher, entry.sequence)
            asked = self._asked.get(key)
            if (
                (asked is None or (asked.times < ASKED_MAX and asked.until <= now))
                and not self._broker.has_seen(key)
                and self._broker.lived_through(entry.age)
                and interests.select(layout.decode(entry.event_id))
            ):
                lacking.append(key)
                times = 1 if asked is None else asked.times + 1
                self._asked.renew(key, AskedEvent(times, now + ASK_TIMEOUT, self._is_new(sender)))
        if lacking:
            self._messenger.send(Request(tuple(lacking)), sender, own=True)

    def answer(self, sender: NodeId, event: EventId) -> bool:
        """Send an event to a neighbour that asked for it, in turn; False if it was not broadcast lately. One
        frame for all who ask before their turn; where the medium is full, for all who hear it."""
        recent = self._recent.get(event)
        if recent is None:
            return False
        carry, addresses = recent.carry, self._tables.addresses
        self._asking[event] = self._asking.get(event, NO_NODES) | addresses.bit(sender)

        def make(now: Micros) -> Carry | Spread | None:
            asking, age = self._asking.pop(event, NO_NODES), now - recent.born
            if asking == addresses.bit(sender) and self.is_calm:
                return Carry(carry.event, addresses.encode(asking), carry.hops, carry.sealed, age)
            spread = Spread(carry.event, carry.hops, addresses.encode(asking), (), carry.sealed, age)
            return spread if asking else None

        self._messenger.transfer(sender, event, make)
        return True

    def _inquire(self) -> None:
        now = self._host.now()
        around = self._brokers.adjacent() or self._underlay.neighbours()
        others = [node for node in around if not self._messenger.is_broken(node)]
        if others and now >= self._inquired_at + INTERVAL and self.is_calm:
            self._inquired_at = now
            self._messenger.send(Request(), others[0], own=True)

    def _tell(self) -> None:
        now = self._host.now()
        self._recent.forget_oldest(lambda recent: recent.until <= now)
        untold = [key for key, recent in self._recent.items() if recent.told < TELLINGS][:RECAP_MAX]
        for key in untold:
            self._recent[key] = self._recent[key]._replace(told=self._recent[key].told + 1)
        if untold:
            self._messenger.send(self._recap(untold))
        self._is_due = False
        self._tell_soon()

    def _recap(self, keys: list[EventId]) -> Recap:
        now, tables = self._host.now(), self._tables
        entries = []
        for key in keys:
            recent = self._recent[key]
            identifier = tables.event_id(recent.carry.event, recent.carry.sealed)
            entries.append(RecapEntry(*key, tables.layout.encode(identifier), now - recent.born))
        return Recap(tuple(entries))

    def _is_new(self, neighbour: NodeId) -> bool:
        met_at = self._met.get(neighbour)
        return met_at is not None and self._host.now() - met_at < NEW_FOR

    def _tell_soon(self) -> None:
        if not self._is_due and any(recent.told < TELLINGS for recent in self._recent.values()):
            self._is_due = True
            # Earlier by a random time, so that neighbours do not tell together.
            self._timer.after(INTERVAL - random_below(self._host, INTERVAL // 2))
