"""Sending Join Tables: gathered, sent, repeated until the next hop is heard to relay them.

The ODMRP draft makes Join Tables (its Join Replies) reliable by passive acknowledgement: a node hears its
next hop broadcast the same members further on. A publisher relays nothing and acknowledges actively, and so
does a relay that gets the same member a second time. Without an acknowledgement within `table_timeout` the
members are sent again, with their summaries in full; after `table_retries` repeats other upstream nodes
are tried once each, and then only the next round helps. A lost Join Table would cut off a whole branch.

A node that relayed each Join Table separately would send one per publisher, round and level of the tree
below it. So entries that only refresh wait up to `table_interval`, and a frame that is due takes all waiting
entries along: Join Tables are broadcast periodically, as in the paper. Changes are sent within `table_delay`.
"""

from collections.abc import Iterable
from operator import attrgetter

from roamcast.host import Frame, Host, Kind
from roamcast.kit.protocol import overflow_traced
from roamcast.kit.tables import BoundedDict
from roamcast.strategy.odmrp.context import MeshContext
from roamcast.strategy.odmrp.mesh.interests import NO_SUBSCRIPTIONS
from roamcast.strategy.odmrp.mesh.messages import CODEC, Acknowledgement, JoinTable, MemberEntry, PublisherRow
from roamcast.strategy.odmrp.mesh.routes import PublisherRoute, Routes
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.units import Micros, NodeId, micros

FRAME_BYTES = 1_200  # a longer Join Table is split: this and its headers fit an Ethernet frame
NUMBER_BYTES = 9  # of an encoded node number, at most
NEXT_HOPS_MAX = 256  # for which the versions they have are remembered; chosen by us
ENTRY_BYTES = 10  # of a member without its summary, roughly
ROW_BYTES = 24  # of a row without its entries, roughly
TIMER_SEND = "table"
TIMER_REPEAT = "table_repeat"


class Awaiting:
    """One member sent to a next hop that has not acknowledged it yet."""

    __slots__ = ("attempts", "due", "next_hop", "sequence", "version")

    def __init__(self, next_hop: NodeId, sequence: int, version: int, attempts: int, due: Micros) -> None:
        self.next_hop = next_hop
        self.sequence = sequence
        self.version = version
        self.attempts = attempts
        self.due = due


DUE = attrgetter("due")


class JoinTables:
    def __init__(
        self,
        host: Host,
        routes: Routes,
        context: MeshContext,
        options: OdmrpOptions,
    ) -> None:
        self._host = host
        self._routes = routes
        self._context = context
        self._delay = micros(options.table_delay)
        self._timeout = micros(options.table_timeout)
        self._retries = options.table_retries
        self._interval = micros(options.table_interval)
        self._send_at: Micros | None = None
        # By publisher and member: the failed attempts, and whether it is sent after the short delay.
        self._pending: dict[NodeId, dict[NodeId, tuple[int, bool]]] = {}
        self._acknowledge: dict[tuple[NodeId, int], dict[NodeId, None]] = {}
        self._awaiting: dict[tuple[NodeId, NodeId], Awaiting] = {}  # by publisher and member
        self._awaited: dict[NodeId, int] = {}  # how many of them each next hop owes an acknowledgement
        # By next hop: the versions it is known to have. An evicted one gets summaries in full again.
        self._has: BoundedDict[NodeId, dict[NodeId, int]] = BoundedDict(
            NEXT_HOPS_MAX, overflow_traced(host, "join_table", "NEXT_HOPS_MAX")
        )

    # Inputs.

    def tell(self, publisher: NodeId, member: NodeId, version: int, *, news: bool) -> None:
        """Send `member` towards `publisher`; if this round did so already, acknowledge it again."""
        route = self._routes.standing(publisher, self._host.now())
        if route is None:
            return
        if route.told.get(member) == version:
            if member not in self._pending.get(publisher, ()):
                self.acknowledge(publisher, route.sequence, member)
            return
        route.told[member] = version
        self._pend(publisher, member, 0, news)

    def acknowledge(self, publisher: NodeId, sequence: int, member: NodeId) -> None:
        self._acknowledge.setdefault((publisher, sequence), {})[member] = None
        self._send_at_latest(self._within(self._delay))

    def awaits(self, sender: NodeId) -> bool:
        """Whether `sender` has not acknowledged something yet."""
        return sender in self._awaited

    def on_heard(self, sender: NodeId, publisher: NodeId, sequence: int, members: Iterable[NodeId]) -> None:
        """`sender` has these members: shown by its own Join Table or an acknowledgement."""
        for member in members:
            awaiting = self._awaiting.get((publisher, member))
            if awaiting is None or awaiting.next_hop != sender or sequence < awaiting.sequence:
                continue
            self._settle(publisher, member, awaiting)
            self._note(sender, member, awaiting.version)
        if not self._awaiting:
            self._host.cancel_timer(TIMER_REPEAT)

    def on_send(self) -> None:
        self._send_at = None
        now = self._host.now()
        rows = []
        for publisher in sorted(self._pending):
            route = self._routes.standing(publisher, now)
            if route is not None:
                rows.append(self._row(publisher, route, self._pending[publisher], now))
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
            self._host.broadcast(Frame(CODEC.encode(table), Kind.CONTROL, "join_table", own=own))
        self._watch()

    def on_repeat(self) -> None:
        now = self._host.now()
        turned: set[NodeId] = set()
        for publisher, member in sorted(key for key, each in self._awaiting.items() if each.due <= now):
            awaiting = self._awaiting[publisher, member]
            self._settle(publisher, member, awaiting)
            route = self._routes.standing(publisher, now)
            if route is None or route.told.get(member) != awaiting.version:
                continue  # the round is over, or a newer version is on its way
            attempts = awaiting.attempts + 1
            if attempts > self._retries:
                if route.upstream == awaiting.next_hop and publisher not in turned and not route.turn():
                    continue
                turned.add(publisher)
            self._pend(publisher, member, attempts, True)
        self._watch()

    def forget_all(self) -> None:
        """There is no publisher left."""
        self._has.clear()
        self._awaiting.clear()
        self._awaited.clear()

    def __len__(self) -> int:
        return len(self._pending) + len(self._awaiting) + len(self._acknowledge) + len(self._has)

    # Private.

    def _row(
        self, publisher: NodeId, route: PublisherRoute, members: dict[NodeId, tuple[int, bool]], now: Micros
    ) -> PublisherRow:
        entries = []
        has = self._has.get(route.upstream, {})
        for member, (attempts, soon) in members.items():
            if member not in route.told:
                continue  # of the round before: it will answer this one
            version = route.told[member]
            octets = None
            if version != NO_SUBSCRIPTIONS and (attempts or has.get(member) != version):
                octets = self._context.octets(member, version)
            entries.append(MemberEntry(member, version, octets))
            due = now + self._timeout + (0 if soon else self._interval)
            awaiting = self._awaiting.get((publisher, member))
            if awaiting is not None:
                self._settle(publisher, member, awaiting)
            waits = Awaiting(route.upstream, route.sequence, version, attempts, due)
            self._awaiting[publisher, member] = waits
            self._awaited[route.upstream] = self._awaited.get(route.upstream, 0) + 1
        return PublisherRow(publisher, route.sequence, route.upstream, route.lifetime, tuple(entries))

    def _settle(self, publisher: NodeId, member: NodeId, awaiting: Awaiting) -> None:
        """Nobody waits for this acknowledgement any more."""
        del self._awaiting[publisher, member]
        left = self._awaited[awaiting.next_hop] - 1
        if left:
            self._awaited[awaiting.next_hop] = left
        else:
            del self._awaited[awaiting.next_hop]

    def _watch(self) -> None:
        if self._awaiting:
            self._host.set_timer(TIMER_REPEAT, min(map(DUE, self._awaiting.values())))

    def _note(self, next_hop: NodeId, member: NodeId, version: int) -> None:
        self._has.setdefault(next_hop, {})[member] = version

    def _pend(self, publisher: NodeId, member: NodeId, attempts: int, soon: bool) -> None:
        self._pending.setdefault(publisher, {})[member] = (attempts, soon)
        self._send_at_latest(self._within(self._delay if soon else self._interval))

    def _within(self, delay: Micros) -> Micros:
        """At random between half of the delay and all of it, so that entries share a frame."""
        return self._host.now() + int((1 + self._host.random.random()) / 2 * delay)

    def _send_at_latest(self, at: Micros) -> None:
        if self._send_at is None or at < self._send_at:
            self._send_at = at
            self._host.set_timer(TIMER_SEND, at)


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
                    held.append(_with(row, entries))
                tables.append(JoinTable(tuple(held)))
                held, entries, room = [], [], FRAME_BYTES - ROW_BYTES
            entries.append(entry)
            room -= size
        held.append(row if len(entries) == len(row.entries) else _with(row, entries))
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


def _with(row: PublisherRow, entries: list[MemberEntry]) -> PublisherRow:
    return PublisherRow(row.publisher, row.sequence, row.next_hop, row.lifetime, tuple(entries))
