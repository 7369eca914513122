"""Relays that a sender names: greedy shares, names, turns."""

from hypothesis import given
from hypothesis import strategies as st

from roamcast.event import Event
from roamcast.kit.cover import NAME_BYTES, RELAYS_MAX, names_of, place_of, shares, turn, two_hop_relays
from roamcast.testing import FakeHost
from roamcast.units import NodeId

#  0 in the middle; 1 reaches 4, 5, 6; 2 reaches 6, 7; 3 reaches 7.
LINKS: dict[NodeId, list[NodeId]] = {1: [0, 4, 5, 6], 2: [0, 6, 7], 3: [0, 7]}


def test_few_neighbours_cover_all_that_is_two_hops_away() -> None:
    assert two_hop_relays(0, [1, 2, 3], LINKS.__getitem__) == [1, 2]
    assert two_hop_relays(0, [1, 2, 3], LINKS.__getitem__, {4, 5, 6}) == [2]
    assert two_hop_relays(0, [1, 2, 3], LINKS.__getitem__, {4, 5, 6, 7}) == []


def test_a_neighbour_of_whose_neighbours_nothing_is_known_is_named() -> None:
    assert two_hop_relays(0, [1, 9], lambda node: LINKS.get(node, [])) == [1, 9]


@given(
    st.dictionaries(st.integers(0, 20), st.frozensets(st.integers(30, 50)), max_size=12),
    st.frozensets(st.integers(30, 50)),
)
def test_shares_are_disjoint_and_serve_whom_anybody_can_serve(
    can: dict[NodeId, frozenset[NodeId]], wanted: frozenset[NodeId]
) -> None:
    chosen = shares(can, wanted)
    served = [node for share in chosen.values() for node in share]
    assert len(served) == len(set(served))
    assert set(served) == wanted & frozenset().union(*can.values())
    assert all(share and share <= can[relay] for relay, share in chosen.items())


def test_a_name_is_found_at_its_place_and_no_other_octets_are_taken_for_it() -> None:
    names = names_of([0x0102, 2**63 + 0x0203, 5])
    assert (place_of(0x0102, names), place_of(2**63 + 0x0203, names), place_of(5, names)) == (0, 1, 2)
    assert place_of(0x0202, names) is None, "the end of one name and the beginning of the next"
    assert place_of(5, b"\x05") is None and place_of(5, b"") is None
    assert len(names_of(range(1_000))) == RELAYS_MAX * NAME_BYTES


def test_each_relay_waits_two_airtimes_longer_than_the_one_before() -> None:
    host, event = FakeHost(1), Event(1, 1, payload=bytes(252))
    airtime = host.airtime(300)
    for place in range(3):
        assert 2 * place * airtime <= turn(host, place, event) < 2 * place * airtime + airtime / 2
