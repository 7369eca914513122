"""Overload control of home brokers (opportunistic overlays, section 4.2, figures 13 and 14).

20 nodes on 750 m x 500 m, 5 brokers, 5 producers, 15 consumers of which 5 are the brokers' own nodes. Each
consumer has a modulator whose cost makes the brokers' average load what the parameters say. Four times per
simulated second the loads are read, while the run goes on:

- `load_max`, `load_mean`, `overloaded_share`: the work that came in during the last ten seconds over what a
  broker can do in them (the paper's figure 13), and the share of the readings in which one is over 1.
- `needless_share`: the share of the readings in which a broker is overloaded *needlessly*. A broker is
  overloaded when the modulators of its clients took more than the threshold in the last ten seconds, wherever
  they ran then. The overload is needless when another broker, connected to it at that instant, could take its
  client with the least work and stay at or below the threshold; and when both have been true at every reading
  for longer than `reaction`. That allows for the check of its load every second, the 3 s between two attempts
  and the duration of a relocation.
- `needless_at_once`: the same with no time to react.
"""

from typing import Annotated, Literal

import msgspec

from roamcast.event import Event
from roamcast.lab.studies.study import STUDIES, Study
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.brokerage import Brokerage
from roamcast.trace import HandedOff, PathsSampled
from roamcast.units import SECOND, Micros, NodeId, micros

BROKERS = list(range(5))
CONSUMERS = list(range(15))
PRODUCERS = list(range(15, 20))
WARMUP = 20.0
SAMPLE_EVERY: Micros = SECOND // 4


class OverloadParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["opportunistic", "static"] = "opportunistic"
    overload_control: bool = True  # with the adaptor `load_balancing`
    load: Annotated[float, msgspec.Meta(gt=0, le=2)] = 0.5  # average over the brokers
    rate: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0  # events per second and producer
    arrival: Literal["periodic", "poisson"] = "periodic"
    duration: Annotated[float, msgspec.Meta(ge=30, le=100_000)] = 300.0
    threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8
    reaction: Annotated[float, msgspec.Meta(ge=0, le=60)] = 5.0  # seconds


class WorkParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cost: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # microseconds


class WorkModulator(Modulator):
    def __init__(self, parameters: WorkParameters) -> None:
        self._cost = parameters.cost

    def process(self, event: Event) -> Content | None:
        return Content(event.attributes, event.payload, event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return self._cost


def register_work() -> None:
    """The modulator `work`: the event as it is, for a processor time that its parameters say."""
    if "work" not in MODULATORS.names():
        MODULATORS.add("work", WorkParameters, lambda _, own: WorkModulator(own))


def run(parameters: OverloadParameters, seed: int) -> dict[str, float | None]:
    register_work()
    simulation = Simulation(scenario_from(_tables(parameters, seed)))
    watch = BrokerWatch(simulation, parameters)
    for at in range(round(WARMUP * SECOND), round(parameters.duration * SECOND), SAMPLE_EVERY):
        simulation.engine.at(at, watch.sample)
    trace = simulation.run().trace
    paths = [p for p in trace.of(PathsSampled) if p.kind == "overlay" and p.pairs]
    pairs = sum(p.pairs for p in paths)
    samples = watch.samples
    return {
        "load_max": max(max(loads) for loads in samples),
        "load_mean": sum(map(sum, samples)) / (len(samples) * len(BROKERS)),
        "overloaded_share": sum(max(loads) > 1 for loads in samples) / len(samples),
        "needless_share": watch.needless / len(samples),
        "needless_at_once": watch.needless_at_once / len(samples),
        "path_hops": sum(p.hops for p in paths) / pairs if pairs else None,
        "handoffs": float(sum(h.outcome == "moved" for h in trace.of(HandedOff))),
    }


class BrokerWatch:
    """Reads the loads of all brokers at once; no broker has this view."""

    def __init__(self, simulation: Simulation, parameters: OverloadParameters) -> None:
        self._simulation = simulation
        self._threshold = parameters.threshold
        self._reaction = micros(parameters.reaction)
        self._since: dict[NodeId, Micros] = {}  # since when a broker has been overloaded needlessly
        self.samples: list[list[float]] = []
        self.needless = self.needless_at_once = 0

    def sample(self, _: None) -> None:
        now = self._simulation.engine.now
        brokers = {number: _brokerage(self._simulation, number) for number in BROKERS}
        self.samples.append([one.homes.processor.load() / 100 for one in brokers.values()])
        works = {number: _works(one, now) for number, one in brokers.items()}
        for number in BROKERS:
            if self._is_needless(number, works):
                self._since.setdefault(number, now)
            else:
                self._since.pop(number, None)
        self.needless_at_once += bool(self._since)
        self.needless += any(now - since > self._reaction for since in self._since.values())

    def _is_needless(self, number: NodeId, works: dict[NodeId, list[float]]) -> bool:
        if not self._is_over(works[number]):
            return False
        least = [min(works[number])]
        room = [n for n in BROKERS if n != number and not self._is_over(works[n] + least)]
        return bool(room) and not _connected(self._simulation, number).isdisjoint(room)

    def _is_over(self, works: list[float]) -> bool:
        return round(sum(works), 2) > self._threshold  # brokers announce loads in hundredths


def _brokerage(simulation: Simulation, number: NodeId) -> Brokerage:
    node = simulation.nodes[number]
    assert node is not None and isinstance(node.strategy, Opportunistic)
    assert node.strategy.broker is not None
    return node.strategy.broker


def _works(brokerage: Brokerage, now: Micros) -> list[float]:
    """Recent work of the modulators of each client at home here, as a share of the broker's capacity."""
    capacity = brokerage.homes.processor.capacity * SECOND
    return [row.work(now) / capacity for row in brokerage.clients.rows() if row.has_modulators]


def _connected(simulation: Simulation, start: NodeId) -> set[NodeId]:
    found, new = {start}, [start]
    while new:
        for neighbour in simulation.links.neighbours(new.pop()):
            if neighbour not in found:
                found.add(neighbour)
                new.append(neighbour)
    return found


def _tables(parameters: OverloadParameters, seed: int) -> dict[str, object]:
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
            "arrival": parameters.arrival,
            "subscriptions": [{"node": c, "modulator": {"name": "work", "cost": cost}} for c in CONSUMERS],
        },
        "strategy": {
            "name": "opportunistic",
            "options": {
                "mode": parameters.mode,
                "broker_update": 5.0,
                "broker_discovery": 1.0,
                "overload_control": parameters.overload_control,
                "overload_threshold": parameters.threshold,
            },
        },
        "underlay": {"name": "ideal"},  # "best-case" routes, as MobiEmu's
    }


STUDIES.add(
    Study(
        "overload",
        OverloadParameters,
        run,
        (
            "load_max",
            "load_mean",
            "overloaded_share",
            "needless_share",
            "needless_at_once",
            "path_hops",
            "handoffs",
        ),
    )
)
