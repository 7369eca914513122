"""One event for many: count, sum, mean, least and greatest of an attribute over every N events.

Its state is what has come since the last product; with it the window continues in another broker.
"""

from typing import Annotated

import msgspec

from roamcast.errors import WireError
from roamcast.event import Event, Name, Value
from roamcast.modulator.base import Content, Modulator
from roamcast.units import Micros

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
