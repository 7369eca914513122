"""Segments for the tests of this folder, as nodes write them: by their own writer, on a clock of the test."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from tests.runtime.live.worlds import HandClock, world

from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.segments import SegmentSource, TraceSegments
from roamcast.trace import Record, Trace
from roamcast.units import SECOND, Micros, NodeId, micros

BEGAN: Micros = 1_760_000_000 * SECOND  # Unix time of instant 0


def node_of(record: Record) -> NodeId:
    return record.node if hasattr(record, "node") else record.publisher  # type: ignore[attr-defined,no-any-return]


def write_node(
    folder: Path,
    node: NodeId,
    records: Iterable[Record],
    *,
    run: str = "r",
    strategy: str = "flooding",
    boot: int = 1,
    clock: str = "one machine",
    ahead: Micros = 0,
    segment_seconds: float = 5.0,
    stop: Micros | None = None,
    began: Micros = 0,
) -> None:
    """One boot of a node. `ahead`: of its wall clock; `stop`: when it stops in good order."""
    hand = HandClock(began, BEGAN + ahead)
    source = SegmentSource(
        node=node, name=f"n{node}", run=run, strategy=strategy, boot=boot, epoch=0, clock=clock
    )
    loop = asyncio.new_event_loop()
    try:
        trace = TraceSegments(
            folder,
            source,
            world(loop, clock=hand),
            Counters(),
            bytes_max=2**40,
            segment_bytes=2**26,
            segment_seconds=segment_seconds,
        )
        for record in sorted(records, key=lambda record: record.t):  # type: ignore[attr-defined]
            hand.now = record.t  # type: ignore[attr-defined]
            trace.add(record)
            trace.flush()
        if stop is not None:
            hand.now = max(stop, hand.now)
            trace.close()
        else:
            hand.now += micros(segment_seconds)
            trace._on_turn()  # what its timer does
    finally:
        loop.close()


def write_trace(
    folder: Path, trace: Trace, *, run: str = "r", strategy: str = "flooding", boot: int = 1
) -> list[Path]:
    """The records of a whole network, each where its node has it. Gives the segments in the order of time."""
    by_node: dict[NodeId, list[Record]] = {}
    for records in trace.records.values():
        for record in records:
            by_node.setdefault(node_of(record), []).append(record)
    before = set(folder.glob("*.trace"))
    for node, records in sorted(by_node.items()):
        write_node(folder, node, records, run=run, strategy=strategy, boot=boot)
    return sorted(set(folder.glob("*.trace")) - before)
