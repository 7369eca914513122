"""What all nodes know: rows that each have an owner and a version, spread to everyone.

A row that is new is passed on once by the relays of the underlay (all nodes, where it has none), together
with others that came in the same moment, unless enough neighbours have been heard to pass it on. Nobody
confirms anything. What got lost is found by comparison: every node says the fingerprint of its rows now and
then (`floods.py`, `kit/replica.py`), and whoever hears another one than its own names its rows to that
neighbour, which then tells the newer ones it has.

Two kinds: a broker's row, by the broker (BTT and BIT), and a client's row, by its home broker (who is at
home where and wants what). A broker's row that is not renewed in time is forgotten, and a client's with that
of its home.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from roamcast.errors import WireError
from roamcast.kit.protocol import Messenger, Timer, overflow_traced, random_below
from roamcast.kit.repair import FINGERPRINTS
from roamcast.kit.replica import Replica
from roamcast.kit.spread import Audience
from roamcast.kit.tables import BoundedDict
from roamcast.strategy.opportunistic.messages import (
    BROKER_ROWS,
    CLIENT_ROWS,
    NUMBERS_MAX,
    ROWS_MAX,
    BrokerRow,
    ClientRow,
    FrameMessage,
    Row,
    RowNumbers,
    Rows,
)
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.trace import DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

BROKER, CLIENT = 0, 1
VERSION_MAX = 1 << 60
VERSIONS_PER_START = 1 << 20  # of a broker's row in each of its boots, of a client's in each generation
# No row can be farther ahead of what is known than this (16 million boots). A forged row is at most that far
# ahead, and its owner then posts a newer one.
VERSIONS_AHEAD = 1 << 44
ENTRIES_MAX = 20_000
JITTER: Micros = 250 * MILLISECOND  # chosen: rows of the same moment share a frame; 120 takes a fifth more
HEARD_ENOUGH = 4  # copies, the first included
FRAME_OCTETS = 1_100
SPREADING: Micros = 2_500 * MILLISECOND  # what differs for less may still be on its way
NEIGHBOURS_MAX = 1_024
NAME_EVERY: Micros = 2 * SECOND  # at most so often this node names its rows
CACHED = 1_024  # rows that a frame with others brings again, or in a simulation to many nodes
ROW_OCTETS = 14  # beside its body, about

Key = tuple[int, NodeId]


class BoardEntry(msgspec.Struct, frozen=True, gc=False):
    version: int
    made_at: Micros
    body: bytes
    content: BrokerRow | ClientRow


@dataclass(slots=True)
class HeardCopies:
    """What this node may pass on: how often others have done so, and whom they reached."""

    enough: int
    heard: int = 0
    covered: set[NodeId] = field(default_factory=set)

    def hear(self, sender: NodeId, reached: Iterable[NodeId]) -> None:
        self.heard += 1
        self.covered.add(sender)
        self.covered.update(reached)

    def is_needed(self, around: Audience, now: Micros) -> bool:
        return self.heard < self.enough and around.lacks(self.covered, now)


class Board:
    def __init__(
        self,
        messenger: Messenger[FrameMessage],
        underlay: Underlay,
        around: Audience,
        options: OpportunisticOptions,
        on_row: Callable[[int, NodeId, BoardEntry | None], None],
    ) -> None:
        """`on_row` hears of every row that is new to this node, its own too, and with None of one that is
        forgotten."""
        self.messenger = self._messenger = messenger
        self._host = messenger.host
        self._underlay = underlay
        self._around = around
        self.lifetime = micros(options.registration_lifetime)  # of a broker's row that is not renewed
        self._on_row = on_row
        self._rows_timer = Timer(self._host, self._pass_pending_on)
        self._numbers_timer = Timer(self._host, self._name_rows)
        self._replica: Replica[Key, BoardEntry] = Replica()
        self._entries = self._replica.records
        self._pending: dict[Key, HeardCopies] = {}  # to be passed on
        self._different: NodeId | None = None  # a neighbour to whom we shall name our rows
        self._named_at: Micros = -NAME_EVERY
        self._differs: BoundedDict[NodeId, Micros] = BoundedDict(  # neighbours, and since when
            NEIGHBOURS_MAX, overflow_traced(self._host, "digest", "neighbours that differ")
        )
        self._changed_at: Micros = 0  # the last time that a row came in here

    # Inputs.

    def post(self, kind: int, node: NodeId, version: int, content: BrokerRow | ClientRow) -> None:
        """A row of our own, newer than the one before."""
        key, now = (kind, node), self._host.now()
        self._enter(key, entry_of(version, now, content), now)
        self._pass_on(key)

    def on_rows(self, sender: NodeId, rows: Rows) -> None:
        entries, pending = self._entries, self._pending
        is_relay: bool | None = None  # asked once for a frame, like the time
        now: Micros = -1
        reached = self._underlay.neighbours_of(sender)
        for row in rows.rows:
            key = (row.kind, row.node)
            known = entries.get(key)
            if known is not None and known.version >= row.version:
                if key in pending and known.version == row.version:
                    pending[key].hear(sender, reached)
                continue
            if now < 0:
                now = self._host.now()
            entry = self.opened(row, known, now)
            if entry is not None:
                self._enter(key, entry, now)
                if is_relay is None:
                    is_relay = self._underlay.is_relay(self._host.node)
                if is_relay:
                    self._pass_on(key)
                    pending[key].hear(sender, reached)

    def on_fingerprint(self, sender: NodeId, other: int) -> bool:
        """A neighbour's; whether it is ours. If it has differed for long, or no row has come here for long,
        it lacks a row or has one that we lack."""
        if other == self.fingerprint:
            self._differs.pop(sender, None)
            if self._different == sender:
                self._different = None
            return True
        now = self._host.now()
        if self._is_overdue(self._differs.setdefault(sender, now), now):
            self._name_to(sender)
        return False

    def on_met(self, neighbour: NodeId) -> None:
        """It may come from another part of the network, so rows that differ are not just on their way."""
        self._differs[neighbour] = self._host.now() - SPREADING

    def on_lost(self, neighbour: NodeId) -> None:
        self._differs.pop(neighbour, None)

    def on_numbers(self, sender: NodeId, numbers: RowNumbers) -> None:
        """What is newer here is told, to all who hear it: others may lack it, too. What is newer there is
        asked for, by what we have of it."""
        if self._different == sender:
            self._different = None  # this answers for both
        named = numbers.numbers
        theirs = {
            (kind, node): start * VERSIONS_PER_START + count
            for kind, node, start, count in zip(*(named[at::4] for at in range(4)), strict=False)
        }
        newer = self._replica.newer_than(theirs)
        self._broadcast(newer if numbers.is_all else [key for key in newer if key in theirs])
        # Version 0 means that the sender lacks the row too. Otherwise the two would ask each other for it
        # without end.
        lacking = [key for key in self._replica.older_than(theirs) if theirs[key]]
        if lacking:
            self._send_numbers(sender, lacking, is_all=False)

    def _name_rows(self) -> None:
        to, self._different = self._different, None
        since = None if to is None else self._differs.get(to)
        now = self._host.now()
        if to is not None and since is not None and self._is_overdue(since, now):
            self._named_at = now
            self._send_numbers(to, self._entries, is_all=True)

    def _send_numbers(self, to: NodeId, keys: Iterable[Key], *, is_all: bool) -> None:
        """0: of a row that we do not have."""
        versions = ((key, max(self._replica.version(key), 0)) for key in keys)
        flat = tuple(n for key, version in versions for n in (*key, *divmod(version, VERSIONS_PER_START)))
        self._messenger.send(RowNumbers(flat[: 4 * NUMBERS_MAX], is_all), to)

    def _pass_pending_on(self) -> None:
        pending, self._pending = self._pending, {}
        now = self._host.now()
        if self._around.may_hear(now):
            self._broadcast([key for key, heard in pending.items() if heard.is_needed(self._around, now)])

    def forget_silent(self) -> None:
        """Now and then: brokers that have not been heard of, and their clients."""
        before = self._host.now() - self.lifetime
        gone = self._replica.forget(lambda key, entry: key[0] == BROKER and entry.made_at < before)
        known = {node for kind, node in self._entries if kind == BROKER}
        gone += self._replica.forget(
            lambda _, entry: (
                isinstance(entry.content, ClientRow)
                and entry.made_at < before
                and entry.content.home not in known
            )
        )
        for key in gone:
            self._pending.pop(key, None)
            self._on_row(*key, None)

    # Questions.

    @property
    def fingerprint(self) -> int:
        """The fingerprint of all rows and their versions, so much of it as is said."""
        return self._replica.fingerprint % FINGERPRINTS

    def find(self, kind: int, node: NodeId) -> BoardEntry | None:
        return self._entries.get((kind, node))

    # Private.

    def _is_overdue(self, since: Micros, now: Micros) -> bool:
        """Whether rows that have differed since then would have arrived by now."""
        return now - since >= SPREADING or now - self._changed_at >= SPREADING

    def _name_to(self, neighbour: NodeId) -> None:
        """Name our rows to a neighbour; it then tells what we lack."""
        if self._different is None:
            self._different = neighbour
            earliest = max(self._host.now(), self._named_at + NAME_EVERY)
            self._numbers_timer.at(earliest + random_below(self._host, SECOND // 2))

    def opened(self, row: Row, known: BoardEntry | None, now: Micros) -> BoardEntry | None:
        """A row that another node sent, if it may be one; `known`: what stands here in its place."""
        made_at = now - row.age * MILLISECOND
        problem = ""
        limit = min((0 if known is None else known.version) + VERSIONS_AHEAD, VERSION_MAX)
        if row.kind not in (BROKER, CLIENT) or row.version >= limit:
            problem = f"row {row.kind} of {row.node} has version {row.version}; allowed: below {limit}"
        elif known is None and len(self._entries) >= ENTRIES_MAX:
            problem = "too many rows"
        elif row.kind == BROKER and made_at < now - self.lifetime:
            return None
        else:
            try:
                return BoardEntry(row.version, made_at, row.body, _decode(row.kind, row.body))
            except WireError as error:
                problem = str(error)
        self._messenger.drop(DropReason.WIRE, "rows", detail=problem)
        return None

    def _enter(self, key: Key, entry: BoardEntry, now: Micros) -> None:
        if self._replica.enter(key, entry):
            self._changed_at = now
            self._on_row(*key, entry)

    def _pass_on(self, key: Key) -> None:
        if not self._pending:
            self._rows_timer.within(JITTER)
        self._pending[key] = HeardCopies(HEARD_ENOUGH)

    def _broadcast(self, keys: list[Key]) -> None:
        entries = [(key, self._entries[key]) for key in keys if key in self._entries]
        for rows in in_frames(entries, self._host.now()):
            is_own = all(row.node == self._host.node for row in rows)
            self._messenger.send(Rows(rows), own=is_own)


def in_frames(entries: list[tuple[Key, BoardEntry]], now: Micros) -> Iterator[tuple[Row, ...]]:
    """As rows on the wire, so many together as a frame takes."""
    rows: list[Row] = []
    octets = 0
    for key, entry in entries:
        more = ROW_OCTETS + len(entry.body)
        if rows and (octets + more > FRAME_OCTETS or len(rows) >= ROWS_MAX):
            yield tuple(rows)
            rows, octets = [], 0
        rows.append(Row(*key, entry.version, max(now - entry.made_at, 0) // MILLISECOND, entry.body))
        octets += more
    if rows:
        yield tuple(rows)


def entry_of(version: int, now: Micros, content: BrokerRow | ClientRow) -> BoardEntry:
    body = BROKER_ROWS.encode(content) if isinstance(content, BrokerRow) else CLIENT_ROWS.encode(content)
    return BoardEntry(version, now, body, content)


@lru_cache(maxsize=CACHED)
def _decode(kind: int, body: bytes) -> BrokerRow | ClientRow:
    return (BROKER_ROWS if kind == BROKER else CLIENT_ROWS).decode(body)
