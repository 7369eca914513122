"""Each adaptor against managers made by hand."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.strategy.opportunistic.documented import documented_adaptor

from roamcast.errors import ScenarioError
from roamcast.strategy.opportunistic.adaptation import ADAPTORS, Adaptor, start
from roamcast.strategy.opportunistic.adaptation.events import (
    EVENTS_MAX,
    BrokerDiscovered,
    Measured,
    NeighboursFound,
    SystemChannel,
    SystemEvent,
    TimeCame,
)
from roamcast.strategy.opportunistic.adaptation.services import Alternative, BrokerFacts, Limits, Services
from roamcast.units import SECOND, NodeId

OWN, OTHER, THIRD, CLIENT = 1, 2, 3, 10

STANDARD = Limits()


class World:
    """All managers in one; what adaptors order is written down."""

    own = OWN

    def __init__(self, *adaptors: str, limits: Limits = STANDARD) -> None:
        self.loads: dict[NodeId, float] = {}
        self.paths: dict[tuple[NodeId, NodeId], float] = {}
        self.sources: list[NodeId] = []
        self.at_home: list[NodeId] = []
        self.lighter: NodeId | None = None
        self.lighter_load = 0.0
        self.works: dict[NodeId, float] = {}
        self.octets: dict[NodeId, float] = {}
        self.volunteer: NodeId | None = None
        self.named: Alternative | None = None
        self.asked_near: list[NodeId] = []
        self.latency: dict[tuple[NodeId, NodeId], int] = {}
        self.away: dict[NodeId, int] = {}
        self.could: set[NodeId] = set()
        self.below: list[float] = []
        self.done: list[tuple[Any, ...]] = []
        self.channel = SystemChannel()
        start(adaptors, Services(self, self, self, self, self.channel, limits, latencies=self))

    def tell(self, event: SystemEvent) -> list[tuple[Any, ...]]:
        self.done.clear()
        self.channel.publish(event)
        return list(self.done)

    def load(self, broker: NodeId) -> float:
        return self.loads.get(broker, 0.0)

    def path(self, start: NodeId, end: NodeId) -> float | None:
        return 0.0 if start == end else self.paths.get((start, end), self.paths.get((end, start)))

    def discover_neighbours(self) -> None:
        self.done.append(("discover",))

    def propagate(self) -> None:
        self.done.append(("propagate",))

    def hops(self, node: NodeId) -> int | None:
        return self.away.get(node)

    def could_be_broker(self, node: NodeId) -> bool:
        return node in self.could

    def create(self, node: NodeId) -> None:
        self.done.append(("create", node))

    def retire(self) -> None:
        self.done.append(("retire",))

    def clients(self) -> Sequence[NodeId]:
        return self.at_home

    def modulated(self) -> Sequence[NodeId]:
        return self.at_home

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        return self.sources

    def distance(self, client: NodeId) -> float:
        return 1.0

    def octets_from(self, client: NodeId) -> Mapping[NodeId, float]:
        return self.octets

    octets_of = octets_from

    def work(self, client: NodeId) -> float:
        return self.works.get(client, 0.0)

    def migrate(self, client: NodeId, to: NodeId, below: float | None = None) -> None:
        self.done.append(("migrate", client, to))

    def place(self, client: NodeId, to: NodeId, access: NodeId) -> None:
        self.done.append(("place", client, to, access))

    def upstream(self, client: NodeId) -> bool:
        return False

    def downstream(self, client: NodeId) -> bool:
        return False

    def ask(
        self, at: NodeId, to: Sequence[NodeId], on_measured: Callable[[Mapping[NodeId, int]], None]
    ) -> None:
        on_measured({peer: self.latency[at, peer] for peer in to if (at, peer) in self.latency})

    def alternative(self, near: NodeId, on_found: Callable[[Alternative | None], None]) -> None:
        self.asked_near.append(near)
        on_found(self.named)

    def less_loaded(self, load: float, on_found: Callable[[NodeId | None], None]) -> None:
        self.below.append(load)
        on_found(self.lighter if load > self.lighter_load else None)

    def willing(self, on_found: Callable[[NodeId | None], None]) -> None:
        on_found(self.volunteer)

    def about(self, broker: NodeId, on_found: Callable[[BrokerFacts | None], None]) -> None:
        on_found(None)


MOVES = [("migrate", CLIENT, OTHER)]


def found(distance: float = 1, home_distance: float = 2, load: float = 0.0) -> BrokerDiscovered:
    return BrokerDiscovered(CLIENT, OTHER, distance, home_distance, load)


def test_the_simple_adaptor_always_follows() -> None:
    world = World("simple")
    world.loads = {OTHER: 9.0}
    assert world.tell(found(load=9.0)) == MOVES
    assert world.tell(BrokerDiscovered(CLIENT, OWN, 0, 0, 0)) == []


@pytest.mark.parametrize(
    ("own_load", "other_load", "own_path", "other_path", "moves"),
    [
        (0.9, 0.1, 1, 9, True),  # 2: we are overloaded
        (0.1, 0.9, 9, 1, False),  # 2: the other is
        (0.95, 0.8, 1, 9, True),  # 3: both, the other less
        (0.9, 0.85, 9, 1, False),  # 3: both, the other more
        (0.8, 0.7, 3, 3, True),  # 4: at the threshold is not over it; 3 + 1 < 3 + 2
        (0.1, 0.1, 3, 4, False),  # 4: 4 + 1 is no shorter than 3 + 2
        (0.1, 0.1, 3, 5, False),
    ],
)
def test_the_five_steps(
    own_load: float, other_load: float, own_path: float, other_path: float, moves: bool
) -> None:
    world = World("complex")
    world.loads, world.sources, world.works = {OWN: own_load}, [THIRD], {CLIENT: 0.1}
    world.paths = {(THIRD, OWN): own_path, (THIRD, OTHER): other_path}
    assert world.tell(found(load=other_load)) == (MOVES if moves else [])


def test_the_average_is_over_all_producers_and_loads_can_be_left_out() -> None:
    world = World("complex", limits=Limits(overload_control=False))
    world.loads, world.sources = {OWN: 5.0}, [THIRD, THIRD, OWN]
    world.paths = {(THIRD, OWN): 2, (THIRD, OTHER): 1, (OWN, OTHER): 4}
    # Through us (2 + 2 + 0) / 3 + 2, through the other (1 + 1 + 4) / 3 + 1.
    assert world.tell(found()) == MOVES
    world.paths[OWN, OTHER] = 5  # now 10 / 3 on both sides
    assert world.tell(found()) == []
    world.sources = [THIRD, 99]  # nobody knows a path from 99
    assert world.tell(found()) == MOVES
    world.sources = []
    assert world.tell(found(2, 2)) == [] and world.tell(found(1, 2)) == MOVES


def test_overload_says_nothing_about_a_client_without_work() -> None:
    world = World("complex")
    world.loads, world.sources = {OWN: 0.1}, [THIRD]
    world.paths = {(THIRD, OWN): 3, (THIRD, OTHER): 1}
    assert world.tell(found(load=2.0)) == MOVES
    world.paths = {(THIRD, OWN): 1, (THIRD, OTHER): 3}
    world.loads = {OWN: 2.0}
    assert world.tell(found()) == []


def test_the_other_broker_counts_with_the_client() -> None:
    world = World("complex")
    world.sources, world.works = [THIRD], {CLIENT: 0.3}
    world.paths = {(THIRD, OWN): 3, (THIRD, OTHER): 1}
    assert world.tell(found(load=0.4)) == MOVES
    assert world.tell(found(load=0.6)) == []  # 0.9 with it: it would only carry the overload there
    world.loads = {OWN: 1.0}
    assert world.tell(found(load=0.6)) == MOVES  # both are over, the other less
    assert world.tell(found(load=0.8)) == []  # but not if it would have more than we have


@pytest.mark.parametrize("adaptor", ["simple", "complex"])
def test_the_information_server_is_asked_first_and_its_word_goes_before_the_client_s(adaptor: str) -> None:
    world = World(adaptor)
    world.sources = [OWN]
    world.paths = {(OWN, OTHER): 0, (OWN, THIRD): 0}
    world.named = Alternative(THIRD, 0.2, hops=0)
    assert world.tell(found()) == [("migrate", CLIENT, THIRD)] and world.asked_near == [OTHER]
    world.named = Alternative(OWN, 0.2, hops=1)  # the client is at home there already
    assert world.tell(found()) == []


def test_what_the_information_server_says_counts_in_the_five_steps() -> None:
    world = World("complex")
    world.sources, world.works = [OWN], {CLIENT: 0.1}
    world.paths = {(OWN, THIRD): 0}
    world.named = Alternative(THIRD, 0.9, hops=0)  # overloaded, whatever the client had heard
    assert world.tell(found(load=0.0)) == []
    world.named = Alternative(
        THIRD, 0.2, hops=1
    )  # one hop from the client to OTHER, one more to it: 2, as home
    assert world.tell(found(1, 2)) == []
    assert world.tell(found(1, 3)) == [("migrate", CLIENT, THIRD)]


def test_paths_in_time_decide_where_the_option_says_so() -> None:
    """Fewer hops, but slower: 5 + 20 ms against 12 + 4 ms; with a quick client 5 + 1."""
    world = World("complex", limits=Limits(by_latency=True))
    world.sources = [THIRD]
    world.paths = {(THIRD, OWN): 3, (THIRD, OTHER): 1}
    world.latency = {(OWN, THIRD): 12, (OWN, CLIENT): 4, (OTHER, THIRD): 5, (OTHER, CLIENT): 20}
    assert world.tell(found()) == []
    world.latency[OTHER, CLIENT] = 1
    assert world.tell(found()) == MOVES
    world.latency[OTHER, CLIENT] = 10  # 15 against 16: no tenth shorter
    assert world.tell(found()) == []
    del world.latency[OTHER, CLIENT]  # nobody can tell: by hops
    assert world.tell(found()) == MOVES
    world.latency |= {(OTHER, CLIENT): 1}
    del world.latency[OTHER, THIRD]  # the producer speaks for neither: 1 against 4
    assert world.tell(found()) == MOVES


@pytest.mark.parametrize(
    ("octets_in", "octets_out", "could", "made"),
    [
        (
            1_000,
            100,
            {20, CLIENT},
            20,
        ),  # 100 * (2 + 1) at the producer, 1000 * 2 + 100 here, 3000 at the client
        (100, 1_000, {20, CLIENT}, CLIENT),  # 100 * (2 + 1) at the client, 100 * 2 + 1000 here
        (1_000, 100, {CLIENT}, None),  # the one that saves would not
        (100, 100, {20, CLIENT}, None),  # 300 wherever it runs
        (100, 95, {20, CLIENT}, None),  # 285 at the producer, 295 here: not worth it
    ],
)
def test_a_willing_end_becomes_a_broker_where_that_saves_traffic(
    octets_in: int, octets_out: int, could: set[NodeId], made: NodeId | None
) -> None:
    world = World("ends")
    world.octets, world.could, world.away = {20: octets_in}, could, {20: 2, CLIENT: 1}
    values = {"client": CLIENT, "access": OWN, "octets_in": octets_in, "octets_out": octets_out}
    assert world.tell(Measured("modulator", OWN, values)) == ([] if made is None else [("create", made)])
    assert world.tell(Measured("modulator", OTHER, values)) == []  # not ours
    world.away.pop(20)  # nobody knows how far
    assert world.tell(Measured("modulator", OWN, values)) == []


def test_of_two_producers_the_one_with_more_octets_is_the_place() -> None:
    world = World("ends")
    world.octets, world.could, world.away = {20: 900.0, 21: 200.0}, {20, 21}, {20: 2, 21: 1, CLIENT: 1}
    values = {"client": CLIENT, "access": OWN, "octets_in": 1_100, "octets_out": 100}
    # Here 1800 + 200 + 100; at 20: 200 * 3 + 100 * 3; at 21: 900 * 3 + 100 * 2.
    assert world.tell(Measured("modulator", OWN, values)) == [("create", 20)]


def reading(load: float, now: int = 0, was_made: int = 0, node: NodeId = OWN, retiring: int = 0) -> Measured:
    values = {"now": now, "load": load, "was_made": was_made, "retiring": retiring}
    return Measured("load", node, values)


def test_half_of_the_modulators_go_to_a_broker_with_room_for_them() -> None:
    world = World("load_balancing")
    world.at_home, world.lighter = [13, 11, OWN, 12, 14], OTHER
    world.works = {OWN: 0.1, 11: 0.2, 12: 0.2, 13: 0.2, 14: 0.3}
    assert world.tell(reading(0.8)) == [] == world.tell(reading(2.0, node=OTHER))
    assert world.tell(reading(1.0)) == [("migrate", 11, OTHER), ("migrate", 12, OTHER)]
    assert world.below == [pytest.approx(0.8 - 0.4)]
    assert world.tell(reading(1.0, 9 * SECOND)) == []  # it rests
    assert len(world.tell(reading(1.0, 10 * SECOND))) == 2


def test_less_than_half_goes_where_half_has_no_room() -> None:
    world = World("load_balancing", "broker_creation")
    world.at_home, world.lighter, world.volunteer = [10, 11, 12, 13, 14, 15, 16, 17], OTHER, 7
    world.works = dict.fromkeys(world.at_home, 0.125)
    world.lighter_load = 0.5  # room for two
    assert world.tell(reading(1.0)) == [("migrate", 10, OTHER), ("migrate", 11, OTHER)]
    world.lighter_load = 0.6
    assert world.tell(reading(1.0, 10 * SECOND)) == [("migrate", 10, OTHER)]
    world.lighter_load = 0.7
    assert world.tell(reading(1.0, 20 * SECOND)) == [("create", 7)]  # nobody has room for any


def test_without_overload_control_nothing_is_balanced() -> None:
    world = World("load_balancing", limits=Limits(overload_control=False))
    world.at_home, world.lighter = [10, 11], OTHER
    assert world.tell(reading(3.0)) == []


def test_where_nobody_has_room_a_broker_is_made() -> None:
    world = World("load_balancing", "broker_creation")
    world.at_home = [10, 11]
    assert world.tell(reading(1.0)) == []  # nor is anybody willing
    world.volunteer = 7
    assert world.tell(reading(1.0, 10 * SECOND)) == [("create", 7)]


def test_an_idle_broker_made_at_run_time_gives_its_clients_away_and_ends() -> None:
    world = World("broker_removal")
    world.at_home, world.lighter = [10, 11], OTHER
    assert world.tell(reading(0.0, 0, was_made=1)) == []
    assert world.tell(reading(0.5, 20 * SECOND, was_made=1)) == []  # busy again: the time begins anew
    assert world.tell(reading(0.0, 40 * SECOND, was_made=1)) == []
    assert world.tell(reading(0.0, 69 * SECOND, was_made=1)) == []
    given = [("migrate", 10, OTHER), ("migrate", 11, OTHER)]
    assert world.tell(reading(0.0, 70 * SECOND, was_made=1)) == [("retire",), *given]
    assert (
        world.tell(reading(0.5, 71 * SECOND, was_made=1, retiring=1)) == given
    )  # those that are still there
    world.at_home = []
    assert world.tell(reading(0.0, 80 * SECOND, was_made=1, retiring=1)) == []


def test_a_broker_of_the_beginning_stays_however_idle() -> None:
    world = World("broker_removal")
    assert [world.tell(reading(0.0, t * SECOND)) for t in (0, 60, 600)] == [[], [], []]


@pytest.mark.parametrize(
    ("octets_in", "octets_out", "to"),
    [
        (1000, 100, OTHER),  # shrinks: to the source, three hops before us
        (100, 1000, THIRD),  # grows: to the client's side, two hops behind us
        (100, 100, None),  # as much as before, wherever it runs
        (100, 105, None),  # not worth a move
    ],
)
def test_modulators_move_where_traffic_is_saved(octets_in: int, octets_out: int, to: NodeId | None) -> None:
    world = World("placement")
    world.octets = {OTHER: octets_in}
    world.paths = {(OTHER, OWN): 3, (OWN, THIRD): 2, (OTHER, THIRD): 5}
    values = {"client": CLIENT, "access": THIRD, "octets_in": octets_in, "octets_out": octets_out}
    done = world.tell(Measured("modulator", OWN, values))
    assert done == ([] if to is None else [("place", CLIENT, to, THIRD)])
    assert world.tell(Measured("modulator", OTHER, values)) == []  # not ours
    if to is not None:
        world.loads = {to: 0.9}  # not onto an overloaded broker
        assert world.tell(Measured("modulator", OWN, values)) == []


def test_the_topology_adaptor_looks_and_tells() -> None:
    world = World("topology")
    assert world.tell(TimeCame("broker_update", 0)) == [("discover",)]
    assert world.tell(NeighboursFound()) == [("propagate",)]
    assert world.tell(TimeCame("something else", 0)) == []


def test_every_adaptor_is_under_fifty_lines() -> None:
    for adaptor in ADAPTORS.values():
        assert len(inspect.getsource(adaptor).splitlines()) < 50, adaptor


def test_the_example_of_the_documentation_works() -> None:
    with documented_adaptor() as page:
        assert set(re.findall(r"^\| `(\w+)` \| [^`\n]*\|", page, re.MULTILINE)) >= set(ADAPTORS) - {
            "low_memory"
        }
        world = World("low_memory")
        world.at_home, world.lighter = [12, 10], OTHER
        assert world.tell(Measured("memory", OWN, {"now": 0, "octets": 20_000_000})) == []
        assert world.tell(Measured("memory", OTHER, {"now": 0, "octets": 1_000_000})) == []
        assert world.tell(Measured("memory", OWN, {"now": 0, "octets": 1_000_000})) == MOVES


def test_an_unknown_adaptor_is_told_with_those_there_are() -> None:
    with pytest.raises(ScenarioError, match=r"has 'smart'; allowed: .*complex"):
        World("smart")
    with pytest.raises(ScenarioError, match=r"has 'simple' twice"):
        World("simple", "simple")


def test_events_said_within_an_event_wait_and_an_endless_talk_ends() -> None:
    channel = SystemChannel()
    heard: list[str] = []

    class Echo(Adaptor):
        def subscribe(self) -> None:
            self.channel.subscribe(TimeCame, self.process)

        def process(self, event: TimeCame) -> None:
            self.channel.publish(TimeCame(event.name + "'", 0))
            heard.append(event.name)

    nobody: Any = None
    services = Services(nobody, nobody, nobody, nobody, channel)
    Echo(services).subscribe()
    channel.publish(TimeCame("a", 0))
    assert heard[:3] == ["a", "a'", "a''"] and len(heard) == EVENTS_MAX and channel.thrown_away == 1
