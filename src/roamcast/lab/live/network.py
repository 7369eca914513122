"""The traces of a live network's nodes as one run, measured and explained like any other.

The segments of a folder are put on one axis: microseconds since the network's first record. Nodes of one
machine share its monotonic clock exactly. Between machines the wall clocks decide, corrected where events
prove them wrong (`extract.py`).

What a simulation knows and a live network does not is derived as far as the traces allow:

| table | from |
|---|---|
| `links` | whom each node had as a neighbour, by its own underlay: not the same as who could hear it |
| `faults` | a boot that ended without a word, and the next one |
| `received` of a frame | a later record of the receiver that shows it had the event; else nothing is known |
| subscriptions end | where a node stopped or began anew, too: its clients' sessions ended |

So figures that need the true contact graph have no value here (`UNKNOWN_LIVE`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median_low
from typing import Any

import msgspec

from roamcast.errors import FileError, InputError
from roamcast.event import EventId
from roamcast.lab.live.collect import listed
from roamcast.lab.live.extract import ClockDelays, check, with_ends
from roamcast.lab.run.expected import expected
from roamcast.lab.run.metrics import measure
from roamcast.lab.run.runs import RunResult
from roamcast.lab.run.tables import RunInfo, tables
from roamcast.lab.storage import Storage
from roamcast.runtime.live.report.segments import TraceSegment, parse_segment
from roamcast.trace import (
    RECORDS,
    Delivered,
    Dropped,
    FaultHappened,
    LinkChanged,
    OverlayChanged,
    Published,
    Record,
    Subscribed,
    Trace,
    Transmitted,
)
from roamcast.units import Micros, NodeId

DERIVED_FROM: NodeId = 65_536  # numbers that follow from a key begin here (`sealing/identity.py`)
RECORDS_MAX = 20_000_000  # that are read at once; beyond, `watch` is the way; chosen by us
UNKNOWN_LIVE = (
    "reachable_ratio",
    "delivery_ratio_reachable",
    "noise",
    "noise_relayed",
    "noise_ratio",
    "air_bytes",
    "air_bytes_ratio",
    "cycles",
    "excess_partitions",
    "path_hops_network",
    "limit_delivery",
    "delivery_of_limit",
    "latency_excess_p50",
    "latency_excess_p95",
    "limit_events",
    "limit_transmissions",
    "transmissions_of_limit",
    "airtime_of_limit",
)
NODE_FIELDS = ("node", "publisher", "to", "peer", "sender", "receiver", "source", "destination")


@dataclass(frozen=True)
class LiveRun:
    """One run of a folder of segments. `remarks`: what to know before the figures are believed."""

    result: RunResult
    began: Micros  # Unix time of instant 0
    remarks: tuple[str, ...] = ()
    names: Mapping[NodeId, str] = field(default_factory=dict)  # of nodes that are not called by their number
    numbers: Mapping[NodeId, NodeId] = field(
        default_factory=dict
    )  # their own, of those with another one here
    is_damaged: bool = False  # something could not be read


def read_network(
    folder: str, run: str | None = None, since: float | None = None, until: float | None = None
) -> list[LiveRun]:
    """The runs in a folder of segments, or the one asked for, each measured. `since` and `until`: seconds
    after the run's first record; events and frames of that time count."""
    storage = Storage.open(folder)
    by_run: dict[tuple[str, str], list[TraceSegment]] = {}
    unread: list[str] = []
    count = 0
    for one in listed(storage):
        try:
            segment = parse_segment(storage.read(one.file), storage.name(one.file))
            for record in segment.records():
                check(record, storage.name(one.file))
        except FileError as error:
            unread.append(str(error))
            continue
        if run in (None, segment.head.run):
            count += len(segment.lines)
            if count > RECORDS_MAX:
                raise InputError(folder, f"holds more than {RECORDS_MAX:,} records; allowed: roamcast watch")
            by_run.setdefault((segment.head.run, segment.head.strategy), []).append(segment)
    if not by_run:
        what = "no whole segment" if run is None else f"no whole segment of the run {run!r}"
        raise FileError(folder, f"holds {what} of a trace" + (f"; {unread[0]}" if unread else ""))
    return [_Network(segments, unread).run(since, until) for _, segments in sorted(by_run.items())]


def read_one(folder: str, run: str | None = None) -> LiveRun:
    """The only run of a folder, or the one asked for."""
    found = read_network(folder, run)
    if len(found) > 1:
        named = ", ".join(sorted({live.result.info.name for live in found}))
        raise InputError(folder, f"holds several runs; allowed: --run with one of {named}")
    return found[0]


def began_text(live: LiveRun) -> str:
    """Where the axis has its zero, and which numbers are not the nodes' own."""
    zero = datetime.fromtimestamp(live.began / 1e6, UTC).isoformat(timespec="milliseconds")
    own = live.numbers
    named = "".join(
        f"; {number} is {name} ({own.get(number, number)})" for number, name in sorted(live.names.items())
    )
    return f"0 s is {zero}, links are what the nodes' underlays said{named}"


class _Network:
    """The segments of one run."""

    def __init__(self, segments: list[TraceSegment], unread: list[str]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.head.segment.id)
        self._unread = unread
        self._base = {
            clock: median_low([s.head.wall - s.head.epoch for s in segments if s.head.clock == clock])
            for clock in {s.head.clock for s in segments}
        }
        self._clock_of = {s.head.node: s.head.clock for s in self._segments}
        self._numbers = _numbers(self._segments)

    def run(self, since: float | None, until: float | None) -> LiveRun:
        records = [
            (segment, _moved(record, segment.head.epoch + self._base[segment.head.clock]))
            for segment in self._segments
            for record in segment.records()
        ]
        ahead = self._ahead(records)
        began = min(self._at(s, s.head.opened) - ahead[s.head.clock] for s in self._segments)
        ended = max(self._at(s, s.end.closed) - ahead[s.head.clock] for s in self._segments)
        trace = Trace()
        for segment, record in records:
            moved = _moved(record, -began - ahead[segment.head.clock])
            trace.add(_renumbered(moved, self._numbers))
        boots = self._boots(began, ahead)
        ends = {node: [t for t, what in times if what != "cut"] for node, times in boots.items()}
        trace.records[Subscribed] = list(with_ends(trace.of(Subscribed), ends))
        trace.records[FaultHappened] += _faults(boots)
        trace.records[LinkChanged] += _links(trace.of(OverlayChanged), trace.of(FaultHappened))
        for kind in RECORDS:
            trace.records[kind].sort(key=lambda record: record.t)  # type: ignore[attr-defined]
        trace.records[Transmitted] = list(_with_receivers(trace))
        first, last = round((since or 0) * 1e6), ended - began if until is None else round(until * 1e6)
        for kind in (Published, Transmitted):
            trace.records[kind] = [r for r in trace.records[kind] if r.t < last]  # type: ignore[attr-defined]
        head = self._segments[0].head
        info = RunInfo(
            name=head.run,
            strategy=head.strategy,
            seed=0,
            nodes=len(self._clock_of),
            duration=last,
            warmup=first,
            runtime="live",
        )
        made = tables(trace, expected(trace))
        figures = measure(made, info)
        figures |= {name: None for name in UNKNOWN_LIVE if name in figures}
        named = {s.head.node: s.head.name for s in self._segments if s.head.name != f"node-{s.head.node}"}
        numbers = {number: node for node, number in self._numbers.items() if node != number}
        names = {number: f"node {node}" for number, node in numbers.items()}
        names |= {self._numbers[node]: name for node, name in named.items()}
        remarks = tuple(self._remarks(ahead, trace))
        return LiveRun(RunResult(info, made, figures), began, remarks, names, numbers, bool(self._unread))

    def _at(self, segment: TraceSegment, t: Micros) -> Micros:
        return t + segment.head.epoch + self._base[segment.head.clock]

    def _ahead(self, records: Iterable[tuple[TraceSegment, Record]]) -> dict[str, Micros]:
        """How far each clock is ahead of the first one, as far as events prove it."""
        delays = ClockDelays()
        published: dict[tuple[NodeId, int], Micros] = {}
        for _, record in records:
            if isinstance(record, Published):
                published[record.publisher, record.sequence] = record.t
        for _, record in records:
            if isinstance(record, Delivered) and (record.publisher, record.sequence) in published:
                delay = record.t - published[record.publisher, record.sequence]
                publisher = self._clock_of.get(record.publisher, "")
                delays.observe(publisher, self._clock_of[record.node], delay)
        first, *others = sorted(self._base)
        ahead = {first: 0}
        while others:  # by way of clocks whose difference is known; the others as their wall clocks have it
            known = [(a, b) for b in others for a in ahead if b in delays.shortest.get(a, {})]
            known += [(a, b) for b in others for a in ahead if a in delays.shortest.get(b, {})]
            a, b = known[0] if known else (first, others[0])
            ahead[b] = ahead[a] + delays.ahead(b, a)
            others.remove(b)
        return ahead

    def _boots(self, began: Micros, ahead: Mapping[str, Micros]) -> dict[NodeId, list[tuple[Micros, str]]]:
        """When each node began (`began`), stopped in good order (`stopped`), or was cut off (`cut`)."""
        found: dict[NodeId, list[tuple[Micros, str]]] = {}
        for segment in self._segments:
            head, end = segment.head, segment.end
            moved = -began - ahead[head.clock]
            times = found.setdefault(self._numbers[head.node], [])
            if head.number == 0:
                times.append((self._at(segment, head.opened) + moved, "began"))
            if end.why != "full":
                times.append((self._at(segment, end.closed) + moved, end.why))
        return found

    def _remarks(self, ahead: Mapping[str, Micros], trace: Trace) -> Iterable[str]:
        yield from (f"not read: {line}" for line in self._unread)
        numbers: dict[tuple[NodeId, int], list[int]] = {}
        for segment in self._segments:
            numbers.setdefault((segment.head.node, segment.head.boot), []).append(segment.head.number)
        for (node, boot), found in numbers.items():
            missing = max(found) + 1 - len(found)
            if missing:
                yield f"node {node}: {missing} segments of boot {boot} are missing, and not in the figures"
        unwritten = {s.head.node: s.head.unwritten for s in self._segments if s.head.unwritten}
        for node, lost in unwritten.items():
            yield f"node {node}: its disk had no room for {lost} records"
        heard_of = {r.publisher for r in trace.of(Delivered)} | {r.node for r in trace.of(Delivered)}
        silent = sorted(heard_of - {self._numbers[node] for node in self._clock_of})
        if silent:
            yield f"no trace of {len(silent)} nodes that published, the first is node {silent[0]}"
        for clock, difference in ahead.items():
            if difference:
                nodes = sorted(node for node, name in self._clock_of.items() if name == clock)
                yield f"the clock of node {nodes[0]} was {difference / 1e6:+.3f} s off, and is corrected"


def _numbers(segments: Iterable[TraceSegment]) -> dict[NodeId, NodeId]:
    """Numbers that follow from keys are too large for sets of nodes: they get small ones."""
    nodes = sorted({segment.head.node for segment in segments})
    derived = [node for node in nodes if node >= DERIVED_FROM]
    return {node: node for node in nodes} | {node: DERIVED_FROM + at for at, node in enumerate(derived)}


def _renumbered(record: Record, numbers: Mapping[NodeId, NodeId]) -> Record:
    changed: dict[str, Any] = {}
    for name in NODE_FIELDS:
        number = getattr(record, name, None)
        if number is not None and number >= DERIVED_FROM:
            changed[name] = numbers.get(number, DERIVED_FROM + len(numbers))
    if isinstance(record, Published) and any(node >= DERIVED_FROM for node in record.destinations):
        changed["destinations"] = tuple(
            numbers.get(n, DERIVED_FROM + len(numbers)) if n >= DERIVED_FROM else n
            for n in record.destinations
        )
    return msgspec.structs.replace(record, **changed) if changed else record


def _moved(record: Any, by: Micros) -> Record:
    started = {"started": record.started + by} if hasattr(record, "started") else {}
    return msgspec.structs.replace(record, t=record.t + by, **started)  # type: ignore[no-any-return]


def _faults(boots: Mapping[NodeId, list[tuple[Micros, str]]]) -> list[FaultHappened]:
    """From the end of a boot to the next beginning a node is down, whether it stopped or was cut off."""
    faults = []
    for node, times in boots.items():
        was_down = False
        for t, what in sorted(times):
            if what == "began" and was_down:
                faults.append(FaultHappened(t, "restart", node))
            elif what != "began" and not was_down:
                faults.append(FaultHappened(t, "crash", node))
            was_down = what != "began"
    return faults


def _links(changes: Iterable[OverlayChanged], faults: Iterable[FaultHappened]) -> list[LinkChanged]:
    """What each node's underlay said of its neighbours: it hears them. A node that is down hears nobody."""
    links = []
    heard: dict[NodeId, set[NodeId]] = {}
    both: list[OverlayChanged | FaultHappened] = [*changes, *faults]
    for record in sorted(both, key=lambda record: record.t):
        known = heard.setdefault(record.node, set())
        if isinstance(record, FaultHappened):
            links += [LinkChanged(record.t, peer, record.node, False, False) for peer in sorted(known)]
            known.clear()
        elif record.peer is not None and record.change in ("neighbour_up", "neighbour_down"):
            up = record.change == "neighbour_up"
            if up != (record.peer in known):
                (known.add if up else known.discard)(record.peer)
                links.append(LinkChanged(record.t, record.peer, record.node, False, up))
    return links


def _with_receivers(trace: Trace) -> Iterable[Transmitted]:
    """Each node's first sign of an event is attributed to the last frame that can have brought it."""
    first: dict[tuple[EventId, NodeId], Micros] = {}
    for kind in (Delivered, Dropped, Transmitted):
        for record in trace.of(kind):
            if record.publisher is not None and record.sequence is not None:  # type: ignore[attr-defined]
                key = (EventId(record.publisher, record.sequence), record.node)  # type: ignore[attr-defined]
                first[key] = min(record.t, first.get(key, record.t))  # type: ignore[attr-defined]
    frames = trace.of(Transmitted)
    of_event: dict[EventId, list[int]] = {}
    for place, frame in enumerate(frames):
        if frame.publisher is not None and frame.sequence is not None:
            of_event.setdefault(EventId(frame.publisher, frame.sequence), []).append(place)
    received: dict[int, int] = {}
    for (event, node), t in first.items():
        if node == event.publisher:
            continue
        for place in reversed(of_event.get(event, ())):
            frame = frames[place]
            if frame.t <= t and frame.node != node and frame.to in (None, node):
                received[place] = received.get(place, 0) | 1 << node
                break
    return [
        msgspec.structs.replace(frame, received=received[place]) if place in received else frame
        for place, frame in enumerate(frames)
    ]
