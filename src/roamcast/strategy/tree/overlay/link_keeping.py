"""Links of the evolved protocol: offered, taken, turned round, confirmed, closed (R1, R3, R6, R7).

A link is offered by its later upper end under a new random number, taken by a root, and open when both ends
have used it. The proof in `docs/protocols/tree.md` is about these steps.
"""

from roamcast.strategy.tree.overlay.label import RANKS_PER_HOP, Label
from roamcast.strategy.tree.overlay.leadership import Leadership
from roamcast.strategy.tree.overlay.links import LinkOffer, LinkState, TreeLink
from roamcast.strategy.tree.overlay.messages import LINK_BITS, Activation, Close, Confirm, RouteReply
from roamcast.units import SECOND, NodeId

OFFERS_MAX = 1_000  # open at a time; chosen by us


class LinkKeeping(Leadership):
    def _offer(self, to: NodeId, url: str = "") -> int:
        now = self._host.now()
        for number in [each.number for each in self.offers.values() if each.until <= now]:
            del self.offers[number]
        number = self._host.random.getrandbits(LINK_BITS) or 1
        if len(self.offers) < OFFERS_MAX:
            wait = 4 * self._parameters().discover_timeout + 4 * SECOND
            self.offers[number] = LinkOffer(to, number, now + wait, url)
        return number

    def _is_offered(self, to: NodeId, number: int) -> bool:
        offer = self.offers.get(number)
        in_time = offer is not None and offer.peer == to and self._host.now() < offer.until
        return in_time and self.is_nearby(to)

    def _open_offered(self, peer: NodeId, number: int, url: str, *, opened_here: bool) -> None:
        del self.offers[number]
        # The peer holds at most one link to us (R6), so an older one exists at our end only.
        self._lose(peer, tell=False)
        self.links[peer] = TreeLink(peer, number, LinkState.ADOPTED, url=url, opened_here=opened_here)
        self._open(self.links[peer])

    def _settle_below(self, link: TreeLink, label: Label, hops: int) -> None:
        """Become a child; `label` is what the new upstream has stated."""
        self._leave_root()
        self._broken_at = None
        self.links[link.peer] = link
        self.parent = link.peer
        self._silences = 0
        self._better(label.moved(RANKS_PER_HOP), hops + 1)
        self._expect_hello()

    def _hand_root_to(self, link: TreeLink, message: RouteReply | Activation, *, own: bool) -> None:
        """Turn a link round (R3): its lower end becomes the root, and we become its child.

        Until the message arrives each end takes the other as its upstream. The tree has no leader in that
        time, but no cycle, and the message is repeated until it is answered.
        """
        self._leave_root()
        self.parent = link.peer
        self._silences = 0
        self._expect_hello()
        self._courier.agree(link.peer, link.number, message, own=own)

    def _take_root(self, sender: NodeId, message: RouteReply | Activation) -> bool:
        """The other side of `_hand_root_to`. True if the root is here now."""
        link = self.links.get(sender)
        if link is None or link.number != message.link:
            self._refuse(sender, message, message.link)
            return False
        if message.turn <= link.turn:
            self._courier.once(sender, Confirm(link.number, link.turn), own=False)  # the first one was lost
            return False
        if message.turn != link.turn + 1 or self.parent != sender:
            self._drop(message, "turns a link out of turn")
            return False
        self._on_heard(sender, link.number)
        self._courier.agreed(sender, link.number)
        link.turn = message.turn
        self.parent = None
        self._cancel_timer("silence")
        self.label = self.label.better_of(message.standing.label.moved(-1))
        self.hops = 0
        self._courier.once(sender, Confirm(link.number, link.turn), own=False)
        return True

    def _on_heard(self, sender: NodeId, number: int) -> None:
        """The other end of an adopted link has used it, so the link exists at both ends."""
        link = self.links.get(sender)
        if link is not None and link.number == number and link.state is LinkState.ADOPTED:
            self._forget_attempts()
            self._open(link)
            self._say_hello(update=True)

    def _on_confirm(self, sender: NodeId, message: Confirm) -> None:
        link = self.links.get(sender)
        if link is not None and link.number == message.link:
            if message.turn >= link.turn:
                self._courier.agreed(sender, link.number)
            self._on_heard(sender, link.number)
        elif self._is_offered(sender, message.link):
            self._courier.agreed(sender, message.link)
            self._open_offered(sender, message.link, self.offers[message.link].url, opened_here=True)
            self._say_hello(update=True)
        else:
            self._refuse(sender, message, message.link)

    def _on_close(self, sender: NodeId, message: Close) -> None:
        link = self.links.get(sender)
        if link is not None and link.number == message.link:
            self._lose(sender, tell=False)
        elif self._is_offered(sender, message.link):
            self._courier.agreed(sender, message.link)
            del self.offers[message.link]

    def _on_undelivered(self, neighbour: NodeId) -> None:
        for number in [each.number for each in self.offers.values() if each.peer == neighbour]:
            del self.offers[number]
        super()._on_undelivered(neighbour)
