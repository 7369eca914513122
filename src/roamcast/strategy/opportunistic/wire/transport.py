"""Datagrams to nodes several hops away: over the underlay's routes, through the brokers the sender names.

Neither reliable nor ordered; `reliable.py` makes it so. An overlay link is a path of the underlay
(section 2.1), so a source route names brokers, and between two of them every node forwards by its own table.
What has the next hop in common goes together (`outbox.py`).
"""

from collections.abc import Callable

from roamcast.errors import WireError
from roamcast.host import Host, SendFailure, TimerName
from roamcast.strategy.opportunistic.wire.messages import (
    BODY_MAX,
    CONTENTS,
    HASTY,
    HOPS_MAX,
    NUMBERS,
    Bundle,
    Content,
    Datagram,
)
from roamcast.strategy.opportunistic.wire.outbox import NEIGHBOURS_MAX, Outbox, Parcel
from roamcast.strategy.opportunistic.wire.reliable import Letter, StreamAcknowledgement
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId

ATTEMPTS_PER_HOP = 3  # on top of the link layer's own
HEARD_LATELY: Micros = SECOND


class Transport:
    """Timers are those of the outbox."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        receive: Callable[[NodeId, Content, int], None],
        *,
        share_frames: bool = True,
    ) -> None:
        """`receive` gets the origin, what it sent, and the hops that took."""
        self._host = host
        self._underlay = underlay
        self._receive = receive
        self._heard_at: dict[NodeId, Micros] = {}
        self._outbox = Outbox(host, underlay, self._on_failure, share_frames=share_frames)

    def send(self, to: NodeId, content: Content, label: Letter, via: tuple[NodeId, ...] = ()) -> bool:
        """Send towards `to`, through `via` in this order; False if no route leads there. A node may send to
        itself: no radio is used."""
        if to == self._host.node:
            self._receive(to, content, 0)
            return True
        event = () if label.event is None else tuple(label.event)
        body, ending = CONTENTS.encode(content), label.ending
        assert body.endswith(ending)
        head = body[: len(body) - len(ending)]
        stream = (to, content.stream) if isinstance(content, StreamAcknowledgement) else None
        number = HASTY if label.is_hasty else NUMBERS.get(label.name, 0)
        datagram = Datagram(self._host.node, to, 0, via, head, number, event)
        may_spread = bool(ending) and not label.is_repeat
        return self._pass_on(Parcel(datagram, ending, stream=stream, may_spread=may_spread))

    def on_heard(self, neighbour: NodeId) -> None:
        """A frame of any kind: who is heard is there. A frame that failed has collided."""
        if len(self._heard_at) >= NEIGHBOURS_MAX:
            self._heard_at.clear()
        self._heard_at[neighbour] = self._host.now()

    def on_timer(self, name: TimerName) -> None:
        self._outbox.on_timer(name)

    def on_frame(self, sender: NodeId, frame: Datagram | Bundle) -> None:
        if isinstance(frame, Datagram):
            self._on_parcel(sender, Parcel(frame))
            return
        count, own = len(frame.datagrams), self._host.node
        is_spread = bool(frame.next_hops)
        if len(frame.endings) != count or max(frame.endings) > len(frame.shared):
            self._refuse("is no bundle")
        elif is_spread and len(frame.next_hops) != count:
            self._refuse("is for nobody")
        else:
            for datagram, place, next_hop in zip(
                frame.datagrams, frame.endings, frame.next_hops or (own,) * count, strict=True
            ):
                if next_hop == own:
                    ending = frame.shared[place - 1] if place else b""
                    self._on_parcel(sender, Parcel(datagram, ending, may_spread=bool(ending)))

    def _refuse(self, detail: str) -> None:
        now = self._host.now()
        self._host.trace(Dropped(now, self._host.node, DropReason.WIRE, "frame", detail=detail))

    def _on_parcel(self, sender: NodeId, parcel: Parcel) -> None:
        """A datagram has reached this node: its end, a broker it was to pass, or a node in between."""
        own, datagram = self._host.node, parcel.datagram
        # It may be one of our own: the way to the first broker of a source route, and from there to the
        # second, can lead through its origin again (section 4.3 has an example). Hops are limited.
        hops, via = datagram.hops + 1, datagram.via
        has_turned = bool(via) and via[0] == own
        if has_turned:
            via = via[1:]
        if len(datagram.body) + len(parcel.ending) > BODY_MAX:
            self._drop(parcel, DropReason.WIRE, "is too long")
        elif datagram.to != own:
            came_from = None if has_turned else sender
            self._pass_on(parcel._replace(datagram=datagram.moved(hops, via)), came_from)
        else:
            try:
                content = CONTENTS.decode(parcel.whole().body)
            except WireError as error:
                self._drop(parcel, DropReason.WIRE, str(error))
                return
            self._receive(datagram.origin, content, hops)

    def _pass_on(self, parcel: Parcel, came_from: NodeId | None = None) -> bool:
        """`came_from`: who thinks that the way leads through here. Sent back, it would go to and fro until
        the two agree, and take the air from those who have a way."""
        datagram = parcel.datagram
        if datagram.hops >= HOPS_MAX:
            self._drop(parcel, DropReason.EXPIRED, "went too far")
            return False
        via = datagram.via
        next_hop = self._underlay.next_hop(via[0] if via else datagram.to)
        while next_hop is None and via:
            # The broker on the way is out of reach; its neighbours in the source route need not be.
            via = via[1:]
            next_hop = self._underlay.next_hop(via[0] if via else datagram.to)
        if next_hop is None or next_hop == came_from:
            self._drop(parcel, DropReason.NO_ROUTE, f"to {datagram.to}")
            return False
        if via != datagram.via:
            parcel = parcel._replace(datagram=datagram.moved(datagram.hops, via))
        self._outbox.put(next_hop, parcel)
        return True

    def _on_failure(self, next_hop: NodeId, parcels: list[Parcel], why: SendFailure) -> None:
        """Try again from here, maybe by another neighbour: cheaper than from the datagram's origin."""
        if why is SendFailure.LINK:
            if self._host.now() - self._heard_at.get(next_hop, -HEARD_LATELY) >= HEARD_LATELY:
                self._underlay.on_link_failure(next_hop)
            for parcel in parcels:
                if parcel.attempt < ATTEMPTS_PER_HOP:
                    self._pass_on(parcel._replace(attempt=parcel.attempt + 1, may_spread=False))

    def _drop(self, parcel: Parcel, reason: DropReason, detail: str) -> None:
        datagram = parcel.datagram
        publisher, sequence = datagram.event if len(datagram.event) == 2 else (None, None)
        self._host.trace(
            Dropped(
                self._host.now(),
                self._host.node,
                reason,
                parcel.name,
                publisher,
                sequence,
                to=datagram.to,
                detail=detail,
            )
        )
