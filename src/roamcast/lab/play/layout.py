"""Places for nodes that have none: a layout of their links that is the same each time.

Nodes that were linked for long are drawn near each other (Fruchterman and Reingold, "Graph drawing by
force-directed placement", 1991), from a circle in the order of their numbers and without chance.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.play.changes import link_intervals
from roamcast.lab.play.packing import Window

SIDE = 1000.0  # of the drawing, in the units of the map
STEPS = 120
WORK_MAX = 60_000_000  # pairs times steps; chosen by us: about a second

Metres = npt.NDArray[np.float64]


def laid_out(tables: Mapping[str, pa.Table], window: Window) -> tuple[Metres, Metres]:
    """A place for each node of the window."""
    return arranged(_weights(tables, window, len(window.nodes)))


def arranged(weights: Metres, start: Metres | None = None) -> tuple[Metres, Metres]:
    """A place for each of some nodes; `weights` between 0 and 1 draw two of them together. `start`: where
    they are now, around (0, 0), if not on a circle."""
    count = len(weights)
    if count < 2:
        return np.full(count, SIDE / 2), np.full(count, SIDE / 2)
    angle = 2 * np.pi * np.arange(count) / count
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1) if start is None else start
    steps = max(8, min(STEPS, WORK_MAX // count**2))
    ideal = 1.5 / np.sqrt(count)
    for step in range(steps):
        apart = place[:, None, :] - place[None, :, :]
        distance = np.sqrt((apart**2).sum(axis=2)) + 1e-9
        force = ideal**2 / distance**2 - weights * distance / ideal
        np.fill_diagonal(force, 0.0)
        move = (apart * force[:, :, None]).sum(axis=1) - 0.05 * place
        length = np.sqrt((move**2).sum(axis=1, keepdims=True)) + 1e-9
        place = place + move / length * np.minimum(length, 0.15 * (1 - step / steps) + 0.002)
    place -= place.min(axis=0)
    place *= SIDE / max(float(place.max()), 1e-9)
    return np.round(place[:, 0], 1), np.round(place[:, 1], 1)


def _weights(tables: Mapping[str, pa.Table], window: Window, count: int) -> Metres:
    """For each two nodes, the share of the time in which they were linked, radio or overlay."""
    weights: Any = np.zeros((count, count))
    for a, b, begin, end in link_intervals(tables, window):
        np.add.at(weights, (a, b), (end - begin) / max(window.end - window.begin, 1))
        np.add.at(weights, (b, a), (end - begin) / max(window.end - window.begin, 1))
    near: Metres = np.minimum(np.sqrt(weights), 1.0)
    return near
