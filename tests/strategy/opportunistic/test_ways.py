"""The way of an event over the overlay: source routed, measured where it arrives, not stalled by its size."""

from typing import Any

from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.trace import Delivered, PathsSampled, Published, Trace, Transmitted

PRODUCER, HOME, OTHER_HOME, CONSUMER = 0, 1, 3, 4


def played(publications: list[dict[str, Any]], **options: Any) -> Trace:
    """Producer, its home, a node that is neither, the consumer's home, the consumer: in a line."""
    tables = {
        "scenario": {"name": "ways", "duration": 60.0},
        "world": {
            "nodes": 5,
            "area": [500.0, 100.0],
            "range": 110.0,
            "mobility": {"model": "static", "positions": [[20.0 + 100.0 * n, 50.0] for n in range(5)]},
            "radio": {"model": "disk", "bitrate": 20_000_000},
        },
        "roles": {"brokers": [HOME, OTHER_HOME], "publishers": [PRODUCER], "subscribers": []},
        "workload": {"publications": publications, "subscriptions": [{"node": CONSUMER}]},
        "underlay": {"name": "ideal"},
        "strategy": {"name": "opportunistic", "options": {"dissemination": "overlay", **options}},
    }
    return Simulation(scenario_from(tables)).run().trace


def test_path_hops_are_those_that_letters_took() -> None:
    trace = played([{"t": 30.0 + n, "node": PRODUCER} for n in range(10)], paths="events")
    paths = [record for record in trace.of(PathsSampled) if record.kind == "overlay" and record.pairs]
    assert [(record.pairs, record.hops) for record in paths] == [
        (1, 4)
    ] * 10  # one to the home, three from it
    assert not any(record.message == "flooded" for record in trace.of(Transmitted))


def test_large_events_in_a_row_do_not_wait_for_acknowledgements() -> None:
    """Seven of 25 kB, 50 ms apart; each takes 10 ms on each of four hops. Before: up to 650 ms."""
    times = [30.0 + 0.05 * n for n in range(7)]
    trace = played([{"t": at, "node": PRODUCER, "size": 25_000} for at in times])
    published = {record.sequence: record.t for record in trace.of(Published)}
    waits = [record.t - published[record.sequence] for record in trace.of(Delivered)]
    assert len(waits) == 7 and max(waits) < 100_000
