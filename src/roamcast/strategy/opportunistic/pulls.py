"""Asking for what a reader lacks: the producer itself, or its home broker where the producer is out of reach.

Neighbours are asked first where the event was flooded (`gossip.py`), so a reader's hole waits for
them a moment. Whoever is asked sends what the consumer's filters match, and says that this was all.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from roamcast.errors import WireError
from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.strategy.opportunistic.copies import Copies, EventCopy
from roamcast.strategy.opportunistic.messages import CarryLetter, Fetch, Head
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.readers import EventReader, Hole
from roamcast.strategy.opportunistic.stream import Post
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

TICK: Micros = 250 * MILLISECOND
NEIGHBOURS_FIRST: Micros = 2_500 * MILLISECOND
AGAIN: Micros = 3 * SECOND
SENT_AT_ONCE = 100  # events in answer to one question

Filters = Callable[[EventReader], tuple[bytes, ...]]


class Pulls:
    """The timer is `"holes"`."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        options: OpportunisticOptions,
        post: Post,
        copies: Copies,
        *,
        readers: Callable[[], Iterable[EventReader]],
        filters: Filters,
        home_of: Callable[[NodeId], NodeId | None],
    ) -> None:
        """`readers`: those of this node; `filters`: what each wants; `home_of`: a producer's home broker."""
        self._host = host
        self._underlay = underlay
        self._post = post
        self._copies = copies
        self._readers = readers
        self._filters = filters
        self._home_of = home_of
        self._patience = micros(options.keep_realtime)
        self._is_ticking = False
        self._asked: dict[tuple[NodeId, bool, NodeId], tuple[int, Micros]] = {}  # after which, and when

    # Inputs.

    def on_hole(self) -> None:
        """Some reader may lack something."""
        if not self._is_ticking:
            self._is_ticking = True
            self._host.set_timer("holes", self._host.now() + TICK)

    def on_timer(self) -> None:
        self._is_ticking = False
        now = self._host.now()
        has_holes = False
        for reader in self._readers():
            reader.give_up(now - max(self._patience, 4 * AGAIN), now)
            for hole in reader.holes():
                has_holes = True
                if hole.after <= hole.until:
                    self._consider(reader, hole, now)
        if has_holes:
            self.on_hole()
        else:
            self._asked.clear()

    def on_fetch(self, sender: NodeId, fetch: Fetch) -> None:
        """Somebody lacks events of this node, or of a client that was at home here. A home may have had some
        of its events and not those between: it answers as far as it has every one."""
        now, is_own = self._host.now(), fetch.producer == self._host.node
        wanted = _opened(fetch.filters)
        base, sent, had = fetch.after, 0, fetch.after
        for copy in self._copies.of(fetch.producer, fetch.after, fetch.until):
            if sent == SENT_AT_ONCE or (copy.previous > had and not is_own):
                break
            had = copy.event.sequence + 1
            if copy.age(now) <= fetch.within and _is_for(fetch, wanted, copy):
                self._post.write(sender, carried(copy, fetch.consumer, fetch.is_modulated, base, now))
                base = had
                sent += 1
        else:
            had = fetch.until + 1 if is_own else had
        if had > fetch.after:
            self._post.write(sender, Head(fetch.consumer, fetch.is_modulated, fetch.producer, had - 1, True))

    # Private.

    def _consider(self, reader: EventReader, hole: Hole, now: Micros) -> None:
        key = (reader.consumer, reader.is_modulated, hole.producer)
        after, at = self._asked.get(key, (-1, 0))
        has_neighbours_copy = any(
            self._copies.flood(copy.event.id) is not None
            for copy in self._copies.of(hole.producer, hole.until + 1, hole.until + 64)
        )
        if after == hole.after:
            if now - at < AGAIN:
                return
        elif now - hole.since < (NEIGHBOURS_FIRST if has_neighbours_copy else TICK):
            return
        to = self._whom(hole.producer)
        if to is None:
            return
        self._asked[key] = hole.after, now
        within = max(now - reader.since, 0)
        self._post.write(
            to,
            Fetch(
                reader.consumer,
                reader.is_modulated,
                hole.producer,
                hole.after,
                hole.until,
                within,
                self._filters(reader),
            ),
        )

    def _whom(self, producer: NodeId) -> NodeId | None:
        own = self._host.node
        for node in (producer, self._home_of(producer)):
            if node is not None and (node == own or self._underlay.distance(node) is not None):
                return node
        return None


def carried(copy: EventCopy, consumer: NodeId, is_modulated: bool, base: int, now: Micros) -> CarryLetter:
    hops = min(copy.hops, 255)
    return CarryLetter(
        copy.event, copy.age(now), hops, consumer, is_modulated, base, False, copy.previous, copy.gap
    )


class HeldCarry(NamedTuple):
    """A letter that waits here, since then."""

    carry: CarryLetter
    since: Micros

    def aged(self, now: Micros) -> CarryLetter:
        return self.carry.aged(now - self.since)


def _is_for(fetch: Fetch, wanted: list[Filter], copy: EventCopy) -> bool:
    event = copy.event
    if not fetch.is_modulated and fetch.consumer in event.destinations:
        return True
    if event.publisher == fetch.consumer and not fetch.is_modulated:
        return False  # its plain subscriptions were served when it was published
    return event.wants_subscribers and any(one.matches(event) for one in wanted)


def _opened(filters: Iterable[bytes]) -> list[Filter]:
    opened = []
    for one in filters:
        try:
            opened.append(Filter.decode(one))
        except WireError:
            continue  # what cannot be read matches nothing
    return opened
