"""The lengths of the paths on which a strategy's overlay would send events, in hops of the network now."""

from collections.abc import Iterable
from itertools import pairwise

from roamcast.node import Node
from roamcast.runtime.sim.links import RadioLinks
from roamcast.trace import PathsSampled
from roamcast.units import SECOND, Micros

PATH_SAMPLES_MAX = 120  # per run; chosen by us: a finer metric against time for the searches


def path_instants(warmup: Micros, duration: Micros) -> range:
    """Evenly spaced instants of [warmup, duration): one a second, but at most 120."""
    step = max(SECOND, -(-(duration - warmup) // PATH_SAMPLES_MAX))
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
            legs = [links.distance(a, b) for a, b in pairwise(path)]
            if None not in legs:
                pairs, hops = pairs + 1, hops + sum(leg for leg in legs if leg is not None)
    return PathsSampled(now, "overlay", pairs, hops)
