"""Which brokers there are, and the overlay between them (section 2.3), as one node sees it.

- BNT, the Broker Neighbour Table: `neighbours()`, by the distances of the underlay's routes.
- BIT, the Broker Information Table: `load_of`, `producers_of`; travels in the brokers' rows.
- BTT, the Broker Topology Table, and BRT, the Broker Routing Table: `topology`.

Every node has the rows of all brokers (`board.py`), so a client finds the nearest broker in its own table, by
the underlay's distances; with `search = "ring"` it and the brokers ask around (`search.py`).
A broker looks every `broker_update` seconds, at its own moment, who its neighbours are (step 1), and posts
its row if that has changed (step 2; with `propagation = "neighbours"` it tells its neighbours,
`propagation.py`). Steps 3 and 4 follow when rows come in. Added to the paper:

- In the first seconds after its start a broker looks more often, so that the first overlay stands before it
  would have to change; the paper's simulation begins with a complete one.
- A broker farther away that no path leads to is a neighbour too, for as long as nothing else connects: near
  neighbours alone can form islands.
"""

from collections.abc import Callable, Collection
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from roamcast.kit.protocol import Timer, random_below
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.opportunistic.adaptation.events import NeighboursFound, SystemChannel, TimeCame
from roamcast.strategy.opportunistic.board import BROKER, ENTRIES_MAX, JITTER, Board, BoardEntry, entry_of
from roamcast.strategy.opportunistic.messages import BrokerRow, TopologyMessage
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.propagation import Propagation
from roamcast.strategy.opportunistic.search import ExpandingRing
from roamcast.strategy.opportunistic.stream import PeerStreams
from roamcast.trace import OverlayChanged
from roamcast.units import SECOND, Micros, NodeId, micros

STARTUP: Micros = 10 * SECOND
STARTUP_PERIOD: Micros = SECOND  # before the first of them, then twice as long each time
BRIDGES_MAX = 3
RENEWALS = 3  # of a row within its lifetime
LOAD_CHANGE = 5  # hundredths, that are worth a row when one is due
ROWS_PER_BOOT = 1 << 20  # versions of a broker's row between two losses of its memory


class Near(NamedTuple):
    """A broker, in the order of preference: the nearest, of those the least loaded."""

    distance: int
    load: int
    broker: NodeId


class OwnState(NamedTuple):
    """What a broker says of itself."""

    load: Callable[[], int]  # hundredths of its capacity
    producers: Callable[[], int]


class BrokerOverlay:
    def __init__(
        self,
        context: StrategyContext,
        options: OpportunisticOptions,
        channel: SystemChannel,
        board: Board,
        streams: PeerStreams,
    ) -> None:
        self._host = host = context.host
        self._underlay = context.underlay
        self._timer = Timer(host, self._on_update)
        self._spread_timer = Timer(host, self._tell_neighbours)
        self._options = options
        self._channel = channel
        self._board = board
        self._period = micros(options.broker_update)
        self._renewal = micros(options.registration_lifetime) // RENEWALS
        self._is_static = options.mode.startswith("static")
        self.own = host.node
        self.boot = boot = streams.boot
        self.ring = ExpandingRing(board.messenger, options.ring_max, boot * ROWS_PER_BOOT, self._is_broker)
        self._between = Propagation(host, board, streams) if options.propagation == "neighbours" else None
        self.topology = Topology(host.node)
        self._own: OwnState | None = None  # None: this node is no broker
        self._neighbours: dict[NodeId, Near] = {}
        self._links: tuple[int, ...] = ()
        self._farthest = 0
        self._version = boot * ROWS_PER_BOOT
        self._posted_at: Micros = 0
        self._started_at: Micros = 0
        self._periods = 0
        self._look_at: Micros = 0  # when to look for neighbours next
        self._loads_heard: dict[NodeId, tuple[int, int]] = {}  # since which row, and what

    # Inputs.

    def start(self, own: OwnState) -> None:
        """This node is a broker from now on."""
        self._own = own
        self._started_at = self._look_at = self._host.now()
        self._periods = 0
        self._publish_row()
        self._timer.after(STARTUP_PERIOD + random_below(self._host, STARTUP_PERIOD))

    def stop(self) -> None:
        """This node is no broker any more; its last row says so."""
        self._change_neighbours({})
        self._links = ()
        self._publish_row(is_over=True)
        self._own = None
        self._timer.cancel()

    def _on_update(self) -> None:
        now = self._host.now()
        if now - self._started_at < STARTUP:
            age = now - self._started_at
            self._timer.after(max(age, STARTUP_PERIOD))
            if self._is_static and self._neighbours:
                self.propagate()
            else:
                self.search(self._wanted(), self._look_and_tell)
            return
        is_due = now >= self._look_at
        if is_due:
            self._periods += 1
            # The first regular period begins at a moment of its own: updates are staggered.
            self._look_at = now + (
                random_below(self._host, self._period) if self._periods == 1 else self._period
            )
        # A static overlay begins when a broker has found neighbours.
        if self._is_static:
            if not self._neighbours:
                self.search(self._wanted(), self._look_and_tell)
            self.propagate()
        else:
            if is_due:
                self._channel.publish(TimeCame("broker_update", now))
            self._post_if_due()
        # Rows are renewed well within their lifetime, however long the period is.
        waits = self._look_at - self._posted_at <= 2 * self._renewal
        due = self._look_at if waits else self._posted_at + self._renewal
        self._timer.at(max(due, now + SECOND))

    def on_row(self, broker: NodeId, entry: BoardEntry | None) -> None:
        """Step 3; None: the broker has been silent for long."""
        if entry is None:
            self.topology.forget(broker)
            self._loads_heard.pop(broker, None)
            if self._between is not None:
                self._between.forget(broker)
            return
        assert isinstance(entry.content, BrokerRow)
        if broker == self._host.node and entry.version > self._version:
            # A forged row about us, or our own from before we lost our memory.
            self._version = entry.version
            self._publish_row(is_over=self._own is None)
            return
        links = None if self._between is None else self._between.merged(broker, entry)
        self.topology.update(broker, *(links or (entry.content, entry.made_at)))

    def on_topology(self, sender: NodeId, message: TopologyMessage, held: Micros) -> None:
        """Step 3, from a neighbour in the overlay."""
        if self._between is None:
            return
        for broker, entry in self._between.news(message, held):
            if broker != self._host.node:
                self._between.enter(broker, entry)
                self._on_links(broker)
            elif entry.version > self._version:
                self._version = entry.version  # a forged one: outbid, as in `on_row`
                self._between.enter(broker, entry_of(self._next(), self._host.now(), self._row()))
        if self._host.now() - self._started_at < STARTUP:
            self._spread_timer.within(JITTER)  # the first overlay does not wait for a period

    def on_reset(self, peer: NodeId) -> None:
        if self._between is not None:
            self._between.on_reset(peer)

    def search(self, wanted: int, on_found: Callable[[], object]) -> None:
        """Find the brokers nearby, at once or by a search for `wanted` of them; then `near` knows them."""
        if self._options.search == "routes":
            on_found()
        else:
            self.ring.begin(wanted, on_found)

    def discover_neighbours(self) -> None:
        """Step 1, when an adaptor says so."""
        if self._own is not None:
            self.search(self._wanted(), self._look_and_say)

    def propagate(self) -> None:
        """Step 2, likewise."""
        if self._own is not None:
            self._post_if_new()
            self._tell_neighbours()

    def tell_load(self) -> None:
        """Now, because it has changed much."""
        if self._own is not None:
            self._publish_row()

    def on_load_heard(self, broker: NodeId, load: int) -> None:
        """A broker told its load by another message than its row: that counts until its next row comes."""
        entry = self._board.find(BROKER, broker)
        if entry is not None and broker != self._host.node:
            self._loads_heard[broker] = (entry.version, load)

    # Questions.

    def neighbours(self) -> list[Near]:
        """BNT: the brokers around, nearest first."""
        return sorted(self._neighbours.values())

    def near(self) -> list[Near]:
        """All brokers that a route leads to, nearest first; this node too, if it is one."""
        own, found = self._host.node, []
        distance_to = self._underlay.distance if self._options.search == "routes" else self.ring.found.get
        for broker in self.topology.brokers():
            distance = 0 if broker == own else distance_to(broker)
            if distance is not None:
                found.append(Near(distance, self.load_of(broker) or 0, broker))
        found.sort()
        return found

    def load_of(self, broker: NodeId) -> int | None:
        """BIT: hundredths of its capacity, as last heard."""
        if broker == self._host.node and self._own is not None:
            return self._own.load()
        row, heard = self.topology.row(broker), self._loads_heard.get(broker)
        if row is None or heard is None:
            return None if row is None else row.load
        entry = self._board.find(BROKER, broker)
        return row.load if entry is None or heard[0] < entry.version else heard[1]

    def producers_of(self, broker: NodeId) -> int:
        """BIT: how many of its clients publish."""
        if broker == self._host.node and self._own is not None:
            return self._own.producers()
        row = self.topology.row(broker)
        return 0 if row is None else row.producers

    def is_alive(self, broker: NodeId, boot: int) -> bool:
        """Whether a broker is still in that boot, as far as is known here."""
        if broker == self._host.node:
            return self._own is not None and boot == self.boot
        row = self.topology.row(broker)
        return row is not None and not row.is_over and row.boot == boot

    def boot_of(self, broker: NodeId) -> int:
        row = self.topology.row(broker)
        return 0 if row is None else row.boot

    def path(self, to: NodeId) -> tuple[NodeId, ...]:
        """BRT: the brokers on the way to another, both ends included."""
        if self._options.mode == "best":
            return (self._host.node, to)  # the underlay knows the shortest way at every instant
        route = self.topology.route(to)
        return (self._host.node, to) if route is None else route.path

    def paths(self) -> list[tuple[NodeId, ...]]:
        """`path` to each broker that one leads to; of many brokers, all at once."""
        if self._options.mode == "best":
            return [self.path(to) for to in self.topology.reachable()]
        return [route.path for route in self.topology.routes()]

    def mean_path_from_producers(self, to: NodeId) -> float | None:
        """The average over all producers of the overlay's way from their home broker to `to`."""
        total, count = 0, 0
        for broker in [*self.topology.reachable(), self._host.node]:
            producers = self.producers_of(broker)
            length = self.topology.length(to, broker) if producers else None
            if length is not None:
                total, count = total + producers * length, count + producers
        return total / count if count else None

    # Step 1.

    def _is_broker(self) -> bool:
        return self._own is not None

    def _wanted(self) -> int:
        """Where some broker is on no path, all that the farthest ring has: one may be a bridge."""
        is_whole = len(self.topology.reachable()) + 1 >= len(self.topology.brokers())
        return self._options.neighbours_wanted if is_whole else ENTRIES_MAX

    def _look_and_say(self) -> None:
        if self._own is not None:
            self._look()
            self._channel.publish(NeighboursFound())

    def _look_and_tell(self) -> None:
        if self._own is not None:
            self._look()
            self.propagate()

    def _look(self) -> None:
        """The nearest are neighbours: all within the first ring that has enough."""
        found = [
            near
            for near in self.near()
            if near.broker != self._host.node and near.distance <= self._options.ring_max
        ]
        wanted = self._options.neighbours_wanted
        vicinity = found[wanted - 1].distance if len(found) >= wanted else self._options.ring_max
        near = {one.broker: one for one in found if one.distance <= vicinity}
        for bridge in self._bridges(near, found):
            near[bridge.broker] = bridge
        self._change_neighbours(near)
        self._links = tuple(n for broker in sorted(near) for n in (broker, near[broker].distance))[:510]
        self._farthest = max(vicinity, 1)

    def _bridges(self, near: dict[NodeId, Near], found: list[Near]) -> list[Near]:
        """Brokers farther away that nothing else leads to."""
        known = [one for one in found if one.broker not in near]
        if not known or self._host.now() - self._started_at < STARTUP // 2:
            return []  # nobody knows of any path yet
        reached = self.topology.connected_without(self._host.node, near)
        bridges: list[Near] = []
        for one in known:
            if one.broker not in reached and len(bridges) < BRIDGES_MAX:
                bridges.append(one)
                reached |= self.topology.connected_without(one.broker, None)
        return bridges

    def _change_neighbours(self, near: dict[NodeId, Near]) -> None:
        now, node = self._host.now(), self._host.node
        for broker in sorted(self._neighbours.keys() - near.keys()):
            self._host.trace(OverlayChanged(now, node, "neighbour_down", broker))
        for broker in sorted(near.keys() - self._neighbours.keys()):
            self._host.trace(OverlayChanged(now, node, "neighbour_up", broker))
        self._neighbours = near

    # Step 2.

    def _post_if_new(self) -> None:
        assert self._own is not None
        row = self.topology.row(self._host.node)
        is_same = (
            row is not None
            and (row.links, row.ring, row.producers) == (self._links, self._farthest, self._own.producers())
            and abs(row.load - self._own.load()) < LOAD_CHANGE
        )
        if is_same:
            self._post_if_due()
        elif self._between is None:
            self._publish_row()
        else:
            self._between.enter(self._host.node, entry_of(self._next(), self._host.now(), self._row()))
            self._on_links(self._host.node)
            self._post_if_due()

    def _post_if_due(self) -> None:
        if self._host.now() - self._posted_at >= self._renewal:
            self._publish_row()

    def _publish_row(self, *, is_over: bool = False) -> None:
        self._posted_at = self._host.now()
        row = self._row(is_over=is_over)
        if self._between is not None:
            row = replace(row, links=(), ring=0)
        self._board.post(BROKER, self._host.node, self._next(), row)

    def _row(self, *, is_over: bool = False) -> BrokerRow:
        own = self._own
        load, producers = (0, 0) if own is None else (own.load(), own.producers())
        return BrokerRow(self._links, self._farthest, load, producers, self.boot, is_over)

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _on_links(self, broker: NodeId) -> None:
        told = self._board.find(BROKER, broker)
        if told is not None and self._between is not None:
            self.topology.update(broker, *self._between.merged(broker, told))

    def _tell_neighbours(self) -> None:
        if self._own is not None and self._between is not None:
            linked = self.topology.linked(self._host.node)
            self._between.tell({*self._neighbours, *linked} - {self._host.node})


class Route(NamedTuple):
    """BRT, one line of the Broker Routing Table: the brokers on the way, both ends included."""

    path: tuple[NodeId, ...]
    hops: int  # by the distances that the brokers stated


class Topology:
    """BTT, the Broker Topology Table: each broker's own view of the whole overlay (section 2.3).

    A row is what one broker said of its neighbours; `board.py` brings them, the fresher ones in place of
    others (global state routing), and takes those away whose brokers have been silent for long.

    The links of the overlay are kept: a new row has only those of its broker looked at again. That is done,
    and routes are found, when somebody asks for a path; routes are forgotten only if a link did change. A
    client asks for none.
    """

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
        self.changes = 0  # of brokers and their links, not of loads

    def update(self, broker: NodeId, row: BrokerRow, made_at: Micros) -> None:
        """Take a row that its broker made at that time (step 3)."""
        before = self._rows.get(broker)
        if before is None or (before.links, before.is_over) != (row.links, row.is_over):
            self.changes += 1
        self._rows[broker] = row
        self._made_at[broker] = made_at
        self._changed[broker] = None

    def forget(self, broker: NodeId) -> None:
        if self._rows.pop(broker, None) is not None:
            del self._made_at[broker]
            self._changed[broker] = None
            self.changes += 1

    # Questions.

    def linked(self, broker: NodeId) -> list[NodeId]:
        """Its neighbours in the overlay."""
        self._look_at_rows()
        return sorted(self._links.get(broker, ()))

    def row(self, broker: NodeId) -> BrokerRow | None:
        return self._rows.get(broker)

    def is_broker(self, node: NodeId) -> bool:
        """Whether a node is known as a broker, and has not said that it stopped being one."""
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

        The later row counts: it gives the distance, or says that there is no link any more. But if a broker
        did not search as far as the distance that the other states, its row does not show that there is no
        link.
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
