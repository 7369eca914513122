"""Links, topology, duplicates and routes, each driven by hand."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.underlay.olsr.flooding import Duplicates
from roamcast.underlay.olsr.links import LinkSet
from roamcast.underlay.olsr.neighbourhood import Neighbours
from roamcast.underlay.olsr.routing import OlsrRoute, shortest_routes
from roamcast.underlay.olsr.topology import Associations, TopologySet
from roamcast.units import SECOND
from roamcast.wire.olsr import Hello, Hna, LinkType, Mid, NeighbourType, Tc, link_code

OWN, B, C, D = 1, 2, 3, 4
SYMMETRIC = link_code(LinkType.SYMMETRIC, NeighbourType.SYMMETRIC)
ASYMMETRIC = link_code(LinkType.ASYMMETRIC, NeighbourType.NOT)
LOST = link_code(LinkType.LOST, NeighbourType.NOT)
HOLD = 6 * SECOND


def hello(links: dict[int, int], willingness: int = 3) -> Hello:
    symmetric = frozenset(address for address, code in links.items() if code >> 2)
    return Hello(2 * SECOND, willingness, links, symmetric)


# Links.


def test_a_link_is_asymmetric_until_the_other_side_names_us() -> None:
    links = LinkSet(OWN, HOLD, 10)
    link = links.on_hello(B, B, hello({}), HOLD, 0)
    assert link is not None and link.status(0) is LinkType.ASYMMETRIC
    links.on_hello(B, B, hello({OWN: ASYMMETRIC}), HOLD, 0)
    assert link.status(0) is LinkType.SYMMETRIC


def test_a_neighbour_that_stops_hearing_us_is_not_symmetric_any_more() -> None:
    links = LinkSet(OWN, HOLD, 10)
    link = links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD, 0)
    assert link is not None and link.is_symmetric(0)  # else the last line proves nothing
    links.on_hello(B, B, hello({OWN: LOST}), HOLD + 1, 1)
    assert link.status(1) is LinkType.ASYMMETRIC


def test_not_named_is_not_lost_because_a_hello_may_be_partial() -> None:
    links = LinkSet(OWN, HOLD, 10)
    link = links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD, 0)
    links.on_hello(B, B, hello({}), HOLD + SECOND, SECOND)
    assert link is not None
    assert link.status(HOLD - 1) is LinkType.SYMMETRIC
    assert link.status(HOLD) is LinkType.ASYMMETRIC  # heard for a second longer
    assert link.status(HOLD + SECOND) is LinkType.LOST


def test_a_silent_link_is_lost_when_its_validity_ends_and_forgotten_after_the_hold_time() -> None:
    links = LinkSet(OWN, HOLD, 10)
    links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD, 0)
    assert links.purge(HOLD - 1) == HOLD
    assert links.purge(HOLD) == 2 * HOLD and links.table[B].status(HOLD) is LinkType.LOST
    assert links.purge(2 * HOLD) is None and links.table == {}


def test_a_failure_of_the_link_layer_stands_against_hellos_for_the_hold_time() -> None:
    links = LinkSet(OWN, HOLD, 10)
    links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD, 0)
    links.on_failure(B, SECOND)
    link = links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD + 2 * SECOND, 2 * SECOND)
    assert link is not None and link.status(2 * SECOND) is LinkType.LOST
    assert link.status(HOLD + SECOND) is LinkType.SYMMETRIC
    assert links.on_failure(C, 0) is None


def test_a_failure_with_a_time_of_its_own_ends_with_the_next_hello_after_it_and_not_by_itself() -> None:
    links = LinkSet(OWN, HOLD, 10, lost_hold=SECOND)
    links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD, 0)
    link = links.on_failure(B, SECOND)
    assert link is not None
    assert [link.status(at * SECOND) for at in (1, 2, 3)] == [LinkType.LOST] * 3
    links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD + 3 * SECOND, 3 * SECOND)
    assert link.status(3 * SECOND) is LinkType.SYMMETRIC


def test_a_failure_that_hellos_contradict_is_not_believed_before_one_is_missing() -> None:
    links = LinkSet(OWN, HOLD, 10, lost_hold=SECOND, failure_silence=2 * SECOND)
    links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD, 0)
    link = links.on_failure(B, SECOND)
    assert link is not None
    assert link.status(SECOND) is LinkType.SYMMETRIC and link.deadline(SECOND) == 2 * SECOND
    assert link.status(2 * SECOND) is LinkType.LOST  # instead of after the hold time
    links.on_hello(B, B, hello({OWN: SYMMETRIC}), HOLD + SECOND, SECOND)  # it came: the link is as before
    assert link.status(HOLD) is LinkType.SYMMETRIC
    links.on_failure(B, 4 * SECOND)  # none for three seconds
    assert link.status(4 * SECOND) is LinkType.LOST


def test_a_full_link_set_takes_no_stranger_but_renews_acquaintances() -> None:
    links = LinkSet(OWN, HOLD, 1)
    assert links.on_hello(B, B, hello({}), HOLD, 0) is not None
    assert links.on_hello(C, C, hello({}), HOLD, 0) is None
    assert links.on_hello(B, B, hello({}), HOLD + 1, 1) is not None


# Neighbours.


def test_2_hop_neighbours_are_those_named_until_denied_or_silent() -> None:
    neighbours = Neighbours(100, lambda: None)
    assert neighbours.on_hello(B, hello({C: SYMMETRIC, D: SYMMETRIC}), HOLD, 0)
    assert neighbours.table[B].reached(0) == {C, D}
    assert neighbours.on_hello(B, hello({C: LOST}), HOLD + SECOND, SECOND)  # C is denied, D left out
    assert neighbours.table[B].reached(SECOND) == {D}
    assert neighbours.table[B].reached(HOLD) == frozenset()
    assert neighbours.purge(HOLD) == (True, HOLD + SECOND)


def test_a_hello_that_repeats_itself_changes_nothing_but_the_deadline() -> None:
    neighbours = Neighbours(100, lambda: None)
    same = hello({C: SYMMETRIC})
    neighbours.on_hello(B, same, HOLD, 0)
    assert not neighbours.on_hello(B, same, HOLD + SECOND, SECOND)
    assert not neighbours.on_hello(B, hello({C: SYMMETRIC}), HOLD + SECOND, SECOND)
    assert neighbours.table[B].reached(HOLD) == {C}
    assert neighbours.on_hello(B, hello({C: SYMMETRIC}, willingness=6), HOLD + SECOND, SECOND)


def test_addresses_left_out_are_forgotten_when_there_are_too_many() -> None:
    overflows: list[bool] = []
    neighbours = Neighbours(3, lambda: overflows.append(True))
    neighbours.on_hello(B, hello(dict.fromkeys(range(10, 13), SYMMETRIC)), HOLD, 0)
    neighbours.on_hello(B, hello(dict.fromkeys(range(20, 22), SYMMETRIC)), HOLD, 0)
    assert neighbours.table[B].reached(0) == {20, 21}
    assert overflows == [True]


# Topology.


def tc(ansn: int, *advertised: int) -> Tc:
    return Tc(ansn, frozenset(advertised))


def test_a_newer_tc_replaces_and_an_older_one_is_ignored() -> None:
    topology = TopologySet(100)
    assert topology.on_tc(B, tc(5, C, D), 10) is True
    assert topology.on_tc(B, tc(5, D, C), 20) is False  # the same again
    assert topology.on_tc(B, tc(4, OWN), 20) is False
    assert topology.table[B].destinations == {C, D}
    assert topology.on_tc(B, tc(6, C, D), 20) is False  # renumbered, but the same
    assert topology.on_tc(B, tc(7, C), 20) is True
    assert topology.table[B].destinations == {C}


def test_numbers_wrap_around() -> None:
    topology = TopologySet(100)
    topology.on_tc(B, tc(65_535, C), 10)
    assert topology.on_tc(B, tc(0, D), 10) is True
    assert topology.on_tc(B, tc(65_535, C), 10) is False
    assert topology.table[B].destinations == {D}


def test_parts_of_one_number_add_up_and_expire_each_by_itself() -> None:
    topology = TopologySet(100)
    topology.on_tc(B, tc(1, C), 10)
    assert topology.on_tc(B, tc(1, D), 20) is True
    assert topology.table[B].destinations == {C, D}
    assert topology.purge(10) == (True, 20) and topology.table[B].destinations == {D}
    assert topology.purge(20) == (True, None) and topology.table == {}


def test_an_empty_tc_takes_the_role_away_and_an_older_one_does_not_give_it_back() -> None:
    topology = TopologySet(100)
    topology.on_tc(B, tc(1, C), 10)
    assert topology.relays() == [B]
    assert topology.on_tc(B, tc(2), 20) is True
    assert topology.relays() == []
    assert topology.on_tc(B, tc(1, C), 30) is False and topology.relays() == []
    # A node that restarted with lower numbers is believed once the old ones are over.
    topology.purge(20)
    assert topology.on_tc(B, tc(1, C), 30) is True


def test_a_full_topology_set_refuses_news_and_keeps_what_it_has() -> None:
    topology = TopologySet(3)
    topology.on_tc(B, tc(1, C, D), 10)
    assert topology.on_tc(C, tc(1, B, D), 10) is None
    assert topology.on_tc(B, tc(2, C, D, OWN), 20) is True  # its own place is its own
    for number in range(1_000):  # the count does not drift
        assert topology.on_tc(B, tc(number + 3, C), 20) is not None
    topology.purge(20)
    assert topology.on_tc(C, tc(1, B, D, OWN), 30) is True


# Duplicates.


def test_a_duplicate_is_remembered_for_its_time_and_no_longer() -> None:
    duplicates = Duplicates(30, 10)
    assert duplicates.add(1, now=0)
    assert duplicates == {1: 30}
    assert duplicates.add(2, now=30)
    assert duplicates == {2: 60}


def test_a_flood_of_forged_numbers_pushes_out_the_oldest_and_says_so() -> None:
    duplicates = Duplicates(30, 3)
    assert [duplicates.add(key, now=0) for key in range(4)] == [True, True, True, False]
    assert list(duplicates) == [1, 2, 3]


def test_expired_duplicates_make_room_without_a_report_and_begin_anew() -> None:
    duplicates = Duplicates(hold=32, length_max=2)
    assert duplicates.add(1, now=0) and duplicates.add(2, now=31)
    assert duplicates.add(3, now=32)  # 1 has just expired
    assert list(duplicates) == [2, 3]
    assert duplicates.add(2, now=63)  # expired a moment ago, and maybe not swept yet
    assert duplicates == {3: 64, 2: 95} and list(duplicates) == [3, 2]
    assert not duplicates.add(4, now=63)  # both others still hold
    assert list(duplicates) == [2, 4]


# Associations.


def test_interfaces_and_gateways_hold_for_their_time_within_bounds() -> None:
    associations = Associations(2)
    assert associations.on_mid(B, Mid((20, 21)), 10) is True
    assert associations.on_mid(B, Mid((20, 21)), 15) is False
    assert associations.on_mid(C, Mid((30,)), 15) is None  # full
    assert associations.main(21) == B and associations.main(99) == 99
    assert associations.mains(frozenset({20, 21, D})) == {B, D}
    associations.on_hna(D, Hna(((0, 0),)), 12)
    assert [gateway.node for gateway in associations.gateways()] == [D]
    assert associations.purge(12) == (True, 15) and associations.gateways() == []
    assert associations.purge(15) == (True, None) and associations.main(21) == 21


# Routes.


def test_routes_on_a_line_with_a_shortcut() -> None:
    #  OWN - B - C - D - 5,  OWN - 6 - 5
    routes = shortest_routes(
        OWN,
        [6, B],
        {B: frozenset({OWN, C}), 6: frozenset({OWN, 5})},
        {B: frozenset({OWN, C}), C: frozenset({B, D}), D: frozenset({C, 5}), 5: frozenset({6, D})},
    )
    assert routes == {
        B: OlsrRoute(B, 1),
        6: OlsrRoute(6, 1),
        C: OlsrRoute(B, 2),
        5: OlsrRoute(6, 2),
        D: OlsrRoute(B, 3),
    }


@given(st.dictionaries(st.integers(1, 12), st.frozensets(st.integers(1, 12)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_no_topology_however_forged_makes_a_loop(topology: dict[int, frozenset[int]]) -> None:
    neighbours = topology.get(OWN, frozenset()) - {OWN}
    routes = shortest_routes(OWN, neighbours, topology, topology)
    assert OWN not in routes
    for route in routes.values():
        assert route.next_hop in neighbours
        assert 1 <= route.distance <= len(routes)
