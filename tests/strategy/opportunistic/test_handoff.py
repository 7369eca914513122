"""Handoffs under bad weather: nothing lost, doubled or out of order, and modulators as in a quiet run."""

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.strategy.opportunistic.schedules import play

from roamcast.strategy.opportunistic.handoff.destination import Destination
from roamcast.strategy.opportunistic.homes import HomeClient, Homes
from roamcast.strategy.opportunistic.messages import MovedMessage
from roamcast.units import SECOND, Micros, NodeId

pytestmark = pytest.mark.long

BATCH = 10


LAST_EVENT = 37 * SECOND  # none is published later, unless a schedule begins later


@pytest.mark.parametrize("first", range(0, 100, BATCH))
def test_random_schedules_lose_double_and_reorder_nothing(first: int) -> None:
    outcomes: Counter[str] = Counter()
    late = 0
    for seed in range(first, first + BATCH):
        outcome = play(seed)
        assert not outcome.problems, f"schedule {seed}: {outcome.problems[0]}"
        assert outcome.deliveries > 0
        outcomes += outcome.outcomes
        late += outcome.late
    assert outcomes["moved"] > BATCH and late <= 1  # else the above proves nothing


@pytest.mark.parametrize("seed", range(4))
def test_many_brokers_that_events_are_flooded_to(seed: int) -> None:
    outcome = play(seed, many=True)
    assert not outcome.problems, f"schedule {seed}: {outcome.problems[0]}"
    assert outcome.deliveries > 0 and outcome.late <= 1


@pytest.mark.parametrize("first", [0, 10])
def test_with_the_default_timeouts_all_is_as_without_handoffs(first: int) -> None:
    """Links are cut for up to 15 s, and `home_timeout` is 10 s: a client may choose another home by itself,
    which then asks the one that was given up for the modulators."""
    for seed in range(first, first + 10):
        problems = play(seed, defaults=True).problems
        assert not problems, f"schedule {seed}: {problems[0]}"


@pytest.mark.parametrize("seed", [222, 30_089, 40_008])
def test_schedules_with_the_default_timeouts_that_once_failed(seed: int) -> None:
    """5, above: a handoff to a broker was under way when the client chose that broker by itself. 222: the
    same with a third broker. 30089: the client was on its way to one that could not be reached.
    40008: routes took longer to heal than the new home waited."""
    assert play(seed, defaults=True).problems == []


def test_a_home_that_had_some_of_a_producers_events_does_not_call_them_all() -> None:
    """Two homes of a producer each had some; the one that was asked said that this was all there is."""
    assert play(40).problems == []


@pytest.mark.parametrize("seed", [38, 124, 150, 418])
def test_schedules_that_once_failed(seed: int) -> None:
    """38: a destination that is a producers' broker itself and has not switched. 150: the word of a broker
    that switched back comes before the source's own. 418: a late answer to an earlier attempt. 124: its
    cause was not traced apart from the others."""
    assert play(seed, plain=True).problems == []


@pytest.mark.parametrize("seed", [60_614, 60_788, 30_025, 700_163])
def test_loose_schedules_that_once_failed(seed: int) -> None:
    """60614: events that came while the processor was busy were run after the state was taken, and delivered
    under numbers that the destination used, too. 60788: a broker waited for a client that had moved on.
    30025: a second copy of the messages that had brought a client was taken for another coming, after the
    client had moved on. 700163: what a client wants was told while it was about to leave, and its home read
    on for it: one event was run behind the state that had left."""
    assert play(seed, handoff="loose").problems == []


def test_a_loose_handoff_that_a_partition_delays_for_twenty_seconds_loses_nothing() -> None:
    """It once failed for the cause of 30025. Then because the message with client 6 had come before its turn:
    the twenty seconds that it waited there were not counted, so its subscriptions seemed younger."""
    assert play(30_129, handoff="loose").problems == []


@pytest.mark.parametrize("seed", [4218, 5149])
def test_clients_that_once_came_too_late(seed: int) -> None:
    """With 30 % loss, one client found its first broker after the first events."""
    outcome = play(seed)
    assert (outcome.late, outcome.problems) == (0, [])


def test_a_client_that_is_on_its_way_is_judged_when_it_has_arrived() -> None:
    """With 30 % loss, a handoff that a broker began after the last event took 8.8 s."""
    assert play(61_065).problems == []


def test_a_client_that_never_arrives_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """What brings a client after the last event is not heard by its destination. Not every schedule has such
    a handoff."""
    on_moved = Destination.on_moved

    def deaf(self: Destination, source: NodeId, message: MovedMessage, held: Micros) -> None:
        if self._host.now() <= LAST_EVENT:
            on_moved(self, source, message, held)

    monkeypatch.setattr(Destination, "on_moved", deaf)
    assert any("at home in 0 brokers" in problem for problem in problems_of_many())


def test_a_state_that_is_lost_on_the_way_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same after the last event, with modulators that begin anew: no product shows it."""
    enter = Homes.enter

    def anew(
        self: Homes,
        client: HomeClient,
        cursors: list[tuple[NodeId, int]],
        states: dict[int, bytes] | None = None,
    ) -> None:
        enter(self, client, cursors, None if self._host.now() > LAST_EVENT else states)

    monkeypatch.setattr(Homes, "enter", anew)
    assert any("state differs from a sequential run's" in problem for problem in problems_of_many())


def problems_of_many() -> Iterator[str]:
    for seed in range(61_000, 61_060):
        yield from play(seed).problems
