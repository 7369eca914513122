"""Expanding ring search (section 2.3, step 1; 2.4, step 1): who is a broker around here, and how far?

A search goes to all nodes within one hop; where that finds too few, to those within two, and so on. Each ring
is a flood of its own: every node passes it on once, and remembers from whom it came. A broker answers, and
the answer goes back that way. A ring waits for as long as a flood takes there and an answer back.

The work names two ways. This one is for a network whose routing protocol knows no distances, and costs frames
for every look; the underlay's routes cost none (`search = "routes"`, the default).
"""

from collections.abc import Callable

from roamcast.kit.protocol import Messenger, Timer, random_below
from roamcast.kit.relay import Relay
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.opportunistic.messages import FrameMessage, RingAnswer, RingSearch
from roamcast.units import MILLISECOND, Micros, NodeId

HOP_TIME: Micros = 40 * MILLISECOND  # at most, for one hop of a search and its wait (RFC 3561's)
JITTER: Micros = 10 * MILLISECOND
SEARCHES_MAX = 1_024  # whose way back is remembered, and that wait to be passed on
ANSWERS_MAX = 4_096  # that were passed on
BROKERS_MAX = 1_024  # found by one search

SearchKey = tuple[NodeId, int]
OnFound = Callable[[], object]


class ExpandingRing:
    def __init__(
        self,
        messenger: Messenger[FrameMessage],
        farthest: int,
        first: int,
        is_broker: Callable[[], bool],
    ) -> None:
        """`first`: the number of the first search, above all from before a restart; `is_broker`:
        whether this node is one."""
        self._messenger = messenger
        self._host = messenger.host
        self._farthest = farthest
        self._is_broker = is_broker
        self._timer = Timer(messenger.host, self._look_farther)
        self._relay: Relay[SearchKey, RingSearch] = Relay(
            messenger.host, send=lambda _, search: messenger.send(search, own=False), most=SEARCHES_MAX
        )
        self._ways_back: BoundedDict[SearchKey, NodeId] = BoundedDict(SEARCHES_MAX, unreported)
        self._passed: BoundedDict[tuple[NodeId, int, NodeId], None] = BoundedDict(ANSWERS_MAX, unreported)
        self._number = first
        self._ring = 0
        self._wanted = 0
        self._waiting: list[OnFound] = []  # who hears of the end; nobody: no search is under way
        self._finding: dict[NodeId, int] = {}
        self.found: dict[NodeId, int] = {}  # by the last search: hops

    def begin(self, wanted: int, on_found: OnFound) -> None:
        """Until so many brokers are found, or the farthest ring was asked. Who asks meanwhile waits for the
        same search."""
        self._waiting.append(on_found)
        self._wanted = max(wanted, self._wanted)
        if len(self._waiting) == 1:
            self._ring, self._finding = 0, {}
            self._look_farther()

    def _look_farther(self) -> None:
        if self._ring < self._farthest and len(self._finding) < self._wanted:
            self._ring += 1
            self._number += 1
            self._ways_back[self._host.node, self._number] = self._host.node
            self._messenger.send(RingSearch(self._host.node, self._number, 1, self._ring))
            self._timer.after(2 * self._ring * HOP_TIME)
            return
        self.found, self._wanted = self._finding, 0
        waiting, self._waiting = self._waiting, []
        for on_found in waiting:
            on_found()

    def on_search(self, sender: NodeId, search: RingSearch) -> None:
        key = search.origin, search.number
        if key in self._ways_back or search.origin == self._host.node:
            return
        self._ways_back[key] = sender
        if self._is_broker():
            self._messenger.send(RingAnswer(*key, self._host.node, search.hops), sender)
        if search.hops < min(search.ring, self._farthest):
            farther = RingSearch(*key, search.hops + 1, search.ring)
            self._relay.add(key, farther, random_below(self._host, JITTER))

    def on_answer(self, sender: NodeId, answer: RingAnswer) -> None:
        way_back = self._ways_back.get((answer.origin, answer.number))
        if answer.origin != self._host.node:
            key = answer.origin, answer.number, answer.broker
            if way_back is not None and key not in self._passed:  # once: forged searches may lead in a circle
                self._passed[key] = None
                self._messenger.send(answer, way_back, own=False)
        elif self._waiting and way_back is not None and len(self._finding) < BROKERS_MAX:
            self._finding[answer.broker] = answer.hops
