"""The rate that a node's applications are allowed: halved by reports, raised without them, then no limit."""

from roamcast.event import Publication
from roamcast.pressure import FREE_AFTER, NORMAL, RATE_MIN, Allowance, priority_of


def published(allowance: Allowance, since: float, seconds: float, rate: float, priority: int = NORMAL) -> int:
    """How many of so many real-time publications per second fit."""
    count = round(seconds * rate)
    return sum(allowance.take(since + number / rate, priority) for number in range(count))


def test_without_a_report_everything_fits() -> None:
    allowance = Allowance()
    assert published(allowance, 0.0, 2.0, 1_000) == 2_000
    assert allowance.charge(2.0) == 0.0 and allowance.rate is None


def test_a_report_halves_what_was_published_and_quiet_raises_it_again() -> None:
    allowance = Allowance()
    published(allowance, 0.0, 2.0, 1_000)
    allowance.on_congestion(2.0)
    allowance.on_congestion(2.1)  # too soon to show an effect
    assert allowance.rate is not None and 450 <= allowance.rate <= 550
    assert 300 <= published(allowance, 2.0, 1.0, 1_000) <= 700
    for _ in range(20):
        allowance.on_congestion(allowance._at + 1)
    assert allowance.rate == RATE_MIN
    at = allowance._at
    published(allowance, at, FREE_AFTER, 5)  # few: nothing needs a limit
    assert published(allowance, at + FREE_AFTER, 1.0, 5) == 5
    assert allowance.rate is None


def test_publications_that_must_not_be_lost_wait_their_turn() -> None:
    allowance = Allowance()
    published(allowance, 0.0, 2.0, 200)
    allowance.on_congestion(2.0)
    at, sent = 2.0, 0
    while at < 2.9:
        at += max(allowance.charge(at), 0.0001)
        sent += 1
    assert 60 <= sent <= 140  # at 100 per second, and a burst


def test_low_priorities_are_shed_first() -> None:
    def fits(priority: int) -> int:
        allowance = Allowance()
        published(allowance, 0.0, 2.0, 2_000)
        allowance.on_congestion(2.0)
        published(allowance, 2.0, 1.0, 1)  # a burst is saved up
        return published(allowance, 3.0, 0.001, 1_000_000, priority)

    assert 0 < fits(0) < fits(NORMAL) < fits(9)
    assert [priority_of(Publication({"priority": value})) for value in (7, -3, 99, "high", True)] == [
        7,
        0,
        9,
        NORMAL,
        NORMAL,
    ]
