"""OLSR in whole networks: what every node must know once the network rests, against another's reckoning."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from roamcast.runtime.sim import Simulation
from roamcast.scenario import scenario_from
from roamcast.trace import Dropped, DropReason, LinkChanged, OverlayChanged, Transmitted
from roamcast.underlay.addresses import Subnet
from roamcast.underlay.olsr import Olsr
from roamcast.units import SECOND

SUBNET = Subnet()
RANGE = 250.0


def simulation(
    positions: list[tuple[float, float]], duration: float = 60.0, radio: str = "ideal", **tables: Any
) -> Simulation:
    side = max(max(position) for position in positions) + 1
    return Simulation(
        scenario_from(
            {
                "scenario": {"name": "olsr", "duration": duration, "seed": 1},
                "world": {
                    "nodes": len(positions),
                    "area": [side, side],
                    "range": RANGE,
                    "mobility": {"model": "static", "positions": [list(p) for p in positions]},
                    "radio": {"model": radio},
                },
                "workload": {"rate": 0.0},
                "strategy": {"name": "flooding"},
                "underlay": {"name": "olsr"},
                **tables,
            }
        )
    )


def olsr(simulation: Simulation, number: int) -> Olsr:
    node = simulation.nodes[number]
    assert node is not None and isinstance(node.underlay, Olsr)
    return node.underlay


def placement(nodes: int, side: float, seed: int) -> list[tuple[float, float]]:
    """Uniform; whole metres, so that no distance is on the border of the range by a rounding error."""
    points = np.random.default_rng(seed).integers(0, int(side), size=(nodes, 2))
    return [(float(x), float(y)) for x, y in points]


def graph(positions: list[tuple[float, float]]) -> npt.NDArray[np.bool_]:
    points = np.array(positions)
    apart = points[:, None] - points[None]
    linked: npt.NDArray[np.bool_] = np.hypot(apart[..., 0], apart[..., 1]) <= RANGE
    np.fill_diagonal(linked, False)
    return linked


PLACEMENTS = [(20, 600.0, 1), (30, 1000.0, 2), (40, 1000.0, 3), (50, 1300.0, 4), (60, 900.0, 5)]


@pytest.mark.parametrize("radio", ["ideal", "csma"])
@pytest.mark.parametrize(("nodes", "side", "seed"), PLACEMENTS)
def test_after_a_minute_at_rest_every_node_agrees_with_the_graph(
    nodes: int, side: float, seed: int, radio: str
) -> None:
    positions = placement(nodes, side, seed)
    linked = graph(positions)
    hops = shortest_path(csr_array(linked), unweighted=True)
    played = simulation(positions, radio=radio)
    played.run()
    everyone = [olsr(played, number) for number in range(nodes)]
    relays = [{SUBNET.node(address) for address in one.own_relays()} for one in everyone]
    for number, one in enumerate(everyone):
        neighbours = set(np.flatnonzero(linked[number]).tolist())
        assert one.neighbours() == sorted(neighbours)
        two_hops = set(np.flatnonzero(hops[number] == 2).tolist())
        assert one.two_hop_neighbours() == sorted(SUBNET.address(node) for node in two_hops)
        assert relays[number] <= neighbours
        covered = {target for relay in relays[number] for target in np.flatnonzero(linked[relay]).tolist()}
        assert two_hops <= covered, f"node {number}: {sorted(two_hops - covered)} are not covered"
        assert one.selectors() == [SUBNET.address(other) for other in range(nodes) if number in relays[other]]
        reachable = set(np.flatnonzero(np.isfinite(hops[number])).tolist()) - {number}
        assert one.known_nodes() == sorted(reachable)
        assert one.relays() == [
            other
            for other in sorted(reachable | {number})
            if any(other in relays[chooser] for chooser in range(nodes))
        ]
        for node in reachable:
            assert one.distance(node) == hops[number, node], f"from {number} to {node}"
            next_hop = one.next_hop(node)
            assert next_hop in neighbours and hops[next_hop, node] == hops[number, node] - 1


def test_a_one_way_link_is_no_neighbour_in_either_direction() -> None:
    played = simulation(
        [(0.0, 0.0), (200.0, 0.0), (390.0, 0.0)],
        world={
            "nodes": 3,
            "area": [400.0, 10.0],
            "range": [100.0, 400.0],
            "mobility": {"model": "static", "positions": [[0.0, 0.0], [200.0, 0.0], [390.0, 0.0]]},
        },
    )
    result = played.run()
    heard = {(link.sender, link.receiver) for link in result.trace.of(LinkChanged)}
    heard |= {(link.receiver, link.sender) for link in result.trace.of(LinkChanged) if link.both}
    one_way = {(a, b) for a, b in heard if (b, a) not in heard}
    assert one_way, "the seed gives no one-way link: choose another"
    for number in range(3):
        both_ways = [other for other in range(3) if {(number, other), (other, number)} <= heard]
        assert olsr(played, number).neighbours() == both_ways


def test_a_crashed_neighbour_is_gone_within_the_hold_time_and_back_within_a_few_hellos() -> None:
    line = [(200.0 * number, 0.0) for number in range(4)]
    faults = [
        {"at": 30.0, "kind": "crash", "nodes": [2]},
        {"at": 60.0, "kind": "restart", "nodes": [2]},
    ]
    played = simulation(line, 120.0, fault=faults)
    played.engine.run(30 * SECOND)
    assert olsr(played, 0).distance(3) == 3
    played.engine.run(36 * SECOND + 1)  # the last HELLO, at 30 s at the latest, was valid for 6 s
    assert olsr(played, 1).neighbours() == [0] and olsr(played, 1).next_hop(3) is None
    played.engine.run(52 * SECOND)
    assert olsr(played, 0).known_nodes() == [1]
    played.engine.run(67 * SECOND)
    assert olsr(played, 1).neighbours() == [0, 2]
    # The restarted node numbers its TCs anew; at the latest when the old ones expire it is believed.
    played.engine.run(90 * SECOND)
    assert [olsr(played, 0).distance(node) for node in (1, 2, 3)] == [1, 2, 3]


def test_on_a_line_the_inner_nodes_are_relays_and_the_trace_says_so() -> None:
    played = simulation([(200.0 * number, 0.0) for number in range(5)])
    trace = played.run().trace
    roles = [(record.node, record.change) for record in trace.of(OverlayChanged) if record.role == "mpr"]
    assert sorted(roles) == [(1, "role_on"), (2, "role_on"), (3, "role_on")]
    assert olsr(played, 0).relays() == [1, 2, 3]


def test_traffic_at_rest_is_what_the_intervals_say() -> None:
    # Three in a row: each sends HELLOs, the middle one TCs, and nobody has to relay anything.
    played = simulation([(0.0, 0.0), (200.0, 0.0), (400.0, 0.0)], 600.0)
    sent = [record.message for record in played.run().trace.of(Transmitted)]
    # Intervals of 2 s and 5 s less a jitter of 0.25 s on average.
    assert sent.count("hello") == pytest.approx(3 * 600 / 1.75, rel=0.02)
    assert sent.count("tc") == pytest.approx(600 / 4.75, rel=0.05)
    assert set(sent) == {"hello", "tc"}


def test_the_same_seed_gives_the_same_trace() -> None:
    def transmissions() -> list[Transmitted]:
        return simulation(placement(20, 700.0, 9), 20.0, "csma").run().trace.of(Transmitted)

    assert transmissions() == transmissions()


def test_nothing_of_it_is_malformed() -> None:
    played = simulation(placement(30, 800.0, 7), 30.0, "csma")
    assert [drop for drop in played.run().trace.of(Dropped) if drop.reason is DropReason.WIRE] == []
