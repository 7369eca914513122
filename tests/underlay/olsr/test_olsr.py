"""The underlay as one piece, driven by hand over a `FakeHost`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import ScenarioError
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.underlay.addresses import Subnet
from roamcast.underlay.base import UnderlayContext
from roamcast.underlay.olsr import Olsr, OlsrOptions
from roamcast.units import SECOND, Micros
from roamcast.wire.olsr import (
    Hello,
    LinkType,
    MessageType,
    NeighbourType,
    OlsrMessage,
    Tc,
    decode_hello,
    decode_packet,
    decode_tc,
    encode_hello,
    encode_hna,
    encode_message,
    encode_mid,
    encode_packet,
    encode_tc,
    link_code,
)

SYMMETRIC = link_code(LinkType.SYMMETRIC, NeighbourType.SYMMETRIC)
RELAY = link_code(LinkType.SYMMETRIC, NeighbourType.RELAY)
ASYMMETRIC = link_code(LinkType.ASYMMETRIC, NeighbourType.NOT)
LOST = link_code(LinkType.LOST, NeighbourType.NOT)
SUBNET = Subnet()


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.routes = 0

    def on_neighbour_up(self, neighbour: int) -> None:
        self.heard.append(("up", neighbour))

    def on_neighbour_down(self, neighbour: int) -> None:
        self.heard.append(("down", neighbour))

    def on_routes_changed(self) -> None:
        self.routes += 1


class Bench:
    """Node 0 under test; the other nodes are this class."""

    def __init__(self, **options: float) -> None:
        self.host = FakeHost(node=0)
        self.olsr = Olsr(UnderlayContext(self.host), OlsrOptions(**options))  # type: ignore[arg-type]
        self.host.attach(self.olsr)
        self.listener = Listener()
        self.olsr.listen(self.listener)
        self.sequence = 0

    def hello(self, sender: int, links: dict[int, int] | None = None, *, valid: Micros = 6 * SECOND) -> None:
        """`sender` says what it hears; by default it hears us well."""
        by_code: dict[int, list[int]] = {}
        for node, code in (links if links is not None else {0: SYMMETRIC}).items():
            by_code.setdefault(code, []).append(SUBNET.address(node))
        body = encode_hello(2 * SECOND, 3, sorted(by_code.items()))
        self.send(sender, MessageType.HELLO, sender, body, ttl=1, valid=valid)

    def tc(self, sender: int, originator: int, ansn: int, *advertised: int, sequence: int = -1) -> None:
        body = encode_tc(ansn, [SUBNET.address(node) for node in advertised])
        self.send(sender, MessageType.TC, originator, body, sequence=sequence)

    def send(
        self,
        sender: int,
        type: int,
        originator: int,
        body: bytes,
        *,
        ttl: int = 255,
        valid: Micros = 15 * SECOND,
        sequence: int = -1,
    ) -> None:
        if sequence < 0:
            self.sequence = sequence = self.sequence + 1
        message = encode_message(type, valid, SUBNET.address(originator), ttl, 0, sequence, body)
        self.olsr.on_receive(sender, encode_packet(self.sequence, [message]))

    def sent(self) -> list[OlsrMessage]:
        """What was sent since the last question."""
        messages = [m for sent in self.host.sent for m in decode_packet(sent.frame.payload).messages]
        self.host.sent.clear()
        return messages

    def sent_hello(self) -> Hello:
        return decode_hello([m for m in self.sent() if m.type == MessageType.HELLO][-1].body)

    def sent_tcs(self) -> list[Tc]:
        return [decode_tc(m.body) for m in self.sent() if m.type == MessageType.TC]

    def drops(self) -> list[Dropped]:
        return [record for record in self.host.records if isinstance(record, Dropped)]

    def roles(self) -> list[str]:
        return [record.change for record in self.host.records if isinstance(record, OverlayChanged)]


# Neighbours.


def test_two_hellos_make_a_neighbour_and_it_is_named_in_ours() -> None:
    bench = Bench()
    bench.olsr.on_start()
    bench.hello(1, {})
    assert bench.olsr.neighbours() == []
    bench.host.advance(2 * SECOND)
    assert bench.sent_hello().links == {SUBNET.address(1): ASYMMETRIC}
    bench.hello(1, {0: ASYMMETRIC})
    assert bench.olsr.neighbours() == [1] and bench.listener.heard == [("up", 1)]
    assert bench.olsr.next_hop(1) == 1 and bench.olsr.distance(1) == 1
    bench.host.advance(2 * SECOND)
    assert bench.sent_hello().links == {SUBNET.address(1): SYMMETRIC}


def test_a_one_way_link_never_becomes_symmetric() -> None:
    bench = Bench()
    bench.olsr.on_start()
    for _ in range(100):
        bench.hello(1, {2: SYMMETRIC, 3: SYMMETRIC})
        bench.host.advance(2 * SECOND)
    assert bench.olsr.links() == {SUBNET.address(1): LinkType.ASYMMETRIC}
    assert bench.olsr.neighbours() == [] and bench.olsr.known_nodes() == []
    assert bench.listener.heard == []


def test_a_silent_neighbour_is_lost_when_its_validity_ends_to_the_microsecond() -> None:
    bench = Bench()
    bench.hello(1, valid=6 * SECOND)
    bench.hello(2, valid=3 * SECOND)
    bench.host.advance(3 * SECOND - 1)
    assert bench.olsr.neighbours() == [1, 2]
    bench.host.advance(1)
    assert bench.olsr.neighbours() == [1] and bench.listener.heard[-1] == ("down", 2)
    bench.host.advance(3 * SECOND)
    assert bench.olsr.neighbours() == [] and bench.listener.heard[-1] == ("down", 1)


def test_hellos_renew_a_neighbour_without_news() -> None:
    bench = Bench()
    bench.hello(1)
    news = bench.listener.routes
    for _ in range(10):
        bench.host.advance(5 * SECOND)
        bench.hello(1)
    assert bench.listener.heard == [("up", 1)] and bench.listener.routes == news


def test_a_lost_neighbour_is_called_lost_in_our_hellos_for_the_hold_time() -> None:
    bench = Bench()
    bench.olsr.on_start()
    bench.hello(1)
    bench.host.advance(8 * SECOND)
    assert bench.sent_hello().links == {SUBNET.address(1): LOST}
    bench.host.advance(6 * SECOND)
    assert bench.sent_hello().links == {}
    assert not any(name == "purge" for name in bench.host.timers())  # nothing left to wait for


def test_2_hop_neighbours_give_relays_and_routes() -> None:
    bench = Bench()
    bench.olsr.on_start()
    bench.hello(1, {0: SYMMETRIC, 5: SYMMETRIC, 6: SYMMETRIC})
    bench.hello(2, {0: SYMMETRIC, 6: SYMMETRIC, 1: SYMMETRIC})
    assert bench.olsr.two_hop_neighbours() == [SUBNET.address(5), SUBNET.address(6)]
    assert bench.olsr.relays() == [1]
    assert [bench.olsr.next_hop(node) for node in (5, 6, 7)] == [1, 1, None]
    assert bench.olsr.distance(6) == 2 and bench.olsr.known_nodes() == [1, 2, 5, 6]
    assert [bench.olsr.neighbours_of(node) for node in (1, 2, 5)] == [[0, 5, 6], [0, 1, 6], []]
    bench.host.advance(2 * SECOND)
    assert bench.sent_hello().links == {SUBNET.address(1): RELAY, SUBNET.address(2): SYMMETRIC}


# Selectors and TC.


def test_chosen_as_relay_a_node_says_so_in_tcs_until_long_after_it_is_chosen_no_more() -> None:
    bench = Bench(jitter=0.0)
    bench.olsr.on_start()
    bench.host.advance(20 * SECOND)
    assert bench.sent_tcs() == []  # nobody chose it: silent
    for _ in range(5):
        bench.hello(1, {0: RELAY})
        bench.hello(2, {0: RELAY})
        bench.host.advance(2 * SECOND)
    assert bench.roles() == ["role_on"] and bench.olsr.relays() == [0]
    tcs = bench.sent_tcs()
    assert len(tcs) == 2 and tcs[0] == tcs[1]
    assert tcs[0].advertised == {SUBNET.address(1), SUBNET.address(2)}
    bench.host.advance(40 * SECOND)
    assert bench.roles() == ["role_on", "role_off"] and bench.olsr.relays() == []
    # Three empty ones, of the next number, within the hold time of 15 s (section 9.3).
    assert [tc for tc in bench.sent_tcs() if not tc.advertised] == [
        Tc((tcs[0].ansn + 1) % 65_536, frozenset())
    ] * 3


def test_a_selector_that_chooses_no_more_expires_unless_its_link_breaks_first() -> None:
    bench = Bench()
    bench.hello(1, {0: RELAY})
    bench.hello(2, {0: RELAY})
    bench.host.advance(SECOND)
    bench.hello(1, {0: SYMMETRIC})
    bench.hello(2, {0: LOST})
    assert bench.olsr.selectors() == [SUBNET.address(1)]
    bench.host.advance(5 * SECOND)
    assert bench.olsr.selectors() == [] and bench.olsr.neighbours() == [1]


def test_tcs_lead_beyond_two_hops_and_expire() -> None:
    bench = Bench()
    for _ in range(8):
        bench.hello(1, {0: SYMMETRIC, 2: SYMMETRIC})
        if bench.host.now() == 0:
            bench.tc(1, 2, 1, 1, 3)
            bench.tc(1, 3, 1, 2, 4)
        assert bench.olsr.distance(4) == 4 and bench.olsr.next_hop(4) == 1
        assert bench.olsr.relays() == [1, 2, 3]
        bench.host.advance(2 * SECOND - 250_000)
    bench.hello(1, {0: SYMMETRIC, 2: SYMMETRIC})
    bench.host.advance(SECOND)
    assert bench.host.now() == 15 * SECOND
    assert bench.olsr.known_nodes() == [1, 2]


def test_a_tc_that_changes_nothing_is_no_news() -> None:
    bench = Bench()
    bench.hello(1, {0: SYMMETRIC, 2: SYMMETRIC})
    bench.tc(1, 2, 1, 1, 3)
    news, routes = bench.listener.routes, bench.olsr.routes()
    for _ in range(10):
        bench.tc(1, 2, 1, 1, 3)
    assert bench.listener.routes == news and bench.olsr.routes() is routes


def test_a_tc_from_a_node_that_is_no_neighbour_is_not_believed_and_not_held_against_later_copies() -> None:
    bench = Bench()
    bench.hello(1, {0: SYMMETRIC, 2: SYMMETRIC})
    bench.tc(9, 2, 1, 1, 3, sequence=77)
    assert bench.olsr.distance(3) is None
    bench.tc(1, 2, 1, 1, 3, sequence=77)
    assert bench.olsr.distance(3) == 3


# Flooding.


def relay_bench() -> Bench:
    """Node 1 has chosen us as relay, node 2 has not."""
    bench = Bench()
    bench.hello(1, {0: RELAY})
    bench.hello(2)
    return bench


def test_a_relay_repeats_what_its_selectors_send_once_with_ttl_and_hops_counted() -> None:
    bench = relay_bench()
    bench.tc(1, 7, 1, 1, sequence=5)
    bench.tc(1, 7, 1, 1, sequence=5)
    bench.tc(2, 7, 1, 1, sequence=5)
    assert bench.sent() == []  # it waits for the jitter
    bench.host.advance(SECOND // 2)
    (message,) = bench.sent()
    assert (message.originator, message.sequence) == (SUBNET.address(7), 5)
    assert (message.ttl, message.hops) == (254, 1)


def test_what_others_send_is_not_repeated_even_if_a_selector_repeats_it_later() -> None:
    bench = relay_bench()
    bench.tc(2, 7, 1, 1, sequence=5)
    bench.tc(1, 7, 1, 1, sequence=5)  # section 3.4.1: received on this interface before
    bench.host.advance(SECOND // 2)
    assert bench.sent() == []


@pytest.mark.parametrize(("ttl", "repeated"), [(0, 0), (1, 0), (2, 1)])
def test_the_ttl_ends_a_flood(ttl: int, repeated: int) -> None:
    bench = relay_bench()
    bench.send(1, MessageType.TC, 7, encode_tc(1, []), ttl=ttl)
    bench.host.advance(SECOND // 2)
    assert len(bench.sent()) == repeated


def test_unknown_messages_are_repeated_unread_and_several_share_a_packet() -> None:
    bench = relay_bench()
    bench.send(1, 200, 7, b"who knows")
    bench.tc(1, 8, 1, 1)
    bench.host.advance(SECOND // 2)
    assert len(bench.host.sent) == 1 and bench.host.sent[0].frame.own is False
    unknown, tc = bench.sent()
    assert (unknown.type, unknown.body) == (200, b"who knows") and tc.type == MessageType.TC


def test_our_own_messages_come_back_to_nothing() -> None:
    bench = relay_bench()
    bench.send(1, MessageType.TC, 0, encode_tc(1, [SUBNET.address(1), SUBNET.address(5)]))
    bench.host.advance(SECOND // 2)
    assert bench.sent() == [] and bench.olsr.known_nodes() == [1, 2]


def test_forged_numbers_block_a_flood_for_the_duplicate_hold_time_only() -> None:
    bench = relay_bench()
    bench.tc(1, 7, 1, sequence=5)  # forged
    bench.host.advance(29 * SECOND)
    bench.hello(1, {0: RELAY, 7: SYMMETRIC})
    bench.tc(1, 7, 9, 8, sequence=5)
    assert bench.olsr.distance(8) is None
    bench.host.advance(SECOND)
    bench.tc(1, 7, 9, 8, sequence=5)
    assert bench.olsr.distance(8) == 3


def test_nobodys_word_counts_longer_than_the_bound() -> None:
    bench = Bench(validity_max=100.0)
    bench.hello(1, valid=3_000 * SECOND)
    bench.host.advance(100 * SECOND - 1)
    assert bench.olsr.neighbours() == [1]
    bench.host.advance(1)
    assert bench.olsr.neighbours() == []


# MID, HNA, link-layer notification, redundancy.


def test_other_interfaces_are_reached_like_their_node_and_count_as_it() -> None:
    bench = Bench()
    bench.hello(1, {0: SYMMETRIC, 50: SYMMETRIC})  # 50 is an interface of node 2
    bench.send(1, MessageType.MID, 2, encode_mid([SUBNET.address(50)]))
    assert bench.olsr.two_hop_neighbours() == [SUBNET.address(2)]
    assert bench.olsr.distance(2) == bench.olsr.distance(50) == 2


def test_a_neighbour_with_two_interfaces_stays_until_both_links_are_gone() -> None:
    bench = Bench()
    body = encode_hello(2 * SECOND, 3, [(SYMMETRIC, [SUBNET.address(0)])])
    bench.send(1, MessageType.HELLO, 1, body, ttl=1, valid=6 * SECOND)
    bench.send(50, MessageType.HELLO, 1, body, ttl=1, valid=4 * SECOND)
    assert bench.olsr.neighbours() == [1]
    bench.host.advance(5 * SECOND)
    assert bench.olsr.neighbours() == [1]
    bench.host.advance(SECOND)
    assert bench.olsr.neighbours() == [] and bench.listener.heard == [("up", 1), ("down", 1)]


def test_gateways_are_known() -> None:
    bench = Bench()
    bench.hello(1)
    bench.send(1, MessageType.HNA, 1, encode_hna([(0, 0)]))
    assert [(gateway.node, gateway.netmask) for gateway in bench.olsr.gateways()] == [(SUBNET.address(1), 0)]


@pytest.mark.parametrize("believed", [True, False])
def test_a_failed_unicast_breaks_the_link_where_the_option_says_so(believed: bool) -> None:
    bench = Bench(link_layer_notification=believed)
    bench.hello(1)
    bench.olsr.on_link_failure(1)
    assert bench.olsr.neighbours() == ([] if believed else [1])
    bench.hello(1)
    assert bench.olsr.neighbours() == ([] if believed else [1])  # lost for the hold time
    bench.host.advance(6 * SECOND)
    bench.hello(1)
    assert bench.olsr.neighbours() == [1]
    bench.olsr.on_link_failure(99)  # never heard of


@pytest.mark.parametrize(("redundancy", "advertised"), [(0, [1]), (1, [1, 2]), (2, [1, 2, 3])])
def test_redundancy_advertises_more(redundancy: int, advertised: list[int]) -> None:
    bench = Bench(tc_redundancy=redundancy)
    bench.olsr.on_start()
    bench.hello(1, {0: RELAY}, valid=20 * SECOND)
    bench.hello(2, {0: SYMMETRIC, 5: SYMMETRIC}, valid=20 * SECOND)
    bench.hello(3, valid=20 * SECOND)
    bench.host.advance(5 * SECOND)
    assert bench.sent_tcs()[0].advertised == {SUBNET.address(node) for node in advertised}


# Ahead of time.


def prompt_bench(**options: float) -> Bench:
    """Begins between two intervals: what it sends in the next second is ahead of time."""
    bench = Bench(hello_interval=100.0, tc_interval=100.0, prompt=True, **options)
    bench.olsr.on_start()
    bench.host.advance(100 * SECOND)
    bench.sent()
    bench.host.cancel_timer("hello")
    bench.host.cancel_timer("tc")
    return bench


SOON = SECOND // 20
LONG = 300 * SECOND


def test_two_that_meet_know_each_other_after_three_hellos_without_waiting() -> None:
    bench = prompt_bench()
    bench.hello(1, {}, valid=LONG)
    bench.host.advance(SOON)
    assert bench.sent_hello().links == {SUBNET.address(1): ASYMMETRIC}
    bench.hello(1, {0: ASYMMETRIC}, valid=LONG)
    bench.host.advance(SOON)
    assert bench.olsr.neighbours() == [1]
    assert bench.sent_hello().links == {SUBNET.address(1): SYMMETRIC}
    bench.hello(1, {0: SYMMETRIC}, valid=LONG)
    bench.host.advance(SOON)
    assert bench.sent() == []  # nothing new to say


def test_a_hello_for_a_relay_that_was_chosen_does_not_wait() -> None:
    bench = prompt_bench()
    bench.hello(1, {0: SYMMETRIC}, valid=LONG)
    bench.host.advance(SOON)
    bench.sent()
    bench.hello(1, {0: SYMMETRIC, 7: SYMMETRIC}, valid=LONG)
    bench.host.advance(SOON)
    assert bench.sent_hello().links == {SUBNET.address(1): RELAY}


def test_without_the_option_nothing_is_said_ahead_of_time() -> None:
    bench = Bench(hello_interval=100.0, tc_interval=100.0)
    bench.hello(1, {0: RELAY}, valid=LONG)
    bench.olsr.on_acquainted(2)
    bench.host.advance(SECOND)
    assert bench.sent() == []


def test_selectors_that_come_or_go_are_advertised_at_once_under_a_new_number() -> None:
    bench = prompt_bench(link_layer_notification=True)
    bench.hello(1, {0: RELAY}, valid=LONG)
    bench.hello(2, {0: RELAY}, valid=LONG)
    bench.host.advance(SOON)
    (first,) = bench.sent_tcs()
    assert first.advertised == {SUBNET.address(1), SUBNET.address(2)}
    bench.olsr.on_link_failure(2)
    bench.host.advance(SOON)
    (second,) = bench.sent_tcs()
    assert second.advertised == {SUBNET.address(1)}
    assert second.ansn == (first.ansn + 1) % 65_536


def test_a_link_that_failed_is_said_to_be_lost_at_once() -> None:
    bench = prompt_bench(link_layer_notification=True, lost_hold=1.0)
    bench.hello(1, valid=LONG)
    bench.host.advance(SOON)
    bench.sent()
    bench.olsr.on_link_failure(1)
    bench.host.advance(SOON)
    assert bench.sent_hello().links == {SUBNET.address(1): LOST}
    bench.host.advance(SECOND)
    assert bench.olsr.neighbours() == []
    bench.hello(1, {0: ASYMMETRIC}, valid=LONG)  # heard again, after the time for which it counts as lost
    assert bench.olsr.neighbours() == [1]


def test_the_first_tc_of_a_stranger_is_answered_by_ours_and_the_next_is_not() -> None:
    bench = prompt_bench()
    bench.hello(1, {0: RELAY}, valid=LONG)
    bench.host.advance(SOON)
    bench.sent()
    bench.tc(1, 7, 1, 8)
    bench.host.advance(SOON)
    assert [m.originator for m in bench.sent() if m.hops == 0] == [SUBNET.address(0)]
    bench.tc(1, 7, 1, 8)
    bench.host.advance(SOON)
    assert [m for m in bench.sent() if m.hops == 0] == []


def test_who_loses_a_relay_repeats_its_tc_by_the_next_one() -> None:
    """The TC before may have gone to the lost one alone, which passed it on to nobody."""
    bench = prompt_bench(link_layer_notification=True)
    for node in (1, 2):
        bench.hello(node, {0: SYMMETRIC, 7: SYMMETRIC}, valid=LONG)
    bench.hello(3, {0: RELAY}, valid=LONG)
    bench.host.advance(SOON)
    bench.sent()
    (relay,) = bench.olsr.own_relays()
    bench.olsr.on_link_failure(next(node for node in (1, 2) if SUBNET.address(node) == relay))
    bench.host.advance(SOON)
    kinds = [message.type for message in bench.sent()]
    assert kinds == [MessageType.HELLO, MessageType.TC]


def test_a_node_whose_frames_are_accepted_from_now_on_gets_a_hello() -> None:
    bench = prompt_bench()
    bench.olsr.on_acquainted(1)
    bench.host.advance(SOON)
    assert [message.type for message in bench.sent()] == [MessageType.HELLO]


def test_nobody_makes_a_prompt_node_talk_without_end() -> None:
    bench = prompt_bench()
    for number in range(1_000):  # hears us, does not hear us, …: every 10 ms
        bench.hello(1, {0: RELAY if number % 2 else LOST}, valid=LONG)
        bench.tc(1, 100 + number, 1, 8)
        bench.host.advance(SECOND // 100)
    own = [message for message in bench.sent() if message.originator == SUBNET.address(0)]
    assert 0 < len(own) <= 10  # a burst of four HELLOs and four TCs; then one of each in 25 s


def test_a_relayed_message_waits_as_long_as_the_option_says_at_most() -> None:
    bench = Bench(relay_jitter=0.01)
    bench.hello(1, {0: RELAY})
    bench.tc(1, 7, 1, 8)
    bench.host.advance(SECOND // 100)
    assert [message.hops for message in bench.sent()] == [1]


# Bounds and hostility.


def test_full_tables_refuse_and_are_counted() -> None:
    bench = Bench(links_max=2, topology_max=3, duplicates_max=2, forward_max=1, two_hop_max=3)
    bench.hello(1, {0: RELAY})
    bench.hello(2)
    bench.hello(3)
    assert bench.olsr.neighbours() == [1, 2]
    bench.hello(2, dict.fromkeys(range(10, 20), SYMMETRIC))
    bench.tc(1, 7, 1, 10, 11, 12)
    bench.tc(1, 8, 1, 10)
    bench.tc(1, 7, 2, 10)
    assert [(drop.reason, drop.detail) for drop in bench.drops()] == [
        (DropReason.STORE_FULL, "links_max"),
        (DropReason.STORE_FULL, "two_hop_max"),
        (DropReason.STORE_FULL, "topology_max"),
        (DropReason.QUEUE_FULL, ""),
        (DropReason.STORE_FULL, "duplicates_max"),
        (DropReason.QUEUE_FULL, ""),
    ]


def test_thousands_of_past_neighbours_leave_no_state() -> None:
    bench = Bench(links_max=10_000)
    for node in range(1, 5_000):
        bench.hello(node, {0: RELAY, node + 10_000: SYMMETRIC})
    assert len(bench.olsr.neighbours()) == 4_999
    bench.host.advance(20 * SECOND)
    assert bench.olsr.neighbours() == bench.olsr.known_nodes() == bench.olsr.relays() == []
    assert bench.olsr.links() == {} and bench.host.timers() == {}


def test_a_malformed_body_costs_its_message_and_not_its_neighbours_in_the_packet() -> None:
    bench = relay_bench()
    address = SUBNET.address(7)
    bad = encode_message(MessageType.TC, 15 * SECOND, address, 9, 0, 1, b"\x00\x01\x00\x00odd")
    good = encode_message(MessageType.TC, 15 * SECOND, address, 9, 0, 2, encode_tc(1, []))
    bench.olsr.on_receive(1, encode_packet(1, [bad, good]))
    bench.host.advance(SECOND // 2)
    assert [message.sequence for message in bench.sent()] == [2]
    assert [(drop.reason, drop.message) for drop in bench.drops()] == [(DropReason.WIRE, "tc")]


def test_a_hello_that_was_relayed_is_refused() -> None:
    bench = Bench()
    message = encode_message(
        MessageType.HELLO, 6 * SECOND, SUBNET.address(1), 1, 1, 1, encode_hello(2 * SECOND, 3, [])
    )
    bench.olsr.on_receive(1, encode_packet(1, [message]))
    assert bench.olsr.links() == {} and [drop.reason for drop in bench.drops()] == [DropReason.WIRE]


def test_64_kilobytes_of_nothing_are_one_drop() -> None:
    bench = Bench()
    bench.olsr.on_receive(1, bytes(65_536))
    bench.olsr.on_receive(1, b"")
    assert [drop.reason for drop in bench.drops()] == [DropReason.WIRE] * 2


NODES = st.integers(0, 6)
HOSTILE = st.one_of(
    st.builds(
        encode_hello,
        st.just(2 * SECOND),
        st.integers(0, 9),
        st.lists(st.tuples(st.integers(0, 20), st.lists(NODES.map(SUBNET.address), max_size=4)), max_size=3),
    ),
    st.builds(encode_tc, st.integers(0, 65_535), st.lists(NODES.map(SUBNET.address), max_size=5)),
    st.binary(max_size=30),
)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 6),  # sender
            st.integers(0, 5),  # type
            st.one_of(NODES.map(SUBNET.address), st.integers(0, 2**32 - 1)),  # originator
            HOSTILE,
            st.integers(0, 255),  # vtime
            st.integers(0, 255),  # ttl
            st.integers(0, 3),  # hops
            st.integers(0, 3),  # sequence
            st.integers(0, 3 * SECOND),  # pause
            st.booleans(),  # damaged
        ),
        max_size=30,
    )
)
@settings(max_examples=150, deadline=None)
def test_no_packet_however_hostile_raises_or_breaks_the_tables(
    story: list[tuple[int, int, int, bytes, int, int, int, int, int, bool]],
) -> None:
    bench = Bench()
    bench.olsr.on_start()
    for sender, type, originator, body, vtime, ttl, hops, sequence, pause, damaged in story:
        header = bytes([type, vtime]) + (len(body) + 12).to_bytes(2) + originator.to_bytes(4)
        message = header + bytes([ttl, hops]) + sequence.to_bytes(2) + body
        packet = encode_packet(1, [message])
        bench.olsr.on_receive(sender, packet[:-1] if damaged else packet)
        bench.host.advance(pause)
        neighbours = bench.olsr.neighbours()
        assert 0 not in bench.olsr.known_nodes()
        for node in bench.olsr.known_nodes():
            assert bench.olsr.next_hop(node) in neighbours or bench.olsr.next_hop(node) is None
    drops = bench.drops()
    assert all(drop.reason is DropReason.WIRE for drop in drops)
    assert len(drops) >= sum(damaged for *_, damaged in story)
    bench.host.advance(400 * SECOND)
    assert bench.olsr.known_nodes() == [] and bench.olsr.relays() == []


# Messages larger than a packet (sections 6.2 and 9.3), and what rides on HELLOs.


def test_what_does_not_fit_a_packet_goes_in_several() -> None:
    bench = Bench(packet_max=100)
    relay = link_code(LinkType.SYMMETRIC, NeighbourType.RELAY)
    for sender in range(1, 41):
        bench.hello(sender, {0: relay})
    bench.olsr.on_start()
    bench.host.advance(6 * SECOND)
    assert all(len(sent.frame.payload) <= 100 for sent in bench.host.sent)
    messages = bench.sent()
    hellos = [decode_hello(m.body).links for m in messages if m.type == MessageType.HELLO]
    assert set().union(*hellos) == {SUBNET.address(node) for node in range(1, 41)}
    tcs = [decode_tc(m.body) for m in messages if m.type == MessageType.TC]
    assert len({tc.ansn for tc in tcs}) == 1 and len(tcs) > 1
    assert frozenset().union(*(tc.advertised for tc in tcs)) == {SUBNET.address(n) for n in range(1, 41)}


def test_octets_of_the_strategy_ride_once_on_the_next_hello_and_only_neighbours_are_believed() -> None:
    bench = Bench()
    heard: list[tuple[int, bytes]] = []
    bench.olsr.hear_riders(lambda sender, payload: heard.append((sender, payload)))
    bench.olsr.on_start()
    assert bench.olsr.ride("a", b"old") and bench.olsr.ride("a", b"new") and bench.olsr.ride("b", b"other")
    assert not bench.olsr.ride("c", bytes(1_000))
    bench.host.advance(2 * SECOND)
    (frame,) = bench.host.sent
    assert frame.frame.message == "rider"
    assert [(m.type, m.ttl) for m in bench.sent()] == [(MessageType.HELLO, 1)] + [(MessageType.RIDER, 1)] * 2
    bench.host.advance(2 * SECOND)
    assert {m.type for m in bench.sent()} == {MessageType.HELLO}
    bench.send(1, MessageType.RIDER, 1, b"of a stranger", ttl=1)
    bench.hello(1)
    bench.send(1, MessageType.RIDER, 7, b"in another's name", ttl=1)
    bench.send(1, MessageType.RIDER, 1, b"mine", ttl=1)
    assert heard == [(1, b"mine")]


@pytest.mark.parametrize("name", ["hello_interval", "tc_interval"])
def test_an_interval_beyond_the_longest_validity_is_refused(name: str) -> None:
    OlsrOptions(**{name: 299.0})  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match=f"{name}: is 300.0; allowed: less than validity_max, 300.0"):
        OlsrOptions(**{name: 300.0})  # type: ignore[arg-type]


def test_a_link_that_counts_again_after_a_loss_is_named_by_a_code_that_exists() -> None:
    """Section 6.1.1 has no symmetric link to a node that is no neighbour."""
    bench = Bench(link_layer_notification=1)
    for _ in range(2):
        bench.hello(1)
        bench.host.advance(2 * SECOND)
    bench.olsr.on_link_failure(1)
    for _ in range(3):
        bench.host.advance(2 * SECOND - 1)
        bench.hello(1)
    bench.host.advance(SECOND // 2)  # the link was held lost for 6 s, and no HELLO has come since
    bench.olsr._send_hello()
    assert bench.sent_hello().links == {SUBNET.address(1): SYMMETRIC}
