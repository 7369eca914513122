"""What a part of an emulation writes during a run and reads back afterwards: one JSON array per line.

A part may be killed at any instant, so each line stands for itself, and an incomplete last line is ignored.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from roamcast.trace import Record

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Any])
FLUSHED_AFTER = 1 << 16  # octets; chosen by us: fewer system calls against lines that a kill loses


class PartJournal:
    """Appends to a file; buffered, so `close` it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=FLUSHED_AFTER)

    def write(self, kind: str, *values: object) -> None:
        self._file.write(_encoder.encode((kind, *values)) + b"\n")

    def record(self, record: Record) -> None:
        """A record without sets of nodes: those may be larger than a JSON integer."""
        self.write(record.TABLE, *msgspec.structs.astuple(record))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[list[Any]]:
    """The lines of a journal; none if there is no file."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            yield _decoder.decode(line)
