"""The way of an event over the overlay: source routed, measured where it arrives, not stalled by its size."""

from typing import Any

from tests.strategy.opportunistic.schedules import JOURNAL

from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.trace import Delivered, HandedOff, PathsSampled, Published, Trace, Transmitted

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


def test_path_hops_are_those_that_messages_took() -> None:
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


# Figure 4. The relays have the figure's numbers; node 0 is nobody's.
A, B, C, FIGURE_PRODUCER, FIGURE_CONSUMER = 7, 8, 9, 10, 11
LASTING = [(10, 7), (7, 2), (2, 9), (7, 1), (1, 8), (8, 3), (3, 5), (5, 11), (9, 4), (4, 8)]
OF_NODE_6 = [(9, 6), (6, 11), (6, 5)]
MOVED_AT, JUDGED_AT = 40.5, 90.0


def figure_4(**options: Any) -> tuple[int, int, list[str], set[int]]:
    """Hops of the first and the last event to the consumer's modulator and on to the consumer; handoffs;
    and who passed the last one on."""
    links = {frozenset(link) for link in (*LASTING, *OF_NODE_6)}
    missing = [[a, b] for a in range(12) for b in range(a) if {a, b} not in links]
    faults = [
        {"at": 0.0, "kind": "cut", "links": missing},
        {"at": MOVED_AT, "kind": "cut", "links": [[6, 5], [6, FIGURE_CONSUMER]]},
    ]
    tables = {
        "scenario": {"name": "figure 4", "duration": JUDGED_AT + 5.0},
        "world": {
            "nodes": 12,
            "area": [100.0, 100.0],
            "range": 150.0,
            "mobility": {"model": "static", "positions": [[50.0 + n, 50.0] for n in range(12)]},
            "radio": {"model": "disk", "bitrate": 20_000_000},
        },
        "roles": {"brokers": [A, B, C], "publishers": [FIGURE_PRODUCER], "subscribers": []},
        "workload": {
            "publications": [{"t": at, "node": FIGURE_PRODUCER} for at in (35.0, MOVED_AT + 0.5, JUDGED_AT)],
            "subscriptions": [{"node": FIGURE_CONSUMER, "modulator": {"name": JOURNAL, "cost": 0}}],
        },
        "underlay": {"name": "ideal"},
        "strategy": {"name": "opportunistic", "options": {"dissemination": "overlay", **options}},
        "fault": faults,
    }
    trace = Simulation(scenario_from(tables)).run().trace
    first, _, last = [record.hops for record in trace.of(Delivered)]
    passed_on = {
        record.node
        for record in trace.of(Transmitted)
        if record.sequence == 2 and record.publisher is not None
    }
    return first, last, [record.outcome for record in trace.of(HandedOff)], passed_on


def test_the_home_change_of_figure_4_saves_the_figures_two_hops() -> None:
    """Node 6 moves away. The way leads by 1, B, 3, 5 then; without the change by 2, C, 4, B, 3, 5."""
    first, last, handoffs, passed_on = figure_4()
    assert (first, last, handoffs) == (5, 6, ["moved"])
    assert passed_on == {FIGURE_PRODUCER, A, 1, B, 3, 5}
    first, last, handoffs, passed_on = figure_4(adaptors=["topology"])
    assert (first, last, handoffs) == (5, 8, [])
    assert passed_on == {FIGURE_PRODUCER, A, 2, C, 4, B, 3, 5}
