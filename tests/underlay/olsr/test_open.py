"""OLSR in the open: interfaces, node numbers, networks, routes for the host; and what a liar can do."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from roamcast.errors import InputError, ScenarioError
from roamcast.host import Frame
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay import UNDERLAYS
from roamcast.underlay.addresses import netmask_of, parse_dotted
from roamcast.underlay.base import IpRoute, UnderlayContext
from roamcast.underlay.olsr import Olsr, OlsrOptions
from roamcast.units import SECOND, Micros
from roamcast.wire.olsr import (
    Hello,
    LinkType,
    MessageType,
    NeighbourType,
    NodeNotice,
    OlsrMessage,
    decode_hello,
    decode_hna,
    decode_mid,
    decode_node,
    decode_packet,
    encode_hello,
    encode_hna,
    encode_message,
    encode_mid,
    encode_node,
    encode_packet,
    encode_tc,
    link_code,
)

SYMMETRIC = link_code(LinkType.SYMMETRIC, NeighbourType.SYMMETRIC)
RELAY = link_code(LinkType.SYMMETRIC, NeighbourType.RELAY)
ELSEWHERE = link_code(LinkType.UNSPECIFIED, NeighbourType.SYMMETRIC)


def at(text: str) -> int:
    return parse_dotted(text)


FIRST, SECOND_ONE = at("10.1.0.1"), at("10.2.0.1")  # our interfaces
OURS = (FIRST, SECOND_ONE)
LEFT, RIGHT = at("10.1.0.2"), at("10.2.0.2")  # a neighbour on each
FAR = at("10.2.0.9")


class FakeAir:
    def __init__(self, *interfaces: int) -> None:
        self.interfaces = interfaces
        self.sent: list[tuple[int, bytes]] = []
        self.routes: list[IpRoute] = []

    def send(self, interface: int, frame: Frame) -> None:
        self.sent.append((interface, frame.payload))

    def write_routes(self, routes: Sequence[IpRoute]) -> None:
        self.routes = list(routes)


class Nobody:
    """No node was heard in sealed frames."""

    def address(self, node: int) -> int:
        return 0

    def node(self, address: int) -> int | None:
        return None


class Heard(Nobody):
    """Node 5 was, from `LEFT`."""

    def address(self, node: int) -> int:
        return LEFT if node == 5 else 0

    def node(self, address: int) -> int | None:
        return 5 if address == LEFT else None


class OpenBench:
    """Node 3 under test."""

    def __init__(self, *interfaces: int, heard: Nobody | None = None, **options: Any) -> None:
        self.host = FakeHost(node=3)
        self.air = FakeAir(*(interfaces or (FIRST,)))
        context = UnderlayContext(self.host, addresses=heard or Nobody(), open_air=self.air)
        self.olsr = Olsr(context, OlsrOptions(open=True, **options))
        self.host.attach(self.olsr)
        self.sequence = 0

    def send(
        self,
        interface: int,
        source: int,
        type: int,
        originator: int,
        body: bytes,
        *,
        sequence: int | None = None,
        valid: Micros = 15 * SECOND,
    ) -> None:
        self.sequence += 1
        number = self.sequence if sequence is None else sequence
        ttl = 1 if type == MessageType.HELLO else 255
        message = encode_message(type, valid, originator, ttl, 0, number, body)
        self.olsr.on_packet(interface, source, encode_packet(self.sequence, [message]))

    def hello(self, interface: int, source: int, links: dict[int, int], main: int | None = None) -> None:
        body = encode_hello(2 * SECOND, 3, sorted((code, [address]) for address, code in links.items()))
        originator = source if main is None else main
        self.send(interface, source, MessageType.HELLO, originator, body, valid=6 * SECOND)

    def sent(self, type: MessageType) -> list[tuple[int, OlsrMessage]]:
        messages = [
            (interface, message)
            for interface, payload in self.air.sent
            for message in decode_packet(payload).messages
        ]
        return [(interface, message) for interface, message in messages if message.type == type]

    def hellos(self) -> dict[int, Hello]:
        """The latest on each interface."""
        return {interface: decode_hello(message.body) for interface, message in self.sent(MessageType.HELLO)}

    def drops(self) -> list[Dropped]:
        return [record for record in self.host.records if isinstance(record, Dropped)]


def two_interfaces(**options: Any) -> OpenBench:
    bench = OpenBench(FIRST, SECOND_ONE, **options)
    bench.olsr.on_start()
    bench.hello(FIRST, LEFT, {FIRST: RELAY})
    bench.hello(SECOND_ONE, RIGHT, {SECOND_ONE: RELAY, FAR: SYMMETRIC})
    return bench


# Several interfaces (sections 5 and 6).


def test_each_interface_has_its_own_hello_and_names_the_neighbours_of_the_others() -> None:
    bench = two_interfaces()
    bench.host.advance(2 * SECOND)
    hellos = bench.hellos()
    relay_elsewhere = link_code(LinkType.UNSPECIFIED, NeighbourType.RELAY)
    assert hellos[FIRST].links == {LEFT: SYMMETRIC, RIGHT: relay_elsewhere}
    assert hellos[SECOND_ONE].links == {RIGHT: RELAY, LEFT: ELSEWHERE}


def test_a_neighbour_that_is_pending_on_one_interface_is_named_there_as_one_of_the_other() -> None:
    """With hysteresis: the second interface hears it well, the first one every fourth packet."""
    bench = OpenBench(FIRST, SECOND_ONE, hysteresis=True)
    bench.olsr.on_start()
    for number in range(8):
        bench.sequence = number
        bench.hello(SECOND_ONE, RIGHT, {SECOND_ONE: SYMMETRIC}, main=LEFT)
        bench.sequence = 1_000 + 4 * number
        bench.hello(FIRST, LEFT, {FIRST: SYMMETRIC})
        bench.host.advance(2 * SECOND)
    assert bench.olsr.links() == {LEFT: LinkType.LOST, RIGHT: LinkType.SYMMETRIC}
    assert bench.hellos()[FIRST].links == {LEFT: ELSEWHERE}


def test_each_interface_has_relays_of_its_own() -> None:
    """Section 8.3. Both neighbours reach `FAR`; one relay would do for the node, but what it sends on the
    other interface would not be repeated there."""
    bench = OpenBench(FIRST, SECOND_ONE)
    bench.hello(FIRST, LEFT, {FIRST: SYMMETRIC, FAR: SYMMETRIC})
    bench.hello(SECOND_ONE, RIGHT, {SECOND_ONE: SYMMETRIC, FAR: SYMMETRIC, LEFT: SYMMETRIC})
    assert bench.olsr.own_relays() == {LEFT, RIGHT}


def test_other_interfaces_are_announced_by_mid() -> None:
    bench = two_interfaces()
    bench.host.advance(6 * SECOND)
    sent = bench.sent(MessageType.MID)
    assert {interface for interface, _ in sent} == {FIRST, SECOND_ONE}
    assert all(decode_mid(message.body).interfaces == (SECOND_ONE,) for _, message in sent)
    assert all(message.originator == FIRST for _, message in sent)
    alone = OpenBench(FIRST)
    alone.olsr.on_start()
    alone.host.advance(6 * SECOND)
    assert alone.sent(MessageType.MID) == []


def test_what_comes_in_on_one_interface_is_relayed_on_all() -> None:
    bench = two_interfaces()
    bench.send(FIRST, LEFT, MessageType.TC, at("10.1.0.8"), encode_tc(1, [LEFT]))
    bench.host.advance(SECOND)
    relayed = [interface for interface, message in bench.sent(MessageType.TC) if message.hops == 1]
    assert relayed == [FIRST, SECOND_ONE]


def test_a_copy_over_another_interface_is_relayed_if_only_its_sender_chose_us() -> None:
    bench = OpenBench(FIRST, SECOND_ONE)
    bench.hello(FIRST, LEFT, {FIRST: SYMMETRIC})  # did not choose us
    bench.hello(SECOND_ONE, RIGHT, {SECOND_ONE: RELAY})
    for interface, source in [(FIRST, LEFT), (FIRST, LEFT), (SECOND_ONE, RIGHT), (SECOND_ONE, RIGHT)]:
        bench.send(interface, source, MessageType.TC, FAR, encode_tc(1, [RIGHT]), sequence=77)
    bench.host.advance(SECOND)
    relayed = [interface for interface, message in bench.sent(MessageType.TC) if message.sequence == 77]
    assert relayed == [FIRST, SECOND_ONE]  # once on each


def test_a_neighbour_over_two_links_stays_until_both_are_gone() -> None:
    bench = two_interfaces()
    bench.hello(SECOND_ONE, at("10.2.0.7"), {SECOND_ONE: SYMMETRIC}, main=LEFT)
    assert LEFT in bench.olsr.routes()
    bench.host.advance(5 * SECOND)
    bench.hello(SECOND_ONE, at("10.2.0.7"), {SECOND_ONE: SYMMETRIC}, main=LEFT)
    bench.host.advance(3 * SECOND)  # the link to LEFT itself has ended
    assert LEFT in bench.olsr.routes()
    bench.host.advance(4 * SECOND)
    assert LEFT not in bench.olsr.routes()


# Routes for the host.


def test_the_host_gets_routes_with_interface_gateway_and_hops_and_loses_them_at_the_end() -> None:
    bench = two_interfaces()
    bench.send(SECOND_ONE, RIGHT, MessageType.TC, FAR, encode_tc(1, [at("10.2.0.10")]))
    bench.host.advance(SECOND)
    assert bench.air.routes == [
        IpRoute(LEFT, 32, None, FIRST, 1),
        IpRoute(RIGHT, 32, None, SECOND_ONE, 1),
        IpRoute(FAR, 32, RIGHT, SECOND_ONE, 2),
        IpRoute(at("10.2.0.10"), 32, RIGHT, SECOND_ONE, 3),
    ]
    bench.olsr.on_stop()
    assert bench.air.routes == []


def test_networks_are_announced_and_those_of_others_lead_to_the_nearest_gateway() -> None:
    own = "192.168.7.0/24"
    bench = two_interfaces(networks=[own])
    network = (at("172.20.0.0"), netmask_of(16))
    bench.send(SECOND_ONE, RIGHT, MessageType.HNA, FAR, encode_hna([network]))
    assert bench.olsr.network_routes()[network].distance == 2
    bench.send(FIRST, LEFT, MessageType.HNA, LEFT, encode_hna([network, (at("192.168.7.0"), netmask_of(24))]))
    assert {found: route.next_hop for found, route in bench.olsr.network_routes().items()} == {network: LEFT}
    bench.host.advance(6 * SECOND)
    sent = {
        decode_hna(message.body).networks for _, message in bench.sent(MessageType.HNA) if not message.hops
    }
    assert sent == {((at("192.168.7.0"), netmask_of(24)),)}
    assert IpRoute(at("172.20.0.0"), 16, LEFT, FIRST, 1) in bench.air.routes


def test_who_writes_no_routes_relays_for_nobody() -> None:
    bench = OpenBench(FIRST, kernel_routes=False)
    bench.olsr.on_start()
    bench.hello(FIRST, LEFT, {FIRST: SYMMETRIC})
    bench.host.advance(6 * SECOND)
    assert bench.hellos()[FIRST].willingness == 0 and bench.air.routes == []
    assert bench.sent(MessageType.TC) == []


# Node numbers.


def test_foreign_routers_are_no_nodes_and_ours_are_found_over_them() -> None:
    bench = two_interfaces()
    assert bench.olsr.neighbours() == [] and bench.olsr.known_nodes() == []
    bench.send(SECOND_ONE, RIGHT, MessageType.NODE, FAR, encode_node(NodeNotice(9, True)))
    assert bench.olsr.known_nodes() == [9] and bench.olsr.distance(9) == 2
    assert bench.olsr.next_hop(9) is None  # a router of others carries no frames of ours
    assert bench.olsr.relays() == [3, 9]
    bench.host.advance(20 * SECOND)
    assert bench.olsr.known_nodes() == [] and bench.olsr.relays() == []


def test_we_say_which_node_we_are_and_whether_we_relay() -> None:
    bench = OpenBench(FIRST)
    bench.olsr.on_start()
    bench.host.advance(6 * SECOND)
    bench.hello(FIRST, LEFT, {FIRST: RELAY})
    bench.host.advance(SECOND)  # soon, not with the next interval
    said = [decode_node(message.body) for _, message in bench.sent(MessageType.NODE)]
    assert said[0] == NodeNotice(3, False) and said[-1] == NodeNotice(3, True)


# What a daemon that lies can and cannot do.


def test_who_was_heard_in_sealed_frames_cannot_be_claimed_by_another() -> None:
    bench = OpenBench(FIRST, heard=Heard())
    bench.hello(FIRST, LEFT, {FIRST: SYMMETRIC})
    bench.hello(FIRST, at("10.1.0.66"), {FIRST: SYMMETRIC})
    bench.send(FIRST, at("10.1.0.66"), MessageType.NODE, at("10.1.0.66"), encode_node(NodeNotice(5, False)))
    bench.send(FIRST, at("10.1.0.66"), MessageType.NODE, at("10.1.0.66"), encode_node(NodeNotice(3, False)))
    assert bench.olsr.neighbours() == [5] and bench.olsr.next_hop(5) == 5


def test_of_two_claims_to_a_number_the_older_holds() -> None:
    bench = two_interfaces()
    bench.send(SECOND_ONE, RIGHT, MessageType.NODE, FAR, encode_node(NodeNotice(9, False)))
    bench.send(FIRST, LEFT, MessageType.NODE, LEFT, encode_node(NodeNotice(9, False)))
    assert bench.olsr.distance(9) == 2 and bench.olsr.neighbours() == []


def test_nobodys_address_becomes_anothers_second_interface() -> None:
    bench = two_interfaces()
    claimed = [LEFT, FIRST, SECOND_ONE]
    bench.send(SECOND_ONE, RIGHT, MessageType.MID, RIGHT, encode_mid(claimed))
    assert bench.olsr.routes()[LEFT].next_hop == LEFT and FIRST not in bench.olsr.routes()
    late = at("10.1.0.5")  # claimed before it is heard
    bench.send(SECOND_ONE, RIGHT, MessageType.MID, RIGHT, encode_mid([late]))
    assert bench.olsr.routes()[late].next_hop == RIGHT
    bench.hello(FIRST, late, {FIRST: SYMMETRIC})
    assert bench.olsr.routes()[late].next_hop == late


def test_one_link_with_ever_new_owners_is_one_neighbour() -> None:
    bench = OpenBench(FIRST)
    for number in range(2_000):
        bench.hello(FIRST, LEFT, {FIRST: RELAY}, main=at("10.3.0.0") + number)
    assert len(bench.olsr.routes()) == 1 and len(bench.olsr.selectors()) == 1


def test_a_future_number_and_a_huge_validity_block_a_node_for_the_bound_at_most() -> None:
    bench = two_interfaces(validity_max=10.0)
    bench.send(FIRST, LEFT, MessageType.TC, FAR, encode_tc(20_000, []), valid=3968 * SECOND)
    bench.send(SECOND_ONE, RIGHT, MessageType.TC, FAR, encode_tc(1, [at("10.2.0.10")]))
    assert at("10.2.0.10") not in bench.olsr.routes()
    bench.host.advance(5 * SECOND)
    for _ in range(2):
        bench.hello(SECOND_ONE, RIGHT, {SECOND_ONE: RELAY, FAR: SYMMETRIC})
        bench.host.advance(5 * SECOND)
    bench.hello(SECOND_ONE, RIGHT, {SECOND_ONE: RELAY, FAR: SYMMETRIC})
    bench.send(SECOND_ONE, RIGHT, MessageType.TC, FAR, encode_tc(1, [at("10.2.0.10")]))
    assert at("10.2.0.10") in bench.olsr.routes()


def test_forged_neighbours_fill_their_bounds_and_are_counted() -> None:
    bench = OpenBench(FIRST, links_max=4, associations_max=8, topology_max=50)
    for number in range(100):
        liar = at("10.1.1.0") + number
        bench.hello(FIRST, liar, {FIRST: RELAY, **{at("10.4.0.0") + n: SYMMETRIC for n in range(5)}})
    for number in range(100):
        originator = at("10.5.0.0") + number
        bench.send(FIRST, at("10.1.1.0"), MessageType.TC, originator, encode_tc(1, [originator + 1_000]))
        bench.send(FIRST, at("10.1.1.0"), MessageType.NODE, originator, encode_node(NodeNotice(number, True)))
        bench.send(FIRST, at("10.1.1.0"), MessageType.MID, originator, encode_mid([originator + 5_000]))
    assert len(bench.olsr.links()) == 4 and len(bench.olsr.routes()) <= 4 + 5 + 50 + 8
    details = {drop.detail for drop in bench.drops() if drop.reason is DropReason.STORE_FULL}
    assert details == {"links_max", "topology_max", "associations_max"}
    bench.host.advance(400 * SECOND)
    assert bench.olsr.routes() == {} and bench.olsr.relays() == []


def test_packets_from_our_own_or_impossible_addresses_are_refused_and_counted() -> None:
    bench = two_interfaces()
    for source in (FIRST, SECOND_ONE, 0, at("127.0.0.1"), at("224.0.0.1"), 0xFFFF_FFFF):
        bench.hello(FIRST, source, {FIRST: RELAY}, main=at("10.9.9.9"))
    assert len(bench.drops()) == 6 and at("10.9.9.9") not in bench.olsr.routes()


def test_mutated_packets_never_raise_and_leave_nothing_behind() -> None:
    """Sound packets of every kind, with octets changed and cut: 4,000 of them, a seed for each 40."""
    for seed in range(100):
        random = Random(seed)
        bench = two_interfaces(hysteresis=seed % 2 == 0, prompt=seed % 3 == 0, links_max=16)
        for _ in range(40):
            bench.olsr.on_packet(random.choice([FIRST, SECOND_ONE]), random.choice(SOURCES), mutated(random))
            bench.host.advance(random.randrange(SECOND))
            routes = bench.olsr.routes()
            assert all(route.next_hop in routes for route in routes.values()), f"seed {seed}"
            assert FIRST not in routes and SECOND_ONE not in routes, f"seed {seed}"
        bench.host.advance(700 * SECOND)
        assert bench.olsr.routes() == {} and bench.olsr.links() == {}, f"seed {seed}"
        assert bench.olsr.gateways() == [] and bench.olsr.relays() == [], f"seed {seed}"


SOURCES = [LEFT, RIGHT, at("10.1.0.3"), at("10.2.0.4"), FIRST]


def mutated(random: Random) -> bytes:
    bodies = [
        (MessageType.HELLO, encode_hello(2 * SECOND, 3, [(RELAY, list(OURS)), (SYMMETRIC, [FAR])])),
        (MessageType.TC, encode_tc(random.randrange(65_536), [LEFT, FAR])),
        (MessageType.MID, encode_mid([FAR, RIGHT])),
        (MessageType.HNA, encode_hna([(at("172.20.0.0"), netmask_of(16)), (0, 0)])),
        (MessageType.NODE, encode_node(NodeNotice(random.randrange(2**31), True))),
        (200, random.randbytes(20)),
    ]
    messages = [
        encode_message(
            type,
            random.randrange(3_968) * SECOND,
            random.choice([LEFT, RIGHT, FAR]),
            random.choice([1, 255]),
            0,
            random.randrange(65_536),
            body,
        )
        for type, body in random.choices(bodies, k=random.randint(1, 4))
    ]
    packet = bytearray(encode_packet(random.randrange(65_536), messages))
    for _ in range(random.choice([0, 0, 1, 3])):
        packet[random.randrange(4, len(packet))] = random.randrange(256)
    if random.random() < 0.1:
        del packet[random.randrange(len(packet)) :]
    return bytes(packet)


# Where it is not possible.


def test_a_simulation_has_nothing_to_be_open_to() -> None:
    with pytest.raises(InputError, match=r"underlay\.options\.open.*is true"):
        Olsr(UnderlayContext(FakeHost(node=0)), OlsrOptions(open=True))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"interfaces": ["eth0"]}, "without open = true"),
        ({"open": True, "networks": ["10.0.0.0"]}, "no IPv4 network"),
        ({"open": True, "networks": ["10.0.0.1/8"]}, "bits beyond its prefix"),
        ({"open": True, "networks_accepted": ["1.2.3.4/33"]}, "no IPv4 network"),
    ],
)
def test_impossible_options_are_refused_when_they_are_read(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        UNDERLAYS.check("underlay", "olsr", options, [])
