"""What nodes say to each other: copies for some, and what rides in a beacon."""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from roamcast.event import Count
from roamcast.kit.anti_entropy import (
    YOUTH_BYTES,
    HadEvents,
    Handed,
    HandedToAll,
    Held,
    HoldingsDigest,
    TooOld,
    WantEvents,
)
from roamcast.kit.cover import NAME_BYTES, RELAYS_MAX, Names
from roamcast.kit.protocol import WireMessage
from roamcast.kit.repair import FINGERPRINT_BYTES as HOLDINGS_BYTES
from roamcast.kit.spread import FloodedEvent, PassedOn
from roamcast.strategy.directed.distances import ENTRY_BYTES
from roamcast.strategy.directed.interests import FINGERPRINT_BYTES, InterestRows, InterestVersions
from roamcast.wire import Codec

MARK_BYTES = 2
MARKS_LAST = 0xFFFF
MARKS_MAX = 500  # events named in one beacon


class SoughtCopy(FloodedEvent, frozen=True, tag=13):
    """An event for all who hear it, although few want it: those few shall announce themselves, so that
    distances to them become known."""


class DirectedCopy(FloodedEvent, frozen=True, tag=7):
    """An event for those who want it. `duties`: for each relay, the names of the subscribers that it has to
    serve. Who sends it listens for its relays."""

    name = "directed"

    duties: Annotated[tuple[Names, ...], msgspec.Meta(max_length=RELAYS_MAX)] = ()


class DirectedTo(DirectedCopy, frozen=True, tag=8):
    """The same for one neighbour alone, which the link layer acknowledges."""

    name = "directed to one"


class Took(WireMessage, frozen=True, tag=11):
    """For a node that listens for this one: this node has the event, and will send no copy that the other
    could hear."""

    name = "took"

    publisher: Count
    sequence: Count


class Lacking(WireMessage, frozen=True, tag=12):
    """The sender has these events, which a subscriber seems to lack."""

    name = "lacking"

    subscriber: Count
    held: Held


DirectedMessage = (
    FloodedEvent
    | Handed
    | HandedToAll
    | PassedOn
    | HoldingsDigest
    | WantEvents
    | HadEvents
    | TooOld
    | SoughtCopy
    | DirectedCopy
    | DirectedTo
    | InterestRows
    | InterestVersions
    | Took
    | Lacking
)
CODEC: Codec[DirectedMessage] = Codec("directed", 3, DirectedMessage)


def numbers_of(names: bytes) -> set[int]:
    """Names as numbers (`kit/cover.py`)."""
    return {names[at] << 8 | names[at + 1] for at in range(0, len(names) - 1, NAME_BYTES)}


def names_from(numbers: Iterable[int]) -> bytes:
    return b"".join(number.to_bytes(NAME_BYTES, "big") for number in sorted(numbers))[
        : RELAYS_MAX * NAME_BYTES
    ]


class Rider(NamedTuple):
    """What rides in a beacon: | which of the following 8 | fingerprint of what is held 32, just after a boot
    48 | fingerprint of the interests 32 | how many 8 | distances 32 each | marks of events 16 each. An empty
    fingerprint is the same as before. Marks are of the events that the sender wanted and got since its last
    beacon; `is_whole`: of all that it still has."""

    holdings: bytes = b""
    interests: bytes = b""
    entries: bytes = b""
    marks: tuple[int, ...] = ()
    is_whole: bool = False

    def encode(self) -> bytes:
        which = bool(self.holdings) | bool(self.interests) << 1 | bool(self.entries) << 2 | self.is_whole << 3
        which |= (len(self.holdings) > HOLDINGS_BYTES) << 4
        if not which and not self.marks:
            return b""
        count = bytes([len(self.entries) // ENTRY_BYTES]) if self.entries else b""
        marks = b"".join(mark.to_bytes(MARK_BYTES, "big") for mark in self.marks[-MARKS_MAX:])
        return bytes([which]) + self.holdings + self.interests + count + self.entries + marks

    @classmethod
    def decode(cls, octets: bytes) -> "Rider":
        """Of anything: what is cut short is taken as far as it goes."""
        if not octets:
            return NOTHING
        which, at = octets[0], 1
        parts = []
        holdings = HOLDINGS_BYTES + YOUTH_BYTES * bool(which & 16)
        for bit, size in ((1, holdings), (2, FINGERPRINT_BYTES)):
            size = size if which & bit else 0
            parts.append(octets[at : at + size])
            at += size
        size = 0
        if which & 4 and at < len(octets):
            size = octets[at] * ENTRY_BYTES
            at += 1
        entries = octets[at : at + size]
        rest = octets[at + size :]
        marks = tuple(rest[i] << 8 | rest[i + 1] for i in range(0, len(rest) - 1, MARK_BYTES))
        return cls(parts[0], parts[1], entries, marks, bool(which & 8))


NOTHING = Rider()
