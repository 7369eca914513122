"""One versioned record per owner, the same in every node in the end.

A record has a key (its owner, or what it is about) and a version that its owner counts up. Of two records for
one key the newer one stands, so it does not matter in which order and how often records come. Two nodes
compare what they hold by a fingerprint of all keys and versions; where these differ, one names its versions,
and the other knows what is lacking on either side.

The fingerprint is a sum of hashes, so that a change costs one step however many records there are. The hash
must be a real one. Checksums are linear: with those, 31 % of all pairs of nodes that lacked one record each
had equal sums. With this hash two nodes that differ say the same with a chance of 1 in 2^63.

How records travel, what they say and how long they last is the strategy's decision."""

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

FINGERPRINTS = 1 << 63  # they fit into a signed number of 64 bits
CACHED = 1_024  # in a simulation the same record comes to many nodes


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


Key = TypeVar("Key", bound=Hashable)
Record = TypeVar("Record", bound=Versioned)


class Replica(Generic[Key, Record]):
    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}  # to be read only; hot loops look here themselves
        self.fingerprint = 0

    def version(self, key: Key) -> int:
        """The version of the record that stands; -1 if there is none."""
        known = self.records.get(key)
        return -1 if known is None else known.version

    def enter(self, key: Key, record: Record) -> bool:
        """Whether it is newer than what stood, and stands now."""
        known = self.records.get(key)
        if known is not None and known.version >= record.version:
            return False
        before = 0 if known is None else _hash(key, known.version)
        self.fingerprint = (self.fingerprint - before + _hash(key, record.version)) % FINGERPRINTS
        self.records[key] = record
        return True

    def newer_than(self, theirs: Mapping[Key, int]) -> list[Key]:
        """The records that a node with these versions lacks."""
        return [key for key, record in self.records.items() if record.version > theirs.get(key, -1)]

    def older_than(self, theirs: Mapping[Key, int]) -> list[Key]:
        """The records of which a node with these versions has a newer one, or that are missing here."""
        return [key for key, version in theirs.items() if version > self.version(key)]

    def forget(self, is_over: Callable[[Key, Record], bool]) -> list[Key]:
        """Take out what is over; returns the keys."""
        ended = [key for key, record in self.records.items() if is_over(key, record)]
        for key in ended:
            record = self.records.pop(key)
            self.fingerprint = (self.fingerprint - _hash(key, record.version)) % FINGERPRINTS
        return ended


@lru_cache(maxsize=CACHED)
def _hash(key: Hashable, version: int) -> int:
    """The same in every process: a key is made of numbers or texts."""
    digest = blake2b(repr((key, version)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % FINGERPRINTS
