"""How many records a second `watch` takes, and whether that stays so over an hour of segments.

    python benchmarks/live_traces.py [--minutes 60] [--nodes 50] [--records 30]

The segments are written by the node's own writer, on a clock of this program: each node has so many records a
second, mostly frames; it publishes every five seconds, and ten nodes want each event. Then `watch --once`
reads them all. The rate of each batch is shown: it should not fall, apart from the last, which is smaller.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from roamcast.lab.live.streaming import Numbers, read_unread, read_windows, watch
from roamcast.lab.spark.session import session
from roamcast.runtime.live.linux import LinuxMachine, LinuxNetwork, LocalDisk
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.segments import SegmentSource, TraceSegments
from roamcast.runtime.live.world import NodeWorld
from roamcast.trace import Delivered, Published, Record, Subscribed, Transmitted
from roamcast.units import MILLISECOND, SECOND, Micros

BEGAN: Micros = 1_760_000_000 * SECOND
PUBLISHES_EVERY: Micros = 5 * SECOND
WANTED_BY = 10


class Clock:
    """In the hands of the benchmark."""

    now: Micros = 0

    def monotonic_ns(self) -> int:
        return self.now * 1_000

    def time_ns(self) -> int:
        return (BEGAN + self.now) * 1_000


def generate(folder: Path, minutes: float, nodes: int, records: int) -> int:
    """An hour of a network, second by second; gives the number of records."""
    loop, clock, chance, written = asyncio.new_event_loop(), Clock(), random.Random(1), 0
    world = NodeWorld(loop, clock, LocalDisk(), LinuxNetwork(), LinuxMachine(), chance)
    traces = [
        TraceSegments(
            folder,
            SegmentSource(node=n, name="", run="bench", strategy="flooding", boot=1, epoch=0, clock="c"),
            world,
            Counters(),
            bytes_max=2**40,
            segment_bytes=1_000_000,
            segment_seconds=10.0,
        )
        for n in range(nodes)
    ]

    def add(node: int, record: Record) -> None:
        nonlocal written
        written += 1
        traces[node].add(record)

    for node in range(nodes):
        add(node, Subscribed(1, node, 1, f"level = {node % max(nodes // WANTED_BY, 1)}", True))
    sequence = 0
    frames = max(records - 1 - nodes * WANTED_BY * SECOND // PUBLISHES_EVERY // nodes, 1)
    for second in range(round(minutes * 60)):
        clock.now = second * SECOND
        for node in range(nodes):
            if (second + node) % (PUBLISHES_EVERY // SECOND) == 0:
                sequence += 1
                level = sequence % max(nodes // WANTED_BY, 1)
                attributes = f'{{"level":{level}}}'
                t = clock.now + chance.randrange(SECOND)
                add(node, Published(t, node, sequence, "realtime", 0, 100, "", "", attributes, (), False))
                for other in range(level, nodes, max(nodes // WANTED_BY, 1)):
                    if other != node and chance.random() < 0.9:
                        late = chance.randrange(500 * MILLISECOND)
                        add(other, Delivered(t + late, other, node, sequence, 2, True))
            for _ in range(frames):
                t = clock.now + chance.randrange(SECOND)
                kind = "data" if chance.random() < 0.3 else "control"
                sent = Transmitted(
                    t, node, None, kind, "hello", 80, 1, 0, None, None, True, 0, 0, 0, "underlay"
                )
                add(node, sent)
        for trace in traces:
            trace.flush()
    for trace in traces:
        trace.close()
    loop.close()
    return written


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=60)
    arguments.add_argument("--nodes", type=int, default=50)
    arguments.add_argument("--records", type=int, default=30, help="of a node, each second")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
    try:
        begun = time.process_time()
        (folder / "traces").mkdir()
        records = generate(folder / "traces", given.minutes, given.nodes, given.records)
        segments = len(list((folder / "traces").iterdir()))
        size = sum(path.stat().st_size for path in (folder / "traces").iterdir())
        cost = (time.process_time() - begun) / records * 1e6
        print(
            f"{records:,} records in {segments:,} segments, {size / 1e6:.0f} MB; {cost:.1f} µs each to write"
        )
        measure(folder, records, segments)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, records: int, segments: int) -> None:
    traces, out = str(folder / "traces"), str(folder / "out")
    session()  # its start is not what is measured
    noted = [(0, time.monotonic(), processor_seconds())]

    def note(_: object) -> None:
        noted.append((given(out), time.monotonic(), processor_seconds()))

    watch(traces, out, once=True, on_unread=print, on_table=note)
    wall, each = noted[-1][1] - noted[0][1], records / segments
    print(f"{wall:.0f} s in all: {records / wall:,.0f} records/s, with the start of Spark's Python workers")
    print("batch  segments  seconds  records/s  processor s  records per processor s")
    for number, ((before, begun, idle), (after, ended, busy)) in enumerate(pairwise(noted), 1):
        count = (after - before) * each
        print(
            f"{number:5d}  {after - before:8d}  {ended - begun:7.1f}  {count / (ended - begun):9,.0f}"
            f"  {busy - idle:11.1f}  {count / (busy - idle):9,.0f}"
        )
    table = read_windows(out).to_pylist()
    events, delivered = (sum(row[name] for row in table) for name in ("published", "delivered"))
    unread = read_unread(out).num_rows
    print(f"{len(table)} windows, {events:,} events, {delivered:,} deliveries, {unread} problems")


def processor_seconds() -> float:
    """Of this process and everything below it: Java, and Spark's Python workers."""
    spent: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            spent[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    below, ticks = {os.getpid()}, 0
    for _ in range(5):  # so deep at most
        below |= {process for process, (parent, _) in spent.items() if parent in below}
    ticks = sum(spent[process][1] for process in below)
    return ticks / os.sysconf("SC_CLK_TCK")


def given(out: str) -> int:
    """How many segments Spark has given to batches so far, as it noted."""
    offsets = Path(out) / "checkpoint" / "offsets"
    newest = max(
        (path for path in offsets.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    )
    return len(Numbers(json.loads(newest.read_text().splitlines()[-1])).without(Numbers({})))


if __name__ == "__main__":
    main()
