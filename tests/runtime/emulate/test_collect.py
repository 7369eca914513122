"""Which frames were in which datagram: what a node says and what the ether saw, joined by order and size."""

from roamcast.runtime.emulate.collect import SEEN_WITHIN, AirAttempt, with_outcomes
from roamcast.trace import Dropped, DropReason, Transmitted
from roamcast.units import MILLISECOND, NodeId


def sent(t: int, size: int, to: NodeId | None = None, kind: str = "control") -> Transmitted:
    return Transmitted(t, 0, to, kind, "m", size, 1, 0, 5, size, True, 0, 0, 0)


def seen(
    number: int, taken: int, datagram: int | None, to: NodeId | None = None, **outcome: object
) -> AirAttempt:
    attempt = AirAttempt(number, taken, taken + 10, 0, to, "udp", datagram, 100, 1, 77, [1], [], [])
    return attempt._replace(**outcome)  # type: ignore[arg-type]


def received(records: list[Transmitted | Dropped]) -> list[int]:
    return [record.received for record in records if isinstance(record, Transmitted)]


def test_a_frame_alone_in_its_datagram_gets_that_datagrams_fate() -> None:
    (known,) = with_outcomes([sent(1_000, 50)], [seen(1, 1_200, 50, received=[1, 3], faded=[2])])
    assert isinstance(known, Transmitted)
    assert (known.t, known.airtime) == (1_210, 77)
    assert (known.received, known.collided, known.faded) == (0b1010, 0, 0b100)
    assert known.size == 50 and known.sequence == 50


def test_frames_that_share_a_datagram_share_its_fate() -> None:
    rows = [sent(1_000, 50), sent(1_000, 20), sent(1_000, 30), sent(2_000, 60)]
    attempts = [seen(1, 1_200, 100, received=[1]), seen(2, 2_200, 60, received=[2])]
    assert received(with_outcomes(rows, attempts)) == [2, 2, 2, 4]


def test_datagrams_that_no_layer_asked_for_match_nothing() -> None:
    rows = [sent(1_000, 50)]
    attempts = [seen(1, 900, 32), seen(2, 1_100, 32), seen(3, 1_200, 50, received=[4])]
    assert received(with_outcomes(rows, attempts)) == [16]


def test_a_frame_is_not_in_a_datagram_that_was_seen_before_it_was_sent() -> None:
    rows = [sent(1_000, 50)]
    assert received(with_outcomes(rows, [seen(1, 999, 50)])) == [0]


def test_a_frame_that_the_kernel_lost_does_not_take_the_next_ones_place() -> None:
    rows = [sent(1_000, 50), sent(2_000, 51), sent(3_000, 52)]
    attempts = [seen(1, 2_100, 51, received=[1]), seen(2, 3_100, 52, received=[2])]
    assert received(with_outcomes(rows, attempts)) == [0, 2, 4]


def test_a_frame_waits_only_so_long_for_its_datagram() -> None:
    rows = [sent(0, 50)]
    assert received(with_outcomes(rows, [seen(1, SEEN_WITHIN + MILLISECOND, 50)])) == [0]


def test_addressees_are_kept_apart() -> None:
    rows = [sent(1_000, 50, to=1), sent(1_000, 50, to=2), sent(1_000, 50)]
    attempts = [seen(1, 1_100, 50, 2, received=[2]), seen(2, 1_200, 50, None, received=[1, 2])]
    assert received(with_outcomes(rows, attempts)) == [0, 4, 6]


def test_of_a_link_layers_repeats_the_last_decides() -> None:
    attempts = [
        seen(1, 1_100, 50, 1, received=[], collided=[1]),
        seen(1, 1_100, 50, 1, attempt=2, t=5_000, received=[1]),
    ]
    (known,) = with_outcomes([sent(1_000, 50, to=1)], attempts)
    assert isinstance(known, Transmitted)
    assert (known.t, known.received, known.collided) == (5_000, 2, 0)


def test_data_for_one_neighbour_went_over_tcp_and_is_left_alone() -> None:
    rows = [sent(1_000, 50, to=1, kind="data")]
    assert with_outcomes(rows, [seen(1, 1_100, 50, 1)]) == rows


def test_what_found_the_queue_full_was_dropped_with_its_event() -> None:
    full = AirAttempt(2, 1_300, 1_300, 0, None, "udp", 60, 0, 0, 0, [], [], [], "queue_full")
    rows = [sent(1_000, 50), sent(1_100, 60)]
    first, second = with_outcomes(rows, [seen(1, 1_200, 50), full])
    assert isinstance(first, Transmitted) and first.received == 2
    assert second == Dropped(1_300, 0, DropReason.QUEUE_FULL, "m", 5, 60)
