"""Studies: published experiments whose scenario follows from a few parameters, or that are no scenario at
all.

A figure's file names one (`study = "campus"`) instead of a scenario. Its axes and profiles then set the
study's parameters, and its quantities are formulas over the metrics of every run and those that the study
adds, as SQL over the same relations. To a sweep, a seed of a study is a run like any other.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from roamcast.errors import ScenarioError, errors_in
from roamcast.explain import converted, unknown
from roamcast.lab.run.metrics import METRICS, NOTHING_BESIDE, StudyMetrics
from roamcast.scenario import scenario_from

if TYPE_CHECKING:  # the driver of a sweep needs none of the simulator
    from roamcast.lab.run.runs import RunResult
    from roamcast.runtime.sim.simulation import Simulation

PLACES = {
    "balancing": "opportunistic_channels:Balancing",
    "campus": "opportunistic_channels:Campus",
    "channels": "channels:ChannelsStudy",
    "event_traffic": "event_traffic:EventTraffic",
    "home_crash": "opportunistic_overlays:HomeCrash",
    "overload": "opportunistic_overlays:Overload",
    "reds": "reds:Reds",
    "relocation": "opportunistic_channels:RelocationStudy",
    "testbed": "testbed:Testbed",
    "timeline": "opportunistic_overlays:Timeline",
}
"""Where each study is defined, in this folder; loaded when a figure names it."""


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One study with its parameters: the fields of its class."""

    READINGS: ClassVar[tuple[str, ...]] = ()  # figures that `run` adds, because no trace has what they need

    def tables(self, seed: int) -> dict[str, Any]:
        """The scenario of one run."""
        raise NotImplementedError

    def metrics(self, seed: int) -> StudyMetrics:
        """What is measured beside the metrics of every run, or instead of those of the same names."""
        return NOTHING_BESIDE

    def run(self, seed: int) -> "RunResult":
        return self.measured(self.simulation(seed))

    def simulation(self, seed: int) -> "Simulation":
        """Ready to run."""
        from roamcast.runtime.sim.simulation import Simulation

        return Simulation(scenario_from({"limit": {"events": 0}, **self.tables(seed)}))

    def measured(self, simulation: "Simulation") -> "RunResult":
        from roamcast.lab.run.runs import simulated

        result = simulation.run()
        return simulated(result, self.metrics(result.scenario.seed))

    def weight(self) -> float:
        """About how long a run takes, in nodes times simulated seconds."""
        tables = self.tables(1)
        return float(tables["world"]["nodes"] * tables["scenario"]["duration"])

    @classmethod
    def figures(cls) -> tuple[str, ...]:
        """The names of what a run gives."""
        return tuple(dict.fromkeys((*METRICS, *cls().metrics(1).metrics, *cls.READINGS)))

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str) -> "Study":
        """The study with these parameters, or a `ScenarioError` that begins with `where`."""
        with errors_in(where):
            made: Study = converted(dict(values), cls)
        return made


def study_named(name: str, where: str) -> type[Study]:
    if name not in PLACES:
        raise ScenarioError(where, unknown(name, sorted(PLACES), f"is {name!r}, no study"))
    module, _, study = PLACES[name].partition(":")
    return cast(type[Study], getattr(import_module(f"roamcast.lab.studies.{module}"), study))
