"""Delivery, latency and traffic of each window of time, kept up to date while segments come in.

`RunWindows` is the state of one run: all that its open windows need, and no more. A window is open until it
lies `late` behind the run's clock (the watermark), which is the newest record of the second newest node: one
node whose clock is wrong closes nothing. What comes for a closed window is not counted; it is reported, with
its file. What must be kept at most is bounded too: beyond `ROWS_MAX` the oldest windows are closed early.

An event counts in the window of its publication, by its publisher's wall clock; a frame in that of its
sending. The figures are those of `metrics.py`, by the same SQL: a window is what a run is there. Who should
have got an event follows from publications and subscriptions as in `expected.py`. Left out: paths in the
contact graph (no node sees it) and the warm-up, because a live network has none.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.live.extract import STEP, ClockDelays, Delivery, Extract, with_ends
from roamcast.lab.live.mesh import MeshState
from roamcast.lab.run.expected import RecordedInterests
from roamcast.lab.run.metrics import METRICS, empty_tables, query
from roamcast.trace import Published, Subscribed
from roamcast.units import Micros, NodeId

ROWS_MAX = 1_000_000  # events, deliveries, subscriptions and windows in the state of one run; chosen by us
NODES_MAX = 100_000
FIGURES = (
    "published",
    "expected",
    "delivered",
    "duplicates",
    "misdelivered",
    "delivery_ratio",
    "latency_p50",
    "latency_p95",
    "hops_mean",
)
TRAFFIC = ("control_messages", "control_bytes", "data_messages", "data_bytes")
_COUNTS = {*FIGURES[:5], *TRAFFIC}
_COLUMNS = (*FIGURES, *TRAFFIC, "control_overhead")

Row = dict[str, Any]


class WindowProblem(NamedTuple):
    """What was not counted, and why."""

    file: str
    reason: str


class TracedNode(msgspec.Struct):
    """How far a node's trace has come."""

    clock: str
    newest: Micros
    boot: int


class RunWindows(msgspec.Struct):
    """The state of one run. Times are Unix time in microseconds."""

    closed: Micros = 0  # every window before is closed
    nodes: dict[NodeId, TracedNode] = {}
    bases: dict[str, Micros] = {}  # by clock: Unix time of its zero
    delays: ClockDelays = msgspec.field(default_factory=ClockDelays)
    subscriptions: list[Subscribed] = []
    ends: dict[NodeId, list[Micros]] = {}  # when the sessions of a node's clients ended
    events: dict[str, Published] = {}  # by `publisher:sequence`
    deliveries: dict[str, list[Delivery]] = {}
    traffic: dict[Micros, list[int]] = {}
    mesh: MeshState = msgspec.field(default_factory=MeshState)

    def take(
        self, extracts: Iterable[Extract], window: Micros, late: Micros
    ) -> tuple[list[Row], list[WindowProblem]]:
        """Count these segments, each once; gives the figures of the windows that changed."""
        problems: list[WindowProblem] = []
        changed: set[Micros] = set()
        resubscribed = False
        touched: set[str] = set()
        for one in sorted(extracts, key=lambda e: (e.head.segment.second, e.head.segment.id)):
            missed = self._take(one, window, changed, touched)
            resubscribed |= bool(one.subscriptions or one.head.number == 0 or one.stopped)
            if missed:
                problems.append(
                    WindowProblem(one.file, f"{missed} records came after their window was closed")
                )
        at = {key: event.t // window * window for key, event in self.events.items()}
        changed.update(at[key] for key in (self.events if resubscribed else touched) if key in at)
        rows = self._figures(sorted(changed), at, window)
        problems += self._close(window, late)
        return rows, problems

    def clock(self) -> Micros:
        """The newest record of the second newest node."""
        newest = sorted((node.newest for node in self.nodes.values()), reverse=True)
        return newest[min(1, len(newest) - 1)] if newest else 0

    def newest(self) -> Micros:
        return max((node.newest for node in self.nodes.values()), default=0)

    def has_stopped(self) -> bool:
        """All nodes, in good order."""
        return not any(node.is_up for node in self.mesh.nodes.values())

    # Private.

    def _take(self, one: Extract, window: Micros, changed: set[Micros], touched: set[str]) -> int:
        head, base, missed = one.head, self._base(one), 0
        node = self.nodes.get(head.node)
        if node is None or (head.boot, one.closed + base) > (node.boot, node.newest):
            self.nodes[head.node] = TracedNode(head.clock, one.closed + base, head.boot)
        self.mesh.take(one, base)
        if head.number == 0:
            self.ends.setdefault(head.node, []).append(head.opened + head.epoch + base)
        if one.stopped:
            self.ends.setdefault(head.node, []).append(one.closed + base)
        self.subscriptions += [msgspec.structs.replace(s, t=s.t + base) for s in one.subscriptions]
        for event in one.publications:
            t = event.t + base
            if t < self.closed:
                missed += 1
                continue
            key = f"{event.publisher}:{event.sequence}"
            self.events[key] = msgspec.structs.replace(event, t=t)
            touched.add(key)
        for t, at, publisher, sequence, hops, matched in one.deliveries:
            key = f"{publisher}:{sequence}"
            self.deliveries.setdefault(key, []).append((t + base, at, publisher, sequence, hops, matched))
            touched.add(key)
        for start, sums in one.traffic.items():
            if start < self.closed:
                missed += sums[0] + sums[2]
                continue
            known = self.traffic.setdefault(start, [0, 0, 0, 0])
            for place, value in enumerate(sums):
                known[place] += value
            changed.add(start)
        return missed

    def _base(self, one: Extract) -> Micros:
        """Nodes that share a clock share its base, until the machine's wall clock is set anew."""
        clock = one.head.clock
        known = self.bases.get(clock)
        if known is None or abs(one.base - known) > STEP:
            known = self.bases[clock] = one.base
            self.delays.forget(clock)
        return known

    def _figures(self, starts: list[Micros], at: dict[str, Micros], window: Micros) -> list[Row]:
        chosen = set(starts)
        events = {key: event for key, event in self.events.items() if at[key] in chosen}
        handed = [(key, d) for key in events for d in self.deliveries.get(key, ())]
        clocks = {number: node.clock for number, node in self.nodes.items()}
        for key, (t, node, publisher, *_) in handed:
            if publisher in clocks and node in clocks:
                self.delays.observe(clocks[publisher], clocks[node], t - events[key].t)
        interests = RecordedInterests(with_ends(self.subscriptions, self.ends))
        with empty_tables() as measured:
            measured.executemany(
                "INSERT INTO publications (run, t, publisher, sequence, size) VALUES (?, ?, ?, ?, ?)",
                [(at[key], e.t, e.publisher, e.sequence, e.size) for key, e in events.items()],
            )
            measured.executemany(
                "INSERT INTO deliveries (run, t, node, publisher, sequence, hops, matched)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (at[key], t - self.delays.ahead(clocks.get(n, ""), clocks.get(p, "")), n, p, *rest)
                    for key, (t, n, p, *rest) in handed
                ],
            )
            measured.executemany(
                "INSERT INTO expected (run, publisher, sequence, node, reachable) VALUES (?, ?, ?, ?, 0)",
                [
                    (at[key], event.publisher, event.sequence, node)
                    for key, event in events.items()
                    for node in interests.in_event(event)
                ],
            )
            measured.executemany(
                "INSERT INTO runs (run, warmup, duration) VALUES (?, 0, ?)",
                [(start, window) for start in starts],
            )
            found = {start: figures for start, *figures in measured.execute(_STATEMENT)}
        return [self._row(start, found[start]) for start in starts]

    def _row(self, start: Micros, figures: list[Any]) -> Row:
        row = {"window": start, **dict(zip(FIGURES, figures, strict=True))}
        row |= zip(TRAFFIC, self.traffic.get(start, [0, 0, 0, 0]), strict=True)
        overhead = row["control_messages"] / row["delivered"] if row["delivered"] else None
        return row | {"control_overhead": overhead}

    def _close(self, window: Micros, late: Micros) -> list[WindowProblem]:
        """Move the watermark on, and forget what lies before it."""
        closed = max(self.closed, (self.clock() - late) // window * window)
        problems = []
        rows = len(self.events) + sum(map(len, self.deliveries.values())) + len(self.traffic)
        rows += len(self.subscriptions)
        if rows > ROWS_MAX:
            times = sorted([event.t for event in self.events.values()] + list(self.traffic))
            forced = (times[len(times) // 2] if times else closed) // window * window + window
            if forced > closed:
                closed = forced
                problems.append(
                    WindowProblem("", f"windows were closed early: {rows} rows, {ROWS_MAX} are kept")
                )
        if closed > self.closed:
            problems += self._forget(closed)
            self.closed = closed
        return problems

    def _forget(self, before: Micros) -> list[WindowProblem]:
        past = [key for key, event in self.events.items() if event.t < before]
        for key in past:
            del self.events[key]
            self.deliveries.pop(key, None)  # they are in the window's figures
        unknown = 0
        for key in [key for key in self.deliveries if key not in self.events]:
            kept = [delivery for delivery in self.deliveries[key] if delivery[0] >= before]
            unknown += len(self.deliveries[key]) - len(kept)
            if kept:
                self.deliveries[key] = kept
            else:
                del self.deliveries[key]
        self.traffic = {start: sums for start, sums in self.traffic.items() if start >= before}
        self._forget_subscriptions(before)
        while len(self.nodes) > NODES_MAX:
            del self.nodes[min(self.nodes, key=lambda number: self.nodes[number].newest)]
        used = {node.clock for node in self.nodes.values()}
        for clock in [clock for clock in self.bases if clock not in used]:
            del self.bases[clock]
            self.delays.forget(clock)
        reason = f"{unknown} deliveries are of events whose publication came in no segment, or too late"
        return [WindowProblem("", reason)] if unknown else []

    def _forget_subscriptions(self, before: Micros) -> None:
        """Forget records that a later one of the same subscription replaced before `before`."""
        by_number: dict[tuple[NodeId, int], list[Subscribed]] = {}
        for record in with_ends(self.subscriptions, self.ends):
            by_number.setdefault((record.node, record.subscription), []).append(record)
        kept = []
        for records in by_number.values():
            records.sort(key=lambda record: record.t)
            past = bisect_right(records, before, key=lambda record: record.t)
            kept += records[past - 1 :] if past and records[past - 1].stands else records[past:]
        self.subscriptions = kept
        self.ends = {node: [t for t in times if t >= before] for node, times in self.ends.items()}
        self.ends = {node: times for node, times in self.ends.items() if times}


def table_schema() -> pa.Schema:
    """The columns of the table: which window, and its figures."""
    key = [("strategy", pa.string()), ("run", pa.string()), ("window", pa.int64())]
    figures = [(name, pa.int64() if name in _COUNTS else pa.float64()) for name in _COLUMNS]
    return pa.schema([pa.field(name, kind) for name, kind in (*key, *figures)])


_STATEMENT = query({name: METRICS[name] for name in FIGURES})
