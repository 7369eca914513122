from hypothesis import given
from hypothesis import strategies as st

from roamcast.host import Layer
from roamcast.kit.confirm import Backoff, Repetition, RetransmissionTimeout, RoundTrip, Unconfirmed
from roamcast.testing import FakeHost
from roamcast.units import MILLISECOND, SECOND


class Due(Layer):
    """Calls timers as every layer of messages does."""

    def on_timer(self, name: object) -> None:
        name.due()  # type: ignore[attr-defined]


class Sender:
    """A node that notes what nobody confirmed in time."""

    def __init__(self) -> None:
        self.host = FakeHost(node=1)
        self.host.attach(Due())
        self.overdue: list[tuple[int, list[tuple[str, str]]]] = []
        self.unconfirmed: Unconfirmed[str, str] = Unconfirmed(self.host, self._note)

    def _note(self, overdue: list[tuple[str, str]]) -> None:
        self.overdue.append((self.host.now(), overdue))


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(10, longest=50)
    assert [backoff.wait(attempt) for attempt in range(5)] == [10, 20, 40, 50, 50]
    assert backoff.wait(1_000_000) == 50 and not backoff.is_over(1_000_000)


def test_it_is_said_as_often_as_the_rule_allows_and_then_given_up() -> None:
    host = FakeHost(node=1)
    repetition = Repetition(host, "again", Backoff(10, attempts=3))
    waits = []
    while repetition.attempt():
        waits.append(host.timers()["again"] - host.now())
    assert waits == [10, 20, 40]


def test_an_attempt_that_was_none_does_not_count() -> None:
    host = FakeHost(node=1)
    repetition = Repetition(host, "again", Backoff(10, attempts=1))
    for _ in range(5):
        assert repetition.attempt()
        repetition.take_back()
    assert repetition.attempt() and not repetition.attempt()


def test_waiting_again_is_no_attempt() -> None:
    host = FakeHost(node=1)
    repetition = Repetition(host, "again", Backoff(10))
    repetition.attempt()
    repetition.attempt()
    for _ in range(3):
        repetition.wait_again()
        assert host.timers()["again"] == host.now() + 20
    repetition.wait(7)
    assert host.timers()["again"] == host.now() + 7
    repetition.restart()
    repetition.attempt()
    assert host.timers()["again"] == host.now() + 10


def test_an_answer_ends_it() -> None:
    host = FakeHost(node=1)
    repetition = Repetition(host, "again", Backoff(10))
    repetition.attempt()
    repetition.end()
    assert "again" not in host.timers()


def test_what_is_not_confirmed_in_time_is_reported_once_in_the_order_of_sending() -> None:
    sender = Sender()
    sender.unconfirmed.expect("b", "second", 20)
    sender.unconfirmed.expect("a", "first", 10)
    sender.unconfirmed.expect("c", "third", 20)
    sender.host.advance(100)
    assert sender.overdue == [(10, [("a", "first")]), (20, [("b", "second"), ("c", "third")])]
    assert len(sender.unconfirmed) == 0 and not sender.host.timers()


def test_what_is_confirmed_is_not_reported_and_leaves_no_timer() -> None:
    sender = Sender()
    sender.unconfirmed.expect("a", "first", 10)
    assert sender.unconfirmed.find("a") == "first"
    assert sender.unconfirmed.confirm("a") == "first"
    assert sender.unconfirmed.confirm("a") is None and sender.unconfirmed.find("a") is None
    assert not sender.host.timers()
    sender.unconfirmed.expect("b", "second", 10)
    sender.unconfirmed.clear()
    sender.host.advance(100)
    assert sender.overdue == []


def test_what_is_sent_again_waits_anew() -> None:
    sender = Sender()
    sender.unconfirmed.expect("a", "first", 10)
    sender.host.advance(9)
    sender.unconfirmed.expect("a", "again", 10)
    sender.host.advance(100)
    assert sender.overdue == [(19, [("a", "again")])]


def test_an_overdue_entry_may_be_sent_again_at_once() -> None:
    host = FakeHost(node=1)
    host.attach(Due())
    tries: list[int] = []

    def again(overdue: list[tuple[str, int]]) -> None:
        for key, attempts in overdue:
            tries.append(host.now())
            if attempts < 3:
                unconfirmed.expect(key, attempts + 1, 10)

    unconfirmed: Unconfirmed[str, int] = Unconfirmed(host, again)
    unconfirmed.expect("a", 1, 10)
    host.advance(100)
    assert tries == [10, 20, 30]


@given(
    st.lists(
        st.tuples(st.sampled_from(["expect", "confirm", "advance"]), st.integers(0, 3), st.integers(1, 9))
    )
)
def test_entries_end_like_those_of_a_dictionary_that_is_looked_through_each_instant(
    steps: list[tuple[str, int, int]],
) -> None:
    host = FakeHost(node=1)
    host.attach(Due())
    reported: list[tuple[int, int]] = []
    unconfirmed: Unconfirmed[int, str] = Unconfirmed(
        host, lambda overdue: reported.extend((host.now(), key) for key, _ in overdue)
    )
    model: dict[int, int] = {}
    expected: list[tuple[int, int]] = []
    for action, key, time in steps:
        match action:
            case "expect":
                unconfirmed.expect(key, "sent", time)
                model.pop(key, None)
                model[key] = host.now() + time
            case "confirm":
                assert (key in model) == (unconfirmed.find(key) is not None)
                unconfirmed.confirm(key)
                model.pop(key, None)
            case "advance":
                for _ in range(time):
                    host.advance(1)
                    for ended in [each for each, at in model.items() if at <= host.now()]:
                        expected.append((host.now(), ended))
                        del model[ended]
        assert len(unconfirmed) == len(model)
    assert reported == expected


def test_the_estimate_follows_what_is_measured() -> None:
    assert RoundTrip.first(80) == (80, 40)
    assert RoundTrip(80, 40).then(160) == (90, 50)  # by hand: 80 + 80/8, 40 + (80 - 40)/4
    assert RoundTrip(90, 50).bound == 290


def test_the_wait_for_a_confirmation_follows_what_is_measured() -> None:
    timeout = RetransmissionTimeout(150 * MILLISECOND, 100 * MILLISECOND, 2 * SECOND)
    assert timeout.wait == 150 * MILLISECOND and timeout.measured == 0
    for _ in range(20):
        timeout.on_confirmed(5 * MILLISECOND)
    assert timeout.wait == 100 * MILLISECOND
    for _ in range(20):
        timeout.on_confirmed(400 * MILLISECOND)
    assert 400 * MILLISECOND < timeout.wait < 2 * SECOND
    for _ in range(10):
        timeout.on_missed()
    assert timeout.wait == 2 * SECOND
    assert 400 * MILLISECOND < timeout.measured < 2 * SECOND  # what is measured is not doubled
