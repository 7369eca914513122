"""Modulators that misbehave in a broker are cut off and traced, and their owner is told; all others go on."""

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from roamcast.broker.core import Delivery
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.modulator import MODULATORS, Content, Modulator, ModulatorSpec
from roamcast.modulator.base import STATE_BYTES_MAX
from roamcast.runtime.meter import SimMeter
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic import Opportunistic
from roamcast.strategy.opportunistic.messages import INTERESTS_BYTES_MAX, SUBSCRIPTIONS_MAX
from roamcast.trace import Dropped, DropReason, HandedOff
from roamcast.units import SECOND, Micros, NodeId

EVENTS = 20
GOOD_UNTIL = 3  # events before a bad one shows what it is


def hang() -> Any:
    while True:
        pass


def fail() -> Any:
    raise ZeroDivisionError("as asked")


class BrokenMapping(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError


RUBBISH: dict[str, Callable[[], Any]] = {
    "raises": fail,
    "exits": lambda: sys.exit(1),
    "hangs": hang,
    "text": lambda: "rubbish",
    "event": lambda: Event(1, 1),
    "list": lambda: [Content({"a": 1})],
    "huge payload": lambda: Content({}, bytes(100_000)),
    "huge attributes": lambda: Content({str(n): "x" * 4_000 for n in range(30)}),
    "many attributes": lambda: Content({str(n): n for n in range(500)}),
    "attribute of no type": lambda: Content({"a": object()}),  # type: ignore[dict-item]
    "attribute without a name": lambda: Content({3: 4}),  # type: ignore[dict-item]
    "not a number": lambda: Content({"a": float("nan")}),
    "half a character": lambda: Content({"a": "\udc00"}),
    "payload of text": lambda: Content({}, "text"),  # type: ignore[arg-type]
    "topic of octets": lambda: Content({}, b"", b"topic"),  # type: ignore[arg-type]
    "long type": lambda: Content({}, b"", "", "t" * 1_000),
    "attributes that raise": lambda: Content(BrokenMapping(a=1)),
}


class BadParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    how: str = ""
    where: str = ""
    octets: int = 0
    salt: str = ""


class Bad(Modulator):
    """Does what a test wants, after some good events."""

    def __init__(self, parameters: BadParameters) -> None:
        self._parameters = parameters
        self._seen = 0

    def _bad(self, where: str) -> Any:
        if self._parameters.where == where and self._seen >= GOOD_UNTIL:
            return RUBBISH[self._parameters.how]()
        return None

    def process(self, event: Event) -> Content | None:
        bad = self._bad("process")
        self._seen += 1
        return Content({"seen": self._seen}) if bad is None else bad

    def cost(self, event: Event) -> Micros:
        return self._bad("cost") or 0

    def state(self) -> bytes:
        return self._bad("state") or self._seen.to_bytes(4, "big") + bytes(self._parameters.octets)

    def restore(self, state: bytes) -> None:
        self._seen = int.from_bytes(state[:4], "big")
        self._bad("restore")


class Dear(Modulator):
    """Says that it takes an hour."""

    def process(self, event: Event) -> Content | None:
        return Content({})

    def cost(self, event: Event) -> Micros:
        return 3_600 * SECOND


class RowNumbers(Modulator):
    """Answers with numpy's own numbers."""

    def process(self, event: Event) -> Content | None:
        return Content({"mean": np.float64(2.5)}, np.bytes_(b"x"))


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


for _name, _type, _make in (
    ("test bad", BadParameters, lambda _, parameters: Bad(parameters)),
    ("test dear", NoParameters, lambda _, parameters: Dear()),
    ("test numbers", NoParameters, lambda _, parameters: RowNumbers()),
):
    if _name not in MODULATORS.names():
        MODULATORS.add(_name, _type, _make)

GOOD: dict[str, Any] = {"name": "projection", "attributes": ["n"]}


class World:
    """Brokers 0 and 1, a producer, and consumers from 3 on with the subscriptions given for each."""

    def __init__(self, *modulators: list[dict[str, Any] | None]) -> None:
        nodes = 3 + len(modulators)
        subscriptions: list[dict[str, Any]] = []
        for node, mine in enumerate(modulators, start=3):
            subscriptions += [
                {"node": node, "modulator": one} if one is not None else {"node": node} for one in mine
            ]
        publications = [{"t": 15.0 + n, "node": 2, "attributes": {"n": n}} for n in range(EVENTS)]
        tables: dict[str, Any] = {
            "scenario": {"name": "bad", "duration": 100.0, "seed": 1},
            "world": {
                "nodes": nodes,
                "area": [200.0, 100.0],
                "range": 200.0,
                "mobility": {"model": "static", "positions": [[3.0 * n, 50.0] for n in range(nodes)]},
                "radio": {"model": "disk", "bitrate": 50_000_000},
            },
            "roles": {"brokers": [0, 1], "publishers": [2], "subscribers": []},
            "workload": {"publications": publications, "subscriptions": subscriptions},
            "underlay": {"name": "ideal"},
            "strategy": {"name": "opportunistic", "options": {"mode": "static"}},
        }
        self.simulation = Simulation(scenario_from(tables))
        self.simulation._meter = SimMeter(SECOND, hang_limit=SECOND // 10)
        self._got: dict[NodeId, list[Delivery]] = {node: [] for node in range(nodes)}
        for node, deliveries in self._got.items():
            self.simulation._applications[node].on_event = deliveries.append  # type: ignore[method-assign, assignment]

    def run(self, until: float) -> None:
        self.simulation.engine.run(int(until * SECOND))

    def relocate(self, client: NodeId, to: NodeId) -> None:
        for number in (0, 1):
            node = self.simulation.nodes[number]
            assert node is not None and isinstance(node.strategy, Opportunistic)
            assert node.strategy.broker is not None
            node.strategy.broker.clients.relocate(client, to)

    def failures(self, node: NodeId) -> list[tuple[int, str]]:
        """What the owner was told: subscription and problem."""
        told = [d.event for d in self._got[node] if d.event.type == "roamcast.modulator_failed"]
        return [(int(str(e.attributes["subscription"])), str(e.attributes["problem"])) for e in told]

    def drops(self, node: NodeId) -> list[str]:
        found = self.simulation.trace.of(Dropped)
        return [d.detail for d in found if d.reason is DropReason.MODULATOR and d.to == node]

    def others(self, node: NodeId, number: int) -> list[int]:
        """The node's subscriptions but for one."""
        at_node = self.simulation.nodes[node]
        assert at_node is not None
        return [one.number for one in at_node.broker.subscriptions() if one.number != number]

    def got(self, node: NodeId, number: int) -> list[Delivery]:
        return [d for d in self._got[node] if number in d.subscriptions and d.event.publisher == 2]


@pytest.mark.parametrize("where", ["process", "cost"])
def test_every_kind_of_rubbish_is_cut_off_and_told_once(where: str) -> None:
    """Each consumer has a bad one, a good one and a plain subscription, all in the same broker."""
    kinds = list(RUBBISH) if where == "process" else ["raises", "exits", "hangs", "text"]
    world = World(*([{"name": "test bad", "how": how, "where": where}, GOOD, None] for how in kinds))
    world.run(45.0)
    for node, how in enumerate(kinds, start=3):
        ((number, problem),) = world.failures(node)
        bad = world.got(node, number)
        assert [d.event.attributes["seen"] for d in bad] == list(range(1, GOOD_UNTIL + 1)), how
        assert world.drops(node) == [problem] and problem, how
        for other in world.others(node, number):
            assert [d.event.sequence for d in world.got(node, other)] == list(range(EVENTS)), how


def test_numbers_of_another_library_are_numbers() -> None:
    world = World([{"name": "test numbers"}])
    world.run(45.0)
    got = world.got(3, 0)
    assert len(got) == EVENTS and got[0].event.attributes == {"mean": 2.5} and got[0].event.payload == b"x"
    assert not world.failures(3)


def test_one_that_would_take_an_hour_keeps_nobody_waiting() -> None:
    world = World([{"name": "test dear"}], [GOOD])
    world.run(45.0)
    ((_, problem),) = world.failures(3)
    assert "cost is 3600000000 microseconds, the limit 1000000" in problem
    assert len(world.got(4, 1)) == EVENTS


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"how": "raises", "where": "state"}, "raised ZeroDivisionError when asked for its state"),
        ({"how": "hangs", "where": "state"}, "took too long when asked for its state"),
        ({"how": "text", "where": "state"}, "its state is no octets"),
        ({"octets": STATE_BYTES_MAX}, "more than 48000"),
        ({"how": "raises", "where": "restore"}, "raised ZeroDivisionError when given its state"),
        ({"how": "hangs", "where": "restore"}, "took too long when given its state"),
    ],
)
def test_a_state_that_cannot_move_stops_its_modulator_only(bad: dict[str, Any], problem: str) -> None:
    world = World([{"name": "test bad", **bad}, GOOD, {"name": "test bad"}])
    world.run(25.5)
    world.relocate(3, 1)
    world.run(45.0)
    assert [record.outcome for record in world.simulation.trace.of(HandedOff)] == ["moved"]
    ((number, told),) = world.failures(3)
    assert problem in told and world.drops(3) == [told]
    assert len(world.got(3, number)) == 11  # until it was moved
    seen = [[d.event.attributes for d in world.got(3, n)] for n in world.others(3, number)]
    assert [{"n": n} for n in range(EVENTS)] in seen
    assert [{"seen": n} for n in range(1, EVENTS + 1)] in seen


def test_large_states_of_several_modulators_all_move() -> None:
    """Together they are more than any datagram holds."""
    octets = STATE_BYTES_MAX - 4
    world = World([{"name": "test bad", "octets": octets, "salt": salt} for salt in "abcd"])
    world.run(25.5)
    world.relocate(3, 1)
    world.run(45.0)
    assert [record.outcome for record in world.simulation.trace.of(HandedOff)] == ["moved"]
    for number in range(4):
        seen = [d.event.attributes["seen"] for d in world.got(3, number)]
        assert seen == list(range(1, EVENTS + 1))
    assert not world.failures(3)


def test_more_subscriptions_than_a_home_broker_takes_are_refused_one_by_one() -> None:
    """Those taken work; the owners of the others hear of it, and no node stumbles over a message too long."""
    world = World([None])
    world.run(5.0)
    node = world.simulation.nodes[3]
    assert node is not None
    wide = Filter.sql(" OR ".join(f"name = '{n:06}{'x' * 50}'" for n in range(100)))
    assert 8 * len(wide.encode()) > INTERESTS_BYTES_MAX
    for number in range(10, 18):
        node.subscribe(number, wide)
    for number in range(100, 100 + SUBSCRIPTIONS_MAX):
        node.subscribe(number, Filter.sql("n = 5"))
    world.run(45.0)
    refused = [d.subscriptions[0] for d in world._got[3] if d.event.type == "roamcast.subscription_refused"]
    assert len(set(refused)) == len(refused) > 0
    assert set(range(10, 18)) & set(refused) and 10 not in refused
    assert [d.event.sequence for d in world.got(3, 0)] == list(range(EVENTS))


def test_a_modulator_that_nobody_has_registered_is_told_to_its_owner() -> None:
    world = World([None])
    world.run(5.0)
    node = world.simulation.nodes[3]
    assert node is not None
    node.subscribe(7, Filter.everything(), modulator=ModulatorSpec("none such"))
    world.run(45.0)
    ((number, problem),) = world.failures(3)
    assert number == 7 and "none such" in problem and "allowed" in problem
    assert len(world.got(3, 0)) == EVENTS
