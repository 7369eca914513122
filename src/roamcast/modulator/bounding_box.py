"""Cuts a box out of a grid: the payload is a matrix of 64-bit floats, row by row (flood watch, section 4.3).

The attributes `rows` and `columns` give its size. The product is the part inside the box, with its own
`rows` and `columns`, and `row`, `column` of its first cell; an event without a grid, or with one that
the box does not touch, gives nothing.
"""

from typing import Annotated

import msgspec

from roamcast.event import Event
from roamcast.modulator.base import Content, Modulator
from roamcast.units import Micros

SIDE_MAX = 10_000  # chosen by us
CELL_BYTES = 8
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
            or len(event.payload) != CELL_BYTES * rows * columns
        ):
            return None
        box = self._box
        bottom, right = min(box.bottom, rows), min(box.right, columns)
        if box.top >= bottom or box.left >= right:
            return None
        starts = range(CELL_BYTES * columns * box.top, CELL_BYTES * columns * bottom, CELL_BYTES * columns)
        inside = [
            event.payload[start + CELL_BYTES * box.left : start + CELL_BYTES * right] for start in starts
        ]
        place = {"rows": len(inside), "columns": right - box.left, "row": box.top, "column": box.left}
        return Content({**event.attributes, **place}, b"".join(inside), event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return 10 + len(event.payload) // 1_000
