"""Random schedules for Chapar's table 1 (section 5.1): nothing twice, in order, complete.

A schedule is a few epochs. In each one the nodes are linked at random, events and subscriptions come, links
flap, nodes may crash; then all is still for a while. After that the oracle asks: whoever wants an event that
is alive and that any node of its component held when the stillness began must have it. A node holds an event
if it is the publisher, since the same boot, or keeps it in a table, as a broker or as a dismissed one.

With tables of two to eight entries evictions are the rule. There an event counts as held if a broker has it
in its table when the stillness is over: what is evicted everywhere is nobody's. Two events may change places
if the earlier one, or one between them, was evicted before the later one came, because events name their
predecessors. A publisher that crashed does not know its last event; so the order is asked for within one
boot. What a node kept itself is handed to a new subscription at once, whatever it had to evict.
"""

from collections import Counter
from itertools import combinations, pairwise
from typing import NamedTuple

from msgspec.structs import replace
from tests.strategy.chapar.network import INTERVAL, OPTIONS, Network, Pair, line, scattered

from roamcast.event import Event, EventId
from roamcast.strategy.chapar import ChaparOptions
from roamcast.streams import stream
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId, micros


class Conditions(NamedTuple):
    epochs: int
    stillness: float = 3.2 * INTERVAL  # seconds
    crashes: bool = False
    loss: float = 0.0
    olsr: bool = False  # instead of an underlay that knows everything at once
    full: bool = False  # tables and queues of two to eight entries


CONDITIONS = {
    "partitions": Conditions(5),
    "crashes": Conditions(6, crashes=True),
    # Frames that are lost again and again cost an interval each time.
    "loss": Conditions(5, stillness=8 * INTERVAL, loss=0.2),
    "olsr": Conditions(4, stillness=8 * INTERVAL, crashes=True, loss=0.1, olsr=True),
    "full": Conditions(6, stillness=8 * INTERVAL, crashes=True, full=True),
}


def play(seed: int, name: str) -> None:
    """Raises an AssertionError that names the schedule."""
    Schedule(seed, name).play()


class Schedule:
    def __init__(self, seed: int, name: str) -> None:
        self.about = f"{name}, seed {seed}"
        self.conditions = CONDITIONS[name]
        self.random = stream(seed, "schedule", str(self.conditions.crashes), str(self.conditions.loss))
        self.nodes = 4 + int(self.random.random() * 9)
        self.network = Network(
            self.nodes,
            seed=seed,
            loss=self.conditions.loss,
            has_olsr=self.conditions.olsr,
            options=self._options(),
        )
        self.ends: dict[EventId, Micros] = {}  # until when each event lives
        self.born_in: dict[EventId, int] = {}  # the boot of its publisher
        self.events: list[Event] = []
        self.boots: Counter[NodeId] = Counter()
        self.subscribed: list[tuple[Micros, NodeId]] = []

    def play(self) -> None:
        for epoch in range(self.conditions.epochs):
            self._one_epoch(epoch, last=epoch == self.conditions.epochs - 1)
        self._check_once()
        self._check_order()

    def _options(self) -> ChaparOptions:
        if not self.conditions.full:
            return OPTIONS
        few = [2 + int(self.random.random() * 7) for _ in range(3)]
        return replace(OPTIONS, met_entries_max=few[0], fmt_entries_max=few[1], pending_max=few[2])

    def _one_epoch(self, epoch: int, last: bool) -> None:
        network, random = self.network, self.random
        network.connect(self._topology(last))
        for _ in range(int(random.random() * (12 if self.conditions.full else 4))):
            network.run(random.random())
            if random.random() < 0.6:
                self._publish()
            else:
                self._subscribe()
        if self.conditions.crashes and random.random() < 0.5:
            self._crash_or_restart()
        flaps = int(random.random() * 3)
        stands = set(network._pairs)
        for _ in range(flaps):  # links that come and go make brokers flap
            network.run(random.random())
            network.connect([pair for pair in sorted(stands) if random.random() < 0.7])
            network.run(random.random())
            network.connect(sorted(stands))
        held = {event.id: self._holders(event.id) for event in self.events}
        network.run(self.conditions.stillness)
        if self.conditions.full:
            held = {event.id: self._brokers_with(event.id) for event in self.events}
            self._check_bounds()
        self._check_reached(epoch, held)

    def _topology(self, last: bool) -> list[Pair]:
        if last:
            return [*line(self.nodes), *scattered(self.random, self.nodes, 0.3)]
        pairs = scattered(self.random, self.nodes, 0.25 + 0.35 * self.random.random())
        away = {n for n in range(self.nodes) if self.random.random() < 0.15}
        return [(a, b) for a, b in pairs if a not in away and b not in away]

    def _publish(self) -> None:
        up = sorted(self.network.places)
        publisher = self.random.choice(up)
        stillness = self.conditions.stillness
        lifetime = self.random.choice([stillness / 4, 3 * stillness, 1000.0])
        event = self.network.publish(publisher, {"a": int(self.random.random() * 2)}, lifetime=lifetime)
        self.events.append(event)
        self.born_in[event.id] = self.boots[publisher]
        self.ends[event.id] = self.network.engine.now + micros(lifetime)

    def _subscribe(self) -> None:
        node = int(self.random.random() * self.nodes)
        self.subscribed.append((self.network.engine.now, node))
        if (node, 0) in self.network.filters and self.random.random() < 0.3:
            self.network.unsubscribe(node)
        else:
            self.network.subscribe(node, self.random.choice(["a = 0", "a = 1", "TRUE"]))

    def _crash_or_restart(self) -> None:
        down = sorted(set(range(self.nodes)) - set(self.network.places))
        if down:
            self.network.restart(down[0])
        else:
            victim = int(self.random.random() * self.nodes)
            self.boots[victim] += 1
            self.network.crash(victim)

    def _holders(self, event: EventId) -> set[NodeId]:
        holders = set()
        for node, place in self.network.places.items():
            chapar = place.chapar
            published = node == event.publisher and self.boots[node] == self.born_in[event]
            if published or (chapar.brokers.has_tables and chapar.tables.events.entry(event) is not None):
                holders.add(node)
        return holders

    def _brokers_with(self, event: EventId) -> set[NodeId]:
        tables = {node: self.network.places[node].chapar.tables for node in self.network.brokers()}
        return {node for node, table in tables.items() if table.events.entry(event) is not None}

    def _check_bounds(self) -> None:
        for place in self.network.places.values():
            tables, options = place.chapar.tables, self.network.options
            assert len(tables.events) <= (options.met_entries_max or 0), self.about
            assert len(tables.filters) <= options.fmt_entries_max + 1, self.about  # one for everything

    def _check_reached(self, epoch: int, held: dict[EventId, set[NodeId]]) -> None:
        network = self.network
        got = {(node, key) for _, node, key in network.delivered}
        for event in self.events:
            if self.ends[event.id] < network.engine.now:
                continue
            for (node, _), wanted in network.filters.items():
                if node in network.places and node != event.publisher and wanted.matches(event):
                    holders = held[event.id] & set(network.links.connected(node))
                    assert not holders or (node, event.id) in got, (
                        f"{self.about}, epoch {epoch}: node {node} lacks {event.id}, held by"
                        f" {sorted(holders)}, brokers {network.brokers()}"
                    )

    def _check_order(self) -> None:
        """Each subscription gets a publisher's events in their order, those from before it first. What a full
        table has pushed out may come later, from a broker that still had it."""
        network = self.network
        evicted: dict[tuple[NodeId | None, int | None], Micros] = {}  # when first, anywhere
        for drop in network.drops(DropReason.STORE_FULL):
            evicted.setdefault((drop.publisher, drop.sequence), drop.t)
        for node in range(self.nodes):
            changes = [at for at, who in self.subscribed if who == node]
            for since, until in pairwise([*changes, network.engine.now + 1]):
                first = (
                    since + self.conditions.full
                )  # what a node keeps itself comes at once, and may have gaps
                at_of = {key: at for at, who, key in network.delivered if who == node and first <= at < until}
                in_order: dict[tuple[NodeId, int], list[int]] = {}
                for key in at_of:
                    boot = self.born_in[key] if self.conditions.full else 0
                    in_order.setdefault((key.publisher, boot), []).append(key.sequence)
                for (publisher, _), sequences in in_order.items():
                    # Only what was gone when the first of the two came, and lies before it in the chain.
                    gaps = [
                        (number, at)
                        for (who, number), at in evicted.items()
                        if who == publisher and number is not None
                    ]
                    wrong = [
                        (earlier, later)
                        for earlier, later in combinations(sequences, 2)
                        if earlier > later
                        and not any(
                            later <= gap < earlier and at <= at_of[EventId(publisher, earlier)]
                            for gap, at in gaps
                        )
                    ]
                    assert not wrong, f"{self.about}: node {node}, since {since}: {publisher} {sequences}"

    def _check_once(self) -> None:
        twice = {
            pair: count
            for pair, count in Counter((node, key) for _, node, key in self.network.delivered).items()
            if count > 1
        }
        assert not twice, f"{self.about}: {twice}"
