"""The world is the same for everyone who plays it, and sensing follows from the same motion as hearing."""

from itertools import permutations
from math import dist

import pytest

from roamcast.runtime.sim import Simulation
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.playback import Playback
from roamcast.scenario import Scenario, scenario_from
from roamcast.scenario.world import motion_of, ranges_of
from roamcast.trace import FaultHappened, LinkChanged, Record
from roamcast.units import SECOND, NodeId


def walkers(**world: object) -> Scenario:
    return scenario_from(
        {
            "scenario": {"name": "w", "duration": 60.0, "seed": 3},
            "world": {"nodes": 8, "area": [100.0, 100.0], "range": 40.0, **world}
            | {"mobility": {"model": "random_waypoint", "speed": [2.0, 9.0], "pause": [0.0, 2.0]}},
            "strategy": {"name": "flooding"},
            "fault": [
                {"at": 10.0, "kind": "crash", "nodes": [3]},
                {"at": 12.0, "kind": "cut", "nodes": [1]},
                {"at": 20.0, "kind": "restart", "nodes": [3]},
                {"at": 33.3, "kind": "heal", "links": [[1, 2], [1, 4]]},
            ],
        }
    )


class Watcher:
    """Does with the nodes what an emulation does: nothing but count."""

    def __init__(self, scenario: Scenario) -> None:
        self.engine = Engine()
        self.played: list[Record] = []
        self.told: list[tuple[int, int, bool]] = []
        self.up_and_down: list[tuple[int, bool]] = []
        self.playback = Playback(scenario, self.engine, self.played.append, self)

    def on_link(self, sender: NodeId, receiver: NodeId, up: bool) -> None:
        self.told.append((sender, receiver, up))

    def on_crash(self, node: NodeId) -> None:
        self.playback.links.crash(node)
        self.up_and_down.append((node, False))

    def on_restart(self, node: NodeId) -> None:
        self.playback.links.restart(node)
        self.up_and_down.append((node, True))


@pytest.mark.parametrize("scenario", [walkers(), walkers(range=(20.0, 60.0))], ids=["mutual", "one-way"])
def test_links_and_faults_are_those_of_a_simulation(scenario: Scenario) -> None:
    simulation = Simulation(scenario)
    simulation.run()
    watcher = Watcher(scenario)
    watcher.engine.run(scenario.duration)
    changes = [r for r in watcher.played if isinstance(r, LinkChanged)]
    assert changes == simulation.trace.of(LinkChanged)
    assert watcher.told == [(r.sender, r.receiver, r.up) for r in changes]
    assert [r for r in watcher.played if isinstance(r, FaultHappened)] == simulation.trace.of(FaultHappened)
    assert watcher.playback.links.reach == simulation.links.reach
    assert watcher.up_and_down == [(3, False), (3, True)]
    assert len(watcher.played) > 50  # else it proves little


@pytest.mark.parametrize("reach", [40.0, (20.0, 60.0)], ids=["mutual", "one-way"])
def test_sensing_is_hearing_at_a_longer_range(reach: object) -> None:
    """Against the positions themselves, every half second; and those who hear also sense."""
    scenario = walkers(range=reach, radio={"model": "csma", "sense": 1.7})
    watcher = Watcher(scenario)
    motion = motion_of(scenario)
    ranges = ranges_of(scenario)
    assert motion is not None
    sensed = watcher.playback.sensed
    checked = 0
    for half_second in range(1, 120):
        moment = half_second * SECOND // 2
        watcher.engine.run(moment)
        places = [path.position(moment) for path in motion.trajectories]
        for sender, receiver in permutations(range(8), 2):
            farthest = 1.7 * (ranges[sender] if isinstance(ranges, list) else ranges)
            here, there = places[sender], places[receiver]
            assert here is not None and there is not None
            away = dist(here, there)
            # Node 1 is cut off for a while.
            if abs(away - farthest) > 0.01 and 1 not in (sender, receiver):
                assert sensed.hears(sender, receiver) == (away < farthest)
                checked += 1
    assert checked > 1_000


def test_what_is_cut_is_not_sensed_either() -> None:
    scenario = walkers(range=500.0, radio={"model": "csma", "sense": 2.0})
    watcher = Watcher(scenario)
    watcher.engine.run(13 * SECOND)
    sensed = watcher.playback.sensed
    assert not sensed.hears(1, 2) and not sensed.hears(2, 1) and sensed.hears(0, 2)
    watcher.engine.run(34 * SECOND)
    assert sensed.hears(1, 2) and sensed.hears(2, 1) and not sensed.hears(1, 0)
