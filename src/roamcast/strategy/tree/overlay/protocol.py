"""What the evolved and the original protocol have in common: links, data over them, the trace."""

from collections.abc import Callable, Iterable
from typing import Protocol

from roamcast.errors import WireError
from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind, SendFailure, TimerName
from roamcast.kit.protocol import overflow_traced
from roamcast.strategy.tree.overlay.courier import TIMER, TreeCourier
from roamcast.strategy.tree.overlay.label import Label
from roamcast.strategy.tree.overlay.links import LinkState, TreeLink
from roamcast.strategy.tree.overlay.messages import (
    CODEC,
    LINKS_MAX,
    NAMES,
    Close,
    Confirm,
    Message,
    Probe,
    Spread,
    Standing,
    TreeData,
)
from roamcast.strategy.tree.overlay.parameters import OverlayParameters, ParameterAdaptation, TreeOptions
from roamcast.strategy.tree.overlay.routes import AgingDict
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.units import MILLISECOND, Micros, NodeId

# All chosen by us: shorter times find a broken link sooner and cost more probes.
REFUSAL_INTERVAL: Micros = 200 * MILLISECOND  # between two refusals of one link to the same sender
SUSPICION_INTERVAL: Micros = 1000 * MILLISECOND  # between two probes of a link whose data fails
# R12: a link is probed after a silence of so many usual gaps between two data messages.
QUIET_GAPS = 4
QUIET_MIN: Micros = 300 * MILLISECOND  # the silence is at least this
QUIET_MAX: Micros = 2000 * MILLISECOND  # and no probe beyond this: beacons find a loss as soon


class OverlayListener(Protocol):
    """The layer above, which is called when links of the tree change and when data arrives."""

    def on_link_up(self, neighbour: NodeId) -> None:
        """A tree link now exists; both ends are called."""
        ...

    def on_link_down(self, neighbour: NodeId) -> None: ...

    def on_receive(self, neighbour: NodeId, payload: bytes) -> None:
        """Data that the neighbour sent over a tree link to this node alone."""
        ...

    def on_spread(self, sender: NodeId, payload: bytes, named: list[NodeId]) -> None:
        """Data that was broadcast for the nodes `named`, over tree links of the sender. If the
        protocol overhears, it comes from any node in range, to nodes that are not named too."""
        ...

    def event_in(self, payload: bytes) -> EventId | None:
        """The event that data carries, if any: refused data is traced with its identity."""
        ...


class TreeProtocol:
    """A node's part in the tree. A root has no `parent`; a leader is a root that declared itself one."""

    def __init__(
        self,
        host: Host,
        options: TreeOptions,
        listener: OverlayListener,
        nearby: set[NodeId] | None,
        url: str,
    ) -> None:
        """`nearby`: the nodes in range, kept up to date by the owner; None where that is unknown."""
        self.links: dict[NodeId, TreeLink] = {}
        self.parent: NodeId | None = None
        self.label = Label(0, host.node, 0)
        self.hops = 0
        self.is_leader = False
        self.heard_at: dict[NodeId, Micros] = {}  # of each node in `nearby`, when any frame last came
        self.dropped: dict[str, int] = {}  # how many messages were dropped, by the reason
        self._host = host
        self._node = host.node
        self._options = options
        self._watches = options.quiet_probes
        self._listener = listener
        self._overhears = False  # whether data is passed up that names other nodes only
        self._nearby = nearby
        self._url = url
        self._adaptation = ParameterAdaptation(options)
        self._courier = TreeCourier(host, options.jitter, options.link_attempts, self._on_undelivered)
        self._broken_at: Micros | None = None  # when the upstream was lost that is being replaced
        self._too_many = overflow_traced(host, "tree", "ENTRIES_MAX")
        self._refused: AgingDict[tuple[NodeId, int], Micros] = AgingDict(self._too_many)
        self._failed: list[Callable[[SendFailure], None]] = []  # call-backs of data that had no link

    # Inputs; each protocol has its own.

    def on_start(self) -> None:
        raise NotImplementedError

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        """Decode, then act; octets that are no message of ours are dropped and traced."""
        if self._nearby is not None and sender in self._nearby:
            self.heard_at[sender] = self._host.now()
        try:
            message = CODEC.decode(payload)
        except WireError as error:
            now, node = self._host.now(), self._host.node
            self._host.trace(Dropped(now, node, DropReason.WIRE, "tree", detail=str(error)))
            return
        if isinstance(message, Spread):
            self._on_spread(sender, message)
        elif isinstance(message, TreeData):
            self._on_data(sender, message)
        else:
            self.on_message(sender, message)

    def on_message(self, sender: NodeId, message: Message) -> None:
        """A message of the protocol, any that carries no data."""
        raise NotImplementedError

    def set_member(self, is_member: bool) -> None:
        """Whether this node's applications use the group; the evolved protocol has no nodes that do not."""

    def leave(self) -> None:
        """The node stops: prune every link, so that its children repair at once. (In MAODV only a leaf may
        leave; here a child without an upstream does the same as when a link breaks.)"""
        for peer in sorted(self.links):
            link = self.links.pop(peer)
            self._courier.once(peer, Close(link.number), own=True)
            if link.state is LinkState.OPEN:
                self._trace("link_down", peer, role="downstream" if peer == self.parent else "upstream")
        self.parent = None
        self._set_leader(False)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """The owner has added a node to `nearby`."""

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """The owner has taken a node out of `nearby`, or saw the link to it fail."""
        self._lose(neighbour, tell=False)

    def on_timer(self, name: TimerName) -> None:
        match name:
            case (_, "again", int() as to, int() as link):
                self._courier.on_again(to, link)
            case (_, "quiet", int() as peer):
                self._on_quiet(peer)
            case (_, "later", int() as number):
                self._courier.on_later(number)
            case (_, "failed"):
                failed, self._failed = self._failed, []
                for on_failure in failed:
                    on_failure(SendFailure.LINK)

    # Questions.

    def neighbours(self) -> list[NodeId]:
        return sorted(peer for peer, link in self.links.items() if link.state is LinkState.OPEN)

    def is_nearby(self, node: NodeId) -> bool:
        return self._nearby is None or node in self._nearby

    # Data.

    def send(
        self,
        neighbour: NodeId,
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
        on_failure: Callable[[SendFailure], None] | None = None,
    ) -> None:
        """Send over a tree link, once. `on_failure` is called later if there is none or the hop failed;
        several failures in a row break the link."""
        link = self.links.get(neighbour)
        if link is None or link.state is not LinkState.OPEN:
            if on_failure is not None:
                # By a timer and not from inside the caller's own call: a failure is an input of its own.
                self._failed.append(on_failure)
                self._host.set_timer((TIMER, "failed"), self._host.now())
            return
        number = link.on_sent()

        def failed(failure: SendFailure) -> None:
            if failure is SendFailure.LINK:
                self._on_data_failed(neighbour, link, number)
            if on_failure is not None:
                on_failure(failure)

        frame = Frame(CODEC.encode(TreeData(link.number, payload)), kind, message, event, own)
        self._host.unicast(neighbour, frame, failed)

    @property
    def is_overheard(self) -> bool:
        """Without links, data is for whoever hears it: whether there is somebody."""
        return self._overhears and bool(self._nearby)

    def spread(
        self,
        neighbours: Iterable[NodeId],
        payload: bytes,
        *,
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
    ) -> None:
        """Send to several tree neighbours in one broadcast, which nobody acknowledges."""
        named = []
        for peer in neighbours:
            link = self.links.get(peer)
            if link is not None and link.state is LinkState.OPEN:
                named.append((peer, link.number))
        if named or self.is_overheard:
            spread = Spread(tuple(named[:LINKS_MAX]), payload)
            self._host.broadcast(Frame(CODEC.encode(spread), kind, message, event, own))

    def _on_data_failed(self, neighbour: NodeId, link: TreeLink, number: int) -> None:
        # Data fails on busy links too. A probe goes before all data, and so distinguishes a broken link.
        failures = link.on_failed(number)
        due = link.suspected_at is None or self._host.now() - link.suspected_at >= SUSPICION_INTERVAL
        if failures >= self._options.link_attempts and due and self.links.get(neighbour) is link:
            link.suspected_at = self._host.now()
            self._probe(link)

    def _on_data(self, sender: NodeId, message: TreeData) -> None:
        link = self.links.get(sender)
        if link is None or link.number != message.link:
            self._refuse(sender, message, message.link)
            return
        if link.state is not LinkState.OPEN:
            self._on_heard(sender, message.link)
        if self._watches and sender == self.parent:
            self._watch(link)
        self._listener.on_receive(sender, message.payload)

    def _on_spread(self, sender: NodeId, message: Spread) -> None:
        """A broadcast for several; a node that it does not name may still have use for it."""
        node = self._node
        number: int | None = None
        for peer, of_link in message.links:
            if peer == node:
                number = of_link
                break
        if number is None and not self._overhears:
            return  # most of what is heard
        link = self.links.get(sender)
        is_refused = False
        if number is not None:
            if link is None or link.number != number:
                is_refused = True
                self._refuse(sender, message, number)
            elif link.state is not LinkState.OPEN:
                self._on_heard(sender, number)
        if link is not None and self._watches and sender == self.parent:
            self._watch(link)
        if self._overhears or not is_refused:
            named = [peer for peer, _ in message.links]
            if is_refused:
                named = [peer for peer in named if peer != node]  # hostile: it may be named twice
            self._listener.on_spread(sender, message.payload, named)

    def _on_heard(self, sender: NodeId, number: int) -> None:
        """The other end has used the link of this number."""

    def _watch(self, link: TreeLink) -> None:
        """R12: an upstream that stops sending in a stream of data is probed. Nobody acknowledges broadcasts,
        and beacons show its loss only after seconds."""
        link.on_data(self._host.now())
        if not link.is_watched and link.usual_gap is not None:
            link.is_watched = True
            self._host.set_timer((TIMER, "quiet", link.peer), self._quiet_at(link))

    def _on_quiet(self, peer: NodeId) -> None:
        link = self.links.get(peer)
        if link is None or not link.is_watched:
            return
        quiet_at = self._quiet_at(link)
        if self._host.now() < quiet_at:
            self._host.set_timer((TIMER, "quiet", peer), quiet_at)
            return
        link.is_watched = False  # until data comes again
        if peer == self.parent and quiet_at - (link.heard_at or 0) <= QUIET_MAX:
            self._probe(link)

    def _quiet_at(self, link: TreeLink) -> Micros:
        assert link.heard_at is not None and link.usual_gap is not None
        return link.heard_at + max(QUIET_MIN, QUIET_GAPS * link.usual_gap)

    # Links.

    def _open(self, link: TreeLink) -> None:
        """The link exists at both ends, as far as we know."""
        link.state = LinkState.OPEN
        self._trace("link_up", link.peer)
        self._listener.on_link_up(link.peer)

    def _lose(self, peer: NodeId, *, tell: bool) -> None:
        """The link is gone at this end; `tell` the other one if it may still receive it."""
        link = self.links.pop(peer, None)
        if link is None:
            return
        self._courier.agreed(peer, link.number)
        if tell:
            self._courier.once(peer, Close(link.number), own=True)
        was_upstream = self.parent == peer
        if link.state is LinkState.OPEN:
            self._adaptation.on_break(self._host.now())
            self._trace("link_down", peer, role="downstream" if was_upstream else "upstream")
        if was_upstream:
            self.parent = None
        if link.state is LinkState.OPEN:
            self._listener.on_link_down(peer)
        if was_upstream:
            self._on_orphaned()

    def _probe(self, link: TreeLink) -> None:
        """Ask whether the other end is there and has this link. If no answer comes, the link is lost."""
        if not self._courier.is_agreeing(link.peer, link.number):
            self._courier.agree(link.peer, link.number, Probe(link.number), own=True)

    def _on_probe(self, sender: NodeId, message: Probe) -> None:
        link = self.links.get(sender)
        if link is None or link.number != message.link:
            self._refuse(sender, message, message.link)
        else:
            self._courier.once(sender, Confirm(link.number, link.turn), own=False)

    def _on_orphaned(self) -> None:
        """The upstream is lost: this node is the root of its subtree."""
        raise NotImplementedError

    def _on_undelivered(self, neighbour: NodeId) -> None:
        """The courier has given up on a message to this neighbour."""
        self._lose(neighbour, tell=True)

    # Helpers.

    def _parameters(self) -> OverlayParameters:
        return self._adaptation.parameters(self._host.now())

    def _standing(self) -> Standing:
        return Standing(self.label.sequence, self.label.leader, self.label.rank, self.hops)

    def _set_leader(self, leads: bool) -> None:
        if leads != self.is_leader:
            self.is_leader = leads
            self._trace("role_on" if leads else "role_off", None, role="leader")

    def _on_first_reply(self) -> None:
        """The work's "time for reconnecting": from the detection of the breakage to the first RREP."""
        if self._broken_at is not None:
            took = (self._host.now() - self._broken_at) / MILLISECOND
            self._broken_at = None
            self._host.trace(OverlayChanged(self._host.now(), self._host.node, "repaired", value=took))

    def _set_timer(self, name: str, delay: Micros) -> None:
        self._host.set_timer((TIMER, name), self._host.now() + delay)

    def _cancel_timer(self, name: str) -> None:
        self._host.cancel_timer((TIMER, name))

    def _some_of(self, time: Micros) -> Micros:
        return int(self._host.random.random() * time)

    def _trace(self, change: str, peer: NodeId | None, role: str = "") -> None:
        self._host.trace(OverlayChanged(self._host.now(), self._host.node, change, peer, role))

    def _refuse(self, sender: NodeId, message: Message, link: int) -> None:
        """A message about a link that we do not have: answer `Close`, so that the sender drops it too."""
        event = None
        if isinstance(message, TreeData) or (isinstance(message, Spread) and not self._overhears):
            event = self._listener.event_in(message.payload)  # else it is not lost, but overheard
        self._drop(message, "names no link of ours", DropReason.STALE, event)
        now = self._host.now()
        last = self._refused.find((sender, link))
        if last is None or now - last >= REFUSAL_INTERVAL:  # a stream of data is refused once, not each time
            self._refused.put((sender, link), now, now)
            self._courier.once(sender, Close(link), own=False)

    def _drop(
        self,
        message: Message,
        why: str,
        reason: DropReason = DropReason.EXPIRED,
        event: EventId | None = None,
    ) -> None:
        self.dropped[why] = self.dropped.get(why, 0) + 1
        publisher, sequence = (None, None) if event is None else event
        now, node, name = self._host.now(), self._host.node, NAMES[type(message)]
        self._host.trace(Dropped(now, node, reason, name, publisher, sequence, detail=why))
