"""Frames as a kernel makes them, written out by hand."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from roamcast.runtime.emulate.ether import NONE, EthernetFrame, Reader
from roamcast.runtime.emulate.namespaces import mac_of

BROADCAST = b"\xff" * 6


def ethernet(to: bytes, ethertype: int, body: bytes) -> bytes:
    return to + mac_of(0) + struct.pack("!H", ethertype) + body


def internet(protocol: int, body: bytes, fragment: int = 0, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    header = struct.pack("!BBHHHBBH8x", 0x40 | words, 0, 0, 0, fragment, 64, protocol, 0)
    return header + options + body


def udp(payload: bytes) -> bytes:
    return struct.pack("!HHHH", 4748, 4747, 8 + len(payload), 0) + payload


def test_a_broadcast_datagram_is_for_all_and_tells_its_size() -> None:
    frame = ethernet(BROADCAST, 0x0800, internet(17, udp(b"x" * 77)))
    assert Reader(3).read(frame) == EthernetFrame(None, "udp", 77)


def test_multicast_is_for_all_too() -> None:
    frame = ethernet(b"\x01\x00\x5e\x7f\x2f\x2f", 0x0800, internet(2, b""))
    assert Reader(3).read(frame) == EthernetFrame(None, "igmp")


def test_unicast_is_for_the_owner_of_the_address() -> None:
    assert Reader(3).read(ethernet(mac_of(2), 0x0806, bytes(28))) == EthernetFrame(2, "arp")


def test_an_address_that_nobody_has_is_nobodys() -> None:
    assert Reader(3).read(ethernet(mac_of(3), 0x0806, bytes(28))) == EthernetFrame(NONE, "arp")


def test_options_in_the_internet_header_move_what_follows() -> None:
    frame = ethernet(mac_of(1), 0x0800, internet(17, udp(b"abc"), options=bytes(8)))
    assert Reader(3).read(frame) == EthernetFrame(1, "udp", 3)


def test_only_the_first_fragment_has_a_datagram() -> None:
    first = ethernet(mac_of(1), 0x0800, internet(17, udp(b"x" * 9), fragment=0x2000))
    later = ethernet(mac_of(1), 0x0800, internet(17, udp(b"x" * 9), fragment=0x2005))
    assert Reader(3).read(first) == EthernetFrame(1, "udp", 9)
    assert Reader(3).read(later) == EthernetFrame(1, "udp", None)


def test_tcp_is_told_apart_and_not_looked_into() -> None:
    assert Reader(3).read(ethernet(mac_of(1), 0x0800, internet(6, bytes(20)))) == EthernetFrame(1, "tcp")


def test_what_is_shorter_than_a_header_is_no_frame() -> None:
    assert Reader(3).read(bytes(13)) is None


@given(st.binary(max_size=80))
def test_any_octets_are_a_packet_or_nothing(data: bytes) -> None:
    packet = Reader(3).read(data)
    assert packet is None or packet.to in (None, NONE, 0, 1, 2)


@given(st.binary(max_size=60))
def test_any_internet_packet_is_read(body: bytes) -> None:
    packet = Reader(3).read(ethernet(mac_of(1), 0x0800, body))
    assert packet is not None and packet.to == 1
