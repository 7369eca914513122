"""BTT, the Broker Topology Table: each broker's own view of the whole overlay (section 2.3).

A row is what one broker said of its neighbours; `board.py` brings them, the fresher ones in place of others
(global state routing), and takes those away whose brokers have been silent for long.

The links of the overlay are kept: a new row has only those of its broker looked at again. That is done, and
routes are found, when somebody asks for a path; routes are forgotten only if a link did change. A client asks
for none.
"""

from collections.abc import Collection
from operator import itemgetter
from typing import NamedTuple

from roamcast.strategy.opportunistic.messages import BrokerRow
from roamcast.units import Micros, NodeId


class Route(NamedTuple):
    """BRT, one line of the Broker Routing Table: the brokers on the way, both ends included."""

    path: tuple[NodeId, ...]
    hops: int  # by the distances that the brokers stated


class Topology:
    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._rows: dict[NodeId, BrokerRow] = {}
        self._made_at: dict[NodeId, Micros] = {}
        self._stated: dict[NodeId, dict[NodeId, int]] = {}  # by broker: its neighbours and their distances
        self._stated_by: dict[NodeId, dict[NodeId, None]] = {}  # by broker: who says to be its neighbour
        self._links: dict[NodeId, dict[NodeId, int]] = {}  # the overlay, both ways
        self._rings: dict[NodeId, dict[int, set[NodeId]]] = {}  # the same by distance
        self._changed: dict[NodeId, None] = {}  # brokers whose rows have not been looked at
        self._routes: dict[NodeId, dict[NodeId, Route]] = {}  # by origin

    def update(self, broker: NodeId, row: BrokerRow, made_at: Micros) -> None:
        """Take a row that its broker made at that time (step 3)."""
        self._rows[broker] = row
        self._made_at[broker] = made_at
        self._changed[broker] = None

    def forget(self, broker: NodeId) -> None:
        if self._rows.pop(broker, None) is not None:
            del self._made_at[broker]
            self._changed[broker] = None

    # Questions.

    def row(self, broker: NodeId) -> BrokerRow | None:
        return self._rows.get(broker)

    def is_broker(self, node: NodeId) -> bool:
        """Whether a node is known as a broker, and has not said that it is one no more."""
        row = self._rows.get(node)
        return row is not None and not row.is_over

    def brokers(self) -> list[NodeId]:
        """All that are known and still brokers, this one included if it is one."""
        return sorted(broker for broker, row in self._rows.items() if not row.is_over)

    def reachable(self) -> list[NodeId]:
        """The brokers that a path leads to, this one apart: those that a message can be for."""
        return sorted(self._from(self._own).keys() - {self._own})

    def routes(self) -> list[Route]:
        """`route` to each of them."""
        return [route for to, route in self._from(self._own).items() if to != self._own]

    def route(self, to: NodeId) -> Route | None:
        """Step 4: by the shortest path on this broker's own view."""
        return self._from(self._own).get(to)

    def length(self, origin: NodeId, to: NodeId) -> int | None:
        """Hops of the shortest path between any two brokers, on this broker's own view."""
        route = self._from(origin).get(to)
        return None if route is None else route.hops

    def connected_without(self, origin: NodeId, neighbours: Collection[NodeId] | None) -> set[NodeId]:
        """The brokers that a path leads to if `origin` had links to these alone; None: to those it has. No
        path leads through this broker, unless it begins here."""
        self._look_at_rows()
        found = {origin, self._own}
        ahead = set(self._links.get(origin, ()) if neighbours is None else neighbours) - found
        while ahead:
            found |= ahead
            ahead = set().union(*(self._links.get(broker, ()) for broker in ahead)) - found
        return found if origin == self._own else found - {self._own}

    # Private.

    def _from(self, origin: NodeId) -> dict[NodeId, Route]:
        self._look_at_rows()
        if origin not in self._routes:
            self._routes[origin] = self._shortest_paths(origin)
        return self._routes[origin]

    def _shortest_paths(self, origin: NodeId) -> dict[NodeId, Route]:
        """Dijkstra's, all brokers with equally long paths at a time. Sets of brokers spare a step for each
        link: nearly all links lead to a broker that has been found."""
        found: dict[NodeId, Route] = {}
        left = {origin, *self._links}
        # Fewer hops first, then fewer brokers, then the lower numbers: the same choice everywhere.
        ahead: dict[tuple[int, int], list[tuple[tuple[NodeId, ...], set[NodeId]]]] = {
            (0, 1): [((), {origin})]
        }
        while left and ahead:
            length = min(ahead)
            hops, brokers = length
            for path, ring in sorted(ahead.pop(length), key=itemgetter(0)):
                for broker in ring & left:
                    longer = (*path, broker)
                    found[broker] = tuple.__new__(Route, (longer, hops))  # three times as fast as `Route(…)`
                    for distance, farther in self._rings.get(broker, {}).items():
                        ahead.setdefault((hops + distance, brokers + 1), []).append((longer, farther))
                left -= ring
        return found

    def _look_at_rows(self) -> None:
        if self._changed:
            changed, self._changed = self._changed, {}
            for broker in changed:
                row = self._rows.get(broker)
                neighbours = {} if row is None or row.is_over else row.neighbours()
                neighbours.pop(broker, None)  # a broker that names itself says nothing
                self._restate(broker, neighbours)
            for broker in changed:
                self._relink(broker)

    def _restate(self, broker: NodeId, neighbours: dict[NodeId, int]) -> None:
        """A broker names these neighbours from now on."""
        before = self._stated.pop(broker, {})
        for other in before.keys() - neighbours.keys():
            del self._stated_by[other][broker]
            if not self._stated_by[other]:
                del self._stated_by[other]
        for other in neighbours.keys() - before.keys():
            self._stated_by.setdefault(other, {})[broker] = None
        if neighbours:
            self._stated[broker] = neighbours

    def _relink(self, broker: NodeId) -> None:
        known, links = self._links.get(broker, {}), self._links_of(broker)
        if links != known:
            for other, distance in known.items() - links.items():
                self._unlink(broker, other, distance)
                self._unlink(other, broker, distance)
            for other, distance in links.items() - known.items():
                self._link(broker, other, distance)
                self._link(other, broker, distance)
            self._routes.clear()

    def _link(self, broker: NodeId, other: NodeId, distance: int) -> None:
        self._links.setdefault(broker, {})[other] = distance
        self._rings.setdefault(broker, {}).setdefault(distance, set()).add(other)

    def _unlink(self, broker: NodeId, other: NodeId, distance: int) -> None:
        del self._links[broker][other]
        ring = self._rings[broker][distance]
        ring.remove(other)
        if not ring:
            del self._rings[broker][distance]
        if not self._links[broker]:
            del self._links[broker], self._rings[broker]

    def _links_of(self, broker: NodeId) -> dict[NodeId, int]:
        """What the two ends of a link say, at different times.

        The later word counts: it gives the distance, or says that there is no link any more. But a broker
        that looked less far than the other's stated distance has not looked there, and its silence says
        nothing.
        """
        row, made_at = self._rows.get(broker), self._made_at.get(broker, -1)
        if row is not None and row.is_over:
            return {}  # others have not noticed yet
        ring = -1 if row is None else row.ring
        stated, stated_by = self._stated.get(broker, {}), self._stated_by.get(broker, {})
        links: dict[NodeId, int] = {}
        for other, distance in stated.items():
            if other in stated_by:
                theirs = self._stated[other][broker]
                # At the same time the higher number counts: the same choice everywhere.
                if distance == theirs or (made_at, broker) > (self._made_at[other], other):
                    links[other] = distance
                else:
                    links[other] = theirs
                continue
            silent = self._rows.get(other)
            if silent is not None:
                has_looked = self._made_at[other] > made_at and silent.ring >= distance
                if has_looked or silent.is_over:
                    continue
            links[other] = distance
        for other in stated_by.keys() - stated.keys():
            distance = self._stated[other][broker]
            if made_at <= self._made_at[other] or ring < distance:
                links[other] = distance
        return links
