"""Segments as a stream for Spark: a folder that fills, each segment given once.

What has been read is known by node, boot and number, not by file: the offset has a few ranges of numbers for
each boot of each node, however many segments there were. Spark writes it down before a batch is read, so a
batch that was interrupted comes again as it was. New segments are taken in the order of their beginning,
whosever they are, so that the nodes of a network advance together.

A segment that is damaged, or gone when its turn comes, is a row with the problem instead of an extract.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from roamcast.errors import FileError
from roamcast.lab.live.collect import Listed, listed
from roamcast.lab.live.extract import extract
from roamcast.lab.storage import Storage
from roamcast.runtime.live.report.segments import SegmentId

NAME = "roamcast_segments"
SCHEMA = "strategy STRING, run STRING, file STRING, problem STRING, extract BINARY"
BATCH_BYTES_MAX = 1 << 26  # of segments, at a time; bounds the memory of a batch; chosen by us

_ARROW = pa.schema(
    [(name, pa.string()) for name in ("strategy", "run", "file", "problem")] + [("extract", pa.binary())]
)


class SegmentStream(DataSource):
    """Options: `folder`, a URI; `window`, in microseconds; `tasks`, how many read side by side."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = self.options
        return SegmentReader(Storage.open(options["folder"]), int(options["window"]), int(options["tasks"]))


class SegmentReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder: Storage, window: int, tasks: int) -> None:
        self._folder = folder
        self._window = window
        self._tasks = tasks
        self._fixed: list[Listed] | None = None  # the segments that are there, where no more are wanted
        self._last: list[Listed] | None = None  # as last listed

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's names, as below
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(BATCH_BYTES_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._fixed = listed(self._folder)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        known = Numbers(start)
        room = BATCH_BYTES_MAX
        if isinstance(limit, ReadMaxBytes):
            room = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            room = 1 << 62
        for one in self._listed():
            if one.name.id not in known:
                if room <= 0:
                    break
                room -= one.size
                known.add(one.name.id)
        return known.offset()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        wanted = Numbers(end).without(Numbers(start))
        there = {one.name.id: one for one in self._last or self._listed()}  # None after a restart
        files = [there[one].file if one in there else f"segment {tuple(one)}" for one in wanted]
        sizes = [there[one].size if one in there else 0 for one in wanted]
        return [InputPartition(part) for part in _spread(files, sizes, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = [self._row(file) for file in partition.value]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    def _row(self, file: str) -> dict[str, object]:
        try:
            found = extract(self._folder.read(file), file, self._window)
        except FileError as error:
            return {"strategy": "", "run": "", "file": file, "problem": error.problem}
        data = msgspec.msgpack.encode(found)
        return {"strategy": found.head.strategy, "run": found.head.run, "file": file, "extract": data}

    def _listed(self) -> list[Listed]:
        self._last = listed(self._folder) if self._fixed is None else self._fixed
        return self._last


class Numbers:
    """Which segments: for each boot of a node, ranges of numbers. As an offset: `{"7-3": "0-41,43-50"}`."""

    def __init__(self, offset: Mapping[str, str]) -> None:
        self._ranges: dict[str, list[list[int]]] = {
            key: [[int(number) for number in part.split("-")] for part in text.split(",")]
            for key, text in offset.items()
        }

    def __contains__(self, one: SegmentId) -> bool:
        ranges = self._ranges.get(f"{one.node}-{one.boot}", ())
        return any(first <= one.number <= last for first, last in ranges)

    def add(self, one: SegmentId) -> None:
        ranges = self._ranges.setdefault(f"{one.node}-{one.boot}", [])
        ranges.append([one.number, one.number])
        ranges.sort()
        joined = [ranges[0]]
        for first, last in ranges[1:]:
            if first == joined[-1][1] + 1:
                joined[-1][1] = last
            else:
                joined.append([first, last])
        ranges[:] = joined

    def without(self, others: "Numbers") -> list[SegmentId]:
        """Those that the others have not."""
        found = []
        for key, ranges in self._ranges.items():
            node, boot = (int(part) for part in key.split("-"))
            for first, last in ranges:
                known = (SegmentId(node, boot, number) for number in range(first, last + 1))
                found += [one for one in known if one not in others]
        return found

    def offset(self) -> dict[str, str]:
        return {
            key: ",".join(f"{first}-{last}" for first, last in ranges)
            for key, ranges in sorted(self._ranges.items())
        }


def _spread(files: list[str], sizes: list[int], parts: int) -> list[list[str]]:
    """About the same number of octets for each part; the largest files first."""
    heaps: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(parts, len(files)))]
    for size, file in sorted(zip(sizes, files, strict=True), reverse=True):
        at = min(range(len(heaps)), key=lambda place: heaps[place][0])
        heaps[at] = (heaps[at][0] + size, [*heaps[at][1], file])
    return [names for _, names in heaps]
