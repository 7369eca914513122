"""MAODV as it was (3.2.3, A.1), for one group of which every node is a member: the baseline.

Its faults are part of it and are not mended: nodes at the same distance answer each other (fig. 3.15),
nodes along an activated path open every link of it (fig. 3.13, with `member_forwarding`), a lost
activation leaves a partition without a leader (fig. 3.16, without `hello_workaround`). Links have no
numbers here (all are 0) and no agreement: an end opens a link when it sends or hears an activation.

Where the text leaves a choice, this follows the IETF draft of MAODV: of two partitions that hear each
other's group hellos, a member of the one with the lower leader asks its leader for permission, then asks
the other leader, and joins its own tree below the other.
"""

from dataclasses import dataclass

from roamcast.host import Host, TimerName
from roamcast.strategy.tree.overlay.label import Label
from roamcast.strategy.tree.overlay.links import LinkState, TreeLink
from roamcast.strategy.tree.overlay.messages import (
    HOPS_MAX,
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
    Standing,
    TreeData,
)
from roamcast.strategy.tree.overlay.parameters import TreeOptions
from roamcast.strategy.tree.overlay.protocol import OverlayListener, TreeProtocol
from roamcast.strategy.tree.overlay.routes import AgingDict, ForwardRoute, RequestKey, Reverse
from roamcast.strategy.tree.overlay.search import Reply, TreeSearch, best_reply
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Chosen by us.
JOIN_DELAY: Micros = 2 * SECOND  # at most, at random: devices switched on together do not ask together
UPDATE_DELAY: Micros = 200 * MILLISECOND  # from a leader's reply to its hello over the new link


@dataclass(slots=True)
class Merge:
    """A merge of two partitions that this node carries out."""

    neighbour: NodeId  # in the other partition
    request: RequestKey
    until: Micros


class Original(TreeProtocol):
    def __init__(
        self,
        host: Host,
        options: TreeOptions,
        listener: OverlayListener,
        nearby: set[NodeId] | None,
        url: str,
    ) -> None:
        super().__init__(host, options, listener, nearby, url)
        self._search: TreeSearch | None = None
        self._requested: RequestKey | None = None
        self._attempts = 0
        self._joined = False
        self.hops = HOPS_MAX  # a node that joins has the largest distance: any member may answer it
        self._request_number = host.random.getrandbits(32)
        self._reverses: AgingDict[RequestKey, Reverse] = AgingDict(self._too_many)
        self._forwards: AgingDict[tuple[RequestKey, NodeId], ForwardRoute] = AgingDict(self._too_many)
        # The group hellos received, by leader and sequence.
        self._hellos: AgingDict[tuple[NodeId, int], bool] = AgingDict(self._too_many)
        self._merge: Merge | None = None
        self._granted_until: Micros = 0  # to prevent loops, one reconnection at a time

    # Inputs.

    def on_start(self) -> None:
        self._set_timer("join", self._some_of(JOIN_DELAY))

    def on_timer(self, name: TimerName) -> None:
        match name:
            case (_, "join"):
                if self.parent is None:
                    self._repair()
            case (_, "hello"):
                self._hello(update=False)
            case (_, "update"):
                self._hello(update=True)
            case (_, "search"):
                self._decide()
            case (_, "silence"):
                if self._options.hello_workaround and self.parent is not None:
                    self._lose(self.parent, tell=True)
            case _:
                super().on_timer(name)

    def on_message(self, sender: NodeId, message: Message) -> None:
        match message:
            case TreeData() | Spread():
                number = self._link_in(message)
                if number is not None:
                    self._on_data(sender, message, number)
            case GroupHello():
                self._on_hello(sender, message)
            case RouteRequest() if message.reconnect:
                self._on_merge_request(sender, message)
            case RouteRequest():
                self._on_request(sender, message)
            case RouteReply() if message.stage is ReplyStage.FAR:
                self._on_merge_reply(sender, message)
            case RouteReply():
                self._on_reply(sender, message)
            case Activation():
                self._on_activation(sender, message)
            case Close():
                self._lose(sender, tell=False)
            case Probe():
                self._on_probe(sender, message)
            case Confirm():
                self._courier.agreed(sender, 0)

    # Group hellos.

    def _hello(self, *, update: bool) -> None:
        if not self.is_leader:
            return
        interval = self._parameters().hello_interval
        self._set_timer("hello", interval)
        self.label = Label(self.label.sequence + 1, self._host.node, 0)
        self._courier.broadcast(self._hello_message(update), own=True)

    def _hello_message(self, update: bool) -> GroupHello:
        named = tuple((peer, 0) for peer in sorted(self.links)[:LINKS_MAX])
        return GroupHello(self._standing(), self._parameters().hello_interval, update, named)

    def _on_hello(self, sender: NodeId, message: GroupHello) -> None:
        theirs = message.standing
        if theirs.leader == self._host.node:
            return
        same = theirs.leader == self.label.leader
        if sender not in self.links:
            other = not same and theirs.leader > self.label.leader
            if other and self._joined and self.is_nearby(sender):
                self._begin_merge(sender)
            return
        if not (theirs.sequence > self.label.sequence if same else message.update or self._yields(theirs)):
            return
        heard = (theirs.leader, theirs.sequence)
        if self._hellos.find(heard) is not None:
            return  # relayed once: the updates of two leaders would circulate in a loop for ever
        self._hellos.put(heard, message.update, self._host.now())
        self._follow(sender, theirs)
        self._courier.broadcast_soon(self._hello_message(message.update), own=False)

    def _yields(self, theirs: Standing) -> bool:
        return theirs.leader > self.label.leader

    def _follow(self, upstream: NodeId, standing: Standing) -> None:
        self._set_leader(False)
        self._joined = True
        self.parent = upstream
        self.label = standing.label
        self.hops = min(standing.hops + 1, HOPS_MAX)
        parameters = self._parameters()
        self._set_timer(
            "silence",
            parameters.hello_interval * (parameters.allowed_hello_loss + 1) + parameters.hello_interval // 2,
        )

    # Repair after a link breakage.

    def _on_orphaned(self) -> None:
        self._broken_at = self._host.now()
        self._cancel_timer("silence")
        self._repair()

    def _repair(self) -> None:
        parameters = self._parameters()
        if self._attempts > parameters.request_retries or (self._nearby is not None and not self._nearby):
            self._attempts = 0
            self._broken_at = None
            self.label = Label(0, self._host.node, 0)
            self.hops = 0
            self._joined = True
            self._set_leader(True)
            self._hello(update=True)
            return
        request = self._requested = self._next_request()
        self._search = TreeSearch()
        reach = min(parameters.ttl_increment * (self._attempts + 1), parameters.ttl_threshold)
        self._attempts += 1
        self._courier.broadcast(
            RouteRequest(*request, self._standing(), reach, 0, False, reconnect=False), own=True
        )
        self._set_timer("search", parameters.discover_timeout)

    def _on_request(self, sender: NodeId, message: RouteRequest) -> None:
        """A.1, procedure 3; members pass a request on only if `member_forwarding` says so."""
        request = RequestKey(message.requester, message.number)
        known = self._reverses.find(request)
        if message.requester == self._host.node or known is not None or not self.is_nearby(sender):
            return
        asked = message.standing
        self._reverses.put(request, Reverse(asked.label, free=sender), self._host.now())
        if self._joined and self.label.sequence >= asked.sequence and self.hops <= asked.hops:
            reply = RouteReply(
                *request, self._host.node, self._standing(), self.hops, ReplyStage.NEAR, False, 0, 0
            )
            self._courier.hop(sender, reply, own=False)
        elif self._options.member_forwarding and message.time_to_live > 1:
            relayed = RouteRequest(
                *request, asked, message.time_to_live - 1, min(message.hops + 1, HOPS_MAX), False, False
            )
            self._courier.broadcast_soon(relayed, own=False)

    def _on_reply(self, sender: NodeId, message: RouteReply) -> None:
        request = RequestKey(message.requester, message.number)
        standing = message.standing
        forward = ForwardRoute(sender, standing.label, standing.hops, True, False, 0, "")
        self._forwards.put((request, message.responder), forward, self._host.now())
        hops = min(message.hops + 1, HOPS_MAX)
        if request.requester == self._host.node:
            self._collect(request, message, hops)
            return
        reverse = self._reverses.find(request)
        if reverse is None or reverse.free is None:
            self._drop(message, "answers no request of ours")
            return
        relayed = RouteReply(*request, message.responder, standing, hops, ReplyStage.NEAR, False, 0, 0)
        self._courier.hop(reverse.free, relayed, own=False)

    def _collect(self, request: RequestKey, message: RouteReply, hops: int) -> None:
        search = self._search
        if search is None or self._requested != request:
            self._drop(message, "comes too late")
            return
        if not search.replies:
            self._on_first_reply()
            if self._options.reply_wait is not None:
                self._set_timer("search", micros(self._options.reply_wait))
        search.replies.append(Reply(request, message.responder, message.standing.label, hops, yields=False))

    def _decide(self) -> None:
        search, self._search = self._search, None
        if search is None or self.parent is not None:
            return
        best = best_reply(search.replies, self._parameters().group_sequence_tolerance)
        forward = None if best is None else self._forwards.find((best.request, best.responder))
        if best is None or forward is None or not self.is_nearby(forward.via):
            self._repair()
            return
        self._attempts = 0
        self._enable(forward.via)
        self._follow(forward.via, Standing(*best.label, min(max(best.hops - 1, 0), HOPS_MAX)))
        self._activate(best.request, best.responder, forward.via, own=True)

    def _activate(self, request: RequestKey, responder: NodeId, to: NodeId, *, own: bool) -> None:
        message = Activation(*request, responder, self._standing(), ReplyStage.NEAR, False, 0, 0)
        self._courier.once(to, message, own=own)

    def _on_activation(self, sender: NodeId, message: Activation) -> None:
        """A.1, procedure 5: both links of the path at this node are enabled, even if they close a cycle."""
        self._enable(sender)
        if message.responder == self._host.node:
            return
        request = RequestKey(message.requester, message.number)
        forward = self._forwards.find((request, message.responder))
        if forward is not None and forward.via != sender:
            self._enable(forward.via)
            self._activate(request, message.responder, forward.via, own=False)

    # Partition merging (3.2.3).

    def _begin_merge(self, neighbour: NodeId) -> None:
        now = self._host.now()
        if self._merge is not None and now < self._merge.until:
            return
        request = self._next_request()
        self._merge = Merge(neighbour, request, now + 2 * self._parameters().discover_timeout)
        if self.is_leader:
            if now >= self._granted_until:
                self._granted_until = self._merge.until
                self._ask_other_leader(self._merge)
        elif self.parent is not None:
            message = RouteRequest(*request, self._standing(), HOPS_MAX, 0, True, reconnect=True)
            self._courier.hop(self.parent, message, own=True)

    def _ask_other_leader(self, merge: Merge) -> None:
        merge.request = self._next_request()
        message = RouteRequest(*merge.request, self._standing(), HOPS_MAX, 0, True, reconnect=True)
        self._courier.hop(merge.neighbour, message, own=True)

    def _on_merge_request(self, sender: NodeId, message: RouteRequest) -> None:
        request = RequestKey(message.requester, message.number)
        if message.requester == self._host.node or self._reverses.find(request) is not None:
            return
        self._reverses.put(request, Reverse(message.standing.label, limited=sender), self._host.now())
        if not self.is_leader:
            if self.parent is not None and message.time_to_live > 1:
                relayed = RouteRequest(
                    *request,
                    message.standing,
                    message.time_to_live - 1,
                    min(message.hops + 1, HOPS_MAX),
                    True,
                    True,
                )
                self._courier.hop(self.parent, relayed, own=False)
            return
        ours = message.standing.leader == self._host.node
        if ours:
            if self._host.now() < self._granted_until:
                return
            self._granted_until = self._host.now() + 2 * self._parameters().discover_timeout
        else:
            sequence = max(self.label.sequence, message.standing.sequence)
            self.label = Label(sequence, self._host.node, 0)
            self._set_timer("update", UPDATE_DELAY)
        reply = RouteReply(*request, self._host.node, self._standing(), 0, ReplyStage.FAR, ours, 0, 0)
        self._courier.hop(sender, reply, own=False)

    def _on_merge_reply(self, sender: NodeId, message: RouteReply) -> None:
        request = RequestKey(message.requester, message.number)
        if message.requester != self._host.node:
            reverse = self._reverses.find(request)
            if reverse is None or reverse.limited is None:
                self._drop(message, "answers no request of ours")
                return
            relayed = RouteReply(
                *request,
                message.responder,
                message.standing,
                min(message.hops + 1, HOPS_MAX),
                ReplyStage.FAR,
                message.yields,
                0,
                0,
            )
            self._courier.hop(reverse.limited, relayed, own=False)
            return
        merge = self._merge
        if merge is None or merge.request != request or not self.is_nearby(merge.neighbour):
            self._drop(message, "comes too late")
        elif message.yields:
            self._ask_other_leader(merge)
        elif message.standing.leader != self.label.leader:
            self._merge = None
            self._enable(merge.neighbour)
            self._activate(request, merge.neighbour, merge.neighbour, own=True)
            self._follow(merge.neighbour, Standing(*message.standing.label, min(message.hops, HOPS_MAX)))
            self._courier.broadcast(self._hello_message(update=True), own=True)

    # Helpers.

    def _enable(self, peer: NodeId) -> None:
        if peer not in self.links:
            self.links[peer] = TreeLink(peer, 0, LinkState.ADOPTED)
            self._open(self.links[peer])

    def _next_request(self) -> RequestKey:
        self._request_number += 1
        return RequestKey(self._host.node, self._request_number)
