"""What a database must have, in a file beside it.

A database that has lost its log, or was cut to nothing, looks new. So the values of `stable` are kept here a
second time, with the number of times that they were written: a database that knows of fewer writes has lost
some. Here is also noted whether the database is in use: one that was not closed must have a log. When the
database is gone, the numbers that must never come twice go on from here.
"""

import zlib
from pathlib import Path

import msgspec

from roamcast.runtime.live.world import NodeDisk

SUFFIX = ".mark"


class StorageMark(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    writes: int = 0  # of `stable`, since the first boot
    is_open: bool = False  # there is a log beside the database
    stable: dict[str, bytes] = {}


def read_mark(disk: NodeDisk, path: Path) -> StorageMark | None:
    """The mark of the database in this file; None if there is none that can be read."""
    try:
        with disk.open(_place(path), "rb") as file:
            data = file.read() or b""
        if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            return None
        return _decoder.decode(data[4:])
    except (OSError, msgspec.DecodeError):
        return None


def write_mark(disk: NodeDisk, path: Path, mark: StorageMark) -> None:
    """On the disk on return, or `OSError` and the one before stays."""
    data = _encoder.encode(mark)
    disk.replace(_place(path), zlib.crc32(data).to_bytes(4, "big") + data)


def _place(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StorageMark)
