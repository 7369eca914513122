"""Who wants what: one record per subscriber, the same in every node in the end (`kit/replica.py`).

A record that is new is told once, together with others of the same moment, unless enough neighbours have told
it meanwhile. Nobody confirms anything; beacons carry a fingerprint of all records, and neighbours that have
differed for a while name their versions to each other and tell what is lacking. Subscribers that want the
same share one row, so that a crowd that wants the same costs a few octets for each.

Filters that another one covers are left out. Of a subscriber with more than `FILTERS_MAX`, or too long ones,
the record says that it wants everything: it gets more than it wants, and its broker matches exactly."""

from collections.abc import Callable, Iterable
from typing import Annotated, NamedTuple

import msgspec

from roamcast.broker.core import Broker
from roamcast.errors import WireError
from roamcast.event import Count, Event
from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.kit.cover import name_number
from roamcast.kit.numbers import StableCounter
from roamcast.kit.protocol import Handlers, Messenger, Timer, WireMessage, random_below
from roamcast.kit.replica import Replica
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.trace import DropReason
from roamcast.units import MILLISECOND, Micros, NodeId

# Chosen by us.
FILTERS_MAX = 16  # of one subscriber
FILTER_BYTES = 1_024  # of all of them
OWNERS_MAX = 10_000
ROWS_MAX = 64  # in one frame
ROW_OWNERS_MAX = 128
VERSIONS_MAX = 500  # named in one frame
CHEAP_VERSIONS = 50  # a longer list is costly, so it waits until no more records come
VERSION_MAX = 1 << 60
# no honest record is so far ahead of the last one, so its owner can always go beyond a forged one
VERSIONS_AHEAD = 1 << 44
TOGETHER: Micros = 250 * MILLISECOND  # records of the same moment share a frame
HEARD_ENOUGH = 2
SPREADING: Micros = 1_500 * MILLISECOND  # what differs for less may still be on its way
FINGERPRINT_BYTES = 4
FRAME_BYTES = 1_000
VERSION_BLOCK = 16

Fingerprint = bytes


class InterestRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`owners`: node and version, one after the other, of those who want this; none of it: nothing."""

    filters: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES)], ...],
        msgspec.Meta(max_length=FILTERS_MAX),
    ]
    owners: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * ROW_OWNERS_MAX)]


class InterestRows(WireMessage, frozen=True, tag=9):
    name = "interests"

    rows: Annotated[tuple[InterestRow, ...], msgspec.Meta(max_length=ROWS_MAX)]


class InterestVersions(WireMessage, frozen=True, tag=10):
    """The versions that the sender has of the owners from `first` to `last`, as `InterestRow.owners`."""

    name = "versions"

    owners: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * VERSIONS_MAX)]
    first: Count
    last: Count
    is_answer: bool


class InterestRecord(NamedTuple):
    version: int
    filters: tuple[bytes, ...]


class Interests:
    def __init__(
        self, messenger: Messenger[WireMessage], broker: Broker, on_record: Callable[[NodeId], object]
    ) -> None:
        """`on_record` hears of each record that is new."""
        self._host = messenger.host
        self._messenger = messenger
        self._broker = broker
        self._on_record = on_record
        self._replica: Replica[NodeId, InterestRecord] = Replica()
        self.records = self._replica.records
        self._index: MatchingIndex[tuple[NodeId, int]] = MatchingIndex()
        self._names: dict[int, int] = {}  # how many owners have this name
        self._versions = StableCounter(self._host.stable, "interests", VERSION_BLOCK)
        self._own_timer = Timer(self._host, self._renew)
        self._tell_timer = Timer(self._host, self._tell_pending)
        self._pending: dict[NodeId, int] = {}  # to be told, and how often they were heard meanwhile
        self._differs: dict[NodeId, Micros] = {}  # neighbours, and since when
        self._said: dict[NodeId, Fingerprint] = {}  # by neighbours
        self.new: set[NodeId] = set()  # neighbours that have not known the same so far
        self._met_at: Micros = self._host.now()  # the last new owner
        self._before = 0  # owners, before new ones began to come
        self._compared: BoundedDict[NodeId, Micros] = BoundedDict(OWNERS_MAX, unreported)
        self.handlers: Handlers = {InterestRows: self._on_rows, InterestVersions: self._on_versions}

    # Inputs.

    def on_changed(self) -> None:
        """The subscriptions of this node's applications have changed."""
        self._own_timer.within(TOGETHER)

    def on_up(self, neighbour: NodeId) -> None:
        """It may come from another part of the network, so records that differ are not just on their way."""
        self._said[neighbour] = b""
        self.new.add(neighbour)

    def on_down(self, neighbour: NodeId) -> None:
        self._differs.pop(neighbour, None)
        self._said.pop(neighbour, None)
        self.new.discard(neighbour)

    def on_fingerprint(self, neighbour: NodeId, theirs: Fingerprint) -> None:
        """A beacon of a neighbour has come with its fingerprint; empty: the same as before."""
        is_said, before = bool(theirs), self._said.get(neighbour, b"")
        self._said[neighbour] = theirs = theirs or before
        if not theirs or theirs == self.fingerprint():
            self._differs.pop(neighbour, None)
            if theirs:
                self.new.discard(neighbour)
            return
        now = self._host.now()
        since = self._differs.setdefault(neighbour, now)
        # The one with the lower number begins; if it does not, the other.
        wait = SPREADING * (bool(before) + (self._host.node > neighbour))
        last = self._compared.get(neighbour, -SPREADING)
        if len(self.records) > CHEAP_VERSIONS:
            last = max(last, self._met_at)  # records still come
        if is_said and now - since >= wait and now - last >= SPREADING:
            self._compared.renew(neighbour, now)
            self._send_versions(neighbour, is_answer=False)

    # Questions.

    def fingerprint(self) -> Fingerprint:
        return (self._replica.fingerprint & 0xFFFFFFFF).to_bytes(FINGERPRINT_BYTES, "big")

    @property
    def is_agreed(self) -> bool:
        """Whether this node knows all interests that it should know by now."""
        mine, overdue = self.fingerprint(), self._host.now() - 2 * SPREADING
        differing = (node for node, since in self._differs.items() if since <= overdue)
        return len(self.records) < OWNERS_MAX and all(self._said[node] == mine for node in differing)

    @property
    def are_settled(self) -> bool:
        """Whether hardly any subscriber was new lately. While a network starts, few interests are known, so
        few nodes seem to want anything."""
        is_quiet = self._host.now() - self._met_at > 2 * SPREADING
        return is_quiet or 5 * self._before >= 4 * len(self.records)

    def wanting(self, event: Event) -> set[NodeId]:
        """The nodes that want an event, by their records and as its destinations."""
        wanting = set(event.destinations)
        if event.wants_subscribers:
            wanting.update(owner for owner, _ in self._index.match(event))
        return wanting

    def wants(self, owner: NodeId, event: Event) -> bool:
        record = self.records.get(owner)
        return record is not None and any(Filter.decode(one).matches(event) for one in record.filters)

    def is_ambiguous(self, name: int) -> bool:
        return self._names.get(name, 0) > 1

    # Private.

    def _renew(self) -> None:
        filters = summary(one.filter for one in self._broker.subscriptions())
        before = self.records.get(self._host.node)
        if (() if before is None else before.filters) != filters:
            self._enter(self._host.node, InterestRecord(self._versions.take(), filters))

    def _on_rows(self, sender: NodeId, message: InterestRows) -> None:
        me = self._host.node
        for row in message.rows:
            for owner, version in zip(row.owners[::2], row.owners[1::2], strict=False):
                known = self._replica.version(owner)
                if version == known and owner in self._pending:
                    self._pending[owner] += 1
                if version <= known or version > min(VERSION_MAX, max(known, 0) + VERSIONS_AHEAD):
                    continue
                if owner == me:  # from before a crash, or forged
                    self._versions.skip_to(version + 1)
                    mine = self.records.get(me, InterestRecord(0, ()))
                    self._enter(me, InterestRecord(self._versions.take(), mine.filters))
                elif known >= 0 or len(self.records) < OWNERS_MAX:
                    self._enter(owner, InterestRecord(version, row.filters))

    def _enter(self, owner: NodeId, record: InterestRecord) -> None:
        try:
            filters = [Filter.decode(one) for one in record.filters]
        except WireError as error:
            self._messenger.drop(DropReason.WIRE, "interests", detail=str(error))
            return
        before = self.records.get(owner)
        if before is None:
            name = name_number(owner)
            self._names[name] = self._names.get(name, 0) + 1
            if self._host.now() - self._met_at > 2 * SPREADING:
                self._before = len(self.records)
            self._met_at = self._host.now()
        else:
            for place in range(len(before.filters)):
                self._index.remove((owner, place))
        for place, one in enumerate(filters):
            self._index.add((owner, place), one)
        self._replica.enter(owner, record)
        if not self._pending:
            self._tell_timer.within(TOGETHER)
        self._pending[owner] = 0
        self._on_record(owner)

    def _tell_pending(self) -> None:
        pending, self._pending = self._pending, {}
        self._tell(owner for owner, heard in pending.items() if heard < HEARD_ENOUGH)

    def _tell(self, owners: Iterable[NodeId]) -> None:
        same: dict[tuple[bytes, ...], list[int]] = {}
        for owner in sorted(owners):
            version, filters = self.records[owner]
            same.setdefault(filters, []).extend((owner, version))
        rows: list[InterestRow] = []
        room = FRAME_BYTES
        for filters, flat in same.items():
            for at in range(0, len(flat), 2 * ROW_OWNERS_MAX):
                row = InterestRow(filters, tuple(flat[at : at + 2 * ROW_OWNERS_MAX]))
                octets = sum(map(len, filters)) + 9 * len(row.owners)
                if rows and (octets > room or len(rows) >= ROWS_MAX):
                    self._messenger.send(InterestRows(tuple(rows)))
                    rows, room = [], FRAME_BYTES
                rows.append(row)
                room -= octets
        if rows:
            self._messenger.send(InterestRows(tuple(rows)))

    # Comparing.

    def _send_versions(self, to: NodeId, *, is_answer: bool) -> None:
        """Of more than fit into a frame a part, each time from another owner on."""
        owners = sorted(self.records)
        at = random_below(self._host, len(owners)) if len(owners) > VERSIONS_MAX else 0
        part = owners[at : at + VERSIONS_MAX]
        first, last = (part[0] if at else 0), (part[-1] if at + len(part) < len(owners) else (1 << 63) - 1)
        flat = tuple(number for owner in part for number in (owner, self.records[owner].version))
        self._messenger.send(InterestVersions(flat, first, last, is_answer), to)

    def _on_versions(self, sender: NodeId, message: InterestVersions) -> None:
        theirs = dict(zip(message.owners[::2], message.owners[1::2], strict=False))
        newer = self._replica.newer_than(theirs)
        self._tell(owner for owner in newer if message.first <= owner <= message.last)
        if not message.is_answer and self._replica.older_than(theirs):
            self._send_versions(sender, is_answer=True)


def summary(filters: Iterable[Filter]) -> tuple[bytes, ...]:
    """What a record says of these: less where one covers another, everything where it would be too much."""
    wide: list[Filter] = []
    for one in sorted(set(filters), key=Filter.encode):
        if not any(other.covers(one) for other in wide):
            wide = [other for other in wide if not one.covers(other)] + [one]
        if len(wide) > FILTERS_MAX:
            break
    encoded = tuple(sorted(one.encode() for one in wide))
    if len(encoded) > FILTERS_MAX or sum(map(len, encoded)) > FILTER_BYTES:
        return (Filter.everything().encode(),)
    return encoded
