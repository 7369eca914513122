"""What a node knows of its tree: the tables of appendix A.1, for the one group that there is.

`MulticastTable` is data structures 1 and 2: the next hops (`links`), which of them is the upstream
(`parent`), and how near and how fresh the leader is (`label`, `hops`). `Reverse` and `ForwardRoute` are
structures 3 and 4: where requests came from, and where replies came from.

The overlay is the graph of links that both ends hold under the same number. A link that one end holds
and the other does not is no link: data sent over it is refused, and the refusal closes it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from roamcast.event import EventId
from roamcast.host import Host
from roamcast.kit.protocol import Handlers, Messenger, Timer, overflow_traced
from roamcast.kit.tables import BoundedDict
from roamcast.strategy.tree.overlay.courier import TreeCourier
from roamcast.strategy.tree.overlay.messages import (
    HOPS_MAX,
    Activation,
    Close,
    Confirm,
    Label,
    OverlayMessage,
    Probe,
    RequestKey,
    RouteReply,
    StatedLabel,
)
from roamcast.strategy.tree.parameters import OverlayParameters, ParameterAdaptation, TreeOptions
from roamcast.trace import DropReason, OverlayChanged
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Chosen by us.
REFUSAL_INTERVAL: Micros = 200 * MILLISECOND  # between two refusals of one link to the same sender
ENTRIES_MAX = 1_000
JOIN_DELAY: Micros = 2 * SECOND  # at most, at random: devices switched on together do not ask together
KEPT: Micros = 30 * SECOND  # with the presets a search takes seconds, so this outlasts its messages

Key = TypeVar("Key")
Value = TypeVar("Value")


class LinkState(Enum):
    ADOPTED = "adopted"  # we took the peer as our upstream and wait for its confirmation
    OPEN = "open"  # the peer has used this link


@dataclass(slots=True)
class TreeLink:
    """One end's view of a link."""

    peer: NodeId
    number: int
    state: LinkState
    # How often the upstream end has changed sides. A message that turns the link carries the number of its
    # turn, so a repeated or delayed one cannot turn it back.
    turn: int = 0
    url: str = ""  # where the peer can be reached (reactive manager)
    opened_here: bool = False  # whether this end sent the activation over the jump
    # For link breakage by failed frames: how many in a row, by the numbers of the frames sent.
    frames_sent: int = 0
    last_failed: int = -1
    failures: int = 0
    suspected_at: Micros | None = None  # when failed data last caused a probe
    # For link breakage by silence: when data last came, and the usual time between two data messages
    # (a moving average; the newest counts an eighth, chosen by us).
    heard_at: Micros | None = None
    usual_gap: Micros | None = None
    is_watched: bool = False

    def on_sent(self) -> int:
        self.frames_sent += 1
        return self.frames_sent

    def on_failed(self, frame: int) -> int:
        """How many frames in a row, up to this one, have failed."""
        self.failures = self.failures + 1 if frame == self.last_failed + 1 else 1
        self.last_failed = frame
        return self.failures

    def on_data(self, now: Micros) -> None:
        if self.heard_at is not None:
            gap = now - self.heard_at
            self.usual_gap = gap if self.usual_gap is None else (7 * self.usual_gap + gap) // 8
        self.heard_at = now


@dataclass(slots=True)
class Reverse:
    """Where a request came from: along its own tree, and after it left the tree (OverlayLimited)."""

    label: Label  # of the requester
    free: NodeId | None = None
    limited: NodeId | None = None
    answers: int = 0  # beyond the first, to copies that came by other paths


class ForwardRoute(NamedTuple):
    """Where a reply came from. With `jump`, over the hop that an activation will make a tree link."""

    via: NodeId
    label: Label  # of the node at the other end of the jump
    hops: int  # the reply's distance to the leader, counted to here
    jump: bool = True
    link: int = 0  # the link offered; 0 if none
    url: str = ""


class Reply(NamedTuple):
    request: RequestKey
    responder: NodeId
    label: Label
    hops: int  # from the responder's leader to the requester
    yields: bool = False


def best_reply(replies: Iterable[Reply], tolerance: int) -> Reply | None:
    """The nearest of those whose group sequence number is within `tolerance` of the freshest (A.1,
    `getBestReply`; 5.4).

    Ties go to the fresher, then to the lower identifier, so that every node chooses alike.
    """
    candidates = list(replies)
    if not candidates:
        return None
    freshest = max(reply.label.sequence for reply in candidates)
    fresh = [reply for reply in candidates if reply.label.sequence >= freshest - tolerance]
    return min(fresh, key=lambda reply: (reply.hops, -reply.label.sequence, reply.responder))


class AgingDict(Generic[Key, Value]):
    """A dictionary that forgets what was not put again for `KEPT`: the periodic removal that appendix A asks
    for, done when a new entry comes."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._entries: BoundedDict[Key, tuple[Micros, Value]] = BoundedDict(
            ENTRIES_MAX, overflow_traced(host, "tree", "ENTRIES_MAX")
        )

    def put(self, key: Key, value: Value) -> None:
        now = self._host.now()
        self._entries.forget_oldest(lambda entry: entry[0] < now - KEPT)
        self._entries.renew(key, (now, value))

    def find(self, key: Key) -> Value | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def __len__(self) -> int:
        return len(self._entries)


class OverlayListener:
    """The layer above, which is called when links of the tree change and when data arrives. It
    overrides what it needs."""

    def on_link_up(self, neighbour: NodeId) -> None:
        """A tree link now exists; both ends are called."""

    def on_link_down(self, neighbour: NodeId) -> None:
        """A tree link no longer exists at this end."""

    def on_data(self, neighbour: NodeId, payload: bytes) -> None:
        """Data that the neighbour sent over a tree link to this node alone."""

    def on_spread(self, sender: NodeId, payload: bytes, named: list[NodeId]) -> None:
        """Data that was broadcast for the nodes `named`, over tree links of the sender. If the
        protocol overhears, it comes from any node in range, to nodes that are not named too."""

    def event_in(self, payload: bytes) -> EventId | None:
        """The event that data carries, if any: refused data is traced with its identity."""
        return None


class OverlayContext(NamedTuple):
    """What a protocol is built from."""

    messenger: Messenger[OverlayMessage]
    options: TreeOptions
    listener: OverlayListener
    nearby: set[NodeId] | None  # the nodes in range, kept up to date by the layer; None where that is unknown
    url: str  # where this node can be reached (reactive manager)


class MulticastTable:
    """A root has no `parent`; a leader is a root that declared itself one."""

    def __init__(
        self, context: OverlayContext, courier: TreeCourier, on_orphaned: Callable[[], object]
    ) -> None:
        """`on_orphaned`: the upstream is lost, and this node is the root of its subtree."""
        messenger = self._messenger = context.messenger
        self.links: dict[NodeId, TreeLink] = {}
        self.parent: NodeId | None = None
        self.label = Label(0, messenger.node, 0)
        self.hops = 0
        self.is_leader = False
        self.broken_at: Micros | None = None  # when the upstream was lost that is being replaced
        self._host = messenger.host
        self._listener = context.listener
        self._courier = courier
        self._on_orphaned = on_orphaned
        self._adaptation = ParameterAdaptation(context.options)
        self._refused: AgingDict[tuple[NodeId, int], Micros] = AgingDict(messenger.host)

    # Questions.

    def neighbours(self) -> list[NodeId]:
        return sorted(peer for peer, link in self.links.items() if link.state is LinkState.OPEN)

    def parameters(self) -> OverlayParameters:
        return self._adaptation.parameters(self._host.now())

    def standing(self) -> StatedLabel:
        return StatedLabel(*self.label, self.hops)

    def has(self, sender: NodeId, number: int) -> bool:
        """Whether we have a link of this number to the sender."""
        link = self.links.get(sender)
        return link is not None and link.number == number

    def link_of(self, sender: NodeId, message: RouteReply | Activation | Probe) -> TreeLink | None:
        """The link that a message is about. If we do not have it, the message is refused."""
        if self.has(sender, message.link):
            return self.links[sender]
        self.refuse(sender, message, message.link)
        return None

    # Links.

    def open(self, link: TreeLink) -> None:
        """The link exists at both ends, as far as we know."""
        self.links[link.peer] = link
        link.state = LinkState.OPEN
        self._trace("link_up", link.peer)
        self._listener.on_link_up(link.peer)

    def lose(self, peer: NodeId, *, tell: bool) -> None:
        """The link is gone at this end; `tell` the other one if it may still receive it."""
        link = self.links.pop(peer, None)
        if link is None:
            return
        self._courier.agreed(peer, link.number)
        if tell:
            self._messenger.send(Close(link.number), peer)
        was_upstream = self.parent == peer
        if link.state is LinkState.OPEN:
            self._adaptation.on_break(self._host.now())
            self.trace_down(peer)
        if was_upstream:
            self.parent = None
        if link.state is LinkState.OPEN:
            self._listener.on_link_down(peer)
        if was_upstream:
            self._on_orphaned()

    def probe(self, link: TreeLink) -> None:
        """Ask whether the other end is there and has this link. If no answer comes, the link is lost."""
        if not self._courier.is_agreeing(link.peer, link.number):
            self._courier.agree(link.peer, link.number, Probe(link.number), own=True)

    def on_probe(self, sender: NodeId, message: Probe) -> None:
        link = self.link_of(sender, message)
        if link is not None:
            self.confirm(link)

    def confirm(self, link: TreeLink) -> None:
        self._messenger.send(Confirm(link.number, link.turn), link.peer, own=False)

    def refuse(
        self, sender: NodeId, message: OverlayMessage, number: int, event: EventId | None = None
    ) -> None:
        """A message about a link that we do not have: answer `Close`, so that the sender drops it too."""
        self.drop(message, "names no link of ours", DropReason.STALE, event)
        now = self._host.now()
        last = self._refused.find((sender, number))
        if last is None or now - last >= REFUSAL_INTERVAL:  # a stream of data is refused once, not each time
            self._refused.put((sender, number), now)
            self._messenger.send(Close(number), sender, own=False)

    # The root.

    def improve(self, label: Label, hops: int) -> bool:
        """Take a label if it is better than ours: labels never get worse (R2)."""
        if not label.better_than(self.label):
            return False
        self.label = label
        self.hops = min(hops, HOPS_MAX)
        return True

    def set_leader(self, leads: bool) -> None:
        if leads != self.is_leader:
            self.is_leader = leads
            self._trace("role_on" if leads else "role_off", role="leader")

    def on_first_reply(self) -> None:
        """The work's "time for reconnecting": from the detection of the breakage to the first RREP."""
        if self.broken_at is not None:
            self._trace("repaired", value=(self._host.now() - self.broken_at) / MILLISECOND)
            self.broken_at = None

    # The trace.

    def trace_down(self, peer: NodeId, *, pruned: bool = False) -> None:
        role = "pruned" if pruned else "downstream" if peer == self.parent else "upstream"
        self._trace("link_down", peer, role=role)

    def drop(
        self,
        message: OverlayMessage,
        why: str,
        reason: DropReason = DropReason.EXPIRED,
        event: EventId | None = None,
    ) -> None:
        self._messenger.drop(reason, message.name, event, detail=why)

    def _trace(
        self, change: str, peer: NodeId | None = None, role: str = "", value: float | None = None
    ) -> None:
        self._host.trace(OverlayChanged(self._host.now(), self._messenger.node, change, peer, role, value))


class TreeProtocol:
    """What the evolved and the original protocol have in common, and what the layer calls."""

    handlers: Handlers  # of all messages but data
    overhears = False  # whether data is passed up that names other nodes only

    def __init__(self, context: OverlayContext) -> None:
        self.messenger = context.messenger
        self.host = context.messenger.host
        self.node = context.messenger.node
        self.options = context.options
        self.nearby = context.nearby
        self.listener = context.listener
        self.url = context.url
        self.is_member = context.options.membership == "all"
        self._has_started = False
        self._join_timer = Timer(context.messenger.host, self._on_join_due)
        self.courier = TreeCourier(context.messenger, micros(context.options.jitter), self.on_undelivered)
        self.table = MulticastTable(context, self.courier, self.on_orphaned)

    # Inputs.

    def on_start(self) -> None:
        self._join_timer.within(JOIN_DELAY)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """The layer has added a node to `nearby`."""

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """The layer has taken a node out of `nearby`, or saw the link to it fail."""
        self.lose(neighbour, tell=False)

    def on_undelivered(self, neighbour: NodeId) -> None:
        """The courier has given up on a message to this neighbour."""
        self.lose(neighbour, tell=True)

    def on_used(self, sender: NodeId, number: int) -> None:
        """The other end has used the link of this number."""

    def on_orphaned(self) -> None:
        """The upstream is lost: this node is the root of its subtree."""
        raise NotImplementedError

    def set_member(self, is_member: bool) -> None:
        """Whether this node's applications use the group. Without `membership = "users"` all nodes do."""
        if self.options.membership == "all" or is_member == self.is_member:
            return
        self.is_member = is_member
        if not is_member:
            self.prune_unless_needed()
        elif self._has_started:
            self._join_timer.after(0)

    def _on_join_due(self) -> None:
        self._has_started = True
        if self.is_member:
            self.join()

    def join(self) -> None:
        """This node is a member; if it is on no tree, it looks for one."""
        raise NotImplementedError

    def prune_unless_needed(self) -> None:
        """A node that is no member stays on the tree only as long as others need it there."""
        raise NotImplementedError

    def leave(self) -> None:
        """The node stops: prune every link, so that its children repair at once. (In MAODV only a leaf may
        leave; here a child without an upstream does the same as when a link breaks.)"""
        table = self.table
        for peer in sorted(table.links):
            self.prune(peer)
        table.parent = None
        table.set_leader(False)

    def prune(self, peer: NodeId) -> None:
        """End the link to a tree neighbour, and say so."""
        raise NotImplementedError

    def take_out(self, peer: NodeId) -> None:
        """The link ends in good order: nothing is repaired."""
        link = self.table.links.pop(peer)
        self.courier.agreed(peer, link.number)
        if link.state is LinkState.OPEN:
            self.table.trace_down(peer, pruned=True)
            self.listener.on_link_down(peer)

    def lose(self, peer: NodeId, *, tell: bool) -> None:
        """See `MulticastTable.lose`."""
        self.table.lose(peer, tell=tell)

    # Questions.

    def is_nearby(self, node: NodeId) -> bool:
        return self.nearby is None or node in self.nearby

    @property
    def is_alone(self) -> bool:
        return self.nearby is not None and not self.nearby
