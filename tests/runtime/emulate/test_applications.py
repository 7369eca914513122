"""The workload as applications play it, without nodes: nobody answers at the sockets here."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from roamcast.client import Message
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.modulator import ModulatorSpec
from roamcast.runtime.emulate.applications import NodeApplication, actions, play
from roamcast.runtime.emulate.real_time import monotonic
from roamcast.runtime.emulate.stage import PartJournal, read_journal
from roamcast.scenario import Scenario, scenario_from
from roamcast.scenario.workload import SubscriptionPlan
from roamcast.units import SECOND


def scenario(duration: float = 0.2) -> Scenario:
    return scenario_from(
        {
            "scenario": {"name": "s", "duration": duration},
            "world": {"nodes": 2, "area": [1.0, 1.0], "range": 9.0, "mobility": {"model": "static"}},
            "workload": {
                "subscriptions": [
                    {"node": 1, "filter": "a > 1", "from": 0.1},
                    {"node": 0, "filter": "a > 2", "until": 0.1},
                ],
                "publications": [{"t": 0.1, "node": 0}, {"t": 0.05, "node": 1}],
            },
            "strategy": {"name": "flooding"},
        }
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[PartJournal]:
    journal = PartJournal(tmp_path / "log")
    yield journal
    journal.close()


def application(node: int, journal: PartJournal) -> NodeApplication:
    began = monotonic()
    return NodeApplication(node, Path("no-such-socket"), journal, lambda: monotonic() - began)


def test_actions_come_by_time_and_subscriptions_before_events_of_the_same_instant(
    journal: PartJournal,
) -> None:
    applications = [application(node, journal) for node in range(2)]
    planned = actions(scenario(), applications)
    assert [moment for moment, _ in planned] == [0, 50_000, 100_000, 100_000, 100_000]
    names = [act.func.__name__ for _, act in planned]  # type: ignore[attr-defined]
    assert names == ["subscribe", "publish", "unsubscribe", "subscribe", "publish"]


def test_a_device_that_is_down_publishes_nothing_but_its_users_wishes_stand(
    tmp_path: Path, journal: PartJournal
) -> None:
    applications = [application(node, journal) for node in range(2)]
    began = monotonic()
    asyncio.run(play(scenario(), applications, lambda: monotonic() - began))
    journal.flush()
    assert monotonic() - began >= SECOND // 5
    lines = [line for line in read_journal(tmp_path / "log") if line[0] != "subscriptions" or line[2] == 0]
    assert [(line[0], line[3], line[5]) for line in lines] == [
        ("subscriptions", 1, True),
        ("subscriptions", 1, False),
    ]


def test_an_event_for_two_subscriptions_is_one_delivery_and_a_repeat_is_two(
    tmp_path: Path, journal: PartJournal
) -> None:
    receiver = application(0, journal)
    for number in range(2):
        plan = SubscriptionPlan(0, number, Filter.sql(f"a > {number}"), 0, None)
        asyncio.run(receiver.subscribe(plan))
    first, second = (receiver._wanted[number] for number in range(2))
    receiver._on_message(Message(Event(1, 7, {"a": 5}), 2), first)
    receiver._on_message(Message(Event(1, 7, {"a": 5}), 2), second)  # the same, for the second subscription
    receiver._on_message(Message(Event(1, 7, {"a": 5}), 2), first)  # the node handed it over once more
    receiver._on_message(Message(Event(1, 8, {"a": 1}), 1), second)  # matches only the first
    receiver._on_message(Message(Event(1, 9, {}, destinations=(0,)), 1), None)  # names the node
    receiver._on_message(Message(Event(0, 9, {"a": 5}), 0), first)  # its own
    assert delivered(tmp_path, journal) == [
        [0, 1, 7, 2, True],
        [0, 1, 7, 2, True],
        [0, 1, 8, 1, False],
        [0, 1, 9, 1, True],
    ]


def test_a_modulators_product_is_a_right_delivery_beside_the_event_itself(
    tmp_path: Path, journal: PartJournal
) -> None:
    receiver = application(0, journal)
    projection = ModulatorSpec.of("projection", {"attributes": ["b"]})
    for number, modulator in enumerate((None, projection)):
        plan = SubscriptionPlan(0, number, Filter.sql("a > 1"), 0, None, modulator)
        asyncio.run(receiver.subscribe(plan))
    receiver._on_message(Message(Event(1, 7, {"a": 5, "b": 6}), 2), receiver._wanted[0])
    receiver._on_message(Message(Event(1, 7, {"b": 6}), 2), receiver._wanted[1])
    assert delivered(tmp_path, journal) == [[0, 1, 7, 2, True], [0, 1, 7, 2, True]]


def delivered(folder: Path, journal: PartJournal) -> list[list[object]]:
    journal.flush()
    return [line[2:] for line in read_journal(folder / "log") if line[0] == "deliveries"]


def test_a_journal_passes_over_a_line_that_a_kill_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "log"
    journal = PartJournal(path)
    journal.write("a", 1)
    journal.write("b", [2, 3], None)
    journal.close()
    whole = path.read_bytes()
    for cut in range(len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert list(read_journal(path)) == ([["a", 1]] if cut >= 8 else [])
    assert list(read_journal(tmp_path / "never begun")) == []


def test_nobody_answers_and_the_application_gives_up(journal: PartJournal) -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(application(0, journal).connect(wait=0.15))
