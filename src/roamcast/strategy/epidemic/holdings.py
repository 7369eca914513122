"""What this node can give: memorized events from the broker's store, and recent real-time events."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from roamcast.broker.seen import EventKey, event_key
from roamcast.broker.store import EventStore
from roamcast.event import Event, EventId, event_ids
from roamcast.kit.tables import BoundedDict, OnEvicted
from roamcast.strategy.epidemic.messages import PUBLISHERS_MAX, RANGES_MAX, HeldRuns
from roamcast.units import Micros, NodeId

SCANNED_MAX = 50_000  # identifiers of one digest that are examined; chosen by us


class Holding(NamedTuple):
    event: Event
    hops: int
    age: Micros  # at the time of the question


class RecentCopy(NamedTuple):
    event: Event
    hops: int
    age: Micros  # at its arrival
    arrived: Micros


class Holdings:
    def __init__(
        self,
        store: EventStore,
        *,
        recent_time: Micros,
        recent_max: int,
        on_evicted: OnEvicted[EventId, RecentCopy],
    ) -> None:
        self._store = store
        self._recent: BoundedDict[EventId, RecentCopy] = BoundedDict(recent_max, on_evicted)
        self._recent_time = recent_time
        self._turn = 0  # of publishers
        self._part = 0  # of a publisher's runs

    def remember(self, event: Event, hops: int, age: Micros, now: Micros) -> None:
        """A real-time event has come; memorized ones are in the store already."""
        if age < self._recent_time:
            if self._recent.is_full:
                self._forget_old(now)
            # As `RecentCopy(…)`, three times as fast.
            self._recent[event.id] = tuple.__new__(RecentCopy, (event, hops, age, now))

    def find(self, key: EventId, now: Micros) -> Holding | None:
        stored = self._store.find(key)
        if stored is not None:
            left = stored.expires_at - now
            return Holding(stored.event, stored.hops, stored.event.lifetime - left) if left > 0 else None
        recent = self._recent.get(key)
        if recent is None:
            return None
        event, hops, age, arrived = recent
        return Holding(event, hops, age + now - arrived)

    def any_memorized(self, keys: Iterable[EventId]) -> bool:
        return len(self._store) > 0 and any(key in self._store for key in keys)

    def digest(self, now: Micros) -> tuple[HeldRuns, ...]:
        """In increasing order. If not all publishers fit, each digest has the next ones in turn."""
        self._forget_old(now)
        keys = [stored.event.id for stored in self._store.standing(now)]
        keys.extend(self._recent)
        by_publisher: dict[NodeId, list[int]] = {}
        for publisher, sequence in sorted(set(keys)):
            by_publisher.setdefault(publisher, []).append(sequence)
        publishers = list(by_publisher)
        if len(publishers) > PUBLISHERS_MAX:
            self._turn %= len(publishers)
            publishers = (publishers[self._turn :] + publishers[: self._turn])[:PUBLISHERS_MAX]
            self._turn += PUBLISHERS_MAX
        self._part += 1
        return tuple(
            HeldRuns(publisher, self._fitting(tuple(runs(by_publisher[publisher]))))
            for publisher in publishers
        )

    def _fitting(self, all_runs: tuple[int, ...]) -> tuple[int, ...]:
        """If there are too many runs: the newest, and of the others each digest has the next ones in turn."""
        if len(all_runs) <= 2 * RANGES_MAX:
            return all_runs
        older, newest = all_runs[:-RANGES_MAX], all_runs[-RANGES_MAX:]
        at = self._part * RANGES_MAX % (-(-len(older) // RANGES_MAX) * RANGES_MAX)
        return older[at : at + RANGES_MAX] + newest

    def _forget_old(self, now: Micros) -> None:
        self._recent.forget_oldest(lambda copy: copy.age + now - copy.arrived >= self._recent_time)


def runs(sequences: list[int]) -> Iterator[int]:
    """First and last of each run of consecutive numbers, in a sorted list without repeats."""
    yield sequences[0]
    for before, after in pairwise(sequences):
        if after != before + 1:
            yield before
            yield after
    yield sequences[-1]


def runs_of(events: Iterable[EventId]) -> tuple[HeldRuns, ...]:
    """A short form of at most as many events as a digest names; of too many runs the first."""
    by_publisher: dict[NodeId, list[int]] = {}
    for publisher, sequence in sorted(set(events)):
        by_publisher.setdefault(publisher, []).append(sequence)
    return tuple(
        HeldRuns(publisher, tuple(runs(sequences))[: 2 * RANGES_MAX])
        for publisher, sequences in islice(by_publisher.items(), PUBLISHERS_MAX)
    )


def events_of(held: Iterable[HeldRuns]) -> Iterator[EventId]:
    """Every event that a digest names, up to `SCANNED_MAX`: a hostile digest may claim 2^63 of them."""
    left = SCANNED_MAX
    for entry in held:
        for first, last in zip(entry.runs[::2], entry.runs[1::2], strict=False):
            count = min(last - first + 1, left)
            yield from event_ids(entry.publisher, range(first, first + count))
            left -= max(count, 0)


class DigestRead:
    """The digest that was read last, for all nodes of this process: a broadcast reaches many nodes of a
    simulation as the same object, and most have seen all of its events."""

    def __init__(self) -> None:
        self._held: tuple[HeldRuns, ...] = ()
        self._events: dict[EventKey, EventId] = {}
        self._keys: frozenset[EventKey] = frozenset()

    def events_among(
        self, held: tuple[HeldRuns, ...], choose: Callable[[frozenset[EventKey]], frozenset[EventKey]]
    ) -> list[EventId]:
        """Those that a digest names and `choose` takes, in the digest's order, as `events_of`."""
        if held is not self._held:
            self._events = {event_key(*event): event for event in events_of(held)}
            self._held, self._keys = held, frozenset(self._events)
        chosen = choose(self._keys)
        return [event for key, event in self._events.items() if key in chosen] if chosen else []


DIGEST_READ = DigestRead()


def missing(held: Iterable[HeldRuns], told: Iterable[HeldRuns]) -> Iterator[EventId]:
    """The events of those runs of `told` that `held` does not contain completely, up to `SCANNED_MAX`. Runs
    are compared, not events, since both may name thousands."""
    theirs = {entry.publisher: entry.runs for entry in held}
    lacking: list[HeldRuns] = []
    for entry in told:
        runs_held = theirs.get(entry.publisher, ())
        for first, last in zip(entry.runs[::2], entry.runs[1::2], strict=True):
            if not any(
                a <= first and last <= b for a, b in zip(runs_held[::2], runs_held[1::2], strict=False)
            ):
                lacking.append(HeldRuns(entry.publisher, (first, last)))
    yield from events_of(lacking)
