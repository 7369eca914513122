"""Telling each neighbour which filters to send events for, and reading what it tells us.

What to announce is decided in `tables.py`, how two copies of a set are kept equal in `session.py`; here are
the messages and their timers.
"""

from collections.abc import Callable, Mapping

import msgspec

from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.strategy.tree.content.messages import (
    ContentMessage,
    FilterChange,
    Refresh,
    UpdateAcknowledgement,
)
from roamcast.strategy.tree.content.neighbour import TIMER, TreeNeighbour
from roamcast.strategy.tree.content.options import ContentOptions
from roamcast.strategy.tree.content.session import FilterAnnouncement, NeighbourTable, Outcome
from roamcast.strategy.tree.content.tables import RoutingTables
from roamcast.units import Micros, NodeId, micros

TABLE_MAX = 4_096  # filters taken from one neighbour, whatever bound it has for itself; chosen by us
BACKOFF_MAX = 8  # times `table_retry_interval`: the longest wait between repeats; chosen by us


class Announcer:
    def __init__(
        self,
        host: Host,
        options: ContentOptions,
        links: Mapping[NodeId, TreeNeighbour],
        tables: RoutingTables,
        send: Callable[[NodeId, ContentMessage, str, bool], None],
    ) -> None:
        """`send(neighbour, message, name, own)`: one control message over a tree link."""
        self._host = host
        self._options = options
        self._links = links
        self._tables = tables
        self._send = send
        # A neighbour that does not answer is probably gone, so updates to it are repeated ever less often.
        retry_interval = micros(options.table_retry_interval)
        self._backoff = Backoff(retry_interval, longest=BACKOFF_MAX * retry_interval)
        self._refresh_interval = micros(options.table_refresh_interval)

    def neighbour(self, node: NodeId, session: int) -> TreeNeighbour:
        """The record of a new link."""
        return TreeNeighbour(
            node,
            FilterAnnouncement(session, self._options.table_bytes_max),
            NeighbourTable(TABLE_MAX),
            Repetition(self._host, (TIMER, "retry", node), self._backoff),
        )

    # Inputs.

    def on_start(self) -> None:
        # At random times: nodes that boot together would otherwise send their reminders together for ever.
        first = int(self._host.random.random() * self._refresh_interval)
        self._host.set_timer((TIMER, "refresh"), self._host.now() + first)

    def announce_soon(self) -> None:
        """At the end of this instant, so that simultaneous changes share one message."""
        self._host.set_timer((TIMER, "announce"), self._host.now())

    def announce_all(self) -> None:
        self._tables.on_time(self._host.now())
        for neighbour in self._tables.take_changed():
            self.announce(self._links[neighbour])
        due = self._tables.next_due()
        if due is not None:
            self._host.set_timer((TIMER, "announce"), due)

    def remind_all(self) -> None:
        for neighbour, link in sorted(self._links.items()):
            reminder = link.announcement.refresh()
            if reminder is not None:
                self._send(neighbour, reminder, "refresh", False)
        self._host.set_timer((TIMER, "refresh"), self._host.now() + self._refresh_interval)

    def retry(self, neighbour: NodeId) -> None:
        link = self._links[neighbour]
        if link.announcement.outstanding is None:
            self.announce(link)
        else:
            self._send_update(link)

    def on_change(self, link: TreeNeighbour, change: FilterChange) -> Outcome:
        """The neighbour's update; where it was applied, the caller looks at the new table."""
        outcome = link.received.on_change(change)
        if outcome is Outcome.LOST:
            self._answer(link, UpdateAcknowledgement(change.session, link.received.version, True))
        elif outcome is not Outcome.STALE:
            self._answer(link, UpdateAcknowledgement(change.session, change.version))
        return outcome

    def on_acknowledge(self, link: TreeNeighbour, answer: UpdateAcknowledgement) -> None:
        if not link.announcement.on_acknowledge(answer):
            return
        if answer.lost:
            # After a wait: two nodes with different bounds would otherwise exchange messages without a pause.
            link.repetition.wait_again()
            return
        link.repetition.end()
        self.announce(link)

    def on_refresh(self, link: TreeNeighbour, refresh: Refresh) -> None:
        if link.received.is_behind(refresh) and not link.received.agrees(refresh):
            self._answer(link, UpdateAcknowledgement(refresh.session, link.received.version, True))

    def announce(self, link: TreeNeighbour) -> None:
        now = self._host.now()

        def age_of(wanted: Filter) -> Micros:
            since = self._tables.outgoing_since(link.neighbour, wanted)
            return 0 if since is None else max(0, now - since)

        if link.announcement.next_update(self._tables.outgoing(link.neighbour), age_of) is not None:
            link.repetition.restart()
            link.update_made_at = now
            self._send_update(link)

    # Private.

    def _send_update(self, link: TreeNeighbour) -> None:
        update = link.announcement.outstanding
        assert update is not None
        waited = self._host.now() - link.update_made_at
        older = tuple((encoded, age + waited) for encoded, age in update.add)
        changed = [Filter.decode(encoded) for encoded in [*(each for each, _ in older), *update.remove]]
        own = bool(changed) and all(self._tables.is_local(each) for each in changed)
        self._send(link.neighbour, msgspec.structs.replace(update, add=older), "subscription", own)
        link.repetition.attempt()

    def _answer(self, link: TreeNeighbour, answer: UpdateAcknowledgement) -> None:
        self._send(link.neighbour, answer, "acknowledge", False)
