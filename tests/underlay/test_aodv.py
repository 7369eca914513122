"""AODV by hand, over random networks, and against another decoder of its messages."""

import json
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import WireError
from roamcast.host import SendFailure
from roamcast.lab.run.runs import simulate
from roamcast.scenario.load import scenario_from
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.aodv import SEARCHES_MAX, Aodv, AodvOptions
from roamcast.underlay.base import UnderlayContext
from roamcast.units import MILLISECOND, SECOND, Micros
from roamcast.wire.aodv import (
    GRATUITOUS,
    UNKNOWN_SEQUENCE,
    AodvError,
    AodvMessage,
    AodvReply,
    AodvRequest,
    decode_aodv,
    encode_aodv,
    is_newer,
)

STEP: Micros = MILLISECOND


def address(node: int) -> int:
    return (10 << 24) + node + 1


class AodvNetwork:
    """Nodes whose frames take a step, over links that a test makes and breaks."""

    def __init__(self, nodes: int, links: set[tuple[int, int]], seed: int = 1, loss: float = 0.0) -> None:
        self.random = Random(seed)
        self.loss = loss
        self.links = {(a, b) for a, b in links} | {(b, a) for a, b in links}
        self.hosts = [FakeHost(node, seed=seed * 1_000 + node) for node in range(nodes)]
        self.aodv: list[Aodv] = []
        for node in range(nodes):
            self.boot(node)

    def boot(self, node: int, **options: float) -> None:
        """A new layer on the same stable storage."""
        old = self.hosts[node]
        self.hosts[node] = host = FakeHost(
            node, seed=old.random.randrange(1 << 30), now=old.now(), stable=old.stable
        )
        layer = Aodv(UnderlayContext(host), AodvOptions())
        host.attach(layer)
        self.aodv[node:] = [layer, *self.aodv[node + 1 :]]
        layer.on_start()

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * SECOND / STEP)):
            self.step()

    def step(self) -> None:
        for host in self.hosts:
            host.advance(STEP)
        flying = []
        for host in self.hosts:
            flying += [(host.node, sent) for sent in host.sent]
            host.sent.clear()
        for sender, sent in flying:
            receivers = [b for a, b in sorted(self.links) if a == sender and sent.to in (None, b)]
            if not receivers and sent.on_failure is not None:
                sent.on_failure(SendFailure.LINK)
            for receiver in receivers:
                if sent.to is not None or self.random.random() >= self.loss:
                    self.aodv[receiver].on_receive(sender, sent.frame.payload)
                    self.check_for_loops()

    def cut(self, a: int, b: int) -> None:
        self.links -= {(a, b), (b, a)}

    def join(self, a: int, b: int) -> None:
        self.links |= {(a, b), (b, a)}

    def way(self, source: int, to: int) -> list[int]:
        """By the routes as they are, without asking for one."""
        way = [source]
        while way[-1] != to:
            route = self.aodv[way[-1]]._active(address(to))
            if route is None:
                return []
            way.append(route.next_hop - address(0))
            assert len(way) == len(set(way)), f"a loop: {way}"
        return way

    def check_for_loops(self) -> None:
        for to in range(len(self.aodv)):
            for source in range(len(self.aodv)):
                if source != to:
                    self.way(source, to)


def line(nodes: int) -> AodvNetwork:
    return AodvNetwork(nodes, {(node, node + 1) for node in range(nodes - 1)})


def sent_by(host: FakeHost) -> Iterator[tuple[int | None, int, AodvMessage]]:
    """To whom, with which TTL, what."""
    for sent in host.sent:
        ttl, message = decode_aodv(sent.frame.payload)
        assert message is not None
        yield sent.to, ttl, message


@pytest.fixture
def alone() -> tuple[Aodv, FakeHost]:
    host = FakeHost(0)
    layer = Aodv(UnderlayContext(host), AodvOptions())
    host.attach(layer)
    return layer, host


# Messages.


def test_a_request_has_the_bits_of_the_rfc() -> None:
    request = AodvRequest(GRATUITOUS | UNKNOWN_SEQUENCE, 2, 7, address(3), 0, address(0), 5)
    by_hand = "23" + "01280002" + "00000007" + "0a000004" + "00000000" + "0a000001" + "00000005"
    assert encode_aodv(0x23, request).hex() == by_hand
    assert decode_aodv(bytes.fromhex(by_hand)) == (0x23, request)


def test_a_reply_and_an_error_have_the_bits_of_the_rfc() -> None:
    reply = AodvReply(1, address(3), 9, address(0), 6_000)
    assert (
        encode_aodv(35, reply).hex() == "23" + "02000001" + "0a000004" + "00000009" + "0a000001" + "00001770"
    )
    error = AodvError(((address(3), 10), (address(4), 11)))
    by_hand = "01" + "03000002" + "0a000004" + "0000000a" + "0a000005" + "0000000b"
    assert encode_aodv(1, error).hex() == by_hand
    assert decode_aodv(bytes.fromhex(by_hand)) == (1, error)


def test_extensions_are_skipped_and_must_be_whole() -> None:
    reply = AodvReply(0, address(3), 9, address(3), 2_000)
    hello_interval = bytes([1, 4]) + (1_000).to_bytes(4, "big")  # section 6.9
    assert decode_aodv(encode_aodv(1, reply) + hello_interval) == (1, reply)
    with pytest.raises(WireError, match="extension at octet 21 is cut off"):
        decode_aodv(encode_aodv(1, reply) + hello_interval[:-1])


@given(st.binary(max_size=64))
def test_any_octets_are_a_message_or_a_wire_error(data: bytes) -> None:
    with suppress(WireError):
        ttl, message = decode_aodv(data)
        if message is not None:
            assert decode_aodv(encode_aodv(ttl, message)) == (ttl, message)


@given(st.integers(0, (1 << 32) - 1), st.integers(1, (1 << 31) - 1))
def test_numbers_wrap_around(number: int, ahead: int) -> None:
    later = (number + ahead) % (1 << 32)
    assert is_newer(later, number) and not is_newer(number, later) and not is_newer(number, number)


def test_another_decoder_reads_our_messages(tmp_path: Path) -> None:
    """Wireshark's, for AODV on UDP port 654."""
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("no tshark")
    request = AodvRequest(GRATUITOUS, 2, 7, address(3), 8, address(0), 5)
    reply = AodvReply(1, address(3), 9, address(0), 6_000)
    error = AodvError(((address(3), 10),))
    capture = struct.pack("!IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)  # raw IP
    for message in (request, reply, error):
        body = encode_aodv(35, message)[1:]
        datagram = struct.pack("!HHHH", 654, 654, 8 + len(body), 0) + body
        source, to = address(0).to_bytes(4, "big"), b"\xff\xff\xff\xff"
        packet = (
            struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 35, 17, 0) + source + to + datagram
        )
        capture += struct.pack("!IIII", 0, 0, len(packet), len(packet)) + packet
    (tmp_path / "aodv.pcap").write_bytes(capture)
    ended = subprocess.run(
        [tshark, "-r", str(tmp_path / "aodv.pcap"), "-T", "json"], check=True, capture_output=True, text=True
    )
    read = [packet["_source"]["layers"]["aodv"] for packet in json.loads(ended.stdout)]
    assert [one["aodv.type"] for one in read] == ["1", "2", "3"]
    assert (read[0]["aodv.hopcount"], read[0]["aodv.rreq_id"]) == ("2", "0x00000007") or read[0][
        "aodv.rreq_id"
    ] == "7"
    assert read[0]["aodv.dest_ip"] == "10.0.0.4" and read[0]["aodv.orig_ip"] == "10.0.0.1"
    assert (read[0]["aodv.dest_seqno"], read[0]["aodv.orig_seqno"]) == ("8", "5")
    assert (read[1]["aodv.dest_seqno"], read[1]["aodv.lifetime"]) == ("9", "6000")
    assert read[2]["aodv.destcount"] == "1"


# Searching.


def test_a_search_grows_in_rings_then_floods_and_gives_up(alone: tuple[Aodv, FakeHost]) -> None:
    aodv, host = alone
    assert aodv.next_hop(5) is None
    host.advance(60 * SECOND)
    rings = [(sent.at, ttl) for sent, (_, ttl, _) in zip(host.sent, sent_by(host), strict=True)]
    # TTL 1, 3, 5, 7 with waits of 80 ms for each of TTL + 2 hops; then 35 hops, 2.8 s, doubled each time.
    waits = [0, 240, 640, 1_200, 1_920, 4_720, 10_320]
    ttls = [1, 3, 5, 7, 35, 35, 35]
    assert rings == [(wait * MILLISECOND, ttl) for wait, ttl in zip(waits, ttls, strict=True)]
    assert len({message.id for _, _, message in sent_by(host) if isinstance(message, AodvRequest)}) == 7


def test_a_failed_search_is_not_begun_anew_at_once(alone: tuple[Aodv, FakeHost]) -> None:
    aodv, host = alone
    aodv.next_hop(5)
    host.advance(22 * SECOND)  # the last wait ends after 21.52 s
    host.sent.clear()
    aodv.next_hop(5)
    assert host.sent == []
    host.advance(23 * SECOND)  # 2.8 s doubled three times
    aodv.next_hop(5)
    assert len(host.sent) == 1


def test_requests_are_limited_in_a_second_and_searches_in_number(alone: tuple[Aodv, FakeHost]) -> None:
    aodv, host = alone
    for node in range(1, SEARCHES_MAX + 3):
        aodv.next_hop(node)
    assert len(host.sent) == 10
    host.advance(SECOND)
    assert len(host.sent) <= 20
    full = [one for one in host.records if isinstance(one, Dropped) and one.reason is DropReason.STORE_FULL]
    assert len(full) == 2 and full[0].detail == "SEARCHES_MAX"


def test_both_ends_of_a_line_get_a_route_by_one_search() -> None:
    network = line(5)
    network.run(1.5)  # HELLOs
    assert network.aodv[0].neighbours() == [1] and network.aodv[2].neighbours() == [1, 3]
    assert network.aodv[0].next_hop(4) is None
    network.run(1.0)
    assert network.way(0, 4) == [0, 1, 2, 3, 4] and network.way(4, 0) == [4, 3, 2, 1, 0]
    assert network.aodv[0].distance(4) == 4 and network.aodv[0].next_hop(4) == 1


def test_a_node_on_the_way_answers_for_the_destination_and_tells_it_of_the_asker() -> None:
    network = line(4)
    network.run(1.5)
    network.aodv[1].next_hop(3)
    network.run(0.5)
    for _ in range(10):  # in use, so it stays
        network.run(0.2)
        network.aodv[1].next_hop(3)
    network.aodv[0].next_hop(3)
    network.run(0.2)
    assert network.aodv[0].next_hop(3) == 1
    assert network.way(3, 0) == [3, 2, 1, 0]  # by the gratuitous reply


def test_a_route_ends_when_nobody_uses_it() -> None:
    network = line(3)
    network.run(1.5)
    network.aodv[0].next_hop(2)
    network.run(0.5)
    assert network.aodv[0].distance(2) == 2
    network.run(7.0)  # the destination's answer is good for twice ACTIVE_ROUTE_TIMEOUT
    assert network.aodv[0].distance(2) is None and network.aodv[0].distance(1) == 1


def test_a_broken_link_is_told_to_those_who_route_over_it() -> None:
    network = line(4)
    network.run(1.5)
    network.aodv[0].next_hop(3)
    network.run(0.5)
    network.cut(2, 3)
    network.aodv[2].on_link_failure(3)
    assert network.aodv[2].neighbours() == [1]
    network.run(0.01)
    assert network.aodv[0].distance(3) is None and network.aodv[1].distance(3) is None
    network.join(1, 3)
    network.aodv[0].next_hop(3)
    network.run(1.0)
    assert network.way(0, 3) == [0, 1, 3]


def test_a_neighbour_is_lost_after_two_silent_intervals(alone: tuple[Aodv, FakeHost]) -> None:
    aodv, host = alone
    aodv.on_receive(1, encode_aodv(1, AodvReply(0, address(1), 1, address(1), 2_000)))
    assert aodv.neighbours() == [1] and aodv.next_hop(1) == 1
    host.advance(2 * SECOND - 1)
    assert aodv.neighbours() == [1]
    host.advance(1)
    assert aodv.neighbours() == [] and aodv.distance(1) is None


def test_who_does_not_acknowledge_our_reply_asks_in_vain_for_a_while(alone: tuple[Aodv, FakeHost]) -> None:
    aodv, host = alone
    request = AodvRequest(UNKNOWN_SEQUENCE, 0, 1, address(0), 0, address(1), 1)
    aodv.on_receive(1, encode_aodv(1, request))
    (reply,) = host.sent
    assert reply.to == 1 and reply.on_failure is not None
    reply.on_failure(SendFailure.LINK)
    host.sent.clear()
    again = AodvRequest(UNKNOWN_SEQUENCE, 0, 2, address(0), 0, address(1), 2)
    aodv.on_receive(1, encode_aodv(1, again))
    assert host.sent == []
    host.advance(6 * SECOND)  # BLACKLIST_TIMEOUT is 5.6 s
    host.sent.clear()
    aodv.on_receive(1, encode_aodv(1, AodvRequest(UNKNOWN_SEQUENCE, 0, 3, address(0), 0, address(1), 3)))
    assert [sent.to for sent in host.sent] == [1]


def test_the_destination_answers_with_the_number_that_is_asked_for(alone: tuple[Aodv, FakeHost]) -> None:
    aodv, host = alone
    aodv.on_receive(1, encode_aodv(1, AodvRequest(0, 0, 1, address(0), 4_000, address(1), 1)))
    ((_, _, reply),) = sent_by(host)
    assert isinstance(reply, AodvReply) and reply.sequence == 4_000


def test_after_a_reboot_a_node_waits_before_it_routes_again() -> None:
    """Section 6.13: node 1 routes to 2 over node 0, which has forgotten it and must not ask node 1."""
    network = AodvNetwork(3, {(0, 1), (0, 2)})
    network.run(1.5)
    network.aodv[1].next_hop(2)
    network.run(0.5)
    assert network.way(1, 2) == [1, 0, 2]
    before = network.aodv[0]._own_sequence
    network.cut(0, 2)
    network.boot(0)
    assert network.aodv[0]._own_sequence > before
    assert network.aodv[0].next_hop(2) is None
    network.run(0.01)
    assert network.aodv[1].distance(2) is None, "it is told"
    network.run(1.5)
    assert network.aodv[0].next_hop(1) == 1, "neighbours can be reached"
    network.join(0, 2)
    network.join(1, 2)
    network.cut(0, 2)
    network.run(12.0)
    assert network.aodv[0].distance(2) is None
    network.run(4.0)
    network.aodv[0].next_hop(2)
    network.run(1.0)
    assert network.way(0, 2) == [0, 1, 2]


def test_an_older_number_does_not_replace_a_route(alone: tuple[Aodv, FakeHost]) -> None:
    aodv, _ = alone
    aodv.on_receive(1, encode_aodv(9, AodvReply(1, address(5), 10, address(0), 6_000)))
    aodv.on_receive(2, encode_aodv(9, AodvReply(0, address(5), 9, address(0), 6_000)))
    assert aodv.next_hop(5) == 1
    aodv.on_receive(2, encode_aodv(9, AodvReply(0, address(5), 10, address(0), 6_000)))
    assert aodv.next_hop(5) == 2  # the same number, fewer hops
    aodv.on_receive(3, encode_aodv(9, AodvReply(7, address(5), 11, address(0), 6_000)))
    assert aodv.next_hop(5) == 3  # a newer number, whatever its hops


# Whole networks.


@pytest.mark.parametrize("seed", range(12))
def test_no_loop_at_any_instant_while_links_come_and_go(seed: int) -> None:
    random = Random(seed)
    nodes = random.randrange(4, 9)
    pairs = [(a, b) for a in range(nodes) for b in range(a)]
    network = AodvNetwork(
        nodes, set(random.sample(pairs, k=nodes)), seed, loss=random.choice([0.0, 0.1, 0.3])
    )
    for _ in range(60):
        a, b = random.choice(pairs)
        match random.randrange(6):
            case 0 | 1:
                network.join(a, b)
            case 2:
                network.cut(a, b)
            case 3:
                network.boot(a)
            case _:
                network.aodv[a].next_hop(b)
                if (a, b) not in network.links:
                    network.aodv[a].on_link_failure(b)
        network.run(random.random() * 0.5)
    for a, b in pairs:  # in the end a connected network has all routes
        network.join(a, b)
    network.loss = 0.0
    for _ in range(40):
        for a in range(nodes):
            for b in range(nodes):
                if a != b:
                    network.aodv[a].next_hop(b)
        network.run(1.0)
        if all(network.aodv[a].distance(b) is not None for a in range(nodes) for b in range(nodes) if a != b):
            return
    raise AssertionError(f"seed {seed}: nodes without a route in a whole network")


def test_home_brokers_serve_walkers_over_routes_on_demand() -> None:
    """The setting of the work on opportunistic overlays, in small: its strategy over its routing protocol."""
    scenario = scenario_from(
        {
            "scenario": {"name": "walkers", "duration": 40.0, "warmup": 10.0, "seed": 3},
            "world": {
                "nodes": 16,
                "area": [450.0, 450.0],
                "range": 200.0,
                "mobility": {"model": "random_waypoint", "speed": [1.0, 5.0], "pause": [10.0, 10.0]},
            },
            "roles": {"brokers": 5, "publishers": 2, "subscribers": 3},
            "workload": {"rate": 1.0, "stop": 35.0},
            "underlay": {"name": "aodv"},
            "strategy": {"name": "opportunistic"},
        }
    )
    ended = simulate(scenario)
    metrics = ended.metrics
    assert metrics["delivery_ratio_reachable"] == 1.0, metrics
    assert metrics["expected"] is not None and metrics["expected"] > 100
