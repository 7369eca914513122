"""The lengths of the paths on which a strategy's overlay would send events, in hops of the network now."""

from collections.abc import Iterable
from itertools import pairwise

from roamcast.node import Node
from roamcast.runtime.sim.links import RadioLinks
from roamcast.trace import PathsSampled
from roamcast.units import SECOND, Micros

PATH_SAMPLES_MAX = 120  # per run; chosen by us: a finer metric against time for the searches
PATH_PAIRS_MAX = 120_000_000  # per run, likewise; one search goes over all pairs of nodes


def path_instants(warmup: Micros, duration: Micros, nodes: int) -> range:
    """Evenly spaced instants of [warmup, duration): one a second, but at most 120, and fewer where more than
    1,000 nodes have so many pairs that those would take longer than the run itself."""
    samples = max(1, min(PATH_SAMPLES_MAX, PATH_PAIRS_MAX // nodes**2))
    step = max(SECOND, -(-(duration - warmup) // samples))
    return range(warmup, max(duration, warmup + 1), step)


def sample_overlay(nodes: Iterable[Node | None], links: RadioLinks, now: Micros) -> PathsSampled | None:
    """All overlay paths that the nodes know, each leg by the shortest physical path. Paths with a leg that
    has no physical path are left out. None where the strategy has no overlay."""
    pairs = hops = 0
    for node in nodes:
        if node is None:
            continue
        paths = node.strategy.overlay_paths()
        if paths is None:
            return None
        for path in paths:
            length = 0
            for leg in pairwise(path):
                away = links.distance(*leg)
                if away is None:
                    break
                length += away
            else:
                pairs, hops = pairs + 1, hops + length
    return PathsSampled(now, "overlay", pairs, hops)
