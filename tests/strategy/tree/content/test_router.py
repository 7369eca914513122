"""Content routers on trees drawn by hand and by chance, over a network that can lose and rearrange."""

from collections.abc import Callable, Iterable, MutableMapping
from heapq import heappop, heappush
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.broker.core import Broker, Delivery, Subscription
from roamcast.event import Event, EventClass, EventId, Publication
from roamcast.filter import Filter
from roamcast.host import Frame, SendFailure
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.tree.content.messages import (
    CODEC,
    Cast,
    Digest,
    FilterUpdate,
    UpdateAcknowledgement,
    Want,
)
from roamcast.strategy.tree.content.recovery import OFFERS_OF_OWN, WAITING_MAX, WINDOW_MIN
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.strategy.tree.strategy import Tree
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

Edge = tuple[NodeId, NodeId]
LOST, OVERHEARD = -1, -2  # in the place of the number of a link's incarnation


class StaticOverlay(Overlay):
    """Links that a test draws, in place of those that a protocol finds."""

    def __init__(self, context: StrategyContext, tree: Tree, network: "Network") -> None:
        super().__init__(context.host, None, tree.options, tree)
        self.network = network

    def on_start(self) -> None:
        """Links are drawn."""

    def send(
        self, neighbour: NodeId, data: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        self.network.send(self.host.node, neighbour, data.payload, data.message, None)

    @property
    def is_overheard(self) -> bool:
        return bool(self.network.in_range.get(self.host.node, ()))

    def spread(self, neighbours: Iterable[NodeId], data: Frame) -> None:
        named = sorted(neighbours)
        for neighbour in named:
            self.network.send(self.host.node, neighbour, data.payload, data.message, named)
        for node in self.network.in_range.get(self.host.node, ()):
            if node not in named:
                self.network.overhear(self.host.node, node, data.payload, named)


class Router(Tree):
    def __init__(self, context: StrategyContext, options: TreeOptions, network: "Network") -> None:
        self.network = network
        super().__init__(context, options)

    def make_overlay(self, context: StrategyContext) -> Overlay:
        return StaticOverlay(context, self, self.network)

    def table(self, neighbour: NodeId) -> list[Filter] | None:
        """What a neighbour wants, in a fixed order; None before its table has come."""
        table = self.tables.links[neighbour].table
        return None if table is None else sorted(table, key=Filter.encode)


class Peer:
    """One node: a router over a static overlay, and an application that writes down what it gets."""

    def __init__(
        self,
        network: "Network",
        node: NodeId,
        options: TreeOptions,
        stable: MutableMapping[str, bytes] | None = None,
    ) -> None:
        self.host = FakeHost(node, seed=node + 1, now=network.now, stable=stable)
        self.got: list[EventId] = []
        self.broker = Broker(self.host, self)
        self.router = Router(StrategyContext(self.host, self.broker, Underlay()), options, network)
        self.broker.watch(self.router)
        self.host.attach(self.router)
        self.router.on_start()

    def on_event(self, delivery: Delivery) -> None:
        self.got.append(delivery.event.id)


class Network:
    """A tree whose links can be replaced; messages take a millisecond, and may be lost without a word.
    Broadcasts reach those they name, and those beside them whom a test puts `in_range`."""

    def __init__(
        self, nodes: int, edges: Iterable[Edge], *, loss: float = 0.0, seed: int = 1, **options: Any
    ) -> None:
        self.now: Micros = 0
        self.loss = loss
        self.random = Random(seed)
        self.links: dict[Edge, int] = {}
        self.sent: list[tuple[NodeId, NodeId, str]] = []
        self.in_range: dict[NodeId, list[NodeId]] = {}
        self._flight: list[tuple[Micros, int, NodeId, NodeId, bytes, int, list[NodeId] | None]] = []
        self._number = 0
        self._next_subscription = 0
        self.peers = [Peer(self, node, TreeOptions(jitter=0.0, **options)) for node in range(nodes)]
        for a, b in edges:
            self.up(a, b)

    def up(self, a: NodeId, b: NodeId) -> None:
        self._number += 1
        self.links[a, b] = self.links[b, a] = self._number
        self.peers[a].router.on_link_up(b)
        self.peers[b].router.on_link_up(a)

    def down(self, a: NodeId, b: NodeId) -> None:
        del self.links[a, b], self.links[b, a]
        self.peers[a].router.on_link_down(b)
        self.peers[b].router.on_link_down(a)

    def subscribe(self, node: NodeId, wanted: str | Filter) -> int:
        self._next_subscription += 1
        chosen = Filter.sql(wanted) if isinstance(wanted, str) else wanted
        self.peers[node].broker.subscribe(Subscription(self._next_subscription, chosen))
        return self._next_subscription

    def unsubscribe(self, node: NodeId, number: int) -> None:
        self.peers[node].broker.unsubscribe(number)

    def publish(self, node: NodeId, attributes: dict[str, Any], **rest: Any) -> Event:
        peer = self.peers[node]
        event = peer.broker.create(Publication(attributes, **rest))
        peer.broker.deliver(event, 0)
        peer.router.publish(event)
        return event

    def run(self, seconds: float) -> None:
        until = self.now + micros(seconds)
        while True:
            timers = [at for peer in self.peers for at in peer.host.timers().values()]
            at = min([*timers, *(entry[0] for entry in self._flight[:1])], default=until + 1)
            if at > until:
                break
            self._turn_to(max(at, self.now))
            while self._flight and self._flight[0][0] <= self.now:
                self._arrive()
        self._turn_to(until)

    def send(
        self, sender: NodeId, to: NodeId, payload: bytes, message: str, named: list[NodeId] | None
    ) -> None:
        """`named`: by one broadcast to these; None: to one alone."""
        assert (sender, to) in self.links, "a router sends over tree links only"
        self.sent.append((sender, to, message))
        is_lost = self.loss and self.random.random() < self.loss
        self._fly(sender, to, payload, LOST if is_lost else self.links[sender, to], named)

    def overhear(self, sender: NodeId, by: NodeId, payload: bytes, named: list[NodeId]) -> None:
        if not (self.loss and self.random.random() < self.loss):
            self._fly(sender, by, payload, OVERHEARD, named)

    def _fly(self, sender: NodeId, to: NodeId, payload: bytes, life: int, named: list[NodeId] | None) -> None:
        self._number += 1
        heappush(self._flight, (self.now + MILLISECOND, self._number, sender, to, payload, life, named))

    def receivers(self, event: Event) -> list[NodeId]:
        return [peer.host.node for peer in self.peers for each in peer.got if each == event.id]

    def table(self, at: NodeId, link: NodeId) -> list[str]:
        """What `at` knows that `link` wants."""
        return sorted(str(each) for each in self.peers[at].router.table(link) or [])

    def tables(self) -> dict[Edge, list[str]]:
        return {(a, b): self.table(a, b) for a, b in sorted(self.links)}

    def count(self, *names: str) -> int:
        return sum(message in names for _, _, message in self.sent)

    def _turn_to(self, now: Micros) -> None:
        self.now = now
        for peer in self.peers:
            peer.host.advance(now - peer.host.now())

    def _arrive(self) -> None:
        _, _, sender, to, payload, life, named = heappop(self._flight)
        if life not in (OVERHEARD, self.links.get((sender, to))):
            return
        if named is None:
            self.peers[to].router.on_data(sender, payload)
        else:
            self.peers[to].router.on_spread(sender, payload, named)


LINE = [(0, 1), (1, 2), (2, 3)]


# Tables on small trees, by hand.


def test_a_subscription_reaches_every_link_in_the_direction_of_its_subscriber() -> None:
    network = Network(4, LINE)
    network.subscribe(3, "level > 3")
    network.run(1)
    assert network.tables() == {
        (0, 1): ["level > 3"],
        (1, 0): [],
        (1, 2): ["level > 3"],
        (2, 1): [],
        (2, 3): ["level > 3"],
        (3, 2): [],
    }


def test_a_covered_subscription_stops_where_the_wider_one_was_told() -> None:
    network = Network(4, LINE)
    network.subscribe(2, "level > 3")
    network.run(1)
    before = network.count("subscription")
    network.subscribe(3, "level > 5")
    network.run(1)
    assert network.table(2, 3) == ["level > 5"]
    assert network.table(1, 2) == network.table(0, 1) == ["level > 3"]
    assert network.count("subscription") == before + 1  # from 3 to 2 and no further


def test_a_wider_subscription_replaces_the_narrow_ones_and_its_end_brings_them_back() -> None:
    network = Network(4, [(0, 1), (1, 2), (1, 3)])
    network.subscribe(2, "level > 5")
    network.subscribe(3, "level > 7 AND zone = 'north'")
    network.run(1)
    assert network.table(0, 1) == ["level > 5"]
    wide = network.subscribe(3, "level > 3")
    network.run(1)
    assert network.table(0, 1) == ["level > 3"]
    assert network.table(1, 3) == ["level > 3"]
    assert network.table(2, 1) == ["level > 3"]
    network.unsubscribe(3, wide)
    network.run(1)
    assert network.table(0, 1) == ["level > 5"]
    assert network.table(1, 3) == network.table(2, 1) == ["zone = 'north' AND level > 7"]
    assert network.table(3, 1) == ["level > 5"]


def test_two_equal_subscriptions_end_with_the_second() -> None:
    network = Network(3, [(0, 1), (1, 2)])
    first = network.subscribe(2, "level > 3")
    second = network.subscribe(2, "level > 3")
    third = network.subscribe(1, "level > 3")
    network.run(1)
    network.unsubscribe(2, first)
    network.run(1)
    assert network.table(1, 2) == network.table(0, 1) == ["level > 3"]
    network.unsubscribe(2, second)
    network.run(1)
    assert network.table(1, 2) == []
    assert network.table(0, 1) == ["level > 3"]
    network.unsubscribe(1, third)
    network.run(1)
    assert network.table(0, 1) == []


def test_topics_and_types_are_filters_like_others() -> None:
    network = Network(4, LINE)
    network.subscribe(3, Filter.topic("alarms/#"))
    network.subscribe(2, Filter.topic("alarms/fire"))
    network.subscribe(1, Filter.of_type("report"))
    network.run(1)
    fire = network.publish(0, {}, topic="alarms/fire")
    flood = network.publish(0, {}, topic="alarms/flood")
    daily = network.publish(3, {}, type="report.daily")
    network.run(1)
    assert network.receivers(fire) == [2, 3]
    assert network.receivers(flood) == [3]
    assert network.receivers(daily) == [1]


def test_an_event_travels_only_where_it_is_wanted() -> None:
    """0 publishes; 1 and 4 want it; 2, 3 and 5 lie beside the way and carry nothing.

         5
         |
    0 -- 1 -- 2
         |
         3 -- 4
    """
    network = Network(6, [(0, 1), (1, 2), (1, 3), (3, 4), (1, 5)])
    network.subscribe(1, "level > 3")
    network.subscribe(4, "level > 4")
    network.run(1)
    network.sent.clear()
    event = network.publish(0, {"level": 5})
    network.run(1)
    assert network.receivers(event) == [1, 4]
    assert [entry for entry in network.sent if entry[2] == "event"] == [
        (0, 1, "event"),
        (1, 3, "event"),
        (3, 4, "event"),
    ]


def test_destinations_are_flooded_and_multimode_adds_the_subscribers() -> None:
    network = Network(4, LINE)
    network.subscribe(1, "level > 3")
    network.run(1)
    only_three = network.publish(0, {"level": 5}, destinations=(3,))
    network.run(1)
    both = network.publish(0, {"level": 5}, destinations=(3,), multimode=True)
    network.run(1)
    assert network.receivers(only_three) == [3]
    assert network.receivers(both) == [1, 3]
    network.sent.clear()
    network.publish(0, {}, destinations=(1,))
    network.run(1)
    assert network.count("event") == 1, "beyond its only destination an event has nothing to look for"


def test_a_table_too_large_for_one_message_comes_in_parts_and_counts_when_whole() -> None:
    network = Network(2, [(0, 1)], table_bytes_max=64, filters_max=100)
    for level in range(30):
        network.subscribe(1, f"level = {level}")
    network.run(0.002)
    assert network.peers[0].router.table(1) is None
    network.run(1)
    assert len(network.table(0, 1)) == 30
    assert network.count("subscription") > 5


def test_more_filters_than_the_bound_become_fewer_and_wider_ones() -> None:
    network = Network(2, [(0, 1)], filters_max=10)
    numbers = [network.subscribe(1, f"level = {level}") for level in range(11)]
    network.run(1)
    assert network.table(0, 1) == ["level <= 10 AND level >= 0"]
    network.unsubscribe(1, numbers[0])
    network.run(1)
    assert len(network.table(0, 1)) == 10


# Reconfiguration, by hand.

#   0 -- 1 -- 2 -- 3      the link 1-2 is replaced by 0-2: the way between the old and the new link
#   |    |    |    |      is 0-1 on one side and 2 on the other; 4 to 7 and 3 lie beside it
#   4    5    6    7
LADDER = [(0, 1), (1, 2), (2, 3), (0, 4), (1, 5), (2, 6), (3, 7)]


def on_a_ladder(**options: Any) -> Network:
    network = Network(8, LADDER, table_refresh_interval=3600, **options)
    for node in range(8):
        network.subscribe(node, f"level = {node}")
    network.subscribe(4, "zone = 'north'")
    network.subscribe(7, "zone = 'north'")
    network.run(20)
    return network


def test_a_replaced_link_touches_only_the_way_between_the_old_link_and_the_new() -> None:
    network = on_a_ladder()
    network.sent.clear()
    network.down(1, 2)
    network.run(0.6)
    assert network.sent == [], "nothing is withdrawn yet"
    network.up(0, 2)
    network.run(20)
    touched = {frozenset(entry[:2]) for entry in network.sent}
    assert touched == {frozenset({0, 1}), frozenset({0, 2})}
    assert network.tables() == reference_tables(network)


def test_the_same_by_the_strawman_touches_everyone() -> None:
    """Without the delay the whole tree hears of it twice; this is what the last test saves."""
    network = on_a_ladder(unsubscription_delay=0.0, echo_delay=0.0)
    network.sent.clear()
    network.down(1, 2)
    network.run(0.6)
    network.up(0, 2)
    network.run(20)
    touched = {frozenset(entry[:2]) for entry in network.sent}
    assert len(touched) == 7
    assert network.tables() == reference_tables(network)


def test_a_link_that_comes_back_changes_nothing_beyond_itself() -> None:
    network = on_a_ladder()
    network.sent.clear()
    network.down(1, 2)
    network.run(1)
    network.up(1, 2)
    network.run(20)
    assert {frozenset(entry[:2]) for entry in network.sent} == {frozenset({1, 2})}
    assert network.tables() == reference_tables(network)


def test_a_link_that_is_not_replaced_is_forgotten_after_the_delay() -> None:
    network = on_a_ladder()
    network.down(1, 2)
    network.run(2.9)
    assert "level = 7" in network.table(4, 0)
    network.run(0.2)
    assert "level = 7" not in network.table(4, 0)
    assert network.tables() == reference_tables(network)


def test_what_another_node_of_the_lost_side_joins_ends_the_same() -> None:
    """7 finds the new link to 4: it knows nothing of the ghosts at 1 and 2."""
    network = on_a_ladder()
    network.down(1, 2)
    network.run(0.6)
    network.up(7, 4)
    network.run(20)
    assert network.tables() == reference_tables(network)


def test_a_restarted_neighbour_gets_the_whole_table_although_the_link_was_never_seen_down() -> None:
    network = on_a_ladder()
    reborn = network.peers[5] = Peer(network, 5, TreeOptions(jitter=0.0), network.peers[5].host.stable)
    reborn.router.on_link_up(1)
    network.subscribe(5, "level = 50")
    network.run(20)
    assert network.table(1, 5) == ["level = 50"]
    assert "level = 7" in network.table(5, 1)
    assert "level = 5" not in network.table(0, 1)


def test_a_message_of_an_earlier_life_of_a_link_is_not_believed() -> None:
    network = Network(2, [(0, 1)])
    old = FilterUpdate(1, 0, 99, True, ((Filter.sql("level = 1").encode(), 0),), ())
    network.subscribe(1, "level = 2")
    network.run(1)
    network.peers[0].router.on_data(1, CODEC.encode(old))
    network.run(1)
    assert network.table(0, 1) == ["level = 2"]


def test_a_table_that_went_wrong_is_mended_by_the_refresh() -> None:
    network = Network(2, [(0, 1)])
    network.subscribe(1, "level = 2")
    network.run(1)
    # Forged in the neighbour's name: the next version of its set, without what it wants.
    held = network.peers[0].router.announcer.sessions[1].received
    forged = FilterUpdate(
        held.session, held.version, held.version + 1, True, (), (Filter.sql("level = 2").encode(),)
    )
    network.peers[0].router.on_data(1, CODEC.encode(forged))
    assert network.table(0, 1) == []
    network.run(25)
    assert network.table(0, 1) == ["level = 2"]


def test_octets_that_are_no_message_are_dropped_and_counted() -> None:
    network = Network(2, [(0, 1)])
    router = network.peers[0].router
    no_filter = CODEC.encode(FilterUpdate(1, 0, 1, True, ((b"\x01\xff", 0),), ()))
    for payload in (b"", b"\x01abc", b"\x02\xc1", no_filter):
        router.on_data(1, payload)
    drops = [each for each in network.peers[0].host.records if isinstance(each, Dropped)]
    assert [each.reason for each in drops] == [DropReason.WIRE] * 4


@given(st.binary(max_size=60))
def test_no_octets_stop_a_router(tail: bytes) -> None:
    network = Network(2, [(0, 1)])
    network.peers[0].router.on_data(1, b"\x02" + tail)
    network.subscribe(0, "level = 2")
    network.run(1)
    assert network.table(1, 0) == ["level = 2"]


def test_messages_from_a_node_that_is_no_neighbour_change_nothing() -> None:
    network = Network(3, [(0, 1)])
    update = FilterUpdate(1, 0, 1, True, ((Filter.everything().encode(), 0),), ())
    digest, want = Digest((((0,), (EventId(7, 7),)),), 1), Want((EventId(0, 0),))
    for message in (update, UpdateAcknowledgement(1, 1), digest, want):
        network.peers[0].router.on_data(2, CODEC.encode(message))
    network.run(1)
    assert network.table(1, 0) == []


# Recovery.


def test_events_of_the_time_without_a_link_arrive_after_the_repair_once() -> None:
    network = on_a_ladder()
    network.down(1, 2)
    network.run(0.3)
    east = network.publish(5, {"level": 7})
    west = network.publish(7, {"zone": "north"})
    network.run(0.3)
    assert network.receivers(east) == []
    network.up(0, 2)
    network.run(9)
    assert network.receivers(east) == [7]
    assert network.receivers(west) == [4, 7]


def test_without_recovery_they_are_lost() -> None:
    network = on_a_ladder(recovery="none")
    network.down(1, 2)
    network.run(0.3)
    east = network.publish(5, {"level": 7})
    network.run(0.3)
    network.up(0, 2)
    network.run(9)
    assert network.receivers(east) == []


def test_recovery_brings_no_event_to_a_later_subscription() -> None:
    network = Network(4, LINE)
    network.run(1)
    event = network.publish(0, {"level": 5})
    network.run(1)
    network.subscribe(3, "level = 5")
    network.run(5)
    assert network.receivers(event) == []
    assert network.count("recovery") == 0


def test_while_nothing_is_lost_a_few_digests_are_all_that_recovery_costs() -> None:
    network = on_a_ladder()
    network.sent.clear()
    for level in range(8):
        network.publish(level, {"level": 7 - level})
        network.run(1)
    casts = network.count("event")
    assert casts and network.count("digest") <= OFFERS_OF_OWN * casts
    assert {message for _, _, message in network.sent} == {"event", "digest"}


def test_the_events_of_a_long_break_are_handed_over_within_a_second_the_newest_first() -> None:
    network = Network(2, [(0, 1)])
    network.subscribe(1, "level = 5")
    network.run(1)
    network.down(0, 1)
    events = [network.publish(0, {"level": 5}) for _ in range(300)]
    network.run(1)
    network.sent.clear()
    network.up(0, 1)
    network.run(0.2)
    assert network.peers[1].got[:WINDOW_MIN] == [each.id for each in events[: -WINDOW_MIN - 1 : -1]]
    network.run(0.8)
    assert all(network.receivers(event) == [1] for event in events)
    assert network.count("recovery") == len(events), "each once"
    assert network.count("request") < len(events) / WINDOW_MIN, "the window has grown"


def test_events_that_are_gone_when_they_are_asked_for_hold_nobody_up() -> None:
    """The half of the first window has expired; the others come, and the next ones at once."""
    network = Network(2, [(0, 1)])
    network.subscribe(1, "level = 5")
    network.run(1)
    network.down(0, 1)
    events = [network.publish(0, {"level": 5}) for _ in range(40)]
    network.up(0, 1)
    while not network.count("digest"):
        network.run(0.001)
    for gone in events[-WINDOW_MIN // 2 :]:
        recent = network.peers[0].router.recent
        recent._order.remove(recent._entries.pop(gone.id))
    network.run(0.3)
    assert all(network.receivers(event) == [1] for event in events[: -WINDOW_MIN // 2])


def test_what_is_new_does_not_wait_for_what_a_long_break_left() -> None:
    network = Network(2, [(0, 1)])
    network.subscribe(1, "level = 5")
    network.run(1)
    network.down(0, 1)
    for _ in range(200):
        network.publish(0, {"level": 5})
    network.run(1)
    network.up(0, 1)
    network.run(0.2)
    new = network.publish(0, {"level": 5})
    network.run(0.01)
    assert network.receivers(new) == [1]


def test_events_older_than_the_recovery_time_are_left_alone() -> None:
    network = Network(2, [(0, 1)], recovery_time=2.0)
    network.subscribe(1, "level = 5")
    network.run(1)
    network.down(0, 1)
    old = network.publish(0, {"level": 5})
    network.run(1.5)
    young = network.publish(0, {"level": 5})
    network.run(1)
    network.up(0, 1)
    network.run(5)
    assert network.receivers(old) == []
    assert network.receivers(young) == [1]


def test_a_lost_broadcast_is_named_in_a_digest_and_asked_for() -> None:
    network = Network(2, [(0, 1)])
    network.subscribe(1, "level = 5")
    network.run(1)
    network.loss = 1.0
    event = network.publish(0, {"level": 5})
    network.run(0.05)
    network.loss = 0.0
    network.run(1)
    assert network.receivers(event) == [1]
    assert network.count("recovery") == 1


def test_a_repeat_that_is_lost_is_named_and_asked_for_again() -> None:
    network = Network(2, [(0, 1)])
    network.subscribe(1, "level = 5")
    network.run(1)
    network.loss = 1.0
    event = network.publish(0, {"level": 5})
    network.run(0.05)
    network.loss = 0.0
    while not network.count("recovery"):
        network.run(0.001)
    network._flight.clear()
    network.run(2)
    assert network.receivers(event) == [1]
    assert network.count("recovery") == 2


def test_a_burst_counts_the_octets_of_messages_whether_one_neighbour_asked_or_two() -> None:
    """Each event is two fragments with its header, and one without."""
    network = Network(3, [(0, 1), (0, 2)])
    network.run(1)
    events = [network.publish(0, {"level": 5}, payload=bytes(1_395)) for _ in range(20)]
    want = CODEC.encode(Want(tuple(event.id for event in events)))
    network.sent.clear()
    for neighbour in (1, 2):
        network.peers[0].router.on_data(neighbour, want)
    assert [to for _, to, message in network.sent if message == "recovery"] == [1, 1]
    network.run(0.0105)
    assert [to for _, to, message in network.sent if message == "recovery"] == [1, 1, 1, 2, 1, 2]


def test_a_neighbour_that_names_more_events_than_can_wait_stops_nobody() -> None:
    """The events that were asked for first are pushed out by newer ones before the answer is overdue."""
    network = Network(2, [(0, 1)])
    peer = network.peers[0]
    first = tuple(EventId(9, number) for number in range(4))
    newer = tuple(EventId(9, 100 + number) for number in range(WAITING_MAX))
    peer.router.on_data(1, CODEC.encode(Digest((((0,), first),), 1)))
    network.run(0.1)
    assert network.count("request") == 1
    peer.router.on_data(1, CODEC.encode(Digest((((0,), newer),), 1)))
    network.run(5)
    assert network.count("request") > 1
    drops = [each.detail for each in peer.host.records if isinstance(each, Dropped)]
    assert drops == ["WAITING_MAX"] * len(first)


# Overhearing.


def test_an_overheard_event_takes_a_short_cut_past_a_node_of_its_path() -> None:
    """0 - 1 - 2 - 3, and 2 hears 0: the event is at 3 after two hops, and 1 sends it to nobody."""
    network = Network(4, LINE)
    network.in_range = {0: [2], 2: [0]}
    network.subscribe(3, "level = 5")
    network.subscribe(2, "level = 5")
    network.run(1)
    network.sent.clear()
    event = network.publish(0, {"level": 5})
    network.run(0.01)
    assert network.receivers(event) == [2, 3]
    hops = {
        peer.host.node: kept.hops for peer in network.peers if (kept := peer.router.recent.find(event.id))
    }
    assert hops == {0: 0, 1: 1, 2: 1, 3: 2}


def test_an_overheard_event_crosses_a_link_that_has_broken() -> None:
    network = Network(4, LINE)
    for node in range(4):
        network.subscribe(node, "level = 5")
    network.run(1)
    network.down(1, 2)
    network.in_range = {0: [2]}
    event = network.publish(0, {"level": 5})
    network.run(0.1)
    assert network.receivers(event) == [0, 1, 2, 3]


def test_a_leaf_beside_the_way_keeps_what_it_overhears_to_itself() -> None:
    """2 hangs at 1 and wants nothing: it hears 0's broadcast, and sends nothing, neither event nor digest."""
    network = Network(3, [(0, 1), (1, 2)])
    network.in_range = {0: [2]}
    network.subscribe(1, "level = 5")
    network.run(1)
    network.sent.clear()
    event = network.publish(0, {"level": 5})
    network.run(3)
    assert network.receivers(event) == [1]
    assert not any(sender == 2 and message != "refresh" for sender, _, message in network.sent)


def test_one_who_overheard_an_event_sends_it_on_when_a_digest_asks_for_it() -> None:
    """2 has the event from 0's broadcast and 3 wants it; 1's own broadcast to 2 is lost."""
    network = Network(4, LINE)
    network.in_range = {0: [2]}
    network.subscribe(3, "level = 5")
    network.run(1)
    event = network.publish(0, {"level": 5})
    network.run(0.0015)
    network._flight = [entry for entry in network._flight if entry[2] != 1]
    network.run(0.01)
    assert network.receivers(event) == []
    network.run(2)
    assert network.receivers(event) == [3]
    assert network.count("recovery") == 0, "it was there already"


def test_one_who_overheard_an_event_sends_it_on_when_it_offers_it_itself() -> None:
    """1 hears 0's broadcast and leaves it to the others; it is lost at 3, and from now on the way to 3 is by
    1. Both ends of the new link offer it, because 0 wants it too. 1 is first, so 0 does not ask it."""
    network = Network(4, [(1, 2), (2, 3), (0, 3)])
    network.in_range = {0: [1]}
    for node in (0, 3):
        network.subscribe(node, "level = 5")
    network.run(1)
    event = network.publish(0, {"level": 5}, lifetime=60 * SECOND)
    network.run(0.0005)
    network._flight = [entry for entry in network._flight if entry[3] == 1]
    network.run(0.01)
    network.down(0, 3)
    network.up(0, 1)
    for _ in range(200):  # and what 0 says meanwhile is lost
        network.run(0.0005)
        digests = [entry for entry in network._flight if isinstance(CODEC.decode(entry[4]), Digest)]
        network._flight = [entry for entry in network._flight if entry[2] != 0 or entry not in digests]
    assert (1, 0, "digest") in network.sent, "else nothing is tried"
    network.run(2)
    assert network.receivers(event) == [0, 3]


def test_a_node_without_links_asks_all_who_hear_it() -> None:
    network = Network(4, [(1, 2), (2, 3)])
    network.in_range = {0: [1]}
    for node in range(1, 4):
        network.subscribe(node, "level = 5")
    network.run(1)
    event = network.publish(0, {"level": 5})
    network.run(0.1)
    assert network.receivers(event) == [1, 2, 3]


# Memorized events.


def test_a_memorized_event_reaches_a_subscription_made_later_on_another_node() -> None:
    network = Network(4, LINE, recovery="none")
    network.run(1)
    event = network.publish(0, {"level": 5}, lifetime=60 * SECOND)
    gone = network.publish(0, {"level": 5}, lifetime=2 * SECOND)
    network.run(10)
    network.subscribe(3, "level = 5")
    network.run(1)
    assert network.receivers(event) == [3]
    assert network.receivers(gone) == []


def test_a_memorized_event_waits_for_a_partition_to_come_back() -> None:
    network = Network(4, LINE, recovery="none")
    network.subscribe(3, "level = 5")
    network.run(1)
    network.down(1, 2)
    network.run(10)
    event = network.publish(0, {"level": 5}, lifetime=60 * SECOND)
    network.run(10)
    network.up(0, 3)
    network.run(1)
    assert network.receivers(event) == [3]
    network.subscribe(2, "level > 4")
    network.run(1)
    assert network.receivers(event) == [2, 3]


def test_an_expired_copy_is_not_delivered() -> None:
    network = Network(2, [(0, 1)])
    network.subscribe(0, "level = 5")
    event = Event(1, 0, {"level": 5}, event_class=EventClass.MEMORIZED, lifetime=SECOND)
    network.peers[0].router.on_spread(1, CODEC.encode(Cast(event, 0, SECOND)), [0])
    assert network.receivers(event) == []


# By chance.

POOL = [
    Filter.sql("level > 2"),
    Filter.sql("level > 5"),
    Filter.sql("level = 7"),
    Filter.sql("level > 2 AND zone = 'a'"),
    Filter.sql("zone = 'a'"),
    Filter.sql("zone IN ('a', 'b')"),
    Filter.sql("level BETWEEN 3 AND 6 AND zone = 'b'"),
    Filter.topic("t/#"),
    Filter.topic("t/1"),
    Filter.of_type("alarm"),
    Filter.of_type("alarm.fire"),
    Filter.everything(),
]


def some_event(random: Random) -> dict[str, Any]:
    return {
        "attributes": {"level": random.randrange(10), "zone": random.choice("abc")},
        "topic": random.choice(["", "t/1", "t/2"]),
        "type": random.choice(["", "alarm", "alarm.fire"]),
    }


def some_tree(random: Random, nodes: int) -> list[Edge]:
    return [(random.randrange(node), node) for node in range(1, nodes)]


def side_of(links: Iterable[Edge], start: NodeId, without: NodeId) -> set[NodeId]:
    """The nodes on `start`'s side of the link between the two."""
    found, frontier = {start}, [start]
    edges = set(links)
    while frontier:
        here = frontier.pop()
        for a, b in edges:
            if a == here and b not in found and (a, b) != (start, without):
                found.add(b)
                frontier.append(b)
    return found


def reference_tables(network: Network) -> dict[Edge, list[str]]:
    """What must be known at the near end of each link: the maximal filters of the far side."""
    tables = {}
    for near, far in sorted(network.links):
        wanted = {
            each.filter
            for node in side_of(network.links, far, near)
            for each in network.peers[node].broker.subscriptions()
        }
        maximal = [each for each in wanted if not any(w != each and w.covers(each) for w in wanted)]
        tables[near, far] = sorted(map(str, maximal))
    return tables


def those_who_want(network: Network, event: Event, among: Iterable[NodeId]) -> list[NodeId]:
    return [
        node
        for node in sorted(among)
        if any(each.filter.matches(event) for each in network.peers[node].broker.subscriptions())
    ]


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_on_any_tree_an_event_reaches_exactly_those_who_want_it(seed: int) -> None:
    random = Random(seed)
    nodes = random.randint(2, 9)
    network = Network(nodes, some_tree(random, nodes), seed=seed)
    standing: list[tuple[NodeId, int]] = []
    for _ in range(12):
        match random.randrange(3):
            case 0 if standing:
                network.unsubscribe(*standing.pop(random.randrange(len(standing))))
            case _:
                node = random.randrange(nodes)
                standing.append((node, network.subscribe(node, random.choice(POOL))))
        network.run(1)
        assert network.tables() == reference_tables(network), seed
        event = network.publish(random.randrange(nodes), **some_event(random))
        network.run(0.5)
        assert network.receivers(event) == those_who_want(network, event, range(nodes)), seed


def replace_a_link(network: Network, random: Random, pause: float) -> None:
    """Break one link; later join the two sides again, anywhere."""
    a, b = random.choice(sorted(each for each in network.links if each[0] < each[1]))
    network.down(a, b)
    ours = side_of(network.links, a, -1)
    network.run(pause)
    theirs = set(range(len(network.peers))) - ours
    network.up(random.choice(sorted(ours)), random.choice(sorted(theirs)))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(["none", "push"]))
def test_whatever_links_are_replaced_and_messages_lost_the_tables_end_as_if_built_afresh(
    seed: int, recovery: str
) -> None:
    random = Random(seed)
    nodes = random.randint(2, 8)
    network = Network(nodes, some_tree(random, nodes), loss=0.2, seed=seed, recovery=recovery)
    standing: list[tuple[NodeId, int]] = []
    published: list[Event] = []
    for _ in range(10):
        match random.randrange(4):
            case 0 if standing:
                network.unsubscribe(*standing.pop(random.randrange(len(standing))))
            case 1:
                replace_a_link(network, random, random.choice([0.0, 0.01, 0.6, 5.0]))
            case 2:
                published.append(network.publish(random.randrange(nodes), **some_event(random)))
            case _:
                node = random.randrange(nodes)
                standing.append((node, network.subscribe(node, random.choice(POOL))))
        network.run(random.choice([0.0, 0.001, 0.1, 2.0]))
    network.run(60)
    assert network.tables() == reference_tables(network), seed
    for event in published:
        receivers = network.receivers(event)
        assert len(receivers) == len(set(receivers)), (seed, "delivered twice")
    network.loss = 0.0
    for node in range(nodes):
        event = network.publish(node, **some_event(random))
        network.run(0.1)
        assert network.receivers(event) == those_who_want(network, event, range(nodes)), seed


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_no_event_is_lost_in_a_reconfiguration_that_ends_in_time(seed: int) -> None:
    random = Random(seed)
    nodes = random.randint(3, 8)
    network = Network(nodes, some_tree(random, nodes), seed=seed, recovery_interval=0.2)
    for node in range(nodes):
        network.subscribe(node, random.choice(POOL))
    network.run(5)
    published: list[Event] = []
    for _ in range(4):
        pauses = [random.choice([0.0, 0.01, 0.5]) for _ in range(2)]
        a, b = random.choice(sorted(each for each in network.links if each[0] < each[1]))
        published.append(
            network.publish(random.randrange(nodes), **some_event(random))
        )  # under way at the break
        network.down(a, b)
        for pause in pauses:
            published.append(network.publish(random.randrange(nodes), **some_event(random)))
            network.run(pause)
        ours = side_of(network.links, a, -1)
        theirs = set(range(nodes)) - ours
        network.up(random.choice(sorted(ours)), random.choice(sorted(theirs)))
        network.run(random.choice([0.0, 0.5]))
    network.run(9)
    for event in published:
        assert network.receivers(event) == those_who_want(network, event, range(nodes)), (seed, event.id)
