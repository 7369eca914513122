"""Broadcasts that nobody acknowledges, what was missed of them, and how fast it is sent again."""

from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st

from roamcast.event import Event, EventId
from roamcast.host import Kind, Layer, SendFailure, TimerName
from roamcast.strategy.tree.content import ContentOptions, Forwarding
from roamcast.strategy.tree.content.carrier import Carrier
from roamcast.strategy.tree.content.gaps import ASKED_MAX, GAP_MAX, TRIES, HeardCasts, SentCasts
from roamcast.strategy.tree.content.messages import (
    CODEC,
    Cast,
    ContentMessage,
    MissedBroadcasts,
    Routed,
    Tally,
)
from roamcast.strategy.tree.content.pace import PER_SECOND_MAX, PER_SECOND_MIN, SAVED_MAX, RecoveryPace
from roamcast.strategy.tree.content.recent import EventCopy
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId


class Sent:
    def __init__(
        self,
        to: tuple[NodeId, ...],
        message: ContentMessage,
        on_failure: Callable[[SendFailure], None] | None,
    ) -> None:
        self.to = to
        self.message = message
        self.on_failure = on_failure


class Bench(Layer):
    """A carrier with two tree links, to 1 and 2, and a radio that the test plays."""

    def __init__(self, **options: object) -> None:
        self.host = FakeHost(0)
        self.host.attach(self)
        self.sent: list[Sent] = []
        self.given_up: list[NodeId] = []
        chosen = ContentOptions(**options)  # type: ignore[arg-type]
        self.carrier = Carrier(self.host, chosen, 10 * MILLISECOND, self)
        self.carrier.attach(self)
        self.carrier.on_link_up(1)
        self.carrier.on_link_up(2)

    def on_timer(self, name: TimerName) -> None:
        assert isinstance(name, tuple)
        self.carrier.on_timer(name[1], name[2])

    # The overlay.

    def send(
        self,
        neighbour: NodeId,
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
        on_failure: Callable[[SendFailure], None] | None = None,
    ) -> None:
        decoded: ContentMessage = CODEC.decode(payload)
        self.sent.append(Sent((neighbour,), decoded, on_failure))

    def spread(
        self,
        neighbours: Iterable[NodeId],
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
    ) -> None:
        decoded: ContentMessage = CODEC.decode(payload)
        self.sent.append(Sent(tuple(neighbours), decoded, None))

    # The owner.

    def on_sent(self, neighbour: NodeId, event: EventId) -> None:
        """Not here."""

    def on_not_sent(self, neighbour: NodeId, event: EventId) -> None:
        """Not here."""

    def on_given_up(self, neighbour: NodeId, event: EventId) -> None:
        self.given_up.append(neighbour)

    def of(self, kind: type) -> list[Sent]:
        return [each for each in self.sent if isinstance(each.message, kind)]


def copy(sequence: int, published_at: Micros = 0) -> EventCopy:
    return EventCopy(Event(7, sequence, {}), 0, published_at, False)


def cast(number: int) -> Cast:
    return Cast(Event(7, number, {}), 0, 0, False, ((0, number),))


# Gaps.


def test_a_number_beyond_the_next_tells_what_is_missing() -> None:
    heard = HeardCasts()
    assert not heard.on_cast(1)
    assert heard.on_cast(4)
    assert heard.take_missing() == [2, 3]
    assert not heard.on_cast(5), "nothing new is missing"
    assert not heard.on_recovered(2)
    assert not heard.on_recovered(3), "nothing more to ask for"
    assert heard.take_missing() == []


def test_the_last_one_before_a_silence_is_missed_by_the_bare_number() -> None:
    heard = HeardCasts()
    heard.on_cast(1)
    assert not heard.on_tally(1)
    assert heard.on_tally(2) and heard.take_missing() == [2]


def test_the_youngest_are_asked_for_first_a_few_at_a_time_and_given_up_in_the_end() -> None:
    heard = HeardCasts()
    heard.on_cast(11)
    assert heard.take_missing() == list(range(11 - ASKED_MAX, 11))
    for number in range(11 - ASKED_MAX, 10):
        assert not heard.on_recovered(number)
    assert heard.on_recovered(10), "all that was asked for is here, and there is more"
    asked: list[int] = []
    while wanted := heard.take_missing():
        asked += wanted
    assert asked and all(asked.count(number) == TRIES for number in range(1, 11 - ASKED_MAX))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=60))
def test_what_is_asked_for_was_never_heard_and_is_bounded(story: list[tuple[bool, int]]) -> None:
    heard = HeardCasts()
    came: set[int] = set()
    for is_cast, number in story:
        if is_cast:
            heard.on_cast(number)
            came.add(number)
        else:
            heard.on_tally(number)
        wanted = heard.take_missing()
        assert len(wanted) <= ASKED_MAX
        assert not came & set(wanted)
        assert all(number <= max((n for _, n in story), default=0) for number in wanted)
    assert len(heard._missing) <= GAP_MAX


def test_a_sender_remembers_what_it_sent_for_a_while() -> None:
    sent = SentCasts()
    for sequence in range(300):
        assert sent.add(copy(sequence)) == sequence + 1
    assert sent.find(300) == copy(299)
    assert sent.find(1) is None and len(sent._history) == 256


# The carrier.


def test_one_broadcast_serves_several_neighbours_and_one_number_follows() -> None:
    bench = Bench()
    bench.carrier.send([1, 2], copy(1))
    bench.host.advance(SECOND)
    (event,) = bench.of(Cast)
    assert event.to == (1, 2)
    assert isinstance(event.message, Cast) and event.message.counts == ((1, 1), (2, 1))
    (tally,) = bench.of(Tally)
    assert tally.to == (1, 2), "and not again without another broadcast"
    bench.host.advance(10 * SECOND)
    assert len(bench.sent) == 2


def test_mixed_forwarding_takes_unicast_where_one_neighbour_wants_it() -> None:
    bench = Bench(forwarding=Forwarding.MIXED)
    bench.carrier.send([2], copy(1))
    bench.carrier.send([1, 2], copy(2))
    bench.host.advance(SECOND)
    assert [each.to for each in bench.of(Routed)] == [(2,)]
    assert [each.to for each in bench.of(Cast)] == [(1, 2)]


def test_without_recovery_nothing_is_counted() -> None:
    bench = Bench(recovery="none")
    bench.carrier.send([1, 2], copy(1))
    bench.host.advance(SECOND)
    (event,) = bench.sent
    assert isinstance(event.message, Cast) and event.message.counts == ()


def test_a_gap_is_asked_for_and_filled_by_unicast() -> None:
    bench = Bench()
    bench.carrier.on_counts(1, cast(3))
    bench.host.advance(100 * MILLISECOND)
    (request,) = bench.sent
    assert request.to == (1,) and request.message == MissedBroadcasts((1, 2))
    bench.carrier.on_routed(1, Routed(Event(7, 1, {}), 0, 0, False, 1))
    bench.carrier.on_routed(1, Routed(Event(7, 2, {}), 0, 0, False, 2))
    bench.host.advance(10 * SECOND)
    assert len(bench.sent) == 1

    for sequence in (1, 2, 3):
        bench.carrier.send([1, 2], copy(sequence, bench.host.now()))
    bench.host.advance(100 * MILLISECOND)
    bench.sent.clear()
    bench.carrier.on_missed(2, MissedBroadcasts((2, 99)))
    bench.host.advance(100 * MILLISECOND)
    (again,) = bench.of(Routed)
    assert again.to == (2,)
    assert isinstance(again.message, Routed) and again.message.number == 2


def test_a_full_queue_of_our_own_is_waited_out_and_a_failing_link_is_not() -> None:
    bench = Bench(forwarding=Forwarding.UNICAST, event_retries=2)

    def fail(failure: SendFailure, seconds: int) -> None:
        answered = len(bench.sent) - 1
        for _ in range(100 * seconds):
            while answered < len(bench.sent):
                on_failure = bench.sent[answered].on_failure
                answered += 1
                assert on_failure is not None
                on_failure(failure)
            bench.host.advance(10 * MILLISECOND)

    bench.carrier.send([1], copy(1))
    fail(SendFailure.QUEUE_FULL, 2)
    assert bench.given_up == [] and len(bench.sent) > 10
    fail(SendFailure.LINK, 2)
    assert bench.given_up == [1]


def test_what_waited_too_long_is_dropped_and_traced() -> None:
    bench = Bench(recovery_time=1.0)
    bench.carrier.send_again(1, copy(1))
    bench.host.advance(MILLISECOND)
    assert len(bench.of(Routed)) == 1
    bench.carrier.send_again(1, copy(2, bench.host.now() - SECOND))
    bench.host.advance(SECOND)
    assert len(bench.of(Routed)) == 1
    (drop,) = bench.host.records
    assert isinstance(drop, Dropped) and (drop.reason, drop.sequence) == (DropReason.EXPIRED, 2)


# The pace.


def taken(pace: RecoveryPace, now: Micros, seconds: int, tries_per_second: int = 200) -> int:
    step = SECOND // tries_per_second
    return sum(pace.take(now + step * n) for n in range(seconds * tries_per_second))


def test_after_a_burst_the_clock_and_first_sendings_allow_repeats() -> None:
    pace = RecoveryPace(10 * MILLISECOND)
    assert taken(pace, 0, 1) >= SAVED_MAX
    pace.on_loss(SECOND)
    before = sum(pace.take(SECOND) for _ in range(100))
    for _ in range(10):
        pace.on_fresh()
    assert before <= 5 and sum(pace.take(SECOND) for _ in range(100)) == 10


def test_without_losses_the_clock_gives_more_and_with_losses_little() -> None:
    calm, busy = RecoveryPace(10 * MILLISECOND), RecoveryPace(10 * MILLISECOND)
    quietly = taken(calm, 0, 20)
    under_losses = 0
    for second in range(20):
        busy.on_loss(second * SECOND)
        under_losses += taken(busy, second * SECOND, 1)
    assert calm.per_second == PER_SECOND_MAX and quietly > 15 * PER_SECOND_MAX
    assert under_losses <= SAVED_MAX + 21 * PER_SECOND_MIN


@given(st.lists(st.tuples(st.sampled_from("flt"), st.integers(0, SECOND)), max_size=60))
def test_the_next_repeat_is_allowed_when_the_pace_says_so(story: list[tuple[str, int]]) -> None:
    pace = RecoveryPace(10 * MILLISECOND)
    now = 0
    for what, wait in story:
        now += wait
        match what:
            case "f":
                pace.on_fresh()
            case "l":
                pace.on_loss(now)
            case _:
                pace.take(now)
        assert PER_SECOND_MIN <= pace.per_second <= PER_SECOND_MAX
    assert pace.take(pace.next_at(now))
