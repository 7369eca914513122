"""What neighbours say they have, and who asks whom for what it lacks; floods, which it hands on."""

import pytest
from tests.strategy.opportunistic.station import PartLayer, shared_of

from roamcast.broker.seen import event_key
from roamcast.event import Event, EventClass, EventId
from roamcast.kit.repair import ANSWER_BURST, HeldRuns
from roamcast.strategy.opportunistic.board import BROKER
from roamcast.strategy.opportunistic.copies import Copies, EventCopy, FloodBase
from roamcast.strategy.opportunistic.floods import (
    ANSWERS_MAX,
    ASK_AFTER,
    ASKED_FOR,
    ASKED_SHORTEST,
    FRESH,
    HEARD_ENOUGH,
    LONGEST,
    OTHERS_LATER,
    Floods,
)
from roamcast.strategy.opportunistic.messages import (
    FRAMES,
    HOPS_MAX,
    WANTED_MAX,
    BrokerRow,
    Flooded,
    NodeDigest,
    WantFlooded,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

OWN, NEAR, OTHER, PRODUCER = 1, 2, 3, 50


class Relays(Underlay):
    def __init__(self, is_relay: bool) -> None:
        super().__init__()
        self._is_relay = is_relay
        self.near: dict[NodeId, list[NodeId]] = {}  # whom each of our neighbours hears

    def neighbours(self) -> list[NodeId]:
        return sorted(self.near)

    def neighbours_of(self, neighbour: NodeId) -> list[NodeId]:
        return self.near.get(neighbour, [])

    def is_relay(self, node: NodeId) -> bool:
        return self._is_relay


class Setting(PartLayer):
    def __init__(self, *, is_relay: bool = True) -> None:
        self.host = FakeHost(OWN)
        self.relays = Relays(is_relay)
        shared = shared_of(self.host, self.relays)
        self.copies, self.board = shared.copies, shared.board
        self.news: list[int] = []
        self.floods = Floods(shared, lambda copy, _: self.news.append(copy.event.sequence))
        self.host.attach(self)

    def hear(
        self,
        sequence: int,
        sender: NodeId = NEAR,
        hops: int = 1,
        *,
        age: Micros = 0,
        event_class: EventClass = EventClass.REALTIME,
        lifetime: Micros = 0,
    ) -> None:
        """A flooded event, as the strategy hands it in; all of the producer's are flooded."""
        event = Event(PRODUCER, sequence, event_class=event_class, lifetime=lifetime)
        frame = Flooded(event, sequence, 0, sequence, hops, age)
        self.floods.on_flooded(sender, frame)

    def sent(self, kind: type) -> list[tuple[NodeId | None, object]]:
        decoded = [(one.to, FRAMES.decode(one.frame.payload)) for one in self.host.sent]
        return [(to, frame) for to, frame in decoded if isinstance(frame, kind)]


def test_what_a_neighbour_names_and_a_flood_has_not_brought_is_asked_for_in_a_moment() -> None:
    setting = Setting()
    setting.hear(0)
    setting.floods.on_digest(NEAR, NodeDigest(0, (HeldRuns(PRODUCER, (0, 2)),)))
    assert setting.sent(WantFlooded) == []
    setting.hear(1)  # on its way all the while
    setting.host.advance(2 * ASK_AFTER)
    assert setting.sent(WantFlooded) == [(NEAR, WantFlooded((PRODUCER, 2)))]


def test_two_neighbours_that_have_the_same_are_not_both_asked_at_once() -> None:
    setting = Setting()
    for neighbour in (NEAR, OTHER):
        setting.floods.on_digest(neighbour, NodeDigest(0, (HeldRuns(PRODUCER, (0, 0)),)))
    setting.host.advance(2 * ASK_AFTER)
    assert [to for to, _ in setting.sent(WantFlooded)] == [OTHER]
    setting.host.advance(10 * SECOND)  # no answer came
    assert [to for to, _ in setting.sent(WantFlooded)] == [OTHER, NEAR, OTHER]  # and no more, but by a digest


def asked_again_after(setting: Setting, sequence: int) -> Micros:
    """How long after the first request for an event that never comes the second one is sent."""
    setting.floods.on_digest(NEAR, NodeDigest(0, (HeldRuns(PRODUCER, (sequence, sequence)),)))
    requests = []
    for _ in range(400):
        setting.host.advance(10 * MILLISECOND)
        wanted = setting.sent(WantFlooded)
        if (NEAR, WantFlooded((PRODUCER, sequence))) in wanted:
            requests.append(setting.host.now())
        setting.host.sent.clear()
    return requests[1] - requests[0]


def answered_after(setting: Setting, sequence: int, took: Micros) -> None:
    setting.floods.on_digest(NEAR, NodeDigest(0, (HeldRuns(PRODUCER, (sequence, sequence)),)))
    while not setting.sent(WantFlooded):
        setting.host.advance(MILLISECOND)
    setting.host.advance(took)
    setting.hear(sequence)
    setting.host.advance(SECOND)
    setting.host.sent.clear()


def test_an_event_is_asked_for_again_when_an_answer_should_have_come() -> None:
    """Hand-computed (RFC 6298): an answer of 200 ms gives 200 + 4 * 100 ms, one of 20 ms less than the
    shortest. One of 400 ms comes after a second request, so it says nothing (Karn's algorithm), and the wait
    is doubled; the next one then gives 400 + 4 * 200 ms. One of 3 s ends at the longest wait."""
    cases = ((20, 1, 150), (200, 1, 600), (400, 1, 600), (400, 2, 1_200), (3_000, 2, 2_000))
    for took, answers, wait in cases:
        setting = Setting()
        assert ASKED_FOR <= asked_again_after(setting, 50) <= ASKED_FOR + ASK_AFTER + 10 * MILLISECOND
        setting = Setting()
        for sequence in range(answers):
            answered_after(setting, sequence, took * MILLISECOND)
        again = asked_again_after(setting, 50)
        assert wait * MILLISECOND <= again <= wait * MILLISECOND + ASK_AFTER + 10 * MILLISECOND


def test_lost_requests_do_not_make_the_wait_longer_while_others_are_answered_in_time() -> None:
    """Each answer to a repeated request counted from the first one: with one in five lost the wait grew to
    its bound."""
    setting = Setting()
    for sequence in range(0, 40, 2):
        answered_after(setting, sequence, 20 * MILLISECOND)
        answered_after(setting, sequence + 1, ASKED_FOR + 2 * ASK_AFTER)
    answered_after(setting, 40, 20 * MILLISECOND)
    assert asked_again_after(setting, 50) <= ASKED_SHORTEST + ASK_AFTER + 10 * MILLISECOND


def test_a_gap_is_asked_for_although_an_earlier_one_has_not_been_answered() -> None:
    """It waited until the earlier one was asked for again."""
    setting = Setting()
    for sequence in (0, 2):
        setting.hear(sequence)
    setting.host.advance(2 * ASK_AFTER)
    setting.hear(4)
    setting.host.advance(2 * ASK_AFTER)
    assert setting.sent(WantFlooded) == [(NEAR, WantFlooded((PRODUCER, one))) for one in (1, 3)]


def test_a_request_that_was_lost_with_its_neighbour_says_nothing_about_answers() -> None:
    setting = Setting()
    asked_again_after(setting, 0)
    setting.host.advance(60 * SECOND)
    setting.host.sent.clear()
    answered_after(setting, 0, 20 * MILLISECOND)
    assert asked_again_after(setting, 50) <= ASKED_FOR + ASK_AFTER + 10 * MILLISECOND


def test_who_hears_an_event_and_lacks_the_one_before_it_asks_its_sender() -> None:
    setting = Setting()
    setting.hear(0)
    setting.hear(2)
    setting.host.advance(2 * ASK_AFTER)
    assert setting.sent(WantFlooded) == [(NEAR, WantFlooded((PRODUCER, 1)))]


def test_a_digest_that_is_no_list_of_runs_asks_for_nothing() -> None:
    setting = Setting()
    for runs in ((5, 4), (1 << 40, 7, 3), (7, 6, 5, 4)):
        setting.floods.on_digest(NEAR, NodeDigest(0, (HeldRuns(PRODUCER, runs),)))
    setting.host.advance(SECOND)
    assert setting.sent(WantFlooded) == []


def test_who_asks_gets_the_event_and_passes_it_on_only_if_it_is_fresh() -> None:
    setting = Setting()
    setting.hear(0)
    setting.host.advance(SECOND)
    setting.host.sent.clear()
    setting.floods.on_want(OTHER, WantFlooded((PRODUCER, 0, PRODUCER, 77)))
    ((to, frame),) = setting.sent(Flooded)
    assert to == OTHER and isinstance(frame, Flooded) and frame.event.sequence == 0
    for age, is_passed_on in ((FRESH, False), (FRESH - 1, True)):
        lacking = Setting()
        lacking.floods.on_digest(NEAR, NodeDigest(0, (HeldRuns(PRODUCER, (0, 0)),)))
        lacking.host.advance(2 * ASK_AFTER)
        lacking.hear(0, age=age)
        lacking.host.advance(SECOND)
        assert lacking.news == [0] and bool(lacking.sent(Flooded)) == is_passed_on


def test_digests_that_say_nothing_new_become_rare_until_something_comes() -> None:
    setting = Setting()
    setting.floods.on_start()
    setting.host.advance(60 * SECOND)
    quiet = len(setting.sent(NodeDigest))
    setting.host.advance(4 * LONGEST)
    assert len(setting.sent(NodeDigest)) - quiet <= 5
    setting.host.sent.clear()
    setting.hear(0)
    setting.host.advance(SECOND)
    ((_, digest),) = setting.sent(NodeDigest)
    assert digest == NodeDigest(setting.board.fingerprint, (HeldRuns(PRODUCER, (0, 0)),))


def test_a_neighbour_with_other_rows_is_told_soon_what_ours_sum_up_to() -> None:
    setting = Setting()
    setting.floods.on_start()
    setting.host.advance(60 * SECOND)
    setting.host.sent.clear()
    setting.board.post(BROKER, 9, 1, BrokerRow(()))
    setting.floods.on_digest(NEAR, NodeDigest(setting.board.fingerprint ^ 1))
    setting.host.advance(2 * SECOND)
    assert (None, NodeDigest(setting.board.fingerprint)) in setting.sent(NodeDigest)


def test_a_relay_passes_a_flood_on_unless_it_was_heard_often() -> None:
    setting = Setting()
    setting.hear(0)
    setting.host.advance(SECOND)
    assert len(setting.sent(Flooded)) == 1
    for _ in range(HEARD_ENOUGH):
        setting.hear(1)
    setting.host.advance(SECOND)
    assert len(setting.sent(Flooded)) == 1 and setting.news == [0, 1]


@pytest.mark.parametrize("event_class", EventClass)
def test_a_memorized_event_that_all_neighbours_have_heard_is_not_passed_on(event_class: EventClass) -> None:
    """By the sender's last HELLO, which may be wrong: the repair brings a memorized one in time."""
    is_memorized = event_class is EventClass.MEMORIZED
    setting = Setting(is_relay=False)
    setting.relays.near = {NEAR: [OWN, OTHER], OTHER: [OWN, NEAR]}
    setting.hear(0, event_class=event_class, lifetime=60 * SECOND * is_memorized)
    setting.host.advance(SECOND)
    assert bool(setting.sent(Flooded)) is not is_memorized
    setting.relays.near[9] = [OWN]
    setting.hear(1, event_class=event_class, lifetime=60 * SECOND * is_memorized)
    setting.host.advance(SECOND)
    assert [one.event.sequence for _, one in setting.sent(Flooded) if isinstance(one, Flooded)][-1] == 1


def test_who_is_alone_after_it_had_a_neighbour_says_nothing_until_somebody_comes() -> None:
    setting = Setting()
    setting.floods.on_start()
    setting.relays.near = {NEAR: [OWN]}
    setting.floods.on_neighbour_up(NEAR)
    setting.host.advance(5 * SECOND)
    setting.relays.near = {}
    setting.floods.on_neighbour_down(NEAR)
    setting.host.advance(2 * SECOND)
    setting.host.sent.clear()
    event = Event(OWN, 0, event_class=EventClass.MEMORIZED, lifetime=60 * SECOND)
    setting.floods.send(EventCopy(event, 0, 0, 0, setting.host.now()), FloodBase(0, ()))
    setting.host.advance(20 * SECOND)
    assert not setting.host.sent
    setting.relays.near = {OTHER: [OWN]}
    setting.floods.on_neighbour_up(OTHER)
    setting.host.advance(SECOND)
    assert (None, NodeDigest(setting.board.fingerprint, (HeldRuns(OWN, (0, 0)),))) in setting.sent(NodeDigest)


def test_a_digest_names_the_same_events_twice_and_then_in_one_of_four_unless_somebody_lacks_them() -> None:
    setting = Setting()
    setting.floods.on_start()
    setting.hear(0)
    setting.host.advance(50 * SECOND)
    named = [
        digest.held is not None for _, digest in setting.sent(NodeDigest) if isinstance(digest, NodeDigest)
    ]
    assert named[-6:].count(True) <= 2 and named.count(True) >= 3
    setting.host.sent.clear()
    setting.floods.on_digest(NEAR, NodeDigest(setting.board.fingerprint, ()))
    setting.host.advance(LONGEST + SECOND)
    (_, first), *_ = setting.sent(NodeDigest)
    assert first == NodeDigest(setting.board.fingerprint, (HeldRuns(PRODUCER, (0, 0)),))


def test_others_wait_longer_and_pass_on_what_they_heard_once() -> None:
    setting = Setting(is_relay=False)
    setting.hear(0)
    setting.hear(1)
    setting.hear(1, OTHER)
    setting.host.advance(OTHERS_LATER - MILLISECOND)
    assert setting.sent(Flooded) == []
    setting.host.advance(SECOND)
    ((_, frame),) = setting.sent(Flooded)
    assert isinstance(frame, Flooded) and (frame.event.sequence, frame.hops) == (0, 2)


def test_a_flood_that_went_far_enough_ends() -> None:
    setting = Setting()
    setting.hear(0, hops=HOPS_MAX - 1)
    setting.host.advance(SECOND)
    assert setting.news == [0] and setting.sent(Flooded) == []


def test_what_came_is_known_when_it_is_over_and_what_is_between_may_still_come() -> None:
    """A memorized event between real-time ones counted as given up with them."""
    host = FakeHost(OWN)
    copies = Copies(host, OpportunisticOptions(keep_realtime=10.0))
    for sequence in (0, 1, 3):
        copies.add(EventCopy(Event(PRODUCER, sequence), sequence, 0, 1, host.now()), FloodBase(0, ()))
    assert copies.digest() == (HeldRuns(PRODUCER, (0, 1, 3, 3)),)
    assert copies.unknown((HeldRuns(PRODUCER, (0, 4)),)) == [event_key(PRODUCER, 2), event_key(PRODUCER, 4)]
    host.advance(20 * SECOND)
    assert copies.digest() == ()
    known = [copies.is_known(EventId(PRODUCER, sequence)) for sequence in range(5)]
    assert known == [True, True, False, True, False]
    assert copies.unknown((HeldRuns(PRODUCER, (0, 3)),)) == [event_key(PRODUCER, 2)]
    copies.add(EventCopy(Event(PRODUCER, 2), 2, 0, 1, host.now()), FloodBase(0, ()))
    assert copies.unknown((HeldRuns(PRODUCER, (0, 3)),)) == []


def test_a_digest_that_has_no_room_for_all_producers_names_each_in_its_turn() -> None:
    """Cut off at the same place each time, it never named those behind, and nobody asked for their events."""
    host = FakeHost(OWN)
    copies = Copies(host, OpportunisticOptions())
    for producer in range(600):
        copies.add(EventCopy(Event(producer, 5), 5, 0, 1, host.now()), FloodBase(5, ()))
    named = {held.publisher for _ in range(3) for held in copies.digest()}
    assert named == set(range(600))
    copies = Copies(host, OpportunisticOptions())
    for sequence in range(1, 801, 2):
        copies.add(EventCopy(Event(PRODUCER, sequence), sequence, 0, 1, host.now()), FloodBase(sequence, ()))
    runs = {first for _ in range(12) for held in copies.digest() for first in held.runs[::2]}
    assert runs == set(range(1, 801, 2))


def test_a_request_that_comes_twice_is_answered_once_and_answers_are_paced() -> None:
    setting = Setting()
    for sequence in range(12):
        setting.hear(sequence)
    setting.host.advance(SECOND)
    setting.host.sent.clear()
    want = WantFlooded(tuple(n for sequence in range(12) for n in (PRODUCER, sequence)))
    setting.floods.on_want(OTHER, want)
    assert len(setting.sent(Flooded)) == ANSWER_BURST
    setting.floods.on_want(OTHER, want)
    setting.host.advance(SECOND)
    answered = [frame.event.sequence for _, frame in setting.sent(Flooded) if isinstance(frame, Flooded)]
    assert sorted(answered) == sorted([*range(12), *range(ANSWER_BURST)])  # those sent before it came again


def test_a_request_beyond_the_bound_is_traced() -> None:
    setting = Setting()
    for sequence in range(ANSWERS_MAX // WANTED_MAX + 2):
        first = sequence * WANTED_MAX
        events = [n for number in range(first, first + WANTED_MAX) for n in (PRODUCER, number)]
        for number in range(first, first + WANTED_MAX):
            event = Event(PRODUCER, number)
            setting.copies.add(EventCopy(event, number, 0, 1, setting.host.now()), FloodBase(number, ()))
        setting.floods.on_want(OTHER, WantFlooded(tuple(events)))
    dropped = [record for record in setting.host.records if isinstance(record, Dropped)]
    assert {(record.reason, record.message) for record in dropped} == {(DropReason.STORE_FULL, "want")}
