"""Cuts a box out of a grid: the payload is a matrix of 64-bit floats, row by row (flood watch, section 4.3).

The attributes `rows` and `columns` give its size. The product is the part inside the box, with its own
`rows` and `columns`, and `row`, `column` of its first cell; an event without a grid, or with one that
the box does not touch, gives nothing.
"""

from typing import Annotated

import msgspec
import numpy as np

from roamcast.event import Event
from roamcast.modulator.base import Content, Modulator
from roamcast.units import Micros

SIDE_MAX = 10_000
Cell = Annotated[int, msgspec.Meta(ge=0, le=SIDE_MAX)]


class BoundingBoxParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Half open: rows `top` to `bottom - 1`, columns `left` to `right - 1`."""

    top: Cell
    left: Cell
    bottom: Cell
    right: Cell


class BoundingBox(Modulator):
    def __init__(self, parameters: BoundingBoxParameters) -> None:
        self._box = parameters

    def process(self, event: Event) -> Content | None:
        rows, columns = event.attributes.get("rows"), event.attributes.get("columns")
        if not isinstance(rows, int) or not isinstance(columns, int):
            return None
        if (
            not 0 < rows <= SIDE_MAX
            or not 0 < columns <= SIDE_MAX
            or len(event.payload) != 8 * rows * columns
        ):
            return None
        box = self._box
        inside = np.frombuffer(event.payload, "<f8").reshape(rows, columns)[
            box.top : box.bottom, box.left : box.right
        ]
        if inside.size == 0:
            return None
        place = {"rows": inside.shape[0], "columns": inside.shape[1], "row": box.top, "column": box.left}
        return Content({**event.attributes, **place}, inside.tobytes(), event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return 10 + len(event.payload) // 1_000
