"""K-means [10] over summary vectors (section 3.4.3).

Vectors are rows of small whole numbers, and centroids are kept as sums and counts, so all products below
are whole numbers that a float holds exactly: the outcome is the same on every machine, in whatever order a
library adds. Ties go to the lower number.

The paper starts with K = 2 or 3 and applies "some heuristic step" because K is not known. Here K grows by
one while a further group is worth its price. What groups are good for is less noise: a member gets what
its group's summary matches, and does not want the share of it that its own summary lacks. That share, the
mean over all members, must fall by `GROUP_PRICE` for each further group.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.units import NodeId

ITERATIONS_MAX = 10  # K-means converges quickly in practice, and may stop after any iteration
GROUPS_FIRST = (2, 3)  # "the initial K value is assigned either 2 or 3"
GROUPS_MAX = 8  # of the heuristic: each group is one more mesh to keep up
GROUP_PRICE = 0.03  # less noise, as a share of what members get, that a further group must bring
DRAWN_STARTS = 4
PATIENCE = 1  # larger K that are tried after one that was not worth it

Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.intp]


class Chance(Protocol):
    """The draws that are needed here; `Host.random` and `random.Random` have them."""

    def random(self) -> float: ...


class Centroids(NamedTuple):
    """Each row of `sums` divided by its size is a centroid."""

    sums: Floats
    sizes: Floats

    def without(self, number: int) -> "Centroids":
        return Centroids(np.delete(self.sums, number, axis=0), np.delete(self.sizes, number))

    def with_point(self, point: Floats) -> "Centroids":
        return Centroids(np.vstack([self.sums, point]), np.append(self.sizes, 1.0))


def cluster(
    vectors: Mapping[NodeId, npt.NDArray[np.integer[Any]]],
    *,
    k: int | None,
    random: Chance,
    previous: Sequence[Sequence[NodeId]] | None = None,
    iterations_max: int = ITERATIONS_MAX,
) -> list[tuple[NodeId, ...]]:
    """Disjoint groups that together hold every node; none is empty."""
    nodes = sorted(vectors)
    points = np.array([vectors[node] for node in nodes], np.float64)
    points = points[:, points.any(axis=0)]  # few of a summary's places are ever used
    most = len(np.unique(points, axis=0))  # equal vectors have one nearest centroid
    start = None if previous is None else _centroids_of(points, nodes, previous)
    if k is not None and start is not None:
        labels = iterate(points, _with_size(points, start, min(k, most)), iterations_max)
    elif k is not None:
        labels = _from_scratch(points, min(k, most), random, iterations_max)
    elif start is None:
        labels = _grown(points, min(GROUPS_MAX, most), random, iterations_max)
    else:
        labels = _readjusted(points, start, min(GROUPS_MAX, most), iterations_max)
    groups = (
        tuple(nodes[at] for at in np.flatnonzero(labels == number)) for number in range(int(labels.max()) + 1)
    )
    return sorted(members for members in groups if members)


def iterate(points: Floats, centroids: Centroids, iterations_max: int) -> Labels:
    """Steps 2 to 4 of the paper: assign, move the centroids, until they rest or the steps are used up."""
    labels = _nearest(points, centroids)
    for _ in range(iterations_max):
        centroids = _moved(points, labels, centroids)
        again = _nearest(points, centroids)
        if np.array_equal(again, labels):
            break
        labels = again
    return labels


def noise(points: Floats, labels: Labels) -> float:
    """Mean over the members: the share of their group's bits that they do not have themselves."""
    shares = []
    for number in np.unique(labels):
        members = points[labels == number] ** 2
        united = float(members.max(axis=0).sum())
        shares += [1.0 - float(own) / united for own in members.sum(axis=1)] if united else [0.0]
    return math.fsum(shares) / len(points)


def squared_distances(points: Floats, centroids: Centroids) -> Floats:
    """Rows: points; columns: centroids. Less each point's own length, which moves no comparison."""
    products = points @ centroids.sums.T
    lengths = np.einsum("ij,ij->i", centroids.sums, centroids.sums)
    distances: Floats = lengths / centroids.sizes**2 - 2.0 * products / centroids.sizes
    return distances


def _from_scratch(points: Floats, k: int, random: Chance, iterations_max: int) -> Labels:
    """The least noisy of several starts, since K-means finds local optima."""
    first = _point(points, random.random() * len(points))
    # One start with far points: it puts outliers, which the paper wants out of the main group, into groups of
    # their own at once. The others with points drawn by their distance (k-means++, Arthur and Vassilvitskii).
    starts = [_with_size(points, first, k)]
    starts += (_drawn(points, k, random) for _ in range(DRAWN_STARTS))
    candidates = [iterate(points, start, iterations_max) for start in starts]
    return min(candidates, key=lambda labels: noise(points, labels))


def _drawn(points: Floats, k: int, random: Chance) -> Centroids:
    centroids = _point(points, random.random() * len(points))
    own = np.einsum("ij,ij->i", points, points)
    while len(centroids.sizes) < k:
        nearest = squared_distances(points, centroids).min(axis=1) + own
        reached = np.cumsum(nearest)
        drawn = int(np.searchsorted(reached, random.random() * reached[-1], side="right"))
        centroids = centroids.with_point(points[min(drawn, len(points) - 1)])
    return centroids


def _point(points: Floats, drawn: float) -> Centroids:
    return Centroids(points[[min(int(drawn), len(points) - 1)]], np.ones(1))


def _with_size(points: Floats, centroids: Centroids, k: int) -> Centroids:
    """K centroids: those there are, without one of the nearest two or with a far point until K is reached."""
    own = np.einsum("ij,ij->i", points, points)
    while len(centroids.sizes) > k:
        centroids = centroids.without(_nearest_pair(centroids)[1])
    while len(centroids.sizes) < k:
        farthest = int(np.argmax(squared_distances(points, centroids).min(axis=1) + own))
        centroids = centroids.with_point(points[farthest])
    return centroids


def _grown(points: Floats, most: int, random: Chance, iterations_max: int) -> Labels:
    best, best_cost, misses = np.zeros(len(points), np.intp), math.inf, 0
    for k in range(min(GROUPS_FIRST[0], most), most + 1):
        labels = _from_scratch(points, k, random, iterations_max)
        cost = noise(points, labels) + GROUP_PRICE * k
        if cost < best_cost:
            best, best_cost, misses = labels, cost, 0
        elif k > GROUPS_FIRST[1]:
            misses += 1
            if misses > PATIENCE:
                break
    return best


def _readjusted(points: Floats, start: Centroids, most: int, iterations_max: int) -> Labels:
    """From the groups there were: as many again, one less or one more, whichever is worth most."""
    before = len(start.sizes)
    least = min(GROUPS_FIRST[0], most)
    sizes = {min(max(size, least), most) for size in (before - 1, before, before + 1)}
    best, best_cost = np.zeros(len(points), np.intp), math.inf
    for k in sorted(sizes, key=lambda size: abs(size - before)):  # at a tie, as many as before
        labels = iterate(points, _with_size(points, start, k), iterations_max)
        cost = noise(points, labels) + GROUP_PRICE * k
        if cost < best_cost:
            best, best_cost = labels, cost
    return best


def _nearest(points: Floats, centroids: Centroids) -> Labels:
    labels: Labels = np.argmin(squared_distances(points, centroids), axis=1)
    return labels


def _moved(points: Floats, labels: Labels, before: Centroids) -> Centroids:
    """The mean of each group; an empty group keeps its centroid, and may win members back."""
    member = (labels[None, :] == np.arange(len(before.sizes))[:, None]).astype(np.float64)
    sizes = member.sum(axis=1)
    empty = sizes == 0
    sums = member @ points
    return Centroids(np.where(empty[:, None], before.sums, sums), np.where(empty, before.sizes, sizes))


def _nearest_pair(centroids: Centroids) -> tuple[int, int]:
    means = centroids.sums / centroids.sizes[:, None]
    count = len(means)
    gaps = {
        (first, second): float(np.abs(means[first] - means[second]).sum())
        for first in range(count)
        for second in range(first + 1, count)
    }
    return min(gaps, key=lambda pair: (gaps[pair], pair))


def _centroids_of(
    points: Floats, nodes: list[NodeId], groups: Sequence[Sequence[NodeId]]
) -> Centroids | None:
    """Of the groups as their members are now; None if none of those is left."""
    place = {node: at for at, node in enumerate(nodes)}
    rows = [[place[node] for node in members if node in place] for members in groups]
    kept = [row for row in rows if row]
    if not kept:
        return None
    return Centroids(
        np.array([points[row].sum(axis=0) for row in kept]), np.array([float(len(row)) for row in kept])
    )
