"""Nodes that are heard and are no neighbours yet.

Two nodes that come into range would pass nothing on to each other before their beacons or HELLOs have come.
So any frame of a node that is no neighbour makes it a *newcomer*: for `NEWCOMER_TIME`, within which its
beacon should come, and not again before `ONE_WAY_TIME`, since it may not hear us."""

from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import SECOND, Micros, NodeId

# Chosen by us.
NEWCOMER_TIME: Micros = SECOND
ONE_WAY_TIME: Micros = 10 * SECOND
NEWCOMERS_MAX = 256


class Newcomers:
    def __init__(self) -> None:
        self.known: set[NodeId] = set()  # neighbours, as the underlay says
        self._met: BoundedDict[NodeId, Micros] = BoundedDict(NEWCOMERS_MAX, unreported)

    def meet(self, node: NodeId, now: Micros) -> bool:
        """A frame has come from a node that is no neighbour. Whether that is news."""
        self._met.forget_oldest(lambda met_at: now - met_at >= ONE_WAY_TIME)
        is_news = node not in self._met
        if is_news:
            self._met[node] = now
        return is_news

    def on_up(self, node: NodeId) -> None:
        self.known.add(node)
        self._met.pop(node, None)

    def on_down(self, node: NodeId) -> None:
        self.known.discard(node)

    def lately(self, now: Micros) -> list[NodeId]:
        """The nodes that were heard in the last moments and are not neighbours yet."""
        return [node for node, met_at in self._met.items() if now - met_at < NEWCOMER_TIME]
