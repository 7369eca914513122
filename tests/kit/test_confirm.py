from roamcast.kit.confirm import Backoff, Repetition
from roamcast.testing import FakeHost


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
