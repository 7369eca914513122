"""K-means [10] over summary vectors (section 3.4.3).

A centroid is the mean of some of the points, so it is kept as the numbers of these points. Distances between
points and centroids then follow from the products of pairs of points alone, and each product is a weighted
count of common bits. Products and their sums are whole numbers: the result is the same on every machine and
in any order of addition. Ties go to the lower number.

The paper starts with K = 2 or 3 and applies "some heuristic step" because K is not known. Here K grows by
one while a further group is worth its price. Groups reduce noise: a member gets the events that its group's
summary matches, and does not want those that its own summary lacks. Their share, the mean over all members,
must fall by `GROUP_PRICE` for each further group. Constants without a quotation are chosen by us.

"One reason of using the K-means algorithm is to exclude subscriptions that are distant from the main group
where the majority of subscribers are." The paper says neither how far that is nor what becomes of them. With
a limit (`exclude_distance`) they are in no group; without one, which is the default, they have groups of
their own where these are worth their price.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, combinations, islice
from typing import Protocol, TypeAlias

from roamcast.strategy.odmrp.summary.bloom import positions
from roamcast.units import NodeId

ITERATIONS_MAX = 10  # K-means converges quickly in practice, and may stop after any iteration
GROUPS_FIRST = (2, 3)  # "the initial K value is assigned either 2 or 3"
GROUPS_MAX = 8  # of the heuristic: each group is one more mesh to maintain
GROUP_PRICE = 0.03  # by how much a further group must reduce the noise, a share from 0 to 1
DRAWN_STARTS = 4  # random starts: more find better groups and take longer
MISSES_MAX = 1  # how many larger K are tried after one that was not worth its price

WeighedBits: TypeAlias = tuple[tuple[int, int], ...]
"""A vector: for each weight, the positions that have this value; all others are 0."""
Centroid: TypeAlias = tuple[int, ...]
"""The mean of the points with these numbers."""
Labels: TypeAlias = list[int]
"""Of each point, the number of its centroid."""


class Chance(Protocol):
    """The draws that are needed here; `Host.random` and `random.Random` have them."""

    def random(self) -> float: ...


class Points:
    """Vectors with the same weights, and the products of all pairs of them."""

    def __init__(self, vectors: Sequence[WeighedBits]) -> None:
        self.vectors = vectors
        distinct = {vector: number for number, vector in enumerate(dict.fromkeys(vectors))}
        self.distinct = len(distinct)
        kinds = [distinct[vector] for vector in vectors]  # many nodes have equal vectors
        rows: list[list[int]] = []
        for number, one in enumerate(distinct):  # products are the same both ways
            rows.append(
                [row[number] for row in rows] + [_product(one, x) for x in islice(distinct, number, None)]
            )
        expanded = [[row[kind] for kind in kinds] for row in rows]
        self.products = [expanded[kind] for kind in kinds]
        self.lengths = [row[at] for at, row in enumerate(self.products)]  # of each point, squared
        self._distances: dict[Centroid, list[float]] = {}

    def __len__(self) -> int:
        return len(self.vectors)

    def squared_distances(self, centroid: Centroid) -> list[float]:
        """Of each point, without its own squared length, which is the same for all centroids."""
        found = self._distances.get(centroid)
        if found is None:
            size = len(centroid)
            products = list(map(sum, zip(*(self.products[at] for at in centroid), strict=True)))
            length = sum(products[at] for at in centroid)
            found = [length / size**2 - 2.0 * product / size for product in products]
            self._distances[centroid] = found
        return found

    def to_the_nearest(self, centroids: Sequence[Centroid]) -> list[float]:
        """Of each point, the squared distance to the nearest centroid."""
        columns = [self.squared_distances(centroid) for centroid in centroids]
        return [min(each) + own for *each, own in zip(*columns, self.lengths, strict=True)]


def cluster(
    vectors: Mapping[NodeId, WeighedBits],
    *,
    k: int | None,
    random: Chance,
    previous: Sequence[Sequence[NodeId]] | None = None,
    iterations_max: int = ITERATIONS_MAX,
    exclude_distance: float | None = None,
) -> list[tuple[NodeId, ...]]:
    """Disjoint groups, none of them empty, that together hold every node that is not excluded."""
    nodes = sorted(vectors)
    points = Points([vectors[node] for node in nodes])
    most = points.distinct  # equal vectors have one nearest centroid
    start = [] if previous is None else _centroids_of(nodes, previous)
    if k is not None and start:
        labels = iterate(points, _with_size(points, start, min(k, most)), iterations_max)
    elif k is not None:
        labels = _from_scratch(points, min(k, most), random, iterations_max)
    elif not start:
        labels = _grown(points, min(GROUPS_MAX, most), random, iterations_max)
    else:
        labels = _readjusted(points, start, min(GROUPS_MAX, most), iterations_max)
    groups = list(_members(labels).values())
    if exclude_distance is not None:
        groups = _without_distant(points, groups, exclude_distance)
    return sorted(tuple(nodes[at] for at in members) for members in groups)


def iterate(points: Points, centroids: Sequence[Centroid], iterations_max: int) -> Labels:
    """Steps 2 to 4 of the paper: assign, move the centroids, until nothing changes or the steps are over."""
    labels = _nearest(points, centroids)
    for _ in range(iterations_max):
        members = _members(labels)
        # The mean of each group; an empty group keeps its centroid, and may get members again.
        centroids = [tuple(members.get(number, before)) for number, before in enumerate(centroids)]
        again = _nearest(points, centroids)
        if again == labels:
            break
        labels = again
    return labels


def noise(points: Points, labels: Labels) -> float:
    """Mean over the members: the share of their group's bits that they do not have themselves."""
    shares = []
    for members in _members(labels).values():
        united = _squared_length(_union(points.vectors[at] for at in members))
        shares += [1.0 - points.lengths[at] / united for at in members] if united else [0.0]
    return math.fsum(shares) / len(points)


def _without_distant(points: Points, groups: list[list[int]], limit: float) -> list[list[int]]:
    """The groups without members that are distant from the main group: the largest, with the lowest member
    at a tie. The squared distance from its centroid counts as a share of what it is for two vectors that have
    nothing in common, the sum of their squared lengths: from 0, equal, to 1. The main group's own members
    are tested too."""
    main = min(groups, key=lambda members: (-len(members), members))
    size = len(main)
    products = list(map(sum, zip(*(points.products[at] for at in main), strict=True)))
    length = sum(products[at] for at in main) / size**2
    # distance² > limit × both, where distance² = both - 2 × product
    near = [
        2.0 * product / size >= (1.0 - limit) * (own + length)
        for product, own in zip(products, points.lengths, strict=True)
    ]
    left = ([at for at in members if near[at]] for members in groups)
    return [members for members in left if members]


def _from_scratch(points: Points, k: int, random: Chance, iterations_max: int) -> Labels:
    """The least noisy of several starts, since K-means finds local optima."""
    first = _any_point(points, random)
    # One start uses the farthest points: it puts outliers, which the paper wants out of the main group, into
    # groups of their own. The others draw points by their distance (k-means++, Arthur and Vassilvitskii).
    starts = [_with_size(points, first, k)]
    starts += (_drawn(points, k, random) for _ in range(DRAWN_STARTS))
    candidates = [iterate(points, start, iterations_max) for start in starts]
    return min(candidates, key=lambda labels: noise(points, labels))


def _drawn(points: Points, k: int, random: Chance) -> list[Centroid]:
    centroids = _any_point(points, random)
    while len(centroids) < k:
        reached = list(accumulate(points.to_the_nearest(centroids)))
        drawn = bisect_right(reached, random.random() * reached[-1])
        centroids.append((min(drawn, len(points) - 1),))
    return centroids


def _any_point(points: Points, random: Chance) -> list[Centroid]:
    return [(min(int(random.random() * len(points)), len(points) - 1),)]


def _with_size(points: Points, centroids: Sequence[Centroid], k: int) -> list[Centroid]:
    """Drop one of the nearest two centroids, or add the farthest point, until there are K."""
    chosen = list(centroids)
    while len(chosen) > k:
        del chosen[_nearest_pair(points, chosen)[1]]
    while len(chosen) < k:
        distances = points.to_the_nearest(chosen)
        chosen.append((distances.index(max(distances)),))
    return chosen


def _grown(points: Points, most: int, random: Chance, iterations_max: int) -> Labels:
    best, best_cost, misses = [0] * len(points), math.inf, 0
    for k in range(min(GROUPS_FIRST[0], most), most + 1):
        labels = _from_scratch(points, k, random, iterations_max)
        cost = noise(points, labels) + GROUP_PRICE * k
        if cost < best_cost:
            best, best_cost, misses = labels, cost, 0
        elif k > GROUPS_FIRST[1]:
            misses += 1
            if misses > MISSES_MAX:
                break
    return best


def _readjusted(points: Points, start: list[Centroid], most: int, iterations_max: int) -> Labels:
    """From the previous groups: as many again, one less or one more, whichever costs least."""
    before = len(start)
    least = min(GROUPS_FIRST[0], most)
    sizes = {min(max(size, least), most) for size in (before - 1, before, before + 1)}
    best, best_cost = [0] * len(points), math.inf
    for k in sorted(sizes, key=lambda size: abs(size - before)):  # at a tie, as many as before
        labels = iterate(points, _with_size(points, start, k), iterations_max)
        cost = noise(points, labels) + GROUP_PRICE * k
        if cost < best_cost:
            best, best_cost = labels, cost
    return best


def _nearest(points: Points, centroids: Sequence[Centroid]) -> Labels:
    columns = [points.squared_distances(centroid) for centroid in centroids]
    return [distances.index(min(distances)) for distances in zip(*columns, strict=True)]


def _nearest_pair(points: Points, centroids: Sequence[Centroid]) -> tuple[int, int]:
    """By the sum of differences over all positions."""
    counts = [
        Counter(chain.from_iterable(_places(points.vectors[at]) for at in centroid)) for centroid in centroids
    ]

    def gap(pair: tuple[int, int]) -> float:
        (one, one_size), (other, other_size) = ((counts[number], len(centroids[number])) for number in pair)
        differences = (
            weight * abs(one[weight, place] * other_size - other[weight, place] * one_size)
            for weight, place in one.keys() | other.keys()
        )
        return sum(differences) / (one_size * other_size)

    return min(combinations(range(len(centroids)), 2), key=lambda pair: (gap(pair), pair))


def _centroids_of(nodes: Sequence[NodeId], groups: Sequence[Sequence[NodeId]]) -> list[Centroid]:
    """Of the previous groups with their remaining members; a group without any has none."""
    number = {node: at for at, node in enumerate(nodes)}
    left = (tuple(number[node] for node in members if node in number) for members in groups)
    return [centroid for centroid in left if centroid]


def _members(labels: Labels) -> dict[int, list[int]]:
    """The points of each group that has any."""
    members: dict[int, list[int]] = {}
    for at, number in enumerate(labels):
        members.setdefault(number, []).append(at)
    return members


def _product(one: WeighedBits, other: WeighedBits) -> int:
    return sum(
        weight * weight * (bits & more).bit_count()
        for (weight, bits), (_, more) in zip(one, other, strict=True)
    )


def _squared_length(vector: WeighedBits) -> int:
    return _product(vector, vector)


def _union(vectors: Iterable[WeighedBits]) -> WeighedBits:
    united: dict[int, int] = {}
    for vector in vectors:
        for weight, bits in vector:
            united[weight] = united.get(weight, 0) | bits
    return tuple(united.items())


@lru_cache(maxsize=1_024)  # the same members are grouped again and again
def _places(vector: WeighedBits) -> tuple[tuple[int, int], ...]:
    return tuple((weight, place) for weight, bits in vector for place in positions(bits))
