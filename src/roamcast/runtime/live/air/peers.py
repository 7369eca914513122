"""The address book: which node was heard from where, and when.

Learnt from authenticated datagrams only. An outsider cannot make one, but he can send on what he picked up,
from his own address. So a datagram for another node moves no address, and neither does one from elsewhere
while the address that we know still speaks. A node that moved is believed when its old address has been
silent for `SETTLED`, when frames to it failed there, or when it has just proven itself (`roamcast.sealing`).

The table is bounded and its entries expire, so that a node that has met thousands of others does not keep
them for ever.
"""

from collections import deque
from collections.abc import Callable, Iterator

from roamcast.bounded import BoundedDict, OnEvicted
from roamcast.runtime.live.air.sockets import Endpoint
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us.
PEERS_MAX = 4_096
EXPIRY: Micros = 600 * SECOND  # without a datagram
SETTLED: Micros = 2 * SECOND  # an address is kept for this long without a datagram from it: two announcements
SILENT_FOR: Micros = 1 * SECOND  # then frames to it are tried again in full, even if it was not heard
NUMBERS_KEPT = 8  # of acknowledged datagrams; one would do, as a sender has one unacknowledged at a time


class Peer:
    """One node that was heard."""

    __slots__ = ("endpoint", "endpoint_at", "failed_at", "heard_at", "number", "numbers")

    def __init__(self, number: NodeId, endpoint: Endpoint) -> None:
        self.number = number
        self.endpoint = endpoint
        self.endpoint_at: Micros = -SETTLED  # when it was heard from there
        self.heard_at: Micros = 0
        self.failed_at: Micros = -1  # when a link to it was given up
        self.numbers: deque[int] = deque(maxlen=NUMBERS_KEPT)  # its acknowledged datagrams, heard lately

    def believes(self, endpoint: Endpoint, now: Micros) -> bool:
        """Whether a datagram from this address may move the node there."""
        return (
            endpoint == self.endpoint
            or now - self.endpoint_at >= SETTLED
            or self.failed_at >= self.endpoint_at
        )

    def is_silent(self, now: Micros) -> bool:
        """Given up just now, and not heard since."""
        return self.failed_at >= self.heard_at and now - self.failed_at < SILENT_FOR


class Peers:
    def __init__(
        self,
        on_evicted: OnEvicted[NodeId, Peer],
        on_doubted: Callable[[], None] = lambda: None,
        *,
        peers_max: int = PEERS_MAX,
        expiry: Micros = EXPIRY,
    ) -> None:
        """`on_doubted`: a datagram came from an address that was not believed."""
        self._on_doubted = on_doubted
        self._expiry = expiry
        self._peers: BoundedDict[NodeId, Peer] = BoundedDict(peers_max, on_evicted)  # last heard, last

    def heard(self, number: NodeId, endpoint: Endpoint, now: Micros) -> Peer:
        """A datagram for us, or for everyone."""
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = Peer(number, endpoint)
        else:
            self._peers.move_to_end(number)
        if peer.believes(endpoint, now):
            peer.endpoint = endpoint
            peer.endpoint_at = now
        else:
            self._on_doubted()
        peer.heard_at = now
        return peer

    def on_proven(self, number: NodeId) -> None:
        """It has answered our challenge: its address is the one that it speaks from now."""
        peer = self._peers.get(number)
        if peer is not None:
            peer.endpoint_at = peer.heard_at - SETTLED

    def find(self, number: NodeId) -> Peer | None:
        return self._peers.get(number)

    def forget(self, number: NodeId) -> None:
        self._peers.pop(number, None)

    def forget_old(self, now: Micros) -> None:
        self._peers.forget_oldest(lambda peer: now - peer.heard_at >= self._expiry)

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))
