"""What the nodes of a bridge tell each other, as payloads of events on a topic of their own.

A `Carrying` note is sent each second by the node that is connected, and at once when that changes.
`Handover` is the last word of a carrier whose uplink has ended. `Carried` says which events the broker has,
so that nobody carries them again; it is memorized, for nodes that are away.
"""

from typing import Annotated

import msgspec

from roamcast.event import Count, EventId

CARRIED_MAX = 500  # events in one note; chosen by us
EXCHANGES_MAX = 1_000


class Carrying(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """`version`: of the session's state; the highest is the newest."""

    version: Count


class UpExchange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An event on its way to the broker; `released`: the broker has it, and only PUBREL is sent again."""

    packet_id: Count
    publisher: Count
    sequence: Count
    released: bool

    @property
    def event(self) -> EventId:
        return EventId(self.publisher, self.sequence)


class Handover(msgspec.Struct, frozen=True, array_like=True, tag=2, forbid_unknown_fields=True):
    version: Count
    up: Annotated[tuple[UpExchange, ...], msgspec.Meta(max_length=EXCHANGES_MAX)]
    # Packets of the broker that are in the mesh already: of QoS 2; and the last of QoS 1, with a checksum.
    down: Annotated[tuple[Count, ...], msgspec.Meta(max_length=EXCHANGES_MAX)]
    acknowledged: Annotated[tuple[tuple[Count, Count], ...], msgspec.Meta(max_length=EXCHANGES_MAX)]


class Carried(msgspec.Struct, frozen=True, array_like=True, tag=3, forbid_unknown_fields=True):
    """Publisher and sequence of each, one after the other."""

    events: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * CARRIED_MAX)]


BridgeNote = Carrying | Handover | Carried

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BridgeNote)


def encode(note: BridgeNote) -> bytes:
    return _encoder.encode(note)


def decode(payload: bytes) -> BridgeNote | None:
    """None for what is no note: it may come from any member."""
    try:
        note: BridgeNote = _decoder.decode(payload)
        return note
    except msgspec.DecodeError:
        return None
