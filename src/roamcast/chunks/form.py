"""What a chunk looks like: an event with the attribute `MARK`, its index, and a head before the octets.

    payload:  | version 8 | size 32 | lifetime 64 | digest 128 | octets …

Size, lifetime and digest are those of the whole. Chunk `index` has the sequence number `first + index`, so
the whole is known by the event identity of its chunk 0, and no chunk can be at two places. All chunks but the
last have `CHUNK_BYTES` octets: what a chunk claims can be checked without any other.
"""

import hashlib
import struct
from typing import NamedTuple

import msgspec

from roamcast.errors import WireError
from roamcast.event import LARGE_BYTES_MAX, Event, EventClass, EventId
from roamcast.units import SECOND, Micros

MARK = "roamcast.chunk"  # attribute: the index; applications may not use it
# Chosen by us: three fragments of Ethernet's size with all headers. Smaller ones cost more events, larger
# ones lose more with each lost fragment and keep the radio from small events for longer.
CHUNK_BYTES = 4_096
CHUNKS_MAX = -(-LARGE_BYTES_MAX // CHUNK_BYTES)
DIGEST_BYTES = 16
VERSION = 1
PATIENCE: Micros = 600 * SECOND
"""How long chunks of a real-time whole are kept by those who carry them: a transfer that is interrupted goes
on within this time. Chosen by us."""

_HEAD = struct.Struct(f"!BIQ{DIGEST_BYTES}s")
HEAD_BYTES = _HEAD.size


class Chunk(NamedTuple):
    """What the head of one chunk says."""

    whole: EventId
    place: int  # its index
    size: int
    lifetime: Micros  # of the whole; 0: real-time
    digest: bytes

    @property
    def total(self) -> int:
        """How many chunks the whole has."""
        return count_of(self.size)


def is_chunk(event: Event) -> bool:
    return MARK in event.attributes


def is_last(event: Event) -> bool:
    """Whether it is the last chunk of its whole; False if it is no chunk that can be read."""
    chunk = readable(event)
    return chunk is not None and chunk.place == chunk.total - 1


def count_of(size: int) -> int:
    return -(-size // CHUNK_BYTES)


def octets_of(size: int, index: int) -> int:
    """How many octets of a whole are in its chunk `index`."""
    return min(CHUNK_BYTES, size - index * CHUNK_BYTES)


def digest_of(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=DIGEST_BYTES).digest()


def head(size: int, lifetime: Micros, digest: bytes) -> bytes:
    return _HEAD.pack(VERSION, size, lifetime, digest)


def parse(event: Event) -> Chunk:
    """What a marked event says; `WireError` if it can be no chunk. It may come from anywhere."""
    index = event.attributes.get(MARK)
    if type(index) is not int or event.event_class is not EventClass.MEMORIZED:
        raise WireError("chunk", 0, "has no index, or is not memorized")
    if len(event.payload) <= HEAD_BYTES:
        raise WireError("chunk", 0, f"has {len(event.payload)} octets, and a head of {HEAD_BYTES}")
    version, size, lifetime, digest = _HEAD.unpack_from(event.payload)
    if version != VERSION or not 0 < size <= LARGE_BYTES_MAX or lifetime > event.lifetime:
        raise WireError("chunk", 0, f"is of version {version}, {size} octets and lifetime {lifetime}")
    if not 0 <= index < count_of(size) or index > event.sequence:
        raise WireError("chunk", 0, f"is {index} of {count_of(size)}, with sequence {event.sequence}")
    if len(event.payload) - HEAD_BYTES != octets_of(size, index):
        raise WireError("chunk", HEAD_BYTES, f"has {len(event.payload) - HEAD_BYTES} octets")
    return Chunk(EventId(event.publisher, event.sequence - index), index, size, lifetime, digest)


def readable(event: Event) -> Chunk | None:
    """As `parse`; None for what is no chunk, or none that can be read."""
    if MARK not in event.attributes:
        return None
    try:
        return parse(event)
    except WireError:
        return None


def content(event: Event) -> memoryview:
    """The octets of a chunk, without a copy."""
    return memoryview(event.payload)[HEAD_BYTES:]


def whole_of(event: Event, chunk: Chunk, payload: bytes) -> Event:
    """The event that a chunk is a piece of."""
    attributes = {name: value for name, value in event.attributes.items() if name != MARK}
    return msgspec.structs.replace(
        event,
        sequence=chunk.whole.sequence,
        attributes=attributes,
        payload=payload,
        event_class=EventClass.MEMORIZED if chunk.lifetime else EventClass.REALTIME,
        lifetime=chunk.lifetime,
    )
