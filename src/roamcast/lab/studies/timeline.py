"""The gain of an overlay that follows the network, by time (opportunistic overlays, section 4.1, figure 10).

The paper draws the average path between producers and consumers over time. Two runs of figure 10's scenario
with the same seed have the same nodes in the same places at every instant; here the opportunistic approach is
compared with the static one instant by instant.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from roamcast.lab.published.figure import FOLDER
from roamcast.lab.studies.study import STUDIES, Study
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import read_tables, scenario_from
from roamcast.scenario.load import with_settings
from roamcast.trace import PathsSampled
from roamcast.units import Micros, micros

FIGURE = FOLDER / "opportunistic" / "figures-10-12.toml"


class TimelineParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    duration: Annotated[float, msgspec.Meta(ge=60, le=100_000)] = 600.0
    broker_discovery: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 10.0
    speed_max: Annotated[float, msgspec.Meta(gt=1, le=1_000)] = 20.0


def run(parameters: TimelineParameters, seed: int) -> dict[str, float | None]:
    return gains(_timeline(parameters, "static", seed), _timeline(parameters, "opportunistic", seed))


def gains(longer: Mapping[Micros, float], shorter: Mapping[Micros, float]) -> dict[str, float | None]:
    """The differences in hops, at the instants that both have."""
    found = [length - shorter[at] for at, length in sorted(longer.items()) if at in shorter]
    if not found:
        return dict.fromkeys(FIGURES)
    return {
        "gain_max": max(found),
        "gain_mean": sum(found) / len(found),
        "shorter_share": sum(gain > 0 for gain in found) / len(found),
    }


def timeline(samples: Iterable[PathsSampled], warmup: Micros) -> dict[Micros, float]:
    """The average path length at each instant of the measured time."""
    return {
        sample.t: sample.hops / sample.pairs
        for sample in samples
        if sample.kind == "overlay" and sample.pairs and sample.t >= warmup
    }


def _timeline(parameters: TimelineParameters, mode: str, seed: int) -> dict[Micros, float]:
    settings: dict[str, Any] = {
        "scenario.seed": seed,
        "scenario.duration": parameters.duration,
        "world.mobility.speed": [1.0, parameters.speed_max],
        "strategy.options.broker_discovery": parameters.broker_discovery,
        "strategy.options.mode": mode,
    }
    tables = with_settings(read_tables(FIGURE)["scenario"], settings.items())
    trace = Simulation(scenario_from(tables)).run().trace
    return timeline(trace.of(PathsSampled), micros(tables["scenario"]["warmup"]))


FIGURES = ("gain_max", "gain_mean", "shorter_share")
STUDIES.add(Study("timeline", TimelineParameters, run, FIGURES))
