"""A node's trace: segments that are whole or not there, within a bound."""

import asyncio
from collections.abc import Callable
from io import FileIO, RawIOBase
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roamcast.errors import FileError
from roamcast.runtime.live.linux import LocalDisk, this_machine
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.segments import (
    SegmentSource,
    TraceSegments,
    close_partials,
    read_segment,
    read_trace,
)
from roamcast.runtime.live.world import NodeDisk
from roamcast.trace import Delivered, Dropped, DropReason, Record, Transmitted

DISK = LocalDisk()


class KilledDisk(LocalDisk):
    """`kill` closes what is open, as the kernel does for a process that was killed."""

    def __init__(self) -> None:
        self._opened: list[RawIOBase] = []

    def open(self, path: Path, mode: Any) -> RawIOBase:
        self._opened.append(super().open(path, mode))
        return self._opened[-1]

    def kill(self) -> None:
        for file in self._opened:
            file.close()


def records(count: int, epoch: int) -> list[Record]:
    made: list[Record] = []
    for number in range(count):
        made.append(Delivered(epoch + number, 1, 2, number, 1, True))
        made.append(Dropped(epoch + number, 1, DropReason.RETRIES, "event", 2, number, 3, "x\ny"))
        made.append(
            Transmitted(
                epoch + number, 1, None, "data", "flood", 9, 1, 0, 2, number, True, 0, 0, 0, "strategy"
            )
        )
    return made


SOURCE = SegmentSource(
    node=1, name="one", run="r", strategy="flooding", boot=3, epoch=1_000_000, clock="a machine"
)


def write_segments(
    folder: Path,
    made: list[Record],
    *,
    stop: bool = True,
    boot: int = 3,
    disk: NodeDisk = DISK,
    **bounds: Any,
) -> Counters:
    """As a node does it, each record at once on the disk."""
    counters = Counters()

    async def write() -> None:
        given: dict[str, Any] = {"bytes_max": 10**9, "segment_bytes": 10**9, "segment_seconds": 3600.0}
        source = msgspec.structs.replace(SOURCE, boot=boot)
        here = this_machine()._replace(disk=disk)
        trace = TraceSegments(folder, source, here, counters, **(given | bounds))
        for record in made:
            trace.add(record)
            trace.flush()
        if stop:
            trace.close()

    asyncio.run(write())
    if not stop:
        assert isinstance(disk, KilledDisk)
        disk.kill()
    return counters


def test_segments_give_their_records_back_on_their_own_time_axis(tmp_path: Path) -> None:
    write_segments(tmp_path, records(50, 1_000_000), segment_bytes=5_000)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) > 3 and all(path.stat().st_size < 6_000 for path in paths)
    assert list(read_trace(DISK, tmp_path)) == records(50, 0)
    heads = [read_segment(DISK, path).head for path in paths]
    assert [head.number for head in heads] == list(range(len(paths)))
    assert {(head.node, head.run, head.boot, head.clock) for head in heads} == {(1, "r", 3, "a machine")}
    ends = [read_segment(DISK, path).end.why for path in paths]
    assert ends == ["full"] * (len(paths) - 1) + ["stopped"]


def test_what_a_kill_leaves_is_ended_at_the_next_start(tmp_path: Path) -> None:
    write_segments(tmp_path, records(50, 1_000_000), stop=False, disk=KilledDisk())
    (partial,) = tmp_path.iterdir()
    assert partial.name.endswith(".trace.partial")
    with partial.open("ab") as file:
        file.write(b'["deliveries", {"t": 12')  # in the middle of a line
    write_segments(tmp_path, [], boot=4)
    cut, stopped = sorted(tmp_path.iterdir())
    assert read_segment(DISK, cut).end.why == "cut" and list(read_segment(DISK, cut).records()) == records(
        50, 0
    )
    assert read_segment(DISK, stopped).head.boot == 4 and read_segment(DISK, stopped).end.why == "stopped"
    close_partials(DISK, tmp_path)  # nothing is left to do
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:-40], "is cut short"),
        (lambda data: data[: data.rindex(b"[", 0, -3)], "has no end"),
        (lambda data: data.replace(b'"hops":1', b'"hops":2', 1), "its digest does not match"),
        (lambda data: data.replace(data.splitlines(keepends=True)[3], b""), "holds 149 records"),
        (lambda data: data.replace(b'"format":1', b'"format":9'), "has format 9"),
        (lambda data: b"", "is cut short"),
        (lambda data: b"what is this\n" * 9, "has no head"),
    ],
)
def test_a_damaged_segment_is_never_read(
    tmp_path: Path, damage: Callable[[bytes], bytes], problem: str
) -> None:
    write_segments(tmp_path, records(50, 1_000_000))
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=f"{path.name}: .*{problem}"):
        read_segment(DISK, path)


def test_a_segment_under_anothers_name_is_refused(tmp_path: Path) -> None:
    write_segments(tmp_path, records(1, 1_000_000))
    (path,) = tmp_path.iterdir()
    other = path.rename(path.with_name(path.name.replace("-1-", "-2-")))
    with pytest.raises(FileError, match=f"says that it is {path.stem}"):
        read_segment(DISK, other)


def test_segments_never_grow_beyond_their_bound_and_the_oldest_go_first(tmp_path: Path) -> None:
    write_segments(tmp_path, records(20, 1_000_000), boot=2)  # of an earlier boot: they go first
    bounds: dict[str, Any] = {"bytes_max": 50_000, "segment_bytes": 10_000}
    counters = write_segments(tmp_path, records(1_000, 1_000_000), **bounds)
    paths = sorted(tmp_path.iterdir())
    assert 30_000 < sum(path.stat().st_size for path in paths) <= 50_000
    kept = list(read_trace(DISK, tmp_path))
    assert kept == records(1_000, 0)[-len(kept) :]
    last = read_segment(DISK, paths[-1]).head
    assert counters.value("trace_segments_dropped_total") >= last.dropped > 10
    assert read_segment(DISK, paths[0]).head.number > 0  # a gap that a reader sees


def test_a_quiet_nodes_last_records_do_not_wait_for_its_next(tmp_path: Path) -> None:
    async def write() -> None:
        bounds: dict[str, Any] = {"bytes_max": 10**9, "segment_bytes": 10**9, "segment_seconds": 0.1}
        trace = TraceSegments(tmp_path, SOURCE, this_machine(), Counters(), **bounds)
        for record in records(1, 1_000_000):
            trace.add(record)
        async with asyncio.timeout(20):
            while not list(tmp_path.glob("*.trace")):
                await asyncio.sleep(0.01)

    asyncio.run(write())
    assert list(read_trace(DISK, tmp_path)) == records(1, 0)


def test_a_trace_that_is_closed_takes_no_more(tmp_path: Path) -> None:
    async def write() -> None:
        bounds: dict[str, Any] = {"bytes_max": 10**9, "segment_bytes": 10**9, "segment_seconds": 10}
        trace = TraceSegments(tmp_path, SOURCE, this_machine(), Counters(), **bounds)
        trace.close()
        for record in records(2_000, 0):
            trace.add(record)
        trace.close()

    asyncio.run(write())
    assert list(read_trace(DISK, tmp_path)) == []


class FullFile(FileIO):
    """On a disk that has no room for what names event 7."""

    def write(self, data: Any) -> int:
        return super().write(data if b'"sequence":7' not in data else data[:9])


class FullDisk(LocalDisk):
    def open(self, path: Path, mode: Any) -> RawIOBase:
        return FullFile(path, mode)


def test_a_full_disk_costs_the_trace_and_is_counted(tmp_path: Path) -> None:
    counters = write_segments(tmp_path, records(20, 1_000_000), disk=FullDisk())
    assert counters.value("trace_records_unwritten_total") == 3
    kept = list(read_trace(DISK, tmp_path))
    assert len(kept) == 57 and kept == [r for r in records(20, 0) if getattr(r, "sequence", 0) != 7]
