"""PreSend: one rain gauge's record as a grid, event by event.

The gauge (COOP 050843, Boulder) gives inches per hour at one place. A storm over the terrain is made from
it: each hour's rain, in four equal quarters, times a rain cell that drifts over the grid. The cell's mean
over a whole passage is 1, so that every place gets, over the whole storm, about what the gauge got.
"""

import csv
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from roamcast.errors import InputError
from roamcast.event import Publication, Value

GAUGE = Path(__file__).parent / "data" / "rain.csv"
BEGIN = datetime(2013, 9, 9, 12)
HOURS = 200
PER_HOUR = 4  # events
EVENTS = HOURS * PER_HOUR
MILLIMETRES_PER_INCH = 25.4
MISSING = 999.99
SIDE = 100
PASSAGE = 96  # events in which the cell crosses the grid once
WIDTH = 30.0  # cells


def hourly(path: Path = GAUGE) -> list[float]:
    """Millimetres in each hour of the storm. Hours that the record does not list had none."""
    inches: dict[datetime, float] = {}
    with path.open(newline="") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                when, depth = datetime.strptime(row["date"], "%Y%m%d %H:%M"), float(row["inches"])
            except (KeyError, TypeError, ValueError):
                raise InputError(f"{path}:{line}", "is no row of date,inches") from None
            if depth != MISSING:
                inches[when] = depth
    return [MILLIMETRES_PER_INCH * inches.get(BEGIN + timedelta(hours=hour), 0.0) for hour in range(HOURS)]


def grid(event: int, gauge: list[float]) -> npt.NDArray[np.float32]:
    """Rain of a quarter of an hour in each cell, millimetres."""
    depth = gauge[event // PER_HOUR] / PER_HOUR
    centre = SIDE * (event % PASSAGE) / PASSAGE  # from west to east, and again
    away = np.abs(np.arange(SIDE) - centre)
    away = np.minimum(away, SIDE - away)  # the next cell comes as the last one goes
    shape = np.maximum(0.0, 1 - away / WIDTH)
    shape = shape * (SIDE / shape.sum())
    return np.broadcast_to((depth * shape).astype("<f4"), (SIDE, SIDE))


def publication(event: int, gauge: list[float]) -> Publication:
    """What PreSend puts on the channel."""
    attributes: dict[str, Value] = {"quantity": "rain", "quarter_hour": event, "rows": SIDE, "columns": SIDE}
    return Publication(attributes, grid(event, gauge).tobytes())
