"""Faults written out, against lists counted by hand."""

from typing import Any

from roamcast.scenario import scenario_from
from roamcast.scenario.model import FaultKind
from roamcast.scenario.workload import FaultPlan, faults


def planned(*entries: dict[str, Any]) -> list[FaultPlan]:
    return faults(
        scenario_from(
            {
                "scenario": {"name": "faults", "duration": 20.0},
                "world": {"nodes": 4, "area": [9.0, 9.0], "range": 5.0, "mobility": {"model": "static"}},
                "strategy": {"name": "flooding"},
                "fault": list(entries),
            }
        )
    )


def test_faults_happen_in_order_of_time_and_then_of_the_file() -> None:
    crash = {"at": 3.0, "kind": "crash", "nodes": [2, 0]}
    restart = {"at": 5.5, "kind": "restart", "nodes": [0]}
    at_once = {"at": 3.0, "kind": "restart", "nodes": [2]}
    assert planned(restart, crash, at_once) == [
        FaultPlan(3_000_000, FaultKind.CRASH, 2),
        FaultPlan(3_000_000, FaultKind.CRASH, 0),
        FaultPlan(3_000_000, FaultKind.RESTART, 2),
        FaultPlan(5_500_000, FaultKind.RESTART, 0),
    ]


def test_cutting_nodes_off_leaves_the_links_among_them() -> None:
    assert planned({"at": 1.0, "kind": "cut", "nodes": [3, 1]}) == [
        FaultPlan(1_000_000, FaultKind.CUT, 0, 1),
        FaultPlan(1_000_000, FaultKind.CUT, 0, 3),
        FaultPlan(1_000_000, FaultKind.CUT, 1, 2),
        FaultPlan(1_000_000, FaultKind.CUT, 2, 3),
    ]


def test_only_links_that_change_are_listed() -> None:
    plans = planned(
        {"at": 1.0, "kind": "cut", "links": [[2, 1]]},
        {"at": 2.0, "kind": "cut", "nodes": [1]},
        {"at": 3.0, "kind": "heal", "nodes": [2]},
        {"at": 4.0, "kind": "cut", "links": [[1, 2], [2, 1]]},
    )
    assert [(plan.kind.value, plan.node, plan.peer) for plan in plans] == [
        ("cut", 1, 2),
        ("cut", 0, 1),
        ("cut", 1, 3),
        ("heal", 1, 2),
        ("cut", 1, 2),
    ]
