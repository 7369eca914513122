"""Studies: published experiments that are not a run of our network, each with a model of its own.

A figure's file names one (`study = "channels"`) instead of a scenario. Its axes and profiles then set the
study's parameters, and its quantities are formulas over what the study computes, seed by seed. To a sweep,
a seed of a study is a run like any other: a task that is recorded and not repeated.
"""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from roamcast.errors import ScenarioError
from roamcast.explain import converted, unknown

MODULES = {
    "channels": "roamcast.lab.studies.channels",
    "balancing": "roamcast.lab.studies.balancing",
    "event_traffic": "roamcast.lab.studies.event_traffic",
    "campus": "roamcast.lab.studies.campus",
    "home_crash": "roamcast.lab.studies.home_crash",
    "overload": "roamcast.lab.studies.overload",
    "relocation": "roamcast.lab.studies.relocation",
    "testbed": "roamcast.lab.studies.testbed",
    "timeline": "roamcast.lab.studies.timeline",
}
"""Where each study is defined; loaded when a figure names it."""


class Study(NamedTuple):
    name: str
    parameters: type[msgspec.Struct]
    # Takes the parameters and a seed; returns the figures by name, None for a figure without a value.
    run: Callable[[Any, int], Mapping[str, float | None]]
    figures: tuple[str, ...]

    def check(self, values: Mapping[str, Any], where: str) -> msgspec.Struct:
        """The parameters in the study's own type, or a `ScenarioError` that begins with `where`."""
        try:
            made: msgspec.Struct = converted(dict(values), self.parameters)
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error.where}", error.problem) from None
        return made

    def measure(self, values: Mapping[str, Any], seed: int) -> dict[str, float | None]:
        """The figures of one seed."""
        found = dict(self.run(self.check(values, self.name), seed))
        for name, value in found.items():
            assert value is None or math.isfinite(value), (self.name, name, values, seed)
        return found


class Studies:
    def __init__(self) -> None:
        self._studies: dict[str, Study] = {}

    def add(self, study: Study) -> None:
        assert study.name not in self._studies, study.name
        self._studies[study.name] = study

    def named(self, name: str, where: str) -> Study:
        if name not in self._studies and name in MODULES:
            import_module(MODULES[name])
        if name not in self._studies:
            known = sorted({*self._studies, *MODULES})
            raise ScenarioError(where, unknown(name, known, f"is {name!r}, no study"))
        return self._studies[name]


STUDIES = Studies()
