"""Versioned records: the newest stands, and two nodes that differ say so."""

from itertools import product
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from roamcast.kit.replica import Replica


class Line(NamedTuple):
    version: int
    text: str = ""


def replica(*rows: tuple[int, int]) -> Replica[int, Line]:
    made: Replica[int, Line] = Replica()
    for key, version in rows:
        made.enter(key, Line(version))
    return made


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)))


@given(ROWS, st.randoms(use_true_random=False))
def test_the_newest_stands_in_whatever_order_records_come(
    rows: list[tuple[int, int]], random: Random
) -> None:
    newest: dict[int, int] = {}
    for key, version in rows:
        newest[key] = max(version, newest.get(key, -1))
    shuffled = random.sample(rows * 2, 2 * len(rows))
    made, other = replica(*rows), replica(*shuffled)
    assert {key: record.version for key, record in made.records.items()} == newest
    assert made.fingerprint == other.fingerprint and other.newer_than(newest) == []


@given(ROWS, ROWS)
def test_a_fingerprint_is_the_same_exactly_where_the_versions_are(
    rows: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    one, other = replica(*rows), replica(*others)
    versions = [{key: record.version for key, record in made.records.items()} for made in (one, other)]
    assert (one.fingerprint == other.fingerprint) == (versions[0] == versions[1])
    assert bool(one.newer_than(versions[1])) == bool(other.older_than(versions[0]))


def test_nodes_that_lack_one_record_each_say_different_fingerprints() -> None:
    """What a linear checksum hides: the versions differ by one, in opposite directions."""
    base = 1 << 20
    for first, second, version, later in product(range(20), range(20, 40), (100, 104, 255), (105, 300)):
        one = replica((first, base + version), (second, base + later + 1))
        other = replica((first, base + version + 1), (second, base + later))
        assert one.fingerprint != other.fingerprint


def test_what_is_forgotten_leaves_the_fingerprint_too() -> None:
    made = replica((1, 4), (2, 7), (3, 1))
    assert made.forget(lambda key, record: record.version > 3) == [1, 2]
    assert made.fingerprint == replica((3, 1)).fingerprint and made.version(2) == -1
    assert made.enter(2, Line(0)) and not made.enter(3, Line(1))
    assert made.forget(lambda key, record: True) == [3, 2] and made.fingerprint == 0
