"""Partitions: what cannot be delivered waits as long as the application wants, and then comes in order, once.

Also memorized events, which a later subscriber gets from the brokers of their producers.
"""

from typing import Any

import pytest

from roamcast.broker.core import Delivery
from roamcast.errors import InputError
from roamcast.event import Event
from roamcast.runtime.sim import Simulation
from roamcast.scenario.load import scenario_from
from roamcast.strategy.opportunistic.options import DISCARDS, OpportunisticOptions
from roamcast.trace import Dropped, DropReason
from roamcast.units import SECOND, Micros

PRODUCER, NEAR, FAR, CONSUMER, LATE = range(5)


def line(
    publications: list[dict[str, Any]],
    *,
    cut: tuple[int, int] | None = (NEAR, FAR),
    since: float = 20.0,
    until: float = 40.0,
    subscriptions: list[dict[str, Any]] | None = None,
    **options: Any,
) -> tuple[Simulation, dict[int, list[Delivery]]]:
    """0 - 1 - 2 - 3, and 4 beside 3: a producer, two brokers, two consumers. One link is cut for a while."""
    positions = [[0.0, 50.0], [100.0, 50.0], [200.0, 50.0], [300.0, 50.0], [290.0, 100.0]]
    faults: list[dict[str, Any]] = []
    if cut is not None:
        faults.append({"at": since, "kind": "cut", "links": [list(cut)]})
        faults.append({"at": until, "kind": "heal", "links": [list(cut)]})
    tables: dict[str, Any] = {
        "scenario": {"name": "line", "duration": 200.0, "seed": 1},
        "world": {
            "nodes": 5,
            "area": [400.0, 200.0],
            "range": 110.0,
            "mobility": {"model": "static", "positions": positions},
            "radio": {"model": "disk", "bitrate": 2_000_000, "loss": 0.1},
        },
        "roles": {"brokers": [NEAR, FAR], "publishers": [PRODUCER], "subscribers": []},
        "workload": {
            "publications": publications,
            "subscriptions": [{"node": CONSUMER}] if subscriptions is None else subscriptions,
        },
        "underlay": {"name": "ideal"},
        "strategy": {
            "name": "opportunistic",
            "options": {"broker_update": 10.0, "broker_discovery": 5.0, **options},
        },
        "fault": faults,
    }
    simulation = Simulation(scenario_from(tables))
    got: dict[int, list[Delivery]] = {node: [] for node in range(5)}
    for node, application in enumerate(simulation._applications):
        application.on_event = got[node].append  # type: ignore[method-assign, assignment]
    return simulation, got


def every_second(since: int, until: int, **more: Any) -> list[dict[str, Any]]:
    return [{"t": float(t), "node": PRODUCER, "attributes": {"t": t}, **more} for t in range(since, until)]


def expired(simulation: Simulation) -> list[int]:
    return [
        drop.sequence
        for drop in simulation.trace.of(Dropped)
        if drop.reason is DropReason.EXPIRED and drop.sequence is not None
    ]


def moments(deliveries: list[Delivery]) -> list[int]:
    found = [delivery.event.attributes["t"] for delivery in deliveries]
    return [t for t in found if isinstance(t, int)]


def test_events_wait_behind_a_partition_and_come_in_order_and_once() -> None:
    simulation, got = line(every_second(15, 50))
    simulation.engine.run(39 * SECOND)
    assert moments(got[CONSUMER])[-1] == 19 or len(got[CONSUMER]) < 6  # nothing passes the cut
    before = len(got[CONSUMER])
    simulation.engine.run(70 * SECOND)
    assert moments(got[CONSUMER]) == list(range(15, 50)) and len(got[CONSUMER]) > before + 20


def test_real_time_events_wait_for_keep_realtime_and_no_longer() -> None:
    """Cut from 20 to 60 s and kept for 15 s: what was published before 40 s or so is over, the rest comes."""
    # Messages that are given up are traced.
    simulation, got = line(every_second(15, 70), until=60.0, keep_realtime=15.0, dissemination="overlay")
    simulation.engine.run(100 * SECOND)
    have = moments(got[CONSUMER])
    missing = [t for t in range(15, 70) if t not in have]
    # The look through what waits comes every 5 s, so some may wait up to 5 s longer than they must.
    assert set(range(20, 40)) <= set(missing) <= set(range(20, 45))
    assert have == sorted(t for t in range(15, 70) if t not in missing)
    assert set(expired(simulation)) >= {t - 15 for t in missing}


def test_memorized_events_wait_for_their_lifetime() -> None:
    publications = every_second(21, 23, **{"class": "memorized", "lifetime": 15.0})
    publications += every_second(23, 25, **{"class": "memorized", "lifetime": 60.0})
    simulation, got = line(publications, until=50.0, keep_realtime=1.0)
    simulation.engine.run(80 * SECOND)
    assert moments(got[CONSUMER]) == [23, 24]


def test_a_producer_s_own_events_do_not_wait_for_ever_either() -> None:
    """Cut between the producer and its home: they wait in the producer, by the same rule."""
    simulation, got = line(
        every_second(15, 70), cut=(PRODUCER, NEAR), until=60.0, keep_realtime=15.0, home_timeout=200.0
    )
    simulation.engine.run(100 * SECOND)
    have = moments(got[CONSUMER])
    missing = [t for t in range(15, 70) if t not in have]
    assert set(range(20, 40)) <= set(missing) <= set(range(20, 45))
    assert have == sorted(have)


def test_an_application_s_discard_function_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Micros] = []

    def odd_ones_matter(event: Event, age: Micros, options: OpportunisticOptions) -> bool:
        asked.append(age)
        value = event.attributes["t"]
        assert isinstance(value, int)
        return value % 2 == 0

    monkeypatch.setitem(DISCARDS, "odd ones matter", odd_ones_matter)
    simulation, got = line(every_second(15, 50), discard="odd ones matter", dissemination="overlay")
    simulation.engine.run(80 * SECOND)
    have = moments(got[CONSUMER])
    # The last ones before the way opens are asked about only if the look every 5 s falls between.
    assert [t for t in range(15, 50) if t not in have] == [t for t in range(20, 34) if t % 2 == 0] + [
        t for t in range(34, 40) if t % 2 == 0 and t not in have
    ]
    assert set(range(15, 50, 2)) <= set(have) and have == sorted(have)
    # Asked about events that wait, not about those on their way.
    assert asked and min(asked) > 0


def test_a_discard_function_that_raises_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DISCARDS, "broken", lambda event, age, options: 1 / 0 > 0)
    simulation, got = line(every_second(15, 50), discard="broken")
    simulation.engine.run(80 * SECOND)
    assert moments(got[CONSUMER]) == list(range(15, 50))


def test_an_unknown_discard_function_is_one_line() -> None:
    with pytest.raises(InputError, match=r"discard.*allowed: lifetime, realtime"):
        line([], discard="none such")


MEMORIZED = {"class": "memorized", "lifetime": 100.0}


@pytest.mark.parametrize("late", [LATE, FAR, NEAR], ids=["client", "broker", "the producer's broker"])
def test_a_later_subscriber_gets_what_is_memorized_and_has_not_expired(late: int) -> None:
    """Real-time events of before are not for it. A second subscription, with a modulator, gets them, too."""
    publications = [
        *every_second(15, 18, **MEMORIZED),
        *every_second(18, 20),
        *every_second(20, 22, **{"class": "memorized", "lifetime": 5.0}),
        *every_second(40, 42),
    ]
    subscriptions: list[dict[str, Any]] = [
        {"node": CONSUMER},
        {"node": late, "from": 30.0},
        {"node": late, "from": 31.0, "modulator": {"name": "projection", "attributes": ["t"]}},
    ]
    simulation, got = line(publications, cut=None, subscriptions=subscriptions)
    simulation.engine.run(60 * SECOND)
    assert moments(got[CONSUMER]) == [15, 16, 17, 18, 19, 20, 21, 40, 41]
    assert moments([d for d in got[late] if not d.modulated]) == [15, 16, 17, 40, 41]
    assert moments([d for d in got[late] if d.modulated]) == [15, 16, 17, 40, 41]


def test_a_subscriber_behind_a_partition_gets_the_memorized_events_afterwards() -> None:
    """It subscribes while it is cut off from the producer's broker."""
    subscriptions: list[dict[str, Any]] = [{"node": CONSUMER}, {"node": LATE, "from": 25.0}]
    simulation, got = line(every_second(15, 20, **MEMORIZED), subscriptions=subscriptions)
    simulation.engine.run(39 * SECOND)
    kept_near = moments(got[LATE])
    simulation.engine.run(70 * SECOND)
    assert moments(got[LATE]) == [15, 16, 17, 18, 19]
    assert len(kept_near) <= 5


def test_an_event_for_a_node_by_name_finds_it_although_it_has_subscribed_to_nothing() -> None:
    """Such a node is at home nowhere. What is for a node behind a partition waits like the rest."""
    publications = every_second(15, 25, to=[LATE, NEAR, PRODUCER])
    simulation, got = line(publications, subscriptions=[])
    simulation.engine.run(39 * SECOND)
    assert moments(got[NEAR]) == list(range(15, 25)) == moments(got[PRODUCER])
    assert len(got[LATE]) < 7
    simulation.engine.run(70 * SECOND)
    assert moments(got[LATE]) == list(range(15, 25)) and not got[CONSUMER]


def test_many_memorized_events_that_two_brokers_have_are_run_once_for_a_later_modulator() -> None:
    """The far broker has them as a consumer and serves them, too; the others' copies come when the window of
    what was handled has long passed them. The aggregate would count them twice."""
    publications = [
        {"t": 12.0 + 0.05 * n, "node": PRODUCER, "attributes": {"t": n}, **MEMORIZED} for n in range(300)
    ]
    publications += [{"t": 60.0 + n, "node": PRODUCER, "attributes": {"t": 1_000}} for n in range(10)]
    modulator = {"name": "aggregate", "attribute": "t", "every": 310}
    subscriptions: list[dict[str, Any]] = [
        {"node": FAR},
        {"node": LATE, "from": 40.0, "modulator": modulator},
    ]
    simulation, got = line(publications, cut=None, subscriptions=subscriptions)
    simulation.engine.run(80 * SECOND)
    assert len(got[FAR]) == 310
    (product,) = got[LATE]
    assert product.event.attributes["sum"] == sum(range(300)) + 10_000
