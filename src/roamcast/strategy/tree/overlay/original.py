"""MAODV as it was (3.2.3, A.1): the baseline.

Its faults are part of it and are not mended: nodes at the same distance answer each other (fig. 3.15),
nodes along an activated path open every link of it (fig. 3.13, with `member_forwarding`), a lost
activation leaves a partition without a leader (fig. 3.16, without `hello_workaround`). Links have no
numbers here (all are 0) and no agreement: an end opens a link when it sends or hears an activation. With the
option `repeat_activation` an activation is repeated until it is confirmed, as in the evolved protocol: for a
comparison in which only the rules differ.

A node is a *member* or not. With `membership = "all"` every node is, as section 4.1 has it for dispatchers.
With `"users"` those are whose applications subscribe or have published; others are *routers* while an
activated path leads over them, and prune themselves when they become leaves. Only members answer who joins
(Function 1). A member that leaves stays a router while it is no leaf. A router that finds no way back to the
tree selects one of its descendants as leader (GroupLeader flag) and prunes itself from all. Nodes that are on
no tree pass group hellos on, as in the draft, so that partitions find each other over them; they become
routers of the merged tree.

Where the text leaves a choice, this follows the IETF draft of MAODV: of two partitions that hear each
other's group hellos, a member of the one with the lower leader asks its leader for permission, then asks
the other leader, and joins its own tree below the other. Left out of the draft: data of senders that are no
members (here they join), and expanding ring search for joins.
"""

from dataclasses import dataclass

import msgspec

from roamcast.kit.protocol import Timer
from roamcast.strategy.tree.overlay.messages import (
    HOPS_MAX,
    LINKS_MAX,
    Close,
    Confirm,
    Label,
    MaodvActivation,
    MaodvHello,
    MaodvReply,
    MaodvRequest,
    Probe,
    RequestKey,
)
from roamcast.strategy.tree.overlay.multicast_table import (
    AgingDict,
    ForwardRoute,
    LinkState,
    OverlayContext,
    Reply,
    TreeLink,
    TreeProtocol,
    best_reply,
)
from roamcast.units import MILLISECOND, Micros, NodeId, micros

# Chosen by us.
UPDATE_DELAY: Micros = 200 * MILLISECOND  # from a leader's reply to its hello over the new link


@dataclass(slots=True)
class Merge:
    """A merge of two partitions that this node carries out."""

    leader: NodeId  # of the other partition
    neighbour: NodeId  # in it, or on the way to it
    request: RequestKey
    until: Micros


class Original(TreeProtocol):
    def __init__(self, context: OverlayContext) -> None:
        super().__init__(context)
        host = self.host
        self._replies: list[Reply] | None = None  # None: no decision about replies is due
        self._requested: RequestKey | None = None
        self._attempts = 0
        self._joined = False  # whether this node is on the tree, as a member or as a router
        # A node that joins has the largest distance: any node of the tree may answer it.
        self.table.hops = HOPS_MAX
        self._request_number = host.random.getrandbits(32)
        self._reverses: AgingDict[RequestKey, NodeId] = AgingDict(host)
        self._forwards: AgingDict[tuple[RequestKey, NodeId], ForwardRoute] = AgingDict(host)
        # The group hellos received, by leader and sequence.
        self._hellos: AgingDict[tuple[NodeId, int], bool] = AgingDict(host)
        # On no tree: by leader, who passed its last hello on to us.
        self._hello_from: AgingDict[NodeId, NodeId] = AgingDict(host)
        self._merge: Merge | None = None
        self._granted_until: Micros = 0  # to prevent loops, one reconnection at a time
        self._hello_timer = Timer(host, lambda: self._send_grph(update=False))
        self._update_timer = Timer(host, lambda: self._send_grph(update=True))
        self._decision_timer = Timer(host, self._activate_replies)
        self._silence_timer = Timer(host, self._on_silence)
        self.handlers = {
            MaodvHello: self._receive_grph,
            MaodvRequest: self._receive_rreq,
            MaodvReply: self._receive_rrep,
            MaodvActivation: self._receive_mact,
            Close: lambda sender, _: self.lose(sender, tell=False),
            Probe: self.table.on_probe,
            Confirm: lambda sender, _: self.courier.agreed(sender, 0),
        }

    # Inputs.

    def join(self) -> None:
        if self.table.parent is None and not self.table.is_leader and self._replies is None:
            self._generate_rreq()

    def _on_silence(self) -> None:
        if self.table.parent is not None:
            self.lose(self.table.parent, tell=True)

    # Group hellos.

    def _send_grph(self, *, update: bool) -> None:
        if not self.table.is_leader:
            return
        self._hello_timer.after(self.table.parameters().hello_interval)
        self.table.label = Label(self.table.label.sequence + 1, self.node, 0)
        self.messenger.send(self._hello_message(update))

    def _hello_message(self, update: bool) -> MaodvHello:
        table = self.table
        receivers = tuple(sorted(table.links)[:LINKS_MAX])
        return MaodvHello(table.label.leader, table.label.sequence, table.hops, update, receivers)

    def _receive_grph(self, sender: NodeId, message: MaodvHello) -> None:
        if message.leader == self.node:
            return
        same = message.leader == self.table.label.leader
        yields = message.leader > self.table.label.leader
        if sender not in self.table.links:
            if not same and yields and self._joined and self.is_nearby(sender):
                self._begin_merge(message.leader, sender)
            elif not self._joined and not self.is_member and self.is_nearby(sender):
                self._pass_on(sender, message)
            return
        if not (message.sequence > self.table.label.sequence if same else message.update or yields):
            return
        heard = (message.leader, message.sequence)
        if self._hellos.find(heard) is not None:
            return  # relayed once: the updates of two leaders would circulate in a loop for ever
        self._hellos.put(heard, message.update)
        self._follow(sender, Label(message.sequence, message.leader, 0), message.hops_to_leader)
        self.courier.broadcast_soon(self._hello_message(message.update))

    def _pass_on(self, sender: NodeId, message: MaodvHello) -> None:
        """This node is on no tree, and may lie between two."""
        heard = (message.leader, message.sequence)
        hops = message.hops_to_leader + 1
        if self._hellos.find(heard) is None and hops < self.table.parameters().ttl_threshold:
            self._hellos.put(heard, message.update)
            self._hello_from.put(message.leader, sender)
            onward = msgspec.structs.replace(message, hops_to_leader=hops, receivers=())
            self.courier.broadcast_soon(onward)

    def _follow(self, upstream: NodeId, label: Label, hops: int) -> None:
        """Take a node as upstream that is `hops` from the leader."""
        self.table.set_leader(False)
        self._joined = True
        self.table.parent = upstream
        self.table.label = label
        self.table.hops = min(hops + 1, HOPS_MAX)
        if self.options.hello_workaround:
            parameters = self.table.parameters()
            missed = parameters.allowed_hello_loss + 1
            self._silence_timer.after(parameters.hello_interval * missed + parameters.hello_interval // 2)

    def _lead(self) -> None:
        """No way into another tree was found, or this node was selected. Only members lead."""
        if not self.is_member:
            self._select_leader()
            return
        self._attempts = 0
        self.table.broken_at = None
        self.table.label = Label(0, self.node, 0)
        self.table.hops = 0
        self._joined = True
        self.table.set_leader(True)
        self._send_grph(update=True)

    # Joining, and repair after a link breakage.

    def on_orphaned(self) -> None:
        self.table.broken_at = self.host.now()
        self._silence_timer.cancel()
        self._generate_rreq()

    def _generate_rreq(self) -> None:
        """A.1, procedure 1."""
        parameters = self.table.parameters()
        if self._attempts >= parameters.request_retries or self.is_alone:
            self._lead()
            return
        request = self._requested = self._next_request()
        self._replies = []
        reach = min(parameters.ttl_increment * (self._attempts + 1), parameters.ttl_threshold)
        self._attempts += 1
        self.messenger.send(self._request_message(request, reach, join=not self._joined))
        self._decision_timer.after(parameters.discover_timeout)

    def _request_message(
        self, request: RequestKey, reach: int, *, join: bool = False, repair: bool = False, target: NodeId = 0
    ) -> MaodvRequest:
        label, hops = self.table.label, self.table.hops
        return MaodvRequest(*request, label.sequence, label.leader, hops, 0, reach, join, repair, target)

    def _receive_rreq(self, sender: NodeId, message: MaodvRequest) -> None:
        """A.1, procedure 3, with Function 1. Who is on no tree passes a request on; of the nodes on the tree,
        members and routers, those of Dortmund's code do (`member_forwarding`), those of Carleton's do not."""
        known = self._reverses.find(message.request)
        is_far = not message.repair and not self.is_nearby(sender)
        if message.requester == self.node or known is not None or is_far:
            return
        self._reverses.put(message.request, sender)
        fresh = self._joined and self.table.label.sequence >= message.sequence
        near = self.table.hops <= message.hops_to_leader
        if message.repair:
            self._on_merge_request(sender, message)
        elif fresh and near and (self.is_member or not message.join):
            self._reply(sender, message)
        elif (not self._joined or self.options.member_forwarding) and message.time_to_live > 1:
            self.courier.broadcast_soon(_onward(message))

    def _reply(self, to: NodeId, message: MaodvRequest, *, grant: bool = False) -> None:
        label, flags = self.table.label, (message.join, message.repair, grant)
        answer = self.node, label.sequence, label.leader, self.table.hops
        self.courier.hop(to, MaodvReply(*message.request, *answer, *flags))

    def _receive_rrep(self, sender: NodeId, message: MaodvReply) -> None:
        """A.1, procedure 4."""
        label = Label(message.sequence, message.leader, 0)
        hops = min(message.hops_to_leader + 1, HOPS_MAX)
        if not message.repair or not self._joined:  # an activation of a merge would make this node a router
            forward = ForwardRoute(sender, label, hops)
            self._forwards.put((message.request, message.responder), forward)
        if message.requester == self.node:
            if message.repair:
                self._on_merge_reply(message, label, hops)
            else:
                self._collect_reply(message, label, hops)
            return
        way = self._reverses.find(message.request)
        if way is None:
            self.table.drop(message, "answers no request of ours")
            return
        self.courier.hop(way, msgspec.structs.replace(message, hops_to_leader=hops))

    def _collect_reply(self, message: MaodvReply, label: Label, hops: int) -> None:
        if self._replies is None or self._requested != message.request:
            self.table.drop(message, "comes too late")
            return
        if not self._replies:
            self.table.on_first_reply()
            if self.options.reply_wait is not None:
                self._decision_timer.after(micros(self.options.reply_wait))
        self._replies.append(Reply(message.request, message.responder, label, hops))

    def _activate_replies(self) -> None:
        """A.1, procedure 2."""
        replies, self._replies = self._replies, None
        if replies is None or self.table.parent is not None:
            return
        best = best_reply(replies, self.table.parameters().group_sequence_tolerance)
        forward = None if best is None else self._forwards.find((best.request, best.responder))
        if best is None or forward is None or not self.is_nearby(forward.via):
            self._generate_rreq()
            return
        self._attempts = 0
        join = not self._joined
        self._enable(forward.via)
        self._follow(forward.via, best.label, max(best.hops - 1, 0))
        self._activate(best.request, best.responder, forward.via, join=join, own=True)

    # Activation, pruning, the selection of a leader.

    def _activate(self, request: RequestKey, responder: NodeId, to: NodeId, *, join: bool, own: bool) -> None:
        message = MaodvActivation(*request, responder, join)
        if self.options.repeat_activation:
            self.courier.agree(to, 0, message, own=own)
        else:
            self.messenger.send(message, to, own=own)

    def _receive_mact(self, sender: NodeId, message: MaodvActivation) -> None:
        if message.prune:
            self.lose(sender, tell=False)
        elif message.leader:
            self._on_selected(sender)
        else:
            self._on_activated(sender, message)

    def _on_activated(self, sender: NodeId, message: MaodvActivation) -> None:
        """A.1, procedure 5: both links of the path at this node are enabled, even if they close a cycle."""
        if self.options.repeat_activation:
            self.messenger.send(Confirm(0, 0), sender, own=False)
        known = sender in self.table.links
        self._enable(sender)
        if message.responder == self.node:
            return
        forward = self._forwards.find((message.request, message.responder))
        if forward is None or forward.via == sender or (known and forward.via in self.table.links):
            return
        self._enable(forward.via)
        if not self._joined:  # this node becomes a router
            self._follow(forward.via, forward.label, max(forward.hops - 1, 0))
        self._activate(message.request, message.responder, forward.via, join=message.join, own=False)

    def lose(self, peer: NodeId, *, tell: bool) -> None:
        super().lose(peer, tell=tell)
        self.prune_unless_needed()

    def prune(self, peer: NodeId) -> None:
        """Leave a tree neighbour, and tell it."""
        self.messenger.send(MaodvActivation(*self._next_request(), peer, join=False, prune=True), peer)
        self.take_out(peer)

    def prune_unless_needed(self) -> None:
        if self.is_member or not self._joined or self._replies is not None:
            return
        if self.table.is_leader:
            self._select_leader()
        elif not self.table.links or set(self.table.links) == {self.table.parent}:
            for peer in list(self.table.links):
                self.prune(peer)
            self._forget_tree()

    def _select_leader(self) -> None:
        """3.2.3: one descendant is to become the leader, and this node prunes itself from all others."""
        self.table.set_leader(False)
        peers = sorted(self.table.links)
        if peers:
            chosen = MaodvActivation(*self._next_request(), peers[0], join=False, leader=True)
            self.courier.hop(peers[0], chosen, own=True)
            self.take_out(peers[0])
        for peer in peers[1:]:
            self.prune(peer)
        self._forget_tree()

    def _on_selected(self, sender: NodeId) -> None:
        """The upstream gives this side of the tree up: it gets a leader of its own."""
        if sender not in self.table.links:
            return
        self.take_out(sender)
        if sender == self.table.parent:
            self.table.parent = None
            self._silence_timer.cancel()
            self._lead()

    def _forget_tree(self) -> None:
        """This node is on no tree."""
        self.table.parent = None
        self._joined = False
        self._attempts = 0
        self.table.broken_at = None
        self.table.label = Label(0, self.node, 0)
        self.table.hops = HOPS_MAX
        for timer in (self._silence_timer, self._hello_timer, self._update_timer, self._decision_timer):
            timer.cancel()
        self._replies = None

    # Partition merging (3.2.3).

    def _begin_merge(self, leader: NodeId, neighbour: NodeId) -> None:
        now = self.host.now()
        if self._merge is not None and now < self._merge.until:
            return
        request = self._next_request()
        self._merge = Merge(leader, neighbour, request, now + 2 * self.table.parameters().discover_timeout)
        if self.table.is_leader:
            if now >= self._granted_until:
                self._granted_until = self._merge.until
                self._ask_other_leader(self._merge)
        elif self.table.parent is not None:
            message = self._request_message(request, HOPS_MAX, repair=True, target=self.table.label.leader)
            self.courier.hop(self.table.parent, message, own=True)

    def _ask_other_leader(self, merge: Merge) -> None:
        merge.request = self._next_request()
        message = self._request_message(merge.request, HOPS_MAX, repair=True, target=merge.leader)
        self.courier.hop(merge.neighbour, message, own=True)

    def _on_merge_request(self, sender: NodeId, message: MaodvRequest) -> None:
        if not self.table.is_leader:
            onward = self.table.parent if self._joined else self._hello_from.find(message.target)
            if onward is not None and message.time_to_live > 1:
                self.courier.hop(onward, _onward(message))
            return
        ours = message.leader == self.node
        if ours:
            if self.host.now() < self._granted_until:
                return
            self._granted_until = self.host.now() + 2 * self.table.parameters().discover_timeout
        else:
            sequence = max(self.table.label.sequence, message.sequence)
            self.table.label = Label(sequence, self.node, 0)
            self._update_timer.after(UPDATE_DELAY)
        self._reply(sender, message, grant=ours)

    def _on_merge_reply(self, message: MaodvReply, label: Label, hops: int) -> None:
        merge = self._merge
        if merge is None or merge.request != message.request or not self.is_nearby(merge.neighbour):
            self.table.drop(message, "comes too late")
        elif message.grant:
            self._ask_other_leader(merge)
        elif message.leader != self.table.label.leader:
            self._merge = None
            self._enable(merge.neighbour)
            self._activate(message.request, message.responder, merge.neighbour, join=False, own=True)
            self._follow(merge.neighbour, label, max(hops - 1, 0))
            self.messenger.send(self._hello_message(update=True))

    # Helpers.

    def _enable(self, peer: NodeId) -> None:
        if peer not in self.table.links:
            self.table.open(TreeLink(peer, 0, LinkState.OPEN))

    def _next_request(self) -> RequestKey:
        self._request_number += 1
        return RequestKey(self.node, self._request_number)


def _onward(message: MaodvRequest) -> MaodvRequest:
    """The request as the next node sends it."""
    hops = min(message.hops + 1, HOPS_MAX)
    return msgspec.structs.replace(message, hops=hops, time_to_live=message.time_to_live - 1)
