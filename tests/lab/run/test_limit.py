"""The limit of any protocol: by hand, against independent oracles, and over simulated runs with faults."""

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

import msgspec
import numpy as np
import pytest
import reticula  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from roamcast.lab.run.expected import expected
from roamcast.lab.run.fewest import fewest
from roamcast.lab.run.graph import Hop, Journeys
from roamcast.lab.run.limit import (
    Broadcast,
    LimitRules,
    drawn_evenly,
    fewest_broadcasts,
    limits,
    spread_evenly,
)
from roamcast.lab.run.runs import RunResult, simulate
from roamcast.lab.run.tables import AttainablePair, EventLimit, Expected, RunInfo, records
from roamcast.scenario import scenario_from
from roamcast.trace import Delivered, FaultHappened, LinkChanged, Published, Subscribed, Trace, Transmitted
from roamcast.units import SECOND, Micros, NodeId
from roamcast.world.radio import CsmaRadio, DiskRadio, IdealRadio


def event(t: Micros, publisher: NodeId, sequence: int = 1, lifetime: Micros = 1_000) -> Published:
    kind = "memorized" if lifetime else "realtime"
    return Published(t, publisher, sequence, kind, lifetime, 10, "", "", "{}", (), False)


def contact(a: NodeId, b: NodeId, since: Micros, until: Micros, both: bool = True) -> list[LinkChanged]:
    return [LinkChanged(since, a, b, both, True), LinkChanged(until, a, b, both, False)]


def arrivals(
    links: list[LinkChanged],
    source: NodeId,
    t: Micros,
    *,
    faults: list[FaultHappened] | None = None,
    until: Micros = 1_000,
    airtime: Micros = 0,
) -> dict[NodeId, Micros]:
    found = Journeys(links, faults or []).earliest({source: t}, until, airtime)
    return {node: hop.t for node, hop in found.items()}


# Earliest arrivals.


def test_an_event_is_carried_from_contact_to_contact() -> None:
    links = [*contact(0, 1, 10, 20), *contact(1, 2, 30, 40), *contact(0, 3, 0, 5)]
    assert arrivals(links, 0, 7) == {1: 10, 2: 30}


def test_each_hop_takes_one_airtime() -> None:
    links = [*contact(0, 1, 0, 50), *contact(1, 2, 0, 50), *contact(2, 3, 40, 50)]
    assert arrivals(links, 0, 7) == {1: 7, 2: 7, 3: 40}
    assert arrivals(links, 0, 7, airtime=4) == {1: 11, 2: 15, 3: 44}


def test_a_contact_must_outlast_the_frame() -> None:
    links = [*contact(0, 1, 10, 20), *contact(0, 1, 30, 35)]
    assert arrivals(links, 0, 0, airtime=9) == {1: 19}
    # The link goes down in the instant in which the frame ends: changes come first, and it is lost.
    assert arrivals(links, 0, 0, airtime=10) == {}
    assert arrivals(links, 0, 16, airtime=4) == {1: 34}, "the next contact is taken"


def test_contacts_in_the_wrong_order_carry_nothing() -> None:
    links = [*contact(1, 2, 10, 20), *contact(0, 1, 30, 40)]
    assert arrivals(links, 0, 7) == {1: 30}


def test_the_last_instant_before_the_deadline_counts() -> None:
    links = [*contact(0, 1, 50, 60), *contact(0, 2, 51, 60)]
    assert arrivals(links, 0, 10, until=50) == {1: 50}
    assert arrivals(links, 0, 10, until=53, airtime=3) == {1: 53}


def test_changes_of_an_instant_come_before_what_is_published_at_it() -> None:
    assert arrivals(contact(0, 1, 10, 20), 0, 10) == {1: 10}
    assert arrivals(contact(0, 1, 10, 20), 0, 20) == {}


def test_down_and_up_in_one_instant_is_no_interruption_and_up_and_down_no_contact() -> None:
    kept = [*contact(0, 1, 0, 10), *contact(0, 1, 10, 30)]
    assert arrivals(kept, 0, 5, airtime=8) == {1: 13}
    assert arrivals(contact(0, 1, 10, 10), 0, 5) == {}


def test_one_way_links_carry_one_way() -> None:
    links = contact(0, 1, 0, 50, both=False)
    assert (arrivals(links, 0, 7), arrivals(links, 1, 8)) == ({1: 7}, {})


def test_a_crash_loses_nothing_but_meetings() -> None:
    links = [*contact(0, 1, 0, 10), *contact(1, 2, 20, 40), *contact(0, 3, 25, 28), *contact(1, 3, 25, 28)]
    faults = [FaultHappened(15, "crash", 1), FaultHappened(30, "restart", 1)]
    assert arrivals(links, 0, 5, faults=faults) == {1: 5, 3: 25, 2: 30}


def test_a_hop_says_who_sends_and_when() -> None:
    journeys = Journeys([*contact(0, 1, 0, 50), *contact(1, 2, 30, 50)], [])
    assert journeys.earliest({0: 5}, 100, 4) == {1: Hop(0, 5, 9), 2: Hop(1, 30, 34)}
    assert journeys.earliest({0: 5, 1: 20}, 100, 4) == {2: Hop(1, 30, 34)}, "several have it"
    assert journeys.earliest({0: 5}, 100, 4, wanted=1 << 1) == {1: Hop(0, 5, 9)}, "the rest is not asked for"


NODES, DURATION = 5, 30
changes = st.builds(
    LinkChanged,
    st.integers(0, DURATION),
    st.integers(0, NODES - 1),
    st.integers(0, NODES - 1),
    st.booleans(),
    st.booleans(),
)
crashes = st.builds(
    FaultHappened,
    st.integers(0, DURATION),
    st.sampled_from(["crash", "restart"]),
    st.integers(0, NODES - 1),
)


def standing(links: list[LinkChanged], faults: list[FaultHappened]) -> list[set[tuple[NodeId, NodeId]]]:
    """Which links carry something in each microsecond: slow and simple."""
    up: set[tuple[NodeId, NodeId]] = set()
    down: set[NodeId] = set()
    found = []
    for now in range(DURATION + 1):
        for change in links:
            if change.t == now:
                ends = [(change.sender, change.receiver), (change.receiver, change.sender)]
                (up.update if change.up else up.difference_update)(ends if change.both else ends[:1])
        for fault in faults:
            if fault.t == now:
                (down.add if fault.kind == "crash" else down.discard)(fault.node)
        found.append({link for link in up if down.isdisjoint(link)})
    return found


@settings(max_examples=200)
@given(
    st.lists(changes, max_size=25),
    st.lists(crashes, max_size=3),
    st.integers(0, DURATION - 1),
    st.integers(0, NODES - 1),
    st.integers(0, 4),
)
def test_reticula_finds_the_same_arrivals(
    links: list[LinkChanged], faults: list[FaultHappened], t: Micros, source: NodeId, airtime: Micros
) -> None:
    links = sorted((change for change in links if change.sender != change.receiver), key=lambda c: c.t)
    faults.sort(key=lambda fault: fault.t)
    up = standing(links, faults)
    # Reticula wants a later instant for the next hop, so its clock is twice as fine: a frame has arrived just
    # before the instant at which the next may leave.
    edge = reticula.directed_delayed_temporal_edge[reticula.int64, reticula.int64]
    edges = [
        edge(sender, receiver, 2 * now, 2 * (now + airtime) + (1 if airtime == 0 else -1))
        for now in range(t, DURATION + 1 - airtime)
        for sender, receiver in up[now]
        if all((sender, receiver) in up[later] for later in range(now, now + airtime + 1))
    ]
    if airtime == 0:  # within an instant it knows no second hop: close each instant by hand
        edges = [
            edge(a, b, 2 * now, 2 * now + 1)
            for now in range(t, DURATION + 1)
            for a in range(NODES)
            for b in closure(a, up[now]) - {a}
        ]
    network = reticula.directed_delayed_temporal_network[reticula.int64, reticula.int64](edges)
    cluster = reticula.out_cluster(network, reticula.temporal_adjacency.simple[edge](), source, 2 * t - 1)
    oracle = {
        node: (min(begin for begin, _ in intervals) + (0 if airtime == 0 else 1)) // 2
        for node, intervals in cluster.interval_sets().items()
        if node != source
    }
    found = arrivals(links, source, t, faults=faults, until=DURATION, airtime=airtime)
    assert found == oracle


def closure(node: NodeId, links: set[tuple[NodeId, NodeId]]) -> set[NodeId]:
    reached = {node}
    for _ in range(NODES):
        reached |= {b for a, b in links if a in reached}
    return reached


# Fewest broadcasts.


def sets(nodes: int, links: set[tuple[int, int]]) -> list[int]:
    return [sum(1 << b for a, b in links if a == node) for node in range(nodes)]


def both_ways(*links: tuple[int, int]) -> set[tuple[int, int]]:
    return {*links, *((b, a) for a, b in links)}


def optimum(hearers: list[int], start: int, goals: int, nodes: int) -> int | None:
    """Every set of senders, the small ones first."""
    states = len(hearers)

    def carried(held: int) -> int:
        for _ in range(states // nodes):
            held |= held << nodes & (1 << states) - 1
        return held

    for count in range(states + 1):
        for senders in combinations(range(states), count):
            held, left = carried(start), set(senders)
            while ready := {sender for sender in left if held >> sender & 1}:
                for sender in ready:
                    held |= carried(hearers[sender])
                left -= ready
            if not goals & ~held:
                return count
    return None


def test_by_hand() -> None:
    line = sets(4, both_ways((0, 1), (1, 2), (2, 3)))
    assert fewest(line, 1, 0b1000, 4)[:2] == (3, 3)
    star = sets(5, both_ways((0, 1), (1, 2), (1, 3), (1, 4)))
    assert fewest(star, 1, 0b11100, 5) == (2, 2, [0, 1])
    assert fewest(star, 1, 0b00001, 5) == (0, 0, []), "whoever has it needs nothing"
    one_way = sets(3, {(0, 1), (1, 2), (2, 0)})
    assert fewest(one_way, 0b100, 0b010, 3)[:2] == (2, 2)


def test_subscribers_at_one_and_two_hops_need_two_broadcasts() -> None:
    """The ascent alone finds 1 here if it begins with the nearer one."""
    line = sets(3, both_ways((0, 1), (1, 2)))
    assert fewest(line, 1, 0b110, 3, exact=False) == (2, 2, [0, 1])


def test_carrying_costs_nothing_and_one_broadcast_serves_all_neighbours_of_the_moment() -> None:
    # Node 0 meets 1 in the first interval, 2 in the second, and both in the third.
    meetings = [both_ways((0, 1)), both_ways((0, 2)), both_ways((0, 1), (0, 2))]
    hearers = [heard << 3 * at for at, links in enumerate(meetings) for heard in sets(3, links)]
    assert fewest(hearers, 1, 0b110 << 6, 3) == (1, 1, [6])
    assert fewest(hearers[:6], 1, 0b110 << 3, 3)[:2] == (2, 2), "without the third"


def rooted_graphs(nodes: int) -> Iterator[set[tuple[int, int]]]:
    """Every graph once, up to a renumbering of all nodes but node 0."""
    pairs = list(combinations(range(nodes), 2))
    number = {pair: at for at, pair in enumerate(pairs)}
    renumbered = [
        [number[tuple(sorted((order[a], order[b])))] for a, b in pairs]  # type: ignore[index]
        for order in ((0, *rest) for rest in permutations(range(1, nodes)))
    ]
    seen = bytearray(1 << len(pairs))
    for graph in range(1 << len(pairs)):
        if not seen[graph]:
            chosen = [at for at in range(len(pairs)) if graph >> at & 1]
            for places in renumbered:
                seen[sum(1 << places[at] for at in chosen)] = 1
            yield both_ways(*(pairs[at] for at in chosen))


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6])
def test_all_graphs_of_up_to_six_nodes(nodes: int) -> None:
    graphs = 0
    for links in rooted_graphs(nodes):
        graphs += 1
        hearers = sets(nodes, links)
        reached = []  # by set of senders: what is held in the end, and how many sent
        for senders in range(1 << nodes):
            held, done = 1, 0
            while ready := held & senders & ~done:
                done |= ready
                for sender in range(nodes):
                    if ready >> sender & 1:
                        held |= hearers[sender]
            reached.append((senders.bit_count(), held))
        everyone = reached[-1][1]
        for goals in range(0, 1 << nodes, 2):  # node 0 has it
            if not goals & ~everyone:
                best = min(count for count, held in reached if not goals & ~held)
                found = fewest(hearers, 1, goals, nodes)
                assert found[:2] == (best, best) and len(found.senders) == best, (links, goals)
    assert graphs == [1, 2, 6, 20, 90, 544][nodes - 1], "rooted graphs, OEIS A000666"


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_with_one_way_links_and_intervals(seed: int) -> None:
    drawn = random.Random(seed)
    tight = asked = 0
    while asked < 150:
        nodes, intervals = drawn.choice([(5, 1), (6, 1), (7, 1), (8, 1), (3, 2), (4, 2), (3, 3), (2, 4)])
        density = drawn.random()
        hearers = [
            sum(
                1 << at * nodes + other
                for other in range(nodes)
                if other != node and drawn.random() < density
            )
            for at in range(intervals)
            for node in range(nodes)
        ]
        goals = sum(1 << (intervals - 1) * nodes + n for n in range(nodes) if drawn.random() < 0.7)
        best = optimum(hearers, 1, goals, nodes)
        if best is not None:
            asked += 1
            found = fewest(hearers, 1, goals, nodes)
            assert found[:2] == (best, best), (hearers, goals, nodes)
            assert optimum_of(found.senders, hearers, goals, nodes)
            bounds = fewest(hearers, 1, goals, nodes, exact=False)
            assert bounds.at_least <= best <= bounds.at_most, (hearers, goals, nodes)
            tight += bounds.at_least == bounds.at_most
    assert tight > 0.9 * asked


def optimum_of(senders: list[int], hearers: list[int], goals: int, nodes: int) -> bool:
    """Whether these senders alone serve the goals."""
    only = [heard if state in senders else 0 for state, heard in enumerate(hearers)]
    return optimum(only, 1, goals, nodes) == len(senders)


def by_flow(hearers: list[int], goals: int) -> int:
    """The same question as one flow from node 0: another formulation, another program for the solver."""
    nodes = len(hearers)
    links = [(a, b) for a in range(nodes) for b in range(nodes) if hearers[a] >> b & 1]
    wanted = goals.bit_count()
    columns = nodes + len(links)  # who sends; how much flows over each link
    balance = np.zeros((nodes, columns))
    capacity = np.zeros((len(links), columns))
    for at, (a, b) in enumerate(links):
        balance[b, nodes + at] += 1
        balance[a, nodes + at] -= 1
        capacity[at, nodes + at], capacity[at, a] = 1, -wanted
    inflow = [float(goals >> node & 1) for node in range(nodes)]
    inflow[0] -= wanted
    found = milp(
        [1] * nodes + [0] * len(links),
        constraints=[LinearConstraint(balance, inflow, inflow), LinearConstraint(capacity, -np.inf, 0)],
        integrality=np.array([1] * nodes + [0] * len(links)),
        bounds=Bounds(0, [1] * nodes + [wanted] * len(links)),
    )
    assert found.fun is not None
    return round(found.fun)


@pytest.mark.parametrize("seed", range(6))
def test_a_network_of_many_nodes_against_another_formulation(seed: int) -> None:
    drawn = random.Random(seed)
    places = [(drawn.random(), drawn.random()) for _ in range(24)]
    reach = [drawn.uniform(0.22, 0.4) for _ in places]  # of each node its own: one-way links
    hearers = [
        sum(
            1 << b
            for b, (x2, y2) in enumerate(places)
            if b != a and (x2 - x) ** 2 + (y2 - y) ** 2 < reach[a] ** 2
        )
        for a, (x, y) in enumerate(places)
    ]
    held = 1
    for _ in places:
        held |= sum(
            1 << b for b in range(24) if any(held >> a & 1 and hearers[a] >> b & 1 for a in range(24))
        )
    goals = sum(1 << n for n in range(1, 24) if held >> n & 1 and drawn.random() < 0.8)
    found, bounds = fewest(hearers, 1, goals, 24), fewest(hearers, 1, goals, 24, exact=False)
    assert found.at_least == found.at_most == by_flow(hearers, goals)
    assert bounds.at_least <= found.at_least <= bounds.at_most


# Of a run.


def test_the_sample_is_spread_evenly() -> None:
    assert spread_evenly(10, 5) == [1, 3, 5, 7, 9]
    assert spread_evenly(3, 5) == [0, 1, 2]
    assert spread_evenly(0, 5) == spread_evenly(5, 0) == []


def test_publishers_that_take_turns_are_all_in_the_sample() -> None:
    places = drawn_evenly(25, 5)
    assert [place // 5 for place in places] == [0, 1, 2, 3, 4], "one of each part"
    assert len({place % 5 for place in places}) > 1, "and not always the same publisher's"
    assert drawn_evenly(3, 5) == [0, 1, 2] and drawn_evenly(0, 5) == drawn_evenly(5, 0) == []


def test_a_frame_holds_the_event_and_takes_its_airtime() -> None:
    assert CsmaRadio().airtime(256) == 192 + (256 + 64) * 4
    assert DiskRadio(bitrate=1_000_000).airtime(100) == 800
    assert IdealRadio().airtime(256) == 0
    run = info(radio={"model": "disk", "bitrate": 1_000_000})
    small, large = event(0, 0), msgspec.structs.replace(event(0, 0), size=110)
    rules = LimitRules.of(run)
    assert rules.airtime(large) - rules.airtime(small) == 8 * 100
    assert rules.airtime(small) > 8 * 10, "it names its publisher and its number, too"


def info(warmup: Micros = 0, duration: Micros = 100 * SECOND, **world: Any) -> RunInfo:
    scenario = {"world": world} if world else {}
    return RunInfo(
        name="n", strategy="s", seed=1, nodes=5, duration=duration, warmup=warmup, scenario=scenario
    )


def rows(*trace_records: Any, run: RunInfo | None = None) -> tuple[dict[Any, Micros], dict[Any, EventLimit]]:
    trace = Trace()
    for record in trace_records:
        trace.add(record)
    found = limits(trace, expected(trace), run or info())
    pairs = {(a.publisher, a.sequence, a.node): a.t for a in found if isinstance(a, AttainablePair)}
    return pairs, {(e.publisher, e.sequence): e for e in found if isinstance(e, EventLimit)}


def wants(node: NodeId, t: Micros = 0) -> Subscribed:
    return Subscribed(t, node, 1, "TRUE", True)


def test_who_can_be_served_until_when() -> None:
    meetings = [*contact(0, 1, 0, 9 * SECOND), *contact(1, 2, 12 * SECOND, 13 * SECOND)]
    everyone = [wants(1), wants(2), wants(3)]
    pairs, found = rows(*meetings, *everyone, event(SECOND, 0, 1, 0), event(2 * SECOND, 0, 2, 60 * SECOND))
    assert pairs == {
        (0, 1, 1): SECOND,  # node 2 is met after 11 s: too late for a real-time event
        (0, 2, 1): 2 * SECOND,
        (0, 2, 2): 12 * SECOND,
    }
    assert [found[0, 1].deadline, found[0, 2].deadline] == [11 * SECOND, 62 * SECOND]
    longer = msgspec.structs.replace(info(), scenario={"limit": {"deadline": 12.0}})
    assert (0, 1, 2) in rows(*meetings, *everyone, event(SECOND, 0, 1, 0), run=longer)[0]
    ends = rows(
        *meetings, *everyone, event(2 * SECOND, 0, 2, 60 * SECOND), run=info(duration=12 * SECOND - 1)
    )
    assert ends[0] == {(0, 2, 1): 2 * SECOND}, "the run ends before the last meeting"


def test_a_late_subscriber_is_not_served_before_it_subscribes() -> None:
    always = contact(0, 1, 0, 90 * SECOND)
    pairs, _ = rows(*always, wants(1, 30 * SECOND), event(SECOND, 0, 1, 60 * SECOND))
    assert pairs == {(0, 1, 1): 30 * SECOND}


def test_a_real_time_event_is_not_for_a_node_that_was_down_since() -> None:
    """Nodes 1 to 4 hear node 0 all the time. 1 is down at the publication, 2 crashes after it has come and 3
    before, as its link comes later; 4 crashed earlier."""
    links = [link for node in (1, 2, 4) for link in contact(0, node, 0, 90 * SECOND)]
    links += contact(0, 3, 6 * SECOND, 90 * SECOND)
    faults = [FaultHappened(2 * SECOND, "crash", 1), FaultHappened(4 * SECOND, "restart", 1)]
    faults += [FaultHappened(4 * SECOND, "crash", node) for node in (2, 3)]
    faults += [FaultHappened(5 * SECOND, "restart", node) for node in (2, 3)]
    faults += [FaultHappened(SECOND, "crash", 4), FaultHappened(2 * SECOND, "restart", 4)]
    everyone = [wants(node) for node in (1, 2, 3, 4)]
    pairs, _ = rows(*links, *faults, *everyone, event(3 * SECOND, 0, 1, 0))
    assert {node for _, _, node in pairs} == {2, 4}
    pairs, _ = rows(*links, *faults, *everyone, event(3 * SECOND, 0, 1, 60 * SECOND))
    assert {node for _, _, node in pairs} == {1, 2, 3, 4}, "a memorized one waits for them"


def test_events_of_the_warm_up_have_no_limit_and_none_have_if_it_is_off() -> None:
    always = [*contact(0, 1, 0, 90 * SECOND), wants(1), event(SECOND, 0, 1, 0), event(3 * SECOND, 0, 2, 0)]
    pairs, found = rows(*always, run=info(warmup=2 * SECOND))
    assert list(pairs) == [(0, 2, 1)] and list(found) == [(0, 2)]
    off = msgspec.structs.replace(info(), scenario={"limit": {"events": 0}})
    assert rows(*always, run=off) == ({}, {})


def test_the_fewest_broadcasts_are_those_to_whom_the_run_served_in_time() -> None:
    star = [*contact(0, 1, 0, 90 * SECOND), *contact(1, 2, 0, 90 * SECOND), *contact(0, 3, 0, 90 * SECOND)]
    everyone = [wants(1), wants(2), wants(3), event(SECOND, 0, 1, 0)]
    near = [Delivered(SECOND, 1, 0, 1, 1, True), Delivered(SECOND, 3, 0, 1, 1, True)]
    assert rows(*star, *everyone)[1][0, 1].fewest == 0
    assert rows(*star, *everyone, *near)[1][0, 1].fewest == 1
    far = Delivered(2 * SECOND, 2, 0, 1, 2, True)
    assert rows(*star, *everyone, *near, far)[1][0, 1].fewest == 2
    late = Delivered(11 * SECOND + 1, 2, 0, 1, 2, True)
    assert rows(*star, *everyone, *near, late)[1][0, 1].fewest == 1
    unmatched = Delivered(2 * SECOND, 2, 0, 1, 2, False)
    assert rows(*star, *everyone, *near, unmatched)[1][0, 1].fewest == 1


def pair(node: NodeId, reachable: bool = True) -> Expected:
    return Expected(0, 1, node, 0, reachable, 1 if reachable else None)


def test_the_best_tree_names_senders_times_and_whom_each_serves_first() -> None:
    line = Journeys([*contact(0, 1, 0, 90), *contact(1, 2, 0, 90), *contact(1, 3, 20, 30)], [])
    at_once = fewest_broadcasts(line, event(5, 0, lifetime=0), [pair(1), pair(2)], 90, 1)
    assert at_once == (2, 2, [Broadcast(0, 5, (1,)), Broadcast(1, 5, (2,))])
    # A memorized event may wait for node 3, and serve node 2 by the same broadcast.
    waits = fewest_broadcasts(line, event(5, 0), [pair(1), pair(2), pair(3, False)], 90, 1)
    assert waits == (2, 2, [Broadcast(0, 5, (1,)), Broadcast(1, 20, (2, 3))])


def test_a_real_time_event_that_was_carried_is_judged_over_its_time() -> None:
    meets = Journeys([*contact(0, 1, 0, 90), *contact(1, 2, 50, 90)], [])
    found = fewest_broadcasts(meets, event(5, 0, lifetime=0), [pair(1), pair(2, False)], 80, 1)
    assert found == (2, 2, [Broadcast(0, 5, (1,)), Broadcast(1, 50, (2,))])


def test_united_intervals_only_lower_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(7)
    lower = 0
    for _ in range(30):
        links = [
            change
            for a, b in combinations(range(6), 2)
            for begin in [drawn.randrange(200)]
            for change in contact(a, b, begin, begin + drawn.randrange(1, 60))
        ]
        journeys = Journeys(sorted(links, key=lambda change: change.t), [])
        reached = journeys.earliest({0: 0}, 300, 0)
        served = [pair(node, False) for node in reached]
        whole = fewest_broadcasts(journeys, event(0, 0), served, 300, 0)
        with monkeypatch.context() as patch:
            patch.setattr("roamcast.lab.run.limit.INTERVALS_MAX", 4)
            united = fewest_broadcasts(journeys, event(0, 0), served, 300, 0)
        assert united.at_least <= whole.at_least <= whole.at_most
        assert united.at_most == len(united.broadcasts) >= whole.at_least
        assert {node for sent in united.broadcasts for node in sent.receivers} >= set(reached)
        lower += united.at_least < whole.at_least
    assert lower, "else this shows nothing"


def simulated(strategy: str, seed: int, **workload: Any) -> RunResult:
    """Moving nodes of unequal range, collisions, crashes."""
    tables = {
        "scenario": {"name": "limit", "duration": 20.0, "warmup": 2.0, "seed": seed},
        "world": {
            "nodes": 14,
            "area": [500.0, 500.0],
            "range": [120.0, 220.0],
            "mobility": {"model": "random_waypoint", "speed": [5.0, 25.0], "pause": [0.0, 1.0]},
            "radio": {"model": "csma", "loss": 0.05},
        },
        "roles": {"publishers": 3, "subscribers": 9},
        "workload": {"rate": 0.5, "size": 64, **workload},
        "strategy": {"name": strategy},
        "limit": {"events": 1000},
        "fault": [
            {"at": 6.0, "kind": "crash", "nodes": [1, 2]},
            {"at": 9.0, "kind": "cut", "nodes": [3]},
            {"at": 12.0, "kind": "restart", "nodes": [1]},
        ],
    }
    return simulate(scenario_from(tables))


MEMORIZED = {"class": "memorized", "lifetime": 12.0}


@pytest.mark.parametrize(
    ("strategy", "seed", "workload"),
    [("flooding", 1, {}), ("epidemic", 2, {}), ("epidemic", 3, MEMORIZED), ("odmrp", 4, MEMORIZED)],
)
def test_no_run_is_better_than_its_limit(strategy: str, seed: int, workload: dict[str, Any]) -> None:
    result = simulated(strategy, seed, **workload)
    earliest = {(a.publisher, a.sequence, a.node): a.t for a in records(result.tables, AttainablePair)}
    bounds = {(e.publisher, e.sequence): e for e in records(result.tables, EventLimit)}
    sent: defaultdict[tuple[NodeId, int], int] = defaultdict(int)
    for frame in records(result.tables, Transmitted):
        if frame.kind == "data" and frame.publisher is not None and frame.sequence is not None:
            sent[frame.publisher, frame.sequence] += 1
    due = {(e.publisher, e.sequence, e.node) for e in records(result.tables, Expected)}
    in_time = 0
    for delivery in records(result.tables, Delivered):
        key = (delivery.publisher, delivery.sequence)
        if key in bounds and (*key, delivery.node) in due and delivery.t <= bounds[key].deadline:
            in_time += 1
            assert earliest[(*key, delivery.node)] <= delivery.t, delivery
    assert in_time > 50, "else this shows nothing"
    for key, bound in bounds.items():
        assert bound.fewest is not None and bound.at_most is not None
        assert bound.fewest <= min(bound.at_most, sent[key]), bound
    metrics = result.metrics
    assert metrics["limit_events"] == len(bounds) == metrics["published"]
    assert metrics["limit_transmissions"] == sum(bound.fewest or 0 for bound in bounds.values())
    assert (metrics["transmissions_of_limit"] or 0) >= 1 <= (metrics["airtime_of_limit"] or 0)
    assert 0 <= (metrics["delivery_of_limit"] or 0) <= 1
    assert metrics["limit_delivery"] == len(earliest) / (metrics["expected"] or 1)
    assert 0 <= (metrics["latency_excess_p50"] or -1) <= (metrics["latency_excess_p95"] or -1)


def test_of_very_many_events_evenly_spread_ones_have_journeys() -> None:
    always = [*contact(0, 1, 0, 90 * SECOND), wants(1)]
    many = [event(SECOND + at, 0, at, 0) for at in range(130)]
    one = msgspec.structs.replace(info(), scenario={"limit": {"events": 1}})
    pairs, found = rows(*always, *many, run=one)
    assert len(pairs) == len(found) == 60 and {key[1] for key in found} == set(spread_evenly(130, 60))
    assert sum(bound.fewest is not None for bound in found.values()) == 1


def test_runs_of_one_seed_are_judged_by_the_same_events() -> None:
    tables = {
        "scenario": {"name": "n", "duration": 8.0},
        "world": {"nodes": 4, "area": [100.0, 100.0], "range": 90.0, "mobility": {"model": "static"}},
        "strategy": {"name": "flooding"},
        "limit": {"events": 3},
    }
    chosen = []
    for strategy in ("flooding", "epidemic"):
        made = simulate(scenario_from(tables, settings=[("strategy.name", strategy)]))
        found = [e for e in records(made.tables, EventLimit) if e.fewest is not None]
        assert made.metrics["limit_events"] == len(found) == 3
        chosen.append([(e.publisher, e.sequence) for e in found])
    assert chosen[0] == chosen[1]
