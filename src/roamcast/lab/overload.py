"""Overload control of home brokers (opportunistic overlays, section 4.2, figures 13 and 14).

20 nodes on 750 m x 500 m, 5 brokers, 5 producers, 15 consumers of which 5 are the brokers' own nodes. Each
consumer has a modulator whose cost makes the brokers' average load what the parameters say. Read four times
per simulated second while the run goes on: the load of each broker (work of the last ten seconds over what
it can do).
"""

from typing import Annotated, Literal

import msgspec

from roamcast.event import Event
from roamcast.lab.published.study import STUDIES, Study
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.trace import PathsSampled
from roamcast.units import SECOND, Micros

BROKERS = list(range(5))
CONSUMERS = list(range(15))
PRODUCERS = list(range(15, 20))
WARMUP = 20.0
SAMPLE_EVERY: Micros = SECOND // 4


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["opportunistic", "static"] = "opportunistic"
    overload_control: bool = True
    load: Annotated[float, msgspec.Meta(gt=0, le=2)] = 0.5  # average over the brokers
    rate: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0  # events per second and producer
    duration: Annotated[float, msgspec.Meta(ge=30, le=100_000)] = 300.0
    threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8


class WorkParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cost: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # microseconds


class Work(Modulator):
    def __init__(self, parameters: WorkParameters) -> None:
        self._cost = parameters.cost

    def process(self, event: Event) -> Content | None:
        return Content(event.attributes, event.payload, event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return self._cost


def run(parameters: Parameters, seed: int) -> dict[str, float | None]:
    if "work" not in MODULATORS.names():
        MODULATORS.add("work", WorkParameters, lambda _, own: Work(own))
    simulation = Simulation(scenario_from(_tables(parameters, seed)))
    samples: list[list[float]] = []

    def sample(_: None) -> None:
        loads = []
        for number in BROKERS:
            node = simulation.nodes[number]
            assert node is not None and isinstance(node.strategy, Opportunistic)
            assert node.strategy.broker is not None
            loads.append(node.strategy.broker.dispatch.processor.load() / 100)
        samples.append(loads)

    for at in range(round(WARMUP * SECOND), round(parameters.duration * SECOND), SAMPLE_EVERY):
        simulation.engine.at(at, sample)
    trace = simulation.run().trace
    paths = [p for p in trace.of(PathsSampled) if p.kind == "overlay" and p.pairs]
    pairs = sum(p.pairs for p in paths)
    return {
        "load_max": max(max(loads) for loads in samples),
        "load_mean": sum(map(sum, samples)) / (len(samples) * len(BROKERS)),
        "overloaded_share": sum(max(loads) > 1 for loads in samples) / len(samples),
        "path_hops": sum(p.hops for p in paths) / pairs if pairs else None,
    }


def _tables(parameters: Parameters, seed: int) -> dict[str, object]:
    per_broker = len(CONSUMERS) * len(PRODUCERS) * parameters.rate / len(BROKERS)  # modulations per second
    cost = round(parameters.load / per_broker * SECOND)
    return {
        "scenario": {"name": "overload", "duration": parameters.duration, "warmup": WARMUP, "seed": seed},
        "world": {
            "nodes": 20,
            "area": [750.0, 500.0],
            "range": 250.0,
            "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [30.0, 30.0]},
        },
        "roles": {"brokers": BROKERS, "publishers": PRODUCERS, "subscribers": CONSUMERS},
        "workload": {
            "rate": parameters.rate,
            "subscriptions": [{"node": c, "modulator": {"name": "work", "cost": cost}} for c in CONSUMERS],
        },
        "strategy": {
            "name": "opportunistic",
            "options": {
                "mode": parameters.mode,
                "broker_update": 5.0,
                "broker_discovery": 1.0,
                "ring_wait": 0.05,
                "overload_control": parameters.overload_control,
                "overload_threshold": parameters.threshold,
            },
        },
        "underlay": {"name": "ideal"},  # "best-case" routes, as MobiEmu's
    }


STUDIES.add(Study("overload", Parameters, run, ("load_max", "load_mean", "overloaded_share", "path_hops")))
