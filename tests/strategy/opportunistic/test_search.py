"""Expanding ring search: counted by hand on a line, and what strangers may send."""

from collections import Counter
from typing import cast

from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.messages import RingAnswer, RingSearch
from roamcast.strategy.opportunistic.search import BROKERS_MAX, SEARCHES_MAX
from roamcast.trace import Delivered, Published, Transmitted
from roamcast.units import NodeId, micros


class Line:
    """Seven nodes in a line; brokers are 0, 2 and 5."""

    def __init__(self, search: str = "ring") -> None:
        self.simulation = Simulation(
            scenario_from(
                {
                    "scenario": {"name": "line", "duration": 100.0, "seed": 1},
                    "world": {
                        "nodes": 7,
                        "area": [700.0, 10.0],
                        "range": 110.0,
                        "mobility": {"model": "static", "positions": [[100.0 * n, 5.0] for n in range(7)]},
                    },
                    "roles": {"brokers": [0, 2, 5], "publishers": [0], "subscribers": [6]},
                    "workload": {"rate": 0.5, "start": 10.0},
                    "underlay": {"name": "ideal"},
                    "strategy": {
                        "name": "opportunistic",
                        "options": {"search": search, "neighbours_wanted": 1, "broker_update": 30.0},
                    },
                }
            )
        )

    def run(self, until: float) -> None:
        self.simulation.engine.run(micros(until))

    def at(self, node: NodeId) -> Opportunistic:
        return cast(Opportunistic, self.simulation.nodes[node].strategy)  # type: ignore[union-attr]

    def searched(self, since: float) -> Counter[str]:
        frames = [one for one in self.simulation.trace.of(Transmitted) if one.t >= micros(since)]
        return Counter(one.message for one in frames if one.message in ("search", "found"))


def test_rings_grow_until_enough_brokers_are_found() -> None:
    line = Line("routes")
    line.run(20.0)
    ring, done = line.at(0)._shared.overlay.ring, []
    ring.begin(1, lambda: done.append(dict(ring.found)))
    line.run(25.0)
    assert done == [{2: 2}]
    # Ring 1: node 0 asks. Ring 2: 0 and 1. The answer of 2 goes through 1.
    assert line.searched(20.0) == {"search": 3, "found": 2}
    ring.begin(2, lambda: done.append(dict(ring.found)))
    line.run(30.0)
    assert done[1] == {2: 2, 5: 5}
    # Rings 1 to 5; 2 answers four times over two hops, 5 once over five.
    assert line.searched(25.0) == {"search": 15, "found": 13}
    ring.begin(9, lambda: done.append({}))
    ring.begin(9, lambda: done.append(dict(ring.found)))
    line.run(35.0)
    assert done[2:] == [{}, {2: 2, 5: 5}]  # both wait for the one search
    assert line.searched(30.0) == {"search": 15, "found": 13}


def test_brokers_and_clients_that_search_find_what_routes_say_and_events_arrive() -> None:
    line = Line()
    line.run(60.0)
    assert [near.broker for near in line.at(2)._shared.overlay.neighbours()] == [0]
    assert sorted(near.broker for near in line.at(0)._shared.overlay.neighbours()) == [2]
    assert line.at(5)._shared.overlay.topology.route(0) == ((5, 2, 0), 5)
    assert line.at(6).client.home == 5
    assert line.searched(0.0)["search"] > 20
    published = [one for one in line.simulation.trace.of(Published) if one.t < micros(55.0)]
    assert len(line.simulation.trace.of(Delivered)) >= len(published) > 10


def test_what_strangers_send_is_bounded_and_answers_nothing_that_was_not_asked() -> None:
    line = Line("routes")
    line.run(20.0)
    ring = line.at(1)._shared.overlay.ring
    for number in range(2 * SEARCHES_MAX):
        ring.on_search(2, RingSearch(2, number, 1, 64))
    assert len(ring._ways_back) == SEARCHES_MAX
    ring.on_search(2, RingSearch(9, 1, 5, 64))  # as far as ours go, however far it would
    assert ring._relay.find((9, 1)) is None
    ring.on_answer(2, RingAnswer(1, 0, 5, 1))
    assert ring.found == {} and ring._finding == {}
    ring.begin(BROKERS_MAX + 9, lambda: None)
    for broker in range(BROKERS_MAX + 5):
        ring.on_answer(2, RingAnswer(1, ring._number, broker, 1))
    assert len(ring._finding) == BROKERS_MAX
    line.run(30.0)
    assert [near.broker for near in line.at(1)._shared.overlay.near()] == [0, 2, 5]
