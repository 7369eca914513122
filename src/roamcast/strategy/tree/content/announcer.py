"""Telling each neighbour which filters to send events for, and reading what it tells us.

What to announce is decided in `tables.py`; here a neighbour's copy of a set of filters is kept equal to ours,
over a link that loses messages. For each direction of a link there is one `FilterAnnouncement` (the sender)
and one `NeighbourTable` (the receiver). The sender has at most one update outstanding and repeats it until it
is acknowledged. Changes in between go into the next update, so a burst of changes costs one message. Each
update names the version it builds on. A receiver that does not hold this version says so and gets the whole
set.

A session is one incarnation of a link on the sender's side. Session numbers of a node only increase (its
boots are counted in stable storage), so that a delayed message of an earlier incarnation is never taken for
a new one.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable
from itertools import accumulate

import msgspec

from roamcast.filter import Filter
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.kit.numbers import count_boot
from roamcast.kit.protocol import KeyedTimer, Timer, Timers
from roamcast.strategy.tree.content.messages import (
    ENTRIES_MAX,
    FilterUpdate,
    LinkMessenger,
    Refresh,
    UpdateAcknowledgement,
)
from roamcast.strategy.tree.content.tables import RoutingTables
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

TABLE_MAX = 4_096  # filters taken from one neighbour, whatever bound it has for itself; chosen by us
# Of an update that is not acknowledged; chosen by us. A neighbour that does not answer is probably gone, so
# updates to it are repeated ever less often.
RETRY = Backoff(250 * MILLISECOND, longest=2 * SECOND)
BOOTS = "tree-boots"  # key in stable storage
SESSIONS_PER_BOOT = 1 << 32  # any number works that no boot uses up


class Announcer:
    def __init__(self, messenger: LinkMessenger, options: TreeOptions, tables: RoutingTables) -> None:
        self._messenger = messenger
        self._host = messenger.host
        self._tables = tables
        self._bytes_max = options.table_bytes_max
        self._refresh_interval = micros(options.table_refresh_interval)
        self._session = count_boot(messenger.host.stable, BOOTS) * SESSIONS_PER_BOOT
        self.sessions: dict[NodeId, TableSession] = {}
        self._announce_timer = Timer(messenger.host, self._announce_all)
        self._refresh_timer = Timer(messenger.host, self._remind_all)
        self._retry_timers = Timers(messenger.host, self._retry)

    # Inputs.

    def on_start(self) -> None:
        # At random times: nodes that boot together would otherwise send their reminders together for ever.
        self._refresh_timer.within(self._refresh_interval)

    def on_link_up(self, neighbour: NodeId) -> None:
        self._session += 1
        repetition = Repetition(self._host, KeyedTimer(self._retry_timers, neighbour), RETRY)
        announcement = FilterAnnouncement(self._session, self._bytes_max)
        self.sessions[neighbour] = TableSession(neighbour, announcement, repetition)
        self.announce_soon()

    def on_link_down(self, neighbour: NodeId) -> None:
        self.sessions.pop(neighbour).repetition.end()
        self.announce_soon()

    def announce_soon(self) -> None:
        """At the end of this instant, so that simultaneous changes share one message."""
        self._announce_timer.after(0)

    def on_update(self, neighbour: NodeId, update: FilterUpdate) -> bool:
        """Whether it was applied; then the caller looks at the new table."""
        received = self.sessions[neighbour].received
        before = received.session, received.version
        answer = received.on_update(update, self._host.now())
        if answer is not None:
            self._messenger.to_neighbour(neighbour, answer)
        return (received.session, received.version) != before

    def on_acknowledge(self, neighbour: NodeId, answer: UpdateAcknowledgement) -> None:
        session = self.sessions[neighbour]
        if not session.announcement.on_acknowledge(answer):
            return
        if answer.lost:
            # After a wait: two nodes with different bounds would otherwise exchange messages without a pause.
            session.repetition.wait_again()
            return
        session.repetition.end()
        self._announce(session)

    def on_refresh(self, neighbour: NodeId, refresh: Refresh) -> None:
        received = self.sessions[neighbour].received
        if received.is_outdated(refresh):
            self._messenger.to_neighbour(
                neighbour, UpdateAcknowledgement(refresh.session, received.version, True)
            )

    def has_table_of(self, neighbour: NodeId) -> bool:
        """Whether the neighbour has sent a table: then the link is up at its end and our data is read."""
        return self.sessions[neighbour].received.session >= 0

    def restart(self, neighbour: NodeId) -> None:
        """The neighbour has forgotten our table."""
        self.sessions[neighbour].announcement.restart()
        self._announce(self.sessions[neighbour])

    # Private.

    def _announce_all(self) -> None:
        self._tables.on_time(self._host.now())
        for neighbour in self._tables.take_changed():
            self._announce(self.sessions[neighbour])
        due = self._tables.next_due()
        if due is not None:
            self._announce_timer.at(due)

    def _remind_all(self) -> None:
        for neighbour, session in sorted(self.sessions.items()):
            reminder = session.announcement.refresh()
            if reminder is not None:
                self._messenger.to_neighbour(neighbour, reminder)
        self._refresh_timer.after(self._refresh_interval)

    def _retry(self, neighbour: NodeId) -> None:
        session = self.sessions[neighbour]
        if session.announcement.outstanding is None:
            self._announce(session)
        else:
            self._send_update(session)

    def _announce(self, session: "TableSession") -> None:
        now = self._host.now()

        def age_of(wanted: Filter) -> Micros:
            since = self._tables.outgoing_since(session.neighbour, wanted)
            return 0 if since is None else max(0, now - since)

        if session.announcement.next_update(self._tables.outgoing(session.neighbour), age_of) is not None:
            session.repetition.restart()
            session.update_made_at = now
            self._send_update(session)

    def _send_update(self, session: "TableSession") -> None:
        update = session.announcement.outstanding
        assert update is not None
        waited = self._host.now() - session.update_made_at
        older = tuple((encoded, age + waited) for encoded, age in update.add)
        changed = [Filter.decode(encoded) for encoded in [*(each for each, _ in older), *update.remove]]
        own = bool(changed) and all(self._tables.is_local(each) for each in changed)
        self._messenger.to_neighbour(session.neighbour, msgspec.structs.replace(update, add=older), own=own)
        session.repetition.attempt()


class TableSession:
    """One incarnation of a link: both copies of the two sets of filters."""

    def __init__(self, neighbour: NodeId, announcement: "FilterAnnouncement", repetition: Repetition) -> None:
        self.neighbour = neighbour
        self.announcement = announcement
        self.received = NeighbourTable(TABLE_MAX)
        self.repetition = repetition  # of the update that awaits its acknowledgement
        self.update_made_at: Micros = 0


class FilterAnnouncement:
    """The filters that this node announces to one neighbour."""

    def __init__(self, session: int, bytes_max: int) -> None:
        self.session = session
        self.outstanding: FilterUpdate | None = None
        self.told: set[Filter] = set()  # what the neighbour holds once the outstanding update has arrived
        self._bytes_max = bytes_max
        self._version = 0
        self._base = 0  # the version that the next update builds on
        self._complete = False

    def next_update(
        self, wanted: Collection[Filter], age_of: Callable[[Filter], Micros]
    ) -> FilterUpdate | None:
        """The next update towards `wanted`; None if one is outstanding or nothing has changed.

        It stays `outstanding` until acknowledged. `age_of` gives the age of each added filter.
        """
        if self.outstanding is not None:
            return None
        added = [each for each in wanted if each not in self.told]
        gone = [each for each in self.told if each not in wanted]
        if self._complete and not added and not gone:
            return None
        add, remove, complete = self._fitting(added, gone)
        self._version += 1
        self.outstanding = FilterUpdate(
            self.session,
            self._base,
            self._version,
            complete,
            tuple((each.encode(), age_of(each)) for each in add),
            tuple(each.encode() for each in remove),
        )
        self.told.update(add)
        self.told.difference_update(remove)
        self._base = self._version
        self._complete = complete
        return self.outstanding

    def on_acknowledge(self, answer: UpdateAcknowledgement) -> bool:
        """True if the outstanding update is settled, and the next one may be sent."""
        if answer.session != self.session:
            return False
        if answer.lost:
            self.restart()
            return True
        if self.outstanding is None or answer.version != self.outstanding.version:
            return False
        self.outstanding = None
        return True

    def restart(self) -> None:
        """The neighbour holds nothing that an update could build on: the next one has the whole set."""
        self.outstanding = None
        self.told = set()
        self._base = 0
        self._complete = False

    def refresh(self) -> Refresh | None:
        """The reminder, once the neighbour has acknowledged the whole set. An outstanding update is repeated
        anyway."""
        if self.outstanding is not None or not self._complete:
            return None
        return Refresh(self.session, self._version, digest_of(self.told))

    def _fitting(self, added: list[Filter], gone: list[Filter]) -> tuple[list[Filter], list[Filter], bool]:
        """As many changes as one message carries, at least one; sorted: equal sets give equal octets."""
        changes = [(each, True) for each in sorted(added, key=Filter.encode)]
        changes += [(each, False) for each in sorted(gone, key=Filter.encode)]
        octets = accumulate(len(each.encode()) for each, _ in changes[:ENTRIES_MAX])
        fitting = max(1, sum(so_far <= self._bytes_max for so_far in octets))
        taken = changes[:fitting]
        return (
            [each for each, is_new in taken if is_new],
            [each for each, is_new in taken if not is_new],
            fitting >= len(changes),
        )


class NeighbourTable:
    """The filters that one neighbour announced to this node."""

    def __init__(self, filters_max: int) -> None:
        self.session = -1
        self.version = 0
        self._filters_max = filters_max
        self._staged: dict[Filter, Micros] = {}
        self._complete = False

    def on_update(self, change: FilterUpdate, now: Micros) -> UpdateAcknowledgement | None:
        """The answer, if there is one. `WireError` where an octet string is no filter."""
        lost = UpdateAcknowledgement(change.session, self.version, True)
        if change.session < self.session:
            return None  # of an earlier session
        if change.session == self.session and change.version <= self.version:
            return UpdateAcknowledgement(change.session, change.version)  # the first one was lost
        if change.base and (change.session, change.base) != (self.session, self.version):
            return lost  # it does not build on the version we hold
        staged = dict(self._staged) if change.base else {}
        for encoded in change.remove:
            staged.pop(Filter.decode(encoded), None)
        # Ages become times of this node's clock.
        staged.update((Filter.decode(encoded), now - age) for encoded, age in change.add)
        if len(staged) > self._filters_max:
            return lost
        self.session = change.session
        self.version = change.version
        self._staged = staged
        self._complete = change.complete
        return UpdateAcknowledgement(change.session, change.version)

    def table(self) -> dict[Filter, Micros] | None:
        """Each wanted filter with the time since which it is wanted; None while the set is not complete."""
        return dict(self._staged) if self._complete else None

    def is_outdated(self, refresh: Refresh) -> bool:
        """Whether this is not the table of the reminder. One of an earlier session is worth no answer."""
        return refresh.session >= self.session and not (
            (refresh.session, refresh.version) == (self.session, self.version)
            and self._complete
            and digest_of(self._staged) == refresh.digest
        )


def digest_of(filters: Iterable[Filter]) -> bytes:
    """The same for equal sets on every node."""
    sum_ = hashlib.blake2b(digest_size=8)
    for encoded in sorted(each.encode() for each in filters):
        sum_.update(len(encoded).to_bytes(4, "big"))
        sum_.update(encoded)
    return sum_.digest()
