"""The acyclic overlay's states, a million for each scene; figure 3.13 with its five nodes."""

import pytest
from tests.strategy.tree.explore import Bounds, explore
from tests.strategy.tree.scenes import ORIGINAL, SCENES, figure_3_13

STATES = 1_000_000


@pytest.mark.parametrize(
    "bounds", [Bounds(0, 2, STATES), Bounds(1, 1, STATES), Bounds(2, 4, STATES)], ids=str
)
@pytest.mark.parametrize("name", [name for name in SCENES if "original" not in name])
def test_no_state_of_the_evolved_protocol_has_a_fault(name: str, bounds: Bounds) -> None:
    found = explore(SCENES[name], bounds)
    assert not (found.cycles or found.against or found.leaderless), found


def test_figure_3_13_the_original_closes_a_cycle() -> None:
    found = explore(figure_3_13(ORIGINAL), Bounds(1, 1, STATES), stops=lambda found: found.cycles)
    assert found.cycles == 1
