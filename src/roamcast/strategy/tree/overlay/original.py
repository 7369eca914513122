"""MAODV as it was (3.2.3, A.1): the baseline.

Its faults are part of it and are not mended: nodes at the same distance answer each other (fig. 3.15),
nodes along an activated path open every link of it (fig. 3.13, with `member_forwarding`), a lost
activation leaves a partition without a leader (fig. 3.16, without `hello_workaround`). Links have no
numbers here (all are 0) and no agreement: an end opens a link when it sends or hears an activation. With the
option `repeat_activation` an activation is repeated until it is confirmed, as in the evolved protocol: for a
comparison in which only the rules differ.

A node is a *member* or not. With `membership = "all"` every node is, as section 4.1 has it for dispatchers.
With `"users"` those are whose applications subscribe or have published; others are *routers* while an
activated path leads over them, and prune themselves when they become leaves. A member that leaves stays a
router while it is no leaf. A router that finds no way back to the tree selects one of its descendants as
leader (GroupLeader flag) and prunes itself from all. Nodes that are on no tree pass group hellos on, as in
the draft, so that partitions find each other over them; they become routers of the merged tree.

Where the text leaves a choice, this follows the IETF draft of MAODV: of two partitions that hear each
other's group hellos, a member of the one with the lower leader asks its leader for permission, then asks
the other leader, and joins its own tree below the other. Left out of the draft: data of senders that are no
members (here they join), and expanding ring search for joins.
"""

from dataclasses import dataclass

from roamcast.host import Host, TimerName
from roamcast.strategy.tree.overlay.label import Label
from roamcast.strategy.tree.overlay.links import LinkState, TreeLink
from roamcast.strategy.tree.overlay.messages import Close, Confirm, Message, Probe
from roamcast.strategy.tree.overlay.original_messages import (
    HOPS_MAX,
    RECEIVERS_MAX,
    MaodvActivation,
    MaodvHello,
    MaodvReply,
    MaodvRequest,
)
from roamcast.strategy.tree.overlay.parameters import Membership, TreeOptions
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

    leader: NodeId  # of the other partition
    neighbour: NodeId  # in it, or on the way to it
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
        self.is_member = options.membership is Membership.ALL
        self._search: TreeSearch | None = None
        self._requested: RequestKey | None = None
        self._attempts = 0
        self._is_starting = False  # switched on a moment ago, and not looking for a tree yet
        self._joined = False  # whether this node is on the tree, as a member or as a router
        self.hops = HOPS_MAX  # a node that joins has the largest distance: any node of the tree may answer it
        self._request_number = host.random.getrandbits(32)
        self._reverses: AgingDict[RequestKey, Reverse] = AgingDict(self._too_many)
        self._forwards: AgingDict[tuple[RequestKey, NodeId], ForwardRoute] = AgingDict(self._too_many)
        # The group hellos received, by leader and sequence.
        self._hellos: AgingDict[tuple[NodeId, int], bool] = AgingDict(self._too_many)
        # On no tree: by leader, who passed its last hello on to us.
        self._hello_from: AgingDict[NodeId, NodeId] = AgingDict(self._too_many)
        self._merge: Merge | None = None
        self._granted_until: Micros = 0  # to prevent loops, one reconnection at a time

    # Inputs.

    def on_start(self) -> None:
        self._is_starting = True
        self._set_timer("join", self._some_of(JOIN_DELAY))

    def set_member(self, is_member: bool) -> None:
        if self._options.membership is Membership.ALL or is_member == self.is_member:
            return
        self.is_member = is_member
        if not is_member:
            self._prune_unless_needed()
        elif not self._joined and self._search is None and not self._is_starting:
            self._set_timer("join", 0)

    def leave(self) -> None:
        """The node stops: prune every link, so that its children repair at once. (In the draft only a leaf
        may leave; here a child without an upstream does the same as when a link breaks.)"""
        for peer in sorted(self.links):
            self._prune(peer)
        self._set_leader(False)
        self.parent = None

    def on_timer(self, name: TimerName) -> None:
        match name:
            case (_, "join"):
                self._is_starting = False
                if self.parent is None and not self.is_leader and self.is_member:
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
            case MaodvHello():
                self._on_hello(sender, message)
            case MaodvRequest() if message.repair:
                self._on_merge_request(sender, message)
            case MaodvRequest():
                self._on_request(sender, message)
            case MaodvReply() if message.repair:
                self._on_merge_reply(sender, message)
            case MaodvReply():
                self._on_reply(sender, message)
            case MaodvActivation():
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

    def _hello_message(self, update: bool) -> MaodvHello:
        receivers = tuple(sorted(self.links)[:RECEIVERS_MAX])
        return MaodvHello(self.label.leader, self.label.sequence, self.hops, update, receivers)

    def _on_hello(self, sender: NodeId, message: MaodvHello) -> None:
        if message.leader == self._host.node:
            return
        same = message.leader == self.label.leader
        yields = message.leader > self.label.leader
        if sender not in self.links:
            if not same and yields and self._joined and self.is_nearby(sender):
                self._begin_merge(message.leader, sender)
            elif not self._joined and not self.is_member and self.is_nearby(sender):
                self._pass_on(sender, message)
            return
        if not (message.sequence > self.label.sequence if same else message.update or yields):
            return
        heard = (message.leader, message.sequence)
        if self._hellos.find(heard) is not None:
            return  # relayed once: the updates of two leaders would circulate in a loop for ever
        self._hellos.put(heard, message.update, self._host.now())
        self._follow(sender, Label(message.sequence, message.leader, 0), message.hops_to_leader)
        self._courier.broadcast_soon(self._hello_message(message.update), own=False)

    def _pass_on(self, sender: NodeId, message: MaodvHello) -> None:
        """This node is on no tree, and may lie between two."""
        heard = (message.leader, message.sequence)
        hops = message.hops_to_leader + 1
        if self._hellos.find(heard) is None and hops < self._parameters().ttl_threshold:
            self._hellos.put(heard, message.update, self._host.now())
            self._hello_from.put(message.leader, sender, self._host.now())
            onward = MaodvHello(message.leader, message.sequence, hops, message.update, ())
            self._courier.broadcast_soon(onward, own=False)

    def _follow(self, upstream: NodeId, label: Label, hops: int) -> None:
        """Take a node as upstream that is `hops` from the leader."""
        self._set_leader(False)
        self._joined = True
        self.parent = upstream
        self.label = label
        self.hops = min(hops + 1, HOPS_MAX)
        parameters = self._parameters()
        self._set_timer(
            "silence",
            parameters.hello_interval * (parameters.allowed_hello_loss + 1) + parameters.hello_interval // 2,
        )

    def _lead(self) -> None:
        """No way into another tree was found, or this node was selected."""
        self._attempts = 0
        self._broken_at = None
        self.label = Label(0, self._host.node, 0)
        self.hops = 0
        self._joined = True
        self._set_leader(True)
        self._hello(update=True)

    # Joining, and repair after a link breakage.

    def _on_orphaned(self) -> None:
        self._broken_at = self._host.now()
        self._cancel_timer("silence")
        self._repair()

    def _repair(self) -> None:
        parameters = self._parameters()
        if self._attempts > parameters.request_retries or (self._nearby is not None and not self._nearby):
            if self.is_member:
                self._lead()
            else:
                self._select_leader()
            return
        request = self._requested = self._next_request()
        self._search = TreeSearch()
        reach = min(parameters.ttl_increment * (self._attempts + 1), parameters.ttl_threshold)
        self._attempts += 1
        self._courier.broadcast(self._request_message(request, reach, join=not self._joined), own=True)
        self._set_timer("search", parameters.discover_timeout)

    def _request_message(
        self, request: RequestKey, reach: int, *, join: bool = False, repair: bool = False, target: NodeId = 0
    ) -> MaodvRequest:
        label = self.label
        return MaodvRequest(*request, label.sequence, label.leader, self.hops, 0, reach, join, repair, target)

    def _on_request(self, sender: NodeId, message: MaodvRequest) -> None:
        """A.1, procedure 3. Members pass a request on only if `member_forwarding` says so, others always."""
        request = RequestKey(message.requester, message.number)
        known = self._reverses.find(request)
        if message.requester == self._host.node or known is not None or not self.is_nearby(sender):
            return
        asked = Label(message.sequence, message.leader, 0)
        self._reverses.put(request, Reverse(asked, free=sender), self._host.now())
        fresh = self._joined and self.label.sequence >= message.sequence
        if fresh and self.hops <= message.hops_to_leader:
            label = self.label
            reply = MaodvReply(
                *request, self._host.node, label.sequence, label.leader, self.hops, message.join, False
            )
            self._courier.hop(sender, reply, own=False)
        elif (not self.is_member or self._options.member_forwarding) and message.time_to_live > 1:
            self._courier.broadcast_soon(_onward(message), own=False)

    def _on_reply(self, sender: NodeId, message: MaodvReply) -> None:
        request = RequestKey(message.requester, message.number)
        label = Label(message.sequence, message.leader, 0)
        hops = min(message.hops_to_leader + 1, HOPS_MAX)
        forward = ForwardRoute(sender, label, hops, True, False, 0, "")
        self._forwards.put((request, message.responder), forward, self._host.now())
        if request.requester == self._host.node:
            self._collect(request, message, label, hops)
            return
        reverse = self._reverses.find(request)
        if reverse is None or reverse.free is None:
            self._drop(message, "answers no request of ours")
            return
        relayed = MaodvReply(
            *request, message.responder, message.sequence, message.leader, hops, message.join, False
        )
        self._courier.hop(reverse.free, relayed, own=False)

    def _collect(self, request: RequestKey, message: MaodvReply, label: Label, hops: int) -> None:
        search = self._search
        if search is None or self._requested != request:
            self._drop(message, "comes too late")
            return
        if not search.replies:
            self._on_first_reply()
            if self._options.reply_wait is not None:
                self._set_timer("search", micros(self._options.reply_wait))
        search.replies.append(Reply(request, message.responder, label, hops, yields=False))

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
        join = not self._joined
        self._enable(forward.via)
        self._follow(forward.via, best.label, max(best.hops - 1, 0))
        self._activate(best.request, best.responder, forward.via, join=join, own=True)

    # Activation, pruning, the selection of a leader.

    def _activate(self, request: RequestKey, responder: NodeId, to: NodeId, *, join: bool, own: bool) -> None:
        message = MaodvActivation(*request, responder, join)
        if self._options.repeat_activation:
            self._courier.agree(to, 0, message, own=own)
        else:
            self._courier.once(to, message, own=own)

    def _on_activation(self, sender: NodeId, message: MaodvActivation) -> None:
        if message.prune:
            self._lose(sender, tell=False)
        elif message.leader:
            self._on_selected(sender)
        else:
            self._on_activated(sender, message)

    def _on_activated(self, sender: NodeId, message: MaodvActivation) -> None:
        """A.1, procedure 5: both links of the path at this node are enabled, even if they close a cycle."""
        if self._options.repeat_activation:
            self._courier.once(sender, Confirm(0, 0), own=False)
        known = sender in self.links
        self._enable(sender)
        if message.responder == self._host.node:
            return
        request = RequestKey(message.requester, message.number)
        forward = self._forwards.find((request, message.responder))
        if forward is None or forward.via == sender or (known and forward.via in self.links):
            return
        self._enable(forward.via)
        if not self._joined:  # this node becomes a router
            self._follow(forward.via, forward.label, max(forward.hops - 1, 0))
        self._activate(request, message.responder, forward.via, join=message.join, own=False)

    def _lose(self, peer: NodeId, *, tell: bool) -> None:
        super()._lose(peer, tell=tell)
        self._prune_unless_needed()

    def _prune(self, peer: NodeId) -> None:
        """Leave a tree neighbour with a word."""
        request = self._next_request()
        self._courier.once(peer, MaodvActivation(*request, peer, join=False, prune=True), own=True)
        self._take_out(peer)

    def _take_out(self, peer: NodeId) -> None:
        """The link ends in good order: nothing is repaired."""
        link = self.links.pop(peer)
        self._courier.agreed(peer, 0)
        if link.state is LinkState.OPEN:
            self._trace("link_down", peer, role="downstream" if peer == self.parent else "upstream")
            self._listener.on_link_down(peer)

    def _prune_unless_needed(self) -> None:
        """A node that is no member stays on the tree only as long as others need it there."""
        if self.is_member or not self._joined or self._search is not None:
            return
        if self.is_leader:
            self._select_leader()
        elif not self.links or set(self.links) == {self.parent}:
            if self.parent in self.links and self.parent is not None:
                self._prune(self.parent)
            self._forget_tree()

    def _select_leader(self) -> None:
        """3.2.3: one descendant is to become the leader, and this node prunes itself from all others."""
        self._set_leader(False)
        selected, *others = [*sorted(self.links), None]
        if selected is not None:
            request = self._next_request()
            chosen = MaodvActivation(*request, selected, join=False, leader=True)
            self._courier.hop(selected, chosen, own=True)
            self._take_out(selected)
        for peer in others:
            if peer is not None:
                self._prune(peer)
        self._forget_tree()

    def _on_selected(self, sender: NodeId) -> None:
        """The upstream gives this side of the tree up: it gets a leader of its own."""
        if sender not in self.links:
            return
        self._take_out(sender)
        if sender == self.parent:
            self.parent = None
            self._cancel_timer("silence")
            if self.is_member:
                self._lead()
            else:
                self._select_leader()

    def _forget_tree(self) -> None:
        """This node is on no tree."""
        self.parent = None
        self._joined = False
        self._attempts = 0
        self._broken_at = None
        self.label = Label(0, self._host.node, 0)
        self.hops = HOPS_MAX
        for name in ("silence", "hello", "update", "search"):
            self._cancel_timer(name)
        self._search = None

    # Partition merging (3.2.3).

    def _begin_merge(self, leader: NodeId, neighbour: NodeId) -> None:
        now = self._host.now()
        if self._merge is not None and now < self._merge.until:
            return
        request = self._next_request()
        self._merge = Merge(leader, neighbour, request, now + 2 * self._parameters().discover_timeout)
        if self.is_leader:
            if now >= self._granted_until:
                self._granted_until = self._merge.until
                self._ask_other_leader(self._merge)
        elif self.parent is not None:
            message = self._request_message(request, HOPS_MAX, repair=True, target=self.label.leader)
            self._courier.hop(self.parent, message, own=True)

    def _ask_other_leader(self, merge: Merge) -> None:
        merge.request = self._next_request()
        message = self._request_message(merge.request, HOPS_MAX, repair=True, target=merge.leader)
        self._courier.hop(merge.neighbour, message, own=True)

    def _on_merge_request(self, sender: NodeId, message: MaodvRequest) -> None:
        request = RequestKey(message.requester, message.number)
        if message.requester == self._host.node or self._reverses.find(request) is not None:
            return
        asked = Label(message.sequence, message.leader, 0)
        self._reverses.put(request, Reverse(asked, limited=sender), self._host.now())
        if not self.is_leader:
            onward = self.parent if self._joined else self._hello_from.find(message.target)
            if onward is not None and message.time_to_live > 1:
                self._courier.hop(onward, _onward(message), own=False)
            return
        ours = message.leader == self._host.node
        if ours:
            if self._host.now() < self._granted_until:
                return
            self._granted_until = self._host.now() + 2 * self._parameters().discover_timeout
        else:
            sequence = max(self.label.sequence, message.sequence)
            self.label = Label(sequence, self._host.node, 0)
            self._set_timer("update", UPDATE_DELAY)
        label = self.label
        reply = MaodvReply(
            *request, self._host.node, label.sequence, label.leader, 0, False, True, grant=ours
        )
        self._courier.hop(sender, reply, own=False)

    def _on_merge_reply(self, sender: NodeId, message: MaodvReply) -> None:
        request = RequestKey(message.requester, message.number)
        hops = min(message.hops_to_leader + 1, HOPS_MAX)
        label = Label(message.sequence, message.leader, 0)
        if not self._joined:  # an activation by this way would make this node a router
            forward = ForwardRoute(sender, label, hops, True, False, 0, "")
            self._forwards.put((request, message.responder), forward, self._host.now())
        if message.requester != self._host.node:
            reverse = self._reverses.find(request)
            if reverse is None or reverse.limited is None:
                self._drop(message, "answers no request of ours")
                return
            relayed = MaodvReply(
                *request,
                message.responder,
                message.sequence,
                message.leader,
                hops,
                message.join,
                True,
                message.grant,
            )
            self._courier.hop(reverse.limited, relayed, own=False)
            return
        merge = self._merge
        if merge is None or merge.request != request or not self.is_nearby(merge.neighbour):
            self._drop(message, "comes too late")
        elif message.grant:
            self._ask_other_leader(merge)
        elif message.leader != self.label.leader:
            self._merge = None
            self._enable(merge.neighbour)
            self._activate(request, message.responder, merge.neighbour, join=False, own=True)
            self._follow(merge.neighbour, label, max(hops - 1, 0))
            self._courier.broadcast(self._hello_message(update=True), own=True)

    # Helpers.

    def _enable(self, peer: NodeId) -> None:
        if peer not in self.links:
            self.links[peer] = TreeLink(peer, 0, LinkState.ADOPTED)
            self._open(self.links[peer])

    def _next_request(self) -> RequestKey:
        self._request_number += 1
        return RequestKey(self._host.node, self._request_number)


def _onward(message: MaodvRequest) -> MaodvRequest:
    """The request as the next node sends it."""
    return MaodvRequest(
        message.requester,
        message.number,
        message.sequence,
        message.leader,
        message.hops_to_leader,
        min(message.hops + 1, HOPS_MAX),
        message.time_to_live - 1,
        message.join,
        message.repair,
        message.target,
    )
