"""Global grouping: which brokers share a multicast group (Pub/Sub ODMRP, section 3.4).

The publisher's broker knows the summaries of the brokers that want its events and chooses groups:

- least constrained (3.4.1): one group, described by the least constrained subscription, that is by the
  conditions that all have in common. Cheapest to describe and to look up; one broker that wants everything
  makes it match everything, as the paper warns.
- graph (3.4.2): one group, described by the roots of the graph of subscriptions (`covering_graph.py`), those
  that no other covers; an event is published if it matches at least one of them.
- K-means (3.4.3): several groups of brokers with similar summaries, by `k_means.py`.

A group's summary covers that of each member, so no event that a member wants misses its group.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from roamcast.strategy.odmrp.grouping.covering_graph import CoveringGraph
from roamcast.strategy.odmrp.grouping.k_means import ITERATIONS_MAX, Chance, cluster
from roamcast.strategy.odmrp.summary.geometry import ENTRIES_MAX
from roamcast.strategy.odmrp.summary.summary import Summary
from roamcast.units import NodeId

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
) -> list[Group]:
    """Every node in exactly one group, ordered by their smallest members. Brokers without subscriptions
    are in none.

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
            clusters = cluster(vectors, k=k, random=random, previous=before, iterations_max=iterations_max)
            return [Group(members, united(wanting[member] for member in members)) for members in clusters]


def united(members: Iterable[Summary]) -> Summary:
    """The summary of a group. It stays at the publisher's broker, so it may be longer than one that is
    sent."""
    return Summary.all_of(members, most=ENTRIES_MAX)
