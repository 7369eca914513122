"""Whether a wall stands between two nodes at rest, asked of the code that answers for nodes that move."""

import numpy as np

from roamcast.world.trajectory import Pieces
from roamcast.world.walls import Segments, in_sight


def blocked(standing: Segments, x1: float, y1: float, x2: float, y2: float) -> bool:
    begin, end = np.array([0]), np.array([10])
    one, other = (
        Pieces(np.array([node]), begin, end, np.array([x]), np.array([y]), np.zeros(1), np.zeros(1))
        for node, x, y in ((0, x1, y1), (1, x2, y2))
    )
    seen, _, _ = in_sight(one, other, begin, end, standing)
    return len(seen) == 0
