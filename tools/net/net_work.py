"""The modulator of the net's own scenarios: it takes its time, and may fail."""

import msgspec

from roamcast.event import Event
from roamcast.modulator import MODULATORS, Content, Modulator


class NetWorkParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cost: int  # microseconds for an event
    fails_after: int = 1_000_000  # events


class NetWork(Modulator):
    def __init__(self, parameters: NetWorkParameters) -> None:
        self._parameters = parameters
        self._events = 0

    def process(self, event: Event) -> Content | None:
        self._events += 1
        if self._events > self._parameters.fails_after:
            raise ValueError("too many events")
        return Content(event.attributes, event.payload, event.topic, event.type)

    def cost(self, event: Event) -> int:
        return self._parameters.cost


MODULATORS.add("net_work", NetWorkParameters, lambda _, own: NetWork(own))
