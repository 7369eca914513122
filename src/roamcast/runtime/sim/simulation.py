"""One run: a scenario's plan, workload and faults, played over the nodes it describes."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from roamcast.broker.core import Delivery, Subscription
from roamcast.broker.judgement import is_right
from roamcast.host import Channel, Host
from roamcast.node import Node, NodeConfig
from roamcast.runtime.meter import SimMeter
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import Medium, MediumParts
from roamcast.runtime.sim.nodes import SimulatedNodes
from roamcast.runtime.sim.playback import Playback
from roamcast.scenario.model import Scenario, model_name
from roamcast.scenario.workload import (
    AdvertisementPlan,
    PublicationPlan,
    Roles,
    SubscriptionPlan,
    advertisements,
    publications,
    roles,
    subscriptions,
)
from roamcast.scenario.world import motion_of
from roamcast.strategy.base import LimitsModulators
from roamcast.streams import stream
from roamcast.trace import Delivered, PathsSampled, Subscribed, Trace
from roamcast.units import SECOND, Micros, NodeId, micros
from roamcast.world.radio import RADIOS
from roamcast.world.trajectory import Motion

PATH_SAMPLES_MAX = 120  # per run; chosen by us: a finer metric against time for the searches
PATH_PAIRS_MAX = 120_000_000  # per run, likewise; one search goes over all pairs of nodes
MODULATOR_LIMIT_S = 1.0  # chosen by us; not used by a strategy that has an option `modulator_limit`


@dataclass(frozen=True)
class SimulationResult:
    """What a run leaves behind."""

    scenario: Scenario
    roles: Roles
    trace: Trace
    sim_events: int
    wall_s: float


class Simulation:
    """Builds the world and its nodes; `run` plays it to the end. Progress goes to `on_progress`."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._roles = roles(scenario)
        self.engine = Engine()
        self.engine.end = scenario.duration
        self.trace = Trace()
        self._motion: Motion | None = motion_of(scenario)
        self.playback = Playback(scenario, self.engine, self.trace.add, self, self._motion)
        self.links = self.playback.links
        self.medium = _medium(scenario, self.engine, self.playback, self.trace)
        self._applications = [WorkloadApplication(self, node) for node in range(scenario.nodes)]
        self._config = NodeConfig(
            scenario.strategy.name,
            scenario.strategy.parsed(),
            scenario.underlay.name,
            scenario.underlay.parsed(),
        )
        options = self._config.strategy_options
        limit = options.modulator_limit if isinstance(options, LimitsModulators) else MODULATOR_LIMIT_S
        self._meter = SimMeter(micros(limit))
        paths = None if self._motion is None else self._motion.trajectories
        self._simulated = SimulatedNodes(
            self._make, self.engine, self.links, self.medium, self.trace, scenario.seed, paths
        )
        self.nodes = self._simulated.nodes
        self.engine.at(0, self._simulated.boot_all)
        for subscription in subscriptions(scenario):
            self.engine.at(subscription.since, self._subscribe, subscription)
            if subscription.until is not None:
                self.engine.at(subscription.until, self._unsubscribe, subscription)
        self._path_instants = iter(path_instants(scenario.warmup, scenario.duration, scenario.nodes))
        self._schedule_paths()
        for advertisement in advertisements(scenario):
            self.engine.at(advertisement.since, self._advertise, advertisement)
            if advertisement.until is not None:
                self.engine.at(advertisement.until, self._withdraw, advertisement)
        planned = publications(scenario)
        self.engine.in_turn(((publication.time, publication) for publication in planned), self._publish)

    def run(self, on_progress: Callable[[float], None] | None = None) -> SimulationResult:
        """Play the whole scenario; `on_progress` is called a hundred times with the share that is done."""
        began = time.perf_counter()
        duration = self._scenario.duration
        steps = 100 if on_progress else 1
        with _without_cycle_collection():
            for step in range(1, steps + 1):
                self.engine.run(duration * step // steps)
                if on_progress:
                    on_progress(step / steps)
        wall_s = time.perf_counter() - began
        return SimulationResult(self._scenario, self._roles, self.trace, self.engine.executed, wall_s)

    def _make(self, number: NodeId, host: Callable[[Channel], Host]) -> Node:
        config = self._config._replace(is_broker=number in self._roles.brokers)
        return Node(config, host, self._applications[number], self.links, meter=self._meter)

    # The workload.

    def _subscribe(self, plan: SubscriptionPlan) -> None:
        wanted = Subscription(plan.subscription, plan.filter, modulator=plan.modulator)
        self._applications[plan.node].subscriptions[plan.subscription] = wanted
        node = self.nodes[plan.node]
        if node is not None:
            node.subscribe(plan.subscription, plan.filter, modulator=plan.modulator)
        else:  # the subscription stands although the device is down; the restart passes it to the node
            self.trace.add(Subscribed(self.engine.now, plan.node, plan.subscription, str(plan.filter), True))

    def _unsubscribe(self, plan: SubscriptionPlan) -> None:
        del self._applications[plan.node].subscriptions[plan.subscription]
        node = self.nodes[plan.node]
        if node is not None:
            node.unsubscribe(plan.subscription)
        else:
            self.trace.add(Subscribed(self.engine.now, plan.node, plan.subscription, "", False))

    def _advertise(self, plan: AdvertisementPlan) -> None:
        self._applications[plan.node].advertised.append(plan.type)
        node = self.nodes[plan.node]
        if node is not None:
            node.advertise(plan.type)

    def _withdraw(self, plan: AdvertisementPlan) -> None:
        self._applications[plan.node].advertised.remove(plan.type)
        node = self.nodes[plan.node]
        if node is not None:
            node.withdraw(plan.type)

    def _publish(self, plan: PublicationPlan) -> None:
        node = self.nodes[plan.node]
        if node is not None:  # a device that is down publishes nothing
            node.publish(plan.publication)

    # The world.

    def _schedule_paths(self) -> None:
        instant = next(self._path_instants, None)
        if instant is not None:
            self.engine.at(instant, self._sample_paths)

    def _sample_paths(self, _: None) -> None:
        sample = _sampled_overlay(self.nodes, self.links, self.engine.now)
        if sample is not None:
            self.trace.add(sample)
            self._schedule_paths()

    def on_link(self, sender: NodeId, receiver: NodeId, up: bool) -> None:
        """A link counts while both directions work: a change of one is reported if the other works."""
        if up == (self.links.hears(sender, receiver) and self.links.hears(receiver, sender)):
            self._simulated.report_link(sender, receiver, up)

    def on_crash(self, number: NodeId) -> None:
        self._simulated.crash(number)

    def on_restart(self, number: NodeId) -> None:
        node = self._simulated.restart(number)
        # The application starts again with its device, and still wants what it wanted.
        for _, subscription in sorted(self._applications[number].subscriptions.items()):
            node.broker.subscribe(subscription)
        for type in self._applications[number].advertised:
            node.advertise(type)


class WorkloadApplication:
    """The application of a simulated node: it knows what it wants and writes down what it gets."""

    def __init__(self, simulation: Simulation, node: NodeId) -> None:
        self.subscriptions: dict[int, Subscription] = {}
        self.advertised: list[str] = []
        self._engine = simulation.engine
        self._delivered = simulation.trace.of(Delivered)
        self._node = node

    def on_event(self, delivery: Delivery) -> None:
        event, _, hops, _ = delivery
        node, publisher = self._node, event.publisher
        if publisher == node:
            return  # no metric counts an application's own events
        matched = is_right(delivery, node, self.subscriptions)
        self._delivered.append(Delivered(self._engine.now, node, publisher, event.sequence, hops, matched))


def _medium(scenario: Scenario, engine: Engine, playback: Playback, trace: Trace) -> Medium:
    radio, random = scenario.world.radio, stream(scenario.seed, "radio")
    medium: type[Medium] = RADIOS.maker(model_name(radio))
    return medium.of(
        MediumParts(engine, playback.links, playback.sensed, trace, random, scenario.seed), radio
    )


def path_instants(warmup: Micros, duration: Micros, nodes: int) -> range:
    """When the lengths of paths are sampled: at evenly spaced instants of [warmup, duration), one a second,
    but at most 120, and fewer where more than 1,000 nodes have so many pairs that those would take longer
    than the run itself."""
    samples = max(1, min(PATH_SAMPLES_MAX, PATH_PAIRS_MAX // nodes**2))
    step = max(SECOND, -(-(duration - warmup) // samples))
    return range(warmup, max(duration, warmup + 1), step)


def _sampled_overlay(nodes: Iterable[Node | None], links: RadioLinks, now: Micros) -> PathsSampled | None:
    """The lengths of all overlay paths that the nodes know, each leg by the shortest physical path. Paths
    with a leg that has no physical path are left out. None where the strategy has no overlay."""
    pairs = hops = 0
    for node in nodes:
        if node is None:
            continue
        paths = node.strategy.overlay_paths()
        if paths is None:
            return None
        for path in paths:
            length = 0
            for leg in pairwise(path):
                away = links.distance(*leg)
                if away is None:
                    break
                length += away
            else:
                pairs, hops = pairs + 1, hops + length
    return PathsSampled(now, "overlay", pairs, hops)


@contextmanager
def _without_cycle_collection() -> Iterator[None]:
    """A run allocates millions of small objects and leaves no cycles; the collector only costs time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
