"""BTT, the Broker Topology Table: each broker's own view of the whole overlay (section 2.3).

A row is what one broker said of its neighbours, with its sequence number; rows of others are replaced only
by fresher ones (global state routing). A neighbour is told the rows that changed since it last confirmed
any, and nothing else. A row whose broker has been silent for `row_lifetime` goes: it may have crashed, and
its links would lead nowhere.
"""

import heapq
from collections.abc import Collection, Mapping
from typing import Annotated, NamedTuple

import msgspec

from roamcast.event import Count
from roamcast.units import Micros, NodeId

NEIGHBOURS_MAX = 255
ROWS_MAX = 4_096


class Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One broker's neighbours and their distances in hops, one after the other; none: it is a broker no more.

    `ring` is how far it looked. `load`, in hundredths of its capacity, and `producers` are its line of the
    BIT, the Broker Information Table."""

    broker: Count
    sequence: Count
    links: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * NEIGHBOURS_MAX)]
    ring: Count = 0
    load: Count = 0
    producers: Count = 0  # how many of its clients publish

    def neighbours(self) -> list[tuple[NodeId, int]]:
        return list(zip(self.links[::2], self.links[1::2], strict=False))


class Route(NamedTuple):
    """BRT, one line of the Broker Routing Table: the brokers on the way, both ends included."""

    path: tuple[NodeId, ...]
    hops: int  # by the distances that the brokers stated


class Topology:
    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._rows: dict[NodeId, Row] = {}
        self._heard_at: dict[NodeId, Micros] = {}
        self._routes: dict[NodeId, dict[NodeId, Route]] = {}  # by origin
        self._links_known: dict[NodeId, dict[NodeId, int]] | None = None

    def update(self, row: Row, now: Micros) -> bool:
        """Take a row if it is news (step 3); whether it was."""
        known = self._rows.get(row.broker)
        if known is not None and row.sequence <= known.sequence:
            return False
        if known is None and len(self._rows) >= ROWS_MAX:
            return False
        self._rows[row.broker] = row
        self._heard_at[row.broker] = now
        self._forget_routes()
        return True

    def news(self, told: Mapping[NodeId, int]) -> list[Row]:
        """What to propagate (step 2) to someone who knows the rows of these sequence numbers."""
        return [row for broker, row in self._rows.items() if row.sequence > told.get(broker, -1)]

    def forget_silent(self, before: Micros) -> None:
        for broker in [b for b, heard in self._heard_at.items() if heard < before and b != self._own]:
            del self._rows[broker], self._heard_at[broker]
            self._forget_routes()

    def rows(self) -> list[Row]:
        return [self._rows[broker] for broker in sorted(self._rows)]

    def row(self, broker: NodeId) -> Row | None:
        return self._rows.get(broker)

    def brokers(self) -> list[NodeId]:
        """All that are known and still brokers, this one included if it is one."""
        return sorted(broker for broker, row in self._rows.items() if row.links or broker == self._own)

    def reachable(self) -> list[NodeId]:
        """The brokers that a path leads to, this one apart: those that a message can be for."""
        return sorted(broker for broker in self._from(self._own) if broker != self._own)

    def route(self, to: NodeId) -> Route | None:
        """Step 4: by the shortest path on this broker's own view."""
        return self._from(self._own).get(to)

    def length(self, origin: NodeId, to: NodeId) -> int | None:
        """Hops of the shortest path between any two brokers, on this broker's own view."""
        route = self._from(origin).get(to)
        return None if route is None else route.hops

    def connected_without(self, origin: NodeId, neighbours: Collection[NodeId] | None) -> set[NodeId]:
        """The brokers that a path leads to if `origin` had links to these alone; None: to those it has."""
        links = self._known_links()
        found = {origin}
        reached = [origin]
        while reached:
            here = reached.pop()
            first = neighbours if here == origin and neighbours is not None else links.get(here, ())
            for broker in first:
                if broker not in found and broker != self._own:
                    found.add(broker)
                    reached.append(broker)
        return found

    def _from(self, origin: NodeId) -> dict[NodeId, Route]:
        if origin not in self._routes:
            self._routes[origin] = self._shortest_paths(origin)
        return self._routes[origin]

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._links_known = None

    def _known_links(self) -> dict[NodeId, dict[NodeId, int]]:
        if self._links_known is None:
            self._links_known = self._links()
        return self._links_known

    def _shortest_paths(self, origin: NodeId) -> dict[NodeId, Route]:
        """Dijkstra's."""
        links = self._known_links()
        routes = {origin: Route((origin,), 0)}
        done: set[NodeId] = set()
        # Fewer hops first, then fewer brokers, then the lower numbers: the same choice everywhere.
        queue: list[tuple[int, int, tuple[NodeId, ...]]] = [(0, 1, (origin,))]
        while queue:
            hops, _, path = heapq.heappop(queue)
            here = path[-1]
            if here in done:
                continue
            done.add(here)
            routes[here] = Route(path, hops)
            for neighbour, distance in links.get(here, {}).items():
                if neighbour not in done:
                    heapq.heappush(queue, (hops + distance, len(path) + 1, (*path, neighbour)))
        return routes

    def _links(self) -> dict[NodeId, dict[NodeId, int]]:
        """The overlay as this broker sees it, both ways.

        Both ends of a link speak of it, at different times. The later word counts: it gives the distance, or
        says that there is no link any more. But a broker that looked less far than the other's stated
        distance has not looked there, and its silence says nothing.
        """
        stated = {broker: dict(row.neighbours()) for broker, row in self._rows.items()}
        links: dict[NodeId, dict[NodeId, int]] = {broker: {} for broker in self._rows}
        for broker, neighbours in stated.items():
            for neighbour, distance in neighbours.items():
                other = self._rows.get(neighbour)
                if other is not None and self._heard_at[neighbour] > self._heard_at[broker]:
                    if broker in stated[neighbour]:
                        continue  # its own turn in this loop gives the newer distance
                    if other.ring >= distance:
                        continue
                links.setdefault(broker, {})[neighbour] = distance
                links.setdefault(neighbour, {})[broker] = distance
        return links
