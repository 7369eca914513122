"""How far subscribers are: a distance vector with sequence numbers (as in DSDV, Perkins and Bhagwat, 1994),
by entries that ride in beacons.

A subscriber that wants to be found counts a number up now and then; who hears of it says in its next beacon
how many hops away it is, and by which neighbour. An entry is told when it has changed, and all of them to a
new neighbour; a neighbour's entry that leads back to this node does not count. A number that is not counted
up any more ends.

Nodes are called by their names of two octets (`kit/cover.py`). An entry has four octets:

    | name 16 | hops 4 | number 4 | next hop's number, the lowest 8 |
"""

from typing import NamedTuple

from roamcast.host import Host
from roamcast.kit.cover import name_number
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us.
RENEWED_EVERY: Micros = 12 * SECOND
LASTS_FOR: Micros = 5 * RENEWED_EVERY // 2
LOST_LATELY: Micros = 60 * SECOND  # a subscriber lost for less may be met by whoever carries its events
WHOLE_TURNS = 1  # beacons with all entries, for a new neighbour
GONE = 15  # hops: there is no way; as far, or farther, nobody is directed
ENTRY_BYTES = 4
TOLD_MAX = 250  # entries in one beacon; the nearest
NAMES_MAX = 1_000  # subscribers of whom a distance is known
NUMBERS = 16


class DistanceEntry(NamedTuple):
    hops: int
    number: int  # of the subscriber, when it was told
    via: int  # the lowest octet of the next hop's number


class Newest(NamedTuple):
    """The number of a subscriber."""

    number: int
    heard_at: Micros


NO_WAY = DistanceEntry(GONE, 0, 0)


class Distances:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._name = name_number(host.node)
        self._near: dict[NodeId, dict[int, DistanceEntry]] = {}  # what each neighbour has told
        self._aside: set[NodeId] = set()  # neighbours that did not answer
        self._newest: dict[int, Newest] = {}
        self._lost_at: BoundedDict[int, Micros] = BoundedDict(NAMES_MAX, unreported)
        self._own: dict[int, DistanceEntry] = {}
        self._is_old = False  # the own ones have to be computed anew
        self._ends_at: Micros = 0  # the first of them
        self._told: dict[int, tuple[int, int]] = {}
        self._whole_turns = 0
        self.told_until: Micros = 0  # this node wants to be found
        self._number = int(host.random.random() * NUMBERS)
        self._renewed_at: Micros = -RENEWED_EVERY

    # Inputs.

    def on_up(self, neighbour: NodeId) -> None:
        self._near[neighbour] = {}
        self._whole_turns = WHOLE_TURNS

    def on_down(self, neighbour: NodeId) -> None:
        self._near.pop(neighbour, None)
        self._aside.discard(neighbour)
        self._is_old = True

    def put_aside(self, neighbour: NodeId) -> None:
        """A neighbour does not answer: do not use it until it is heard again."""
        if neighbour in self._near:
            self._aside.add(neighbour)
            self._is_old = True

    def on_heard(self, neighbour: NodeId) -> None:
        if neighbour in self._aside:
            self._aside.discard(neighbour)
            self._is_old = True

    def on_entries(self, neighbour: NodeId, octets: bytes) -> None:
        known = self._near.get(neighbour)
        if known is None:
            return
        now = self._host.now()
        if len(known) > NAMES_MAX:
            known.clear()  # no honest neighbour has told so many
        for at in range(0, len(octets) - ENTRY_BYTES + 1, ENTRY_BYTES):
            name = octets[at] << 8 | octets[at + 1]
            entry = DistanceEntry(octets[at + 2] >> 4, octets[at + 2] & 15, octets[at + 3])
            newest = self._newest.get(name)
            if name == self._name or (newest is None and len(self._newest) >= NAMES_MAX):
                continue
            if newest is None or 0 < (entry.number - newest.number) % NUMBERS < NUMBERS // 2:
                self._newest[name] = Newest(entry.number, now)
            known[name] = entry
        self._is_old = True

    # Questions.

    @property
    def is_told(self) -> bool:
        return self._host.now() < self.told_until

    def neighbours(self) -> list[NodeId]:
        """The neighbours that may be used as a next hop."""
        return [node for node in self._near if node not in self._aside]

    def of(self, name: int) -> int:
        """Hops to a subscriber; `GONE`: no way is known."""
        return self._current().get(name, NO_WAY).hops

    def by(self, neighbour: NodeId, name: int) -> int:
        """Hops from a neighbour on, as it told last; `GONE` also where its way leads back."""
        hops, number, via = self._near.get(neighbour, {}).get(name, NO_WAY)
        newest = self._newest.get(name)
        if newest is None or (newest.number - number) % NUMBERS > 1:
            return GONE
        return GONE if hops > 1 and via == self._host.node & 255 else hops

    def is_absent(self, name: int) -> bool:
        """Whether a subscriber that had a way has had none for a while."""
        lost_at = self._lost_at.get(name)
        return lost_at is not None and self._host.now() - lost_at > LOST_LATELY and self.of(name) == GONE

    def entries(self) -> bytes:
        """The entries for the next beacon."""
        now, own = self._host.now(), self._current()
        if self.is_told:
            if now - self._renewed_at >= RENEWED_EVERY:
                self._renewed_at = now
                self._number = (self._number + 1) % NUMBERS
            own = {self._name: DistanceEntry(0, self._number, 0), **own}
        told = {} if self._whole_turns else self._told
        self._whole_turns = max(0, self._whole_turns - 1)
        changed = [(*entry, name) for name, entry in own.items() if told.get(name) != entry[:2]]
        gone = [(GONE, number, 0, name) for name, (_, number) in self._told.items() if name not in own]
        said = (gone + sorted(changed))[:TOLD_MAX]
        self._told = {name: entry[:2] for name, entry in own.items() if told.get(name) == entry[:2]}
        self._told.update((name, (hops, number)) for hops, number, _, name in gone[TOLD_MAX:])
        self._told.update((name, (hops, number)) for hops, number, _, name in said if hops != GONE)
        return b"".join(
            bytes((name >> 8, name & 255, hops << 4 | number, via)) for hops, number, via, name in said
        )

    # Private.

    def _current(self) -> dict[int, DistanceEntry]:
        now = self._host.now()
        if self._is_old or now > self._ends_at:
            self._is_old = False
            before = self._own
            self._own = self._nearest(now)
            for name in before.keys() - self._own.keys():
                self._lost_at[name] = now
            for name in self._own.keys() & self._lost_at.keys():
                del self._lost_at[name]
        return self._own

    def _nearest(self, now: Micros) -> dict[int, DistanceEntry]:
        """The shortest way to each subscriber, by neighbours that say so and whose way does not lead here."""
        for name in [name for name, newest in self._newest.items() if now - newest.heard_at > LASTS_FOR]:
            del self._newest[name]
        oldest = min((heard_at for _, heard_at in self._newest.values()), default=now)
        self._ends_at = oldest + LASTS_FOR
        newest = {name: number for name, (number, _) in self._newest.items()}
        me, best = self._host.node & 255, dict[int, DistanceEntry]()
        for node in sorted(self.neighbours()):
            for name, (hops, number, via) in self._near[node].items():
                # As `by`, without a call for each.
                known = best.get(name, NO_WAY)
                if hops + 1 >= known.hops or (hops > 1 and via == me) or name not in newest:
                    continue
                if (newest[name] - number) % NUMBERS <= 1:
                    best[name] = DistanceEntry(hops + 1, newest[name], node & 255)
        return best
