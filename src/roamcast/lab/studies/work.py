"""The modulator `work`: the event as it is, for a processor time that its parameters say."""

from typing import Annotated

import msgspec

from roamcast.event import Event
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.units import Micros

WORK = "work"


class WorkParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cost: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # microseconds


class WorkModulator(Modulator):
    def __init__(self, parameters: WorkParameters) -> None:
        self._cost = parameters.cost

    def process(self, event: Event) -> Content | None:
        return Content(event.attributes, event.payload, event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return self._cost


MODULATORS.add(WORK, WorkParameters, lambda _, own: WorkModulator(own))
