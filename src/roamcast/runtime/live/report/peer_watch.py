"""How the nodes around are heard: since when, how regularly, how much; and who comes and goes.

Every node broadcasts at least once in two `presence` intervals (`air/radio.py`). So the share of such slots
in which a peer was heard says how good the way from it is, whatever the strategy.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice

from roamcast.kit.tables import BoundedDict, unreported
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.paths import HeardSlots
from roamcast.runtime.live.air.peers import EXPIRY, PEERS_MAX
from roamcast.units import Micros, NodeId, micros

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
