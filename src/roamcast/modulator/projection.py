"""Keeps some attributes of an event, and its payload only if asked: less to carry."""

from typing import Annotated

import msgspec

from roamcast.event import ATTRIBUTES_MAX, Event, Name
from roamcast.modulator.base import Content, Modulator
from roamcast.units import Micros


class ProjectionParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    attributes: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ATTRIBUTES_MAX)]
    payload: bool = False


class Projection(Modulator):
    def __init__(self, parameters: ProjectionParameters) -> None:
        self._names = parameters.attributes
        self._with_payload = parameters.payload

    def process(self, event: Event) -> Content | None:
        kept = {name: event.attributes[name] for name in self._names if name in event.attributes}
        return Content(kept, event.payload if self._with_payload else b"", event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return 5
