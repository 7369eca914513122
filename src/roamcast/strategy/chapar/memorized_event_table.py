"""The memorized event table, MET (Chapar, section 4.1): events kept for their lifetime, and who has them.

The paper keeps USNV, the subscribers that still lack the event. Here an entry keeps `notified`, the nodes
known to have it, and USNV follows: SNV ∧ ¬notified. So a later subscription is included without further work,
and nothing has to be recalculated when the filter table changes.

Bounded by `entries_max`. When full, the event that would expire first makes room, and of two such the one
with the lower identifier: all brokers choose alike, so they agree on what stays. An event that was pushed
out stays *known* until it would have expired; otherwise the next consistency check would bring it back.
"""

from collections.abc import Callable
from operator import attrgetter

import msgspec

from roamcast.event import Event, EventId
from roamcast.kit.tables import LifetimeDict, OnEvicted
from roamcast.strategy.chapar.identifiers import digest_of
from roamcast.strategy.chapar.messages import CHAIN_MAX, Chain, Memorized
from roamcast.strategy.chapar.node_vectors import NO_NODES, NodeVector, without
from roamcast.units import Micros

KNOWN_MAX_FACTOR = 20  # pushed-out identifiers remembered per entry of `entries_max`; chosen by us


class Memo:
    """One memorized event as this node keeps it. `expires_at` is on this node's own clock."""

    __slots__ = (
        "event",
        "event_id",
        "expires_at",
        "hops",
        "id",
        "is_repeated",
        "notified",
        "previous",
        "sealed",
    )

    def __init__(
        self,
        event: Event,
        event_id: int,
        expires_at: Micros,
        hops: int = 0,
        previous: Chain = (),
        sealed: bytes = b"",
    ) -> None:
        self.event = event
        self.id: EventId = event.id
        self.event_id = event_id
        self.expires_at = expires_at
        self.hops = hops
        self.previous = previous
        self.sealed = sealed
        self.notified: NodeVector = NO_NODES
        self.is_repeated = False  # of an own event: its frame to the broker was lost, and sent once more

    def unavailable(self, wanted: NodeVector) -> NodeVector:
        """USNV: of those who want it, the ones not known to have it."""
        return without(wanted, self.notified)

    def predecessor(self, now: Micros) -> EventId | None:
        """The latest event before it of the same publisher that has not expired."""
        age = self.age(now)
        lives = (EventId(self.event.publisher, sequence) for sequence, left in self.previous if age < left)
        return next(lives, None)

    def chain(self, published_at: Micros) -> Chain:
        """`previous` of the next event, published then: this one, and what outlives it."""
        age, left = self.age(published_at), self.expires_at - published_at
        outliving = ((sequence, longer - age) for sequence, longer in self.previous if longer - age > left)
        return ((self.event.sequence, left), *outliving)[:CHAIN_MAX]

    def age(self, now: Micros) -> Micros:
        return max(0, self.event.lifetime - (self.expires_at - now))

    def message(self, now: Micros) -> Memorized:
        return Memorized(self.event, self.hops, self.age(now), self.previous, self.sealed)

    def unexpired(self, now: Micros) -> Memorized | None:
        """The message, as long as the event lives."""
        return self.message(now) if self.expires_at > now else None


def encoded_size(event: Event) -> int:
    """Octets of an event, compared with `event_bytes_max`."""
    return len(_encoder.encode(event))


_encoder = msgspec.msgpack.Encoder()
EXPIRES_AT: Callable[[Memo], Micros] = attrgetter("expires_at")


class EventTable:
    def __init__(
        self, *, entries_max: int, on_full: Callable[[Memo], object], on_forgotten: OnEvicted[EventId, Micros]
    ) -> None:
        """`on_full`: called with an event that is pushed out. `on_forgotten`: called with one that is no
        longer even known and so may come again."""
        self._on_full = on_full
        self._entries: LifetimeDict[EventId, Memo] = LifetimeDict(entries_max, self._push_out, EXPIRES_AT)
        self._pushed_out: LifetimeDict[EventId, Micros] = LifetimeDict(
            KNOWN_MAX_FACTOR * entries_max, on_forgotten, int
        )
        self._digest: bytes | None = None

    def keep(self, memo: Memo, now: Micros) -> None:
        """Keep an event that is not known yet. If the table is full, one goes to make room, maybe this."""
        self.forget_expired(now)
        if memo.id not in self and memo.expires_at > now:
            self._digest = None
            self._entries[memo.id] = memo

    def forget_expired(self, now: Micros) -> None:
        if [*self._entries.expire(now), *self._pushed_out.expire(now)]:
            self._digest = None

    def clear(self) -> None:
        self._entries.clear()
        self._pushed_out.clear()
        self._digest = None

    def forget_notified(self, node: NodeVector) -> None:
        """A node's place in vectors is free again."""
        for memo in self._entries.values():
            memo.notified &= ~node

    # Questions. Their answers are as of the last `forget_expired`.

    def entry(self, event: EventId) -> Memo | None:
        return self._entries.get(event)

    def entries(self) -> list[Memo]:
        """By publisher, and each publisher's in the order of publication."""
        return [self._entries[key] for key in sorted(self._entries)]

    def between(self, first: tuple[int, int], end: tuple[int, int] | None) -> list[EventId]:
        """The events that are kept, from the first on, before the end (None: to the last), in order."""
        return sorted(key for key in self._entries if first <= key and (end is None or key < end))

    def known(self) -> list[EventId]:
        """The events that are kept or were pushed out, in order."""
        return sorted([*self._entries, *self._pushed_out])

    def missing(self, now: Micros) -> list[EventId]:
        """Events that must exist, because later ones name them, but that never came here."""
        named = {memo.predecessor(now) for memo in self._entries.values()}
        return sorted(key for key in named if key is not None and key not in self)

    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = digest_of(self.known())
        return self._digest

    def __contains__(self, event: EventId) -> bool:
        """Known: kept, or pushed out and not yet expired."""
        return event in self._entries or event in self._pushed_out

    def __len__(self) -> int:
        return len(self._entries)

    def _push_out(self, event: EventId, memo: Memo) -> None:
        self._pushed_out[event] = memo.expires_at
        self._on_full(memo)
