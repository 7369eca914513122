"""The evolved protocol with one rule of `docs/protocols/tree.md` taken away, to show what the rule is for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from roamcast.strategy.tree.overlay.evolved import Evolved
from roamcast.strategy.tree.overlay.label import Label
from roamcast.strategy.tree.overlay.links import LinkOffer
from roamcast.strategy.tree.overlay.messages import Activation, RouteReply
from roamcast.strategy.tree.overlay.routes import ForwardRoute, RequestKey
from roamcast.units import SECOND, NodeId


@contextmanager
def without_r1() -> Iterator[None]:
    """A root takes any link that was offered, whatever the labels say by then."""
    adopt = Evolved._adopt

    def careless(self: Evolved, request: RequestKey, responder: NodeId, forward: ForwardRoute) -> None:
        if not forward.label.better_than(self.label):
            forward = forward._replace(label=Label(1 << 40, 0, 0))
        adopt(self, request, responder, forward)

    with patch.object(Evolved, "_adopt", careless):
        yield


@contextmanager
def without_r2() -> Iterator[None]:
    """Labels follow the upstream's word in both directions, as hop counts do in the work."""

    def follow(self: Evolved, label: Label, hops: int) -> bool:
        changed = label != self.label
        self.label = label
        self.hops = hops
        return changed

    with patch.object(Evolved, "_better", follow):
        yield


@contextmanager
def without_r3() -> Iterator[None]:
    """A message that turns a link round is believed however old it is."""
    take = Evolved._take_root

    def credulous(self: Evolved, sender: NodeId, message: RouteReply | Activation) -> bool:
        link = self.links.get(sender)
        if link is not None and link.number == message.link and self.parent == sender:
            link.turn = message.turn - 1
        return take(self, sender, message)

    with patch.object(Evolved, "_take_root", credulous):
        yield


@contextmanager
def without_r6() -> Iterator[None]:
    """A link between two nodes has the same number as the one before."""

    def offer(self: Evolved, to: NodeId, url: str = "") -> int:
        low, high = sorted((to, self._host.node))
        number = 1 + 100 * low + high
        self.offers[number] = LinkOffer(to, number, self._host.now() + 8 * SECOND, url)
        return number

    with patch.object(Evolved, "_offer", offer):
        yield


@contextmanager
def without_r9() -> Iterator[None]:
    """Replies after DISCOVER_TIMEOUT are discarded, as section 5.4 has it."""
    collect = Evolved._collect

    def strict(self: Evolved, request: RequestKey, message: RouteReply, hops: int) -> None:
        if self._search is not None and request.number == self._request_number:
            collect(self, request, message, hops)

    with patch.object(Evolved, "_collect", strict):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "R1": without_r1,
    "R2": without_r2,
    "R3": without_r3,
    "R6": without_r6,
    "R9": without_r9,
}
