"""The studies `testbed` and `home_crash`: whole networks of the strategy `opportunistic`."""

import statistics

import pytest

from roamcast.lab.run.tables import records
from roamcast.lab.studies.flood.runoff import Runoff, RunoffParameters
from roamcast.lab.studies.opportunistic_overlays import HomeCrash
from roamcast.lab.studies.testbed import CLOCKS, TOPOLOGIES, A, B, C, Testbed, links
from roamcast.trace import Delivered, HandedOff, Published
from roamcast.units import SECOND

GRID_OCTETS = 100 * 100 * 4
HOP = GRID_OCTETS * 8 / 340_000 * 1_000  # milliseconds that a grid is on the channel
TENTH = (GRID_OCTETS / 10 + 200) * 8 / 340_000 * 1_000  # with what events say beside their grids, and heads
OVERHEAD = 1.01  # heads, acknowledgements and backoff, on a grid
HANDLED = {node: GRID_OCTETS * 200 / clock / 1e6 for node, clock in CLOCKS.items()}  # ms
RUNOFF = {A: 18.0, B: 18 / 1.7}  # ms of the model: 100 x 100 cells, 12 steps, 150 ns at 1 GHz


def latencies(**parameters: object) -> dict[str, float]:
    found = Testbed(topology_time=60.0, **parameters).run(1).metrics  # type: ignore[arg-type]
    figures: dict[str, float] = {}
    for topology in TOPOLOGIES:
        value = found[f"latency_ms_{topology}"]
        assert value is not None, topology
        figures[topology] = value
    assert found["arrived"] == 1
    return figures


def between(least: float) -> object:
    """A little more than what was computed by hand."""
    return pytest.approx(least * (1 + OVERHEAD) / 2, rel=(OVERHEAD - 1) / 2)


def test_full_data_takes_a_hop_or_two_where_the_home_broker_follows() -> None:
    found = latencies(mode="opportunistic", interval=6.0)
    assert found["a_b_c"] == between(2 * HOP + HANDLED[B] + HANDLED[C] + RUNOFF[B])
    for topology in ("a_b_c_a", "a_c_b", "b_a_c"):
        assert found[topology] == between(HOP + HANDLED[C] + RUNOFF[A])


def test_static_paths_take_three_hops_of_one_channel() -> None:
    found = latencies(mode="static", interval=15.0)
    assert found["a_b_c"] == between(2 * HOP + HANDLED[B] + HANDLED[C] + RUNOFF[B])
    assert found["a_c_b"] == between(3 * HOP + 2 * HANDLED[C] + HANDLED[B] + RUNOFF[B])
    assert found["b_a_c"] == between(3 * HOP + HANDLED[B] + HANDLED[A] + HANDLED[C] + RUNOFF[B])


def test_a_tenth_is_made_where_the_modulator_runs_and_a_slower_machine_in_between_shows() -> None:
    static = latencies(mode="static", part="tenth", interval=15.0)
    assert static["b_a_c"] == between(
        HOP + 2 * TENTH + HANDLED[B] + 0.1 * (HANDLED[A] + HANDLED[C]) + RUNOFF[B]
    )
    # From A over C to B: all of it, twice; the tenth comes back. The first event meets the change before.
    tables = Testbed(topology_time=60.0, mode="static", part="tenth", interval=15.0).run(1).tables
    at = {each.sequence: each.t for each in records(tables, Delivered)}
    found = [
        at[each.sequence] - each.t
        for each in records(tables, Published)
        if 120 * SECOND <= each.t < 180 * SECOND
    ]
    expected = 2 * HOP + TENTH + HANDLED[B] + 1.1 * HANDLED[C] + RUNOFF[B]
    assert statistics.median(found) / 1_000 == between(expected)


def test_the_water_goes_on_where_the_modulator_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rain that was sent is in the state of the last one that worked: it moved twice and lost nothing."""
    made: list[Runoff] = []
    begin = Runoff.__init__

    def seen(self: Runoff, parameters: RunoffParameters) -> None:
        begin(self, parameters)
        made.append(self)

    monkeypatch.setattr(Runoff, "__init__", seen)
    simulation = Testbed(topology_time=60.0, interval=6.0).simulation(1)
    trace = simulation.run().trace
    moved = [record for record in trace.of(HandedOff) if record.outcome == "moved"]
    fullest = max(made, key=lambda model: model.rained)
    assert moved and fullest is not made[0]
    assert fullest.depth.sum() + fullest.infiltrated + fullest.left == fullest.rained > 0
    assert len(trace.of(Delivered)) == len(trace.of(Published)) == 40


def test_the_four_topologies_in_their_order() -> None:
    pairs = {(0, 1), (0, 2), (1, 2)}
    up, seen = set(pairs), []
    for at in (0.0, 100.0, 200.0, 300.0):
        for change in links(100.0):
            if change.at == at:
                (up.discard if change.kind == "cut" else up.add)(change.link)
        seen.append(sorted(up))
    assert seen == [[(0, 1), (1, 2)], [(0, 1), (0, 2), (1, 2)], [(0, 2), (1, 2)], [(0, 1), (0, 2)]]


@pytest.mark.parametrize("restart_after", [0.0, 20.0])
def test_a_crash_of_a_home_broker_costs_its_clients_time_and_next_to_no_events(restart_after: float) -> None:
    """What was inside the broker is lost: at one event in two seconds from each producer, at most a few."""
    found = HomeCrash(crashes=1, restart_after=restart_after, rate=0.5, underlay="ideal").run(1).metrics
    assert found["lost_seconds"] is not None and found["lost_seconds"] <= 0.5
    assert found["doubled"] == 0
    # Else nobody had the crashed broker for a home, and the above proves nothing.
    assert found["latency_s_max"] is not None and 5 < found["latency_s_max"] < 30
