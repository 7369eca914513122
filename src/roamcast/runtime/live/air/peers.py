"""Everything that a node knows of the nodes it hears: one `Peer` each, in one table.

| part of a peer | what it says |
|---|---|
| `proof` | that it has answered our challenge, and which of its frames came already (`roamcast.sealing`) |
| `path`, `paths`, `probe` | where it is reached, where else it was heard, and a path that is being tried |
| `hearing` | since when and how regularly it is heard, and how much came from it and went to it |
| `deaf` | which layers cannot read its frames, by the profile that it announced (`report/misfits.py`) |

Learnt from authenticated datagrams only. An outsider cannot make one, but he can send on what he picked up,
from his own address. So a datagram for another node moves no address, and neither does one from elsewhere
while the address that we know still speaks. A node that moved is believed when its old address has been
silent for `SETTLED`, when frames to it failed there, or when it has just proven itself.

A *path* is an interface of ours and an address of the neighbour's. A node with several interfaces says hello
on each of them separately, so that its neighbours know all paths and how well each is heard. The path in use
stays while it is heard and works. When it has been silent for `settled`, or frames over it failed, the best
other one takes its place at once. Where it still works, another takes its place only if that is heard clearly
better, or as well and by an interface that its owner prefers; and only after it has acknowledged a datagram,
so that neither a link that carries one direction only nor an outsider who sends on what he picked up gets a
neighbour's frames.

Every node broadcasts at least once in two `presence` intervals (`radio.py`). So the share of such slots in
which a peer was heard says how good the way from it is, whatever the strategy.

The table is bounded and its entries expire, so that a node that has met thousands of others does not keep
them for ever.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from roamcast.host import Channel
from roamcast.kit.tables import BoundedDict
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.report.counters import Counters, LineLimit
from roamcast.runtime.live.report.names import Names
from roamcast.sealing import PeerProof
from roamcast.units import SECOND, Micros, NodeId

logger = logging.getLogger("roamcast.peers")

# Chosen by us.
PEERS_MAX = 4_096
EXPIRY: Micros = 600 * SECOND  # without a datagram
PATH_EXPIRY: Micros = 60 * SECOND
SILENT_FOR: Micros = 1 * SECOND  # then frames to it are tried again in full, even if it was not heard
NUMBERS_KEPT = 8  # of acknowledged datagrams; one would do, as a sender has one unacknowledged at a time
SLOTS = 10  # that a quality is computed from
SLOTS_MIN = 3  # fewer say nothing
SILENT_SLOTS = 3  # without a datagram: the peer is gone
PATHS_MAX = 8  # to one neighbour
SETTLED: Micros = 2 * SECOND  # a path is kept for this long without a datagram from it: two announcements
BETTER = 0.3  # difference of two qualities that is worth a change
PROBE_INTERVAL: Micros = 1 * SECOND
FAILED_FOR: Micros = (
    10 * SECOND
)  # a path that failed is not preferred for so long, unless the others fail too
PEERS_METERED = 64  # with metrics of their own: those heard last
LINES_PER_MINUTE = 60  # about peers; a crowd in motion shall not fill the log
_ALL_SLOTS = (1 << SLOTS) - 1


class HeardSlots:
    """In which of the last `SLOTS` slots something was heard; a bit for each, the latest lowest."""

    __slots__ = ("_bits", "_first", "_length", "_slot")

    def __init__(self, length: Micros, now: Micros) -> None:
        self._length = length
        self.begin(now)

    def begin(self, now: Micros) -> None:
        self._first = self._slot = now // self._length
        self._bits = 1

    def heard(self, now: Micros) -> None:
        slot = now // self._length
        if slot != self._slot:
            self._bits = (self._bits << min(slot - self._slot, SLOTS) | 1) & _ALL_SLOTS
            self._slot = slot

    def quality(self, now: Micros) -> float | None:
        """The share of slots; None: too few. A slot that is not over counts only if something was heard."""
        slot = now // self._length
        bits = (self._bits << min(slot - self._slot, SLOTS)) & _ALL_SLOTS
        lasting = min(slot - self._first + 1, SLOTS)
        if not bits & 1 and lasting > 1:
            bits, lasting = bits >> 1, lasting - 1
        return None if lasting < SLOTS_MIN else bits.bit_count() / lasting


class PeerPath:
    __slots__ = ("endpoint", "failed_at", "heard_at", "slots")

    def __init__(self, endpoint: Endpoint, slot_length: Micros, now: Micros) -> None:
        self.endpoint = endpoint
        self.heard_at = now
        self.failed_at: Micros = -FAILED_FOR
        self.slots = HeardSlots(slot_length, now)

    def works(self, now: Micros, settled: Micros) -> bool:
        """Heard lately, and since frames over it failed."""
        return now - self.heard_at < settled and self.failed_at < self.heard_at


class PathProbe(NamedTuple):
    """A datagram that a path must acknowledge before it is used."""

    endpoint: Endpoint
    number: int
    at: Micros


class Hearing:
    """How a peer is heard by whatever path, and the traffic with it."""

    __slots__ = (
        "bytes_received", "bytes_sent", "first_at", "frames_received", "frames_sent", "is_up", "slots",
    )  # fmt: skip

    def __init__(self, now: Micros, slot_length: Micros) -> None:
        self.first_at = now  # or when it was heard again after it was gone
        self.is_up = False
        self.slots = HeardSlots(slot_length, now)
        self.frames_received = self.bytes_received = self.frames_sent = self.bytes_sent = 0

    def received(self, octets: int) -> None:
        self.frames_received += 1
        self.bytes_received += octets

    def sent(self, octets: int) -> None:
        self.frames_sent += 1
        self.bytes_sent += octets


class Peer:
    """One node that was heard."""

    __slots__ = (
        "deaf", "failed_at", "heard_at", "hearing", "number", "numbers", "path", "paths", "probe", "proof",
    )  # fmt: skip

    def __init__(self, number: NodeId, path: PeerPath, hearing: Hearing) -> None:
        self.number = number
        self.proof: PeerProof | None = None
        self.path = path  # in use
        self.paths: dict[Endpoint, PeerPath] = {path.endpoint: path}
        self.probe: PathProbe | None = None  # of a path that may be better
        self.hearing = hearing
        self.deaf: Sequence[Channel] = ()
        self.heard_at: Micros = path.heard_at
        self.failed_at: Micros = -1  # when a link to it was given up
        self.numbers: deque[int] = deque(maxlen=NUMBERS_KEPT)  # its acknowledged datagrams, heard lately

    @property
    def endpoint(self) -> Endpoint:
        return self.path.endpoint

    def is_silent(self, now: Micros) -> bool:
        """Given up just now, and not heard since."""
        return self.failed_at >= self.heard_at and now - self.failed_at < SILENT_FOR


class PeersOwner(Protocol):
    """The radio."""

    def rank(self, interface: str) -> int:
        """Lower: preferred where several interfaces lead to a neighbour equally well."""

    def on_moved(self, peer: Peer, before: Endpoint, *, is_lost: bool) -> None:
        """It is reached by another path now. `is_lost`: the interface of the one before is gone."""

    def on_evicted(self, table: str) -> None:
        """A full table has made room."""

    def on_forgotten(self) -> None:
        """A peer was forgotten that had proven itself."""


class Peers(BoundedDict[NodeId, Peer]):
    """All peers by number, the last heard last."""

    def __init__(
        self,
        owner: PeersOwner,
        counters: Counters,
        names: Names,
        *,
        presence: Micros,
        peers_max: int = PEERS_MAX,
    ) -> None:
        """`presence`: the time between two hellos of a node."""
        super().__init__(peers_max, self._on_full)
        self._owner = owner
        self._called = names.called
        self._counters = counters
        self._settled = max(SETTLED, 2 * presence)
        self._slot = 2 * presence
        self._log = LineLimit(logger, LINES_PER_MINUTE)
        counters.gauge("peers", lambda: len(self))
        counters.gauge("peers_up", lambda: self.up)
        self._came = counters.counter("peers_came_total")
        self._went = counters.counter("peers_went_total")

    # Inputs.

    def heard(
        self, number: NodeId, endpoint: Endpoint, octets: int, now: Micros, proof: PeerProof | None = None
    ) -> Peer:
        """A datagram for us, or for everyone. With a `proof`, its sender has just answered our challenge: its
        address is the one that it speaks from now."""
        peer = self.get(number)
        if peer is None:
            path = PeerPath(endpoint, self._slot, now)
            peer = self[number] = Peer(number, path, Hearing(now, self._slot))
        else:
            self.move_to_end(number)
            if proof is not None:
                peer.path.failed_at = peer.path.heard_at
                peer.paths = {peer.endpoint: peer.path}
        if proof is not None:
            peer.proof = proof
        peer.heard_at = now
        found = peer.paths.get(endpoint)
        if found is not None:
            path = found
            path.heard_at = now
            path.slots.heard(now)
        else:
            path = self._add(peer, endpoint, now)
        if path is not peer.path and not peer.path.works(now, self._settled):
            self._move(peer, path, now)
        hearing = peer.hearing
        if hearing.is_up:
            hearing.slots.heard(now)
        else:
            hearing.is_up, hearing.first_at = True, now
            hearing.slots.begin(now)
            self._came.value += 1
            self._log.log(now, logging.INFO, "%s is here, at %s", self._called(number), _shown(peer.endpoint))
        hearing.frames_received += 1
        hearing.bytes_received += octets
        return peer

    def turn_from(self, peer: Peer, endpoint: Endpoint, now: Micros) -> bool:
        """Frames over this path failed. If there is another one that works, it is used from now on."""
        other = self._best_other(peer, endpoint, now)
        if other is None:
            return False
        failed = peer.paths.get(endpoint)
        if failed is not None:
            failed.failed_at = now
        if peer.endpoint == endpoint:
            self._move(peer, other, now)
        return True

    def give_up(self, peer: Peer, now: Micros) -> None:
        """No path to it works."""
        peer.failed_at = peer.path.failed_at = now

    def on_away(self, interface: str, *, is_ipv6: bool, now: Micros) -> None:
        """An interface of ours, or its addresses of one family, are gone."""
        for peer in list(self.values()):
            for path in peer.paths.values():
                if path.endpoint.interface == interface and path.endpoint.is_ipv6 is is_ipv6:
                    path.failed_at = now
            if not peer.path.works(now, self._settled):
                other = self._best_other(peer, peer.endpoint, now)
                if other is not None:
                    self._move(peer, other, now, is_lost=peer.path.failed_at == now)

    def on_acknowledged(self, number: NodeId, datagram: int, now: Micros) -> None:
        """If that was the probe of a path that is preferred, the path is used from now on."""
        peer = self.get(number)
        if peer is not None and peer.probe is not None and peer.probe.number == datagram:
            path, peer.probe = peer.paths.get(peer.probe.endpoint), None
            if path is not None and path is not peer.path and path.works(now, self._settled):
                self._move(peer, path, now)

    def look(self, now: Micros) -> None:
        """Notice who has fallen silent. Call it every second or so."""
        for peer in self.values():
            if peer.hearing.is_up and now - peer.heard_at > SILENT_SLOTS * self._slot:
                peer.hearing.is_up = False
                self._went.value += 1
                gone = (self._called(peer.number), _shown(peer.endpoint), (now - peer.heard_at) / SECOND)
                self._log.log(now, logging.INFO, "%s at %s is gone: not heard for %.1f s", *gone)

    def forget_old(self, now: Micros) -> None:
        """One whose proof still counts is heard over a link; when the proof lapses, nonces have changed."""
        self.forget(lambda peer: peer.proof is None and now - peer.heard_at >= EXPIRY)
        for peer in self.values():
            for path in list(peer.paths.values()):
                if path is not peer.path and now - path.heard_at >= PATH_EXPIRY:
                    del peer.paths[path.endpoint]

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
        is_preferred = self._owner.rank(endpoint.interface) < self._owner.rank(used.endpoint.interface)
        return quality >= of_used + BETTER or (is_preferred and quality >= min(of_used, 0.9))

    def works(self, peer: Peer, now: Micros) -> bool:
        """Whether the path in use does."""
        return peer.path.works(now, self._settled)

    def working(self, peer: Peer, now: Micros) -> list[Endpoint]:
        """The path in use, then the others that work."""
        others = [path for path in peer.paths.values() if path is not peer.path]
        return [peer.endpoint, *(path.endpoint for path in others if path.works(now, self._settled))]

    def latest_first(self) -> list[Peer]:
        return sorted(self.values(), key=lambda peer: (-peer.heard_at, peer.number))

    def metered(self, value: Callable[[Peer], float]) -> list[tuple[str, float]]:
        """A value by peer, of those that were heard last."""
        return [(str(peer.number), value(peer)) for peer in self.latest_first()[:PEERS_METERED]]

    def reached_by(self, interface: str) -> int:
        """How many that are heard are reached by an interface."""
        return sum(peer.hearing.is_up and peer.endpoint.interface == interface for peer in self.values())

    @property
    def up(self) -> int:
        return sum(peer.hearing.is_up for peer in self.values())

    # Private.

    def _on_full(self, number: NodeId, peer: Peer) -> None:
        self._owner.on_evicted("peers")
        if peer.proof is not None:
            self._owner.on_forgotten()

    def _add(self, peer: Peer, endpoint: Endpoint, now: Micros) -> PeerPath:
        if peer.path.works(now, self._settled):
            self._counters.count("addresses_doubted_total")
        if len(peer.paths) >= PATHS_MAX:
            others = (path for path in peer.paths.values() if path is not peer.path)
            del peer.paths[min(others, key=lambda path: path.heard_at).endpoint]
        path = peer.paths[endpoint] = PeerPath(endpoint, self._slot, now)
        return path

    def _best_other(self, peer: Peer, endpoint: Endpoint, now: Micros) -> PeerPath | None:
        """Of the paths that may work now; one that was heard a little earlier is better than none."""

        def merit(path: PeerPath) -> tuple[float, int, Micros]:
            quality, rank = path.slots.quality(now), self._owner.rank(path.endpoint.interface)
            return 0.5 if quality is None else quality, -rank, path.heard_at

        usable = (
            path
            for path in peer.paths.values()
            if path.endpoint != endpoint and path.works(now, 2 * self._settled)
        )
        return max(usable, key=merit, default=None)

    def _move(self, peer: Peer, path: PeerPath, now: Micros, *, is_lost: bool = False) -> None:
        before, peer.path = peer.endpoint, path
        self._counters.count("peers_moved_total")
        where = (_shown(before), _shown(peer.endpoint))
        self._log.log(now, logging.INFO, "%s moved from %s to %s", self._called(peer.number), *where)
        self._owner.on_moved(peer, before, is_lost=is_lost)


def _shown(endpoint: Endpoint) -> str:
    return f"{endpoint} by {endpoint.interface}"
