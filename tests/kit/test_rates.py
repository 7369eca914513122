"""Buckets, limits that follow losses, and messages ahead of time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.timed import timed_host

from roamcast.kit.rates import BURST, DELAY, ROOM, Aimd, Bucket, Prompt
from roamcast.units import SECOND, Micros


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 10), st.integers(1, 5))
def test_a_bucket_gives_a_burst_and_then_one_token_in_each_period(
    pauses: list[int], every: int, burst: int
) -> None:
    """Against the definition: in any stretch of time, at most `burst` tokens and one more for each period."""
    bucket = Bucket(every, burst)
    now, taken = 0, list[int]()
    for pause in pauses:
        now += pause
        if bucket.earliest(now) <= now:
            bucket.spend(now)
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + (taken[last] - taken[first]) // every
    assert not pauses or taken, "the first is always there"


def test_a_limit_grows_by_one_until_a_loss_then_slowly_and_losses_together_count_once() -> None:
    limit = Aimd(first=4.0, least=1.0, most=9.0, cut_every=100)
    for _ in range(4):
        limit.on_success()
    assert limit.limit == 8.0
    limit.on_loss(1_000)
    limit.on_loss(1_099)
    assert limit.limit == 4.0
    for _ in range(4):
        limit.on_success()
    assert 4.9 < limit.limit < 5.0, "as many successes as the limit counts make one more"
    for at in range(2_000, 3_000, 100):
        limit.on_loss(at)
    assert limit.limit == 1.0
    for _ in range(200):
        limit.on_success()
    assert limit.limit == 9.0


def test_early_messages_have_a_burst_and_then_the_pace_that_the_medium_has_room_for() -> None:
    host = timed_host()
    sent: list[int] = []
    prompt = Prompt(host, lambda: sent.append(host.now()), 2 * SECOND)
    for _ in range(1_000):
        prompt.ask(ROOM)  # all around would fill the room with one each in a second
        host.advance(SECOND // 100)
    assert sum(at <= BURST * (DELAY + SECOND // 100) for at in sent) >= BURST - 1
    assert 10 <= len(sent) <= BURST + 10
    prompt.ask(1)
    assert prompt.is_due
    prompt.cancel()
    before = len(sent)
    host.advance(10 * SECOND)
    assert len(sent) == before and not prompt.is_due


@pytest.mark.parametrize(("airtime", "sent_in_a_minute"), [(100, 60), (5_000, 15)])
def test_a_slow_radio_has_room_for_fewer_early_messages(
    monkeypatch: pytest.MonkeyPatch, airtime: Micros, sent_in_a_minute: int
) -> None:
    """One in forty parts of its time: for twenty frames of 5 ms that is 4 s."""
    host = timed_host()
    monkeypatch.setattr(host, "airtime", lambda octets: airtime)
    sent: list[Micros] = []
    prompt = Prompt(host, lambda: sent.append(host.now()), SECOND)
    for _ in range(6_000):
        prompt.ask(ROOM)
        host.advance(SECOND // 100)
    assert sent_in_a_minute - 1 <= len(sent) - BURST <= sent_in_a_minute
