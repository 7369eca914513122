"""The overlay as a layer: frames, timers and neighbours in; tree links and their data out.

It drives the evolved or the original protocol, keeps track of who is in range (R11), and carries the data of
the layer above over tree links (R12).

In the trace (`OverlayChanged`) each end of a link records `link_up` and `link_down` as it sees them, with
the peer; a link belongs to the overlay while both ends have it up. On `link_down` the role says which end
records it: breaks are counted by the records of the `downstream` end, the one that repairs. `repaired` is
recorded by the node that repairs; its value is the time in milliseconds from the detection of the
breakage to the first RREP. `role_on` and `role_off` with role `leader` enclose the time in which a node
leads.
"""

from collections.abc import Iterable
from functools import partial

from roamcast.errors import WireError
from roamcast.host import Frame, Host, SendFailure
from roamcast.kit.protocol import MessageLayer, OnFailure, Timer, Timers
from roamcast.strategy.tree.overlay.courier import LINK_ATTEMPTS
from roamcast.strategy.tree.overlay.evolved import Evolved
from roamcast.strategy.tree.overlay.messages import CODEC, LINKS_MAX, SpreadData, TreeData
from roamcast.strategy.tree.overlay.multicast_table import (
    LinkState,
    OverlayContext,
    OverlayListener,
    TreeLink,
    TreeProtocol,
)
from roamcast.strategy.tree.overlay.original import Original
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.trace import DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, Micros, NodeId, micros

# All chosen by us: shorter times find a broken link sooner and cost more probes.
DOUBT_INTERVALS = 1.5  # beacon intervals without any frame before the neighbour is gone (R11)
SUSPICION_INTERVAL: Micros = 1000 * MILLISECOND  # between two probes of a link whose data fails
# R12: a link is probed after a silence of so many usual gaps between two data messages.
QUIET_GAPS = 4
QUIET_MIN: Micros = 300 * MILLISECOND  # the silence is at least this
QUIET_MAX: Micros = 2000 * MILLISECOND  # and no probe beyond this: beacons find a loss as soon


class Overlay(MessageLayer):
    """Keeps the tree over the neighbours that `underlay` reports, by `on_neighbour_up` and `_down`. Without
    an underlay nobody knows who is in range, and whoever sends is."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay | None,
        options: TreeOptions,
        listener: OverlayListener,
        url: str = "",
    ) -> None:
        super().__init__(host, CODEC)
        self._underlay = underlay
        self._listener = listener
        self._nearby: set[NodeId] = set()
        self._heard_at: dict[NodeId, Micros] = {}  # of each node in `nearby`, when any frame last came
        self._doubt = round(micros(options.beacons().interval) * DOUBT_INTERVALS)
        nearby = None if underlay is None else self._nearby
        context = OverlayContext(self.messenger, options, listener, nearby, url)
        evolves = options.protocol == "evolved"
        self.protocol: TreeProtocol = Evolved(context) if evolves else Original(context)
        self.table = self.protocol.table
        self._watches = options.quiet_probes
        self._overhears = self.protocol.overhears
        self._doubt_timers = Timers(host, self.on_neighbour_down)
        self._quiet_timers = Timers(host, self._on_quiet)
        self.handlers = {**self.protocol.handlers, TreeData: self._on_data, SpreadData: self._on_spread}

    # Inputs.

    def on_start(self) -> None:
        if self._underlay is not None:
            self._nearby.update(self._underlay.neighbours())
        self.protocol.on_start()

    def on_stop(self) -> None:
        self.protocol.leave()

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        # As `MessageLayer` does it, without its calls: of all calls of a node, this is the most frequent one.
        if sender in self._nearby:
            self._heard_at[sender] = self.host.now()
        try:
            message = CODEC.decode(payload)
        except WireError as error:
            self.messenger.drop(DropReason.WIRE, CODEC.name, detail=str(error))
            return
        handler = self.handlers.get(type(message))
        if handler is not None:  # else it is of the other protocol
            handler(sender, message)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._doubt_timers.cancel(neighbour)
        if neighbour not in self._nearby:
            self._nearby.add(neighbour)
            self.protocol.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """R11: a neighbour whose beacons are lost is kept while other frames of it arrive. A busy radio loses
        beacons, and a tree that breaks because of it makes the radio busier still."""
        gone_at = self._heard_at.get(neighbour, -self._doubt) + self._doubt
        if neighbour in self.table.links and self.host.now() < gone_at:
            self._doubt_timers.at(neighbour, gone_at)
            return
        self._nearby.discard(neighbour)
        self._heard_at.pop(neighbour, None)
        self.protocol.on_neighbour_down(neighbour)

    # For the layer above.

    def neighbours(self) -> list[NodeId]:
        """The neighbours in the tree, in increasing order."""
        return self.table.neighbours()

    @property
    def is_overheard(self) -> bool:
        """Without links, data is for whoever hears it: whether there is somebody."""
        return self._overhears and bool(self._nearby)

    def send(self, neighbour: NodeId, data: Frame, on_failure: OnFailure | None = None) -> None:
        """Send over a tree link, once. `on_failure` is called later if there is none or the hop failed;
        several failures in a row break the link."""
        link = self.table.links.get(neighbour)
        if link is None or link.state is not LinkState.OPEN:
            if on_failure is not None:
                # By a timer and not from inside the caller's own call: a failure is an input of its own.
                Timer(self.host, partial(on_failure, SendFailure.LINK)).after(0)
            return
        number = link.on_sent()

        def failed(failure: SendFailure) -> None:
            if failure is SendFailure.LINK:
                self._on_data_failed(link, number)
            if on_failure is not None:
                on_failure(failure)

        payload = CODEC.encode(TreeData(link.number, data.payload))
        self.host.unicast(neighbour, Frame(payload, data.kind, data.message, data.event, data.own), failed)

    def spread(self, neighbours: Iterable[NodeId], data: Frame) -> None:
        """Send to several tree neighbours in one broadcast, which nobody acknowledges."""
        named = []
        for peer in neighbours:
            link = self.table.links.get(peer)
            if link is not None and link.state is LinkState.OPEN:
                named.append((peer, link.number))
        if named or self.is_overheard:
            payload = CODEC.encode(SpreadData(tuple(named[:LINKS_MAX]), data.payload))
            self.host.broadcast(Frame(payload, data.kind, data.message, data.event, data.own))

    # Data.

    def _on_data_failed(self, link: TreeLink, number: int) -> None:
        # Data fails on busy links too. A probe goes before all data, and so distinguishes a broken link.
        now = self.host.now()
        failures = link.on_failed(number)
        due = link.suspected_at is None or now - link.suspected_at >= SUSPICION_INTERVAL
        if failures >= LINK_ATTEMPTS and due and self.table.links.get(link.peer) is link:
            link.suspected_at = now
            self.table.probe(link)

    def _on_data(self, sender: NodeId, message: TreeData) -> None:
        link = self.table.links.get(sender)
        if link is None or link.number != message.link:
            event = self._listener.event_in(message.payload)
            self.table.refuse(sender, message, message.link, event)
            return
        if link.state is not LinkState.OPEN:
            self.protocol.on_used(sender, message.link)
        if self._watches and sender == self.table.parent:
            self._watch(link)
        self._listener.on_data(sender, message.payload)

    def _on_spread(self, sender: NodeId, message: SpreadData) -> None:
        """A broadcast for several; a node that it does not name may still have use for it."""
        node = self.messenger.node
        number: int | None = None
        for peer, of_link in message.links:
            if peer == node:
                number = of_link
                break
        if number is None and not self._overhears:
            return  # most of what is heard
        table = self.table
        link = table.links.get(sender)
        is_refused = False
        if number is not None:
            if link is None or link.number != number:
                is_refused = True
                # What is overheard is not lost.
                event = None if self._overhears else self._listener.event_in(message.payload)
                table.refuse(sender, message, number, event)
            elif link.state is not LinkState.OPEN:
                self.protocol.on_used(sender, number)
        if link is not None and self._watches and sender == table.parent:
            self._watch(link)
        if self._overhears or not is_refused:
            named = [peer for peer, _ in message.links]
            if is_refused:
                named = [peer for peer in named if peer != node]  # hostile: it may be named twice
            self._listener.on_spread(sender, message.payload, named)

    def _watch(self, link: TreeLink) -> None:
        """R12: an upstream that stops sending in a stream of data is probed. Nobody acknowledges broadcasts,
        and beacons show its loss only after seconds."""
        link.on_data(self.host.now())
        if not link.is_watched and link.usual_gap is not None:
            link.is_watched = True
            self._quiet_timers.at(link.peer, _quiet_at(link))

    def _on_quiet(self, peer: NodeId) -> None:
        link = self.table.links.get(peer)
        if link is None or not link.is_watched:
            return
        quiet_at = _quiet_at(link)
        if self.host.now() < quiet_at:
            self._quiet_timers.at(peer, quiet_at)
            return
        link.is_watched = False  # until data comes again
        if peer == self.table.parent and quiet_at - (link.heard_at or 0) <= QUIET_MAX:
            self.table.probe(link)


def _quiet_at(link: TreeLink) -> Micros:
    assert link.heard_at is not None and link.usual_gap is not None
    return link.heard_at + max(QUIET_MIN, QUIET_GAPS * link.usual_gap)
