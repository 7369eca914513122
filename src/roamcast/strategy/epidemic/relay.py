"""Copies that wait to be passed on, and whether that is still needed.

A broadcast reaches the sender's neighbours, and beacons name those. So each copy that is heard covers its
sender and the sender's neighbours; when all of our own neighbours are covered, another copy would reach
nobody new (Peng and Lu, "On the reduction of broadcast redundancy in mobile ad hoc networks", 2000). Beacons
are up to an interval old and frames get lost, so this can be wrong; the next digest then repairs it.

Two nodes that come into range would pass nothing on to each other before their beacons have come. So any
frame of a node that is no neighbour makes it a *newcomer*, which counts as a neighbour that has nothing: for
`NEWCOMER_TIME`, within which its beacon should come, and not again before `ONE_WAY_TIME`, since it may not
hear us.
"""

from typing import NamedTuple

from roamcast.bounded import BoundedDict, unreported
from roamcast.event import Event, EventId
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us.
NEWCOMER_TIME: Micros = SECOND
ONE_WAY_TIME: Micros = 10 * SECOND
NEWCOMERS_MAX = 256


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

    def meet(self, node: NodeId, now: Micros) -> bool:
        """A frame has come from a node that is no neighbour. Whether that is news."""
        self._newcomers.forget_oldest(lambda met_at: now - met_at >= ONE_WAY_TIME)
        is_news = node not in self._newcomers
        if is_news:
            self._newcomers[node] = now
        return is_news

    def on_neighbour_up(self, node: NodeId) -> None:
        self._newcomers.pop(node, None)

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
        newcomers = [node for node, met_at in self._newcomers.items() if now - met_at < NEWCOMER_TIME]
        neighbours = self._underlay.neighbours() + newcomers
        # Without any known neighbour it is sent: a new neighbour's beacon may not have come yet.
        if neighbours and all(node in waiting.covered for node in neighbours):
            return None
        return waiting
