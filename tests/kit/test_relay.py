"""Pass on once, after a delay, unless it is no longer needed."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.timed import timed_host

from roamcast.kit.relay import Relay


class Station:
    """A relay whose items count how often they were heard meanwhile; three times is enough."""

    def __init__(self, most: int = 10) -> None:
        self.host = timed_host()
        self.sent: list[tuple[int, str]] = []
        self.relay: Relay[str, list[int]] = Relay(
            self.host,
            send=lambda key, _: self.sent.append((self.host.now(), key)),
            most=most,
            is_needed=lambda _, heard: len(heard) < 3,
        )


def test_an_item_is_passed_on_once_after_its_wait() -> None:
    station = Station()
    assert station.relay.add("a", [1], 20)
    assert station.relay.add("b", [1], 10)
    station.host.advance(100)
    assert station.sent == [(10, "b"), (20, "a")]
    assert station.relay.find("a") is None


def test_what_was_heard_often_enough_meanwhile_is_not_passed_on() -> None:
    station = Station()
    station.relay.add("a", [1], 20)
    for sender in (2, 3):
        heard = station.relay.find("a")
        assert heard is not None
        heard.append(sender)
    station.host.advance(100)
    assert station.sent == []


def test_a_newer_item_takes_the_place_and_the_time_of_the_one_that_waits() -> None:
    station = Station()
    station.relay.add("a", [1, 2, 3], 20)
    station.relay.add("a", [1], 90)
    station.host.advance(20)
    assert station.sent == [(20, "a")]


def test_one_that_is_cancelled_is_not_sent_and_may_come_again() -> None:
    station = Station()
    station.relay.add("a", [1], 20)
    station.relay.cancel("a")
    station.relay.cancel("never")
    station.host.advance(50)
    assert station.sent == []
    station.relay.add("a", [1], 20)
    station.host.advance(50)
    assert station.sent == [(70, "a")]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 30), st.integers(1, 5)), max_size=30),
    st.integers(1, 3),
)
def test_never_more_wait_than_the_bound_and_what_is_taken_goes_out_exactly_once(
    steps: list[tuple[str, int, int]], most: int
) -> None:
    station = Station(most)
    waiting: dict[str, int] = {}
    expected: list[tuple[int, str]] = []
    for key, wait, pause in steps:
        now = station.host.now()
        is_taken = key in waiting or len(waiting) < most
        assert station.relay.is_full == (len(waiting) >= most)
        assert station.relay.add(key, [1], wait) == is_taken
        if is_taken:
            waiting.setdefault(key, now + wait)
        station.host.advance(pause)
        due = [key for key in waiting if waiting[key] <= now + pause]
        expected += [(waiting.pop(key), key) for key in due]
    station.host.advance(100)
    assert sorted(station.sent) == sorted(expected + [(at, key) for key, at in waiting.items()])
