"""The multicast groups that a publisher's broker makes of the subscriptions it learns (section 3.4).

Each group is a channel: its members, and what they want. An event travels over the channels that want it: by
the summaries of all channels in one table, or, with the graph method, by a search in the graph. Members
that joined after the last announcement of the groups belong to no channel yet, and those that K-means
excludes (`exclude_distance`) to none at all. They share bit 0, which an event has if one of their own
summaries matches it.

Global grouping: which brokers share a multicast group (Pub/Sub ODMRP, section 3.4).

The publisher's broker knows the summaries of the brokers that want its events and chooses groups:

- least constrained (3.4.1): one group, described by the least constrained subscription, that is by the
  conditions that all have in common. Cheapest to describe and to look up; one broker that wants everything
  makes it match everything, as the paper warns.
- graph (3.4.2): one group, described by the roots of the graph of subscriptions (`covering_graph.py`), those
  that no other covers; an event is published if it matches at least one of them.
- K-means (3.4.3): several groups of brokers with similar summaries, by `k_means.py`.

A group's summary covers that of each member, so no event that a member wants misses its group.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from roamcast.strategy.odmrp.grouping.covering_graph import CoveringGraph
from roamcast.strategy.odmrp.grouping.k_means import ITERATIONS_MAX, Chance, cluster
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.geometry import ENTRIES_MAX
from roamcast.strategy.odmrp.summary.summary import Summary, SummaryTable
from roamcast.units import NodeId

UNGROUPED = 1
"""The bit of members that are in no channel."""


class Channels:
    def __init__(self, options: OdmrpOptions, random: Chance, take_epoch: Callable[[], int]) -> None:
        """`take_epoch`: a new number each time, after a restart too: who knows the channels of an epoch looks
        at no other announcement of it."""
        self._method = options.grouping
        self._k = options.k
        self._exclude_distance = options.exclude_distance
        self._channels_max = options.channels_max
        self._random = random
        self._groups: list[Group] = []
        self._bits: dict[NodeId, int] = {}
        self._summaries: SummaryTable[int] = SummaryTable()  # by the channel's number
        self._graph: CoveringGraph[NodeId] | None = CoveringGraph() if self._method == "graph" else None
        self._take_epoch = take_epoch
        self.epoch = take_epoch()

    @property
    def members(self) -> tuple[tuple[NodeId, ...], ...]:
        """Channel by channel, as a Join Request announces them."""
        return tuple(tuple(sorted(group.members)) for group in self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def regroup(self, summaries: Mapping[NodeId, Summary]) -> None:
        """Compute the groups again; the epoch increases only if a group has other members than before."""
        before = self.members
        assert self._method != "none"
        made = group(
            self._method,
            summaries,
            k=self._k,
            random=self._random,
            previous=self._groups or None,
            exclude_distance=self._exclude_distance,
        )
        # Where there are more groups than bits, the smallest stay ungrouped.
        made = sorted(made, key=lambda found: (-len(found.members), min(found.members)))
        self._groups = made[: self._channels_max]
        if self.members != before:
            self.epoch = self._take_epoch()
        self._bits = {m: 2 << n for n, found in enumerate(self._groups) for m in found.members}
        self._summaries.clear()
        if self._graph is None:
            for number, found in enumerate(self._groups):
                self._summaries.add(number, found.summary)
        else:
            for member in set(self._graph.members()) - set(self._bits):
                self._graph.remove(member)
            for member in self._bits:
                self._graph.put(member, summaries[member].entries)

    def on_summary(self, member: NodeId, summary: Summary) -> None:
        """A member's subscriptions changed: its channel wants these too, so that no event is lost."""
        bit = self._bits.get(member)
        if bit is None:
            return
        if self._graph is not None:
            self._graph.put(member, summary.entries)
            return
        number = bit.bit_length() - 2
        self._summaries.add(number, self._summaries[number].union(summary))

    def bit(self, member: NodeId) -> int:
        return self._bits.get(member, UNGROUPED)

    def claim(self, digest: EventDigest | None) -> int:
        """The bits of the channels that want the event; all of them where nothing is known about it."""
        if digest is None:
            return sum(2 << number for number in range(len(self._groups)))
        if self._graph is not None:
            return 2 if self._groups and self._graph.matches(digest) else 0
        return sum(2 << number for number in self._summaries.matching(digest))

    def clear(self) -> None:
        """Nobody is left to group. The epoch stays: it must not be used twice."""
        if self._groups:
            self.epoch = self._take_epoch()
        self._groups, self._bits = [], {}
        self._summaries.clear()
        if self._graph is not None:
            self._graph = CoveringGraph()


Method: TypeAlias = Literal["least_constrained", "graph", "k_means"]


class Group(NamedTuple):
    members: tuple[NodeId, ...]  # ascending
    summary: Summary


def group(
    method: Method,
    summaries: Mapping[NodeId, Summary],
    *,
    k: int | None = None,
    random: Chance,
    previous: Sequence[Group] | None = None,
    iterations_max: int = ITERATIONS_MAX,
    exclude_distance: float | None = None,
) -> list[Group]:
    """Every node in exactly one group, ordered by their smallest members. Brokers without subscriptions
    are in none, nor are those that K-means excludes as farther from the main group than `exclude_distance`.

    `k` groups for K-means at most; without it, as many as a heuristic finds. `previous` is the grouping to
    start from when subscriptions have changed: then at most `iterations_max` re-balancing steps follow.
    """
    wanting = {node: summaries[node] for node in sorted(summaries) if not summaries[node].is_empty}
    if not wanting:
        return []
    options = next(iter(wanting.values())).options
    match method:
        case "least_constrained":
            return [Group(tuple(wanting), Summary.all_of(wanting.values(), most=1))]
        case "graph":
            graph = CoveringGraph((node, entry) for node, each in wanting.items() for entry in each.entries)
            return [Group(tuple(wanting), Summary.of_entries(graph.roots, options, most=ENTRIES_MAX))]
        case "k_means":
            before = None if previous is None else [each.members for each in previous]
            vectors = {node: summary.weighed_vector() for node, summary in wanting.items()}
            clusters = cluster(
                vectors,
                k=k,
                random=random,
                previous=before,
                iterations_max=iterations_max,
                exclude_distance=exclude_distance,
            )
            return [Group(members, united(wanting[member] for member in members)) for members in clusters]


def united(members: Iterable[Summary]) -> Summary:
    """The summary of a group. It stays at the publisher's broker, so it may be longer than one that is
    sent."""
    return Summary.all_of(members, most=ENTRIES_MAX)
