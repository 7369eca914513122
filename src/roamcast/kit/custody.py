"""Which nodes a full store waits for, and which of its events they have had.

A publisher that was told that its event is kept relies on this node until every node that this one knows has
had the event. A node is waited for while it is a neighbour and for `ABSENT_WAIT` after it was last one,
across a restart of this node too; after that, events are not kept for it any more, and none is kept beyond
its lifetime. Each node is responsible for its own neighbours: a node without room for an event does not take
it, so the event stays with the node that offered it.

Nothing is noted where the store asks nobody (`EventStore.settled`), as in a simulation.
"""

from collections.abc import Iterable
from contextlib import suppress

from roamcast.broker.store import ABSENT_WAIT, EventStore, StoredEvent, StoreFullError
from roamcast.event import EventId
from roamcast.host import Host
from roamcast.kit.tables import ExpiringDict, unreported
from roamcast.units import Micros, NodeId

# Chosen by us.
ABSENT_MAX = 256  # nodes
HAD_MAX = 512  # nodes that are noted to have had an event: those last heard of are the ones to wait for

_STABLE = "custody"


class Custody:
    def __init__(self, host: Host, store: EventStore) -> None:
        self._host = host
        self._store = store
        self._present: set[NodeId] = set()
        self._absent: ExpiringDict[NodeId, Micros] = ExpiringDict(ABSENT_MAX, unreported, lambda until: until)
        noted = host.stable.get(_STABLE, b"")
        self._noted = {NodeId.from_bytes(noted[at : at + 8], "big") for at in range(0, len(noted) - 7, 8)}
        for node in sorted(self._noted)[:ABSENT_MAX]:
            self._absent[node] = host.now() + ABSENT_WAIT

    def on_neighbour_up(self, node: NodeId) -> None:
        if self._store.settled is None:
            return
        self._present.add(node)
        self._absent.pop(node, None)
        if node not in self._noted:
            self._noted = self._waited_for()
            # without this record, a restarted node waits only for those that it meets
            with suppress(StoreFullError):
                self._host.stable[_STABLE] = b"".join(one.to_bytes(8, "big") for one in sorted(self._noted))

    def on_neighbour_down(self, node: NodeId) -> None:
        if self._store.settled is None:
            return
        self._present.discard(node)
        self._absent[node] = self._host.now() + ABSENT_WAIT

    def on_held(self, node: NodeId, events: Iterable[EventId]) -> None:
        """A node has these events, among others."""
        if self._store.settled is None:
            return
        find = self._store.find
        for event in events:
            stored = find(event)
            if stored is not None and node not in stored.had_by:
                stored.had_by = (*stored.had_by[1 - HAD_MAX :], node)

    def settled(self, stored: list[StoredEvent]) -> list[StoredEvent]:
        """The events among these that no node still waits for."""
        waited_for = self._waited_for() if self._present or self._absent else None
        if not waited_for:
            return stored
        return [one for one in stored if not waited_for.difference(one.had_by, (one.event.publisher,))]

    def _waited_for(self) -> set[NodeId]:
        self._absent.expire(self._host.now())
        return self._present.union(self._absent)
