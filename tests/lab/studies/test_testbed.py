"""The studies `testbed` and `home_crash`: whole networks of the strategy `opportunistic`."""

import pytest

from roamcast.lab.studies import home_crash, testbed
from roamcast.lab.studies.testbed import GRID_OCTETS, TestbedParameters, links
from roamcast.trace import Delivered, Published, Trace
from roamcast.units import SECOND

HOP = GRID_OCTETS * 8 / 340_000 * 1_000 + 1  # milliseconds that a grid takes: octets over bits, and the delay
OVERHEAD = 1.01  # what heads add to a grid


def latencies(**parameters: object) -> dict[str, float]:
    found = testbed.run(TestbedParameters(topology_time=60.0, **parameters), 1)  # type: ignore[arg-type]
    figures: dict[str, float] = {}
    for name, value in found.items():
        assert value is not None, name
        figures[name.removeprefix("latency_ms_")] = value
    assert figures["arrived"] == 1
    return figures


def between(least: float) -> object:
    """A little more than what was computed by hand."""
    return pytest.approx(least * (1 + OVERHEAD) / 2, rel=(OVERHEAD - 1) / 2)


def test_full_data_takes_a_hop_or_two_where_the_home_broker_follows() -> None:
    """18 ms of runoff on A (1 GHz), 10.6 ms on B (1.7 GHz)."""
    found = latencies(mode="opportunistic")
    assert found["a_b_c"] == between(2 * HOP + 18 / 1.7)
    for topology in ("a_b_c_a", "a_c_b", "b_a_c"):
        assert found[topology] == between(HOP + 18)


def test_static_paths_take_three_hops_and_a_queue_at_a() -> None:
    rare = latencies(mode="static", interval=4.0)
    assert rare["a_b_c"] == between(2 * HOP + 18 / 1.7)
    assert rare["b_a_c"] == between(3 * HOP + 18 / 1.7)
    # One that comes back to A finds the next one before it there.
    assert latencies(mode="static")["b_a_c"] > 3.3 * HOP


def test_a_tenth_is_made_where_the_modulator_runs() -> None:
    static = latencies(mode="static", share=0.1)
    assert static["b_a_c"] == between(1.2 * HOP + 18 / 1.7)
    # From A over C to B: all of it, twice; the tenth comes back. The first events meet the change before.
    assert static["a_c_b"] == pytest.approx(2.1 * HOP + 18 / 1.7, rel=0.06)


def test_the_four_topologies_in_their_order() -> None:
    pairs = {(0, 1), (0, 2), (1, 2)}
    up, seen = set(pairs), []
    for at in (0.0, 100.0, 200.0, 300.0):
        for fault in links(100.0):
            if fault["at"] == at:
                (a, b) = fault["links"][0]  # type: ignore[index]
                (up.discard if fault["kind"] == "cut" else up.add)((a, b))
        seen.append(sorted(up))
    assert seen == [[(0, 1), (1, 2)], [(0, 1), (0, 2), (1, 2)], [(0, 2), (1, 2)], [(0, 1), (0, 2)]]


def test_an_event_that_never_came_is_no_latency() -> None:
    trace = Trace()
    for sequence in range(3):
        trace.add(Published(sequence * SECOND, 0, sequence, "realtime", 0, 10, "", "", "{}", (), False))
    trace.add(Delivered(1_500_000, 2, 0, 1, 1, True))
    trace.add(Delivered(1_900_000, 2, 0, 1, 1, True))  # again: the first counts
    trace.add(Delivered(2_100_000, 1, 0, 2, 1, True))  # to another
    assert testbed.latencies(trace, 2, 0, 2 * SECOND) == [None, 500_000]


@pytest.mark.parametrize("restart_after", [0.0, 20.0])
def test_a_crash_of_a_home_broker_costs_its_clients_time_and_next_to_no_events(restart_after: float) -> None:
    """What was inside the broker is lost: at one event in two seconds from each producer, at most a few."""
    parameters = home_crash.HomeCrashParameters(
        crashes=1, restart_after=restart_after, rate=0.5, underlay="ideal"
    )
    found = home_crash.run(parameters, 1)
    assert found["lost_seconds"] is not None and found["lost_seconds"] <= 0.5
    assert found["doubled"] == 0
    # Else nobody had the crashed broker for a home, and the above proves nothing.
    assert found["latency_s_max"] is not None and 5 < found["latency_s_max"] < 30
