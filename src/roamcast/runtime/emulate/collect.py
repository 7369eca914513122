"""The journals of an emulation's parts, merged into one trace on one time axis.

| from | tables |
|---|---|
| the ether | `links`, `motion`, `faults`, `air`, and `drops` of the radio |
| the nodes' own traces | `transmissions`, `overlay`, `handoffs`, `drops` of the protocols |
| the applications | `publications`, `subscriptions`, `deliveries` |

A node's kernel does not report the outcome of a frame, and the ether cannot read a sealed datagram. The two
journals are matched by size: a datagram is as large as the frames that its node says it has put in, in their
order (`Datagrams`). TCP may cut and join what goes over a link anywhere, so there the receiver's own trace
decides: it has the event if it delivered, forwarded or dropped it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from roamcast.event import EventId
from roamcast.runtime.emulate.conductor import LOG
from roamcast.runtime.emulate.stage import Stage, read_journal
from roamcast.runtime.live.linux import LocalDisk
from roamcast.runtime.live.report.segments import close_partials, read_trace
from roamcast.scenario.model import Scenario
from roamcast.trace import (
    RECORDS,
    Delivered,
    Dropped,
    DropReason,
    FaultHappened,
    HandedOff,
    LinkChanged,
    Moved,
    NodeSet,
    OnAir,
    OverlayChanged,
    Published,
    Record,
    Subscribed,
    Trace,
    Transmitted,
)
from roamcast.units import MILLISECOND, Micros, NodeId

SEEN_WITHIN: Micros = 500 * MILLISECOND
"""Between a node's `send` and the ether's `read`; what has not come by then was lost in the kernel.
Chosen by us: longer tolerates a busier machine, but more frames of the same size may be mistaken."""
SKIPPED_MAX = 32  # frames lost in the kernel before one that was seen; chosen by us, bounds the search


@dataclass(frozen=True)
class Circumstances:
    """Whether the run was what the scenario says. Delays in microseconds."""

    play_delay: Micros  # of the ether, links and frames: 99th percentile
    play_delay_worst: Micros
    publish_delay: Micros  # of the applications: 99th percentile
    refused: tuple[str, ...] = ()  # what nodes that never crashed refused to their applications
    missed: int = 0  # events that were left out because an application read too slowly
    errors: tuple[str, ...] = ()  # lines with level ERROR of the nodes' logs
    restart_delay: Micros = 0  # the longest time from a restart to the node's first answer


class AirAttempt(NamedTuple):
    """A line `air` of the ether's journal: an attempt to send an Ethernet frame, or that it was given up."""

    number: int  # of the Ethernet frame
    taken: Micros
    t: Micros
    node: NodeId
    to: NodeId | None
    protocol: str
    datagram: int | None
    octets: int
    attempt: int
    airtime: Micros
    received: list[NodeId]
    collided: list[NodeId]
    faded: list[NodeId]
    given_up: str = ""  # why; there was no attempt then

    @property
    def is_unsent_datagram(self) -> bool:
        return self.datagram is not None and self.given_up == DropReason.QUEUE_FULL.value

    def record(self) -> OnAir | Dropped:
        if self.given_up:
            reason, detail = DropReason(self.given_up), "given up by the radio"
            return Dropped(self.t, self.node, reason, self.protocol, to=self.to, detail=detail)
        return OnAir(
            self.t,
            self.node,
            self.to,
            self.protocol,
            self.octets,
            self.attempt,
            self.airtime,
            _set(self.received),
            _set(self.collided),
            _set(self.faded),
        )

    def decides(self, sent: Transmitted) -> Transmitted | Dropped:
        if self.given_up:
            name = (sent.message, sent.publisher, sent.sequence, sent.to)
            return Dropped(self.t, self.node, DropReason.QUEUE_FULL, *name)
        return msgspec.structs.replace(
            sent,
            t=self.t,
            airtime=self.airtime,
            received=_set(self.received),
            collided=_set(self.collided),
            faded=_set(self.faded),
        )


def collect(scenario: Scenario, stage: Stage) -> tuple[Trace, Circumstances]:
    applications = _Journal(read_journal(stage.applications))
    ether = _Journal(read_journal(stage.ether))
    epoch, zero = (int(value) for value in applications.one("zero"))
    records: list[Record] = []
    records += _typed((Subscribed, Delivered, Published), applications)
    records += _typed((LinkChanged, Moved, FaultHappened), ether)
    acknowledged = {(r.publisher, r.sequence) for r in records if isinstance(r, Published)}
    attempts = [AirAttempt(*line) for line in ether.all("air")]
    of_node: dict[NodeId, list[AirAttempt]] = {}
    for attempt in attempts:
        if attempt.is_unsent_datagram or not attempt.given_up:
            of_node.setdefault(attempt.node, []).append(attempt)
    transmitted: list[Transmitted] = []
    close_partials(LocalDisk(), stage.traces)
    for node in range(scenario.nodes):
        own = [
            record
            for record in _of_node(stage, node, zero - epoch)
            if not isinstance(record, Published) or (record.publisher, record.sequence) not in acknowledged
        ]
        sent = [record for record in own if isinstance(record, Transmitted)]
        for record in with_outcomes(sent, of_node.get(node, [])):
            if isinstance(record, Transmitted):
                transmitted.append(record)
            else:
                records.append(record)
        records += [record for record in own if not isinstance(record, Transmitted)]
    records += [attempt.record() for attempt in attempts if not attempt.is_unsent_datagram]  # see `decides`
    records += _over_links(transmitted, records)
    trace = _in_order(records, scenario.duration)
    errors = [line for node in range(scenario.nodes) for line in _errors(stage, node)]
    return trace, _circumstances(ether, applications, trace, errors)


def with_outcomes(sent: list[Transmitted], attempts: list[AirAttempt]) -> list[Transmitted | Dropped]:
    """What one node says it sent, with the outcomes that the ether has recorded. Frames over TCP stay as they
    are; a frame that found the ether's queue full was dropped, not sent."""
    outcomes: dict[int, AirAttempt] = {}
    datagrams: dict[NodeId | None, list[AirAttempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: (attempt.number, attempt.attempt)):
        if attempt.datagram is not None:
            if attempt.number not in outcomes:
                datagrams.setdefault(attempt.to, []).append(attempt)
            outcomes[attempt.number] = attempt  # the last attempt decides
    known: dict[int, AirAttempt] = {}  # by position in `sent`
    for to, seen in datagrams.items():
        waiting = deque(
            (at, record) for at, record in enumerate(sent) if record.to == to and not over_link(record)
        )
        for datagram in seen:
            for at in _frames_in(datagram, waiting):
                known[at] = outcomes[datagram.number]
    return [known[at].decides(record) if at in known else record for at, record in enumerate(sent)]


def over_link(record: Transmitted) -> bool:
    """Data for one neighbour goes over a TCP link, everything else in datagrams."""
    return record.to is not None and record.kind == "data"


# Private.


class _Journal:
    """Lines by their first word."""

    def __init__(self, lines: Iterable[list[Any]]) -> None:
        self._lines: dict[str, list[list[Any]]] = {}
        for kind, *values in lines:
            self._lines.setdefault(kind, []).append(values)

    def all(self, kind: str) -> list[list[Any]]:
        return self._lines.get(kind, [])

    def one(self, kind: str) -> list[Any]:
        (line,) = self._lines[kind]
        return line


def _frames_in(datagram: AirAttempt, waiting: deque[tuple[int, Transmitted]]) -> list[int]:
    """Which of the unmatched frames make up a datagram; none, if no layer sent it."""
    assert datagram.datagram is not None
    while waiting and waiting[0][1].t < datagram.taken - SEEN_WITHIN:
        waiting.popleft()
    for skipped in range(min(len(waiting), SKIPPED_MAX)):
        size = 0
        for last in range(skipped, len(waiting)):
            if waiting[last][1].t > datagram.taken:
                break
            size += waiting[last][1].size
            if size == datagram.datagram:
                for _ in range(skipped):
                    waiting.popleft()
                return [waiting.popleft()[0] for _ in range(last - skipped + 1)]
            if size > datagram.datagram:
                break
    return []


def _over_links(transmitted: list[Transmitted], others: Iterable[Record]) -> list[Transmitted]:
    """Frames over TCP: received, if the receiver did anything with the event afterwards."""
    last: dict[tuple[NodeId, EventId], Micros] = {}
    for record in (*transmitted, *others):
        if isinstance(record, Transmitted | Dropped | Delivered) and record.sequence is not None:
            assert record.publisher is not None
            key = (record.node, EventId(record.publisher, record.sequence))
            last[key] = max(record.t, last.get(key, record.t))
    return [
        msgspec.structs.replace(record, received=1 << record.to)
        if over_link(record) and record.to is not None and _had(record, last)
        else record
        for record in transmitted
    ]


def _had(record: Transmitted, last: dict[tuple[NodeId, EventId], Micros]) -> bool:
    if record.publisher is None or record.sequence is None or record.to is None:
        return False
    return last.get((record.to, EventId(record.publisher, record.sequence)), -1) >= record.t


def _of_node(stage: Stage, node: NodeId, zero: Micros) -> Iterator[Record]:
    """A node's own records on the common axis. Of the time before zero only the overlay's links count."""
    for record in read_trace(LocalDisk(), stage.traces, node):
        if not isinstance(record, Transmitted | Dropped | OverlayChanged | Published | HandedOff):
            continue  # taken from the applications' journal
        t = record.t - zero
        if isinstance(record, HandedOff):
            record = msgspec.structs.replace(record, started=record.started - zero)
        if t >= 0 or isinstance(record, OverlayChanged):
            yield msgspec.structs.replace(record, t=max(t, 0))


def _typed(kinds: Iterable[type[Record]], lines: _Journal) -> list[Record]:
    return [
        msgspec.convert(dict(zip(kind.__struct_fields__, line, strict=True)), kind)
        for kind in kinds
        for line in lines.all(kind.TABLE)
    ]


def _in_order(records: Iterable[Record], duration: Micros) -> Trace:
    trace = Trace()
    for record in records:
        if isinstance(record, Moved) or record.t < duration:  # type: ignore[attr-defined]
            trace.add(record)
    for kind in RECORDS:
        trace.records[kind].sort(key=lambda record: record.t)  # type: ignore[attr-defined]
    return trace


def _circumstances(
    ether: _Journal, applications: _Journal, trace: Trace, errors: Iterable[str]
) -> Circumstances:
    _, play_delay, play_delay_worst = ether.one("lateness")
    publish_delay, _ = applications.one("publish_delay")
    crashed = {fault.node for fault in trace.of(FaultHappened) if fault.kind == "crash"}
    return Circumstances(
        play_delay,
        play_delay_worst,
        publish_delay,
        tuple(f"node {node}: {what}" for _, node, what in applications.all("refused") if node not in crashed),
        sum(missed for _, missed in applications.all("missed")),
        tuple(errors),
        max((delay for delay, _ in applications.all("restarted")), default=0),
    )


def _errors(stage: Stage, node: NodeId) -> Iterator[str]:
    log = stage.of(node) / LOG
    if log.exists():
        for line in log.read_text(errors="replace").splitlines():
            if " ERROR " in line:
                yield f"node {node}: {line.partition(' ERROR ')[2].strip()}"


def _set(nodes: Iterable[NodeId]) -> NodeSet:
    return sum(1 << node for node in nodes)
