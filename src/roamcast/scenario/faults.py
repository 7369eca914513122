"""The faults of a scenario as a list: which node crashes or restarts, which link is cut or healed, when."""

from collections.abc import Iterable
from typing import NamedTuple

from roamcast.errors import ScenarioError
from roamcast.scenario.model import FaultEntry, FaultKind, Scenario
from roamcast.units import Micros, NodeId, micros


class FaultPlan(NamedTuple):
    """One change. `peer` is None for a node's fault; a link has node < peer, and both directions change."""

    time: Micros
    kind: FaultKind
    node: NodeId
    peer: NodeId | None = None


def faults(scenario: Scenario) -> list[FaultPlan]:
    """The changes in the order in which they happen; those of one instant in the order of the file.

    Only real changes are listed: cutting a link that is cut already changes nothing. A fault of which no
    part changes anything (a restart of a node that runs) is an error of the file.
    """
    entries = sorted(enumerate(scenario.fault), key=lambda numbered: numbered[1].at)
    down: set[NodeId] = set()
    cut: set[tuple[NodeId, NodeId]] = set()
    plans: list[FaultPlan] = []
    for index, entry in entries:
        at = f"fault[{index}]"
        time = micros(entry.at)
        if entry.kind in (FaultKind.CRASH, FaultKind.RESTART):
            plans.extend(FaultPlan(time, entry.kind, node) for node in _nodes_changed(entry, down, at))
        else:
            links = _links_changed(entry, cut, scenario.nodes, at)
            plans.extend(FaultPlan(time, entry.kind, a, b) for a, b in links)
    return plans


def _nodes_changed(entry: FaultEntry, down: set[NodeId], at: str) -> list[NodeId]:
    crash = entry.kind is FaultKind.CRASH
    for node in entry.nodes:
        if (node in down) == crash:
            state = "down already" if crash else "not down"
            raise ScenarioError(f"{at}.nodes", f"names node {node}, which is {state} at {entry.at} s")
        down.symmetric_difference_update([node])
    return list(entry.nodes)


def _links_changed(
    entry: FaultEntry, cut: set[tuple[NodeId, NodeId]], nodes: int, at: str
) -> list[tuple[NodeId, NodeId]]:
    wanted = (
        {(min(a, b), max(a, b)) for a, b in entry.links} if entry.links else set(_around(entry.nodes, nodes))
    )
    changed = wanted - cut if entry.kind is FaultKind.CUT else wanted & cut
    if not changed:
        state = "cut already" if entry.kind is FaultKind.CUT else "not cut"
        raise ScenarioError(at, f"changes nothing: every link it names is {state} at {entry.at} s")
    cut.symmetric_difference_update(changed)
    return sorted(changed)


def _around(group: Iterable[NodeId], nodes: int) -> Iterable[tuple[NodeId, NodeId]]:
    """The links between a group and the rest; those inside the group stay as they are."""
    inside = set(group)
    return ((min(a, b), max(a, b)) for a in sorted(inside) for b in range(nodes) if b not in inside)
