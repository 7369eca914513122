"""What is inside a sealed datagram, and inside a sealed piece of a TCP stream: records, one after another.

    | FRAME | channel 8 | length 16 | payload …          a layer's frame
    | ASKED | to 32 | number 32                          "acknowledge this datagram"; its frames follow
    | HEARD | to 32 | number 32                          the acknowledgement
    | HELLO | to 32                                      first record on a TCP link, in both directions
    | STATED | length 16 | statement …                   a signed statement about membership
    | CONGESTED | node 32 | number 32 | hops 8           frames come too fast for `node`; alone in a datagram

The tag is one octet. The sender is named by the seal, not by the record. `to` prevents that a node which has
got the address of another accepts its records. Several frames share one datagram, and so one seal and one
header, because airtime is scarce.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from roamcast.errors import WireError
from roamcast.host import Channel
from roamcast.units import NodeId

RECORDS = 0  # the sealed channel of what this module writes

FRAME, ASKED, HEARD, HELLO, CONGESTED, STATED = 1, 2, 3, 4, 5, 6

_FRAME = struct.Struct("!BBH")
_NUMBERED = struct.Struct("!BII")
_HELLO = struct.Struct("!BI")
_STATED = struct.Struct("!BH")
_CONGESTED = struct.Struct("!BIIB")

FRAME_OVERHEAD = _FRAME.size
ASKED_OVERHEAD = _NUMBERED.size
NUMBER_MAX = 2**32 - 1

_CHANNELS = {int(channel): channel for channel in Channel}


class CarriedFrame(NamedTuple):
    """A layer's frame."""

    channel: Channel
    payload: bytes


class AcknowledgementRequest(NamedTuple):
    """The sender wants this datagram acknowledged."""

    to: NodeId
    number: int


class Heard(NamedTuple):
    """The sender has the datagram of this number."""

    to: NodeId
    number: int


class LinkHello(NamedTuple):
    """The sender meant to reach `to`."""

    to: NodeId


class Stated(NamedTuple):
    """A statement that the sender knows, not necessarily its own."""

    statement: bytes


class CongestionReport(NamedTuple):
    """A node loses frames because they come too fast. `number`: of this report, to know it again."""

    node: NodeId
    number: int
    hops: int  # before this one


LinkRecord: TypeAlias = CarriedFrame | AcknowledgementRequest | Heard | LinkHello | Stated | CongestionReport

_FIXED: dict[int, tuple[struct.Struct, Callable[..., LinkRecord]]] = {
    ASKED: (_NUMBERED, AcknowledgementRequest),
    HEARD: (_NUMBERED, Heard),
    HELLO: (_HELLO, LinkHello),
    CONGESTED: (_CONGESTED, CongestionReport),
}


def is_for(records: list[LinkRecord], node: NodeId) -> bool:
    """Whether a datagram is for this node, or for all who hear it: no record of it names another one."""
    for_all = (CarriedFrame, Stated, CongestionReport)
    return all(record.to == node for record in records if not isinstance(record, for_all))


def carried(channel: Channel, payload: bytes) -> bytes:
    return _FRAME.pack(FRAME, channel, len(payload)) + payload


def asked(to: NodeId, number: int) -> bytes:
    return _NUMBERED.pack(ASKED, to, number)


def heard(to: NodeId, number: int) -> bytes:
    return _NUMBERED.pack(HEARD, to, number)


def hello(to: NodeId) -> bytes:
    return _HELLO.pack(HELLO, to)


def stated(statement: bytes) -> bytes:
    return _STATED.pack(STATED, len(statement)) + statement


def congestion(report: CongestionReport) -> bytes:
    return _CONGESTED.pack(CONGESTED, *report)


def decode(data: bytes) -> list[LinkRecord]:
    """All records, or `WireError`: a datagram with one bad record is bad as a whole."""
    records: list[LinkRecord] = []
    at, end = 0, len(data)
    try:
        while at < end:
            tag = data[at]
            if tag == FRAME:
                _, number, length = _FRAME.unpack_from(data, at)
                channel = _CHANNELS.get(number)
                if channel is None:
                    raise WireError(
                        "frame", at + 1, f"is for channel {number}, which this node does not have"
                    )
                begin = at + 4
                at = begin + length
                if at > end:
                    raise WireError("frame", begin, f"has {length} octets, {end - begin} left")
                records.append(CarriedFrame(channel, data[begin:at]))
            elif tag in _FIXED:
                layout, record = _FIXED[tag]
                records.append(record(*layout.unpack_from(data, at)[1:]))
                at += layout.size
            elif tag == STATED:
                begin = at + _STATED.size
                at = begin + _STATED.unpack_from(data, at)[1]
                if at > end:
                    raise WireError("statement", begin, f"is cut off, {end - begin} octets left")
                records.append(Stated(data[begin:at]))
            else:
                raise WireError("record", at, f"has the unknown tag {tag}")
    except struct.error:
        raise WireError("record", at, f"is cut off, {end - at} octets left") from None
    return records
