"""The built-in modulators."""

from typing import Annotated

import msgspec

from roamcast.errors import WireError
from roamcast.event import ATTRIBUTES_MAX, Event, Name, Text, Value
from roamcast.filter import Filter
from roamcast.modulator.base import Content, Modulator
from roamcast.units import Micros


class ConditionParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sql: Text


class Condition(Modulator):
    """Keeps events that meet a condition: a subscription's filter, as a modulator."""

    def __init__(self, parameters: ConditionParameters) -> None:
        self._filter = Filter.sql(parameters.sql)

    def process(self, event: Event) -> Content | None:
        if not self._filter.matches(event):
            return None
        return Content(event.attributes, event.payload, event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return 5


class ProjectionParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    attributes: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ATTRIBUTES_MAX)]
    payload: bool = False


class Projection(Modulator):
    """Keeps some attributes of an event, and its payload only if asked: less to carry."""

    def __init__(self, parameters: ProjectionParameters) -> None:
        self._names = parameters.attributes
        self._with_payload = parameters.payload

    def process(self, event: Event) -> Content | None:
        kept = {name: event.attributes[name] for name in self._names if name in event.attributes}
        return Content(kept, event.payload if self._with_payload else b"", event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return 5


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
    """Cuts a box out of a grid: the payload is a matrix of 64-bit floats, row by row (flood watch, section
    4.3).

    The attributes `rows` and `columns` give its size. The product is the part inside the box, with its own
    `rows` and `columns`, and `row`, `column` of its first cell; an event without a grid, or with one that the
    box does not touch, gives nothing.
    """

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


KEYS_MAX = 1_000  # windows at a time; chosen by us


class AggregateParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    attribute: Name
    every: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]  # events of one key
    by: Name | None = None  # an attribute; each of its values has a window of its own


class AggregateWindow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    key: Annotated[str, msgspec.Meta(max_length=4096)]
    count: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None


_states = msgspec.msgpack.Decoder(Annotated[list[AggregateWindow], msgspec.Meta(max_length=KEYS_MAX)])


class Aggregate(Modulator):
    """One event for many: count, sum, mean, least and greatest of an attribute over every N events.

    Its state is what has come since the last product; with it the window continues in another broker.
    """

    def __init__(self, parameters: AggregateParameters) -> None:
        self._parameters = parameters
        self._windows: dict[str, AggregateWindow] = {}  # by first event; the oldest is evicted

    def process(self, event: Event) -> Content | None:
        value = event.attributes.get(self._parameters.attribute)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        key = "" if self._parameters.by is None else str(event.attributes.get(self._parameters.by))
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= KEYS_MAX:
                del self._windows[next(iter(self._windows))]
            window = self._windows[key] = AggregateWindow(key)
        window.count += 1
        window.total += value
        window.least = float(value) if window.least is None else min(window.least, float(value))
        window.greatest = float(value) if window.greatest is None else max(window.greatest, float(value))
        if window.count < self._parameters.every:
            return None
        del self._windows[key]
        product: dict[str, Value] = {
            "count": window.count,
            "sum": window.total,
            "mean": window.total / window.count,
            "least": window.least,
            "greatest": window.greatest,
        }
        if self._parameters.by is not None:
            product[self._parameters.by] = event.attributes.get(self._parameters.by)
        return Content(product, b"", event.topic, event.type)

    def state(self) -> bytes:
        return msgspec.msgpack.encode(list(self._windows.values()))

    def restore(self, state: bytes) -> None:
        try:
            windows = _states.decode(state)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError("state of aggregate", 0, f"cannot be read: {error}") from None
        self._windows = {window.key: window for window in windows}

    def cost(self, event: Event) -> Micros:
        return 10
