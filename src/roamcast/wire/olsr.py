"""The packets of OLSR, bit for bit (RFC 3626: 3.3, 5.1, 6.1, 9.1, 12.1 and 18.3; IPv4, UDP port 698).

    packet     | length 16 | sequence 16 | message … message |
    message    | type 8 | vtime 8 | size 16 | originator 32 | ttl 8 | hops 8 | sequence 16 | body |
    HELLO      | reserved 16 | htime 8 | willingness 8 | links … links |
      links    | link code 8 | reserved 8 | size 16 | neighbour interface address 32 … |
    TC         | ansn 16 | reserved 16 | advertised neighbour main address 32 … |
    MID        | interface address 32 … |
    HNA        | network 32 | netmask 32 | network 32 | netmask 32 | …
    NODE       | node number 32 | flags 8 | reserved 24 |   ours: of the types for private use (18.4)
    RIDER      | octets of the sender's strategy |             likewise; for neighbours, beside a HELLO

A decoder answers or raises `WireError`, whatever the octets. The RFC does not say what becomes of a malformed
packet. Here: a packet whose sizes do not add up is refused whole, because nothing in it can be trusted to
begin where it seems to; a message whose body is malformed is refused alone and not forwarded, while the
others of the packet are processed. What the RFC tells receivers to ignore (reserved fields, unknown message
types, undefined link codes) is no error.

Bodies are decoded separately, because most copies of a flooded message are duplicates, which the header
alone shows. The decoders are pure and cache their latest results: one broadcast reaches
many nodes of a simulation as the same octets, and one TC is relayed many times with the same body.
Addresses are integers here, as on the wire.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

import msgspec

from roamcast.errors import WireError
from roamcast.units import SECOND, Micros

PORT = 698  # assigned by IANA, section 3.1

Address: TypeAlias = int
"""An IPv4 address as a 32-bit number."""

PACKET_HEADER = struct.Struct("!HH")
MESSAGE_HEADER = struct.Struct("!BBHIBBH")
HELLO_HEADER = struct.Struct("!HBB")
LINKS_HEADER = struct.Struct("!BBH")
TC_HEADER = struct.Struct("!HH")
NODE_BODY = struct.Struct("!IB3x")
NODE_RELAYS = 1  # a flag
NODES_MAX = 1 << 31  # node numbers are 31 bits
ADDRESS_OCTETS = 4
NETWORK_OCTETS = 8

PACKET_OCTETS_MAX = 65_507  # the largest UDP payload over IPv4
PACKETS_REMEMBERED = 64  # all receivers get a packet at almost the same time
BODIES_REMEMBERED = 4_096  # a body comes again with every relay and, unchanged, every interval

WILL_NEVER, WILL_DEFAULT, WILL_ALWAYS = 0, 3, 7


class MessageType(IntEnum):
    """Section 18.4. Other numbers occur and are forwarded unread."""

    HELLO = 1
    TC = 2
    MID = 3
    HNA = 4
    NODE = 167  # ours
    RIDER = 168  # ours


class LinkType(IntEnum):
    """The lower two bits of a link code (section 6.1.1)."""

    UNSPECIFIED = 0
    ASYMMETRIC = 1
    SYMMETRIC = 2
    LOST = 3


class NeighbourType(IntEnum):
    """The next two bits of a link code."""

    NOT = 0
    SYMMETRIC = 1
    RELAY = 2  # MPR_NEIGH: symmetric, and chosen as multipoint relay by the sender


class OlsrMessage(msgspec.Struct, frozen=True, gc=False):
    """One message of a packet, its body still unread."""

    type: int  # a number, not an enum: what we do not know we still forward (section 3.4)
    validity: Micros
    originator: Address
    ttl: int
    hops: int
    sequence: int
    body: bytes
    key: int  # originator and sequence in one number, as the duplicate set wants them

    def encode(self) -> bytes:
        return encode_message(
            self.type, self.validity, self.originator, self.ttl, self.hops, self.sequence, self.body
        )


class OlsrPacket(msgspec.Struct, frozen=True):
    sequence: int
    messages: tuple[OlsrMessage, ...]


class Hello(msgspec.Struct, frozen=True):
    """Whom the sender hears. `links` maps neighbour interface addresses to link codes."""

    interval: Micros  # htime: the sender's HELLO interval
    willingness: int
    links: dict[Address, int]
    symmetric: frozenset[Address]  # those named as symmetric neighbours or relays


class Tc(msgspec.Struct, frozen=True):
    """Topology control: the nodes that chose the originator as relay, numbered by `ansn`."""

    ansn: int
    advertised: frozenset[Address]


class Mid(msgspec.Struct, frozen=True):
    """The originator's other interfaces."""

    interfaces: tuple[Address, ...]


class Hna(msgspec.Struct, frozen=True):
    """Networks that the originator is a gateway to, as (network, netmask)."""

    networks: tuple[tuple[Address, Address], ...]


class NodeNotice(msgspec.Struct, frozen=True):
    """At the originator's address is a node of ours, of this number. Foreign daemons relay it unread."""

    number: int
    is_relay: bool  # somebody chose it as multipoint relay


# Packets.


@lru_cache(PACKETS_REMEMBERED)
def decode_packet(data: bytes) -> OlsrPacket:
    """The messages of a packet, bodies unread."""
    if not PACKET_HEADER.size <= len(data) <= PACKET_OCTETS_MAX:
        raise WireError("packet", 0, f"has {len(data)} octets")
    length, sequence = PACKET_HEADER.unpack_from(data)
    if length != len(data):
        raise WireError("packet length", 0, f"is {length}, {len(data)} octets came")
    messages: list[OlsrMessage] = []
    at = PACKET_HEADER.size
    while at < length:
        message, at = _decode_message(data, at)
        messages.append(message)
    if not messages:
        raise WireError("packet", PACKET_HEADER.size, "holds no message")  # section 3.4, step 1
    return OlsrPacket(sequence, tuple(messages))


def encode_packet(sequence: int, messages: Iterable[bytes]) -> bytes:
    body = b"".join(messages)
    return PACKET_HEADER.pack(PACKET_HEADER.size + len(body), sequence) + body


def _decode_message(data: bytes, at: int) -> tuple[OlsrMessage, int]:
    left = len(data) - at
    if left < MESSAGE_HEADER.size:
        raise WireError("message header", at, f"needs {MESSAGE_HEADER.size} octets, {left} left")
    type, vtime, size, originator, ttl, hops, sequence = MESSAGE_HEADER.unpack_from(data, at)
    if not MESSAGE_HEADER.size <= size <= left:
        raise WireError("message size", at + 2, f"is {size}, {left} octets left")
    if not is_host_address(originator):
        raise WireError("originator", at + 4, f"is {dotted(originator)}, no address of a node")
    end = at + size
    body = data[at + MESSAGE_HEADER.size : end]
    key = originator << 16 | sequence
    return OlsrMessage(type, decode_time(vtime), originator, ttl, hops, sequence, body, key), end


def encode_message(
    type: int, validity: Micros, originator: Address, ttl: int, hops: int, sequence: int, body: bytes
) -> bytes:
    size = MESSAGE_HEADER.size + len(body)
    return MESSAGE_HEADER.pack(type, encode_time(validity), size, originator, ttl, hops, sequence) + body


# Bodies.


@lru_cache(BODIES_REMEMBERED)
def decode_hello(body: bytes) -> Hello:
    if len(body) < HELLO_HEADER.size:
        raise WireError("HELLO", 0, f"needs {HELLO_HEADER.size} octets, has {len(body)}")
    _, htime, willingness = HELLO_HEADER.unpack_from(body)
    if willingness > WILL_ALWAYS:
        raise WireError("HELLO willingness", 3, f"is {willingness}, at most {WILL_ALWAYS} is defined")
    links: dict[Address, int] = {}
    at = HELLO_HEADER.size
    while at < len(body):
        code, addresses, at = _decode_links(body, at)
        if is_link_code(code):
            links.update(dict.fromkeys(addresses, code))
    symmetric = frozenset(address for address, code in links.items() if code >> 2)
    return Hello(decode_time(htime), willingness, links, symmetric)


def encode_hello(interval: Micros, willingness: int, links: Iterable[tuple[int, Iterable[Address]]]) -> bytes:
    """`links`: link codes with the addresses that have them."""
    parts = [HELLO_HEADER.pack(0, encode_time(interval), willingness)]
    for code, addresses in links:
        listed = _encode_addresses(addresses)
        parts += (LINKS_HEADER.pack(code, 0, LINKS_HEADER.size + len(listed)), listed)
    return b"".join(parts)


def link_code(link: LinkType, neighbour: NeighbourType) -> int:
    return neighbour << 2 | link


def is_link_code(code: int) -> bool:
    """Section 6.1.1: codes above 15, the unused neighbour type and a symmetric link to a node that is no
    neighbour are ignored."""
    return code < 12 and code != link_code(LinkType.SYMMETRIC, NeighbourType.NOT)


@lru_cache(BODIES_REMEMBERED)
def decode_tc(body: bytes) -> Tc:
    if len(body) < TC_HEADER.size:
        raise WireError("TC", 0, f"needs {TC_HEADER.size} octets, has {len(body)}")
    ansn, _ = TC_HEADER.unpack_from(body)
    return Tc(ansn, frozenset(_decode_addresses("TC", body, TC_HEADER.size, len(body))))


def encode_tc(ansn: int, advertised: Iterable[Address]) -> bytes:
    return TC_HEADER.pack(ansn, 0) + _encode_addresses(advertised)


def decode_mid(body: bytes) -> Mid:
    return Mid(_decode_addresses("MID", body, 0, len(body)))


def encode_mid(interfaces: Iterable[Address]) -> bytes:
    return _encode_addresses(interfaces)


def decode_hna(body: bytes) -> Hna:
    if len(body) % NETWORK_OCTETS:
        raise WireError("HNA", 0, f"has {len(body)} octets, no multiple of {NETWORK_OCTETS}")
    numbers = _decode_addresses("HNA", body, 0, len(body))
    return Hna(tuple(zip(numbers[::2], numbers[1::2], strict=True)))


def encode_hna(networks: Iterable[tuple[Address, Address]]) -> bytes:
    return b"".join(struct.pack("!II", network, netmask) for network, netmask in networks)


def decode_node(body: bytes) -> NodeNotice:
    if len(body) != NODE_BODY.size:
        raise WireError("NODE", 0, f"has {len(body)} octets, not {NODE_BODY.size}")
    number, flags = NODE_BODY.unpack(body)
    if number >= NODES_MAX:
        raise WireError("NODE number", 0, f"is {number}, at most {NODES_MAX - 1} is one")
    return NodeNotice(number, bool(flags & NODE_RELAYS))


def encode_node(node: NodeNotice) -> bytes:
    return NODE_BODY.pack(node.number, NODE_RELAYS if node.is_relay else 0)


def _decode_links(body: bytes, at: int) -> tuple[int, tuple[Address, ...], int]:
    left = len(body) - at
    if left < LINKS_HEADER.size:
        raise WireError("HELLO link header", at, f"needs {LINKS_HEADER.size} octets, {left} left")
    code, _, size = LINKS_HEADER.unpack_from(body, at)
    if not LINKS_HEADER.size <= size <= left:
        raise WireError("HELLO link message size", at + 2, f"is {size}, {left} octets left")
    end = at + size
    return code, _decode_addresses("HELLO links", body, at + LINKS_HEADER.size, end), end


def _decode_addresses(field: str, body: bytes, at: int, end: int) -> tuple[Address, ...]:
    count, rest = divmod(end - at, ADDRESS_OCTETS)
    if rest:
        raise WireError(field, at, f"has {end - at} octets of addresses, no multiple of {ADDRESS_OCTETS}")
    return struct.unpack_from(f"!{count}I", body, at)


def _encode_addresses(addresses: Iterable[Address]) -> bytes:
    listed = tuple(addresses)
    return struct.pack(f"!{len(listed)}I", *listed)


# Times: C · (1 + mantissa/16) · 2^exponent, mantissa in the upper four bits (sections 3.3.2 and 18.3).

TIME_UNIT: Micros = SECOND // 16  # C


def _time(code: int) -> Micros:
    return (TIME_UNIT * (16 + (code >> 4)) << (code & 15)) // 16


_TIMES = tuple(_time(code) for code in range(256))
TIME_MAX: Micros = max(_TIMES)  # 3968 s


def decode_time(code: int) -> Micros:
    """The code as microseconds, rounded down: some codes are no whole number of them."""
    return _TIMES[code]


@lru_cache(256)
def encode_time(time: Micros) -> int:
    """The code of the shortest time that is no shorter than `time`."""
    assert 0 <= time <= TIME_MAX, time
    return min((value, code) for code, value in enumerate(_TIMES) if value >= time)[1]


# Numbers and addresses.


def is_newer(sequence: int, than: int) -> bool:
    """Section 19: 16-bit numbers that wrap around; the shorter distance decides, then the lower number."""
    ahead = (sequence - than) % 65_536
    return 0 < ahead < 32_768 or (ahead == 32_768 and sequence < than)


def is_host_address(address: Address) -> bool:
    """Not "this network", loopback, multicast, reserved or broadcast."""
    first = address >> 24
    return 0 < first < 224 and first != 127


def dotted(address: Address) -> str:
    return ".".join(str(octet) for octet in address.to_bytes(4, "big"))
