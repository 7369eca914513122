"""What load balancing gains as consumers join (opportunistic channels, section 4.2, figures 13 and 14).

The strategy itself runs in the simulator: a source with the first broker, machines that are willing to be
brokers, and consumers that join one after the other, each with a modulator of a modelled cost. The adaptive
channel has the adaptors `load_balancing` and `broker_creation`, and moves modulators by handoffs while events
go on; the normal one keeps its single broker. All nodes hear each other and the network is fast, as the
switched one of the work: what is measured is the brokers' processors.

Figure 13's modulators are a loop and its events arrays of 100 floats; figure 14's transcode a video whose
frames come at a fixed rate.
"""

from typing import Annotated

import msgspec

from roamcast.lab.studies.overload import register_work
from roamcast.lab.studies.study import STUDIES, Study
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.trace import Delivered, HandedOff, OverlayChanged, Published, Trace
from roamcast.units import SECOND, NodeId, micros

SOURCE: NodeId = 0
STANDS_AT = 15.0  # seconds; the overlay and the first rows are there
SETTLING = 25.0  # seconds after the last consumer has joined: readings go ten seconds back
MEASURED = 20.0


class BalancingParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    adaptive: bool = True
    consumers: Annotated[int, msgspec.Meta(ge=1, le=100)] = 16
    machines: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8  # that can run a broker, the source's included
    # A broker with more modulators than this is overloaded (the work: "after 6 consumers have joined").
    modulators_max: Annotated[int, msgspec.Meta(ge=1, le=100)] = 6
    modulator_ms: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 20.0  # for one event
    rate: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 2.0  # events per second
    size: Annotated[int, msgspec.Meta(ge=0, le=50_000)] = 400  # octets: 100 floats
    join_every: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 14.0  # seconds


def run(parameters: BalancingParameters, seed: int) -> dict[str, float | None]:
    register_work()
    tables, since = _tables(parameters, seed)
    trace = Simulation(scenario_from(tables)).run().trace
    return {**_measured(trace, parameters, since), "brokers": float(_brokers(trace))}


def _measured(trace: Trace, parameters: BalancingParameters, since: float) -> dict[str, float | None]:
    begin, end = micros(since), micros(since + MEASURED)
    published = {(p.publisher, p.sequence): p.t for p in trace.of(Published) if begin <= p.t < end}
    arrivals: dict[tuple[NodeId, int], list[int]] = {}
    shown = 0
    for delivered in trace.of(Delivered):
        if begin <= delivered.t < end:
            shown += 1
        if (delivered.publisher, delivered.sequence) in published:
            arrivals.setdefault((delivered.publisher, delivered.sequence), []).append(delivered.t)
    took = [max(times) - published[key] for key, times in arrivals.items()]
    expected = len(published) * parameters.consumers
    came = sum(map(len, arrivals.values()))
    moved = [one for one in trace.of(HandedOff) if one.outcome == "moved"]
    return {
        "event_ms": sum(took) / len(took) / 1_000 if took else None,  # until the last consumer has it
        "frame_rate": shown / parameters.consumers / MEASURED,
        "arrived": came / expected if expected else None,
        "handoffs": float(len(moved)),
    }


def _brokers(trace: Trace) -> int:
    changes = [one.change for one in trace.of(OverlayChanged) if one.role == "broker"]
    return changes.count("role_on") - changes.count("role_off")


def _tables(parameters: BalancingParameters, seed: int) -> tuple[dict[str, object], float]:
    """The scenario, and when to begin to measure."""
    machines = list(range(1, parameters.machines))
    consumers = range(parameters.machines, parameters.machines + parameters.consumers)
    cost = round(parameters.modulator_ms * 1_000)
    share = cost * parameters.rate / SECOND  # of a broker, for one consumer
    since = STANDS_AT + parameters.join_every * parameters.consumers + SETTLING
    options: dict[str, object] = {
        "broker_update": 5.0,
        "broker_discovery": 3.0,
        "overload_threshold": min((parameters.modulators_max + 0.5) * share, 1.0),
        "adaptors": ["topology"],
    }
    if parameters.adaptive:
        options["adaptors"] = ["topology", "complex", "load_balancing", "broker_creation"]
        options["willing"] = machines
    tables: dict[str, object] = {
        "scenario": {"name": "balancing", "duration": since + MEASURED + 30.0, "seed": seed},
        "world": {
            "nodes": parameters.machines + parameters.consumers,
            "area": [100.0, 100.0],
            "range": 200.0,
            "mobility": {"model": "static"},
            "radio": {"model": "disk", "bitrate": 100_000_000},
        },
        "roles": {"brokers": [SOURCE], "publishers": [SOURCE], "subscribers": []},
        "workload": {
            "rate": parameters.rate,
            "size": parameters.size,
            "start": STANDS_AT,
            "stop": since + MEASURED,
            "subscriptions": [
                {
                    "node": consumer,
                    "from": STANDS_AT + parameters.join_every * number,
                    "modulator": {"name": "work", "cost": cost},
                }
                for number, consumer in enumerate(consumers)
            ],
        },
        "strategy": {"name": "opportunistic", "options": options},
        "underlay": {"name": "ideal"},
    }
    return tables, since


STUDIES.add(
    Study(
        "balancing",
        BalancingParameters,
        run,
        ("brokers", "event_ms", "frame_rate", "arrived", "handoffs"),
    )
)
