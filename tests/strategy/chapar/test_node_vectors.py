"""Node vectors and the equations over them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.strategy.chapar.event_multicasting import divide
from roamcast.strategy.chapar.node_vectors import (
    BLOOM_BITS_PER_NODE,
    BloomAddresses,
    OrderedAddresses,
    bits_of,
    multimode,
    notified,
    returned,
    vector_of,
    without,
)

ORDERED = OrderedAddresses()


def bits(*nodes: int) -> int:
    return sum(1 << node for node in nodes)


def test_an_address_is_its_distance_from_the_first_of_the_pool() -> None:
    pool = OrderedAddresses(first=100, size=255)  # a class C pool, as in the paper
    assert pool.bit(100) == 1
    assert pool.bit(354) == 1 << 254
    assert pool.bit(99) == pool.bit(355) == 0
    assert pool.nodes(pool.bit(103) | pool.bit(101)) == [101, 103]


def test_forty_nodes_take_five_octets() -> None:
    assert len(ORDERED.encode(vector_of(ORDERED, range(40)))) == 5


@given(st.sets(st.integers(0, 1000)))
def test_a_bitmap_comes_back_from_its_octets(nodes: set[int]) -> None:
    vector = vector_of(ORDERED, nodes)
    assert ORDERED.decode(ORDERED.encode(vector), ()) == vector
    assert ORDERED.nodes(vector) == sorted(nodes) == bits_of(vector)


def test_octets_beyond_the_pool_are_ignored() -> None:
    assert OrderedAddresses(size=10).decode(b"\xff" * 512, ()) == (1 << 10) - 1


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 2**32), max_size=40), st.sets(st.integers(0, 2**32), max_size=200))
def test_a_bloom_filter_never_misses_a_member_and_numbers_nodes_by_itself(
    members: set[int], others: set[int]
) -> None:
    sender, receiver = BloomAddresses(), BloomAddresses()
    data = sender.encode(vector_of(sender, sorted(members)))
    assert len(data) == len(members) * BLOOM_BITS_PER_NODE // 8
    receiver.bit(7)  # the numbering of one node means nothing to the other
    read = receiver.nodes(receiver.decode(data, sorted(members | others)))
    assert members <= set(read) <= members | others


def test_about_two_in_a_hundred_other_nodes_are_false_members() -> None:
    addresses = BloomAddresses()
    false_members = 0
    for group in range(40):
        data = addresses.encode(vector_of(addresses, range(group * 20, group * 20 + 20)))
        others = range(1_000_000, 1_000_050)
        false_members += addresses.decode(data, others).bit_count()
    assert 0.005 < false_members / (40 * 50) < 0.05


def test_figure_3_step_by_step() -> None:
    next_hop = {3: 7, 5: 6, 7: 7, 6: 6, 2: 2, 1: 1}
    at_4 = divide(bits(3, 5, 7), bits(4), bits(1, 2), bits(2), next_hop.get, ORDERED)
    assert at_4.notified == 0  # NSNV
    assert at_4.groups == {6: bits(5), 7: bits(3, 7)}  # RNV
    at_7 = divide(bits(3, 7), bits(7), bits(3), bits(4), {3: 3}.get, ORDERED)
    assert at_7.notified == bits(3, 7)
    assert at_7.groups == {}
    at_6 = divide(bits(5), bits(6), bits(5), bits(4), {5: 5}.get, ORDERED)
    assert at_6.notified == bits(5)


vectors = st.integers(0, 2**24 - 1)


@given(vectors, st.integers(0, 23), vectors, st.integers(0, 23))
def test_a_step_loses_no_destination_and_serves_none_twice(
    destinations: int, host: int, neighbours: int, preceding: int
) -> None:
    hops = {node: (node * 7 + 3) % 24 if node % 5 else None for node in range(24)}
    result = divide(destinations, 1 << host, neighbours, 1 << preceding, hops.get, ORDERED)
    parts = [result.notified, *result.groups.values(), result.stranded]
    assert sum(part.bit_count() for part in parts) == destinations.bit_count()
    together = 0
    for part in parts:
        together |= part
    assert together == destinations


def test_the_equations_on_numbers_computed_by_hand() -> None:
    # (2): destinations 1, 2, 5; this host is 5; neighbours 1, 2, 3; the event came from 2.
    assert notified(bits(1, 2, 5), bits(5), bits(1, 2, 3), bits(2)) == bits(1, 5)
    # A preceding broker that is no plain neighbour must not be added, as ⊕ would.
    assert notified(bits(1, 4), bits(5), bits(1, 2), bits(4)) == bits(1)
    assert returned(bits(3, 8), bits(8, 9)) == bits(8)  # (4)
    assert without(bits(3, 8), bits(8)) == bits(3)  # (5)
    assert without(bits(3, 8), bits(1, 3)) == bits(8)  # (6): only 3 is available
    assert multimode(bits(9), bits(3, 7)) == bits(3, 7, 9)  # (7)
