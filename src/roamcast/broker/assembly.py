"""Joining: which chunks of a large payload are here, and the whole payload when all of them are.

The octets stay in the broker's store, which has bounds of its own for chunks (`broker/store.py`); an assembly
only notes which ones are there. So a hostile peer can fill a table of small records and a share of the store,
and nothing else; and an assembly that had to make room, or was lost with a restart, is made again from the
store when the next chunk comes. A whole is given to each application that asked for it, once, after its
digest was compared.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from roamcast.broker.core import Delivery
from roamcast.broker.store import StoredEvent
from roamcast.chunks import MARK, Chunk, content, digest_of, is_chunk, parse, readable, whole_of
from roamcast.errors import WireError
from roamcast.event import Event, EventId
from roamcast.kit.tables import ExpiringDict
from roamcast.units import Micros

ASSEMBLIES_MAX = 512  # wholes that are known at a time, finished ones included; chosen by us


class Problem(NamedTuple):
    """Why a chunk or a whole was given up. `reason` is a metric's label."""

    reason: str
    words: str


MALFORMED = Problem("malformed", "a chunk cannot be read")
CONTRADICTS = Problem("contradicts", "a chunk contradicts the others of its whole")
NOT_KEPT = Problem("not_kept", "the store has no room for a chunk")
TOO_MANY = Problem("too_many", f"more than {ASSEMBLIES_MAX} large payloads are under way")
UNFINISHED = Problem("unfinished", "a large payload did not become whole in time")
DAMAGED = Problem("damaged", "a large payload is not what its publisher sent: its digest differs")
PROBLEMS = (MALFORMED, CONTRADICTS, NOT_KEPT, TOO_MANY, UNFINISHED, DAMAGED)


class Assembly:
    """What is known of one large payload."""

    __slots__ = ("chunk", "frame", "hops", "is_late", "missing", "served", "until", "wanted")

    def __init__(self, chunk: Chunk, frame: Event, until: Micros) -> None:
        self.chunk = chunk  # the first that came
        self.frame = frame  # the same, without what differs between chunks
        self.until = until
        self.missing = (1 << chunk.total) - 1  # a bit for each chunk; a set would take 400 times the room
        self.wanted: dict[int, dict[int, None]] = {}  # application: its subscriptions, until it is served
        self.served: set[int] = set()  # applications
        self.hops = 0  # the most that a chunk took
        self.is_late = False  # all was here before anyone asked for it

    @property
    def is_whole(self) -> bool:
        return not self.missing

    def has(self, index: int) -> None:
        self.missing &= ~(1 << index)


class Assembler:
    def __init__(
        self,
        find: Callable[[EventId], StoredEvent | None],
        readable_form: Callable[[Event], Event],
        on_problem: Callable[[Problem, EventId | None], None],
    ) -> None:
        """`find`: a stored event; `readable_form`: as applications may see it, if it is sealed."""
        self._find = find
        self._readable_form = readable_form
        self._on_problem = on_problem
        self._assemblies: ExpiringDict[EventId, Assembly] = ExpiringDict(
            ASSEMBLIES_MAX, self._on_evicted, lambda assembly: assembly.until
        )

    def on_chunk(self, delivery: Delivery, application: int, now: Micros) -> list[Delivery]:
        """A chunk for one application; returns the deliveries of the whole that it completes."""
        event = delivery.event
        self._expire(now)
        try:
            chunk = parse(event)
        except WireError:
            self._on_problem(MALFORMED, None)
            return []
        assembly = self._assemblies.get(chunk.whole)
        if assembly is None:
            assembly = self._open(chunk, event, now)
        if not _agrees(assembly, chunk, event):
            self._on_problem(CONTRADICTS, chunk.whole)
            return []
        if self._find(event.id) is None:
            self._on_problem(NOT_KEPT, chunk.whole)
            return []
        assembly.has(chunk.place)
        assembly.hops = max(assembly.hops, delivery.hops)
        if application in assembly.served:
            return []
        assembly.wanted.setdefault(application, {}).update(dict.fromkeys(delivery.subscriptions))
        return self._serve(assembly, now) if assembly.is_whole else []

    def whole(self, stored: StoredEvent, now: Micros) -> StoredEvent | None:
        """A memorized event, joined if it came in chunks and this is one of them."""
        chunk = readable(stored.event)
        if chunk is None:
            return stored
        last = self._find(EventId(chunk.whole.publisher, chunk.whole.sequence + chunk.total - 1))
        return None if last is None else self.whole_stored(last, now)

    def whole_stored(self, last: StoredEvent, now: Micros) -> StoredEvent | None:
        """The memorized whole whose last chunk this is, if all of it is stored."""
        chunk = readable(last.event)
        if chunk is None or chunk.place != chunk.total - 1 or not chunk.lifetime:
            return None
        payload = self._joined(chunk)
        first = self._find(chunk.whole)
        if payload is None or first is None:
            return None
        ends = _published_at(first) + chunk.lifetime
        return StoredEvent(whole_of(last.event, chunk, payload), ends, last.hops) if ends > now else None

    @property
    def unfinished(self) -> int:
        """Large payloads that are under way to this node."""
        return sum(not assembly.is_whole for assembly in self._assemblies.values())

    # Private.

    def _open(self, chunk: Chunk, event: Event, now: Micros) -> Assembly:
        assembly = Assembly(chunk, _frame(event), now + event.lifetime)
        for index in range(chunk.total):
            found = self._find(EventId(chunk.whole.publisher, chunk.whole.sequence + index))
            if found is not None and index != chunk.place:
                other = self._readable_form(found.event)
                kept = readable(other)
                if kept is not None and _agrees(assembly, kept, other):
                    assembly.has(index)
        # A real-time whole is not for those who subscribe after it was here.
        assembly.is_late = assembly.missing == 1 << chunk.place and chunk.total > 1 and not chunk.lifetime
        self._assemblies[chunk.whole] = assembly
        return assembly

    def _serve(self, assembly: Assembly, now: Micros) -> list[Delivery]:
        wanted, assembly.wanted = assembly.wanted, {}
        is_first = not assembly.served
        assembly.served.update(wanted)
        chunk = assembly.chunk
        first = self._find(chunk.whole)
        if first is None:
            self._on_problem(NOT_KEPT, chunk.whole)
            return []
        if assembly.is_late or (not is_first and not chunk.lifetime):
            return []
        if chunk.lifetime and _published_at(first) + chunk.lifetime <= now:
            return []
        payload = self._joined(chunk)
        if payload is None:
            return []
        event = whole_of(assembly.frame, chunk, payload)
        return [Delivery(event, tuple(numbers), assembly.hops) for numbers in wanted.values()]

    def _joined(self, chunk: Chunk) -> bytes | None:
        octets: list[memoryview] = []
        for index in range(chunk.total):
            found = self._find(EventId(chunk.whole.publisher, chunk.whole.sequence + index))
            if found is None:
                return None
            octets.append(content(self._readable_form(found.event)))
        payload = b"".join(octets)
        if len(payload) != chunk.size or digest_of(payload) != chunk.digest:
            self._on_problem(DAMAGED, chunk.whole)
            return None
        return payload

    def _expire(self, now: Micros) -> None:
        first = self._assemblies.next_expiry() if self._assemblies else None
        if first is None or first > now:
            return
        unfinished = [key for key, one in self._assemblies.items() if one.until <= now and not one.is_whole]
        self._assemblies.expire(now)
        for key in unfinished:
            self._on_problem(UNFINISHED, key)

    def _on_evicted(self, whole: EventId, assembly: Assembly) -> None:
        if not assembly.is_whole:
            self._on_problem(TOO_MANY, whole)


def _published_at(first: StoredEvent) -> Micros:
    return first.expires_at - first.event.lifetime


def _frame(event: Event) -> Event:
    """What all chunks of a whole have in common, beside their heads."""
    return msgspec.structs.replace(
        event, sequence=0, after=0, payload=b"", attributes={**event.attributes, MARK: 0}
    )


def _agrees(assembly: Assembly, chunk: Chunk, event: Event) -> bool:
    return (
        is_chunk(event)
        and chunk._replace(place=0) == assembly.chunk._replace(place=0)
        and _frame(event) == assembly.frame
    )
