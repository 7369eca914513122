"""Test suites for authors: what every strategy and every host must guarantee. They need pytest.

A plug-in's author subclasses a suite in a test file and names the strategy:

    import gossip  # registers it
    from roamcast.testing.contract import BestEffortContract

    class TestGossip(BestEffortContract):
        strategy = "gossip"

`StrategyContract` is for strategies that deliver everything where nothing is lost; `BestEffortContract` is
the part of it that every strategy must pass; it also tests what a strategy declares to promise
(`StrategyAbilities`). Both run on networks of a few nodes (`network.py`).
`HostContract` is for authors of a runtime: it tests the promises of `roamcast.host.Host`.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, Protocol

import pytest

from roamcast.broker.store import StoreFullError
from roamcast.event import EventId, Value
from roamcast.filter import Filter
from roamcast.host import Frame, Host, Kind, Layer, SendFailure, TimerName
from roamcast.strategy import STRATEGIES
from roamcast.testing.network import Arrival, Link, Network, line, mesh
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

GARBAGE = 300  # frames of random or damaged octets; chosen by us


ROOM = 30  # events in a store of these networks


def published(network: Network, count: int = 5, node: NodeId = 0) -> set[EventId]:
    """Publish memorized events; gives those that the node took."""
    taken: set[EventId] = set()
    for _ in range(count):
        with suppress(StoreFullError):
            taken.add(network.publish(node, lifetime=600.0).id)
        network.run(1.0)
    return taken


def after_a_cut(network: Network) -> set[EventId]:
    network.cut((2, 3))
    network.run(30.0)
    accepted = published(network)
    network.run(20.0)
    network.connect((2, 3))
    return accepted


def after_crashes(network: Network) -> set[EventId]:
    """First the subscriber crashes; then, in the middle of a publication, all nodes that hold events."""
    network.crash(3)
    network.run(10.0)
    accepted = published(network)
    accepted.add(network.publish(0, lifetime=600.0).id)
    for node in range(3):
        network.crash(node)
    network.run(5.0)
    for node in range(4):
        network.restart(node)
    return accepted


def after_full_stores(network: Network) -> set[EventId]:
    """First the disks of the relays take nothing for a while; always more is published than stores hold."""
    network.crash(3)
    for node in (1, 2):
        network.stores[node].refuses = True
    network.run(10.0)
    accepted = published(network, 2 * ROOM)
    for node in (1, 2):
        network.stores[node].refuses = False
    accepted |= published(network, 2 * ROOM)
    network.restart(3)
    return accepted


def after_full_relays(network: Network) -> set[EventId]:
    """The relays have more of their own than stores hold, before and after what comes to them."""
    network.crash(3)
    network.run(10.0)
    accepted: set[EventId] = set()
    for _ in range(2):
        for node in (2, 1, 0):
            accepted |= published(network, ROOM, node)
    network.restart(3)
    return accepted


def after_the_publisher_left(network: Network) -> set[EventId]:
    network.cut((1, 2))
    network.run(30.0)
    accepted = published(network)
    network.run(20.0)
    network.cut((0, 1))
    network.run(30.0)
    network.connect((1, 2))
    return accepted


PROMISES = {
    "survives_cut": after_a_cut,
    "survives_crash": after_crashes,
    "survives_full": after_full_stores,
    "survives_relays": after_full_relays,
    "survives_leave": after_the_publisher_left,
}
FILLING = ("survives_full", "survives_relays")  # stores that hold back half of their room, and count the rest


class BestEffortContract:
    """No duplicate, no misdelivery, no crash, no difference between two runs; but an event may be lost."""

    strategy: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    underlay: ClassVar[str | None] = None  # None: the strategy's own
    formed: ClassVar[float] = 60.0  # seconds until trees, routes and tables are complete, for any strategy

    def network(
        self, nodes: int, links: Iterable[Link], loss: float = 0.0, seed: int = 1, disks: int = 0
    ) -> Network:
        return Network(
            nodes,
            self.strategy,
            links=links,
            options=self.options,
            underlay=self.underlay,
            loss=loss,
            seed=seed,
            disks=disks,
        )

    def at_rest(self, nodes: int, links: Iterable[Link], subscribers: Iterable[NodeId] = ()) -> Network:
        """A network whose trees, routes and tables are complete; subscribers want everything."""
        network = self.network(nodes, links)
        for node in subscribers:
            network.subscribe(node)
        network.run(self.formed + 1)
        return network

    def test_a_neighbour_gets_something(self) -> None:
        network = self.at_rest(2, line(2), [1])
        publish_each_second(network, 20)
        assert network.delivered, "20 events, one subscriber beside the publisher, no loss: nothing arrived"

    @pytest.mark.parametrize("loss", [0.0, 0.3])
    def test_nobody_gets_an_event_twice_or_one_that_nobody_asked_for(self, loss: float) -> None:
        network = self.network(6, mesh(6), loss)
        for node in range(3):
            network.subscribe(node, "level > 3")
            network.subscribe(node, "level > 5")
        network.run(self.formed)
        for number in range(30):
            network.publish(number % 6, {"level": number % 10})
            network.run(0.5)
        network.publish(0, {"level": 9}, to=[4])
        network.run(30.0)
        refuse_repeats(network)
        assert {arrival.node for arrival in network.delivered} <= {0, 1, 2, 4}

    def test_a_node_that_is_alone_publishes_to_nobody_and_goes_on(self) -> None:
        network = self.at_rest(2, [], [0, 1])
        network.publish(0)
        network.run(5.0)
        assert network.delivered == []

    @pytest.mark.parametrize("seed", [5, 7, 13])
    def test_links_that_come_and_go_and_nodes_that_crash_break_nothing(self, seed: int) -> None:
        network = self.network(5, line(5))
        for node in range(5):
            network.subscribe(node)
        random = Random(seed)
        links = mesh(5)
        for step in range(60):
            link = links[random.randrange(len(links))]
            (network.cut if network.links.linked(*link) else network.connect)(link)
            if step % 10 == 3:
                network.crash(2)
            if step % 10 == 7:
                network.restart(2)
            network.publish(step % 2)
            network.run(1.0)
        network.run(30.0)
        refuse_repeats(network)

    def test_octets_that_are_no_message_are_dropped_and_the_node_goes_on(self) -> None:
        network = self.at_rest(3, mesh(3), [1])
        network.publish(0)
        network.run(5.0)
        said, random = network.payloads(), Random(11)
        for number in range(GARBAGE):
            frame = (
                said[random.randrange(len(said))] if said and number % 3 else random.randbytes(number % 64)
            )
            octets = bytearray(frame)
            for _ in range(1 + number % 4):
                if octets:
                    octets[random.randrange(len(octets))] = random.randrange(256)
            cut = bytes(octets[: random.randrange(len(octets) + 1)]) if number % 2 else bytes(octets)
            network.hear(1, 2, cut)
        network.hear(1, 2, b"")
        network.run(5.0)
        before = len(network.delivered)
        publish_each_second(network, 20)
        assert len(network.delivered) > before, "after the garbage nothing arrives any more"

    def test_the_same_seed_gives_the_same_run(self) -> None:
        def run(seed: int) -> tuple[list[Arrival], list[bytes]]:
            network = self.network(5, line(5), loss=0.1, seed=seed)
            for node in range(1, 5):
                network.subscribe(node)
            network.run(self.formed / 2)
            publish_each_second(network, 10)
            return network.delivered, network.payloads()

        assert run(1) == run(1)

    @pytest.mark.parametrize("seed", [1, 2])
    @pytest.mark.parametrize("promise", PROMISES)
    def test_what_it_promises_for_memorized_events(self, promise: str, seed: int) -> None:
        if not getattr(STRATEGIES.declared(self.strategy), promise):
            pytest.skip(f"{self.strategy} does not promise it")
        network = self.network(4, line(4), seed=seed, disks=ROOM)
        network.subscribe(3)
        network.run(self.formed + 1)
        accepted = PROMISES[promise](network)
        network.run(120.0)
        refuse_repeats(network)
        arrived = [EventId(arrival.publisher, arrival.sequence) for arrival in network.delivered]
        assert set(arrived) == accepted
        held_back = network.node(3).broker.held_back
        if promise not in FILLING or not held_back.let_pass:
            refuse_disorder(arrived)


def publish_each_second(network: Network, count: int) -> None:
    for _ in range(count):
        network.publish(0)
        network.run(1.0)


def refuse_disorder(arrived: list[EventId]) -> None:
    for publisher in {event.publisher for event in arrived}:
        numbers = [event.sequence for event in arrived if event.publisher == publisher]
        assert numbers == sorted(numbers), "a publisher's memorized events overtook each other"


def refuse_repeats(network: Network) -> None:
    assert len(set(network.delivered)) == len(network.delivered), "an application got an event twice"
    assert network.misdelivered == []


class StrategyContract(BestEffortContract):
    """Where nothing is lost, every reachable subscriber gets every event that matches, once."""

    def test_everyone_who_wants_everything_gets_everything_once(self) -> None:
        network = self.at_rest(5, line(5), range(5))
        for node in range(5):
            network.publish(node)
            network.run(1.0)
        network.run(15.0)
        assert sorted(network.delivered) == [Arrival(b, a, 0) for b in range(5) for a in range(5) if a != b]

    def test_filters_decide_who_gets_an_event_and_nobody_else_does(self) -> None:
        network = self.network(5, line(5))
        network.subscribe(1, "level > 3")
        network.subscribe(2, "level > 3 AND zone = 'north'")
        network.subscribe(3, "zone IN ('north', 'west')")
        network.subscribe(4, "level IS NULL")
        network.subscribe(4, Filter.topic("alarms/#"))
        network.run(self.formed + 1)
        events: list[tuple[NodeId, dict[str, Value], str]] = [
            (0, {"level": 5, "zone": "north"}, ""),  # 1, 2, 3
            (0, {"level": 3, "zone": "west"}, ""),  # 3
            (0, {"zone": "south"}, ""),  # 4
            (1, {"level": 9}, ""),  # nobody: 1 is the publisher
            (0, {"level": 0}, "alarms/fire"),  # 4
            (4, {}, "alarms"),  # `alarms/#` matches `alarms` too: 4 itself
        ]
        for node, attributes, topic in events:
            network.publish(node, attributes, topic=topic)
            network.run(1.0)
        network.run(14.0)
        assert sorted(network.delivered) == [(1, 0, 0), (2, 0, 0), (3, 0, 0), (3, 0, 1), (4, 0, 2), (4, 0, 3)]
        assert network.misdelivered == []

    def test_subscriptions_count_while_they_stand(self) -> None:
        network = self.at_rest(5, line(5))
        network.publish(0)
        network.run(4.0)
        subscription = network.subscribe(4)
        network.run(25.0)
        network.publish(0)
        network.run(10.0)
        network.unsubscribe(4, subscription)
        network.run(30.0)
        network.publish(0)
        network.run(10.0)
        assert network.delivered == [Arrival(4, 0, 1)]

    def test_destinations_get_their_event_and_multimode_adds_subscribers(self) -> None:
        network = self.at_rest(5, line(5), [1])
        network.publish(0, to=[3, 4])
        network.run(1.0)
        network.publish(0, to=[3], multimode=True)
        network.run(18.0)
        assert sorted(network.delivered) == [(1, 0, 1), (3, 0, 0), (3, 0, 1), (4, 0, 0)]
        assert network.misdelivered == []

    def test_a_memorized_event_waits_for_a_later_subscription_within_its_lifetime(self) -> None:
        network = self.at_rest(5, line(5))
        network.publish(0, lifetime=30.0)
        network.run(19.0)
        network.subscribe(2)
        network.run(30.0)
        network.subscribe(3)
        network.run(10.0)
        assert network.delivered == [Arrival(2, 0, 0)]

    def test_in_two_partitions_everyone_within_reach_gets_it(self) -> None:
        network = self.at_rest(5, [(0, 1), (1, 2), (3, 4)], range(5))
        network.publish(0)
        network.run(1.0)
        network.publish(3)
        network.run(18.0)
        assert sorted(network.delivered) == [(1, 0, 0), (2, 0, 0), (4, 3, 0)]


class Harness(Protocol):
    """Nodes 0, 1 and 2: 0 and 1 hear each other, 2 hears nobody."""

    def host(self, node: NodeId) -> Host: ...

    def attach(self, node: NodeId, layer: Layer) -> None: ...

    def run(self, by: Micros) -> None: ...

    def inside(self, action: Callable[[], None]) -> None:
        """Run `action` as an input of its own at the present instant."""
        ...

    def close(self) -> None: ...


class Recorder(Layer):
    """Records every input with its time, and runs the actions that a test attaches to it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.log: list[tuple[str, object, Micros]] = []
        self._react: Callable[[str, object], None] = lambda kind, what: None
        self.depth = 0

    def react_by(self, action: Callable[[str, object], None]) -> None:
        """Call `action` inside each input from now on."""
        self._react = action

    def on_timer(self, name: TimerName) -> None:
        self._handle("timer", name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        self._handle("receive", (sender, payload))

    def _handle(self, kind: str, what: object) -> None:
        self.depth += 1
        assert self.depth == 1, "the host called into a handler that is still running"
        before = self.host.now()
        self.log.append((kind, what, before))
        self._react(kind, what)
        assert self.host.now() == before, "time moved while a handler ran"
        self.depth -= 1


def recorders(harness: Harness) -> list[Recorder]:
    made = [Recorder(harness.host(n)) for n in range(3)]
    for n, recorder in enumerate(made):
        harness.attach(n, recorder)
    return made


def done(harness: Harness, action: Callable[[], None]) -> None:
    """An input, and a second in which what follows from it happens."""
    harness.inside(action)
    harness.run(SECOND)


def frame(payload: bytes = b"hello", kind: Kind = Kind.DATA) -> Frame:
    return Frame(payload, kind, "test")


class HostContract:
    """A runtime provides a fixture `harness`: a few connected hosts, and a means to let time pass."""

    def test_a_timer_fires_once_and_never_early(self, harness: Harness) -> None:
        node, *_ = recorders(harness)
        due = node.host.now() + 30 * MILLISECOND
        node.host.set_timer("tick", due)
        harness.run(29 * MILLISECOND)
        assert node.log == []
        harness.run(SECOND)
        assert [(kind, what) for kind, what, _ in node.log] == [("timer", "tick")]
        assert node.log[0][2] >= due

    def test_setting_a_timer_again_moves_it(self, harness: Harness) -> None:
        node, *_ = recorders(harness)
        node.host.set_timer("tick", node.host.now() + 10 * MILLISECOND)
        node.host.set_timer("tick", node.host.now() + 50 * MILLISECOND)
        harness.run(40 * MILLISECOND)
        assert node.log == []
        harness.run(SECOND)
        assert len(node.log) == 1

    def test_timers_of_different_names_are_independent(self, harness: Harness) -> None:
        node, *_ = recorders(harness)
        node.host.set_timer(("relay", 2), node.host.now() + 20 * MILLISECOND)
        node.host.set_timer(("relay", 1), node.host.now() + 10 * MILLISECOND)
        harness.run(SECOND)
        assert [what for _, what, _ in node.log] == [("relay", 1), ("relay", 2)]

    def test_a_cancelled_timer_stays_silent_and_cancelling_nothing_is_no_error(
        self, harness: Harness
    ) -> None:
        node, *_ = recorders(harness)
        node.host.set_timer("tick", node.host.now() + 10 * MILLISECOND)
        node.host.cancel_timer("tick")
        node.host.cancel_timer("never set")
        harness.run(SECOND)
        assert node.log == []

    def test_a_timer_in_the_past_is_due_at_once_but_not_inside_the_call(self, harness: Harness) -> None:
        node, *_ = recorders(harness)
        node.react_by(lambda kind, what: node.host.set_timer("second", 0) if what == "first" else None)
        node.host.set_timer("first", node.host.now())
        harness.run(SECOND)
        assert [what for _, what, _ in node.log] == ["first", "second"]

    def test_a_broadcast_reaches_neighbours_and_neither_strangers_nor_oneself(self, harness: Harness) -> None:
        nodes = recorders(harness)
        done(harness, lambda: nodes[0].host.broadcast(frame()))
        assert [[what for _, what, _ in node.log] for node in nodes] == [[], [(0, b"hello")], []]

    def test_an_answer_from_inside_a_handler_is_never_handled_inside_it(self, harness: Harness) -> None:
        nodes = recorders(harness)
        nodes[1].react_by(lambda kind, what: nodes[1].host.broadcast(frame(b"answer")))
        done(harness, lambda: nodes[0].host.broadcast(frame()))  # Recorder asserts that handlers do not nest
        assert [what for _, what, _ in nodes[0].log] == [(1, b"answer")]

    def test_unicast_reaches_its_addressee_alone(self, harness: Harness) -> None:
        nodes = recorders(harness)
        failures: list[SendFailure] = []
        done(harness, lambda: nodes[0].host.unicast(1, frame(), failures.append))
        assert [what for _, what, _ in nodes[1].log] == [(0, b"hello")]
        assert failures == []

    def test_unicast_to_a_node_out_of_range_fails_once_and_later(self, harness: Harness) -> None:
        nodes = recorders(harness)
        failures: list[SendFailure] = []

        def send() -> None:
            nodes[0].host.unicast(2, frame(), failures.append)
            assert failures == [], "the call-back came inside the call"

        done(harness, send)
        assert failures == [SendFailure.LINK]
        assert nodes[2].log == []

    def test_a_full_queue_of_our_own_is_not_taken_for_a_broken_link(self, harness: Harness) -> None:
        nodes = recorders(harness)
        failures: list[SendFailure] = []

        def send() -> None:
            for _ in range(200):
                nodes[0].host.unicast(1, frame(), failures.append)

        done(harness, send)
        assert set(failures) <= {SendFailure.QUEUE_FULL}
        assert len(nodes[1].log) + len(failures) == 200

    def test_frames_of_one_kind_from_one_sender_arrive_in_order(self, harness: Harness) -> None:
        nodes = recorders(harness)

        def send() -> None:
            for n in range(20):
                nodes[0].host.unicast(1, frame(bytes([n])))

        done(harness, send)
        assert [what for _, what, _ in nodes[1].log] == [(0, bytes([n])) for n in range(20)]

    def test_a_longer_frame_takes_no_less_time(self, harness: Harness) -> None:
        node, *_ = recorders(harness)
        assert 0 <= node.host.airtime(0) <= node.host.airtime(100) <= node.host.airtime(10_000) < 10 * SECOND

    def test_the_clock_never_goes_back(self, harness: Harness) -> None:
        nodes = recorders(harness)
        for n in range(5):
            nodes[0].host.set_timer(("tick", n), nodes[0].host.now() + n * MILLISECOND)
        done(harness, lambda: nodes[1].host.broadcast(frame()))
        times = [at for _, _, at in nodes[0].log]
        assert times == sorted(times) and len(times) == 6
