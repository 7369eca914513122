"""Counts by reason, and who comes and goes: what is logged, and when."""

import logging

import pytest

from roamcast.broker.assembly import DAMAGED, PROBLEMS
from roamcast.event import EventId
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.peers import LINES_PER_MINUTE, PeerWatch
from roamcast.runtime.live.inputs import Clock
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.journal import DROP_WORDS, MINUTE, NORMAL_DROPS, NodeJournal, ReasonTally
from roamcast.trace import DropReason
from roamcast.units import SECOND

LOGGER = logging.getLogger("roamcast.test")
THERE, ELSEWHERE = Endpoint("10.0.0.2", 4748, "wlan0"), Endpoint("10.0.0.3", 4748, "eth0")


@pytest.fixture(autouse=True)
def log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def tally() -> ReasonTally:
    return ReasonTally(LOGGER, "dropped", DROP_WORDS, NORMAL_DROPS, 0)


def test_the_first_of_a_kind_is_logged_and_then_a_count_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    drops = tally()
    for number in range(500):
        drops.count("queue_full", number * SECOND // 100, "flood")
    assert [record.getMessage() for record in caplog.records] == [
        f"dropped (flood): {DROP_WORDS['queue_full']}"
    ]
    drops.look(59 * SECOND)
    assert len(caplog.records) == 1
    drops.look(MINUTE)
    assert caplog.records[-1].getMessage() == f"dropped in a minute: 499: {DROP_WORDS['queue_full']}"
    drops.look(2 * MINUTE)
    assert len(caplog.records) == 2


def test_what_is_normal_is_counted_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    drops = tally()
    drops.count("expired", 0)
    drops.count("expired", 1)
    drops.look(MINUTE)
    assert not caplog.records
    assert drops.totals() == {"expired": 2}


def test_the_last_minute_forgets_in_steps_of_ten_seconds() -> None:
    drops = tally()
    drops.count("retries", 5 * SECOND)
    drops.count("retries", 25 * SECOND)
    assert drops.last_minute("retries", 26 * SECOND) == 2
    assert drops.last_minute("retries", 59 * SECOND) == 2
    assert drops.last_minute("retries", 60 * SECOND) == 1
    assert drops.last_minute("retries", 500 * SECOND) == 0
    assert drops.last_minute("wire", 0) == 0


def test_every_reason_of_a_drop_has_words() -> None:
    chunks = {f"chunk_{problem.reason}" for problem in PROBLEMS}
    assert set(DROP_WORDS) == {reason.value for reason in DropReason} | chunks


def test_a_peer_is_logged_when_it_comes_moves_goes_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    now = 0
    watch = PeerWatch(1.0, lambda: now)
    watch.heard(7, THERE, 100, now)
    now = 2 * SECOND
    watch.heard(7, THERE, 100, now)
    watch.moved(7, ELSEWHERE)
    watch.look(4 * SECOND)
    assert watch.up == 1
    watch.look(9 * SECOND)
    assert watch.up == 0
    watch.heard(7, ELSEWHERE, 100, 10 * SECOND)
    assert watch.up == 1
    assert [record.getMessage() for record in caplog.records] == [
        "peer 7 is here, at 10.0.0.2:4748 by wlan0",
        "peer 7 moved from 10.0.0.2:4748 by wlan0 to 10.0.0.3:4748 by eth0",
        "peer 7 at 10.0.0.3:4748 by eth0 is gone: not heard for 7.0 s",
        "peer 7 is here, at 10.0.0.3:4748 by eth0",
    ]


def test_quality_is_the_share_of_intervals_in_which_a_peer_was_heard() -> None:
    watch = PeerWatch(1.0, lambda: 0)
    watch.heard(7, THERE, 1, 0)
    (record,) = watch.latest_first()
    assert record.slots.quality(1 * SECOND) is None, "too new to say"
    for second in (4, 8, 12):  # every second slot of two seconds
        watch.heard(7, THERE, 1, second * SECOND)
    assert record.slots.quality(12 * SECOND) == 4 / 7
    for second in range(13, 60):
        watch.heard(7, THERE, 1, second * SECOND)
    assert record.slots.quality(59 * SECOND) == 1.0
    assert record.slots.quality(60 * SECOND) == 1.0, "a slot that has just begun is no loss"
    assert record.slots.quality(70 * SECOND) == 4 / 9, "of the nine slots that are over"


def test_a_crowd_in_motion_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    watch = PeerWatch(1.0, lambda: 0)
    for number in range(10_000):
        watch.heard(number, THERE, 1, 0)
    assert len(caplog.records) == LINES_PER_MINUTE
    assert len(watch) == 4_096


def test_a_large_payload_that_is_given_up_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    journal = NodeJournal(1, Clock(), counters, None)
    for _ in range(2):
        journal.given_up(DAMAGED, EventId(7, 8))
    assert counters.value("drops_total", reason="chunk_damaged") == 2
    assert journal.drops.totals() == {"chunk_damaged": 2}
    assert [record.getMessage() for record in caplog.records] == [
        f"dropped (event 7:8): {DROP_WORDS['chunk_damaged']}"
    ]
