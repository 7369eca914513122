"""The evolved protocol (chapter 4, A.2), with the rules that keep it acyclic at every instant.

As in the work: requests spread by Rule 1, nodes nearer to the leader answer, the node at the jump rewrites
the reply, the activation stops there, leaders look for other partitions by the same request, a node that
starts is the leader of itself. (The *jump* is the one hop of a path that is in no tree yet.) What was
added, with the reasons and the proof, is in `docs/protocols/tree.md`; the rules are named there R1 to R14
and marked here where they apply. With `additions = false` those are left out that the work does without and
the proof does not need.

With `membership = "users"` only some nodes are members (A.2: JoinFlag, Member), as section 4.5 simulates it.
Whoever is on no tree passes requests on; the jump may then lead over several such nodes, and those that an
activation passes become *routers*. To the proof nothing is new: a node on no tree is a root without links,
which takes one offered link and is offered by another. Procedure 8 as printed lets every node of the jump
rewrite the reply, so that the activation would stop at the first; here only the one in the tree does (4.2).

The parts: `multicast_table.py` (the links, shared with the original), `leader.py` (group hellos, election),
`requests.py` (RREQ and RREP), and here what is done with the replies: the decision, the activations (MACT),
and the links that they open. A link is offered by its later upper end under a new random number, taken by a
root, and open when both ends have used it (R1, R3, R6, R7). The proof is about these steps.

The states of a node, by its upstream (`parent`) and its current task:

    has a parent ──lost──▶ root, repairing ──no reply──▶ root, leader ◀─────────── boot
         ▲                      │   │                       │    ▲
         └──────adopts──────────┘   └──────yields───────────┤    │ nobody comes
         ▲                                                  ▼    │
         └───────────────── adopts ──────────────── root, waiting (yielded)
         └── hands the root on (turn) ──▶ has a parent
"""

from operator import attrgetter
from typing import NamedTuple

from roamcast.kit.protocol import Timer, overflow_traced
from roamcast.kit.tables import ExpiringDict
from roamcast.strategy.tree.overlay.leader import GroupLeader
from roamcast.strategy.tree.overlay.messages import (
    HOPS_MAX,
    LINK_BITS,
    NOWHERE,
    RANKS_PER_HOP,
    Activation,
    Close,
    Confirm,
    GroupHello,
    Label,
    Probe,
    ReplyStage,
    RequestKey,
    RouteReply,
    RouteRequest,
    Sighting,
)
from roamcast.strategy.tree.overlay.multicast_table import (
    ForwardRoute,
    LinkState,
    OverlayContext,
    TreeLink,
    TreeProtocol,
    best_reply,
)
from roamcast.strategy.tree.overlay.requests import Search
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

OFFERS_MAX = 1_000  # open at a time; chosen by us
PRUNE_TIMEOUT: Micros = 750 * MILLISECOND  # the draft of MAODV


class LinkOffer(NamedTuple):
    """A link whose upstream end we become if the peer takes it."""

    peer: NodeId
    until: Micros
    url: str


class Evolved(TreeProtocol):
    def __init__(self, context: OverlayContext) -> None:
        super().__init__(context)
        self.overhears = self.options.additions
        self.leader = GroupLeader(self)
        self.search = Search(self)
        # Links that others may take, by their numbers.
        self.offers: ExpiringDict[int, LinkOffer] = ExpiringDict(
            OFFERS_MAX, overflow_traced(self.host, "rrep", "OFFERS_MAX"), attrgetter("until")
        )
        self._root_from: NodeId | None = None  # who handed the root to us
        self._prune_timer = Timer(self.host, self._prune_leaf)
        self.handlers = {
            RouteRequest: self.search.receive_rreq,
            RouteReply: self.search.receive_rrep,
            Activation: self.receive_mact,
            GroupHello: self.leader.receive_grph,
            Sighting: self.leader.on_sighting,
            Confirm: self._on_confirm,
            Close: self._on_close,
            Probe: self.table.on_probe,
        }

    # Inputs.

    def on_start(self) -> None:
        if self.options.membership == "all":
            self.leader.start()  # section 5.2.2: to join is to merge with a partition of one node
        else:
            self.start_over()
            super().on_start()

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """Beyond the work: a leader asks at once, not only every RECONNECTION_TRIGGER hellos."""
        if self.options.additions:
            self.search.reconnect_soon()
        self.search.on_neighbour_up(neighbour)

    def on_orphaned(self) -> None:
        self.leader.await_none()
        if self.is_on_tree:
            self.table.broken_at = self.host.now()
            self.search.repair()
        else:
            self._go_off_tree()

    def on_undelivered(self, neighbour: NodeId) -> None:
        self.offers.forget(lambda offer: offer.peer == neighbour)
        super().on_undelivered(neighbour)

    def prune(self, peer: NodeId) -> None:
        self.messenger.send(Close(self.table.links[peer].number), peer)
        self.take_out(peer)

    def lose(self, peer: NodeId, *, tell: bool) -> None:
        super().lose(peer, tell=tell)
        self.prune_unless_needed()

    # The decision, and activations.

    def activate_replies(self) -> None:
        """A.1, procedure 2: the time for replies is over."""
        table = self.table
        replies = self.search.take_replies()
        best = best_reply(
            (each for each in replies if not each.yields and each.label.better_than(table.label)),
            table.parameters().group_sequence_tolerance,
        )
        # R5: every leader that stepped down for us is activated, not only the best, before we move ourselves.
        for reply in replies:
            if reply.yields:
                self._fetch(reply.request, reply.responder)
        if best is not None:
            self._go(best.request, best.responder)
        if table.parent is None and not table.is_leader:
            self.search.repair()
        elif not table.links and self.options.additions:
            # Whoever is in range is in another tree; the request or its answer was lost.
            self.search.reconnect_soon(table.parameters().discover_timeout)

    def _fetch(self, request: RequestKey, responder: NodeId) -> None:
        """Activate towards a tree that yielded: its root, at the far end of the jump, becomes our child."""
        forward = self.search.forwards.find((request, responder))
        if forward is None:
            return
        standing = self.table.standing()
        if forward.jump:
            number = self.offer(forward.via, forward.url)
            self._activate(
                forward.via,
                Activation(*request, responder, standing, ReplyStage.JUMP, True, number, 0, self.url),
            )
            return
        link = self.table.links.get(forward.via)
        if link is not None and forward.via != self.table.parent:
            message = Activation(*request, responder, standing, ReplyStage.NEAR, True, link.number, link.turn)
            self.courier.hop(forward.via, message, own=request.requester == self.node)

    def _go(self, request: RequestKey, responder: NodeId) -> None:
        """Activate towards a better tree: we, the root, join it, or hand the root on to the node that can."""
        forward = self.search.forwards.find((request, responder))
        if forward is None or self.search.has_passed(request, responder):
            return
        if forward.jump:
            self._adopt(request, responder, forward)
            return
        link = self.table.links.get(forward.via)
        if link is not None and link.state is LinkState.OPEN:
            link.turn += 1
            message = Activation(
                *request, responder, self.table.standing(), ReplyStage.NEAR, False, link.number, link.turn
            )
            self.hand_root_to(link, message, own=request.requester == self.node)

    def _adopt(self, request: RequestKey, responder: NodeId, forward: ForwardRoute) -> None:
        """Take the offered link (R1), if we are a root and the label that the offer states is better."""
        peer = forward.via
        usable = forward.link and peer not in self.table.links and self.is_nearby(peer)
        if not usable or not forward.label.better_than(self.table.label):
            return
        link = TreeLink(peer, forward.link, LinkState.ADOPTED, url=forward.url, opened_here=True)
        message = Activation(
            *request, responder, self.table.standing(), ReplyStage.JUMP, False, link.number, 0, self.url
        )
        self._settle_below(link, forward.label, forward.hops)
        self._activate(peer, message)

    def _activate(self, peer: NodeId, message: Activation) -> None:
        """Send the activation over the jump; beyond the work, until it is answered."""
        own = message.requester == self.node
        if self.options.additions:
            self.courier.agree(peer, message.link, message, own=own)
        else:
            self.courier.hop(peer, message, own=own)

    def receive_mact(self, sender: NodeId, message: Activation) -> None:
        """A.1, procedure 5, up to the jump."""
        match message.stage, message.yields:
            case ReplyStage.NEAR, False:
                if not self.take_root(sender, message):
                    return
                if message.responder == sender:  # it is no member (GroupLeader flag)
                    self.leader.elect()
                    return
                self._go(message.request, message.responder)
                if self.table.parent is None:
                    self.on_orphaned()  # the path is gone, but the root is here: look for another
            case ReplyStage.NEAR, True:
                self._on_activation_from_above(sender, message)
            case ReplyStage.JUMP, False:
                self._on_link_taken(sender, message)
            case ReplyStage.JUMP, True:
                self._on_fetched(sender, message)
            case _:
                self.table.drop(message, "is at no stage of an activation")

    def _on_activation_from_above(self, sender: NodeId, message: Activation) -> None:
        if self.table.link_of(sender, message) is None:
            return
        if sender != self.table.parent:
            self.table.drop(message, "comes not from our upstream")
            return
        self.table.improve(message.standing.label.moved(RANKS_PER_HOP), message.standing.hops + 1)
        self._fetch(message.request, message.responder)

    def _on_link_taken(self, sender: NodeId, message: Activation) -> None:
        """The other end of the jump has taken our offer and is our child now."""
        if self.table.has(sender, message.link):
            self.table.confirm(self.table.links[sender])  # the first one was lost
        elif self._lets_take(sender, message.link):
            self._open_offered(sender, message.link, message.url, opened_here=False)
            if not self.is_member and self.table.parent is None and not self.search.is_asking:
                self._go(message.request, message.responder)  # we lie in the jump: take the next link of it
                if self.table.parent is None:
                    self.on_orphaned()
        else:
            self.table.refuse(sender, message, message.link)

    def _on_fetched(self, sender: NodeId, message: Activation) -> None:
        """We yielded, and the other tree offers us a place (R1)."""
        table = self.table
        if table.has(sender, message.link):
            table.confirm(table.links[sender])
            return
        label = message.standing.label
        is_between = not self.is_on_tree
        welcome = is_between or (self.search.yielded_to == message.request and table.parent is None)
        usable = sender not in table.links and self.is_nearby(sender)
        if not welcome or not usable or not label.better_than(table.label):
            table.refuse(sender, message, message.link)
            return
        link = TreeLink(sender, message.link, LinkState.ADOPTED, url=message.url)
        self._settle_below(link, label, message.standing.hops)
        table.confirm(link)
        self.on_used(sender, link.number)
        if is_between:
            self._fetch(message.request, message.responder)

    # Links: offered, taken, confirmed, closed.

    def offer(self, to: NodeId, url: str = "") -> int:
        now = self.host.now()
        self.offers.expire(now)
        number = self.host.random.getrandbits(LINK_BITS) or 1
        wait = 4 * self.table.parameters().discover_timeout + 4 * SECOND
        self.offers[number] = LinkOffer(to, now + wait, url)
        return number

    def _is_offered(self, to: NodeId, number: int) -> bool:
        offer = self.offers.get(number)
        in_time = offer is not None and offer.peer == to and self.host.now() < offer.until
        return in_time and self.is_nearby(to)

    def _lets_take(self, peer: NodeId, number: int) -> bool:
        """Whether the peer may take this link. It holds at most one link to us (R6), so an older one exists
        at our end only and is lost now. If that makes us start over, our offers are withdrawn, with the label
        that they stated (R2)."""
        if peer in self.table.links and self._is_offered(peer, number):
            self.lose(peer, tell=False)
        return self._is_offered(peer, number)

    def _open_offered(self, peer: NodeId, number: int, url: str, *, opened_here: bool) -> None:
        del self.offers[number]
        link = TreeLink(peer, number, LinkState.ADOPTED, url=url, opened_here=opened_here)
        self.table.open(link)
        if not opened_here:
            self.table.confirm(link)
        self.leader.send_grph(update=True)

    def _settle_below(self, link: TreeLink, label: Label, hops: int) -> None:
        """Become a child; `label` is what the new upstream has stated."""
        self.leader.step_down()
        self.search.yields_in_vain = 0
        self.table.broken_at = None
        self.table.links[link.peer] = link
        self.table.parent = link.peer
        self.table.improve(label.moved(RANKS_PER_HOP), hops + 1)
        self.leader.await_grph()
        self.prune_unless_needed()

    def on_used(self, sender: NodeId, number: int) -> None:
        """The other end of an adopted link has used it, so the link exists at both ends."""
        link = self.table.links.get(sender)
        if link is not None and link.number == number and link.state is LinkState.ADOPTED:
            self.search.on_found()
            self.table.open(link)
            self.leader.send_grph(update=True)

    def _on_confirm(self, sender: NodeId, message: Confirm) -> None:
        if self.table.has(sender, message.link):
            if message.turn >= self.table.links[sender].turn:
                self.courier.agreed(sender, message.link)
            self.on_used(sender, message.link)
        elif self._lets_take(sender, message.link):
            self.courier.agreed(sender, message.link)
            self._open_offered(sender, message.link, self.offers[message.link].url, opened_here=True)
        else:
            self.table.refuse(sender, message, message.link)

    def _on_close(self, sender: NodeId, message: Close) -> None:
        if self.table.has(sender, message.link):
            self.lose(sender, tell=False)
        elif self._is_offered(sender, message.link):
            self.courier.agreed(sender, message.link)
            del self.offers[message.link]

    # Links that are turned round.

    def hand_root_to(self, link: TreeLink, message: RouteReply | Activation, *, own: bool) -> None:
        """Turn a link round (R3): its lower end becomes the root, and we become its child.

        Until the message arrives each end takes the other as its upstream. The tree has no leader in that
        time, but no cycle, and the message is repeated until it is answered.
        """
        self.leader.step_down()
        self.table.parent = link.peer
        self.leader.await_grph()
        self.courier.agree(link.peer, link.number, message, own=own)
        self.prune_unless_needed()

    def take_root(self, sender: NodeId, message: RouteReply | Activation) -> bool:
        """The other side of `hand_root_to`. True if the root is here now."""
        table = self.table
        link = table.link_of(sender, message)
        if link is None:
            return False
        if message.turn <= link.turn:
            table.confirm(link)  # the first one was lost
            return False
        if message.turn != link.turn + 1 or table.parent != sender:
            table.drop(message, "turns a link out of turn")
            return False
        self.on_used(sender, link.number)
        self.courier.agreed(sender, link.number)
        link.turn = message.turn
        self._root_from = sender
        table.parent = None
        self.leader.await_none()
        table.label = table.label.better_of(message.standing.label.moved(-1))
        table.hops = 0
        table.confirm(link)
        return True

    # Members and routers (A.2; `membership = "users"`).

    @property
    def is_on_tree(self) -> bool:
        """A node that is neither a member nor a router is a root that does not lead and looks for nobody."""
        return self.is_member or bool(self.table.links)

    def join(self) -> None:
        table, search = self.table, self.search
        if table.parent is not None or table.is_leader or search.is_asking or search.yielded_to is not None:
            return
        if table.links:
            # Somebody took a link that we had offered as a router of the jump: nobody leads our tree.
            search.repair()
        else:
            self.offers.clear()
            self.start_over()
            search.join()

    def start_over(self) -> None:
        """A node without links and offers is bound by no label that it stated."""
        self.offers.expire(self.host.now())
        if not self.table.links and not self.offers:
            self.table.label, self.table.hops = NOWHERE, HOPS_MAX

    def prune_unless_needed(self) -> None:
        if not self.is_on_tree:
            self._go_off_tree()
        elif not self.is_member:
            self._prune_timer.after(PRUNE_TIMEOUT)

    def _prune_leaf(self) -> None:
        """A leaf that is no member leaves; a leader that is none any more gives the root away."""
        table = self.table
        if self.is_member:
            return
        if table.is_leader:
            self.give_root_away()
        elif table.parent is not None and len(table.links) == 1:
            self.prune(table.parent)
            self._go_off_tree()

    def give_root_away(self) -> None:
        """Only members lead (3.2.3): one child is selected to lead, or the next to select (GroupLeader flag).
        Never the one that the root came from, so it ends at a leaf, which is a member."""
        below = [
            link
            for peer, link in sorted(self.table.links.items())
            if link.state is LinkState.OPEN and peer != self._root_from
        ]
        if below:
            link = below[0]
            link.turn += 1
            standing = self.table.standing()
            message = Activation(
                self.node, 0, self.node, standing, ReplyStage.NEAR, False, link.number, link.turn
            )
            self._root_from = None
            self.hand_root_to(link, message, own=True)
            return
        for peer in sorted(self.table.links):
            self.prune(peer)
        self._go_off_tree()

    def _go_off_tree(self) -> None:
        self.table.parent = self.table.broken_at = self._root_from = None
        self.leader.await_none()
        self.leader.step_down()
        self.search.on_found()
        self.offers.clear()
        self.start_over()
