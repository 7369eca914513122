"""Thousands of subscriptions at one broker: the work of one turn stays small, and nothing is missed."""

from random import Random

import pytest

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.strategy.odmrp import context
from roamcast.strategy.odmrp.context import OwnInterests
from roamcast.strategy.odmrp.summary.conditions import entries_of
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.entry import COMPARED_MAX, thinned
from roamcast.strategy.odmrp.summary.geometry import DEFAULT


def _filters(count: int) -> list[Filter]:
    kinds = (
        lambda number: Filter.topic(f"site/{number}/value"),
        lambda number: Filter.topic(f"site/{number}/#"),
        lambda number: Filter.sql(f"level > {number}"),
        lambda number: Filter.sql(f"room = {number} AND level = {number}"),
    )
    return [kinds[number % len(kinds)](number) for number in range(count)]


def test_each_filter_is_turned_into_entries_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Filter] = []

    def counted(wanted: Filter, geometry: object) -> object:
        computed.append(wanted)
        return entries_of(wanted, DEFAULT.geometry)

    monkeypatch.setattr(context, "entries_of", counted)
    wanted: list[Filter] = []
    own = OwnInterests(lambda: list(wanted), DEFAULT)
    for each in _filters(1_000):
        wanted.append(each)
        own.on_changed(each, None)
        if len(wanted) % 200 == 0:
            assert own.octets
    assert computed == wanted
    while wanted:
        own.on_changed(None, wanted.pop())
    assert not own._entries  # although nobody has asked
    assert own.octets is None


def test_few_entries_are_left_and_none_is_missed() -> None:
    several = {entry for each in _filters(1_000) for entry in entries_of(each, DEFAULT.geometry)}
    few = thinned(several)
    assert len(few) <= COMPARED_MAX + 4  # and one incomplete run of each kind
    assert all(any(wide.covers(entry) for wide in few) for entry in several)
    shuffled = sorted(several, key=lambda entry: entry.constraints)
    Random(1).shuffle(shuffled)
    assert set(thinned(shuffled)) == set(few)
    assert thinned(shuffled[:COMPARED_MAX]) == shuffled[:COMPARED_MAX]


def test_more_kinds_of_entries_than_are_compared_become_everything() -> None:
    wanted = [Filter.sql(f"a{number} = 1") for number in range(COMPARED_MAX + 1)]
    own = OwnInterests(lambda: wanted, DEFAULT)
    assert own.match(EventDigest.of(Event(1, 1, {"b": 2})).encode())
