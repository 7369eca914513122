"""Looking for a way into another tree: requests, and the replies to them (4.2, 4.4).

Requests spread by Rule 1: over the requester's tree, one hop out of it (the *jump*), then upwards in the
other tree. Nodes nearer to the leader answer, and the reply comes back the same way (R1, R4, R8, R9, R10,
R13). What is done with the replies is in `evolved.py`.
"""

from roamcast.host import Host
from roamcast.strategy.tree.overlay.link_keeping import LinkKeeping
from roamcast.strategy.tree.overlay.links import LinkState
from roamcast.strategy.tree.overlay.messages import HOPS_MAX, ReplyStage, RouteReply, RouteRequest
from roamcast.strategy.tree.overlay.parameters import TreeOptions
from roamcast.strategy.tree.overlay.protocol import OverlayListener
from roamcast.strategy.tree.overlay.routes import AgingDict, ForwardRoute, RequestKey, Reverse
from roamcast.strategy.tree.overlay.search import Reply, TreeSearch
from roamcast.units import MILLISECOND, Micros, NodeId, micros

ANSWERS_MAX = 4  # further answers to copies of one request that came by other paths; chosen by us
# R13: in a dense network a repair then takes 25 control frames, not 40 (docs/protocols/tree.md).
CROWD = 8  # with so many nodes in range the first request goes one hop only
CROWD_TIMEOUT: Micros = 200 * MILLISECOND  # wait for replies to that request


class Searching(LinkKeeping):
    def __init__(
        self,
        host: Host,
        options: TreeOptions,
        listener: OverlayListener,
        nearby: set[NodeId] | None,
        url: str,
    ) -> None:
        super().__init__(host, options, listener, nearby, url)
        self._request_number = host.random.getrandbits(32)
        self._reverses: AgingDict[RequestKey, Reverse] = AgingDict(self._too_many)
        self._forwards: AgingDict[tuple[RequestKey, NodeId], ForwardRoute] = AgingDict(self._too_many)
        # The root passes a node once per request, and once per activation (R10).
        self._root_passed: AgingDict[tuple[RequestKey, NodeId | None], bool] = AgingDict(self._too_many)
        # R14: the last request or reply of a node that is not nearby yet, and when it came.
        self._early: AgingDict[NodeId, tuple[Micros, RouteRequest | RouteReply]] = AgingDict(self._too_many)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        super().on_neighbour_up(neighbour)
        came, message = self._early.find(neighbour) or (0, None)
        if message is not None and self._host.now() - came < self._parameters().discover_timeout:
            self.on_message(neighbour, message)

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
        elif self._options.additions and self._is_first_attempt() and len(self._nearby or ()) >= CROWD:
            # R13: in a crowd a neighbour can usually answer; with a larger reach all of them would relay it.
            self._request(reconnect=False, around=True)
            self._has_asked_around = True
        else:
            self._request(reconnect=False)
            self._attempts += 1

    def _is_first_attempt(self) -> bool:
        return self._attempts == 0 and not self._has_asked_around

    def _request(self, *, reconnect: bool, around: bool = False) -> None:
        if self._nearby is not None and not self._nearby:
            return
        parameters = self._parameters()
        self._request_number += 1
        request = RequestKey(self._host.node, self._request_number)
        self._search = TreeSearch()
        # R9. A leader without links asks again so soon (R14) that all replies to it could come late for ever.
        is_new_search = bool(self.links) if reconnect else self._is_first_attempt()
        if is_new_search or self._welcome_from is None:
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
        if message.requester == self._host.node:
            return
        if not self.is_nearby(sender):
            self._keep_early(sender, message)
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

    def _keep_early(self, sender: NodeId, message: RouteRequest | RouteReply) -> None:
        """R14: of two nodes that meet one knows it first, and what it says comes before the other does."""
        if self._options.additions:
            self._early.put(sender, (self._host.now(), message), self._host.now())

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
            self._keep_early(sender, message)
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

    def _has_passed(self, request: RequestKey, responder: NodeId | None) -> bool:
        """Whether the root has passed this node for the same request and responder. Notes that it now has."""
        if self._root_passed.find((request, responder)):
            return True
        self._root_passed.put((request, responder), True, self._host.now())
        return False


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
