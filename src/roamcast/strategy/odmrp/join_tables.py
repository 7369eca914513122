"""Sending Join Tables: gathered, sent, repeated until the next hop is heard to relay them.

The ODMRP draft makes Join Tables (its Join Replies) reliable by passive acknowledgement: a node hears its
next hop broadcast the same members further on. A publisher relays nothing and acknowledges actively, and so
does a relay that gets the same member a second time. Without an acknowledgement within `TABLE_TIMEOUT` the
members are sent again, with their summaries in full; after `table_retries` repeats other upstream nodes
are tried once each, and then only the next round helps. A lost Join Table would cut off a whole branch.

A node that relayed each Join Table separately would send one per publisher, round and level of the tree
below it. So entries that only refresh wait up to `TABLE_INTERVAL`, and a frame that is due takes all waiting
entries along: Join Tables are broadcast periodically, as in the paper. Changes are sent within `TABLE_DELAY`.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from roamcast.kit.confirm import Unconfirmed
from roamcast.kit.protocol import Messenger, Timer, overflow_traced
from roamcast.kit.tables import ExpiringDict
from roamcast.strategy.odmrp.context import NO_SUBSCRIPTIONS, MeshContext
from roamcast.strategy.odmrp.messages import (
    Acknowledgement,
    AnyMessage,
    JoinTable,
    MemberEntry,
    PublisherRow,
)
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.routes import PublisherRoute, Routes
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

# Tuned on runs like those of figure 10 (`roamcast reproduce odmrp/figure-10`).
TABLE_DELAY: Micros = 100 * MILLISECOND  # a table with changes waits up to this for others to share its frame
TABLE_INTERVAL: Micros = SECOND  # a table that only refreshes waits up to this for others
TABLE_TIMEOUT: Micros = 500 * MILLISECOND  # without a passive acknowledgement by then, it is repeated
FRAME_BYTES = 1_200  # a longer Join Table is split: this and its headers fit an Ethernet frame
NUMBER_BYTES = 9  # of an encoded node number, at most
KNOWN_MAX = 16_384  # members whose versions next hops are known to have; chosen by us
ENTRY_BYTES = 10  # of a member without its summary, roughly
ROW_BYTES = 24  # of a row without its entries, roughly


class SentMember(NamedTuple):
    """One member sent to a next hop that has not acknowledged it yet."""

    next_hop: NodeId
    sequence: int
    version: int
    attempts: int


class JoinTables:
    def __init__(
        self, messenger: Messenger[AnyMessage], routes: Routes, context: MeshContext, options: OdmrpOptions
    ) -> None:
        host = messenger.host
        self._messenger = messenger
        self._host = host
        self._routes = routes
        self._context = context
        self._retries = options.table_retries
        self._send_at: Micros | None = None
        self._send_timer = Timer(host, self._send)
        # By publisher and member: the failed attempts, and whether it is sent after the short delay.
        self._pending: dict[NodeId, dict[NodeId, tuple[int, bool]]] = {}
        self._acknowledge: dict[tuple[NodeId, int], dict[NodeId, None]] = {}
        # By publisher and member.
        self._sent: Unconfirmed[tuple[NodeId, NodeId], SentMember] = Unconfirmed(host, self._on_overdue)
        self._awaited: Counter[NodeId] = Counter()  # how many of them each next hop has not acknowledged
        # By next hop and member: the version that it is known to have, and until when its route stands. What
        # is evicted is sent in full again.
        self.known: ExpiringDict[tuple[NodeId, NodeId], tuple[int, Micros]] = ExpiringDict(
            KNOWN_MAX, overflow_traced(host, "join_table", "KNOWN_MAX"), lambda known: known[1]
        )

    # Inputs.

    def tell(self, publisher: NodeId, member: NodeId, version: int, *, news: bool) -> None:
        """Send `member` towards `publisher`; if this round did so already, acknowledge it again."""
        route = self._routes.standing(publisher, self._host.now())
        if route is None:
            return
        waiting = self._pending.get(publisher, {}).get(member)
        if route.told.get(member) == version and not (waiting and news):
            if waiting is None and member != self._host.node:
                self.acknowledge(publisher, route.request.sequence, member)
            return
        route.told[member] = version
        self._pend(publisher, member, 0, news)

    def acknowledge(self, publisher: NodeId, sequence: int, member: NodeId) -> None:
        self._acknowledge.setdefault((publisher, sequence), {})[member] = None
        self._send_within(TABLE_DELAY)

    def on_table(self, sender: NodeId, table: JoinTable) -> None:
        """What `sender` passes on or acknowledges, it has. Most tables say nothing that is awaited here."""
        if sender not in self._awaited:
            return
        for row in table.rows:
            if row.next_hop != self._host.node:
                members = (entry.member for entry in row.entries)
                self._on_shown(sender, row.publisher, row.sequence, members)
        for said in table.acknowledgements:
            self._on_shown(sender, said.publisher, said.sequence, said.members)

    def forget_all(self) -> None:
        """There is no publisher left."""
        self._sent.clear()
        self._awaited.clear()

    def __len__(self) -> int:
        return len(self._pending) + len(self._sent) + len(self._acknowledge) + len(self.known)

    # Private.

    def _on_shown(self, sender: NodeId, publisher: NodeId, sequence: int, members: Iterable[NodeId]) -> None:
        for member in members:
            sent = self._sent.find((publisher, member))
            if sent is not None and sent.next_hop == sender and sequence >= sent.sequence:
                self._settle(publisher, member)
                route = self._routes.standing(publisher, self._host.now())
                if route is not None:
                    self.known[sender, member] = (sent.version, route.expires_at)

    def _send(self) -> None:
        self._send_at = None
        now = self._host.now()
        rows = []
        for publisher in sorted(self._pending):
            route = self._routes.standing(publisher, now)
            if route is not None:
                rows.append(self._row(publisher, route, self._pending[publisher]))
        self._pending.clear()
        acknowledgements = [
            Acknowledgement(publisher, sequence, tuple(part))
            for (publisher, sequence), members in sorted(self._acknowledge.items())
            for part in _parts(sorted(members))
        ]
        self._acknowledge.clear()
        node = self._host.node
        for table in _frames(rows, acknowledgements):
            own = all(entry.member == node for row in table.rows for entry in row.entries)
            self._messenger.send(table, own=own)

    def _row(
        self, publisher: NodeId, route: PublisherRoute, members: dict[NodeId, tuple[int, bool]]
    ) -> PublisherRow:
        entries = []
        sequence = route.request.sequence
        for member, (attempts, soon) in members.items():
            if member not in route.told:
                continue  # of the round before: it will answer this one
            version = route.told[member]
            octets = None
            if version != NO_SUBSCRIPTIONS and (
                attempts or self.known.get((route.upstream, member), (None,))[0] != version
            ):
                octets = self._context.octets(member, version)
            entries.append(MemberEntry(member, version, octets))
            self._settle(publisher, member)
            sent = SentMember(route.upstream, sequence, version, attempts)
            self._sent.expect((publisher, member), sent, TABLE_TIMEOUT + (0 if soon else TABLE_INTERVAL))
            self._awaited[route.upstream] += 1
        return PublisherRow(publisher, sequence, route.upstream, route.lifetime, tuple(entries))

    def _settle(self, publisher: NodeId, member: NodeId) -> None:
        """Nobody waits for this acknowledgement any more."""
        sent = self._sent.confirm((publisher, member))
        if sent is not None:
            self._owes_less(sent.next_hop)

    def _owes_less(self, next_hop: NodeId) -> None:
        self._awaited[next_hop] -= 1
        if not self._awaited[next_hop]:
            del self._awaited[next_hop]

    def _on_overdue(self, overdue: list[tuple[tuple[NodeId, NodeId], SentMember]]) -> None:
        turned: set[NodeId] = set()
        for (publisher, member), sent in sorted(overdue):
            self._owes_less(sent.next_hop)
            route = self._routes.standing(publisher, self._host.now())
            if route is None or route.told.get(member) != sent.version:
                continue  # the round is over, or a newer version is on its way
            attempts = sent.attempts + 1
            if attempts > self._retries:
                if route.upstream == sent.next_hop and publisher not in turned and not route.turn():
                    continue
                turned.add(publisher)
            self._pend(publisher, member, attempts, True)

    def _pend(self, publisher: NodeId, member: NodeId, attempts: int, soon: bool) -> None:
        self._pending.setdefault(publisher, {})[member] = (attempts, soon)
        self._send_within(TABLE_DELAY if soon else TABLE_INTERVAL)

    def _send_within(self, delay: Micros) -> None:
        """At random between half of the delay and all of it, so that entries share a frame."""
        at = self._host.now() + int((1 + self._host.random.random()) / 2 * delay)
        if self._send_at is None or at < self._send_at:
            self._send_at = at
            self._send_timer.at(at)


def _frames(rows: list[PublisherRow], acknowledgements: list[Acknowledgement]) -> list[JoinTable]:
    """As few frames as hold everything, each small enough for one link-layer frame where that is possible."""
    tables: list[JoinTable] = []
    held: list[PublisherRow] = []
    room = FRAME_BYTES
    for row in rows:
        entries: list[MemberEntry] = []
        room -= ROW_BYTES
        for entry in row.entries:
            size = ENTRY_BYTES + len(entry.summary or b"")
            if size > room and (entries or held):
                if entries:
                    held.append(msgspec.structs.replace(row, entries=tuple(entries)))
                tables.append(JoinTable(tuple(held)))
                held, entries, room = [], [], FRAME_BYTES - ROW_BYTES
            entries.append(entry)
            room -= size
        held.append(msgspec.structs.replace(row, entries=tuple(entries)))
    said: list[Acknowledgement] = []
    for acknowledgement in acknowledgements:
        size = ROW_BYTES + NUMBER_BYTES * len(acknowledgement.members)
        if size > room and (held or said):
            tables.append(JoinTable(tuple(held), tuple(said)))
            held, said, room = [], [], FRAME_BYTES
        said.append(acknowledgement)
        room -= size
    if held or said:
        tables.append(JoinTable(tuple(held), tuple(said)))
    return tables


def _parts(members: list[NodeId]) -> list[list[NodeId]]:
    """Lists of as many members as fit one frame."""
    size = FRAME_BYTES // NUMBER_BYTES
    return [members[first : first + size] for first in range(0, len(members), size)]
