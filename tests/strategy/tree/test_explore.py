"""The model checker (`explore.py`) finds the faults of section 3.4 in the original protocol, and none in the
evolved one: in some ten thousand states here, in millions in `tests/torture`."""

from unittest.mock import patch

import pytest
from tests.strategy.tree.explore import Bounds, Found, Scene, explore
from tests.strategy.tree.mutants import without_withdrawal
from tests.strategy.tree.scenes import (
    EVOLVED,
    MEMBERS,
    ORIGINAL,
    OURS,
    figure_3_15,
    figure_3_16,
    join_over_routers,
    merge,
    small_figure_3_13,
)

from roamcast.strategy.tree.overlay.messages import Label


def faults(found: Found) -> int:
    return found.cycles + found.against + found.leaderless


def test_figure_3_13_the_original_closes_a_cycle() -> None:
    found = explore(small_figure_3_13(ORIGINAL), Bounds(0, 1), stops=lambda found: found.cycles)
    assert found.cycles == 1


def test_figure_3_15_the_original_leaves_two_nodes_each_below_the_other() -> None:
    """Tables 3.2 and 3.3: they answer each other, and no leader is ever started."""
    found = explore(figure_3_15(ORIGINAL), Bounds(losses=0, timers=2))
    assert found.leaderless and found.complete


def test_figure_3_16_a_lost_activation_leaves_the_originals_partition_without_a_leader() -> None:
    """Tables 3.4 and 3.5."""
    found = explore(figure_3_16(ORIGINAL), Bounds(losses=1, timers=1))
    assert found.leaderless and found.complete
    assert explore(figure_3_16(ORIGINAL), Bounds(losses=0, timers=1)).leaderless == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("scene", "bounds", "is_complete"),
    [
        (figure_3_15(EVOLVED), Bounds(losses=1, timers=3), True),
        (figure_3_16(EVOLVED), Bounds(losses=1, timers=1), True),
        (merge(EVOLVED), Bounds(losses=0, timers=3), True),
        (merge(OURS), Bounds(losses=1, timers=2), True),
        (small_figure_3_13(EVOLVED), Bounds(losses=0, timers=1, states=20_000), False),
        (join_over_routers(MEMBERS), Bounds(losses=0, timers=1, states=20_000), False),
    ],
    ids=["3.15", "3.16", "merge", "merge with our additions", "3.13", "join over routers"],
)
def test_no_state_of_the_evolved_protocol_has_a_fault(
    scene: Scene, bounds: Bounds, is_complete: bool
) -> None:
    found = explore(scene, bounds)
    assert faults(found) == 0, found
    assert found.complete is is_complete


@pytest.mark.long
def test_the_checker_finds_what_at_most_does_in_place_of_strictly_less() -> None:
    """Section 4.3: the rule of the original in the evolved protocol. In these scenes it does harm only where
    a node that starts over keeps its offers; three trees in range of each other would be too many states."""
    better = Label.better_than
    at_most = patch.object(Label, "better_than", lambda self, other: better(self, other) or self == other)
    with at_most, without_withdrawal():
        assert faults(explore(figure_3_15(EVOLVED), Bounds(0, 3), stops=faults))
