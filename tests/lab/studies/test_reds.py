"""The clients of tables 6.14 and 6.15: what they subscribe to and publish, and how ticks are counted."""

from collections import Counter

from roamcast.lab.run.metrics import measure
from roamcast.lab.run.tables import Expected, RunInfo, tables
from roamcast.lab.studies.reds import Reds, _core
from roamcast.scenario import scenario_from
from roamcast.trace import Delivered, Published, Trace
from roamcast.units import SECOND

DURATION = 200.0


def test_clients_behave_as_table_6_13_says() -> None:
    scenario = scenario_from(Reds(rate=2.0, duration=DURATION).tables(seed=5))
    core = _core(5)
    wishes = [each for each in scenario.workload.subscriptions or () if each.type is None]
    for node in range(8):
        own = [each for each in wishes if each.node == node]
        if node in core:
            assert len(own) == 10 and all(each.since == 0 and each.until is None for each in own)
            continue
        changes = sorted(
            (at, change)
            for each in own
            for at, change in ((each.since, 1), (each.until or DURATION + 1, -1))
            if at <= DURATION
        )
        standing, seen = 0, set()
        for at, change in changes:
            standing += change
            if at > 0:
                seen.add(standing)
        assert min(seen) >= 1 and max(seen) <= 10
        assert DURATION < len(changes) < 3 * DURATION, "about two changes a second, some forbidden"
    published = Counter((each.node, each.type) for each in scenario.workload.publications or ())
    assert all(350 * 0.75 < published[node, "numbers"] < 370 * 1.25 for node in range(8))
    assert all(6 <= published[node, "CONTROL"] <= 24 for node in range(8))


def test_a_lost_control_event_extends_the_tick() -> None:
    seed = next(seed for seed in range(100) if 2 in _core(seed))
    trace = Trace()
    for sequence, kind in enumerate(["CONTROL", "numbers", "CONTROL", "numbers", "CONTROL", "numbers"]):
        trace.add(Published(sequence * SECOND, 1, sequence, "realtime", 0, 0, "", kind, "{}", (), False))
    for sequence in (0, 1, 4):  # the CONTROL event 2 was lost
        trace.add(Delivered(sequence * SECOND + 1, 2, 1, sequence, 1, True))
    counted = [Expected(1, sequence, 2, 0, sequence != 3, 1) for sequence in (1, 3, 5)]
    run = RunInfo(name="reds", strategy="tree", seed=seed, nodes=8, duration=9 * SECOND)
    found = measure(tables(trace, counted), run, Reds().metrics(seed))
    assert found["delivery_ratio"] == 1 / 3
    # Two ticks: one of two in the first, which has the event without a path; none of one in the second.
    assert (found["tick_ratio"], found["zero_share"], found["zero_apart"]) == (0.25, 0.5, 0.0)


def test_a_short_run_gives_all_figures() -> None:
    found = Reds(rate=0.5, duration=120.0, protocol="ours").run(seed=3).metrics
    assert found["delivery_ratio"] is not None and found["delivery_ratio"] > 0.9
    assert found["tick_ratio"] is not None and found["control_bytes_ratio"] is not None
