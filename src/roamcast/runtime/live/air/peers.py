"""The address book: which node was heard from where, and when.

Learnt from authenticated datagrams only. An outsider cannot make one, but he can send on what he picked up,
from his own address. So a datagram for another node moves no address, and neither does one from elsewhere
while the address that we know still speaks (`Path`). A node that moved is believed when its old address
has been silent for `SETTLED`, when frames to it failed there, or when it has just proven itself
(`roamcast.sealing`).

The table is bounded and its entries expire, so that a node that has met thousands of others does not keep
them for ever.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from roamcast.kit.tables import BoundedDict, OnEvicted, unreported
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.units import SECOND, Micros, NodeId, micros

# Chosen by us.
PEERS_MAX = 4_096
EXPIRY: Micros = 600 * SECOND  # without a datagram
PATH_EXPIRY: Micros = 60 * SECOND
SILENT_FOR: Micros = 1 * SECOND  # then frames to it are tried again in full, even if it was not heard
NUMBERS_KEPT = 8  # of acknowledged datagrams; one would do, as a sender has one unacknowledged at a time

# Chosen by us.
SLOTS = 10  # that a quality is computed from
SLOTS_MIN = 3  # fewer say nothing
PATHS_MAX = 8  # to one neighbour
SETTLED: Micros = 2 * SECOND  # a path is kept for this long without a datagram from it: two announcements
BETTER = 0.3  # difference of two qualities that is worth a change
PROBE_INTERVAL: Micros = 1 * SECOND
FAILED_FOR: Micros = (
    10 * SECOND
)  # a path that failed is not preferred for so long, unless the others fail too
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

    def heard(self, now: Micros) -> bool:
        """Whether this is the first time in its slot."""
        slot = now // self._length
        if slot == self._slot:
            return False
        self._bits = (self._bits << min(slot - self._slot, SLOTS) | 1) & _ALL_SLOTS
        self._slot = slot
        return True

    def quality(self, now: Micros) -> float | None:
        """The share of slots; None: too few. A slot that is not over counts only if something was heard."""
        slot = now // self._length
        bits = (self._bits << min(slot - self._slot, SLOTS)) & _ALL_SLOTS
        lasting = min(slot - self._first + 1, SLOTS)
        if not bits & 1 and lasting > 1:
            bits, lasting = bits >> 1, lasting - 1
        return None if lasting < SLOTS_MIN else bits.bit_count() / lasting


class Path:
    __slots__ = ("endpoint", "failed_at", "heard_at", "slots")

    def __init__(self, endpoint: Endpoint, slot_length: Micros, now: Micros) -> None:
        self.endpoint = endpoint
        self.heard_at = now
        self.failed_at: Micros = -FAILED_FOR
        self.slots = HeardSlots(slot_length, now)

    def works(self, now: Micros, settled: Micros) -> bool:
        """Heard lately, and since frames over it failed."""
        return now - self.heard_at < settled and self.failed_at < self.heard_at


class Probe:
    """A datagram that a path must acknowledge before it is used."""

    __slots__ = ("at", "endpoint", "number")

    def __init__(self, endpoint: Endpoint, number: int, at: Micros) -> None:
        self.endpoint = endpoint
        self.number = number
        self.at = at


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


logger = logging.getLogger("roamcast.peers")

# Chosen by us.
SILENT_SLOTS = 3  # without a word: the peer is gone
PEERS_METERED = 64  # with metrics of their own: those heard last
LINES_PER_MINUTE = 60  # about peers; a crowd in motion shall not fill the log


class PeerRecord:
    """One peer."""

    __slots__ = (
        "bytes_received", "bytes_sent", "endpoint", "first_at", "frames_received", "frames_sent", "heard_at",
        "is_up", "number", "slots",
    )  # fmt: skip

    def __init__(self, number: NodeId, endpoint: Endpoint, now: Micros, slot_length: Micros) -> None:
        self.number = number
        self.endpoint = endpoint
        self.first_at = self.heard_at = now
        self.is_up = True
        self.slots = HeardSlots(slot_length, now)
        self.frames_received = self.bytes_received = self.frames_sent = self.bytes_sent = 0


class PeerWatch:
    def __init__(self, presence: float, now: Callable[[], Micros]) -> None:
        self._now = now
        self._slot_length: Micros = 2 * micros(presence)
        self._records: BoundedDict[NodeId, PeerRecord] = BoundedDict(PEERS_MAX, unreported)
        self._lines = 0
        self._minute = 0
        self.came = 0
        self.went = 0

    def heard(self, number: NodeId, endpoint: Endpoint, octets: int, now: Micros) -> None:
        """`endpoint`: where it is reached."""
        record = self._records.get(number)
        if record is None:
            record = self._records[number] = PeerRecord(number, endpoint, now, self._slot_length)
            self._on_up(record)
        elif not record.is_up:
            record.is_up, record.first_at, record.endpoint = True, now, endpoint
            record.slots.begin(now)
            self._on_up(record)
        elif record.slots.heard(now):
            self._records.move_to_end(number)
        record.heard_at = now
        record.frames_received += 1
        record.bytes_received += octets

    def moved(self, number: NodeId, endpoint: Endpoint) -> None:
        """It is reached elsewhere now."""
        record = self._records.get(number)
        if record is not None:
            self._say("peer %d moved from %s to %s", number, _shown(record.endpoint), _shown(endpoint))
            record.endpoint = endpoint

    def received(self, number: NodeId, octets: int) -> None:
        """Over a TCP link; it says nothing about where the peer is."""
        record = self._records.get(number)
        if record is not None:
            record.frames_received += 1
            record.bytes_received += octets

    def sent(self, number: NodeId, octets: int) -> None:
        record = self._records.get(number)
        if record is not None:
            record.frames_sent += 1
            record.bytes_sent += octets

    def look(self, now: Micros) -> None:
        """Notice who has fallen silent. Call it every second or so."""
        for record in self._records.values():
            if record.is_up and now - record.heard_at > SILENT_SLOTS * self._slot_length:
                record.is_up = False
                self.went += 1
                self._say(
                    "peer %d at %s is gone: not heard for %.1f s",
                    record.number, _shown(record.endpoint), (now - record.heard_at) / 1e6,
                )  # fmt: skip

    def forget_old(self, now: Micros) -> None:
        self._records.forget(lambda record: now - record.heard_at >= EXPIRY)

    def latest_first(self) -> Iterator[PeerRecord]:
        return iter(sorted(self._records.values(), key=lambda record: (-record.heard_at, record.number)))

    def families(self) -> dict[str, Callable[[], list[tuple[str, float]]]]:
        """Metrics by peer, of those that were heard last."""

        def each(value: Callable[[PeerRecord], float]) -> Callable[[], list[tuple[str, float]]]:
            return lambda: [
                (str(record.number), value(record)) for record in islice(self.latest_first(), PEERS_METERED)
            ]

        return {
            "peer_up": each(lambda record: record.is_up),
            "peer_quality": each(lambda record: round(record.slots.quality(self._now()) or 0, 2)),
            "peer_received_bytes_total": each(lambda record: record.bytes_received),
            "peer_sent_bytes_total": each(lambda record: record.bytes_sent),
        }

    @property
    def up(self) -> int:
        return sum(record.is_up for record in self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def _on_up(self, record: PeerRecord) -> None:
        self.came += 1
        self._say("peer %d is here, at %s", record.number, _shown(record.endpoint))

    def _say(self, line: str, *values: object) -> None:
        minute = self._now() // micros(60)
        if minute != self._minute:
            if self._lines > LINES_PER_MINUTE:
                logger.info("%d more lines about peers in that minute", self._lines - LINES_PER_MINUTE)
            self._minute, self._lines = minute, 0
        self._lines += 1
        if self._lines <= LINES_PER_MINUTE:
            logger.info(line, *values)


def _shown(endpoint: Endpoint) -> str:
    return f"{endpoint} by {endpoint.interface}"
