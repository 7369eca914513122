"""The Broker Manager (section 3.3): which brokers there are, and the overlay between them (section 2.3).

- BNT, the Broker Neighbour Table: `neighbours()`, found by expanding ring search or by the underlay's routes.
- BIT, the Broker Information Table: `load_of`, `producers_of`; travels inside the topology rows.
- BTT, the Broker Topology Table, and BRT, the Broker Routing Table: `topology`.

Every `broker_update` seconds, each broker at its own moment: look for neighbours (step 1), tell them what has
changed (step 2). Steps 3 and 4 follow when such news comes in. Added to the paper:

- In the first seconds after its start a broker tells news every second, so that the first overlay stands
  before it would have to change; the paper's simulation begins with a complete one.
- What a neighbour has not confirmed is told again, for updates get lost; how, and in how few octets, is in
  `propagation.py`.
- Now and then the search goes as far as it may. A broker found there that no path leads to becomes a
  neighbour too, however far, for as long as nothing else connects: near neighbours alone can form islands.
"""

from collections.abc import Callable

from roamcast.host import Host, TimerName
from roamcast.strategy.opportunistic.discovery import Near, RingSearch
from roamcast.strategy.opportunistic.messages import Announcement, Content, Update, UpdateTaken
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.propagation import Propagation, next_life
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.strategy.opportunistic.rows import WITHDRAWN, Row
from roamcast.strategy.opportunistic.topology import Topology
from roamcast.trace import OverlayChanged
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId, micros

STARTUP: Micros = 10 * SECOND
STARTUP_PERIOD: Micros = SECOND
WIDE_EVERY = 4  # periods
BRIDGES_MAX = 3
REFRESH_PERIODS = 4  # a row that does not change is still told so often
LIFETIME_PERIODS = 12


class BrokerManager:
    """Timers are `"broker update"`, `"updates taken"` and those of the search."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        options: OpportunisticOptions,
        search: RingSearch,
        send: Callable[[NodeId, Content, Letter], object],
        *,
        sequence: int,
        load: Callable[[], int],
        producers: Callable[[], int],
        on_changed: Callable[[], None],
    ) -> None:
        """`load` and `producers` answer for this broker; `on_changed`: the tables have news. Rows are
        numbered from `sequence` on: others remember those of an earlier time as a broker."""
        self._host = host
        self._underlay = underlay
        self._options = options
        self._search = search
        self._load = load
        self._producers = producers
        self._on_changed = on_changed
        self._period = micros(options.broker_update)
        self._is_static = options.mode.startswith("static")
        self.topology = Topology(host.node)
        self._neighbours: dict[NodeId, Near] = {}
        self._propagation = Propagation(host, self.topology, send)
        self._sequence = next_life(sequence)
        self._row_told_at: Micros = 0
        self._started_at: Micros = 0
        self._periods = 0
        self._has_searched = False
        self._wide_at: Micros | None = None  # after the start: when to look as far as we may
        self._loads_heard: dict[NodeId, tuple[int, int]] = {}  # since which row, and what
        self._is_withdrawn = False
        # What follows from the end of a period, from the end of a search, and from another's news (its
        # sender); an adaptor may take them over (section 3.5).
        self.on_period: Callable[[], None] = self.discover_neighbours
        self.on_neighbours: Callable[[], None] = self.propagate
        self.on_news: Callable[[NodeId], None] = lambda sender: self.rebuild_routes()

    # Inputs.

    def on_start(self) -> None:
        self._started_at = self._host.now()
        self._wide_at = STARTUP // 2 + self._chance(STARTUP // 2 - STARTUP_PERIOD)
        self._own_row(())
        self._host.set_timer("broker update", self._started_at + self._chance(STARTUP_PERIOD // 2))

    def on_timer(self, name: TimerName) -> None:
        if name == "updates taken":
            self._propagation.on_timer()
            return
        now = self._host.now()
        age = now - self._started_at
        if age < STARTUP:
            self._host.set_timer("broker update", now + STARTUP_PERIOD)
            if not self._has_searched and not self._underlay.neighbours() and age < STARTUP // 2:
                self._host.set_timer("broker update", now + STARTUP_PERIOD // 2)
                return
            if not self._has_searched:
                self._has_searched = True
                self._search.start(self._options.neighbours_wanted, self._found)
            elif self._wide_at is not None and age >= self._wide_at:
                self._wide_at = None
                if not self._look_wide():
                    self.propagate()
            else:
                self.propagate()
            return
        self._periods += 1
        # The first regular period begins at a moment of its own: updates are staggered.
        wait = self._chance(self._period) if self._periods == 1 else self._period
        self._host.set_timer("broker update", now + max(wait, SECOND))
        # A static overlay begins when a broker has found neighbours.
        is_settled = self._is_static and bool(self._neighbours)
        if self._periods == 1 or is_settled or self._is_withdrawn:
            self.propagate()
        else:
            self.on_period()
        if not self._is_static:
            self.topology.forget_silent(now - LIFETIME_PERIODS * max(self._period, SECOND))
            for broker in [b for b in self._loads_heard if self.topology.row(b) is None]:
                del self._loads_heard[broker]

    def discover_neighbours(self) -> None:
        """Step 1."""
        if self._periods % WIDE_EVERY == self._host.node % WIDE_EVERY and self._look_wide():
            return
        if self._options.discovery == "routes":
            self._found(self._by_routes(), self._options.ring_max)
        else:
            self._search.start(self._options.neighbours_wanted, self._found)

    def rebuild_routes(self) -> None:
        """Step 4. Routes are found when they are asked for; whoever can be reached now shall know it."""
        self._on_changed()

    def tell_load(self) -> None:
        """Now, because it has changed much."""
        row = self.topology.row(self._host.node)
        if row is not None and not self._is_withdrawn:
            self._own_row(row.links, row.ring)
            self.propagate()

    def withdraw(self) -> None:
        """Be a broker no more: the last row says so, and goes to those who were neighbours."""
        self._is_withdrawn = True
        self._own_row((), WITHDRAWN)
        self.propagate()

    @property
    def sequence(self) -> int:
        """Of the row that was told last."""
        return self._sequence

    @property
    def is_taken(self) -> bool:
        """Whether the neighbours have confirmed all that they were told."""
        return self._propagation.is_taken

    def on_update(self, sender: NodeId, update: Update) -> None:
        """Step 3."""
        if self._propagation.on_update(sender, update):
            self.on_news(sender)

    def on_announcement(self, sender: NodeId, announcement: Announcement) -> None:
        if self._propagation.on_announcement(sender, announcement):
            self.on_news(sender)

    def on_update_taken(self, sender: NodeId, taken: UpdateTaken) -> None:
        self._propagation.on_taken(sender, taken)

    def on_load_heard(self, broker: NodeId, load: int) -> None:
        """A broker's own word, by another way than its row: true until its next row comes."""
        row = self.topology.row(broker)
        if row is not None and broker != self._host.node:
            self._loads_heard[broker] = (row.sequence, load)

    # Questions.

    def neighbours(self) -> list[Near]:
        """BNT: the brokers around, nearest first."""
        return sorted(self._neighbours.values())

    def load_of(self, broker: NodeId) -> int | None:
        """BIT: hundredths of its capacity, as last heard."""
        if broker == self._host.node:
            return self._load()
        row = self.topology.row(broker)
        if row is None:
            return None
        heard = self._loads_heard.get(broker)
        return row.load if heard is None or heard[0] < row.sequence else heard[1]

    def producers_of(self, broker: NodeId) -> int:
        """BIT: how many of its clients publish."""
        if broker == self._host.node:
            return self._producers()
        row = self.topology.row(broker)
        return 0 if row is None else row.producers

    def path(self, to: NodeId) -> tuple[NodeId, ...]:
        """BRT: the brokers on the way to another, both ends included."""
        if self._options.mode == "best":
            return (self._host.node, to)  # the underlay knows the shortest way at every instant
        route = self.topology.route(to)
        return (self._host.node, to) if route is None else route.path

    def path_length(self, origin: NodeId, to: NodeId) -> int | None:
        """Hops between two brokers, as this one sees the overlay."""
        return self.topology.length(origin, to)

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

    def _look_wide(self) -> bool:
        """False if there is nobody to be found: every node so near is a broker that a path leads to."""
        known = {*self.topology.reachable(), self._host.node}
        others = [node for node in self._underlay.known_nodes() if node not in known]
        if self._underlay.known_nodes() and not any(map(self._is_near, others)):
            return False
        self._search.start_wide(self._found)
        return True

    def _is_near(self, node: NodeId) -> bool:
        distance = self._underlay.distance(node)
        return distance is not None and distance <= self._options.ring_max

    def _found(self, found: list[Near], reach: int) -> None:
        """The nearest are neighbours: all within the first ring that has enough."""
        if self._is_withdrawn:
            return
        wanted = self._options.neighbours_wanted
        vicinity = found[wanted - 1].distance if len(found) >= wanted else reach
        near = {one.broker: one for one in found if one.distance <= vicinity}
        for bridge in self._bridges(near, found):
            near[bridge.broker] = bridge
        self._change_neighbours(near)
        links = tuple(n for one in sorted(near.values(), key=_by_number) for n in (one.broker, one.distance))
        self._own_row(links, max(vicinity, 1))
        self.on_neighbours()
        self._on_changed()

    def _bridges(self, near: dict[NodeId, Near], found: list[Near]) -> list[Near]:
        """Brokers farther away that nothing else leads to: found now, or neighbours from before."""
        known = [one for one in found if one.broker not in near]
        for broker, one in self._neighbours.items():
            row = self.topology.row(broker)
            if row is not None and row.is_withdrawn:
                continue
            distance = self._underlay.distance(broker)
            if broker not in near and distance is not None and all(o.broker != broker for o in known):
                known.append(Near(distance, one.load, broker))
        if not known or (not self._periods and self._host.now() - self._started_at < STARTUP // 2):
            return []  # nobody knows of any path yet
        reached = self.topology.connected_without(self._host.node, near)
        bridges: list[Near] = []
        for one in sorted(known):
            if one.broker not in reached and len(bridges) < BRIDGES_MAX:
                bridges.append(one)
                reached |= self.topology.connected_without(one.broker, None)
        return bridges

    def _by_routes(self) -> list[Near]:
        """Brokers known by now, at the distances that the underlay tells."""
        near = []
        for row in self.topology.rows():
            is_other = row.broker != self._host.node and not row.is_withdrawn
            distance = self._underlay.distance(row.broker) if is_other else None
            if distance is not None and distance <= self._options.ring_max:
                near.append(Near(distance, row.load, row.broker))
        return sorted(near)

    def _change_neighbours(self, near: dict[NodeId, Near]) -> None:
        now, node = self._host.now(), self._host.node
        for broker in sorted(self._neighbours.keys() - near.keys()):
            self._propagation.forget_unconfirmed(broker)
            self._host.trace(OverlayChanged(now, node, "neighbour_down", broker))
        for broker in sorted(near.keys() - self._neighbours.keys()):
            self._host.trace(OverlayChanged(now, node, "neighbour_up", broker))
        self._neighbours = near

    def _own_row(self, links: tuple[int, ...], ring: int = 0) -> None:
        known = self.topology.row(self._host.node)
        load, producers = self._load(), self._producers()
        if known is not None and (known.links, known.ring, known.producers) == (links, ring, producers):
            age = self._host.now() - self._row_told_at
            if abs(known.load - load) < 5 and age < REFRESH_PERIODS * self._period:
                return
        if self._propagation.own_sequence > self._sequence:
            self._sequence = next_life(self._propagation.own_sequence)  # from before we lost our memory
        self._sequence += 1
        self._row_told_at = self._host.now()
        row = Row(self._host.node, self._sequence, links, ring, load, producers)
        self.topology.update(row, self._host.now())

    # Step 2.

    def propagate(self) -> None:
        is_beginning = self._host.now() - self._started_at < STARTUP
        beside = self._underlay.neighbours()
        self._propagation.tell(sorted(self._neighbours), beside, is_beginning=is_beginning)

    def _chance(self, span: Micros) -> Micros:
        return int(self._host.random.random() * span)


def _by_number(near: Near) -> NodeId:
    return near.broker
