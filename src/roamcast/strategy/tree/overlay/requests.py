"""Looking for a way into another tree: requests (RREQ), and the replies to them (RREP; 4.2, 4.4, A.2).

Requests spread by Rule 1: over the requester's tree, one hop out of it (the *jump*), then upwards in the
other tree. Nodes nearer to the leader answer, and the reply comes back the same way (R1, R4, R8, R9, R10,
R13). What is done with the replies is in `evolved.py`.
"""

from typing import TYPE_CHECKING

import msgspec

from roamcast.kit.protocol import Timer, random_below
from roamcast.strategy.tree.overlay.messages import (
    HOPS_MAX,
    RANKS_PER_HOP,
    Purpose,
    ReplyStage,
    RequestKey,
    RouteReply,
    RouteRequest,
)
from roamcast.strategy.tree.overlay.multicast_table import AgingDict, ForwardRoute, LinkState, Reply, Reverse
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

if TYPE_CHECKING:  # it imports this module
    from roamcast.strategy.tree.overlay.evolved import Evolved

# Chosen by us.
MERGE_DELAY: Micros = 200 * MILLISECOND  # at most, at random; before a leader asks for other partitions
SEARCHES_WELCOME = 4  # of a leader's earlier searches, so many may still be answered
YIELD_MAX: Micros = 10 * SECOND  # waiting for the activation by the tree that a leader yielded to
ANSWERS_MAX = 4  # further answers to copies of one request that came by other paths
# R13: in a dense network a repair then takes 25 control frames, not 40 (docs/protocols/tree.md).
CROWD = 8  # with so many nodes in range the first request goes one hop only
CROWD_TIMEOUT: Micros = 200 * MILLISECOND  # wait for replies to that request


class Search:
    """Requests of this node and of others, and the replies to both."""

    def __init__(self, tree: "Evolved") -> None:
        host = tree.host
        self._tree = tree
        self._table = tree.table
        self._host = host
        self._replies: list[Reply] | None = None  # None: no decision about replies is due
        self._attempts = 0  # requests since the upstream was lost
        self._purpose = Purpose.REPAIR  # of these requests: or to join
        self._has_asked_around = False  # by the one-hop request that precedes those in a crowd (R13)
        # Replies to requests before this number are dropped (R9). None: all replies are.
        self._welcome_from: int | None = None
        self._request_number = host.random.getrandbits(32)
        self.yielded_to: RequestKey | None = None  # whose activation we wait for, as the root of our tree
        self.yields_in_vain = 0  # in a row
        self.forwards: AgingDict[tuple[RequestKey, NodeId], ForwardRoute] = AgingDict(host)
        self.reverses: AgingDict[RequestKey, Reverse] = AgingDict(host)
        # The root passes a node once per request, and once per activation (R10).
        self._root_passed: AgingDict[tuple[RequestKey, NodeId | None], bool] = AgingDict(host)
        # R14: the last request or reply of a node that is not nearby yet, and when it came.
        self._early: AgingDict[NodeId, tuple[Micros, RouteRequest | RouteReply]] = AgingDict(host)
        self._decision_timer = Timer(host, tree.activate_replies)
        self._reconnect_timer = Timer(host, self._reconnect)
        self._yielded_timer = Timer(host, self._on_not_activated)

    # The search of this node.

    def repair(self) -> None:
        """Ask for an upstream, or give up after REQUEST_RETRIES requests and lead the partition."""
        tree = self._tree
        if tree.is_alone or self._attempts >= self._table.parameters().request_retries:
            self.on_found()
            tree.leader.elect()
        elif tree.options.additions and self._is_first_attempt() and len(tree.nearby or ()) >= CROWD:
            # R13: in a crowd a neighbour can usually answer; with a larger reach all of them would relay it.
            self.generate_rreq(self._purpose, around=True)
            self._has_asked_around = True
        else:
            self.generate_rreq(self._purpose)
            self._attempts += 1

    def join(self) -> None:
        """This node has become a member and is on no tree."""
        self._purpose = Purpose.JOIN
        self.repair()

    def reconnect_soon(self, after: Micros = 0) -> None:
        """A leader looks for other partitions (4.4). Delayed at random, so that the request collides neither
        with a hello nor with those of other leaders."""
        if self._table.is_leader and self._replies is None:
            self._reconnect_timer.after(after + random_below(self._host, MERGE_DELAY))

    def _reconnect(self) -> None:
        if self._table.is_leader and self._replies is None:
            self.generate_rreq(Purpose.RECONNECT)

    def on_found(self) -> None:
        """There is an upstream, or there is none to be found: the next search begins anew."""
        self._attempts = 0
        self._has_asked_around = False
        self._purpose = Purpose.REPAIR

    @property
    def is_asking(self) -> bool:
        return self._replies is not None

    def take_replies(self) -> list[Reply]:
        """The time for replies is over."""
        replies = self._replies or []
        self.stop()
        return replies

    def stop(self) -> None:
        self._replies = None
        self.yielded_to = None
        self._decision_timer.cancel()
        self._reconnect_timer.cancel()

    def close(self) -> None:
        """Replies that still come are of no use."""
        self.stop()
        self._welcome_from = None

    def _is_first_attempt(self) -> bool:
        return self._attempts == 0 and not self._has_asked_around

    def generate_rreq(self, purpose: Purpose, *, around: bool = False) -> None:
        """A.2, procedure 6."""
        reconnect = purpose is Purpose.RECONNECT
        if self._tree.is_alone:
            return
        parameters = self._table.parameters()
        self._request_number += 1
        self._replies = []
        # R9. A leader may ask again so soon that all replies come late for ever; without links (R14) it does.
        if self._welcome_from is None or (not reconnect and self._is_first_attempt()):
            self._welcome_from = self._request_number
        elif reconnect and self._table.links:
            self._welcome_from = max(self._welcome_from, self._request_number - SEARCHES_WELCOME)
        # R8: the search for other partitions reaches as far as the tree does, or two deep trees that
        # touch at their leaves would never meet.
        reach = HOPS_MAX
        if not reconnect:
            reach = min(parameters.ttl_increment * (self._attempts + 1), parameters.ttl_threshold)
        timeout = parameters.discover_timeout
        if around:
            reach, timeout = 1, min(timeout, CROWD_TIMEOUT)
        standing = self._table.standing()
        message = RouteRequest(self._tree.node, self._request_number, standing, reach, 0, False, purpose)
        self._tree.messenger.send(message)
        self._decision_timer.after(timeout)

    # Requests of others.

    def receive_rreq(self, sender: NodeId, message: RouteRequest) -> None:
        """A.2, procedures 7 and 9, the second by Rule 1: as printed it does nothing with a request that comes
        over a tree link and has not left its tree. Such a request comes from our own root, so it is passed on
        and never answered."""
        table = self._table
        if message.requester == self._tree.node:
            return
        if not self._tree.is_nearby(sender):
            self._keep_early(sender, message)
            return
        if not self._tree.is_on_tree:
            # A.2, procedure 9, last branch: there is no entry for the group here.
            if not message.limited and self.reverses.find(message.request) is None:
                self._pass_on(sender, message)
            return
        link = table.links.get(sender)
        above = sender == table.parent and message.standing.label.better_than(table.label)
        if link is not None and sender == message.requester and not above:
            # R7: a requester is a root, so a child of ours cannot be one, and an upstream has a better label
            # than we. Otherwise it has rebooted or left us, or the request is old: ask.
            table.probe(link)
        known = self.reverses.find(message.request)
        if message.limited or link is None:  # Rule 1: it left its tree on this hop or before
            if message.reconnect and message.requester == table.label.leader:
                return  # what comes from outside leads only back to our leader
            if known is None:
                self.reverses.put(message.request, Reverse(message.standing.label, limited=sender))
                self._answer_or_climb(sender, message)
                return
            again = known.limited not in (None, sender) and known.answers < ANSWERS_MAX
            # The same request by another path. A leader's search is answered again, so that the requester
            # chooses (white-box case 5); of the others the work drops every copy, as AODV does (4.2).
            again = again and (message.reconnect or self._tree.options.additions)
            if again and self._may_answer(message):
                known.answers += 1
                self._reply_down(message.request, sender, self._tree.node, table.hops)
        # Known requests are dropped, except from the upstream: an earlier copy may have come by another path.
        elif known is None or (known.free is None and sender == table.parent):
            self._pass_on(sender, message, known.limited if known else None)

    def _pass_on(self, sender: NodeId, message: RouteRequest, limited: NodeId | None = None) -> None:
        """Pass the request on to all in range."""
        self.reverses.put(message.request, Reverse(message.standing.label, sender, limited))
        if message.time_to_live > 1:
            self._tree.courier.broadcast_soon(forwarded(message, limited=False))

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        came, message = self._early.find(neighbour) or (0, None)
        if message is not None and self._host.now() - came < self._table.parameters().discover_timeout:
            self._tree.handlers[type(message)](neighbour, message)

    def _keep_early(self, sender: NodeId, message: RouteRequest | RouteReply) -> None:
        """R14: of two nodes that meet one knows it first, and what it says comes before the other does. Only
        with `prompt`, where the missing beacon comes at once: otherwise it is late, and an answer as well."""
        options = self._tree.options
        if options.additions and options.preset == "prompt":
            self._early.put(sender, (self._host.now(), message))

    def _may_answer(self, message: RouteRequest) -> bool:
        """R1, the strictly-less rule of section 4.3. A leader's search is answered by roots (4.4), one who
        joins by members (A.2, procedure 7: Member = JoinFlag, or no JoinFlag)."""
        if not self._table.label.better_than(message.standing.label):
            return False
        match message.purpose:
            case Purpose.REPAIR:
                return True
            case Purpose.RECONNECT:
                return self._table.parent is None
            case Purpose.JOIN:
                return self._tree.is_member

    def _answer_or_climb(self, sender: NodeId, message: RouteRequest) -> None:
        table = self._table
        if self._may_answer(message):
            self._reply_down(message.request, sender, self._tree.node, table.hops)
        elif table.parent is not None:
            if message.time_to_live > 1:
                self._tree.courier.hop(table.parent, forwarded(message, limited=True))
        elif message.reconnect and self.yielded_to is None:
            # Section 4.4: the leader of the other partition steps down.
            self._yield_down(message.request, sender, self._tree.node, 0)

    # Replies.

    def _reply_down(self, request: RequestKey, to: NodeId, responder: NodeId, hops: int) -> None:
        """Offer a place below us: along our tree, or, at the jump, as an offer to the node there."""
        link, standing = self._table.links.get(to), self._table.standing()
        if link is not None:
            message = RouteReply(
                *request, responder, standing, hops, ReplyStage.FAR, False, link.number, link.turn
            )
        else:
            message = RouteReply(
                *request,
                self._tree.node,
                standing,
                hops,
                ReplyStage.JUMP,
                False,
                self._tree.offer(to),
                0,
                self._tree.url,
            )
        self._tree.courier.hop(to, message)

    def _yield_down(self, request: RequestKey, to: NodeId, responder: NodeId, hops: int) -> None:
        """Step down: hand the root on towards the jump; there, wait for the other tree's activation."""
        assert self._table.parent is None
        link = self._table.links.get(to)
        if link is not None:
            if link.state is LinkState.OPEN:
                link.turn += 1
                message = RouteReply(
                    *request,
                    responder,
                    self._table.standing(),
                    hops,
                    ReplyStage.FAR,
                    True,
                    link.number,
                    link.turn,
                )
                self._tree.hand_root_to(link, message, own=False)
            return
        self._tree.leader.step_down()
        self.yielded_to = request
        # Where the way is so long that the activation came too late, the next wait is twice as long.
        wait = 2 * self._table.parameters().discover_timeout
        self._yielded_timer.after(max(wait, min(wait << self.yields_in_vain, YIELD_MAX)))
        standing = self._table.standing()
        message = RouteReply(
            *request, self._tree.node, standing, hops, ReplyStage.JUMP, True, 0, 0, self._tree.url
        )
        self._tree.courier.hop(to, message)

    def _on_not_activated(self) -> None:
        if self.yielded_to is not None:
            self.yields_in_vain = min(self.yields_in_vain + 1, 10)
            self._tree.leader.elect()

    def receive_rrep(self, sender: NodeId, message: RouteReply) -> None:
        """A.2, procedure 8."""
        if message.stage is not ReplyStage.FAR:
            self._on_reply_across(sender, message)
        elif not message.yields:
            self._on_reply_below(sender, message)
        elif self._tree.take_root(sender, message):
            reverse = self.reverses.find(message.request)
            way = None if reverse is None else reverse.limited
            usable = way is not None and (way in self._table.links or self._tree.is_nearby(way))
            if way is not None and usable and not self.has_passed(message.request, None):
                self._yield_down(message.request, way, message.responder, min(message.hops + 1, HOPS_MAX))
            if self._table.parent is None and self.yielded_to is None:
                self._tree.leader.elect()  # the path is gone: lead the tree

    def _on_reply_below(self, sender: NodeId, message: RouteReply) -> None:
        """A reply from above improves our label, so that the node at the jump may offer a link (R4)."""
        table = self._table
        if table.link_of(sender, message) is None:
            return
        reverse = self.reverses.find(message.request)
        if sender != table.parent or reverse is None or reverse.limited is None:
            table.drop(message, "answers no request of ours")
            return
        table.improve(message.standing.label.moved(1), table.hops)
        if not table.label.better_than(reverse.label):
            table.drop(message, "does not lift us above the requester")
            return
        hops = min(message.hops + 1, HOPS_MAX)
        self._reply_down(message.request, reverse.limited, message.responder, hops)

    def _on_reply_across(self, sender: NodeId, message: RouteReply) -> None:
        request = message.request
        jump = message.stage is ReplyStage.JUMP
        if jump and not self._tree.is_nearby(sender):
            self._keep_early(sender, message)
            return
        if self.forwards.find((request, message.responder)) is not None:
            # R10: each reply is passed on once. While a tree turns round, two nodes can have the same
            # request from each other, and a reply would go back and forth between them for ever.
            self._table.drop(message, "has been here before")
            return
        standing = message.standing
        forward = ForwardRoute(sender, standing.label, standing.hops, jump, message.link, message.url)
        self.forwards.put((request, message.responder), forward)
        hops = min(message.hops + 1, HOPS_MAX)
        if request.requester == self._tree.node:
            self.collect_reply(message, hops)
            return
        reverse = self.reverses.find(request)
        if reverse is None or reverse.free is None:
            self._table.drop(message, "answers no request of ours")
        elif self._tree.is_on_tree:
            onward = RouteReply(
                *request, message.responder, standing, hops, ReplyStage.NEAR, message.yields, 0, 0
            )
            self._tree.courier.hop(reverse.free, onward)
        elif jump:
            self._on_reply_between(reverse.free, message, hops)

    def _on_reply_between(self, to: NodeId, message: RouteReply, hops: int) -> None:
        """This node is on no tree, and lies in the jump. It is a root: it takes the label that it would have
        below the sender, and offers a link of its own. The activation then takes both, this one first."""
        tree, link, standing = self._tree, 0, message.standing
        if not message.yields:
            tree.start_over()
            if not self._table.improve(standing.label.moved(RANKS_PER_HOP), standing.hops + 1):
                self._table.drop(message, "is not better than what we have offered")
                return
            link, standing = tree.offer(to), self._table.standing()
        tree.courier.hop(
            to,
            RouteReply(
                *message.request,
                message.responder,
                standing,
                hops,
                ReplyStage.JUMP,
                message.yields,
                link,
                0,
                tree.url,
            ),
        )

    def collect_reply(self, message: RouteReply, hops: int) -> None:
        """R9: a reply is late only when the next search has begun or the root is gone."""
        is_welcome = self._welcome_from is not None and message.number >= self._welcome_from
        if not is_welcome or self._table.parent is not None:
            self._table.drop(message, "comes too late")
            return
        self._table.on_first_reply()
        if self._replies is None:
            self._replies = []
            self._decision_timer.after(0)
        reply_wait = self._tree.options.reply_wait
        if not self._replies and reply_wait is not None:
            self._decision_timer.after(min(micros(reply_wait), self._table.parameters().discover_timeout))
        label = message.standing.label
        self._replies.append(Reply(message.request, message.responder, label, hops, message.yields))

    def has_passed(self, request: RequestKey, responder: NodeId | None) -> bool:
        """Whether the root has passed this node for the same request and responder. Notes that it now has."""
        if self._root_passed.find((request, responder)):
            return True
        self._root_passed.put((request, responder), True)
        return False


def forwarded(message: RouteRequest, *, limited: bool) -> RouteRequest:
    """The request as the next node sends it; `limited`: it has left its tree."""
    hops = min(message.hops + 1, HOPS_MAX)
    return msgspec.structs.replace(message, time_to_live=message.time_to_live - 1, hops=hops, limited=limited)
