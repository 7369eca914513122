"""The address book: which node was heard from where, and when.

Learnt from authenticated datagrams only. An outsider cannot make one, but he can send on what he picked up,
from his own address. So a datagram for another node moves no address, and neither does one from elsewhere
while the address that we know still speaks (`paths.py`). A node that moved is believed when its old address
has been silent for `SETTLED`, when frames to it failed there, or when it has just proven itself
(`roamcast.sealing`).

The table is bounded and its entries expire, so that a node that has met thousands of others does not keep
them for ever.
"""

from collections import deque
from collections.abc import Callable, Iterator

from roamcast.kit.tables import BoundedDict, OnEvicted
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.paths import (
    BETTER,
    FAILED_FOR,
    PATHS_MAX,
    PROBE_INTERVAL,
    SETTLED,
    Path,
    Probe,
)
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us.
PEERS_MAX = 4_096
EXPIRY: Micros = 600 * SECOND  # without a datagram
PATH_EXPIRY: Micros = 60 * SECOND
SILENT_FOR: Micros = 1 * SECOND  # then frames to it are tried again in full, even if it was not heard
NUMBERS_KEPT = 8  # of acknowledged datagrams; one would do, as a sender has one unacknowledged at a time


class Peer:
    """One node that was heard."""

    __slots__ = ("failed_at", "heard_at", "number", "numbers", "path", "paths", "probe")

    def __init__(self, number: NodeId, path: Path) -> None:
        self.number = number
        self.path = path  # in use
        self.paths: dict[Endpoint, Path] = {path.endpoint: path}
        self.probe: Probe | None = None  # of a path that may be better
        self.heard_at: Micros = 0
        self.failed_at: Micros = -1  # when a link to it was given up
        self.numbers: deque[int] = deque(maxlen=NUMBERS_KEPT)  # its acknowledged datagrams, heard lately

    @property
    def endpoint(self) -> Endpoint:
        return self.path.endpoint

    def is_silent(self, now: Micros) -> bool:
        """Given up just now, and not heard since."""
        return self.failed_at >= self.heard_at and now - self.failed_at < SILENT_FOR


class Peers:
    def __init__(
        self,
        on_evicted: OnEvicted[NodeId, Peer],
        on_doubted: Callable[[], None] = lambda: None,
        *,
        presence: Micros = SECOND,
        peers_max: int = PEERS_MAX,
        expiry: Micros = EXPIRY,
    ) -> None:
        """`on_doubted`: a node was heard from a further address while the one that we know speaks.
        `presence`: the time between two hellos of a node."""
        self._on_doubted = on_doubted
        self._expiry = expiry
        self._settled = max(SETTLED, 2 * presence)
        self._slot = 2 * presence
        self._peers: BoundedDict[NodeId, Peer] = BoundedDict(peers_max, on_evicted)  # last heard, last
        self.rank: Callable[[str], int] = lambda interface: 0  # lower: preferred where all else is equal
        self.on_moved: Callable[[Peer, Endpoint, bool], None] = lambda peer, before, is_lost: None
        """With the endpoint before, and whether its interface is gone for certain."""

    # Inputs.

    def heard(self, number: NodeId, endpoint: Endpoint, now: Micros) -> Peer:
        """A datagram for us, or for everyone."""
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = Peer(number, Path(endpoint, self._slot, now))
        else:
            self._peers.move_to_end(number)
        peer.heard_at = now
        path = peer.paths.get(endpoint)
        if path is not None:
            path.heard_at = now
            path.slots.heard(now)
        else:
            path = self._add(peer, endpoint, now)
        if path is not peer.path and not peer.path.works(now, self._settled):
            self._move(peer, path)
        return peer

    def on_proven(self, number: NodeId) -> None:
        """It has answered our challenge: its address is the one that it speaks from now."""
        peer = self._peers.get(number)
        if peer is not None:
            peer.path.failed_at = peer.path.heard_at
            peer.paths = {peer.endpoint: peer.path}

    def turn_from(self, peer: Peer, endpoint: Endpoint, now: Micros) -> bool:
        """Frames over this path failed. If there is another one that works, it is used from now on."""
        other = self._best_other(peer, endpoint, now)
        if other is None:
            return False
        failed = peer.paths.get(endpoint)
        if failed is not None:
            failed.failed_at = now
        if peer.endpoint == endpoint:
            self._move(peer, other)
        return True

    def give_up(self, peer: Peer, now: Micros) -> None:
        """No path to it works."""
        peer.failed_at = peer.path.failed_at = now

    def on_away(self, interface: str, *, is_ipv6: bool, now: Micros) -> None:
        """An interface of ours, or its addresses of one family, are gone."""
        for peer in self:
            for path in peer.paths.values():
                if path.endpoint.interface == interface and path.endpoint.is_ipv6 is is_ipv6:
                    path.failed_at = now
            if not peer.path.works(now, self._settled):
                other = self._best_other(peer, peer.endpoint, now)
                if other is not None:
                    self._move(peer, other, is_lost=peer.path.failed_at == now)

    def on_acknowledged(self, number: NodeId, datagram: int, now: Micros) -> None:
        """If that was the probe of a path that is preferred, the path is used from now on."""
        peer = self._peers.get(number)
        if peer is not None and peer.probe is not None and peer.probe.number == datagram:
            path, peer.probe = peer.paths.get(peer.probe.endpoint), None
            if path is not None and path is not peer.path and path.works(now, self._settled):
                self._move(peer, path)

    # Questions.

    def is_worth_a_probe(self, peer: Peer, endpoint: Endpoint, now: Micros) -> bool:
        """Whether a path, just heard, should take the place of the one in use, if it works both ways."""
        path, used = peer.paths[endpoint], peer.path
        quality = path.slots.quality(now)
        if quality is None or now - path.failed_at < FAILED_FOR:
            return False
        if peer.probe is not None and now - peer.probe.at < PROBE_INTERVAL:
            return False
        of_used = used.slots.quality(now)
        of_used = 1.0 if of_used is None else of_used
        is_preferred = self.rank(endpoint.interface) < self.rank(used.endpoint.interface)
        return quality >= of_used + BETTER or (is_preferred and quality >= min(of_used, 0.9))

    def works(self, peer: Peer, now: Micros) -> bool:
        """Whether the path in use does."""
        return peer.path.works(now, self._settled)

    def working(self, peer: Peer, now: Micros) -> list[Endpoint]:
        """The path in use, then the others that work."""
        others = [path for path in peer.paths.values() if path is not peer.path]
        return [peer.endpoint, *(path.endpoint for path in others if path.works(now, self._settled))]

    def find(self, number: NodeId) -> Peer | None:
        return self._peers.get(number)

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    # Forgetting.

    def forget(self, number: NodeId) -> None:
        self._peers.pop(number, None)

    def forget_old(self, now: Micros) -> None:
        self._peers.forget_oldest(lambda peer: now - peer.heard_at >= self._expiry)
        for peer in self._peers.values():
            for path in list(peer.paths.values()):
                if path is not peer.path and now - path.heard_at >= PATH_EXPIRY:
                    del peer.paths[path.endpoint]

    # Private.

    def _add(self, peer: Peer, endpoint: Endpoint, now: Micros) -> Path:
        if peer.path.works(now, self._settled):
            self._on_doubted()
        if len(peer.paths) >= PATHS_MAX:
            others = (path for path in peer.paths.values() if path is not peer.path)
            del peer.paths[min(others, key=lambda path: path.heard_at).endpoint]
        path = peer.paths[endpoint] = Path(endpoint, self._slot, now)
        return path

    def _best_other(self, peer: Peer, endpoint: Endpoint, now: Micros) -> Path | None:
        """Of the paths that may work now; one that was heard a little earlier is better than none."""
        usable = [
            path
            for path in peer.paths.values()
            if path.endpoint != endpoint and path.works(now, 2 * self._settled)
        ]
        if not usable:
            return None

        def merit(path: Path) -> tuple[float, int, Micros]:
            quality = path.slots.quality(now)
            return 0.5 if quality is None else quality, -self.rank(path.endpoint.interface), path.heard_at

        return max(usable, key=merit)

    def _move(self, peer: Peer, path: Path, *, is_lost: bool = False) -> None:
        before, peer.path = peer.endpoint, path
        self.on_moved(peer, before, is_lost)
