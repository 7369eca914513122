"""How many records a second `watch` takes, and whether that stays so over hours and days of segments.

    python benchmarks/live_traces.py [--hours 1] [--minutes 60] [--nodes 50] [--records 30]

The segments are written by the node's own writer, on a clock of this program: each node has so many records a
second, mostly frames; it publishes every five seconds, and ten nodes want each event. The network is on the
air for so many minutes of each hour; after each hour `watch --once` goes on where it stopped. With `--hours
240` that is ten days. What each hour cost is shown: it should not grow.
"""

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from roamcast.lab.live.streaming import read_unread, read_windows, watch
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


def generate(folder: Path, hours: int, minutes: float, nodes: int, records: int) -> Iterator[int]:
    """A network, second by second; gives the number of records after each hour."""
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
    for hour in range(hours):
        for second in range(hour * 3600, hour * 3600 + round(minutes * 60)):
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
        clock.now += 10 * SECOND
        for trace in traces:
            trace._on_turn()  # what its timer does
        yield written
        written = 0
    for trace in traces:
        trace.close()
    loop.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--hours", type=int, default=1)
    arguments.add_argument("--minutes", type=float, default=60, help="of each hour")
    arguments.add_argument("--keep", action="store_true", help="keep segments that were read")
    arguments.add_argument("--nodes", type=int, default=50)
    arguments.add_argument("--records", type=int, default=30, help="of a node, each second")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
    traces, out = folder / "traces", str(folder / "out")
    traces.mkdir()
    spent, total = [], 0
    try:
        for hour, records in enumerate(
            generate(traces, given.hours, given.minutes, given.nodes, given.records), 1
        ):
            begun = time.process_time()
            watch(str(traces), out, once=True, on_unread=print)
            spent.append(time.process_time() - begun)
            total += records
            for path in [] if given.keep else list(traces.glob("*.trace")):
                path.unlink()  # as docs/study/live-traces.md advises: the folder is listed for each pass
            if hour in (1, given.hours) or hour % 24 == 0:
                size = (folder / "out" / "state").stat().st_size
                segments = len(list(traces.iterdir()))
                print(
                    f"hour {hour:4d}: {records:,} records, {spent[-1]:.2f} processor s, "
                    f"{records / spent[-1]:,.0f} per processor s; {segments:,} files, state {size:,} octets"
                )
        day = min(24, max(len(spent) // 4, 1))
        print(f"median of the last {day} hours over that of the first: {ratio(spent, day):.2f}")
        table = read_windows(out).to_pylist()
        events, delivered = (sum(row[name] for row in table) for name in ("published", "delivered"))
        unread = read_unread(out).num_rows
        print(f"{total:,} records, {len(table)} rows, {events:,} events; {delivered:,} delivered, {unread}")
    finally:
        shutil.rmtree(folder)


def ratio(spent: list[float], count: int) -> float:
    return median(spent[-count:]) / median(spent[:count])


if __name__ == "__main__":
    main()
