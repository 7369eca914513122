"""Which part of a run is shown, and its columns of numbers and head, packed for a page: `pages/unpack.js` is
the other side.

Four octets with the head's length, the head as JSON, then the columns, each at a multiple of eight octets,
little endian; gzipped and in base64. Numbers take as few octets as they need; increasing ones are stored as
differences, which compress better. The same content gives the same bytes.
"""

import base64
import gzip
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from roamcast.units import Micros, NodeId

Numbers = npt.NDArray[Any]
_ALIGNMENT = 8


class Columns:
    """Collects columns; names are unique."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._parts: list[bytes] = []
        self._size = 0

    def whole(self, table: str, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Columns `table.name` of non-negative whole numbers below 2³²."""
        for name, values in columns.items():
            column = np.asarray(values, dtype=np.int64)
            most = int(column.max(initial=0))
            assert column.min(initial=0) >= 0 and most < 2**32, f"{table}.{name}"
            increasing = len(column) > 1 and bool(np.all(column[1:] >= column[:-1]))
            stored = np.diff(column, prepend=0) if increasing else column
            kind = "u1" if most < 2**8 else "u2" if most < 2**16 else "u4"
            self._add(f"{table}.{name}", stored.astype(f"<{kind}"), kind, increasing)

    def real(self, table: str, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Single precision: of places relative to a corner, and of shares."""
        for name, values in columns.items():
            self._add(f"{table}.{name}", np.asarray(values, dtype="<f4"), "f4", False)

    def packed(self, head: dict[str, Any]) -> str:
        text = msgspec.json.encode(head | {"columns": self._entries}, order="sorted")
        start = len(text).to_bytes(4, "little") + text
        start += b"\0" * (-len(start) % _ALIGNMENT)
        return base64.b64encode(gzip.compress(start + b"".join(self._parts), 6, mtime=0)).decode()

    def _add(self, name: str, column: Numbers, kind: str, delta: bool) -> None:
        assert name not in {entry["name"] for entry in self._entries}, name
        data = column.tobytes()
        data += b"\0" * (-len(data) % _ALIGNMENT)
        entry = {"name": name, "type": kind, "offset": self._size, "length": len(column), "delta": delta}
        self._entries.append(entry)
        self._parts.append(data)
        self._size += len(data)


TICKS_MAX = 2**32 - 1


class Window:
    """The part of a run that is shown: its times as ticks, its nodes as places in a list."""

    def __init__(self, begin: Micros, end: Micros, nodes: Numbers) -> None:
        self.begin, self.end = begin, end
        self.tick: Micros = max(1, math.ceil((end - begin) / TICKS_MAX))
        self.nodes = nodes  # their numbers, increasing

    def ticks(self, times: npt.ArrayLike) -> Numbers:
        """Times outside the window become its ends."""
        moved = np.clip(np.asarray(times, dtype=np.int64) - self.begin, 0, self.end - self.begin)
        return np.asarray(moved // self.tick, dtype=np.int64)

    def contains(self, times: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        found = np.asarray(times, dtype=np.int64)
        return (found >= self.begin) & (found <= self.end)

    def places(self, nodes: npt.ArrayLike) -> Numbers:
        """Where nodes are in the list."""
        return np.searchsorted(self.nodes, np.asarray(nodes, dtype=np.int64)).astype(np.int64)

    def place(self, node: NodeId) -> int:
        return int(np.searchsorted(self.nodes, node))
