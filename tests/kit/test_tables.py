"""The bounded tables against a plain list of entries, oldest first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.kit.tables import BoundedDict, ExpiringDict, LifetimeDict, unreported

MOST = 3
keys = st.integers(0, 6)
times = st.integers(0, 10)
steps = st.lists(st.tuples(st.sampled_from(["assign", "renew", "setdefault", "update", "pop"]), keys, times))


class Model:
    """What a bounded table must do, without thought for speed."""

    def __init__(self, *, by_time: bool) -> None:
        self.entries: list[tuple[int, int]] = []
        self.evicted: list[tuple[int, int]] = []
        self._by_time = by_time

    def pop(self, key: int) -> None:
        self.entries = [entry for entry in self.entries if entry[0] != key]

    def assign(self, key: int, value: int) -> None:
        if key in dict(self.entries):
            self.entries = [(each, value if each == key else known) for each, known in self.entries]
            return
        if len(self.entries) == MOST:
            first = min(self.entries, key=lambda entry: entry[::-1]) if self._by_time else self.entries[0]
            self.entries.remove(first)
            self.evicted.append(first)
        self.entries.append((key, value))


def played(table: BoundedDict[int, int], model: Model, moves: list[tuple[str, int, int]]) -> None:
    for move, key, value in moves:
        match move:
            case "assign":
                table[key] = value
                model.assign(key, value)
            case "renew":
                table.renew(key, value)
                model.pop(key)
                model.assign(key, value)
            case "setdefault":
                table.setdefault(key, value)
                model.assign(key, dict(model.entries).get(key, value))
            case "update":
                table.update({key: value})
                model.assign(key, value)
            case "pop":
                table.pop(key, None)
                model.pop(key)
        assert list(table.items()) == model.entries
        assert table.is_full == (len(table) == MOST)


@given(steps)
def test_the_oldest_makes_room_and_is_reported(moves: list[tuple[str, int, int]]) -> None:
    model, evicted = Model(by_time=False), []
    table: BoundedDict[int, int] = BoundedDict(MOST, lambda *entry: evicted.append(entry))
    played(table, model, moves)
    assert evicted == model.evicted


@given(steps)
def test_the_first_to_expire_makes_room_and_of_several_the_lowest_key(
    moves: list[tuple[str, int, int]],
) -> None:
    model, evicted = Model(by_time=True), []
    table: ExpiringDict[int, int] = ExpiringDict(
        MOST, lambda *entry: evicted.append(entry), lambda until: until
    )
    played(table, model, moves)
    assert evicted == model.evicted


@given(steps, times)
def test_entries_of_a_lifetime_are_evicted_and_expire_as_a_plain_search_says(
    moves: list[tuple[str, int, int]], now: int
) -> None:
    evicted: list[tuple[int, int]] = []
    table: LifetimeDict[int, int] = LifetimeDict(
        MOST, lambda *entry: evicted.append(entry), lambda until: until
    )
    model: dict[int, int] = {}
    expected: list[tuple[int, int]] = []
    for action, key, until in moves:
        if action == "pop":
            table.pop(key, None)
            model.pop(key, None)
            continue
        table[key] = model[key] = until
        if len(model) > MOST:
            first = min(model, key=lambda each: (model[each], each))
            expected.append((first, model.pop(first)))
    assert evicted == expected and dict(table) == model
    ended = [
        key for key, until in sorted(model.items(), key=lambda entry: (entry[1], entry[0])) if until <= now
    ]
    assert table.expire(now) == ended
    assert dict(table) == {key: until for key, until in model.items() if until > now}


def test_a_key_that_comes_and_goes_leaves_nothing_behind() -> None:
    table: LifetimeDict[int, int] = LifetimeDict(MOST, unreported, lambda until: until)
    for _ in range(10_000):
        table[1] = 5
        del table[1]
    assert len(table._by_expiry) < 200


@given(st.dictionaries(keys, times), times)
def test_what_is_over_goes_without_a_report(entries: dict[int, int], now: int) -> None:
    evicted: list[int] = []
    table: ExpiringDict[int, int] = ExpiringDict(10, lambda key, _: evicted.append(key), lambda until: until)
    table.update(entries)
    assert table.next_expiry() == min(entries.values(), default=None)
    assert table.expire(now) == [key for key, until in entries.items() if until <= now]
    assert table == {key: until for key, until in entries.items() if until > now}
    assert not evicted


@given(st.lists(times), times)
def test_the_oldest_are_forgotten_up_to_the_first_that_is_not_over(ends: list[int], now: int) -> None:
    table: BoundedDict[int, int] = BoundedDict(1_000, unreported)
    table.update(enumerate(ends))
    table.forget_oldest(lambda end: end <= now)
    first = next((place for place, end in enumerate(ends) if end > now), len(ends))
    assert list(table.values()) == ends[first:]


def test_a_bound_of_nothing_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        BoundedDict(0, unreported)
