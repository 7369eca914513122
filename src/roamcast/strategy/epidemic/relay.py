"""Copies that wait to be passed on, and whether that is still needed.

A broadcast reaches the sender's neighbours, and beacons name those. So each copy that is heard covers its
sender and the sender's neighbours; when all of our own neighbours are covered, another copy would reach
nobody new (Peng and Lu, "On the reduction of broadcast redundancy in mobile ad hoc networks", 2000). Beacons
are up to an interval old and frames get lost, so this can be wrong; the next digest then repairs it.

Two nodes that come into range would pass nothing on to each other before their beacons have come. So any
frame of a node that is no neighbour makes it a *newcomer*, which counts as a neighbour that has nothing: for
`NEWCOMER_TIME`, within which its beacon should come, and not again before `ONE_WAY_TIME`, since it may not
hear us.

A node that has lost its last neighbour broadcasts nothing of its own: whoever comes next meets it first, and
then gets its events by the digest. The cars of `examples/emulate/driving.toml` sent 63% of their copies to
nobody.
"""

from typing import NamedTuple

from roamcast.event import Event, EventId
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us.
NEWCOMER_TIME: Micros = SECOND
ONE_WAY_TIME: Micros = 10 * SECOND
NEWCOMERS_MAX = 256
CROWD = 5  # so many others that heard a copy, or more, and a relay waits for the whole jitter


class WaitingCopy(NamedTuple):
    event: Event
    hops: int  # so far
    age: Micros  # at its arrival
    arrived: Micros
    covered: set[NodeId]


class RelayQueue:
    def __init__(self, underlay: Underlay, *, suppress: bool, pending_max: int) -> None:
        self._underlay = underlay
        self._suppress = suppress
        self._pending_max = pending_max
        self._waiting: dict[EventId, WaitingCopy] = {}
        self._newcomers: BoundedDict[NodeId, Micros] = BoundedDict(NEWCOMERS_MAX, unreported)
        self._had_neighbours = False  # an underlay may name none, ever

    def may_be_heard(self, now: Micros) -> bool:
        """Whether a broadcast may reach somebody."""
        return not (self._suppress and self._had_neighbours) or bool(self._all_neighbours(now))

    def meet(self, node: NodeId, now: Micros) -> bool:
        """A frame has come from a node that is no neighbour. Whether that is news."""
        self._newcomers.forget_oldest(lambda met_at: now - met_at >= ONE_WAY_TIME)
        is_news = node not in self._newcomers
        if is_news:
            self._newcomers[node] = now
        return is_news

    def on_neighbour_up(self, node: NodeId) -> None:
        self._newcomers.pop(node, None)
        self._had_neighbours = True

    def crowd(self, sender: NodeId) -> int:
        """How many others heard what `sender` broadcast: up to `CROWD`, and that if it is not known.

        Where few can send at once there is little to wait for: along a line the wait is a fifth.
        """
        heard_by = self._underlay.neighbours_of(sender)
        return min(CROWD, len(heard_by) - 1) if heard_by else CROWD

    def full(self) -> bool:
        return len(self._waiting) >= self._pending_max

    def add(self, event: Event, hops: int, age: Micros, now: Micros) -> None:
        self._waiting[event.id] = WaitingCopy(event, hops, age, now, set())

    def cover(self, key: EventId, sender: NodeId, *, to_all: bool) -> None:
        """A copy was heard from `sender`."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.covered.add(sender)
            if to_all:
                waiting.covered.update(self._underlay.neighbours_of(sender))

    def take(self, key: EventId, now: Micros) -> WaitingCopy | None:
        """The wait is over: the copy to send, or None if no neighbour needs it."""
        waiting = self._waiting.pop(key)
        if not self._suppress:
            return waiting
        neighbours = self._all_neighbours(now)
        # Without any known neighbour it is sent: a new neighbour's beacon may not have come yet.
        if neighbours and all(node in waiting.covered for node in neighbours):
            return None
        return waiting

    def _all_neighbours(self, now: Micros) -> list[NodeId]:
        newcomers = [node for node, met_at in self._newcomers.items() if now - met_at < NEWCOMER_TIME]
        return self._underlay.neighbours() + newcomers
