"""Distances, records of interests, and what rides in a beacon, each alone."""

from hypothesis import given
from hypothesis import strategies as st

from roamcast.broker.core import Broker
from roamcast.filter import Filter
from roamcast.kit.protocol import MessageLayer
from roamcast.strategy.directed.distances import (
    GONE,
    LASTS_FOR,
    LOST_LATELY,
    NAMES_MAX,
    RENEWED_EVERY,
    WHOLE_TURNS,
    Distances,
)
from roamcast.strategy.directed.interests import (
    CHEAP_VERSIONS,
    FILTERS_MAX,
    SPREADING,
    InterestRow,
    InterestRows,
    Interests,
    InterestVersions,
    summary,
)
from roamcast.strategy.directed.messages import CODEC, MARKS_MAX, Rider
from roamcast.testing import FakeHost
from roamcast.units import SECOND


class Silent:
    def on_event(self, delivery: object) -> None:
        pass


def entry(name: int, hops: int, number: int, via: int) -> bytes:
    return bytes([name >> 8, name & 255, hops << 4 | number, via])


def distances_of(node: int, *near: int) -> tuple[Distances, FakeHost]:
    host = FakeHost(node)
    distances = Distances(host)
    for one in near:
        distances.on_up(one)
    return distances, host


def test_the_shortest_way_counts_and_one_that_leads_back_does_not() -> None:
    distances, _ = distances_of(1, 2, 3)
    distances.on_entries(2, entry(9, 4, 0, 7))
    assert distances.of(9) == 5 and distances.by(2, 9) == 4
    distances.on_entries(3, entry(9, 2, 0, 1))  # its way is by node 1
    assert distances.of(9) == 5
    distances.on_entries(3, entry(9, 2, 0, 8))
    assert distances.of(9) == 3
    distances.put_aside(3)
    assert distances.of(9) == 5 and distances.neighbours() == [2]
    distances.on_heard(3)
    assert distances.of(9) == 3
    distances.on_down(3)
    distances.on_down(2)
    assert distances.of(9) == GONE and not distances.is_absent(9)


def test_old_numbers_do_not_count_and_silence_ends_a_distance() -> None:
    distances, host = distances_of(1, 2, 3)
    distances.on_entries(2, entry(9, 1, 3, 9))
    distances.on_entries(3, entry(9, 3, 5, 8))
    assert distances.of(9) == 4, "two numbers ago the way was shorter"
    host.advance(LASTS_FOR + 1)
    assert distances.of(9) == GONE
    assert not distances.is_absent(9)
    host.advance(LOST_LATELY + 1)
    assert distances.is_absent(9)


def test_an_entry_is_told_when_it_has_changed() -> None:
    distances, host = distances_of(1, 2)
    distances.told_until = 3_600 * SECOND
    distances.on_entries(2, entry(9, 1, 3, 9))
    for _ in range(WHOLE_TURNS):
        assert len(distances.entries()) == 8
    assert distances.entries() == b""
    host.advance(RENEWED_EVERY)
    own = distances.entries()
    assert own[:2] == bytes([0, 1]) and own[2] >> 4 == 0 and len(own) == 4
    distances.on_entries(2, entry(9, 1, 4, 9))
    assert distances.entries() == entry(9, 2, 4, 2)
    distances.on_down(2)
    assert distances.entries()[:3] == entry(9, GONE, 4, 0)[:3]
    assert distances.entries() == b""


@given(st.lists(st.binary(max_size=400), max_size=20))
def test_any_octets_are_entries_within_bounds(told: list[bytes]) -> None:
    distances, host = distances_of(1, 2, 3)
    for number, octets in enumerate(told):
        distances.on_entries(2 + number % 3, octets)
        assert len(distances.entries()) <= 4 * 255
        host.advance(SECOND)
    assert all(0 < distances.of(name) <= GONE for name in range(300) if name != 1)


def test_a_neighbour_cannot_fill_the_table() -> None:
    distances, _ = distances_of(1, 2)
    for name in range(3 * NAMES_MAX):
        distances.on_entries(2, entry(name + 2, 1, 0, 9))
    known = [name for name in range(3 * NAMES_MAX) if distances.of(name + 2) < GONE]
    assert 0 < len(known) <= NAMES_MAX


RIDERS = st.builds(
    Rider,
    st.sampled_from([b"", b"abcd"]),
    st.sampled_from([b"", b"wxyz"]),
    st.binary(max_size=50).map(lambda octets: octets[: len(octets) // 4 * 4]),
    st.lists(st.integers(0, 0xFFFF), max_size=20).map(tuple),
    st.booleans(),
)


@given(RIDERS)
def test_a_rider_is_read_as_it_was_written(rider: Rider) -> None:
    assert Rider.decode(rider.encode()) == rider


@given(st.binary(max_size=60))
def test_any_octets_are_a_rider(octets: bytes) -> None:
    rider = Rider.decode(octets)
    assert len(rider.marks) <= len(octets) and len(rider.entries) % 4 <= 3


def test_a_rider_names_the_newest_of_too_many_events() -> None:
    rider = Rider(marks=tuple(range(MARKS_MAX + 5)))
    assert Rider.decode(rider.encode()).marks == rider.marks[5:]


def test_a_record_leaves_out_what_is_covered_and_gives_up_above_a_bound() -> None:
    wide, narrow, other = (Filter.sql(text) for text in ("a > 1", "a > 5", "b = 2"))
    assert summary([narrow, wide, other, wide]) == tuple(sorted([wide.encode(), other.encode()]))
    assert summary([]) == ()
    many = [Filter.sql(f"a = {number}") for number in range(FILTERS_MAX + 1)]
    assert len(summary(many[:-1])) == FILTERS_MAX
    assert summary(many) == (Filter.everything().encode(),)
    assert summary([Filter.sql("a = '" + "x" * 2_000 + "'")]) == (Filter.everything().encode(),)


def test_many_versions_are_not_named_while_records_still_come() -> None:
    host = FakeHost(1)
    layer = MessageLayer(host, CODEC)
    host.attach(layer)
    interests = Interests(layer.messenger, Broker(host, Silent()), lambda owner: None)
    rows = interests.handlers[InterestRows]

    def versions_sent() -> int:
        return sum(isinstance(CODEC.decode(one.frame.payload), InterestVersions) for one in host.sent)

    interests.on_up(2)
    for owner in range(CHEAP_VERSIONS + 10):
        rows(2, InterestRows((InterestRow((), (10 + owner, 1)),)))
        host.advance(SPREADING // 3)
        if owner > CHEAP_VERSIONS:
            host.sent.clear()
            interests.on_fingerprint(2, b"else")
            assert not versions_sent()
    host.advance(SPREADING)
    interests.on_fingerprint(2, b"else")
    assert versions_sent() == 1
