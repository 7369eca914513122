"""Rain and terrain to water depth: the consumer's function of flood watch, as a modulator.

A simple overland-flow model on the terrain's grid, in whole micrometres of water, so that no drop is lost or
made by rounding and every machine computes the same:

1. Rain falls: the event's grid is added to the depth.
2. The soil takes up to `infiltration` of it.
3. `STEPS` times, water flows: from each cell to the lowest of its eight neighbours (D8; O'Callaghan and Mark,
   1984), judged by the water's surface, ground plus depth. Half of the difference in level flows, at most
   what is there: that evens the two out, and never turns the slope around (as diffusive wave models do).
   Cells at the border also give half of their water to the world outside.

No speed of flow, no roughness, no channels: it shows where water gathers, and it shows modulators. It is no
forecast of anything. State is the depth of every cell; with it a modulator goes on in another broker.
"""

import struct
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from roamcast.errors import InputError, WireError
from roamcast.event import Event
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.modulator.built_in import BoundingBoxParameters
from roamcast.units import Micros

Grid = npt.NDArray[np.int64]

TERRAIN = Path(__file__).parent / "data" / "terrain.asc"
STEPS = 12  # per event
CELL_STEP_NANOSECONDS = 150  # of processor time for one cell and step on a 1 GHz machine: the model's cost
MICROMETRES = 1_000  # in a millimetre
HEAD = struct.Struct("<QQQ")  # rained, infiltrated and run off so far, micrometres summed over the cells


class RunoffParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    infiltration: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 300  # micrometres per event
    box: BoundingBoxParameters | None = None  # None: the whole grid


class Runoff(Modulator):
    def __init__(self, parameters: RunoffParameters, ground: Grid | None = None) -> None:
        self.ground = read_terrain(TERRAIN) if ground is None else ground
        self.depth: Grid = np.zeros_like(self.ground)
        self.rained = self.infiltrated = self.left = 0
        self._parameters = parameters

    def process(self, event: Event) -> Content | None:
        """Rain in millimetres comes as a grid, depth in millimetres goes out as one."""
        rows, columns = self.ground.shape
        if event.attributes.get("rows") != rows or event.attributes.get("columns") != columns:
            return None
        rain = self.unpacked(event.payload)
        if rain is None or not np.isfinite(rain).all() or rain.min() < 0 or rain.max() > 1_000:
            return None  # rubbish from a sensor must not flood the map
        self.step(np.rint(rain.astype(np.float64) * MICROMETRES).astype(np.int64))
        box = self._parameters.box or BoundingBoxParameters(top=0, left=0, bottom=rows, right=columns)
        inside = self.depth[box.top : box.bottom, box.left : box.right]
        if inside.size == 0:
            return None
        place = {"rows": inside.shape[0], "columns": inside.shape[1], "row": box.top, "column": box.left}
        packed = self.packed(inside / MICROMETRES)
        return Content({**event.attributes, **place, "quantity": "depth"}, packed, event.topic)

    def unpacked(self, payload: bytes) -> npt.NDArray[np.floating] | None:
        """The grid that a payload holds: here 32-bit floats. None if it is none."""
        is_grid = len(payload) == 4 * self.ground.size
        return np.frombuffer(payload, "<f4").reshape(self.ground.shape) if is_grid else None

    def packed(self, millimetres: npt.NDArray[np.float64]) -> bytes:
        return millimetres.astype("<f4").tobytes()

    def step(self, rain: Grid) -> None:
        """One event's time passes."""
        self.depth = self.depth + rain
        self.rained += int(rain.sum())
        soaked = np.minimum(self.depth, self._parameters.infiltration)
        self.depth -= soaked
        self.infiltrated += int(soaked.sum())
        for _ in range(STEPS):
            self._flow()

    def _flow(self) -> None:
        level = self.ground + self.depth
        lowest, target = _lowest_neighbours(level)
        out = np.minimum(self.depth, np.maximum(level - lowest, 0) // 2)
        leaving = np.zeros_like(out)
        for edge in (np.s_[0, :], np.s_[-1, :], np.s_[1:-1, 0], np.s_[1:-1, -1]):
            leaving[edge] = (self.depth[edge] - out[edge]) // 2
        self.depth = self.depth - out - leaving
        flat = self.depth.reshape(-1)
        np.add.at(flat, target.reshape(-1), out.reshape(-1))
        self.left += int(leaving.sum())

    def state(self) -> bytes:
        return HEAD.pack(self.rained, self.infiltrated, self.left) + self.depth.astype("<u4").tobytes()

    def restore(self, state: bytes) -> None:
        if len(state) != HEAD.size + 4 * self.depth.size:
            raise WireError("state of runoff", 0, f"has {len(state)} octets, not those of this terrain")
        self.rained, self.infiltrated, self.left = HEAD.unpack_from(state)
        grid = np.frombuffer(state, "<u4", offset=HEAD.size)
        self.depth = grid.reshape(self.ground.shape).astype(np.int64)

    def cost(self, event: Event) -> Micros:
        return self.ground.size * STEPS * CELL_STEP_NANOSECONDS // 1_000


def _lowest_neighbours(level: Grid) -> tuple[Grid, Grid]:
    """Of each cell: the level of its lowest neighbour, and that neighbour's number. Ties go to the
    north-west."""
    rows, columns = level.shape
    padded = np.pad(level, 1, constant_values=np.iinfo(np.int64).max // 2)
    lowest = padded[:rows, :columns].copy()
    away = np.full_like(level, -columns - 1)
    for dy, dx in ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)):
        there = padded[dy : dy + rows, dx : dx + columns]
        is_lower = there < lowest
        np.copyto(lowest, there, where=is_lower)
        np.copyto(away, (dy - 1) * columns + dx - 1, where=is_lower)
    return lowest, np.arange(level.size).reshape(rows, columns) + away


def read_terrain(path: Path) -> Grid:
    """An ESRI ASCII grid of elevations in metres, as micrometres."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        size = {key.lower(): int(value) for key, value in (line.split() for line in lines[:2])}
        metres = np.array([[float(cell) for cell in line.split()] for line in lines[6:]])
        is_grid = metres.shape == (size["nrows"], size["ncols"]) and bool(np.isfinite(metres).all())
    except (OSError, ValueError, KeyError) as error:
        raise InputError(str(path), f"is no ESRI ASCII grid: {error}") from None
    if not is_grid:
        raise InputError(str(path), f"has {metres.shape} cells, its head says {size}")
    ground: Grid = np.rint(metres * 1_000 * MICROMETRES).astype(np.int64)
    return ground


def register_runoff() -> None:
    """Register the modulator: as every application does, once, before its node starts."""
    if "runoff" not in MODULATORS.names():
        MODULATORS.add("runoff", RunoffParameters, lambda _, parameters: Runoff(parameters))
