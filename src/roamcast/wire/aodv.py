"""The messages of AODV, bit for bit (RFC 3561, section 5).

    RREQ       | 1 | J R G D U, reserved 11 bits | hops 8 | id 32 | destination 32 | its sequence 32 |
               | originator 32 | its sequence 32 |
    RREP       | 2 | R A, reserved 9 bits, prefix 5 bits | hops 8 | destination 32 | its sequence 32 |
               | originator 32 | lifetime 32, milliseconds |
    RERR       | 3 | N, reserved 15 bits | count 8 | destination 32 | its sequence 32 | …
    RREP-ACK   | 4 | reserved 8 |
    extension  | type 8 | length 8 | data |   may follow a message; we skip it (section 9)

The RFC counts the hops that a message may still go in the TTL field of its IP packet. Our frames have no IP
header, so that octet stands before the message. A HELLO is an RREP for its own sender (section 6.9).

A decoder answers or raises `WireError`, whatever the octets.
"""

import struct
from typing import TypeAlias

import msgspec

from roamcast.errors import WireError

Address: TypeAlias = int
"""An IPv4 address as a 32-bit number."""

SEQUENCES = 1 << 32  # numbers count in a circle (section 6.1)
UNREACHABLE_MAX = 255  # destinations of one RERR

RREQ, RREP, RERR, RREP_ACK = 1, 2, 3, 4
GRATUITOUS, DESTINATION_ONLY, UNKNOWN_SEQUENCE = 0x20, 0x10, 0x08  # flags of an RREQ
REQUEST = struct.Struct("!BBxBIIIII")
REPLY = struct.Struct("!BBBBIIII")
ERROR = struct.Struct("!BBxB")
UNREACHABLE = struct.Struct("!II")
ACKNOWLEDGEMENT = struct.Struct("!Bx")


class AodvRequest(msgspec.Struct, frozen=True):
    flags: int
    hops: int
    id: int
    destination: Address
    destination_sequence: int
    originator: Address
    originator_sequence: int


class AodvReply(msgspec.Struct, frozen=True):
    hops: int
    destination: Address
    sequence: int
    originator: Address
    lifetime: int  # milliseconds

    @property
    def is_hello(self) -> bool:
        return not self.hops and self.originator == self.destination


class AodvError(msgspec.Struct, frozen=True):
    unreachable: tuple[tuple[Address, int], ...]  # destinations, with their sequence numbers


AodvMessage: TypeAlias = AodvRequest | AodvReply | AodvError


def encode_aodv(ttl: int, message: AodvMessage) -> bytes:
    match message:
        case AodvRequest():
            body = REQUEST.pack(RREQ, *msgspec.structs.astuple(message))
        case AodvReply(hops=hops):
            body = REPLY.pack(RREP, 0, 0, hops, *msgspec.structs.astuple(message)[1:])
        case AodvError(unreachable):
            body = ERROR.pack(RERR, 0, len(unreachable))
            body += b"".join(UNREACHABLE.pack(*one) for one in unreachable)
    return bytes([ttl]) + body


def decode_aodv(data: bytes) -> tuple[int, AodvMessage | None]:
    """What is left of its hops, and the message; None for an acknowledgement, which the link layer makes
    needless, and for types that we do not know."""
    if len(data) < 2:
        raise WireError("AODV message", 0, f"has {len(data)} octets, no type")
    ttl, kind = data[0], data[1]
    message: AodvMessage | None = None
    try:
        if kind == RREQ:
            message, end = AodvRequest(*REQUEST.unpack_from(data, 1)[1:]), 1 + REQUEST.size
        elif kind == RREP:
            _, _, _, *fields = REPLY.unpack_from(data, 1)
            message, end = AodvReply(*fields), 1 + REPLY.size
        elif kind == RERR:
            count = ERROR.unpack_from(data, 1)[2]
            end = 1 + ERROR.size + count * UNREACHABLE.size
            listed = UNREACHABLE.iter_unpack(data[1 + ERROR.size : end])
            message = AodvError(tuple((address, sequence) for address, sequence in listed))
            if not count or len(message.unreachable) != count:
                raise WireError("RERR", 4, f"counts {count} destinations and has {len(message.unreachable)}")
        else:
            return ttl, None
    except struct.error:
        raise WireError("AODV message", 1, f"of type {kind} ends after {len(data) - 1} octets") from None
    while end < len(data):  # extensions
        if end + 2 > len(data) or end + 2 + data[end + 1] > len(data):
            raise WireError("AODV extension", end, "is cut off")
        end += 2 + data[end + 1]
    return ttl, message


def is_newer(sequence: int, than: int) -> bool:
    """Section 6.1: a signed 32-bit comparison, so that numbers may wrap around."""
    return 0 < (sequence - than) % SEQUENCES < SEQUENCES // 2
