"""Studies of the opportunistic overlays work (sections 4 and 6), with the strategy itself in the simulator.

`timeline`, figure 10: the gain of an overlay that follows the network, instant by instant. `overload`,
figures 13 and 14: overload control of home brokers. `home_crash`: home brokers that crash, which the work
leaves to the future. Figures 15 to 17 are in `testbed.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from roamcast.lab.published.figure import FOLDER
from roamcast.lab.run.metrics import Figure, Metric, StudyMetrics
from roamcast.lab.run.runs import RunResult
from roamcast.lab.studies.opportunistic_channels import WORK
from roamcast.lab.studies.study import Study
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import read_tables
from roamcast.scenario.load import with_settings
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.broker import Brokerage
from roamcast.streams import stream
from roamcast.trace import PathsSampled
from roamcast.units import SECOND, Micros, NodeId, micros

# Home brokers that crash.


class HomeCrash(Study, frozen=True):
    """25 nodes on a grid, 5 of them brokers, 5 other producers and 15 other consumers, over OLSR and a radio
    that loses some frames. One broker after the other crashes, and restarts or not; the network stays
    connected without it. Every event is for every consumer.

    A broker's share is what one broker has to deliver per second: all pairs over the number of brokers.
    Losses are given in seconds of that share: the time for which a crashed broker would have to lose
    everything.
    """

    crashes: Annotated[int, msgspec.Meta(ge=1, le=4)] = 4  # each of another broker
    restart_after: Annotated[float, msgspec.Meta(ge=0, le=30)] = 0.0  # seconds; 0: never
    rate: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0  # events per second and producer
    underlay: str = "olsr"

    BROKERS: ClassVar[list[NodeId]] = [6, 8, 12, 16, 18]
    PRODUCERS: ClassVar[list[NodeId]] = [0, 2, 4, 20, 24]

    def tables(self, seed: int) -> dict[str, Any]:
        begin, every = 60.0, 60.0  # seconds until the overlay stands, and from crash to crash
        end = begin + every * (self.crashes + 0.5)
        faults: list[dict[str, Any]] = []
        for number, broker in enumerate(self.BROKERS[: self.crashes]):
            at = round(begin + every * (number + 0.5) + stream(seed, "crash", number).random(), 6)
            faults.append({"at": at, "kind": "crash", "nodes": [broker]})
            if self.restart_after:
                faults.append({"at": at + self.restart_after, "kind": "restart", "nodes": [broker]})
        places = [[50.0 + 100.0 * (node % 5), 50.0 + 100.0 * (node // 5)] for node in range(25)]
        return {
            # 90 s after the last event: late deliveries are no losses.
            "scenario": {"name": "home-crash", "duration": end + 90.0, "warmup": begin, "seed": seed},
            "world": {
                "nodes": 25,
                "area": [500.0, 500.0],
                "range": 150.0,
                "mobility": {"model": "static", "positions": places},
                "radio": {"model": "disk", "loss": 0.02},
            },
            "roles": {
                "brokers": self.BROKERS,
                "publishers": self.PRODUCERS,
                "subscribers": [n for n in range(25) if n not in self.BROKERS + self.PRODUCERS],
            },
            "workload": {"rate": self.rate, "start": begin, "stop": end},
            "strategy": {
                "name": "opportunistic",
                "options": {"broker_update": 5.0, "broker_discovery": 2.0, "home_timeout": 10.0},
            },
            "underlay": {"name": self.underlay},
            "fault": faults,
        }

    def metrics(self, seed: int) -> StudyMetrics:
        share = self.rate * 5 * 15 / 5
        lost = "expected - delivered"
        return StudyMetrics(
            {
                "lost_seconds": Metric(
                    "s",
                    "losses per crash, in seconds of one broker's share",
                    "",
                    f"({lost}) * 1e0 / {self.crashes} / {share!r}",
                ),
                "latency_s_max": Metric("s", "the latest first delivery", "pairs", "MAX(latency) / 1e6"),
                "doubled": Metric("deliveries", "deliveries beyond the first", "", "duplicates"),
            }
        )


# Overload control.

BROKERS = list(range(5))
CONSUMERS = list(range(15))
PRODUCERS = list(range(15, 20))
SAMPLE_EVERY: Micros = SECOND // 4
THRESHOLD = 0.8  # above which a broker is overloaded
REACTION: Micros = 5 * SECOND


class Overload(Study, frozen=True):
    """20 nodes on 750 m x 500 m, 5 brokers, 5 producers, 15 consumers of which 5 are the brokers' own nodes.
    Each consumer has a modulator whose cost makes the brokers' average load what `load` says. Four times per
    simulated second the loads are read, while the run goes on:

    - `load_max`, `load_mean`, `overloaded_share`: the work that came in during the last ten seconds over what
      a broker can do in them (the paper's figure 13), and the share of the readings in which one is over 1.
    - `needless_share`: the share of the readings in which a broker is overloaded *needlessly*. A broker is
      overloaded when the modulators of its clients took more than the threshold in the last ten seconds,
      wherever they ran then. The overload is needless when another broker, connected to it at that instant,
      could take its client with the least work and stay at or below the threshold; and when both have been
      true at every reading for longer than `REACTION`. That allows for the check of its load every second,
      the 3 s between two attempts and the duration of a relocation.
    """

    READINGS: ClassVar[tuple[str, ...]] = ("load_max", "load_mean", "overloaded_share", "needless_share")

    mode: Literal["opportunistic", "static"] = "opportunistic"
    overload_control: bool = True  # with the adaptor `load_balancing`
    load: Annotated[float, msgspec.Meta(gt=0, le=2)] = 0.5  # average over the brokers
    duration: Annotated[float, msgspec.Meta(ge=30, le=100_000)] = 300.0

    def tables(self, seed: int) -> dict[str, Any]:
        per_broker = len(CONSUMERS) * len(PRODUCERS) / len(BROKERS)  # modulations per second
        cost = round(self.load / per_broker * SECOND)
        return {
            "scenario": {"name": "overload", "duration": self.duration, "warmup": 20.0, "seed": seed},
            "world": {
                "nodes": 20,
                "area": [750.0, 500.0],
                "range": 250.0,
                "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [30.0, 30.0]},
            },
            "roles": {"brokers": BROKERS, "publishers": PRODUCERS, "subscribers": CONSUMERS},
            "workload": {
                "rate": 1.0,
                "arrival": "periodic",
                "subscriptions": [{"node": c, "modulator": {"name": WORK, "cost": cost}} for c in CONSUMERS],
            },
            "strategy": {
                "name": "opportunistic",
                "options": {
                    "mode": self.mode,
                    "broker_update": 5.0,
                    "broker_discovery": 1.0,
                    "overload_control": self.overload_control,
                    "overload_threshold": THRESHOLD,
                },
            },
            "underlay": {"name": "ideal"},  # "best-case" routes, as MobiEmu's
        }

    def metrics(self, seed: int) -> StudyMetrics:
        return StudyMetrics({"path_hops": Metric("hops", "overlay paths", "", "path_hops_mean")})

    def run(self, seed: int) -> RunResult:
        simulation = self.simulation(seed)
        watch = BrokerWatch(simulation)
        for at in range(20 * SECOND, micros(self.duration), SAMPLE_EVERY):
            simulation.engine.at(at, watch.sample)
        result = self.measured(simulation)
        result.metrics.update(watch.readings())
        return result


class BrokerWatch:
    """Reads the loads of all brokers at once; no broker has this view."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._since: dict[NodeId, Micros] = {}  # since when a broker has been overloaded needlessly
        self._samples: list[list[float]] = []
        self._needless = 0

    def sample(self, _: None) -> None:
        now = self._simulation.engine.now
        brokers = {number: self._brokerage(number) for number in BROKERS}
        self._samples.append([one.homes.processor.load() / 100 for one in brokers.values()])
        works = {number: _works(one, now) for number, one in brokers.items()}
        for number in BROKERS:
            if self._is_needless(number, works):
                self._since.setdefault(number, now)
            else:
                self._since.pop(number, None)
        self._needless += any(now - since > REACTION for since in self._since.values())

    def readings(self) -> dict[str, Figure]:
        count = len(self._samples)
        return {
            "load_max": max(max(loads) for loads in self._samples),
            "load_mean": sum(map(sum, self._samples)) / (count * len(BROKERS)),
            "overloaded_share": sum(max(loads) > 1 for loads in self._samples) / count,
            "needless_share": self._needless / count,
        }

    def _is_needless(self, number: NodeId, works: dict[NodeId, list[float]]) -> bool:
        if not _is_over(works[number]):
            return False
        least = [min(works[number])]
        room = [n for n in BROKERS if n != number and not _is_over(works[n] + least)]
        return bool(room) and not set(room).isdisjoint(self._simulation.links.connected(number))

    def _brokerage(self, number: NodeId) -> Brokerage:
        node = self._simulation.nodes[number]
        assert node is not None and isinstance(node.strategy, Opportunistic)
        assert node.strategy.broker is not None
        return node.strategy.broker


def _works(brokerage: Brokerage, now: Micros) -> list[float]:
    """Recent work of the modulators of each client at home here, as a share of the broker's capacity."""
    capacity = brokerage.homes.processor.capacity * SECOND
    return [row.work(now) / capacity for row in brokerage.clients.rows() if row.has_modulators]


def _is_over(works: list[float]) -> bool:
    return round(sum(works), 2) > THRESHOLD  # brokers announce loads in hundredths


# The gain over time.


class Timeline(Study, frozen=True):
    """The paper draws the average path between producers and consumers over time. Two runs of figure 10's
    scenario with the same seed have the same nodes in the same places at every instant; here the
    opportunistic approach is compared with the static one instant by instant."""

    READINGS: ClassVar[tuple[str, ...]] = ("gain_max", "gain_mean", "shorter_share")

    duration: Annotated[float, msgspec.Meta(ge=60, le=100_000)] = 600.0
    broker_discovery: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 10.0
    mode: Literal["opportunistic", "static"] = "opportunistic"

    def tables(self, seed: int) -> dict[str, Any]:
        settings = {
            "scenario.seed": seed,
            "scenario.duration": self.duration,
            "strategy.options.broker_discovery": self.broker_discovery,
            "strategy.options.mode": self.mode,
            # An instant has too few events: their ways by the brokers' tables, once every producer is known.
            "strategy.options.paths": "clients",
            "workload.rate": 0.05,
            "workload.stop": 30.0,
        }
        figure = FOLDER / "opportunistic" / "figures-10-12.toml"
        return with_settings(read_tables(figure)["scenario"], settings.items())

    def run(self, seed: int) -> RunResult:
        static = msgspec.structs.replace(self, mode="static").simulation(seed)
        simulation = self.simulation(seed)
        result = self.measured(simulation)
        lengths = [
            timeline(trace.of(PathsSampled), result.info.warmup)
            for trace in (static.run().trace, simulation.trace)
        ]
        result.metrics.update(gains(*lengths))
        return result


def gains(longer: Mapping[Micros, float], shorter: Mapping[Micros, float]) -> dict[str, Figure]:
    """The differences in hops, at the instants that both have."""
    found = [length - shorter[at] for at, length in sorted(longer.items()) if at in shorter]
    if not found:
        return dict.fromkeys(Timeline.READINGS)
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
