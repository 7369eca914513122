"""What the model checker plays (`explore.py`): the faults of section 3.4, a merge, and a join over routers.

Many states at once, with a line for each scene:

    python -m tests.strategy.tree.scenes LOSSES TIMERS [STATES_MAX]
"""

import sys
import time

from tests.strategy.tree.explore import Bounds, InFlight, Scene, explore

from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import NodeId

ORIGINAL = TreeOptions(
    protocol="original",
    preset="driving",
    member_forwarding=True,
    hello_workaround=False,
    ttl_increment=10,
    jitter=0.0,
)
EVOLVED = TreeOptions(preset="driving", additions=False, quiet_probes=False, ttl_increment=10, jitter=0.0)
OURS = TreeOptions(preset="driving", ttl_increment=10, jitter=0.0)
MEMBERS = TreeOptions(
    preset="driving", membership="users", additions=False, quiet_probes=False, ttl_increment=10, jitter=0.0
)


def figure_3_13(options: TreeOptions) -> Scene:
    """Node 2 lost its leader 5; 3 and 4 are below it, 1 below 3. Node 1 is in range of 5, and 4 of 1."""
    parents = {5: None, 2: 5, 3: 2, 4: 2, 1: 3}
    return Scene(options, parents, _links((2, 3), (2, 4), (1, 3), (1, 4), (1, 5)), _cut(2, 5))


def small_figure_3_13(options: TreeOptions) -> Scene:
    """The same without node 4: 2 and 1 are in range of each other."""
    return Scene(options, {5: None, 2: 5, 3: 2, 1: 3}, _links((2, 3), (1, 2), (1, 3), (1, 5)), _cut(2, 5))


def figure_3_15(options: TreeOptions) -> Scene:
    """A leader, gone, with two direct descendants in range of each other (tables 3.2, 3.3)."""
    first = ((2, ("down", 5)), (4, ("down", 5)))
    return Scene(options, {5: None, 2: 5, 4: 5}, _links((2, 4)), first, crashed=5)


def figure_3_16(options: TreeOptions) -> Scene:
    """Node 2, with 3 below it, can reach the tree by its leader 0 only (tables 3.4, 3.5)."""
    return Scene(options, {0: None, 6: 0, 2: 6, 3: 2}, _links((0, 6), (0, 2), (2, 3)), _cut(2, 6))


def merge(options: TreeOptions) -> Scene:
    """Section 4.4: two trees of two nodes come into range at their leaves."""
    first = ((1, ("up", 3)), (3, ("up", 1)))
    return Scene(options, {0: None, 1: 0, 2: None, 3: 2}, _links((0, 1), (2, 3), (1, 3)), first)


def join_over_routers(options: TreeOptions) -> Scene:
    """0 leads; 3 becomes a member; 1 and 2 between them are none, and there are two ways."""
    ways = _links((0, 1), (0, 2), (1, 2), (1, 3), (2, 3))
    return Scene(options, {0: None}, ways, ((3, ("join",)),), members=frozenset({0}), apart=(1, 2, 3))


def _links(*links: tuple[NodeId, NodeId]) -> frozenset[tuple[NodeId, NodeId]]:
    return frozenset(links)


def _cut(a: NodeId, b: NodeId) -> tuple[InFlight, ...]:
    return (a, ("down", b)), (b, ("down", a))


SCENES = {
    "figure 3.13, original": figure_3_13(ORIGINAL),
    "figure 3.15, original": figure_3_15(ORIGINAL),
    "figure 3.16, original": figure_3_16(ORIGINAL),
    **{
        f"{scene.__name__}, {name}": scene(options)
        for scene in (figure_3_13, small_figure_3_13, figure_3_15, figure_3_16, merge)
        for name, options in (("evolved", EVOLVED), ("with our additions", OURS))
    },
    "join over routers, evolved": join_over_routers(MEMBERS),
}


def main() -> None:
    losses, timers, *states = map(int, sys.argv[1:])
    for name, scene in SCENES.items():
        began = time.process_time()
        found = explore(scene, Bounds(losses, timers, *states))
        sys.stdout.write(f"{name}: {found}; {time.process_time() - began:.0f} processor seconds\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
