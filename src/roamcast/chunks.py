"""Payloads above the bound of one event: cut into chunks at the publishing node, joined at the receiving one.

A chunk is an ordinary memorized event with the topic, type, attributes and destinations of the whole, so that
every strategy matches, carries, stores, repairs and hands it over as any other. It has the attribute `MARK`,
its index, and a head before the octets. Joining, from the store: `broker/assembly.py`. `applications.py` uses
both: above it nobody sees a chunk, below it nobody sees a whole.

    payload:  | version 8 | size 32 | lifetime 64 | digest 128 | octets …

Size, lifetime and digest are those of the whole. Chunk `index` has the sequence number `first + index`, so
the whole is known by the event identity of its chunk 0, and no chunk can be at two places. All chunks but the
last have `CHUNK_BYTES` octets: what a chunk claims can be checked without any other.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from roamcast.errors import EventError, WireError
from roamcast.event import LARGE_BYTES_MAX, Event, EventClass, EventId, Publication
from roamcast.units import SECOND, Micros

MARK = "roamcast.chunk"  # attribute: the index; applications may not use it
# Chosen by us: three fragments of Ethernet's size with all headers. Smaller ones cost more events, larger
# ones lose more with each lost fragment and keep the radio from small events for longer.
CHUNK_BYTES = 4_096
CHUNKS_MAX = -(-LARGE_BYTES_MAX // CHUNK_BYTES)
DIGEST_BYTES = 16
VERSION = 1
KEPT_FOR: Micros = 600 * SECOND
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
    """As `parse`, but None for what is not a chunk, or cannot be read."""
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


Octets = TypeVar("Octets", bytes, memoryview)


class ChunkTransfer:
    """One large publication on its way into the mesh: its octets come in order, and each chunk's worth is
    published at once.

    Whoever has the octets decides when the next ones come, and so paces the transfer: a gateway asks
    `PublishPressure.bulk_wait` in between. Nothing but the current chunk is held here.
    """

    def __init__(
        self,
        publish: Callable[[Publication, int, bool], None],
        frame: Publication,
        size: int,
        digest: bytes,
        first: int,
    ) -> None:
        """`frame`: the publication without its payload, checked (`check`). `publish` gets a chunk, its number
        and whether it is the last; `first` is the first of as many reserved numbers as there are chunks."""
        self._publish = publish
        self._size = size
        self._digest = digest
        self._head = head(size, frame.lifetime, digest)
        self._frame = msgspec.structs.replace(frame, lifetime=max(frame.lifetime, KEPT_FOR), payload=b"")
        self._sum = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.first = first  # the sequence number of the whole
        self.lifetime = frame.lifetime
        self.index = 0  # of the next chunk
        self.count = count_of(size)

    @property
    def is_over(self) -> bool:
        return self.index == self.count

    def add(self, octets: bytes | memoryview) -> None:
        """Publish the next chunk. `EventError` if these are not its octets; the transfer is void then."""
        if self.is_over:
            raise EventError("chunk", f"{self.index} is one too many; there are {self.count}")
        due = octets_of(self._size, self.index)
        if len(octets) != due:
            raise EventError("chunk", f"{self.index} has {len(octets)} octets; it needs {due}")
        self._sum.update(octets)
        if self.index == self.count - 1 and self._sum.digest() != self._digest:
            raise EventError("payload", "is not what was announced: its digest differs")
        attributes = {**self._frame.attributes, MARK: self.index}
        chunk = msgspec.structs.replace(self._frame, attributes=attributes, payload=self._head + octets)
        self._publish(chunk, self.first + self.index, self.index == self.count - 1)
        self.index += 1


def check(frame: Publication, size: int, digest: bytes) -> None:
    """`EventError` unless this announces a payload that can be carried in chunks."""
    if not 0 < size <= LARGE_BYTES_MAX:
        raise EventError("payload", f"has {size} octets; at most {LARGE_BYTES_MAX} are allowed")
    if len(digest) != DIGEST_BYTES:
        raise EventError("digest", f"has {len(digest)} octets; it needs {DIGEST_BYTES}")
    if frame.payload:
        raise EventError("payload", "comes in chunks, and is there already")
    check_names(frame)


def check_names(publication: Publication) -> None:
    """`EventError` for what only this module may publish."""
    if MARK in publication.attributes:
        raise EventError(f"attribute {MARK!r}", "is the node's own; allowed: any other name")


def pieces(payload: Octets) -> Iterator[Octets]:
    """A payload as `ChunkTransfer.add` takes it."""
    return (payload[at : at + CHUNK_BYTES] for at in range(0, len(payload), CHUNK_BYTES))


PER_SECOND = 200.0  # chunks, 0.8 MB; chosen by us, as fast as strategies hand events over
LATE_FACTOR = 2  # seconds to wait for each second that a turn came late: chunks get a third of the time
LATE_WAIT_MAX = 0.1  # seconds

Step: TypeAlias = Callable[[], bool]
"""Publishes one chunk; False if there is none left, or none yet."""
Later: TypeAlias = Callable[[float, Callable[[], None]], object]
"""Calls back after so many seconds."""


class ChunkQueue:
    """The turn of chunks: one after the other, for all large payloads of a node, when the mesh has room.

    Small events go straight to the mesh. Chunks wait here until `bulk_wait` of the node's `PublishPressure`
    says that they do not stand in an event's way, and no more than `PER_SECOND` go in any case: what a node
    sends in a burst waits in the queues of its neighbours, and events wait behind it. A turn that comes late
    shows that the processor has no time for more: the next one waits for longer.
    """

    def __init__(
        self, bulk_wait: Callable[[], float], later: Later | None, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`later` of None: there is no time between chunks, so all go at once. `clock`: its seconds."""
        self._bulk_wait = bulk_wait
        self._later = later
        self._clock = clock
        self._due: float | None = None  # when the next turn should come
        self._steps: deque[Step] = deque()
        self._is_under_way = False  # a turn runs, or will come

    def add(self, step: Step) -> None:
        """Take turns with the others, until it returns False."""
        self._steps.append(step)
        if not self._is_under_way:
            self._turn()

    def remove(self, step: Step) -> None:
        """Drop a step. One that was never added, or has ended, is no error."""
        self._steps = deque(one for one in self._steps if one != step)

    def close(self) -> None:
        """The node stops: drop all steps that were still to come."""
        self._steps.clear()

    def _turn(self) -> None:
        self._is_under_way = False
        late = 0.0 if self._due is None else max(0.0, self._clock() - self._due)
        self._due = None
        while self._steps:
            wait = self._bulk_wait()
            if not wait:
                self._is_under_way = True  # what a step causes may add another one
                try:
                    self._step()
                finally:
                    self._is_under_way = False
                wait = 1 / PER_SECOND + min(LATE_FACTOR * late, LATE_WAIT_MAX)
            if self._later is not None:
                self._is_under_way = True
                self._due = self._clock() + wait
                self._later(wait, self._turn)
                return

    def _step(self) -> None:
        step = self._steps.popleft()
        if step():
            self._steps.append(step)
