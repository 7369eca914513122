"""What brokers keep: FMT and MET, sets of nodes as bitmaps, filters and events as hashes (section 4.1).

`digest_of`: one hash of a table's content, equal on all nodes that hold the same (table consistency check).
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

DIGEST_BYTES = 8  # two different tables look the same once in 2^64 checks


def digest_of(items: Iterable[Sequence[int]]) -> bytes:
    """The digest of rows of numbers, independent of their order. Empty for no rows."""
    rows = sorted(tuple(item) for item in items)
    if not rows:
        return b""
    return blake2b(msgspec.msgpack.encode(rows), digest_size=DIGEST_BYTES).digest()
