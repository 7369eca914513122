"""Home brokers that crash: how many events are lost (opportunistic overlays, section 6, future work).

25 nodes on a grid, 5 of them brokers, 5 other producers and 15 other consumers, over OLSR and a radio that
loses some frames. One broker after the other crashes, and restarts or not; the network stays connected
without it. Every event is for every consumer, so each pair of an event and a consumer that is not delivered
is a loss.

A broker's share is what one broker has to deliver per second: all pairs over the number of brokers. Losses
are given in seconds of that share: the time for which a crashed broker would have to lose everything.
"""

from typing import Annotated

import msgspec

from roamcast.lab.studies.study import STUDIES, Study
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.streams import stream
from roamcast.trace import Delivered, Published
from roamcast.units import SECOND, Micros, NodeId

SIDE = 5
BROKERS = [6, 8, 12, 16, 18]
PRODUCERS = [0, 2, 4, 20, 24]
CONSUMERS = [node for node in range(SIDE * SIDE) if node not in BROKERS + PRODUCERS]
BEGIN = 60.0  # seconds until the overlay stands
EVERY = 60.0  # seconds from crash to crash
QUIET = 90.0  # seconds after the last event, so that late deliveries are not counted as losses


class HomeCrashParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    crashes: Annotated[int, msgspec.Meta(ge=0, le=4)] = 4  # each of another broker
    restart_after: Annotated[float, msgspec.Meta(ge=0, le=EVERY / 2)] = 0.0  # seconds; 0: never
    rate: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0  # events per second and producer
    home_timeout: Annotated[float, msgspec.Meta(ge=6, le=60)] = 10.0  # seconds
    loss: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.02
    underlay: str = "olsr"


def run(parameters: HomeCrashParameters, seed: int) -> dict[str, float | None]:
    trace = Simulation(scenario_from(_tables(parameters, seed))).run().trace
    published = {(p.publisher, p.sequence): p.t for p in trace.of(Published)}
    came: dict[tuple[NodeId, NodeId, int], Micros] = {}
    doubled = 0
    for delivered in trace.of(Delivered):
        pair = delivered.node, delivered.publisher, delivered.sequence
        doubled += pair in came
        came.setdefault(pair, delivered.t)
    pairs = len(published) * len(CONSUMERS)
    lost = pairs - len(came)
    latest = max(at - published[publisher, sequence] for (_, publisher, sequence), at in came.items())
    share = parameters.rate * len(PRODUCERS) * len(CONSUMERS) / len(BROKERS)
    return {
        "lost_share": lost / pairs,
        "lost_seconds": lost / parameters.crashes / share if parameters.crashes else None,
        "latency_s_max": latest / SECOND,
        "doubled": float(doubled),
    }


def _tables(parameters: HomeCrashParameters, seed: int) -> dict[str, object]:
    end = BEGIN + EVERY * (parameters.crashes + 0.5)
    places = [[50.0 + 100.0 * (node % SIDE), 50.0 + 100.0 * (node // SIDE)] for node in range(SIDE * SIDE)]
    faults: list[dict[str, object]] = []
    for number in range(parameters.crashes):
        at = round(BEGIN + EVERY * (number + 0.5) + stream(seed, "crash", number).random(), 6)
        faults.append({"at": at, "kind": "crash", "nodes": [BROKERS[number]]})
        if parameters.restart_after:
            faults.append(
                {"at": at + parameters.restart_after, "kind": "restart", "nodes": [BROKERS[number]]}
            )
    return {
        "scenario": {"name": "home-crash", "duration": end + QUIET, "warmup": BEGIN, "seed": seed},
        "world": {
            "nodes": SIDE * SIDE,
            "area": [100.0 * SIDE, 100.0 * SIDE],
            "range": 150.0,
            "mobility": {"model": "static", "positions": places},
            "radio": {"model": "disk", "loss": parameters.loss},
        },
        "roles": {"brokers": BROKERS, "publishers": PRODUCERS, "subscribers": CONSUMERS},
        "workload": {"rate": parameters.rate, "start": BEGIN, "stop": end},
        "strategy": {
            "name": "opportunistic",
            "options": {
                "broker_update": 5.0,
                "broker_discovery": 2.0,
                "home_timeout": parameters.home_timeout,
            },
        },
        "underlay": {"name": parameters.underlay},
        "fault": faults,
    }


STUDIES.add(
    Study("home_crash", HomeCrashParameters, run, ("lost_share", "lost_seconds", "latency_s_max", "doubled"))
)
