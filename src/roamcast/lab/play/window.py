"""Which part of a run is shown, and how its times and nodes are numbered."""

import math

import numpy as np
import numpy.typing as npt

from roamcast.units import Micros, NodeId

Numbers = npt.NDArray[np.int64]
TICKS_MAX = 2**32 - 1


class Window:
    """The part of a run that is shown: its times as ticks, its nodes as places in a list."""

    def __init__(self, begin: Micros, end: Micros, nodes: Numbers) -> None:
        self.begin, self.end = begin, end
        self.tick: Micros = max(1, math.ceil((end - begin) / TICKS_MAX))
        self.nodes = nodes  # their numbers, increasing

    def ticks(self, times: npt.ArrayLike) -> Numbers:
        """Times outside the window become its ends."""
        moved = np.clip(np.asarray(times, dtype=np.int64) - self.begin, 0, self.end - self.begin)
        return np.asarray(moved // self.tick, dtype=np.int64)

    def contains(self, times: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        found = np.asarray(times, dtype=np.int64)
        return (found >= self.begin) & (found <= self.end)

    def places(self, nodes: npt.ArrayLike) -> Numbers:
        """Where nodes are in the list."""
        return np.searchsorted(self.nodes, np.asarray(nodes, dtype=np.int64)).astype(np.int64)

    def place(self, node: NodeId) -> int:
        return int(np.searchsorted(self.nodes, node))
