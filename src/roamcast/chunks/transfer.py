"""Cutting: the octets of a large payload come in order, and each chunk's worth is published at once.

Whoever has the octets decides when the next ones come, and so paces the transfer: a gateway asks
`PublishPressure.bulk_wait` in between. Nothing but the current chunk is held here.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from roamcast.chunks.form import CHUNK_BYTES, DIGEST_BYTES, MARK, PATIENCE, count_of, head, octets_of
from roamcast.errors import EventError
from roamcast.event import LARGE_BYTES_MAX, Publication

Octets = TypeVar("Octets", bytes, memoryview)


class ChunkTransfer:
    """One large publication on its way into the mesh."""

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
        self._frame = msgspec.structs.replace(frame, lifetime=max(frame.lifetime, PATIENCE), payload=b"")
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
        due = 0 if self.is_over else octets_of(self._size, self.index)
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
