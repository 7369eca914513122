"""The two ends of one direction of a link, over a channel that loses, repeats and reorders."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.filter import Filter
from roamcast.strategy.tree.content.announcer import (
    FilterAnnouncement,
    NeighbourTable,
    digest_of,
)
from roamcast.strategy.tree.content.messages import FilterUpdate, UpdateAcknowledgement

A, B, C = (Filter.sql(f"level = {number}") for number in range(3))


def no_age(_: Filter) -> int:
    return 0


def test_one_update_is_on_the_way_and_what_changes_meanwhile_goes_into_the_next() -> None:
    teller = FilterAnnouncement(7, 1_000)
    first = teller.next_update([A], no_age)
    assert first is not None and (first.base, first.version, first.complete) == (0, 1, True)
    assert teller.next_update([A, B], no_age) is None
    assert teller.refresh() is None
    assert teller.on_acknowledge(UpdateAcknowledgement(7, 1))
    second = teller.next_update([B, C], no_age)
    assert second is not None and second.base == 1
    assert [Filter.decode(encoded) for encoded, _ in second.add] == [B, C]
    assert [Filter.decode(encoded) for encoded in second.remove] == [A]
    assert teller.on_acknowledge(UpdateAcknowledgement(7, 2))
    assert teller.refresh() is not None
    assert teller.next_update([C, B], no_age) is None


def test_an_empty_set_is_told_once() -> None:
    teller = FilterAnnouncement(7, 1_000)
    assert teller.next_update([], no_age) is not None
    assert teller.on_acknowledge(UpdateAcknowledgement(7, 1))
    assert teller.next_update([], no_age) is None


def test_answers_to_others_or_to_earlier_updates_are_not_taken() -> None:
    teller = FilterAnnouncement(7, 1_000)
    teller.next_update([A], no_age)
    assert not teller.on_acknowledge(UpdateAcknowledgement(6, 1))
    assert not teller.on_acknowledge(UpdateAcknowledgement(7, 0))
    assert teller.outstanding is not None


def test_a_listener_that_missed_a_version_says_so_and_is_told_everything() -> None:
    teller, listener = FilterAnnouncement(7, 1_000), NeighbourTable(100)
    teller.next_update([A], no_age)
    teller.on_acknowledge(UpdateAcknowledgement(7, 1))  # by someone who then crashed
    update = teller.next_update([A, B], no_age)
    assert update is not None
    assert listener.on_update(update, 0) == UpdateAcknowledgement(update.session, 0, lost=True)
    assert teller.on_acknowledge(UpdateAcknowledgement(7, 0, lost=True))
    again = teller.next_update([A, B], no_age)
    assert again is not None and again.base == 0
    assert listener.on_update(again, 0) == UpdateAcknowledgement(again.session, again.version)
    assert set(listener.table() or {}) == {A, B}


def test_a_later_session_replaces_the_table_and_an_earlier_one_is_stale() -> None:
    listener = NeighbourTable(100)
    early = FilterUpdate(7, 0, 5, True, ((A.encode(), 30),), ())
    late = FilterUpdate(8, 0, 1, True, ((B.encode(), 30),), ())
    assert listener.on_update(early, 100) == UpdateAcknowledgement(early.session, early.version)
    assert listener.table() == {A: 70}
    assert listener.on_update(late, 100) == UpdateAcknowledgement(late.session, late.version)
    assert listener.on_update(early, 100) is None
    assert listener.on_update(late, 200) == UpdateAcknowledgement(late.session, late.version)
    assert listener.table() == {B: 70}


def test_a_table_beyond_the_bound_is_refused() -> None:
    listener = NeighbourTable(2)
    update = FilterUpdate(7, 0, 1, True, tuple((each.encode(), 0) for each in (A, B, C)), ())
    assert listener.on_update(update, 0) == UpdateAcknowledgement(update.session, 0, lost=True)
    assert listener.table() is None


def test_the_digest_is_of_the_set_not_of_its_order() -> None:
    assert digest_of([A, B]) == digest_of([B, A]) != digest_of([A])
    assert digest_of([]) != digest_of([A])


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_over_any_channel_the_listener_ends_with_what_the_teller_wants(seed: int) -> None:
    """Messages are lost, delivered late and delivered twice; the listener may be reborn."""
    random = Random(seed)
    pool = [Filter.sql(f"level = {number}") for number in range(12)]
    teller, listener = FilterAnnouncement(1, 40), NeighbourTable(100)
    wanted: set[Filter] = set()
    air: list[FilterUpdate] = []
    for step in range(120):
        fair = step >= 60
        if not fair:
            wanted ^= {random.choice(pool)}
            if random.random() < 0.03:
                listener = NeighbourTable(100)
        teller.next_update(sorted(wanted, key=Filter.encode), no_age)
        if teller.outstanding is not None:
            air.append(teller.outstanding)
        elif fair and (refresh := teller.refresh()) is not None and listener.is_outdated(refresh):
            teller.on_acknowledge(UpdateAcknowledgement(refresh.session, listener.version, lost=True))
        random.shuffle(air)
        while air and (fair or random.random() < 0.5):
            update = air.pop()
            if not fair and random.random() < 0.3:
                continue
            if not fair and random.random() < 0.3:
                air.insert(0, update)
            answer = listener.on_update(update, 0)
            if answer is not None and (fair or random.random() < 0.7):
                teller.on_acknowledge(answer)
            if not fair:
                break
    assert set(listener.table() or {}) == wanted, seed
