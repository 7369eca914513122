"""The ceiling for memorized events, by hand and against a search that thinks of one hop at a time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.lab.run.ideal import Pair, earliest_arrivals, share_of_ideal
from roamcast.lab.run.tables import Expected, RunInfo, tables
from roamcast.trace import Delivered, FaultHappened, LinkChanged, Published, Trace
from roamcast.units import Micros, NodeId


def event(t: Micros, publisher: NodeId, sequence: int = 1, lifetime: Micros = 1_000) -> Published:
    kind = "memorized" if lifetime else "realtime"
    return Published(t, publisher, sequence, kind, lifetime, 10, "", "", "{}", (), False)


def contact(a: NodeId, b: NodeId, since: Micros, until: Micros, both: bool = True) -> list[LinkChanged]:
    return [LinkChanged(since, a, b, both, True), LinkChanged(until, a, b, both, False)]


def test_an_event_is_carried_from_contact_to_contact() -> None:
    links = [*contact(0, 1, 10, 20), *contact(1, 2, 30, 40), *contact(0, 3, 0, 5)]
    assert earliest_arrivals([event(7, 0)], links, [], 100) == {(0, 1, 1): 10, (0, 1, 2): 30}


def test_what_is_connected_gets_it_at_once_over_several_hops() -> None:
    links = [*contact(0, 1, 0, 50), *contact(1, 2, 0, 50)]
    assert earliest_arrivals([event(7, 0)], links, [], 100) == {(0, 1, 1): 7, (0, 1, 2): 7}


def test_contacts_in_the_wrong_order_carry_nothing() -> None:
    links = [*contact(1, 2, 10, 20), *contact(0, 1, 30, 40)]
    assert earliest_arrivals([event(7, 0)], links, [], 100) == {(0, 1, 1): 30}


def test_the_lifetime_ends_and_so_does_the_run() -> None:
    links = [*contact(0, 1, 50, 60), *contact(0, 2, 51, 60), *contact(0, 3, 90, 95)]
    assert earliest_arrivals([event(10, 0, lifetime=40)], links, [], 100) == {(0, 1, 1): 50}
    assert earliest_arrivals([event(10, 0)], links, [], 90) == {(0, 1, 1): 50, (0, 1, 2): 51}


def test_a_real_time_event_reaches_whom_it_reaches_at_once() -> None:
    links = [*contact(0, 1, 5, 15), *contact(0, 2, 11, 15)]
    assert earliest_arrivals([event(10, 0, lifetime=0)], links, [], 100) == {(0, 1, 1): 10}


def test_changes_of_an_instant_come_before_what_is_published_at_it() -> None:
    links = [*contact(0, 1, 10, 20)]
    assert earliest_arrivals([event(10, 0), event(20, 0, 2)], links, [], 100) == {(0, 1, 1): 10}


def test_one_way_links_carry_one_way() -> None:
    links = contact(0, 1, 0, 50, both=False)
    assert earliest_arrivals([event(7, 0), event(8, 1)], links, [], 100) == {(0, 1, 1): 7}


def test_a_crash_loses_nothing_but_meetings() -> None:
    links = [*contact(0, 1, 0, 10), *contact(1, 2, 20, 40), *contact(0, 3, 25, 28), *contact(1, 3, 25, 28)]
    faults = [FaultHappened(15, "crash", 1), FaultHappened(30, "restart", 1)]
    expected = {(0, 1, 1): 5, (0, 1, 3): 25, (0, 1, 2): 30}
    assert earliest_arrivals([event(5, 0)], links, faults, 100) == expected


def test_the_share_counts_expected_pairs_after_the_warm_up() -> None:
    trace = Trace()
    for record in [
        *contact(0, 1, 20, 30),
        *contact(0, 2, 40, 50),
        event(5, 0, 1),  # in the warm-up
        event(15, 0, 2),
        Delivered(21, 1, 0, 2, 1, True),
        Delivered(22, 1, 0, 2, 1, True),  # again: counts once
        Delivered(41, 2, 0, 2, 1, False),  # did not match
        Delivered(41, 2, 0, 1, 1, True),
    ]:
        trace.add(record)
    due = [Expected(0, sequence, node, 0, False, None) for sequence in (1, 2) for node in (1, 2, 3)]
    run = RunInfo(name="n", strategy="s", seed=1, nodes=4, duration=100, warmup=10)
    found = share_of_ideal(tables(trace, due), run)
    assert (found.expected, found.ideal, found.delivered) == (3, 2, 1)
    assert found.share == 1 / 2
    assert found.ceiling == 2 / 3


def one_hop_at_a_time(
    publication: Published, links: list[LinkChanged], nodes: int, duration: Micros
) -> dict[Pair, Micros]:
    """Instant by instant over every microsecond: slow and simple."""
    up: set[tuple[NodeId, NodeId]] = set()
    has: dict[NodeId, Micros] = {}
    for now in range(duration):
        for change in links:
            if change.t == now:
                (up.add if change.up else up.discard)((change.sender, change.receiver))
        if now == publication.t:
            has[publication.publisher] = now
        if publication.t <= now <= publication.t + publication.lifetime:
            for _ in range(nodes):
                for a, b in sorted(up):
                    if a in has:
                        has.setdefault(b, now)
    del has[publication.publisher]
    return {(publication.publisher, publication.sequence, node): t for node, t in has.items()}


NODES, DURATION = 5, 30
changes = st.builds(
    LinkChanged,
    st.integers(0, DURATION + 3),
    st.integers(0, NODES - 1),
    st.integers(0, NODES - 1),
    st.just(False),
    st.booleans(),
)


@settings(max_examples=150)
@given(
    st.lists(changes, max_size=25),
    st.integers(0, DURATION - 1),
    st.integers(0, NODES - 1),
    st.integers(0, 40),
)
def test_a_slow_search_finds_the_same(
    links: list[LinkChanged], t: Micros, publisher: NodeId, lifetime: Micros
) -> None:
    links = sorted((change for change in links if change.sender != change.receiver), key=lambda c: c.t)
    publication = event(t, publisher, lifetime=lifetime)
    found = earliest_arrivals([publication], links, [], DURATION)
    assert found == one_hop_at_a_time(publication, links, NODES, DURATION)
