"""The table `motion` says exactly where every node was, in simulation and in what an ether would write."""

from itertools import pairwise
from typing import Any

from roamcast.runtime.sim import Simulation
from roamcast.scenario import scenario_from
from roamcast.scenario.world import motion_of
from roamcast.trace import Moved

WALK: dict[str, Any] = {
    "scenario": {"name": "walk", "duration": 60.0, "seed": 3},
    "world": {
        "nodes": 6,
        "area": [300.0, 300.0],
        "range": 100.0,
        "mobility": {"model": "random_waypoint", "speed": [1.0, 9.0], "pause": [0.0, 4.0]},
    },
    "strategy": {"name": "flooding"},
}
SECOND = 1_000_000


def where(knots: list[Moved], t: int) -> tuple[float, float]:
    for first, second in pairwise(knots):
        if first.t <= t <= second.t:
            share = (t - first.t) / (second.t - first.t)
            return first.x + (second.x - first.x) * share, first.y + (second.y - first.y) * share
    raise AssertionError(f"absent at {t}")


def test_between_its_knots_a_node_is_where_its_path_says() -> None:
    scenario = scenario_from(WALK)
    motion = motion_of(scenario)
    assert motion is not None
    recorded = Simulation(scenario).run().trace.of(Moved)
    assert recorded == sorted(recorded, key=lambda knot: (knot.t, knot.node))
    for node, path in enumerate(motion.trajectories):
        knots = [knot for knot in recorded if knot.node == node]
        assert [knot.t for knot in knots[:-1]] == [t for t in path.times.tolist() if t < 60 * SECOND][
            : len(knots) - 1
        ]
        assert knots[-1].t >= 60 * SECOND, "the last piece is whole"
        for t in range(0, 60 * SECOND + 1, 2 * SECOND + 345_678):
            expected = path.position(t)
            assert expected is not None
            found = where(knots, t)
            assert abs(found[0] - expected[0]) < 2e-6 and abs(found[1] - expected[1]) < 2e-6


def test_links_without_motion_leave_the_table_empty(tmp_path: Any) -> None:
    (tmp_path / "plan.csv").write_text("0.0,0,1,up\n1.0,0,1,down\n")
    tables = WALK | {"world": {"nodes": 2, "contacts": "plan.csv"}}
    assert Simulation(scenario_from(tables, base=tmp_path)).run().trace.of(Moved) == []
