"""FMT and MET: lookup against a plain loop, versions, bounds, digests; the node's own interests."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.broker.core import Subscription
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.kit.tables import unreported
from roamcast.strategy.chapar import filter_mapping_table as filter_table
from roamcast.strategy.chapar.filter_mapping_table import FilterTable, TableChange
from roamcast.strategy.chapar.filter_mapping_table import encoded_size as filter_table_size
from roamcast.strategy.chapar.identifiers import IdentifierLayout
from roamcast.strategy.chapar.memorized_event_table import EventTable, Memo, encoded_size
from roamcast.strategy.chapar.node_vectors import OrderedAddresses
from roamcast.strategy.chapar.tables import VERSION_BLOCK, VersionedInterests
from roamcast.units import NodeId

BITS = 80


def table(entries_max: int = 1000, on_widened: Callable[[NodeId], object] = lambda _: None) -> FilterTable:
    return FilterTable(OrderedAddresses(), BITS, entries_max=entries_max, on_widened=on_widened)


def memorized(entries_max: int, on_full: Callable[[Memo], object] = lambda _: None) -> EventTable:
    return EventTable(entries_max=entries_max, on_full=on_full, on_forgotten=unreported)


# FMT.

moves = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2, 3, 1 << 70, 1 << 70 | 5, 1 << 63]), st.booleans()),
    max_size=60,
)


@pytest.mark.parametrize("with_numpy", [True, False])
@settings(max_examples=150, deadline=None)
@given(moves, st.lists(st.integers(0, 2**BITS - 1), max_size=5))
def test_a_lookup_finds_what_a_plain_loop_finds(
    with_numpy: bool, changes: list[tuple[int, int, bool]], events: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_table, "numpy_is_installed", lambda: with_numpy)
        check_lookups(changes, events, with_numpy)


def check_lookups(changes: list[tuple[int, int, bool]], events: list[int], by_array: bool) -> None:
    filters, wanted = table(), {node: set[int]() for node in range(6)}
    for filler in range(filter_table.FEW_ROWS + 1):
        filters.apply(100 + filler, 1, 1 << 40 | filler, True)
        wanted[100 + filler] = {1 << 40 | filler}
    assert (filters._rows is not None) is by_array
    for number, (node, identifier, stands) in enumerate(changes):
        version = filters.version(node) + 1
        assert filters.apply(node, version, identifier, stands) is TableChange.NEWS, number
        (wanted[node].add if stands else wanted[node].discard)(identifier)
    for event in [*events, 0, (1 << BITS) - 1, 1 << 70 | 7]:
        found = {n for n, mine in wanted.items() if any(f & event == f for f in mine)}
        assert filters.lookup(event) == sum(1 << n for n in found)
    rows = {f for mine in wanted.values() for f in mine}
    assert [row for row, _ in filters.rows()] == sorted(rows) and len(filters) == len(rows)


def test_an_old_or_repeated_change_is_no_news() -> None:
    filters = table()
    assert filters.apply(3, 1, 7, True) is TableChange.NEWS
    assert filters.apply(3, 1, 7, True) is TableChange.KNOWN
    assert filters.apply(3, 2, 7, False) is TableChange.NEWS
    assert filters.apply(3, 1, 7, True) is TableChange.KNOWN  # came late: does not bring it back
    assert filters.lookup(7) == 0


def test_a_gap_counts_what_is_wanted_at_once_and_waits_with_what_is_not() -> None:
    filters = table()
    filters.apply(3, 1, 7, True)
    assert filters.apply(3, 3, 8, True) is TableChange.GAP
    assert filters.lookup(8) == 1 << 3
    assert filters.apply(3, 4, 7, False) is TableChange.GAP
    assert filters.lookup(7) == 1 << 3
    assert filters.version(3) == 1
    assert filters.replace(3, 4, frozenset({8}))
    assert (filters.lookup(7), filters.lookup(8), filters.version(3)) == (0, 1 << 3, 4)


def test_the_higher_version_wins_in_whatever_order_registers_come() -> None:
    old, new = (3, 5, frozenset({1})), (3, 6, frozenset[int]())
    for order in ([old, new], [new, old]):
        filters = table()
        for register in order:
            filters.replace(*register)
        assert filters.lookup(1) == 0
        assert filters.versions() == [(3, 6)]  # the tombstone


def test_digests_are_equal_exactly_where_the_versions_are() -> None:
    one, two = table(), table()
    assert one.digest() == two.digest() == b""
    one.apply(1, 1, 5, True)
    one.apply(2, 1, 6, True)
    two.apply(2, 1, 6, True)
    assert one.digest() != two.digest()
    two.replace(1, 1, frozenset({5}))
    assert one.digest() == two.digest()
    two.apply(1, 2, 5, False)
    assert one.digest() != two.digest()


def test_a_full_table_widens_and_never_misses() -> None:
    widened: list[NodeId] = []
    filters = table(entries_max=3, on_widened=widened.append)
    for node in range(5):
        filters.apply(node, 1, 1 << node, True)
    assert widened == [3, 4]
    assert len(filters) == 4  # three rows, and the one for everything
    assert filters.lookup(1 << 3) & 1 << 3 and filters.lookup(1 << 4) & 1 << 4
    assert filters.apply(3, 2, 1 << 3, False) is TableChange.NEWS
    assert filters.lookup(0) & 1 << 3  # it may want other things still: only a whole register narrows it
    filters.replace(0, 2, frozenset())
    assert filters.replace(3, 3, frozenset({1 << 3}))
    assert filters.lookup(0) == 1 << 4 and filters.lookup(1 << 3) == 1 << 3 | 1 << 4


def test_a_node_without_a_place_in_vectors_is_ignored() -> None:
    filters = table()
    assert filters.apply(10**15, 1, 5, True) is TableChange.KNOWN
    assert not filters.replace(10**15, 1, frozenset({5}))
    assert filters.lookup(5) == 0


def test_a_table_of_100_filters_and_40_nodes_takes_about_1500_octets() -> None:
    assert filter_table_size(100, 40, IdentifierLayout(16, 5).size) == 1500


# MET.


def memo(sequence: int, expires_at: int, publisher: int = 1) -> Memo:
    event = Event(publisher, sequence, event_class=EventClass.MEMORIZED, lifetime=100)
    return Memo(event, 0, expires_at)


def test_the_first_to_expire_makes_room_and_stays_known_until_then() -> None:
    pushed_out: list[int] = []
    events = memorized(2, lambda memo: pushed_out.append(memo.id.sequence))
    events.keep(memo(1, 50), 0)
    events.keep(memo(2, 40), 0)
    assert pushed_out == []
    events.keep(memo(3, 60), 0)
    assert pushed_out == [2]
    assert EventId(1, 2) in events and events.entry(EventId(1, 2)) is None
    events.keep(memo(2, 40), 0)  # a check that brings it back changes nothing
    assert pushed_out == [2]
    events.keep(memo(4, 30), 0)
    assert pushed_out == [2, 4]  # itself
    events.forget_expired(45)
    assert EventId(1, 2) not in events
    events.forget_expired(60)
    assert len(events) == 0 and events.digest() == b""


def test_tables_that_saw_the_same_events_agree_in_any_order() -> None:
    one, two = (
        memorized(3),
        memorized(3),
    )
    entries = [memo(n, 100 + n % 4, publisher=n % 3) for n in range(8)]
    for entry in entries:
        one.keep(entry, 0)
    for entry in reversed(entries):
        two.keep(entry, 0)
    assert one.known() == two.known() and one.digest() == two.digest()
    assert [m.id for m in one.entries()] == [m.id for m in two.entries()]


def test_usnv_is_whoever_wants_it_and_is_not_known_to_have_it() -> None:
    entry = memo(1, 50)
    assert entry.unavailable(0b1011) == 0b1011
    entry.notified |= 0b0010
    assert entry.unavailable(0b1011) == 0b1001
    assert entry.unavailable(0b1111) == 0b1101  # one who subscribed since


def test_a_predecessor_is_missing_while_it_lives() -> None:
    events = memorized(9)
    entry = memo(5, 100)
    entry.previous = ((4, 30),)  # lives 30 longer, as of publication
    events.keep(entry, 0)
    assert events.missing(20) == [EventId(1, 4)]
    assert events.missing(30) == []
    events.keep(memo(4, 30), 0)
    assert events.missing(20) == []


def test_a_real_table_of_100_filters_and_40_nodes_is_below_the_papers_1500_octets() -> None:
    """Section 5.2, measured: identifiers and bitmaps of a filled table, encoded as they would be sent."""
    layout, addresses, filters = IdentifierLayout(), OrderedAddresses(), table()
    for number in range(100):
        wanted = Filter.sql(f"kind = 'k{number}' AND zone = {number % 7} AND topic = 'x'")
        for node in range(number % 3, 40, 3):
            version = filters.version(node) + 1
            filters.apply(node, version, layout.filter_id(wanted), True)
    assert len(filters) == 100
    octets = sum(len(layout.encode(row)) + len(addresses.encode(nodes)) for row, nodes in filters.rows())
    assert 1_000 < octets <= filter_table_size(100, 40, layout.size) == 1_500


def test_the_size_of_an_event_is_that_of_its_wire_form() -> None:
    assert encoded_size(Event(1, 1, payload=bytes(2000))) > 2000
    assert encoded_size(Event(1, 1, payload=bytes(2000))) < 2048


# The node's own interests.


def test_only_the_first_and_the_last_subscription_with_an_identifier_are_news() -> None:
    interests = VersionedInterests(IdentifierLayout(), {})
    first, second = Subscription(1, Filter.sql("a > 1")), Subscription(2, Filter.sql("b > 1"))
    assert interests.add(first) == (1, 0, True)
    assert interests.add(second) is None
    assert interests.remove(first) is None
    assert interests.remove(second) == (2, 0, False)
    assert interests.remove(second) is None


def test_versions_go_on_after_a_crash() -> None:
    stable: dict[str, bytes] = {}
    before = VersionedInterests(IdentifierLayout(), stable)
    assert before.version == 0
    for number in range(VERSION_BLOCK + 5):
        subscription = Subscription(number, Filter.sql(f"a = {number}"))
        before.add(subscription)
    after = VersionedInterests(IdentifierLayout(), stable)
    assert after.version > before.version
    assert after.filter_ids() == frozenset()


@pytest.mark.parametrize("known", [7, 5000])
def test_a_node_that_lost_its_memory_overtakes_what_others_know_of_it(known: int) -> None:
    interests = VersionedInterests(IdentifierLayout(), {})
    interests.overtake(known)
    assert interests.version == known + 1
    interests.overtake(2**63)  # hostile
    assert interests.version == known + 1


class CountingIdentifier(int):
    """Counts the AND operations that it takes part in, bit by bit."""

    operations = 0

    def __and__(self, other: int) -> int:
        CountingIdentifier.operations += max(self.bit_length(), other.bit_length())
        return int(self) & int(other)

    __rand__ = __and__


def test_a_lookup_takes_fewer_than_100_and_operations_for_each_entry() -> None:
    """Section 5.2, for 40 nodes and 5 fields of 16 bits: 80, counted bit by bit; a machine word does many."""
    filters = FilterTable(OrderedAddresses(0, 40), 80, entries_max=1_000, on_widened=lambda _: None)
    for entry in range(100):
        filters.replace(
            entry % 40, 1 + entry // 40, frozenset((1 << 79 | number) for number in range(entry + 1))
        )
    CountingIdentifier.operations = 0
    filters.lookup(CountingIdentifier((1 << 80) - 1))
    assert 0 < CountingIdentifier.operations / len(filters) == 80 < 100
