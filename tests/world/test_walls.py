from random import Random

import numpy as np
import pytest
from tests.world.sight import blocked

from roamcast.world.walls import Wall, segments

HOUSE = Wall(10.0, 10.0, 40.0, 30.0)


def test_no_walls_are_no_rows() -> None:
    assert segments([]).shape == (0, 4)
    assert not blocked(segments([]), 0.0, 0.0, 1.0, 1.0)


def test_a_thin_wall_is_one_segment_and_a_building_two() -> None:
    assert segments([Wall(5.0, 0.0, 5.0, 9.0)]).tolist() == [[5.0, 0.0, 5.0, 9.0]]
    assert len(segments([HOUSE, HOUSE])) == 4


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ((0.0, 20.0, 50.0, 20.0), True),  # through the middle
        ((12.0, 0.0, 12.0, 50.0), True),  # through the left part
        ((0.0, 22.0, 22.0, 0.0), True),  # cuts the corner at (10, 10)
        ((0.0, 20.0, 5.0, 20.0), False),  # ends before it
        ((0.0, 5.0, 50.0, 5.0), False),  # passes beside it
        ((0.0, 18.0, 18.0, 0.0), False),  # misses the corner
        ((5.0, 5.0, 5.0, 45.0), False),
        ((0.0, 0.0, 8.0, 8.0), False),  # on the line of a diagonal, but before it
        ((0.0, 0.0, 60.0, 40.0), True),
    ],
)
def test_a_building_hides_what_is_behind_it(line: tuple[float, float, float, float], hidden: bool) -> None:
    x1, y1, x2, y2 = line
    assert blocked(segments([HOUSE]), x1, y1, x2, y2) is hidden
    assert blocked(segments([HOUSE]), x2, y2, x1, y1) is hidden


def test_two_diagonals_hide_as_much_as_four_sides() -> None:
    left, bottom, right, top = HOUSE
    sides = np.array(
        [
            (left, bottom, right, bottom),
            (right, bottom, right, top),
            (right, top, left, top),
            (left, top, left, bottom),
        ]
    )
    random = Random(1)
    outside: list[tuple[float, float]] = []
    while len(outside) < 4000:
        x, y = 50 * random.random(), 40 * random.random()
        if not (left <= x <= right and bottom <= y <= top):
            outside.append((x, y))
    answers = [
        (blocked(segments([HOUSE]), *a, *b), blocked(sides, *a, *b))
        for a, b in zip(outside[::2], outside[1::2], strict=True)
    ]
    assert all(diagonals == whole for diagonals, whole in answers)
    assert 200 < sum(whole for _, whole in answers) < 1800
