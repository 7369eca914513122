"""What the evolved and the original protocol have in common: links, data over them, the trace."""

from collections.abc import Callable
from typing import Protocol

from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind, TimerName
from roamcast.strategy.tree.courier import TIMER, Courier
from roamcast.strategy.tree.label import Label
from roamcast.strategy.tree.links import Link, LinkState
from roamcast.strategy.tree.messages import CODEC, NAMES, Close, Confirm, Data, Message, Probe, Standing
from roamcast.strategy.tree.parameters import Adaptation, Parameters, TreeOptions
from roamcast.strategy.tree.routes import Recent
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.units import MILLISECOND, Micros, NodeId

REFUSAL_INTERVAL: Micros = 200 * MILLISECOND
SUSPICION_INTERVAL: Micros = 1000 * MILLISECOND  # between two probes of a link whose data fails


class OverlayListener(Protocol):
    """Who wants to hear of the tree's links."""

    def on_link_up(self, neighbour: NodeId) -> None:
        """A tree link now exists; both ends hear of it."""
        ...

    def on_link_down(self, neighbour: NodeId) -> None: ...

    def on_receive(self, neighbour: NodeId, payload: bytes) -> None:
        """Data that the neighbour sent over a tree link."""
        ...


class TreeProtocol:
    """A node's part in the tree. A root has no `parent`; a leader is a root that says so."""

    def __init__(
        self,
        host: Host,
        options: TreeOptions,
        listener: OverlayListener,
        nearby: set[NodeId] | None,
        url: str,
    ) -> None:
        """`nearby`: the nodes in range, kept up by the owner; None where nobody can tell."""
        self.links: dict[NodeId, Link] = {}
        self.parent: NodeId | None = None
        self.label = Label(0, host.node, 0)
        self.hops = 0
        self.is_leader = False
        self.dropped: dict[str, int] = {}  # messages that did not fit, by what was wrong
        self._host = host
        self._options = options
        self._listener = listener
        self._nearby = nearby
        self._url = url
        self._adaptation = Adaptation(options)
        self._courier = Courier(host, options.jitter, options.link_attempts, self._on_undelivered)
        self._broken_at: Micros | None = None  # when the upstream was lost that is being replaced
        self._refused: Recent[tuple[NodeId, int], Micros] = Recent()
        self._failed: list[Callable[[], None]] = []  # call-backs of data that had no link

    # Inputs; each protocol has its own.

    def on_start(self) -> None:
        raise NotImplementedError

    def on_message(self, sender: NodeId, message: Message) -> None:
        raise NotImplementedError

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """The owner has added a node to `nearby`."""

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """The owner has taken a node out of `nearby`, or saw the link to it fail."""
        self._lose(neighbour, tell=False)

    def on_timer(self, name: TimerName) -> None:
        match name:
            case (_, "again", int() as to, int() as link):
                self._courier.on_again(to, link)
            case (_, "later", int() as number):
                self._courier.on_later(number)
            case (_, "failed"):
                failed, self._failed = self._failed, []
                for on_failure in failed:
                    on_failure()

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
        kind: Kind,
        message: str,
        event: EventId | None,
        own: bool,
        on_failure: Callable[[], None] | None,
    ) -> None:
        link = self.links.get(neighbour)
        if link is None or link.state is not LinkState.OPEN:
            if on_failure is not None:
                # Never from inside the caller's own call: a failure is an input of its own.
                self._failed.append(on_failure)
                self._host.set_timer((TIMER, "failed"), self._host.now())
            return
        number = link.on_sent()

        def failed() -> None:
            self._on_data_failed(neighbour, link, number)
            if on_failure is not None:
                on_failure()

        frame = Frame(CODEC.encode(Data(link.number, payload)), kind, message, event, own)
        self._host.unicast(neighbour, frame, failed)

    def _on_data_failed(self, neighbour: NodeId, link: Link, number: int) -> None:
        # Data fails for many reasons, a full queue of our own among them. A probe goes before all data,
        # and tells a broken link from a busy one.
        failures = link.on_failed(number)
        due = link.suspected_at is None or self._host.now() - link.suspected_at >= SUSPICION_INTERVAL
        if failures >= self._options.link_attempts and due and self.links.get(neighbour) is link:
            link.suspected_at = self._host.now()
            self._probe(link)

    def _on_data(self, sender: NodeId, message: Data) -> None:
        link = self.links.get(sender)
        if link is None or link.number != message.link:
            self._refuse(sender, message, message.link)
            return
        self._listener.on_receive(sender, message.payload)

    # Links.

    def _open(self, link: Link) -> None:
        """The link stands at both ends, as far as we know."""
        link.state = LinkState.OPEN
        self._trace("link_up", link.peer)
        self._listener.on_link_up(link.peer)

    def _lose(self, peer: NodeId, *, tell: bool) -> None:
        """The link is gone at this end; `tell` the other one if it may still hear us."""
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

    def _probe(self, link: Link) -> None:
        """Is the other end there, and has it this link? If no answer comes, the link is lost."""
        if not self._courier.is_agreeing(link.peer, link.number):
            self._courier.agree(link.peer, link.number, Probe(link.number), own=True)

    def _on_probe(self, sender: NodeId, message: Probe) -> None:
        link = self.links.get(sender)
        if link is None or link.number != message.link:
            self._refuse(sender, message, message.link)
        else:
            self._courier.once(sender, Confirm(link.number, link.turn), own=False)

    def _on_orphaned(self) -> None:
        """The upstream is lost: this node is the root of what hangs on it."""
        raise NotImplementedError

    def _on_undelivered(self, neighbour: NodeId) -> None:
        """The courier has given up on a message to this neighbour."""
        self._lose(neighbour, tell=True)

    # Helpers.

    def _parameters(self) -> Parameters:
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
        """A message about a link that we do not have: say so, that the other end may forget it too."""
        self._drop(message, "names no link of ours")
        now = self._host.now()
        last = self._refused.find((sender, link))
        if last is None or now - last >= REFUSAL_INTERVAL:  # a stream of data is refused once, not each time
            self._refused.put((sender, link), now, now)
            self._courier.once(sender, Close(link), own=False)

    def _drop(self, message: Message, why: str) -> None:
        self.dropped[why] = self.dropped.get(why, 0) + 1
        self._host.trace(
            Dropped(self._host.now(), self._host.node, DropReason.EXPIRED, NAMES[type(message)], detail=why)
        )
