"""One player of random schedules for every strategy, and the oracle that judges what came of them.

A schedule is a few epochs. In each one the nodes are linked at random, events and subscriptions come, links
flap, nodes may crash and restart; then all is still for a while. After that the oracle asks: whoever wants a
memorized event that is alive, and that any node of its component held when the stillness began, must have it;
nobody gets an event twice within a boot, or one that it did not ask for. A seed gives the same schedule for
ever, and a failure names it.

A strategy with promises of its own (order, who holds an event) has an oracle of its own. Bounds are drawn
small, so that evictions are the rule; what a bound pushes out is excused where the trace says so.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from roamcast.event import Event, EventId
from roamcast.streams import stream
from roamcast.testing import Network, line, mesh
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId, micros

Pair = tuple[NodeId, NodeId]


class Conditions(NamedTuple):
    strategy: str
    epochs: int = 5
    stillness: float = 10.0  # seconds
    crashes: bool = False
    loss: float = 0.0
    options: Mapping[str, Any] = {}
    small: Mapping[str, Sequence[int]] = {}  # options that are bounds, and the values to draw from
    underlay: str | None = None
    filters: Sequence[str] = ("a = 0", "a = 1", "TRUE")


class Oracle:
    """What every strategy promises that repairs memorized events."""

    repairs = True  # what one node of a component holds, all who want it get

    def holders(self, player: "Player", event: EventId) -> set[NodeId]:
        """The nodes that can give the event to others."""
        nodes = enumerate(player.network.nodes)
        return {number for number, node in nodes if node is not None and event in node.broker.store}

    def check(self, player: "Player", held: dict[EventId, set[NodeId]]) -> None:
        """After each stillness. `held`: who held which event when it began."""
        network = player.network
        got = {(arrival.node, EventId(*arrival[1:])) for arrival in network.delivered}
        lost = player.pushed_out()
        for event in player.events if self.repairs else ():
            if player.ends[event.id] < network.engine.now or event.id in lost:
                continue
            for node in player.wanting(event):
                holders = held[event.id] & set(network.links.connected(node))
                assert not holders or (node, event.id) in got, (
                    f"{player.about}: node {node} lacks {event.id}, which {sorted(holders)} held"
                )
        assert not network.misdelivered, f"{player.about}: {network.misdelivered}"
        twice = [one for one, times in Counter(player.deliveries()).items() if times > 1]
        assert not twice, f"{player.about}: twice {twice}"


class Player:
    def __init__(self, seed: int, conditions: Conditions, oracle: Oracle) -> None:
        self.conditions = conditions
        self.random = stream(seed, "schedule", conditions.strategy, str(conditions.crashes))
        bounds = {name: self.random.choice(list(values)) for name, values in conditions.small.items()}
        self.about = f"{conditions.strategy}, seed {seed}, {bounds}"
        self.size = 4 + int(self.random.random() * 7)
        self.network = Network(
            self.size,
            conditions.strategy,
            options={**conditions.options, **bounds},
            underlay=conditions.underlay,
            loss=conditions.loss,
            seed=seed,
        )
        self.oracle = oracle
        self.events: list[Event] = []
        self.ends: dict[EventId, Micros] = {}  # until when each event lives
        self.boots: Counter[NodeId] = Counter()
        self._boot_of: list[int] = []  # of the receiver, for each arrival
        self._numbers: dict[NodeId, int] = {}  # of the subscription that a node has
        self._wanted: dict[NodeId, str] = {}

    def play(self) -> None:
        for epoch in range(self.conditions.epochs):
            self._one_epoch(is_last=epoch == self.conditions.epochs - 1)

    # Questions.

    def wanting(self, event: Event) -> list[NodeId]:
        """The nodes that are up and should get an event of another."""
        return [
            node
            for node in sorted(self._numbers)
            if node != event.publisher
            and self.network.nodes[node] is not None
            and self._wanted[node] in ("TRUE", f"a = {event.attributes['a']}")
        ]

    def deliveries(self) -> list[tuple[NodeId, int, EventId]]:
        """Who got what, and in which of its boots."""
        self._note_boots()
        arrivals = zip(self.network.delivered, self._boot_of, strict=True)
        return [(one.node, boot, EventId(*one[1:])) for one, boot in arrivals]

    def pushed_out(self) -> set[EventId]:
        """Events that a full table has pushed out aloud."""
        return {
            EventId(drop.publisher, drop.sequence)
            for drop in self.network.trace.of(Dropped)
            if drop.reason in (DropReason.STORE_FULL, DropReason.QUEUE_FULL)
            and drop.publisher is not None
            and drop.sequence is not None
        }

    # What happens.

    def _one_epoch(self, *, is_last: bool) -> None:
        self._link(self._topology(is_last))
        steps: list[Callable[[], None]] = [self._publish] * 3 + [self._subscribe] * 2
        for _ in range(int(self.random.random() * 6)):
            self._run(self.random.random())
            self.random.choice(steps)()
        if self.conditions.crashes and self.random.random() < 0.5:
            self._crash_or_restart()
        stands = self._links()
        for _ in range(int(self.random.random() * 3)):  # links that come and go
            self._run(self.random.random())
            self._link([pair for pair in stands if self.random.random() < 0.7])
            self._run(self.random.random())
            self._link(stands)
        held = {event.id: self.oracle.holders(self, event.id) for event in self.events}
        self._run(self.conditions.stillness)
        self.oracle.check(self, held)

    def _topology(self, is_last: bool) -> list[Pair]:
        density = 0.25 + 0.35 * self.random.random()
        pairs = [
            (a, b)
            for a in range(self.size)
            for b in range(a + 1, self.size)
            if self.random.random() < density
        ]
        return sorted({*pairs, *line(self.size)}) if is_last else pairs

    def _links(self) -> list[Pair]:
        links = self.network.links
        return [pair for pair in mesh(self.size) if links.linked(*pair)]

    def _link(self, pairs: Sequence[Pair]) -> None:
        stands = set(self._links())
        self.network.cut(*sorted(stands - set(pairs)))
        self.network.connect(*sorted(set(pairs) - stands))

    def _run(self, seconds: float) -> None:
        self.network.run(seconds)
        self._note_boots()

    def _note_boots(self) -> None:
        for arrival in self.network.delivered[len(self._boot_of) :]:
            self._boot_of.append(self.boots[arrival.node])

    def _publish(self) -> None:
        publisher = self.random.choice([n for n in range(self.size) if self.network.nodes[n] is not None])
        lifetime = self.random.choice([self.conditions.stillness / 4, 3 * self.conditions.stillness, 1000.0])
        attributes = {"a": int(self.random.random() * 2)}
        event = self.network.publish(publisher, attributes, lifetime=lifetime)
        self.events.append(event)
        self.ends[event.id] = self.network.engine.now + micros(lifetime)

    def _subscribe(self) -> None:
        node = int(self.random.random() * self.size)
        if self.network.nodes[node] is None:
            return
        if node in self._numbers:
            self.network.unsubscribe(node, self._numbers.pop(node))
        if self.random.random() < 0.8:
            self._wanted[node] = self.random.choice(list(self.conditions.filters))
            self._numbers[node] = self.network.subscribe(node, self._wanted[node])

    def _crash_or_restart(self) -> None:
        down = [number for number in range(self.size) if self.network.nodes[number] is None]
        if down:
            self.network.restart(down[0])
        else:
            victim = int(self.random.random() * self.size)
            self._note_boots()  # of what it got until now
            self.network.crash(victim)
            self.boots[victim] += 1
