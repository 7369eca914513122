"""Motion and contact plans of a scenario, against links worked out by hand."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from roamcast.errors import FileError, ScenarioError
from roamcast.scenario import Scenario, load_scenario, scenario_from
from roamcast.scenario.world import motion_of, plan_of, ranges_of

EXAMPLES = Path(__file__).parents[2] / "examples"

NS2 = """
$node_(0) set X_ 0.0
$node_(0) set Y_ 0.0
$node_(1) set X_ 200.0
$node_(1) set Y_ 0.0
$node_(2) set X_ 900.0
$node_(2) set Y_ 900.0
$ns_ at 1.0 "$node_(1) setdest 0.0 0.0 10.0"
"""


def scenario(base: Path = Path(), duration: float = 20.0, **world: Any) -> Scenario:
    return scenario_from(
        {
            "scenario": {"name": "world", "duration": duration},
            "world": world,
            "strategy": {"name": "flooding"},
        },
        base=base,
    )


def rows(one: Scenario) -> list[tuple[int, int, int, int]]:
    plan = plan_of(one)
    columns = (plan.sender, plan.receiver, plan.start, plan.end)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_line_has_links_between_neighbours_only() -> None:
    assert rows(load_scenario(EXAMPLES / "line.toml")) == [
        (0, 1, 0, 10_000_000),
        (1, 2, 0, 10_000_000),
        (2, 3, 0, 10_000_000),
        (3, 4, 0, 10_000_000),
    ]


def test_the_partitions_do_not_touch() -> None:
    links = [row[:2] for row in rows(load_scenario(EXAMPLES / "partitions.toml"))]
    assert links == [(0, 1), (1, 2), (2, 3), (4, 5)]


def test_the_seed_moves_the_nodes_and_other_keys_do_not() -> None:
    def places(*overrides: str, seed: int = 1) -> list[tuple[float, float] | None]:
        motion = motion_of(load_scenario(EXAMPLES / "flooding-csma.toml", seed=seed, overrides=overrides))
        assert motion is not None
        return [path.position(50_000_000) for path in motion.trajectories]

    assert places() == places("roles.publishers=20", "workload.rate=1", "world.range=[200, 300]")
    assert places() != places(seed=2)


def test_own_ranges_are_drawn_between_the_bounds_and_make_one_way_links() -> None:
    positions = [[0.0, 0.0], [100.0, 0.0]]
    world: dict[str, Any] = {
        "nodes": 2,
        "area": [100.0, 100.0],
        "mobility": {"model": "static", "positions": positions},
    }
    one = scenario(range=[50.0, 150.0], **world)
    ranges = ranges_of(one)
    assert isinstance(ranges, list) and len(ranges) == 2
    assert all(50 <= reach <= 150 for reach in ranges)
    expected = [(a, 1 - a, 0, 20_000_000) for a in (0, 1) if ranges[a] >= 100]
    assert rows(one) == expected
    assert plan_of(one).directed
    assert ranges_of(scenario(range=120.0, **world)) == 120.0


def test_walls_of_the_model_block_links() -> None:
    world: dict[str, Any] = {"nodes": 30, "area": [200.0, 200.0], "range": 150.0}
    walled = scenario(mobility={"model": "city_block"}, **world)
    opened = scenario(mobility={"model": "city_block", "buildings": False}, **world)
    linked = [sum(end - start for _, _, start, end in rows(one)) for one in (walled, opened)]
    assert 0 < linked[0] < linked[1]


# Recorded traces


def test_a_recorded_trace_brings_its_nodes(tmp_path: Path) -> None:
    (tmp_path / "walk.ns2").write_text(NS2)
    one = scenario(tmp_path, range=100.0, mobility={"model": "trace", "file": "walk.ns2"})
    assert one.nodes == 3 and one.to_dict()["world"]["nodes"] == 3
    # Node 1 comes from 200 m at 10 m/s, starting at 1 s: it is 100 m away at 11 s, and arrives at 21 s.
    assert rows(one) == [(0, 1, 11_000_000, 20_000_000)]


def test_the_first_nodes_of_a_recording_may_be_taken(tmp_path: Path) -> None:
    (tmp_path / "walk.ns2").write_text(NS2)
    trace = {"model": "trace", "file": "walk.ns2"}
    one = scenario(tmp_path, range=100.0, nodes=1, mobility=trace)
    motion = motion_of(one)
    assert motion is not None and motion.nodes == 1 and rows(one) == []
    with pytest.raises(
        ScenarioError, match=r"world.nodes: is 4; allowed: at most the 3 nodes of the recording"
    ):
        scenario(tmp_path, range=100.0, nodes=4, mobility=trace)


def test_a_recording_is_moved_to_begin_at_zero(tmp_path: Path) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text("node,time,x,y\n0,1000,0,0\n0,1020,0,0\n1,1005,0,50\n1,1015,0,50\n")
    one = scenario(tmp_path, range=100.0, mobility={"model": "trace", "file": "fixes.csv", "format": "csv"})
    assert rows(one) == [(0, 1, 5_000_000, 15_000_000)]
    path.write_text("node,time,x,y\n0,1000,0,0\n0,1020,0,0\n1,1007,0,50\n1,1015,0,50\n1,1016,0,50\n")
    assert rows(one) == [(0, 1, 7_000_000, 16_000_000)]  # a file that changed is read again


def test_a_recording_that_cannot_be_read_is_told_when_the_scenario_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"walk\.ns2: does not exist"):
        scenario(tmp_path, range=100.0, nodes=2, mobility={"model": "trace", "file": "walk.ns2"})
    (tmp_path / "walk.ns2").write_text(NS2 + "nonsense\n")
    with pytest.raises(FileError, match=r"walk\.ns2:9: "):
        scenario(tmp_path, range=100.0, mobility={"model": "trace", "file": "walk.ns2"})


# Contact plans


def test_contacts_are_played_as_the_file_says_and_end_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_text(
        "time,i,j,state\n2,1,0,up\n5.5,0,1,down\n19,2,1,up\n25,0,2,up\n30,0,2,down\n"
    )
    one = scenario(tmp_path, contacts="plan.csv")
    assert one.nodes == 3 and motion_of(one) is None
    assert rows(one) == [(0, 1, 2_000_000, 5_500_000), (1, 2, 19_000_000, 20_000_000)]


def test_a_plan_may_be_of_fewer_nodes_than_the_world_has(tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_text("time,from,to,state\n0,1,0,up\n5,1,0,down\n")
    one = scenario(tmp_path, contacts="plan.csv", nodes=7)
    assert (one.nodes, plan_of(one).nodes, plan_of(one).directed) == (7, 7, True)
    assert rows(one) == [(1, 0, 0, 5_000_000)]
    with pytest.raises(FileError, match=r"plan.csv"):
        scenario(tmp_path, contacts="plan.csv", nodes=1)


def test_recorded_contacts_begin_at_zero(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(
        "1000 CONN 0 1 up\n1003 CONN 1 2 up\n1004 CONN 0 1 down\n1009 CONN 1 2 down\n"
    )
    assert rows(scenario(tmp_path, contacts="one.txt")) == [
        (0, 1, 0, 4_000_000),
        (1, 2, 3_000_000, 9_000_000),
    ]


def test_a_plan_that_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"plan\.csv: does not exist"):
        scenario(tmp_path, contacts="plan.csv")
    (tmp_path / "plan.csv").write_text("time,i,j,state\n2,1,0,sideways\n")
    with pytest.raises(FileError, match=r"plan\.csv:2: "):
        scenario(tmp_path, contacts="plan.csv")


def test_a_graph_walk_says_itself_who_hears_whom() -> None:
    walk: dict[str, Any] = {
        "nodes": 12,
        "area": [900.0, 900.0],
        "mobility": {"model": "graph_walk", "walkers": 2, "stay": 3.0},
    }
    found = rows(scenario(**walk))
    network = [row for row in found if row[1] < 10]
    assert len(network) == 1 + 2 * 8  # two links for every node after the second
    assert all((start, end) == (0, 20_000_000) for _, _, start, end in network)
    for host in (10, 11):  # at one access point after the other, and for a second at none
        stays = sorted((start, end) for _, receiver, start, end in found if receiver == host)
        assert len(stays) > 2
        assert all(after - end == 1_000_000 for (_, end), (after, _) in pairwise(stays))
    with pytest.raises(ScenarioError, match=r"world.range: stands beside a model .*leave it out"):
        scenario(range=100.0, **walk)
