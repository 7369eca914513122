"""Routing tables: one table of filters per tree link, and the sets to announce to the other links.

The set announced to a neighbour is the union of what local applications and all *other* neighbours want,
without the filters that others of the union cover (`covering_set.py`). These sets are a function of the
tables, not of their history: so a lost message is repaired by sending a set again.

Reconfiguration (acyclic overlay, 2.1.4 and 5.3.1: `DeferredUnsubCM`, after Picco, Cugola and Murphy).
When link A-B breaks, the tree is soon joined again by another link, and most subscribers behind B are then
behind that one. So A keeps B's table as a *ghost* and goes on announcing those filters to its other
neighbours for `unsubscription_delay`. The new link announces the same filters; where they were announced
before, no message is needed. When the ghost ends, only the nodes between the old and the new link get
messages. No events are sent to a ghost, and its filters are not announced to links that came up after it.

Echoes. Because of the ghost of B at A, A's side announces filters that only B's side wants. If B itself
finds the new link, it gets its own side's filters over it and would announce them to its own side. B can
recognise them: an *echo* is a filter that B had announced to A and that A had not announced to B. Events
follow it at once, but it is announced further only if it still exists `echo_delay` after the ghost's end.
(If another node of B's side finds the link, it has no ghost and cannot recognise the echo, which then
travels and is withdrawn with the ghost.)
"""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.kit.tables import ExpiringDict
from roamcast.strategy.tree.content.covering_set import CoveringSet, widened
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.units import Micros, NodeId, micros

GHOSTS_MAX = 64  # chosen by us; beyond it the first to expire ends early


class RoutingTables:
    def __init__(self, options: TreeOptions, on_overflow: Callable[[], object]) -> None:
        """`on_overflow`: there are too many ghosts, and one ends early."""
        self._unsubscription_delay = micros(options.unsubscription_delay)
        self._echo_delay = micros(options.echo_delay)
        self._filters_max = options.filters_max
        self._local: dict[Filter, list[Micros]] = {}  # since when, one entry per subscription
        self.links: dict[NodeId, TableLink] = {}
        self._on_overflow = on_overflow
        self._ghosts: ExpiringDict[NodeId, Ghost] = ExpiringDict(
            GHOSTS_MAX, self._end_early, attrgetter("expires_at")
        )
        self._number = 0  # links and ghosts in the order of their creation
        self._changed: set[NodeId] = set()

    # Inputs.

    def on_subscribed(self, wanted: Filter, now: Micros) -> None:
        self._local.setdefault(wanted, []).append(now)
        self._spread(self.links.values(), [(wanted, now)], [])

    def on_unsubscribed(self, wanted: Filter) -> None:
        self._local[wanted].pop()  # the youngest: the older one counts for events already published
        if not self._local[wanted]:
            del self._local[wanted]
        self._spread(self.links.values(), [], [wanted])

    def on_link_up(self, neighbour: NodeId) -> None:
        self._number += 1
        link = self.links[neighbour] = TableLink(neighbour, self._number)
        for wanted, times in self._local.items():
            for since in times:
                link.outgoing.add(wanted, since)
        for other in self.links.values():
            if other is not link:
                for wanted, since in other.spread().items():
                    link.outgoing.add(wanted, since)
        self._changed.add(neighbour)

    def on_link_down(self, neighbour: NodeId, now: Micros) -> None:
        link = self.links.pop(neighbour)
        self._changed.discard(neighbour)
        if link.table is None:
            return  # no table had come; an earlier ghost of this neighbour stays
        self._number += 1
        self._ghosts[neighbour] = Ghost(
            link.spread(),
            frozenset(link.outgoing.visible()),
            list(self.links.values()),
            self._number,
            now + self._unsubscription_delay,
        )

    def on_table(self, neighbour: NodeId, table: dict[Filter, Micros]) -> list[Filter]:
        """The neighbour's set is now this one; returns what is new in it."""
        link = self.links[neighbour]
        before, known = link.spread(), link.table or {}
        added = [each for each in table if each not in known]
        link.set_table(table, {each: until for each in added if (until := self._echo_until(link, each))})
        after = link.spread()
        self._spread(
            [other for other in self.links.values() if other is not link],
            [(each, since) for each, since in after.items() if each not in before],
            [each for each in before if each not in after],
        )
        if neighbour in self._ghosts:
            self._end(self._ghosts.pop(neighbour))  # the neighbour itself is back and has sent its table
        return added

    def on_time(self, now: Micros) -> None:
        for neighbour in sorted(each for each, ghost in self._ghosts.items() if ghost.expires_at <= now):
            self._end(self._ghosts.pop(neighbour))
        for link in self.links.values():
            due = [each for each, until in link.held.items() if until <= now]
            for each in due:
                del link.held[each]
            if due and link.table is not None:
                others = [other for other in self.links.values() if other is not link]
                self._spread(others, [(each, link.table[each]) for each in due], [])

    def take_changed(self) -> list[NodeId]:
        """The links whose outgoing set may have changed since the last call."""
        changed = sorted(self._changed)
        self._changed.clear()
        return changed

    # Questions.

    def next_due(self) -> Micros | None:
        """When `on_time` has something to do."""
        times = [ghost.expires_at for ghost in self._ghosts.values()]
        times += [until for link in self.links.values() for until in link.held.values()]
        return min(times, default=None)

    def outgoing(self, neighbour: NodeId) -> Collection[Filter]:
        """The set to announce to this neighbour. Too many filters become fewer and wider ones."""
        return widened(self.links[neighbour].outgoing.visible(), self._filters_max)

    def outgoing_since(self, neighbour: NodeId, wanted: Filter) -> Micros | None:
        outgoing = self.links[neighbour].outgoing
        since = outgoing.since(wanted)
        return outgoing.oldest() if since is None else since  # None: a wider one that stands for several

    def wants(self, neighbour: NodeId, event: Event) -> bool:
        """Whether the event goes over this link. Before a table has come, every event does:
        losing one costs more than sending one needlessly."""
        link = self.links[neighbour]
        return link.table is None or bool(link.index.match(event))

    def wanted_since(self, neighbour: NodeId, event: Event) -> Micros | None:
        """Since when someone behind the link has wanted this event."""
        link = self.links[neighbour]
        if link.table is None:
            return None
        return min((link.table[each] for each in link.index.match(event)), default=None)

    def wanted_here_since(self, event: Event) -> Micros | None:
        """Since when a local application has wanted this event."""
        return min((times[0] for each, times in self._local.items() if each.matches(event)), default=None)

    def is_local(self, wanted: Filter) -> bool:
        return wanted in self._local

    # Private.

    def _spread(
        self,
        links: Iterable["TableLink"],
        added: list[tuple[Filter, Micros]],
        gone: list[Filter],
    ) -> None:
        if not added and not gone:
            return
        for link in links:
            for wanted, since in added:
                link.outgoing.add(wanted, since)
            for wanted in gone:
                link.outgoing.remove(wanted)
            self._changed.add(link.neighbour)

    def _end_early(self, neighbour: NodeId, ghost: "Ghost") -> None:
        self._on_overflow()
        self._end(ghost)

    def _end(self, ghost: "Ghost") -> None:
        """The ghost's filters are no longer announced, unless others want them too."""
        standing = [link for link in ghost.told_to if self.links.get(link.neighbour) is link]
        self._spread(standing, [], list(ghost.table))

    def _echo_until(self, link: "TableLink", wanted: Filter) -> Micros | None:
        return max(
            (
                ghost.expires_at + self._echo_delay
                for ghost in self._ghosts.values()
                if ghost.number < link.number and wanted in ghost.told and wanted not in ghost.table
            ),
            default=None,
        )


class TableLink:
    """One link: what the neighbour wants (`table`), and what is announced to it (`outgoing`)."""

    def __init__(self, neighbour: NodeId, number: int) -> None:
        self.neighbour = neighbour
        self.number = number  # in the order of their creation, ghosts included
        self.table: dict[Filter, Micros] | None = None  # None: has not come yet
        self.held: dict[Filter, Micros] = {}  # echoes, and when they are announced after all
        self.outgoing = CoveringSet()
        self.index: MatchingIndex[Filter] = MatchingIndex()

    def spread(self) -> dict[Filter, Micros]:
        """The part of the table that is announced to other neighbours."""
        return {each: since for each, since in (self.table or {}).items() if each not in self.held}

    def set_table(self, table: dict[Filter, Micros], held: dict[Filter, Micros]) -> None:
        known = self.table or {}
        for each in known:
            if each not in table:
                self.index.remove(each)
        for each in table:
            if each not in known:
                self.index.add(each, each)
        self.table = {each: min(since, known.get(each, since)) for each, since in table.items()}
        self.held = {each: until for each, until in (self.held | held).items() if each in table}


class Ghost(NamedTuple):
    """The table of a lost link, which stays announced to the neighbours that had it."""

    table: dict[Filter, Micros]
    told: frozenset[Filter]  # what had been announced to the lost neighbour
    told_to: list[TableLink]
    number: int
    expires_at: Micros
