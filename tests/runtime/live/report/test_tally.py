"""Counts by reason: what is logged, and when."""

import logging
import time

import pytest

from roamcast.broker.assembly import DAMAGED, PROBLEMS
from roamcast.event import EventId
from roamcast.runtime.live.inputs import Clock
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.journal import DROP_WORDS, MINUTE, NORMAL_DROPS, NodeJournal, ReasonTally
from roamcast.trace import DropReason
from roamcast.units import SECOND

LOGGER = logging.getLogger("roamcast.test")


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


def test_a_large_payload_that_is_given_up_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    journal = NodeJournal(1, Clock(time), counters, None)
    for _ in range(2):
        journal.given_up(DAMAGED, EventId(7, 8))
    assert counters.value("drops_total", reason="chunk_damaged") == 2
    assert journal.drops.totals() == {"chunk_damaged": 2}
    assert [record.getMessage() for record in caplog.records] == [
        f"dropped (event 7:8): {DROP_WORDS['chunk_damaged']}"
    ]
