"""The relay heuristic of RFC 3626, section 8.3.1: cases worked out by hand, and what must always hold."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.underlay.olsr.mpr import BITS_MAX, RelayCandidate, RelaySelection, select_relays
from roamcast.wire.olsr import WILL_ALWAYS, WILL_DEFAULT, WILL_NEVER

OWN = 1


def select(reached: dict[int, set[int]], **willingness: int) -> set[int]:
    """Neighbours with whom they reach; `n5=7` sets the willingness of neighbour 5."""
    return set(
        select_relays(
            OWN,
            {
                address: (willingness.get(f"n{address}", WILL_DEFAULT), frozenset(targets))
                for address, targets in reached.items()
            },
        )
    )


def test_without_2_hop_neighbours_nobody_relays() -> None:
    assert select({}) == set()
    # They see us and each other only.
    assert select({2: {OWN, 3}, 3: {OWN, 2}}) == set()


def test_who_alone_reaches_somebody_is_a_relay() -> None:
    assert select({2: {OWN, 10}, 3: {OWN, 11}}) == {2, 3}


def test_what_the_only_ways_cover_needs_nobody_else() -> None:
    # 2 alone reaches 10 and happens to reach 11 too, so 3 and 4 are not needed.
    assert select({2: {10, 11}, 3: {11}, 4: {11}}) == {2}


def test_the_widest_reach_wins_and_the_rest_is_covered_after_it() -> None:
    # 3 reaches four; 12 and 15 remain, which 4 reaches both; 2 and 5 reach one each of them.
    reached = {2: {10, 15, 12}, 3: {10, 11, 13, 14}, 4: {12, 15}, 5: {11, 13, 14, 10}}
    assert select(reached) == {2, 3}  # 2 covers {12, 15} as 4 does, but with the higher degree


def test_willingness_comes_before_reach() -> None:
    reached = {2: {10, 11, 12}, 3: {10, 11}, 4: {12}}
    assert select(reached) == {2}
    # 3 is more willing and taken first; 12 is left, which 2 reaches with higher degree than 4.
    # Step 5 then drops 3, the more willing last, only if needless: 2 covers all, but 2 goes first
    # in the order of willingness and is needed for 12; 3 is covered by 2 and goes.
    assert select(reached, n3=6) == {2}
    assert select(reached, n3=6, n4=6) == {3, 4}


def test_always_is_always_and_never_is_never() -> None:
    assert select({2: {OWN}, 3: {10}}, n2=WILL_ALWAYS) == {2, 3}
    # 10 is reached through the unwilling alone: it is no target at all (section 8.3.1, N2 (i)).
    assert select({2: {10}, 3: {11}}, n2=WILL_NEVER) == {3}


def test_ties_go_to_who_comes_first() -> None:
    assert select({4: {10, 11}, 3: {10, 11}, 2: {11, 10}}) == {4}
    assert select({2: {11, 10}, 3: {10, 11}, 4: {10, 11}}) == {2}


def test_neighbours_and_this_node_are_no_targets() -> None:
    assert select({2: {OWN, 3}, 3: {OWN, 2, 10}, 4: {OWN, 10, 11}}) == {4}


NEIGHBOURHOODS = st.dictionaries(
    st.integers(2, 9),
    st.tuples(st.integers(0, 7), st.frozensets(st.integers(1, 20), max_size=8)),
    max_size=8,
)


@given(NEIGHBOURHOODS)
@settings(max_examples=300, deadline=None)
def test_relays_cover_all_that_can_be_covered_and_none_is_needless(
    neighbours: dict[int, RelayCandidate],
) -> None:
    relays = select_relays(OWN, neighbours)
    members = {OWN, *neighbours}

    def targets(addresses: set[int] | frozenset[int]) -> set[int]:
        return {target for address in addresses for target in neighbours[address][1]} - members

    willing = {address for address, (willingness, _) in neighbours.items() if willingness != WILL_NEVER}
    assert relays <= willing
    assert targets(relays) == targets(willing)
    assert {address for address in willing if neighbours[address][0] == WILL_ALWAYS} <= relays
    for relay in relays:
        if neighbours[relay][0] != WILL_ALWAYS:
            assert targets(relays - {relay}) != targets(relays), f"{relay} is needless"


@given(st.lists(NEIGHBOURHOODS, max_size=6), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_was_selected_before_makes_no_difference(
    neighbourhoods: list[dict[int, RelayCandidate]], by_degree: bool
) -> None:
    selection = RelaySelection(OWN, by_degree=by_degree)
    members: dict[int, RelayCandidate] = {}
    for changed in neighbourhoods:
        # Once with these neighbours alone, once with all so far: the same members may reach others now.
        members |= changed
        for neighbours in (changed, members):
            assert selection.select(neighbours) == select_relays(OWN, neighbours, by_degree=by_degree)


def test_no_more_addresses_are_remembered_than_the_bound_and_one_selection_take() -> None:
    selection = RelaySelection(OWN, by_degree=True)
    for first in range(10, 10 + 20 * BITS_MAX, BITS_MAX // 2):  # a neighbour that names others each time
        reached = frozenset(range(first, first + BITS_MAX // 2))
        assert selection.select({2: (WILL_DEFAULT, reached)}) == {2}
        assert len(selection.bits) <= BITS_MAX + len(reached)
