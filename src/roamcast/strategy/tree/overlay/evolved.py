"""The evolved protocol (chapter 4, A.2), with the rules that keep it acyclic at every instant.

As in the work: requests spread by Rule 1, nodes nearer to the leader answer, the node at the jump rewrites
the reply, the activation stops there, leaders look for other partitions by the same request, a node that
starts is the leader of itself. (The *jump* is the one hop of a path that is in no tree yet.) What was
added, with the reasons and the proof, is in `docs/protocols/tree.md`; the rules are named there R1 to R13
and marked here where they apply.

The states of a node, by its upstream (`parent`) and its current task:

    has a parent ──lost──▶ root, repairing ──no reply──▶ root, leader ◀─────────── boot
         ▲                      │   │                       │    ▲
         └──────adopts──────────┘   └──────yields───────────┤    │ nobody comes
         ▲                                                  ▼    │
         └───────────────── adopts ──────────────── root, waiting (yielded)
         └── hands the root on (turn) ──▶ has a parent
"""

from roamcast.host import Host, TimerName
from roamcast.strategy.tree.overlay.label import RANKS_PER_HOP, Label
from roamcast.strategy.tree.overlay.links import LinkOffer, LinkState, TreeLink
from roamcast.strategy.tree.overlay.messages import (
    HOPS_MAX,
    LINK_BITS,
    LINKS_MAX,
    Activation,
    Close,
    Confirm,
    GroupHello,
    Message,
    Probe,
    ReplyStage,
    RouteReply,
    RouteRequest,
    Spread,
    TreeData,
)
from roamcast.strategy.tree.overlay.parameters import TreeOptions
from roamcast.strategy.tree.overlay.protocol import OverlayListener, TreeProtocol
from roamcast.strategy.tree.overlay.routes import AgingDict, ForwardRoute, RequestKey, Reverse
from roamcast.strategy.tree.overlay.search import Reply, TreeSearch, best_reply
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Chosen by us. `CROWD` and its time-out are rule R13: in a dense network a repair then takes 25 control
# frames, not 40 (docs/protocols/tree.md). The others trade fewer messages for a slower reaction.
MERGE_DELAY: Micros = 200 * MILLISECOND  # at most, at random; before a leader asks for other partitions
SILENCES_MAX = 3  # missing hellos in a row before an upstream is left that still answers probes
OFFERS_MAX = 1_000  # open at a time
ANSWERS_MAX = 4  # further answers to copies of one request that came by other paths
CROWD = 8  # with so many nodes in range the first request goes one hop only
CROWD_TIMEOUT: Micros = 200 * MILLISECOND  # wait for replies to that request


class Evolved(TreeProtocol):
    def __init__(
        self,
        host: Host,
        options: TreeOptions,
        listener: OverlayListener,
        nearby: set[NodeId] | None,
        url: str,
    ) -> None:
        super().__init__(host, options, listener, nearby, url)
        self.offers: dict[int, LinkOffer] = {}
        self._search: TreeSearch | None = None
        self._attempts = 0  # requests since the upstream was lost
        self._has_asked_around = False  # by the one-hop request that precedes those in a crowd (R13)
        self._yielded_to: RequestKey | None = None  # whose activation we wait for, as the root of our tree
        self._request_number = host.random.getrandbits(32)
        # Replies to requests before this number are dropped (R9). None: all replies are.
        self._welcome_from: int | None = None
        self._reverses: AgingDict[RequestKey, Reverse] = AgingDict(self._too_many)
        self._forwards: AgingDict[tuple[RequestKey, NodeId], ForwardRoute] = AgingDict(self._too_many)
        # The root passes a node once per request, and once per activation (R10).
        self._root_passed: AgingDict[tuple[RequestKey, NodeId | None], bool] = AgingDict(self._too_many)
        self._hellos = 0
        self._hello_interval: Micros = self._parameters().hello_interval  # as our leader states it
        self._silences = 0

    # Inputs.

    def on_start(self) -> None:
        self._set_leader(True)
        self._set_timer("hello", self._some_of(self._parameters().hello_interval))

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        if self.is_leader and self._search is None:
            self._set_timer("merge", self._some_of(MERGE_DELAY))

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
            case TreeData() | Spread():
                number = self._link_in(message)
                if number is not None:
                    self._on_heard(sender, number)
                    self._on_data(sender, message, number)
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

    # Group hellos, leaders.

    def _on_hello_due(self) -> None:
        if not self.is_leader:
            return
        parameters = self._parameters()
        self._set_timer("hello", parameters.hello_interval)
        self._hello_interval = parameters.hello_interval
        if self.links:
            # Only with links: a leader without any has no receivers, and must not look fresher than a tree.
            self.label = Label(self.label.sequence + 1, self._host.node, 0)
            self._say_hello(update=False)
        self._hellos += 1
        if self._hellos % parameters.reconnection_trigger == 0 and self._search is None:
            # Delayed at random, so that it collides neither with the hello nor with other leaders.
            self._set_timer("merge", self._some_of(MERGE_DELAY))

    def _say_hello(self, *, update: bool, relayed: bool = False) -> None:
        below = [link for peer, link in sorted(self.links.items()) if peer != self.parent]
        if not below:
            return
        named = tuple((link.peer, link.number) for link in below[:LINKS_MAX])
        message = GroupHello(self._standing(), self._hello_interval, update, named)
        if relayed:
            self._courier.broadcast_soon(message, own=False)
        else:
            self._courier.broadcast(message, own=True)

    def _on_hello(self, sender: NodeId, message: GroupHello) -> None:
        link = self.links.get(sender)
        named = next((number for node, number in message.links if node == self._host.node), None)
        if named is None:
            if link is not None and sender == self.parent and link.state is LinkState.OPEN:
                self._probe(link)  # R7: our upstream does not know the link, or this hello is old
            return
        if link is None or link.number != named:
            self._refuse(sender, message, named)
            return
        if sender != self.parent:
            self._drop(message, "is no hello of our upstream")
            return
        self._on_heard(sender, named)
        self._courier.agreed(sender, named)
        fresher = message.standing.sequence > self.label.sequence
        if fresher or message.update:
            self._hello_interval = message.interval
            self._silences = 0
            self._expect_hello()
        if self._better(message.standing.label.moved(RANKS_PER_HOP), message.standing.hops + 1):
            self._say_hello(update=message.update, relayed=True)

    def _declare_leader(self) -> None:
        """There is no path into another tree: lead this one. A root may improve its label without limit (R2).

        A node that has no links and withdraws its offers is bound by no label that it stated: it starts over
        like one that has just booted, so that it does not outrank the tree that it comes back to.
        """
        assert self.parent is None
        self._stop_searching()
        self._yielded_to = None
        self._broken_at = None
        if self.links:
            self.label = Label(self.label.sequence + 1, self._host.node, 0)
        else:
            self.offers.clear()
            self.label = Label(0, self._host.node, 0)
        self.hops = 0
        self._set_leader(True)
        self._hellos = 0
        self._hello_interval = self._parameters().hello_interval
        self._cancel_timer("silence")
        self._set_timer("hello", self._hello_interval)
        self._set_timer("merge", self._some_of(MERGE_DELAY))
        self._say_hello(update=True)

    def _expect_hello(self) -> None:
        missed = self._parameters().allowed_hello_loss + 1
        self._set_timer("silence", self._hello_interval * missed + self._hello_interval // 2)

    def _on_silence(self) -> None:
        """Section 4.3: no group hello came. If the upstream answers a probe, a node above it has to act."""
        if self.parent is None:
            return
        self._silences += 1
        if self._silences >= SILENCES_MAX:
            self._lose(self.parent, tell=True)
        else:
            self._expect_hello()
            self._probe(self.links[self.parent])

    # Requests.

    def _on_orphaned(self) -> None:
        self._broken_at = self._host.now()
        self._cancel_timer("silence")
        self._repair()

    def _repair(self) -> None:
        """Ask for a new upstream, or give up after REQUEST_RETRIES and lead the partition."""
        alone = self._nearby is not None and not self._nearby
        if alone or self._attempts > self._parameters().request_retries:
            self._forget_attempts()
            self._declare_leader()
        elif self._is_first_attempt() and self._nearby is not None and len(self._nearby) >= CROWD:
            # R13: in a crowd a neighbour can usually answer; with a larger reach all of them would relay it.
            self._request(reconnect=False, around=True)
            self._has_asked_around = True
        else:
            self._request(reconnect=False)
            self._attempts += 1

    def _is_first_attempt(self) -> bool:
        return self._attempts == 0 and not self._has_asked_around

    def _forget_attempts(self) -> None:
        self._attempts = 0
        self._has_asked_around = False

    def _request(self, *, reconnect: bool, around: bool = False) -> None:
        if self._nearby is not None and not self._nearby:
            return
        parameters = self._parameters()
        self._request_number += 1
        request = RequestKey(self._host.node, self._request_number)
        self._search = TreeSearch()
        if reconnect or self._is_first_attempt() or self._welcome_from is None:
            self._welcome_from = self._request_number
        # R8: the search for other partitions reaches as far as the tree does, or two deep trees that
        # touch at their leaves would never meet.
        reach = HOPS_MAX
        if not reconnect:
            reach = min(parameters.ttl_increment * (self._attempts + 1), parameters.ttl_threshold)
        timeout = parameters.discover_timeout
        if around:
            reach, timeout = 1, min(timeout, CROWD_TIMEOUT)
        message = RouteRequest(*request, self._standing(), reach, 0, False, reconnect)
        self._courier.broadcast(message, own=True)
        self._set_timer("search", timeout)

    def _on_request(self, sender: NodeId, message: RouteRequest) -> None:
        if message.requester == self._host.node or not self.is_nearby(sender):
            return
        link = self.links.get(sender)
        above = sender == self.parent and message.standing.label.better_than(self.label)
        if link is not None and sender == message.requester and not above:
            # R7: a requester is a root, so a child of ours cannot be one, and an upstream has a better label
            # than we. Otherwise it has rebooted or left us, or the request is old: ask.
            self._probe(link)
        request = RequestKey(message.requester, message.number)
        known = self._reverses.find(request)
        if message.limited or sender not in self.links:  # Rule 1: it left its tree on this hop or before
            if self._is_of_our_leader(message):
                return
            if known is None:
                reverse = Reverse(message.standing.label, limited=sender)
                self._reverses.put(request, reverse, self._host.now())
                self._answer_or_climb(request, sender, message)
                return
            again = known.limited not in (None, sender) and known.answers < ANSWERS_MAX
            if again and self._may_answer(message):
                # The same request by another path: the requester chooses a reply (white-box case 5).
                known.answers += 1
                self._reply_down(request, sender, self._host.node, self.hops)
        # Known requests are dropped, except from the upstream: an earlier copy may have come by another path.
        elif known is None or (known.free is None and sender == self.parent):
            reverse = Reverse(message.standing.label, free=sender, limited=known.limited if known else None)
            self._reverses.put(request, reverse, self._host.now())
            if message.time_to_live > 1:
                self._courier.broadcast_soon(_relayed(message, limited=False), own=False)

    def _is_of_our_leader(self, message: RouteRequest) -> bool:
        """A leader's request that its own tree receives from outside leads only back to that leader."""
        return message.reconnect and message.requester == self.label.leader

    def _may_answer(self, message: RouteRequest) -> bool:
        """R1, the strictly-less rule of section 4.3. A leader's search is answered by roots (4.4)."""
        nearer = self.label.better_than(message.standing.label)
        return nearer and (self.parent is None or not message.reconnect)

    def _answer_or_climb(self, request: RequestKey, sender: NodeId, message: RouteRequest) -> None:
        if self._may_answer(message):
            self._reply_down(request, sender, self._host.node, self.hops)
        elif self.parent is not None:
            if message.time_to_live > 1:
                self._courier.hop(self.parent, _relayed(message, limited=True), own=False)
        elif message.reconnect and self._yielded_to is None:
            # Section 4.4: the leader of the other partition steps down.
            self._yield_down(request, sender, self._host.node, 0)

    # Replies.

    def _reply_down(self, request: RequestKey, to: NodeId, responder: NodeId, hops: int) -> None:
        """Offer a place below us: along our tree, or, at the jump, as an offer to the node there."""
        link = self.links.get(to)
        if link is not None:
            message = RouteReply(
                *request, responder, self._standing(), hops, ReplyStage.FAR, False, link.number, link.turn
            )
            self._courier.hop(to, message, own=False)
            return
        number = self._offer(to)
        message = RouteReply(
            *request, self._host.node, self._standing(), hops, ReplyStage.JUMP, False, number, 0, self._url
        )
        self._courier.hop(to, message, own=False)

    def _yield_down(self, request: RequestKey, to: NodeId, responder: NodeId, hops: int) -> None:
        """Step down: hand the root on towards the jump; there, wait for the other tree's activation."""
        assert self.parent is None
        link = self.links.get(to)
        if link is not None:
            if link.state is not LinkState.OPEN:
                return
            link.turn += 1
            message = RouteReply(
                *request, responder, self._standing(), hops, ReplyStage.FAR, True, link.number, link.turn
            )
            self._hand_root_to(link, message, own=False)
            return
        self._leave_root()
        self._yielded_to = request
        self._set_timer("yielded", 2 * self._parameters().discover_timeout)
        standing = self._standing()
        message = RouteReply(
            *request, self._host.node, standing, hops, ReplyStage.JUMP, True, 0, 0, self._url
        )
        self._courier.hop(to, message, own=False)

    def _on_reply(self, sender: NodeId, message: RouteReply) -> None:
        request = RequestKey(message.requester, message.number)
        if message.stage is not ReplyStage.FAR:
            self._on_reply_across(sender, request, message)
        elif not message.yields:
            self._on_reply_below(sender, request, message)
        elif self._take_root(sender, message):
            reverse = self._reverses.find(request)
            way = None if reverse is None else reverse.limited
            usable = way is not None and (way in self.links or self.is_nearby(way))
            if way is None or not usable or self._has_passed(request, None):
                self._declare_leader()  # the path is gone: lead the tree
            else:
                self._yield_down(request, way, message.responder, min(message.hops + 1, HOPS_MAX))
                if self.parent is None and self._yielded_to is None:
                    self._declare_leader()

    def _on_reply_below(self, sender: NodeId, request: RequestKey, message: RouteReply) -> None:
        """A reply from above improves our label, so that the node at the jump may offer a link (R4)."""
        link = self.links.get(sender)
        if link is None or link.number != message.link:
            self._refuse(sender, message, message.link)
            return
        reverse = self._reverses.find(request)
        if sender != self.parent or reverse is None or reverse.limited is None:
            self._drop(message, "answers no request of ours")
            return
        self._better(message.standing.label.moved(1), self.hops)
        if not self.label.better_than(reverse.label):
            self._drop(message, "does not lift us above the requester")
            return
        self._reply_down(request, reverse.limited, message.responder, min(message.hops + 1, HOPS_MAX))

    def _on_reply_across(self, sender: NodeId, request: RequestKey, message: RouteReply) -> None:
        jump = message.stage is ReplyStage.JUMP
        if jump and not self.is_nearby(sender):
            return
        if self._forwards.find((request, message.responder)) is not None:
            # R10: each reply is passed on once. While a tree turns round, two nodes can have the same
            # request from each other, and a reply would go back and forth between them for ever.
            self._drop(message, "has been here before")
            return
        forward = ForwardRoute(
            sender,
            message.standing.label,
            message.standing.hops,
            jump,
            message.yields,
            message.link,
            message.url,
        )
        self._forwards.put((request, message.responder), forward, self._host.now())
        hops = min(message.hops + 1, HOPS_MAX)
        if request.requester == self._host.node:
            self._collect(request, message, hops)
            return
        reverse = self._reverses.find(request)
        if reverse is None or reverse.free is None:
            self._drop(message, "answers no request of ours")
            return
        relayed = RouteReply(
            *request, message.responder, message.standing, hops, ReplyStage.NEAR, message.yields, 0, 0
        )
        self._courier.hop(reverse.free, relayed, own=False)

    def _collect(self, request: RequestKey, message: RouteReply, hops: int) -> None:
        """R9: a reply is late only when the next search has begun or the root is gone."""
        is_welcome = self._welcome_from is not None and request.number >= self._welcome_from
        if not is_welcome or self.parent is not None:
            self._drop(message, "comes too late")
            return
        self._on_first_reply()
        if self._search is None:
            self._search = TreeSearch()
            self._set_timer("search", 0)
        if not self._search.replies and self._options.reply_wait is not None:
            wait = min(micros(self._options.reply_wait), self._parameters().discover_timeout)
            self._set_timer("search", wait)
        reply = Reply(request, message.responder, message.standing.label, hops, message.yields)
        self._search.replies.append(reply)

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
            self._courier.agree(forward.via, number, message, own=request.requester == self._host.node)
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
            self._adopt(request, responder, forward, own)
            return
        link = self.links.get(forward.via)
        if link is not None and link.state is LinkState.OPEN:
            link.turn += 1
            message = Activation(
                *request, responder, self._standing(), ReplyStage.NEAR, False, link.number, link.turn
            )
            self._hand_root_to(link, message, own=own)

    def _adopt(self, request: RequestKey, responder: NodeId, forward: ForwardRoute, own: bool) -> None:
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
        self._courier.agree(peer, link.number, message, own=own)

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

    # Links.

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

    # Helpers.

    def _on_undelivered(self, neighbour: NodeId) -> None:
        for number in [each.number for each in self.offers.values() if each.peer == neighbour]:
            del self.offers[number]
        super()._on_undelivered(neighbour)

    def _stop_searching(self) -> None:
        self._search = None
        self._cancel_timer("search")
        self._cancel_timer("merge")

    def _leave_root(self) -> None:
        """We are about to have an upstream."""
        self._stop_searching()
        self._welcome_from = None
        self._set_leader(False)
        self._yielded_to = None

    def _has_passed(self, request: RequestKey, responder: NodeId | None) -> bool:
        """Whether the root has passed this node for the same request and responder. Notes that it now has."""
        if self._root_passed.find((request, responder)):
            return True
        self._root_passed.put((request, responder), True, self._host.now())
        return False

    def _better(self, label: Label, hops: int) -> bool:
        """Take a label if it is better than ours: labels never get worse (R2)."""
        if not label.better_than(self.label):
            return False
        self.label = label
        self.hops = min(hops, HOPS_MAX)
        return True


def _relayed(message: RouteRequest, *, limited: bool) -> RouteRequest:
    return RouteRequest(
        message.requester,
        message.number,
        message.standing,
        message.time_to_live - 1,
        min(message.hops + 1, HOPS_MAX),
        limited,
        message.reconnect,
    )
