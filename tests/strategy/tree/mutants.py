"""The evolved protocol with one rule of `docs/protocols/tree.md` taken away, to show what the rule is for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from roamcast.strategy.tree.overlay.evolved import Evolved, LinkOffer
from roamcast.strategy.tree.overlay.messages import Activation, Label, RequestKey, RouteReply
from roamcast.strategy.tree.overlay.multicast_table import ForwardRoute, MulticastTable
from roamcast.strategy.tree.overlay.requests import Search
from roamcast.units import SECOND, NodeId


@contextmanager
def without_r1() -> Iterator[None]:
    """A root takes any link that was offered, whatever the labels say by then."""
    adopt = Evolved._adopt

    def careless(self: Evolved, request: RequestKey, responder: NodeId, forward: ForwardRoute) -> None:
        if not forward.label.better_than(self.table.label):
            forward = forward._replace(label=Label(1 << 40, 0, 0))
        adopt(self, request, responder, forward)

    with patch.object(Evolved, "_adopt", careless):
        yield


@contextmanager
def without_r2() -> Iterator[None]:
    """Labels follow the upstream's word in both directions, as hop counts do in the work."""

    def follow(self: MulticastTable, label: Label, hops: int) -> bool:
        changed = label != self.label
        self.label = label
        self.hops = hops
        return changed

    with patch.object(MulticastTable, "improve", follow):
        yield


@contextmanager
def without_r3() -> Iterator[None]:
    """A message that turns a link round is believed however old it is."""
    take = Evolved.take_root

    def credulous(self: Evolved, sender: NodeId, message: RouteReply | Activation) -> bool:
        if self.table.has(sender, message.link) and self.table.parent == sender:
            self.table.links[sender].turn = message.turn - 1
        return take(self, sender, message)

    with patch.object(Evolved, "take_root", credulous):
        yield


@contextmanager
def without_r6() -> Iterator[None]:
    """A link between two nodes has the same number as the one before."""

    def offer(self: Evolved, to: NodeId, url: str = "") -> int:
        low, high = sorted((to, self.node))
        number = 1 + 100 * low + high
        self.offers[number] = LinkOffer(to, self.host.now() + 8 * SECOND, url)
        return number

    with patch.object(Evolved, "offer", offer):
        yield


@contextmanager
def without_r9() -> Iterator[None]:
    """Replies after DISCOVER_TIMEOUT are discarded, as section 5.4 has it."""
    collect = Search.collect_reply

    def strict(self: Search, message: RouteReply, hops: int) -> None:
        if self._replies is not None and message.number == self._request_number:
            collect(self, message, hops)

    with patch.object(Search, "collect_reply", strict):
        yield


@contextmanager
def without_withdrawal() -> Iterator[None]:
    """R2 in part: a node that has just started over opens a link that it offered under its earlier label."""

    def let_take(self: Evolved, peer: NodeId, number: int) -> bool:
        if not self._is_offered(peer, number):
            return False
        offer = self.offers[number]
        self.lose(peer, tell=False)
        self.offers[number] = offer
        return True

    with patch.object(Evolved, "_lets_take", let_take):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "R1": without_r1,
    "R2": without_r2,
    "R3": without_r3,
    "R6": without_r6,
    "R9": without_r9,
}
