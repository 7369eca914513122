"""What the brokers of flood watch must know: the runoff model over grids of 64-bit floats.

A node loads it by `modules = ["flood_functions"]` in its file or scenario; it needs `roamcast[lab]`. A grid
of 100 x 100 doubles has 80,000 octets, more than one event carries to a modulator. So it travels deflated
(RFC 1951), and no digit is lost.
"""

import zlib

import numpy as np
import numpy.typing as npt

from roamcast.lab.studies.flood.runoff import Runoff, RunoffParameters
from roamcast.modulator import MODULATORS

NAME = "runoff_of_doubles"


def deflated(grid: npt.NDArray[np.floating]) -> bytes:
    return zlib.compress(grid.astype("<f8").tobytes())


def inflated(payload: bytes, cells: int) -> npt.NDArray[np.float64] | None:
    """None if it is no grid of so many cells. Never more memory than such a grid takes."""
    reader = zlib.decompressobj()
    try:
        octets = reader.decompress(payload, 8 * cells + 1)
    except zlib.error:
        return None
    is_grid = len(octets) == 8 * cells and reader.eof and not reader.unused_data
    return np.frombuffer(octets, "<f8") if is_grid else None


class DoubleRunoff(Runoff):
    def unpacked(self, payload: bytes) -> npt.NDArray[np.floating] | None:
        grid = inflated(payload, self.ground.size)
        return None if grid is None else grid.reshape(self.ground.shape)

    def packed(self, millimetres: npt.NDArray[np.float64]) -> bytes:
        return deflated(millimetres)


if NAME not in MODULATORS.names():
    MODULATORS.add(NAME, RunoffParameters, lambda _, parameters: DoubleRunoff(parameters))
