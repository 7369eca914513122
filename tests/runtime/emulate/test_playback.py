"""The ether plays the same plan as the simulator."""

import pytest

from roamcast.runtime.emulate.playback import Playback
from roamcast.runtime.sim import Simulation
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import Links
from roamcast.scenario import Scenario, scenario_from
from roamcast.trace import FaultHappened, LinkChanged, Record


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


@pytest.mark.parametrize("scenario", [walkers(), walkers(range=(20.0, 60.0))], ids=["mutual", "one-way"])
def test_links_and_faults_are_those_of_a_simulation(scenario: Scenario) -> None:
    simulation = Simulation(scenario)
    simulation.run()
    engine, links = Engine(), Links(scenario.nodes)
    played: list[Record] = []
    up_and_down: list[tuple[int, bool]] = []
    Playback(scenario, engine, links, played.append, lambda node, up: up_and_down.append((node, up)))
    engine.run(scenario.duration)
    assert [r for r in played if isinstance(r, LinkChanged)] == simulation.trace.of(LinkChanged)
    assert [r for r in played if isinstance(r, FaultHappened)] == simulation.trace.of(FaultHappened)
    assert links.reach == simulation.links.reach
    assert up_and_down == [(3, False), (3, True)]
    assert len(played) > 50  # else it proves little
