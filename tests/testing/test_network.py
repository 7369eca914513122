"""The harness that plug-in authors get: it plays links, crashes and loss, and notices what is wrong."""

import inspect
import subprocess
import sys

import pytest

from roamcast.host import Frame, Kind
from roamcast.strategy import STRATEGIES, Strategy, StrategyContext
from roamcast.strategy.flooding import Flooding, FloodingOptions
from roamcast.testing import Arrival, Network, line, mesh
from roamcast.units import NodeId


def test_events_follow_the_links_that_stand() -> None:
    network = Network(3, "flooding", links=line(3))
    network.subscribe(2, "level > 3")
    network.publish(0, {"level": 5})
    network.publish(0, {"level": 1})
    network.run(1.0)
    assert network.delivered == [Arrival(2, 0, 0)] and network.misdelivered == []
    network.cut((1, 2))
    network.publish(0, {"level": 6})
    network.run(1.0)
    network.connect((0, 2))
    network.publish(0, {"level": 7})
    network.run(1.0)
    assert network.delivered == [Arrival(2, 0, 0), Arrival(2, 0, 3)]
    assert len(network.payloads()) == len(network.frames())


def test_a_crash_loses_what_is_volatile_and_a_restart_renews_the_subscriptions() -> None:
    network = Network(2, "flooding", links=line(2))
    network.subscribe(1)
    first = network.publish(0)
    network.run(1.0)
    network.crash(0)
    network.crash(1)
    network.run(1.0)
    network.restart(0)
    network.restart(1)
    later = network.publish(0)
    network.run(1.0)
    assert later.sequence > first.sequence, "sequence numbers are stable"
    assert network.delivered == [Arrival(1, 0, first.sequence), Arrival(1, 0, later.sequence)]


def test_loss_loses_and_the_seed_decides() -> None:
    def arrivals(seed: int) -> list[Arrival]:
        network = Network(2, "flooding", links=line(2), loss=0.5, seed=seed)
        network.subscribe(1)
        for _ in range(40):
            network.publish(0)
        network.run(1.0)
        return network.delivered

    assert 5 < len(arrivals(1)) < 35
    assert arrivals(1) == arrivals(1) != arrivals(2)


def test_an_underlay_may_be_named() -> None:
    network = Network(4, "epidemic", links=mesh(4), underlay="ideal")
    network.run(0.0)
    assert network.node(0).underlay.neighbours() == [1, 2, 3]


class Wanton(Strategy):
    """Hands every frame to the application, wanted or not, again and again: what the suites must notice."""

    def __init__(self, context: StrategyContext, options: FloodingOptions) -> None:
        self._context = context

    def publish(self, event: object) -> None:
        self._context.host.broadcast(Frame(b"x", Kind.DATA, "wanton"))

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        raise ValueError(f"cannot read {payload!r}")


def test_the_suite_fails_a_strategy_that_breaks_its_promises() -> None:
    from roamcast.testing.contract import BestEffortContract

    class Suite(BestEffortContract):
        strategy = "wanton"
        formed = 1.0

    STRATEGIES.add("wanton", FloodingOptions, Wanton, survives_cut=True)
    try:
        failed = []
        given = {"loss": 0.0, "seed": 5, "promise": "survives_cut"}
        for name in [name for name in dir(Suite) if name.startswith("test_") and "loss" not in name]:
            try:
                test = getattr(Suite(), name)
                test(**{key: given[key] for key in inspect.signature(test).parameters})
            except (AssertionError, ValueError):
                failed.append(name)
    finally:
        STRATEGIES.remove("wanton")
    assert len(failed) >= 5, failed


@pytest.mark.parametrize("promise", ["survives_cut", "survives_crash", "survives_full", "survives_leave"])
def test_the_suite_fails_a_strategy_that_promises_more_than_it_keeps(promise: str) -> None:
    from roamcast.testing.contract import BestEffortContract

    class Suite(BestEffortContract):
        strategy = "boaster"
        formed = 1.0

    STRATEGIES.add("boaster", FloodingOptions, Flooding, **{promise: True})
    try:
        with pytest.raises(AssertionError):
            Suite().test_what_it_promises_for_memorized_events(promise, 1)
    finally:
        STRATEGIES.remove("boaster")


def test_pytest_is_needed_by_the_suites_alone() -> None:
    script = "import sys, roamcast.testing\nassert 'pytest' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", script], check=True)
