"""The evolved protocol (chapter 4, A.2), with the rules that keep it acyclic at every instant.

As in the work: requests spread by Rule 1, nodes nearer to the leader answer, the node at the jump rewrites
the reply, the activation stops there, leaders look for other partitions by the same request, a node that
starts is the leader of itself. (The *jump* is the one hop of a path that is in no tree yet.) What was
added, with the reasons and the proof, is in `docs/protocols/tree.md`; the rules are named there R1 to R14
and marked here where they apply. With `additions = false` those are left out that the work does without and
the proof does not need.

The parts, each over the one before: `protocol.py` (shared with the original), `leadership.py`,
`link_keeping.py`, `requests.py`, and here what is done with the replies: the decision and the activations.

The states of a node, by its upstream (`parent`) and its current task:

    has a parent ──lost──▶ root, repairing ──no reply──▶ root, leader ◀─────────── boot
         ▲                      │   │                       │    ▲
         └──────adopts──────────┘   └──────yields───────────┤    │ nobody comes
         ▲                                                  ▼    │
         └───────────────── adopts ──────────────── root, waiting (yielded)
         └── hands the root on (turn) ──▶ has a parent
"""

from roamcast.host import Host, TimerName
from roamcast.strategy.tree.overlay.label import RANKS_PER_HOP
from roamcast.strategy.tree.overlay.leadership import MERGE_DELAY
from roamcast.strategy.tree.overlay.links import LinkState, TreeLink
from roamcast.strategy.tree.overlay.messages import (
    Activation,
    Close,
    Confirm,
    GroupHello,
    Message,
    Probe,
    ReplyStage,
    RouteReply,
    RouteRequest,
    Sighting,
)
from roamcast.strategy.tree.overlay.parameters import TreeOptions
from roamcast.strategy.tree.overlay.protocol import OverlayListener
from roamcast.strategy.tree.overlay.requests import Searching
from roamcast.strategy.tree.overlay.routes import ForwardRoute, RequestKey
from roamcast.strategy.tree.overlay.search import best_reply
from roamcast.units import NodeId


class Evolved(Searching):
    def __init__(
        self,
        host: Host,
        options: TreeOptions,
        listener: OverlayListener,
        nearby: set[NodeId] | None,
        url: str,
    ) -> None:
        super().__init__(host, options, listener, nearby, url)
        self._overhears = options.additions

    # Inputs.

    def on_timer(self, name: TimerName) -> None:
        match name:
            case (_, "hello"):
                self._on_hello_due()
            case (_, "merge"):
                if self.is_leader and self._search is None:
                    self._request(reconnect=True)
            case (_, "search"):
                self._decide()
            case (_, "yielded"):
                if self._yielded_to is not None:
                    self._declare_leader()
            case (_, "silence"):
                self._on_silence()
            case _:
                super().on_timer(name)

    def on_message(self, sender: NodeId, message: Message) -> None:
        match message:
            case RouteRequest():
                self._on_request(sender, message)
            case GroupHello():
                self._on_hello(sender, message)
            case RouteReply():
                self._on_reply(sender, message)
            case Activation():
                self._on_activation(sender, message)
            case Confirm():
                self._on_confirm(sender, message)
            case Close():
                self._on_close(sender, message)
            case Probe():
                self._on_probe(sender, message)
            case Sighting():
                if sender in self.links and sender != self.parent:
                    self._on_sighting()

    # The decision, and activations.

    def _decide(self) -> None:
        """The time for replies is over."""
        search = self._search
        if search is None:
            return
        self._stop_searching()
        best = best_reply(
            (each for each in search.replies if not each.yields and each.label.better_than(self.label)),
            self._parameters().group_sequence_tolerance,
        )
        # R5: every leader that stepped down for us is activated, not only the best, before we move ourselves.
        for reply in search.replies:
            if reply.yields:
                self._fetch(reply.request, reply.responder)
        if best is not None:
            self._go(best.request, best.responder)
        if self.parent is None and not self.is_leader:
            self._repair()
        elif self.is_leader and not self.links and self._options.additions:
            # Whoever is in range is in another tree; the request or its answer was lost.
            self._set_timer("merge", self._parameters().discover_timeout + self._some_of(MERGE_DELAY))

    def _fetch(self, request: RequestKey, responder: NodeId) -> None:
        """Activate towards a tree that yielded: its root, at the far end of the jump, becomes our child."""
        forward = self._forwards.find((request, responder))
        if forward is None:
            return
        if forward.jump:
            number = self._offer(forward.via, forward.url)
            message = Activation(
                *request, responder, self._standing(), ReplyStage.JUMP, True, number, 0, self._url
            )
            self._activate(forward.via, number, message)
            return
        link = self.links.get(forward.via)
        if link is not None and forward.via != self.parent:
            message = Activation(
                *request, responder, self._standing(), ReplyStage.NEAR, True, link.number, link.turn
            )
            self._courier.hop(forward.via, message, own=request.requester == self._host.node)

    def _go(self, request: RequestKey, responder: NodeId) -> None:
        """Activate towards a better tree: we, the root, join it, or hand the root on to the node that can."""
        forward = self._forwards.find((request, responder))
        own = request.requester == self._host.node
        if forward is None or self._has_passed(request, responder):
            return
        if forward.jump:
            self._adopt(request, responder, forward)
            return
        link = self.links.get(forward.via)
        if link is not None and link.state is LinkState.OPEN:
            link.turn += 1
            message = Activation(
                *request, responder, self._standing(), ReplyStage.NEAR, False, link.number, link.turn
            )
            self._hand_root_to(link, message, own=own)

    def _adopt(self, request: RequestKey, responder: NodeId, forward: ForwardRoute) -> None:
        """Take the offered link (R1), if we are a root and the label that the offer states is better."""
        peer = forward.via
        usable = forward.link and peer not in self.links and self.is_nearby(peer)
        if not usable or not forward.label.better_than(self.label):
            return
        link = TreeLink(peer, forward.link, LinkState.ADOPTED, url=forward.url, opened_here=True)
        message = Activation(
            *request, responder, self._standing(), ReplyStage.JUMP, False, link.number, 0, self._url
        )
        self._settle_below(link, forward.label, forward.hops)
        self._activate(peer, link.number, message)

    def _activate(self, peer: NodeId, number: int, message: Activation) -> None:
        """Send the activation over the jump; beyond the work, until it is answered."""
        own = message.requester == self._host.node
        if self._options.additions:
            self._courier.agree(peer, number, message, own=own)
        else:
            self._courier.hop(peer, message, own=own)

    def _on_activation(self, sender: NodeId, message: Activation) -> None:
        request = RequestKey(message.requester, message.number)
        match message.stage, message.yields:
            case ReplyStage.NEAR, False:
                if self._take_root(sender, message):
                    self._go(request, message.responder)
                    if self.parent is None:
                        self._on_orphaned()  # the path is gone, but the root is here: look for another
            case ReplyStage.NEAR, True:
                self._on_activation_from_above(sender, request, message)
            case ReplyStage.JUMP, False:
                self._on_link_taken(sender, message)
            case ReplyStage.JUMP, True:
                self._on_fetched(sender, request, message)
            case _:
                self._drop(message, "is at no stage of an activation")

    def _on_activation_from_above(self, sender: NodeId, request: RequestKey, message: Activation) -> None:
        link = self.links.get(sender)
        if link is None or link.number != message.link:
            self._refuse(sender, message, message.link)
        elif sender != self.parent:
            self._drop(message, "comes not from our upstream")
        else:
            self._better(message.standing.label.moved(RANKS_PER_HOP), message.standing.hops + 1)
            self._fetch(request, message.responder)

    def _on_link_taken(self, sender: NodeId, message: Activation) -> None:
        """The other end of the jump has taken our offer and is our child now."""
        link = self.links.get(sender)
        if link is not None and link.number == message.link:
            self._courier.once(sender, Confirm(link.number, link.turn), own=False)  # the first one was lost
        elif self._is_offered(sender, message.link):
            self._open_offered(sender, message.link, message.url, opened_here=False)
            self._courier.once(sender, Confirm(message.link, 0), own=False)
            self._say_hello(update=True)
        else:
            self._refuse(sender, message, message.link)

    def _on_fetched(self, sender: NodeId, request: RequestKey, message: Activation) -> None:
        """We yielded, and the other tree offers us a place (R1)."""
        link = self.links.get(sender)
        if link is not None and link.number == message.link:
            self._courier.once(sender, Confirm(link.number, link.turn), own=False)
            return
        label = message.standing.label
        welcome = self._yielded_to == request and self.parent is None and self.is_nearby(sender)
        if not welcome or link is not None or not label.better_than(self.label):
            self._refuse(sender, message, message.link)
            return
        link = TreeLink(sender, message.link, LinkState.ADOPTED, url=message.url)
        self._settle_below(link, label, message.standing.hops)
        self._courier.once(sender, Confirm(link.number, 0), own=False)
        self._on_heard(sender, link.number)
