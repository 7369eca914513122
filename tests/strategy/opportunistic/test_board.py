"""Rows: everyone gets the newest, whatever is lost, and a forged one harms nobody for long."""

from random import Random

import pytest
from tests.strategy.opportunistic.station import PartLayer

from roamcast.kit.protocol import Messenger
from roamcast.kit.spread import Audience
from roamcast.strategy.opportunistic import OpportunisticOptions, board
from roamcast.strategy.opportunistic.board import (
    BROKER,
    CLIENT,
    SPREADING,
    VERSION_MAX,
    VERSIONS_AHEAD,
    VERSIONS_PER_START,
    Board,
    BoardEntry,
)
from roamcast.strategy.opportunistic.messages import (
    BROKER_ROWS,
    FRAMES,
    BrokerRow,
    ClientRow,
    Row,
    RowNumbers,
    Rows,
)
from roamcast.testing import FakeHost
from roamcast.trace import Dropped
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, NodeId

LIFETIME = 100 * SECOND


class Told:
    """One node's board, and what it heard from it."""

    def __init__(self, node: NodeId) -> None:
        self.host = FakeHost(node)
        self.news: list[tuple[int, NodeId, BoardEntry | None]] = []
        options = OpportunisticOptions(registration_lifetime=LIFETIME / SECOND)
        messenger = Messenger(self.host, FRAMES)
        around = Audience(node, Underlay(), suppress=True)
        self.board = Board(messenger, Underlay(), around, options, lambda *news: self.news.append(news))
        self.host.attach(PartLayer())

    def frames(self) -> list[tuple[NodeId | None, Rows | RowNumbers]]:
        sent = [(one.to, FRAMES.decode(one.frame.payload)) for one in self.host.sent]
        self.host.sent.clear()
        return sent  # type: ignore[return-value]


def row(links: tuple[int, ...] = (), **more: int) -> BrokerRow:
    return BrokerRow(links, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_all_agree_in_the_end_although_half_of_the_frames_are_lost(seed: int) -> None:
    random = Random(seed)
    nodes = [Told(number) for number in range(6)]
    for step in range(200):
        if step < 40:
            one = random.choice(nodes)
            one.board.post(BROKER, one.host.node, step + 1, row((step, 1)))
        for one in nodes:
            one.host.advance(SECOND // 2)
            for to, frame in one.frames():
                for other in nodes:
                    if other is one or (to is not None and to != other.host.node) or random.random() < 0.5:
                        continue
                    if isinstance(frame, Rows):
                        other.board.on_rows(one.host.node, frame)
                    else:
                        other.board.on_numbers(one.host.node, frame)
            for other in nodes:
                if other is not one and random.random() < 0.5:
                    other.board.on_fingerprint(one.host.node, one.board.fingerprint)
    assert len({one.board.fingerprint for one in nodes}) == 1
    versions = {tuple(getattr(one.board.find(BROKER, n), "version", 0) for n in range(6)) for one in nodes}
    assert len(versions) == 1


def test_a_row_is_passed_on_once_and_not_if_others_have_done_so() -> None:
    told = Told(1)
    rows = Rows((Row(BROKER, 2, 5, 0, BROKER_ROWS.encode(row())),))
    told.board.on_rows(1, rows)
    told.board.on_rows(1, rows)
    told.host.advance(SECOND)
    assert len(told.frames()) == 1 and len(told.news) == 1
    later = Rows((Row(BROKER, 2, 6, 0, BROKER_ROWS.encode(row())),))
    for _ in range(4):
        told.board.on_rows(1, later)
    told.host.advance(SECOND)
    assert told.frames() == []


def test_rows_that_cannot_be_are_dropped_and_counted() -> None:
    told = Told(1)
    body = BROKER_ROWS.encode(row())
    told.board.on_rows(
        1, Rows((Row(BROKER, 2, VERSION_MAX, 0, body), Row(9, 2, 1, 0, body), Row(CLIENT, 2, 1, 0, b"x")))
    )
    told.host.advance(SECOND)
    assert told.news == [] and told.frames() == []
    assert len([record for record in told.host.records if isinstance(record, Dropped)]) == 3


def test_a_row_from_too_far_in_the_future_is_dropped_and_leaves_the_true_one() -> None:
    told = Told(1)
    body = BROKER_ROWS.encode(row())
    told.board.on_rows(1, Rows((Row(BROKER, 2, 5, 0, body),)))
    told.board.on_rows(1, Rows((Row(BROKER, 2, 5 + VERSIONS_AHEAD, 0, BROKER_ROWS.encode(row((9, 1)))),)))
    told.board.on_rows(1, Rows((Row(BROKER, 3, VERSIONS_AHEAD, 0, body),)))  # nor as the first of its owner
    told.board.on_rows(1, Rows((Row(BROKER, 2, 6, 0, body),)))
    assert [(kind, node, one.version) for kind, node, one in told.news if one] == [
        (BROKER, 2, 5),
        (BROKER, 2, 6),
    ]
    assert len([record for record in told.host.records if isinstance(record, Dropped)]) == 2


def test_one_comparison_is_enough_for_both_sides() -> None:
    """Who is named rows that it lacks names its own in return."""
    told = Told(1)
    told.board.post(BROKER, 1, 1, row())
    told.host.advance(3 * SECOND)
    told.frames()
    told.board.on_numbers(2, RowNumbers((BROKER, 2, 0, 7)))
    told.host.advance(3 * SECOND)
    assert [(to, type(frame)) for to, frame in told.frames()] == [(None, Rows), (2, RowNumbers)]


def test_two_that_lack_a_row_do_not_ask_each_other_for_it_without_end() -> None:
    """It was named by a node that has forgotten it since, or by a liar."""
    one, other = Told(1), Told(2)
    one.board.on_numbers(2, RowNumbers((BROKER, 9, 0, 7), is_all=False))
    ((to, asked),) = one.frames()
    assert to == 2 and isinstance(asked, RowNumbers) and asked.numbers == (BROKER, 9, 0, 0)
    other.board.on_numbers(1, asked)
    assert other.frames() == []


def test_a_broker_that_is_silent_for_long_is_forgotten_with_its_clients() -> None:
    told = Told(1)
    client = ClientRow(2, 1, False, ())
    told.board.post(BROKER, 2, 1, row())
    told.board.post(CLIENT, 3, 1, client)
    told.host.advance(LIFETIME - SECOND)
    told.board.forget_silent()
    assert len(told.news) == 2
    told.host.advance(2 * SECOND)
    told.board.forget_silent()
    assert told.news[2:] == [(BROKER, 2, None), (CLIENT, 3, None)] and told.board.fingerprint == 0


def test_a_neighbour_that_differs_is_asked_when_that_is_no_news_any_more() -> None:
    told = Told(1)
    told.board.post(BROKER, 1, 1, row())
    told.host.advance(SECOND)
    told.frames()
    told.board.on_fingerprint(2, 77)
    told.host.advance(SPREADING - SECOND)
    assert told.frames() == []
    told.host.advance(SECOND)
    told.board.on_fingerprint(2, 77)
    told.host.advance(SECOND)
    ((to, numbers),) = told.frames()
    assert to == 2 and numbers == RowNumbers((BROKER, 1, 0, 1))


def test_the_age_of_a_row_is_told_to_the_millisecond() -> None:
    """In seconds it was cut at every hop, and of two brokers' words the later one became the earlier."""
    told = Told(1)
    told.host.advance(5 * SECOND)
    body = BROKER_ROWS.encode(row())
    told.board.on_rows(2, Rows((Row(BROKER, 5, 1, 1_700, body), Row(BROKER, 6, 1, 1_699, body))))
    told.host.advance(board.JITTER)
    ((_, rows),) = told.frames()
    assert isinstance(rows, Rows)
    first, second = (one.age for one in rows.rows)
    assert 1_700 <= first <= 1_950 and second == first - 1


def test_boards_that_lack_one_row_each_hear_of_it_by_their_fingerprints() -> None:
    """After a partition: by sums of checksums these two were equal, and stayed different for good."""
    base = 1 << 20
    one, other = Told(1), Told(2)
    for told, versions in ((one, (100, 105)), (other, (101, 104))):
        for broker, version in zip((10, 37), versions, strict=True):
            told.board.post(BROKER, broker, base + version, row())
        told.host.advance(SECOND)
        told.frames()
    for told, heard in ((one, other), (other, one)):
        told.board.on_met(heard.host.node)
        told.board.on_fingerprint(heard.host.node, heard.board.fingerprint)
    one.host.advance(SECOND)
    ((to, numbers),) = one.frames()
    assert to == 2 and isinstance(numbers, RowNumbers)
    other.board.on_numbers(1, numbers)
    (_, newer), (back, lacking) = other.frames()
    assert isinstance(newer, Rows)
    one.board.on_rows(2, newer)
    parts = divmod(base + 104, VERSIONS_PER_START)
    assert back == 1 and lacking == RowNumbers((BROKER, 37, *parts), is_all=False)
    one.frames()
    one.board.on_numbers(2, lacking)
    ((_, rows),) = one.frames()
    assert isinstance(rows, Rows) and [row.node for row in rows.rows] == [37]  # and no other
    other.board.on_rows(1, rows)
    for told in (one, other):
        found = [told.board.find(BROKER, broker).version - base for broker in (10, 37)]  # type: ignore[union-attr]
        assert found == [101, 105]
    other.host.advance(4 * SECOND)
    assert not any(isinstance(frame, RowNumbers) for _, frame in other.frames())  # one exchange was enough


def test_a_full_board_takes_no_new_row_but_newer_ones_of_those_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board, "ENTRIES_MAX", 2)
    told = Told(1)
    for broker, version in ((2, 1), (3, 1), (4, 1), (2, 2)):
        body = BROKER_ROWS.encode(row())
        told.board.on_rows(9, Rows((Row(BROKER, broker, version, 0, body),)))
    assert [(node, entry.version) for _, node, entry in told.news if entry] == [(2, 1), (3, 1), (2, 2)]
    assert [record.detail for record in told.host.records if isinstance(record, Dropped)] == ["too many rows"]
