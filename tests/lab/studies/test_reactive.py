"""REDS on the reactive manager, end to end: links of its own, opened and closed as the manager says."""

from typing import Any

from roamcast.lab.run.runs import simulate
from roamcast.runtime.sim import Simulation
from roamcast.scenario import scenario_from
from roamcast.trace import OverlayChanged, Transmitted
from roamcast.units import SECOND

SQUARE = [[0.0, 0.0], [100.0, 0.0], [100.0, 100.0], [0.0, 100.0]]


def ring(duration: float = 60.0, **others: Any) -> dict[str, Any]:
    """Four nodes; each hears its two neighbours on the ring."""
    return {
        "scenario": {"name": "reds", "duration": duration, "modules": ["roamcast.lab.studies.reactive"]},
        "world": {
            "nodes": 4,
            "area": [100.0, 100.0],
            "range": 110.0,
            "mobility": {"model": "static", "positions": SQUARE},
        },
        "workload": {
            "subscriptions": [{"node": node, "filter": "a = 1"} for node in range(4)],
            "publications": [
                {"t": 12.0 + 0.5 * number, "node": number % 4, "attributes": {"a": number % 2}}
                for number in range(int((duration - 14) / 0.5))
            ],
        },
        "strategy": {
            "name": "reds",
            "options": {"preset": "driving", "additions": False, "quiet_probes": False, "recovery": "none"},
        },
        **others,
    }


def test_events_reach_all_once_over_links_that_the_manager_asked_for_and_without_beacons() -> None:
    result = simulate(scenario_from(ring()))
    assert result.metrics["delivery_ratio"] == 1.0 and result.metrics["duplicates"] == 0
    assert result.metrics["cycles"] == 0
    simulation = Simulation(scenario_from(ring()))
    simulation.run()
    sent = {each.message for each in simulation.trace.of(Transmitted)}
    assert "beacon" not in sent and {"rreq", "rrep", "mact", "grph", "open"} <= sent


def test_a_link_that_carries_nothing_any_more_is_disconnected_and_another_is_opened() -> None:
    """`hardDisconnect`, then `signalLostNeighbor`: three links of the ring are the tree, and one is cut."""
    still = Simulation(scenario_from(ring()))
    still.run()
    ups = [each for each in still.trace.of(OverlayChanged) if each.change == "link_up"]
    cut = next((each.node, each.peer) for each in ups if each.t < 12 * SECOND)
    made = ring(fault=[{"at": 30.0, "kind": "cut", "links": [list(cut)]}])
    simulation = Simulation(scenario_from(made))
    simulation.run()
    changes = [each for each in simulation.trace.of(OverlayChanged) if each.t > 30 * SECOND]
    down = min(each.t for each in changes if each.change == "link_down")
    up = min(each.t for each in changes if each.change == "link_up" and each.t > down)
    assert 0 < (down - 30 * SECOND) / SECOND < 4.0  # an event every second, and 1.4 s of repeats
    assert (up - down) / SECOND < 8  # two requests, then a leader and its next search
    found = simulate(scenario_from(made)).metrics
    assert found["cycles"] == 0 and found["duplicates"] == 0
    assert found["delivery_ratio"] is not None and 0.6 < found["delivery_ratio"] < 1
