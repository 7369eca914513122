"""The packets of RFC 3626: vectors made by hand from the text of the RFC, and properties over any octets."""

import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import WireError
from roamcast.units import SECOND
from roamcast.wire.olsr import (
    TIME_MAX,
    LinkType,
    MessageType,
    NeighbourType,
    OlsrMessage,
    decode_hello,
    decode_hna,
    decode_mid,
    decode_packet,
    decode_tc,
    decode_time,
    dotted,
    encode_hello,
    encode_hna,
    encode_message,
    encode_mid,
    encode_packet,
    encode_tc,
    encode_time,
    is_link_code,
    is_newer,
    link_code,
)

A, B, C, D = 0x0A000001, 0x0A000002, 0x0A000003, 0x0A000004

HELLO_PACKET = bytes.fromhex(
    "0030 0007"  # packet: 48 octets, number 7
    "01 86 002c 0a000001 01 00 1234"  # HELLO, valid 6 s, 44 octets, from 10.0.0.1, ttl 1, hops 0
    "0000 05 03"  # sent every 2 s, default willingness
    "06 00 0008 0a000002"  # symmetric link, symmetric neighbour: B
    "0a 00 0008 0a000003"  # symmetric link, relay: C
    "01 00 000c 0a000004 0a000005"  # asymmetric link, no neighbour: two
)
TC_PACKET = bytes.fromhex(
    "001c 0008"
    "02 e7 0018 0a000002 fe 01 0011"  # TC, valid 15 s, 24 octets, from 10.0.0.2, ttl 254, hops 1
    "abcd 0000 0a000001 0a000003"
)
MIXED_PACKET = bytes.fromhex(
    "004c 0009"
    "03 e7 0014 0a000002 ff 00 0012 c0a80001 c0a80002"  # MID with two interfaces
    "04 e7 0014 0a000002 ff 00 0013 c0a80000 ffff0000"  # HNA: 192.168.0.0/16
    "c8 05 0010 0a000003 10 00 0014 deadbeef"  # type 200, nobody knows what
    "02 e7 0010 0a000004 01 00 0015 0001 0000"  # an empty TC
)


# Vectors.


def test_a_hello_is_read_and_written_as_the_rfc_draws_it() -> None:
    packet = decode_packet(HELLO_PACKET)
    (message,) = packet.messages
    assert packet.sequence == 7
    assert (message.type, message.validity, message.originator) == (MessageType.HELLO, 6 * SECOND, A)
    assert (message.ttl, message.hops, message.sequence) == (1, 0, 0x1234)
    hello = decode_hello(message.body)
    assert (hello.interval, hello.willingness) == (2 * SECOND, 3)
    assert hello.links == {B: 0x06, C: 0x0A, D: 0x01, D + 1: 0x01}
    assert hello.symmetric == {B, C}
    body = encode_hello(2 * SECOND, 3, [(0x06, [B]), (0x0A, [C]), (0x01, [D, D + 1])])
    sent = encode_message(MessageType.HELLO, 6 * SECOND, A, 1, 0, 0x1234, body)
    assert encode_packet(7, [sent]) == HELLO_PACKET


def test_a_tc_is_read_and_written_as_the_rfc_draws_it() -> None:
    (message,) = decode_packet(TC_PACKET).messages
    tc = decode_tc(message.body)
    assert tc.ansn == 0xABCD and tc.advertised == {A, C}
    assert (message.validity, message.ttl, message.hops) == (15 * SECOND, 254, 1)
    sent = encode_message(MessageType.TC, 15 * SECOND, B, 254, 1, 0x11, encode_tc(0xABCD, [A, C]))
    assert encode_packet(8, [sent]) == TC_PACKET


def test_several_messages_share_a_packet_and_unknown_ones_stay_as_they_are() -> None:
    mid, hna, unknown, tc = decode_packet(MIXED_PACKET).messages
    assert decode_mid(mid.body).interfaces == (0xC0A80001, 0xC0A80002)
    assert decode_hna(hna.body).networks == ((0xC0A80000, 0xFFFF0000),)
    assert (unknown.type, unknown.body) == (200, bytes.fromhex("deadbeef"))
    assert decode_tc(tc.body).advertised == frozenset()
    assert encode_packet(9, [message.encode() for message in (mid, hna, unknown, tc)]) == MIXED_PACKET
    assert encode_mid([0xC0A80001, 0xC0A80002]) == mid.body
    assert encode_hna([(0xC0A80000, 0xFFFF0000)]) == hna.body


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(6, 0x86), (15, 0xE7), (2, 0x05), (5, 0x46), (0.0625, 0x00), (3968, 0xFF), (30, 0xE8)],
)
def test_times_have_the_codes_of_section_18_3(seconds: float, code: int) -> None:
    assert encode_time(round(seconds * SECOND)) == code
    assert decode_time(code) == round(seconds * SECOND)


@pytest.mark.parametrize(
    ("link", "neighbour", "code"),
    [
        (LinkType.SYMMETRIC, NeighbourType.RELAY, 10),
        (LinkType.SYMMETRIC, NeighbourType.SYMMETRIC, 6),
        (LinkType.ASYMMETRIC, NeighbourType.NOT, 1),
        (LinkType.LOST, NeighbourType.NOT, 3),
        (LinkType.UNSPECIFIED, NeighbourType.SYMMETRIC, 4),
    ],
)
def test_link_codes_are_two_fields_of_two_bits(link: LinkType, neighbour: NeighbourType, code: int) -> None:
    assert link_code(link, neighbour) == code
    assert is_link_code(code)


def test_undefined_link_codes_are_ignored_and_no_fault() -> None:
    # A symmetric link to no neighbour, the unused neighbour type, and a code above 15.
    body = encode_hello(2 * SECOND, 3, [(2, [B]), (12, [C]), (16, [D]), (6, [A])])
    assert decode_hello(body).links == {A: 6}


def test_sequence_numbers_wrap_around() -> None:
    assert is_newer(1, 0) and not is_newer(0, 1) and not is_newer(7, 7)
    assert is_newer(0, 65_535) and not is_newer(65_535, 0)
    assert is_newer(32_767, 0) and not is_newer(0, 32_767)
    assert is_newer(0, 32_768) and not is_newer(32_768, 0)  # half-way: S2 - S1 > MAXVALUE / 2


# Properties.


@given(st.integers(0, 65_535), st.integers(0, 65_535))
def test_of_two_different_numbers_exactly_one_is_newer(a: int, b: int) -> None:
    assert is_newer(a, b) + is_newer(b, a) == (a != b)
    # Section 19, word for word.
    assert is_newer(a, b) == ((a > b and a - b <= 65_535 / 2) or (b > a and b - a > 65_535 / 2))


@given(st.integers(0, 255))
def test_every_time_code_survives_decoding(code: int) -> None:
    assert encode_time(decode_time(code)) == code


@given(st.integers(62_500, TIME_MAX))
def test_a_time_is_never_shortened_and_lengthened_by_a_sixteenth_at_most(time: int) -> None:
    assert time <= decode_time(encode_time(time)) <= time * 17 / 16 + 1


ADDRESSES = st.integers(0, 2**32 - 1)
ORIGINATORS = st.integers(0x01000000, 0x7EFFFFFF)
NUMBERS = st.integers(0, 65_535)
OCTETS = st.integers(0, 255)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    body = draw(
        st.one_of(
            st.binary(max_size=40),
            st.builds(encode_tc, NUMBERS, st.lists(ADDRESSES, max_size=5)),
            st.builds(
                encode_hello,
                st.integers(0, TIME_MAX),
                OCTETS,
                st.lists(st.tuples(OCTETS, st.lists(ADDRESSES, max_size=3)), max_size=4),
            ),
        )
    )
    time = decode_time(draw(OCTETS))
    return encode_message(
        draw(OCTETS), time, draw(ORIGINATORS), draw(OCTETS), draw(OCTETS), draw(NUMBERS), body
    )


@given(NUMBERS, st.lists(messages(), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_packets_survive_decoding_and_encoding_bit_for_bit(number: int, parts: list[bytes]) -> None:
    data = encode_packet(number, parts)
    packet = decode_packet(data)
    assert packet.sequence == number
    assert [message.encode() for message in packet.messages] == parts


def read_all(data: bytes) -> list[OlsrMessage]:
    """Decode a packet and every body in it, as if each were of each type."""
    messages = list(decode_packet(data).messages)
    for message in messages:
        for decode in (decode_hello, decode_tc, decode_mid, decode_hna):
            with suppress(WireError):
                decode(message.body)
    return messages


@given(st.binary(max_size=120))
@settings(max_examples=300, deadline=None)
def test_any_octets_are_a_packet_or_a_wire_error(data: bytes) -> None:
    with suppress(WireError):
        read_all(data)
    framed = struct.pack("!HH", len(data) + 4, 1) + data
    with suppress(WireError):
        assert encode_packet(1, [message.encode() for message in read_all(framed)]) == framed


@given(st.lists(messages(), min_size=1, max_size=3), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_packets_are_packets_or_wire_errors(parts: list[bytes], data: st.DataObject) -> None:
    packet = bytearray(encode_packet(1, parts))
    for _ in range(data.draw(st.integers(1, 4))):
        packet[data.draw(st.integers(0, len(packet) - 1))] = data.draw(OCTETS)
    for damaged in (bytes(packet), bytes(packet[: data.draw(st.integers(0, len(packet)))])):
        with suppress(WireError):
            read_all(damaged)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "packet at octet 0 has 0 octets"),
        (bytes(4), "packet length at octet 0 is 0, 4 octets came"),
        (bytes.fromhex("00040001"), "holds no message"),
        (bytes.fromhex("000800010186002c"), "message header at octet 4 needs 12 octets, 4 left"),
        (HELLO_PACKET[:6] + b"\xff\xff" + HELLO_PACKET[8:], "message size at octet 6 is 65535, 44 octets"),
        (HELLO_PACKET[:6] + b"\x00\x0b" + HELLO_PACKET[8:], "message size at octet 6 is 11, 44 octets"),
        (HELLO_PACKET[:8] + bytes(4) + HELLO_PACKET[12:], "originator at octet 8 is 0.0.0.0"),
        (bytes(65_535), "packet at octet 0 has 65535 octets"),
    ],
)
def test_refusals_say_what_and_where(data: bytes, said: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_packet(data)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        "",  # no header
        "000005",  # half a header
        "0000 05 08",  # more than always
        "0000 05 03 06 00",  # half a link header
        "0000 05 03 06 00 0003",  # a link message shorter than its header
        "0000 05 03 06 00 000c 0a000001",  # longer than the body
        "0000 05 03 06 00 0006 0a00",  # half an address
    ],
)
def test_malformed_hello_bodies_are_refused(body: str) -> None:
    with pytest.raises(WireError):
        decode_hello(bytes.fromhex(body))


# The public dissector.


def capture(packets: list[bytes]) -> bytes:
    """A pcap file (LINKTYPE_RAW: IPv4) of UDP datagrams from and to port 698."""
    records = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)]
    for number, payload in enumerate(packets):
        udp = struct.pack("!HHHH", 698, 698, 8 + len(payload), 0) + payload
        header = struct.pack(
            "!BBHHHBBHII", 0x45, 0, 20 + len(udp), number, 0, 64, 17, 0, 0x0A000001, 0x0AFFFFFF
        )
        frame = header + udp
        records.append(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
    return b"".join(records)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark (Debian: tshark) is not installed")
def test_a_public_dissector_finds_nothing_malformed_and_reads_what_was_meant(tmp_path: Path) -> None:
    packets = [HELLO_PACKET, TC_PACKET, MIXED_PACKET]
    read = dissect(tmp_path / "olsr.pcap", packets, "olsr.message_type", "olsr.origin_addr", "olsr.vtime")
    assert [numbers(types) for types, _, _ in read] == [[1], [2], [3, 4, 200, 2]]
    assert [origins for _, origins, _ in read] == [
        dotted(A),
        dotted(B),
        "10.0.0.2,10.0.0.2,10.0.0.3,10.0.0.4",
    ]
    assert [numbers(times) for _, _, times in read] == [[6], [15], [15, 15, 2, 15]]
    codes, neighbours, interval = dissect(
        tmp_path / "olsr.pcap", packets, "olsr.link_type", "olsr.neighbor_addr", "olsr.htime"
    )[0]
    assert (numbers(codes), numbers(interval)) == ([6, 10, 1], [2])
    assert neighbours == "10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5"


def numbers(text: str) -> list[float]:
    """Versions differ in how they print numbers: 6, 0x06, 6.000."""
    return [int(part, 16) if part.startswith("0x") else float(part) for part in text.split(",")]


def dissect(file: Path, packets: list[bytes], *fields: str) -> list[list[str]]:
    file.write_bytes(capture(packets))
    wanted = [
        argument for field in ("_ws.malformed", "_ws.expert.message", *fields) for argument in ("-e", field)
    ]
    output = subprocess.run(
        ["tshark", "-r", str(file), "-T", "fields", *wanted], capture_output=True, check=True, text=True
    ).stdout
    rows = [line.split("\t") for line in output.splitlines()]
    assert [row[:2] for row in rows] == [["", ""]] * len(packets), output
    return [row[2:] for row in rows]
