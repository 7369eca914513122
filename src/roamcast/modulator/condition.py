"""Keeps events that meet a condition: a subscription's filter, as a modulator."""

import msgspec

from roamcast.event import Event, Text
from roamcast.filter import Filter
from roamcast.modulator.base import Content, Modulator
from roamcast.units import Micros


class ConditionParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sql: Text


class Condition(Modulator):
    def __init__(self, parameters: ConditionParameters) -> None:
        self._filter = Filter.sql(parameters.sql)

    def process(self, event: Event) -> Content | None:
        if not self._filter.matches(event):
            return None
        return Content(event.attributes, event.payload, event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return 5
