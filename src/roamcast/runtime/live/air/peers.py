"""The address book: which node was heard from where, and when.

Learnt from authenticated datagrams only. Bounded and with an expiry, so that a node that has met thousands
of others on its way carries none of them for ever.
"""

from collections import deque
from collections.abc import Iterator

from roamcast.runtime.live.air.sockets import Endpoint
from roamcast.units import SECOND, Micros, NodeId

PEERS_MAX = 4_096
EXPIRY: Micros = 600 * SECOND
SILENT_FOR: Micros = 1 * SECOND  # after that it is worth another try, heard or not
NUMBERS_KEPT = 8  # of acknowledged datagrams; their sender has one under way at a time


class Peer:
    """One node that was heard."""

    __slots__ = ("endpoint", "failed_at", "heard_at", "number", "numbers")

    def __init__(self, number: NodeId, endpoint: Endpoint) -> None:
        self.number = number
        self.endpoint = endpoint
        self.heard_at: Micros = 0
        self.failed_at: Micros = -1  # when a link to it was given up
        self.numbers: deque[int] = deque(maxlen=NUMBERS_KEPT)  # its acknowledged datagrams, heard lately

    def is_silent(self, now: Micros) -> bool:
        """Given up just now, and not heard since."""
        return self.failed_at >= self.heard_at and now - self.failed_at < SILENT_FOR


class Peers:
    def __init__(self, *, peers_max: int = PEERS_MAX, expiry: Micros = EXPIRY) -> None:
        self._peers_max = peers_max
        self._expiry = expiry
        self._peers: dict[NodeId, Peer] = {}  # the one heard longest ago first

    def heard(self, number: NodeId, endpoint: Endpoint, now: Micros) -> Peer:
        peer = self._peers.pop(number, None)
        if peer is None:
            peer = Peer(number, endpoint)
            if len(self._peers) >= self._peers_max:
                del self._peers[next(iter(self._peers))]
        peer.endpoint = endpoint
        peer.heard_at = now
        self._peers[number] = peer
        return peer

    def find(self, number: NodeId) -> Peer | None:
        return self._peers.get(number)

    def forget_old(self, now: Micros) -> None:
        while self._peers:
            oldest = next(iter(self._peers.values()))
            if now - oldest.heard_at < self._expiry:
                return
            del self._peers[oldest.number]

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))
