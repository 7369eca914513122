"""Durable notes about named clients: sessions, queues of absent ones, delivered events.

Notes are written in the turn's transaction and are durable after `NodeStorage.commit`; a client is answered
from `NodeStorage.on_durable`. Reads see what the turn has written. Bounded per client and in the number of
clients.
"""

from roamcast.broker.store import StoreFullError
from roamcast.event import EventId
from roamcast.runtime.live.storage.database import NodeStorage
from roamcast.units import Micros

# Chosen by us; they bound the disk space.
CLIENTS_MAX = 10_000
QUEUE_MAX = 1_000  # entries waiting for one client
DELIVERED_MAX = 50_000  # notes of one client; neighbours may offer more events than this node stores


class ClientRecords:
    def __init__(self, storage: NodeStorage, *, clients_max: int = CLIENTS_MAX) -> None:
        self._storage = storage
        self._clients_max = clients_max

    # Sessions: whatever a gateway must know of a client.

    def clients(self) -> list[str]:
        return [client for (client,) in self._storage.read("SELECT client FROM session ORDER BY client")]

    def session(self, client: str) -> bytes | None:
        rows = self._storage.read("SELECT data FROM session WHERE client = ?", (client,))
        return bytes(rows[0][0]) if rows else None

    def put_session(self, client: str, data: bytes) -> None:
        if self.session(client) is None and len(self.clients()) >= self._clients_max:
            raise StoreFullError(f"sessions of {self._clients_max} clients are kept, no more are allowed")
        self._storage.write("INSERT OR REPLACE INTO session VALUES (?, ?)", (client, data))

    def end_session(self, client: str) -> None:
        """Forget all about a client."""
        for table in ("session", "subscription", "queued", "delivered"):
            self._storage.write(f"DELETE FROM {table} WHERE client = ?", (client,))

    # What waits for an absent client.

    def queue(self, client: str, entries_max: int = QUEUE_MAX) -> "Queue":
        return Queue(self._storage, client, entries_max)

    # What was delivered to a client, so that it gets nothing twice after a restart.

    def note_delivered(self, client: str, event: EventId, expires: Micros) -> None:
        """The client has acknowledged a memorized event. `expires`: when to delete the note, wall clock."""
        self._storage.write("INSERT OR REPLACE INTO delivered VALUES (?, ?, ?, ?)", (client, *event, expires))

    def delivered(self, client: str, wall: Micros) -> list[EventId]:
        """Those that expire last, at most `DELIVERED_MAX`; the other notes are deleted."""
        self._storage.write("DELETE FROM delivered WHERE client = ? AND expires <= ?", (client, wall))
        self._storage.write(
            "DELETE FROM delivered WHERE client = ? AND (publisher, sequence) NOT IN ("
            "SELECT publisher, sequence FROM delivered"
            " WHERE client = ? ORDER BY expires DESC, publisher, sequence LIMIT ?)",
            (client, client, DELIVERED_MAX),
        )
        statement = "SELECT publisher, sequence FROM delivered WHERE client = ? ORDER BY publisher, sequence"
        return [EventId(*row) for row in self._storage.read(statement, (client,))]


class Queue:
    """First in, first out, until acknowledged. A new one is made for each use; nothing is held in memory."""

    def __init__(self, storage: NodeStorage, client: str, entries_max: int) -> None:
        self._storage = storage
        self._client = client
        self._entries_max = entries_max

    def append(self, data: bytes) -> int:
        """Returns the entry's number, by which it is acknowledged; `StoreFullError` if the queue is full."""
        if len(self) >= self._entries_max:
            raise StoreFullError(f"{self._entries_max} entries wait for client {self._client!r}")
        return self._storage.write("INSERT INTO queued (client, data) VALUES (?, ?)", (self._client, data))

    def entries(self, most: int = QUEUE_MAX) -> list[tuple[int, bytes]]:
        """The oldest, by number. They stay until acknowledged."""
        return self._storage.read(
            "SELECT number, data FROM queued WHERE client = ? ORDER BY number LIMIT ?", (self._client, most)
        )

    def replace(self, number: int, data: bytes) -> None:
        """Another content for an entry, in its place."""
        self._storage.write(
            "UPDATE queued SET data = ? WHERE client = ? AND number = ?", (data, self._client, number)
        )

    def acknowledge(self, number: int) -> None:
        self._storage.write("DELETE FROM queued WHERE client = ? AND number = ?", (self._client, number))

    def __len__(self) -> int:
        rows = self._storage.read("SELECT count(*) FROM queued WHERE client = ?", (self._client,))
        return int(rows[0][0])
