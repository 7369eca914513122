"""What workers do for `grouping.py`: subscriptions to summaries, members to groups, events to costs.

Each is a function over Arrow tables, so that it can be called without Spark. A filter or an event that
cannot be read becomes a `problem` in the result, which the driver reports in one line: an exception in a
worker would be shown as a long Java stack trace.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.errors import FilterError
from roamcast.event import Event, EventClass, Value
from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.lab.run.expected import standing
from roamcast.strategy.odmrp.grouping.channels import united
from roamcast.strategy.odmrp.summary.bloom import positions
from roamcast.strategy.odmrp.summary.lookup import DigestTable
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary, SummaryOptions
from roamcast.trace import Subscribed

Batches: TypeAlias = Iterable[pa.RecordBatch]
Attributes: TypeAlias = dict[str, Value]


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


BROKERS = pa.schema(
    [
        _required("run", pa.string()),
        _required("node", pa.int32()),
        _required("summary", pa.binary()),
        _required("places", pa.list_(pa.int32())),  # of the scaled vector, those that are not 0 …
        _required("values", pa.list_(pa.float64())),  # … and what they are
        pa.field("problem", pa.string()),
    ]
)
GROUPS = pa.schema(
    [
        _required("k", pa.int32()),
        _required("run", pa.string()),
        _required("number", pa.int32()),
        _required("members", pa.int64()),
        _required("summary", pa.binary()),
    ]
)
REACHED = pa.schema(
    [
        _required("k", pa.int32()),
        _required("reached", pa.int64()),
        pa.field("problem", pa.string()),
    ]
)
MATCHED = pa.schema([_required("matched", pa.int64())])


@dataclass(frozen=True)
class Summarise:
    """Of each broker, with the texts of its `filters`: the summary, and its vector."""

    options: SummaryOptions

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [self._row(**row) for row in batch.select(["run", "node", "filters"]).to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=BROKERS)

    def _row(self, run: str, node: int, filters: list[str]) -> dict[str, Any]:
        problem = None
        try:
            summary = Summary.of(map(Filter.parse, filters), self.options)
        except FilterError as error:
            summary, problem = Summary.of([], self.options), f"{_of(run)}node {node} has the filter {error}"
        vector = summary.weighed_vector()
        values = {place: weight for weight, bits in vector for place in positions(bits)}
        places = sorted(values)
        return {
            "run": run,
            "node": node,
            "summary": summary.encode(),
            "places": places,
            "values": [float(values[place]) for place in places],
            "problem": problem,
        }


GroupKey: TypeAlias = tuple[int, str, int]
"""The number of groups, the run, the group's own number."""


@dataclass(frozen=True)
class Unite:
    """The groups of the brokers here, for each number of groups at once: sizes and united summaries.

    Brokers have a column `groups`: their group's number for each of `ks`. Without `ks`, the same of the
    partial groups that this gives.
    """

    options: SummaryOptions
    ks: tuple[int, ...] = ()

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        united = _United(self.options)
        for batch in batches:
            for row in batch.to_pylist():
                groups = zip(self.ks, row["groups"], strict=True) if self.ks else [(row["k"], row["number"])]
                for k, number in groups:
                    united.add((k, row["run"], number), row.get("members", 1), row["summary"])
        yield united.rows()


class _United:
    def __init__(self, options: SummaryOptions) -> None:
        self._options = options
        self._members: dict[GroupKey, int] = {}
        self._summaries: dict[GroupKey, dict[bytes, None]] = {}  # many brokers want the same

    def add(self, key: GroupKey, members: int, summary: bytes) -> None:
        self._members[key] = self._members.get(key, 0) + members
        self._summaries.setdefault(key, {})[summary] = None

    def rows(self) -> pa.RecordBatch:
        rows = []
        for k, run, number in sorted(self._members):
            own = self._summaries[k, run, number]
            summary = united(Summary.decode(octets, self._options) for octets in own)
            members = self._members[k, run, number]
            rows.append(
                {"k": k, "run": run, "number": number, "members": members, "summary": summary.encode()}
            )
        return pa.RecordBatch.from_pylist(rows, schema=GROUPS)


class KnownGroup(NamedTuple):
    k: int
    number: int
    members: int
    summary: Summary


class Reach:
    """How many members events reach: all members of each group whose summary matches, but the publisher.

    Publications have a column `groups`: the publisher's own group for each of `ks`, null if it is in none.
    """

    def __init__(self, groups: pa.Table, options: SummaryOptions, ks: tuple[int, ...]) -> None:
        self._groups = groups
        self._options = options
        self._ks = ks

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        by_run: dict[str, list[KnownGroup]] = {}
        for row in self._groups.to_pylist():
            summary = Summary.decode(row["summary"], self._options)
            by_run.setdefault(row["run"], []).append(
                KnownGroup(row["k"], row["number"], row["members"], summary)
            )
        for batch in batches:
            reached = dict.fromkeys(self._ks, 0)
            problem = None
            events: dict[str, list[tuple[EventDigest, dict[int, int]]]] = {}
            for row in batch.to_pylist():
                event, why = event_of(row)
                if event is None:
                    problem = problem or why
                else:
                    own = dict(zip(self._ks, row["groups"] or (), strict=False))
                    events.setdefault(row["run"], []).append((EventDigest.of(event, self._options), own))
            for run, found in events.items():
                self._add(by_run.get(run, []), found, reached)
            rows = [{"k": k, "reached": count, "problem": problem} for k, count in reached.items()]
            yield pa.RecordBatch.from_pylist(rows, schema=REACHED)

    def _add(
        self,
        groups: list[KnownGroup],
        events: list[tuple[EventDigest, dict[int, int]]],
        reached: dict[int, int],
    ) -> None:
        digests = DigestTable(digest for digest, _ in events)
        for group in groups:
            matches = digests.matching(group.summary)
            own = np.array([numbers.get(group.k) == group.number for _, numbers in events], bool)
            reached[group.k] += int(matches.sum()) * group.members - int((matches & own).sum())


def count_matched(subscriptions: pa.Table, publications: pa.Table) -> pa.Table:
    """Pairs of an event and a broker other than its publisher with a subscription that matches exactly.

    A subscription counts as in `expected.py`: if it stands when the event is published or, for a memorized
    event, is made within its lifetime.
    """
    # Sorted again, because a shuffle keeps no order; at one instant an end comes before a beginning.
    ordered = subscriptions.sort_by([("t", "ascending"), ("stands", "ascending"), ("filter", "ascending")])
    columns = [ordered[name].to_pylist() for name in ("t", "node", "subscription", "filter", "stands")]
    interests = standing(map(Subscribed, *columns))
    index: MatchingIndex[int] = MatchingIndex()
    for number, interest in enumerate(interests):
        index.add(number, Filter.parse(interest.filter))
    matched = 0
    for row in publications.to_pylist():
        event, _ = event_of(row)
        if event is None:
            continue
        last = row["t"] + (row["lifetime"] if row["event_class"] == EventClass.MEMORIZED.value else 0)
        wanting = (interests[number] for number in index.match(event))
        nodes = {
            each.node
            for each in wanting
            if each.since <= last and (each.until is None or each.until > row["t"])
        }
        matched += len(nodes - {event.publisher})
    return pa.table({"matched": [matched]}, schema=MATCHED)


def event_of(row: dict[str, Any]) -> tuple[Event | None, str | None]:
    """The event of a publication, with the parts that filters look at; or why there is none."""
    try:
        attributes = msgspec.json.decode(row["attributes"], type=Attributes)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        named = f"{_of(row['run'])}event {row['publisher']}:{row['sequence']}"
        return None, f"{named} has attributes that are no JSON object of values: {error}"
    event = Event(row["publisher"], row["sequence"], attributes, topic=row["topic"], type=row["type"])
    return event, None


def _of(run: str) -> str:
    return f"run {run}: " if run else ""
