"""Datagrams to nodes several hops away: over the underlay's routes, through the brokers the sender names.

Neither reliable nor ordered; `reliable.py` makes it so. An overlay link is a path of the underlay
(section 2.1), so a source route names brokers, and between two of them every node forwards by its own table.
"""

from collections.abc import Callable
from functools import partial

from roamcast.errors import WireError
from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind, SendFailure
from roamcast.strategy.opportunistic.messages import CONTENTS, FRAMES, HOPS_MAX, Content, Datagram
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import NodeId

ATTEMPTS_PER_HOP = 4  # on top of the link layer's own


class Transport:
    def __init__(
        self, host: Host, underlay: Underlay, receive: Callable[[NodeId, Content, int], None]
    ) -> None:
        """`receive` gets the origin, what it sent, and the hops that took."""
        self._host = host
        self._underlay = underlay
        self._receive = receive

    def send(self, to: NodeId, content: Content, label: Letter, via: tuple[NodeId, ...] = ()) -> None:
        """Send towards `to`, through `via` in this order. A node may send to itself: no radio is used."""
        if to == self._host.node:
            self._receive(to, content, 0)
            return
        event = () if label.event is None else tuple(label.event)
        body = CONTENTS.encode(content)
        self._pass_on(Datagram(self._host.node, to, 0, via, body, label.name, event))

    def on_datagram(self, datagram: Datagram) -> None:
        """A datagram has reached this node: its end, a broker it was to pass, or a node in between."""
        own = self._host.node
        # It may be one of our own: the way to the first broker of a source route, and from there to the
        # second, can lead through its origin again (section 4.3 has an example). Hops are limited.
        hops, via = datagram.hops + 1, datagram.via
        if via and via[0] == own:
            via = via[1:]
        if datagram.to != own:
            moved = Datagram(
                datagram.origin, datagram.to, hops, via, datagram.body, datagram.name, datagram.event
            )
            self._pass_on(moved)
            return
        try:
            content = CONTENTS.decode(datagram.body)
        except WireError as error:
            self._drop(datagram, DropReason.WIRE, str(error))
            return
        self._receive(datagram.origin, content, hops)

    def _pass_on(self, datagram: Datagram, attempt: int = 1) -> None:
        if datagram.hops >= HOPS_MAX:
            self._drop(datagram, DropReason.EXPIRED, "went too far")
            return
        target = datagram.via[0] if datagram.via else datagram.to
        next_hop = self._underlay.next_hop(target)
        if next_hop is None and datagram.via:
            # The broker on the way is out of reach; its neighbours in the source route need not be.
            datagram = Datagram(
                datagram.origin,
                datagram.to,
                datagram.hops,
                datagram.via[1:],
                datagram.body,
                datagram.name,
                datagram.event,
            )
            self._pass_on(datagram)
            return
        if next_hop is None:
            self._drop(datagram, DropReason.NO_ROUTE, f"to {target}")
            return
        event = EventId(*datagram.event) if len(datagram.event) == 2 else None
        kind = Kind.CONTROL if event is None else Kind.DATA
        own = datagram.origin == self._host.node
        frame = Frame(FRAMES.encode(datagram), kind, datagram.name, event, own)
        self._host.unicast(next_hop, frame, partial(self._on_failure, datagram, attempt, next_hop))

    def _on_failure(self, datagram: Datagram, attempt: int, next_hop: NodeId, why: SendFailure) -> None:
        """Try again from here, maybe by another neighbour: cheaper than from the datagram's origin."""
        if why is SendFailure.LINK:
            self._underlay.on_link_failure(next_hop)
            if attempt < ATTEMPTS_PER_HOP:
                self._pass_on(datagram, attempt + 1)

    def _drop(self, datagram: Datagram, reason: DropReason, detail: str) -> None:
        publisher, sequence = datagram.event if len(datagram.event) == 2 else (None, None)
        self._host.trace(
            Dropped(
                self._host.now(),
                self._host.node,
                reason,
                datagram.name,
                publisher,
                sequence,
                to=datagram.to,
                detail=detail,
            )
        )
