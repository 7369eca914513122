"""The overlay as a layer: frames, timers and neighbours in; tree links and their data out.

It drives the evolved or the original protocol. All its timers have names that begin with `TIMER`, so that it
can share a host with the layer above.

In the trace (`OverlayChanged`) each end of a link records `link_up` and `link_down` as it sees them, with
the peer; a link belongs to the overlay while both ends have it up. On `link_down` the role says which end
records it: breaks are counted by the records of the `downstream` end, the one that repairs. `repaired` is
recorded by the node that repairs; its value is the time in milliseconds from the detection of the
breakage to the first RREP. `role_on` and `role_off` with role `leader` enclose the time in which a node
leads.
"""

from collections.abc import Callable, Iterable

from roamcast.errors import WireError
from roamcast.event import EventId
from roamcast.host import Host, Kind, Layer, SendFailure, TimerName
from roamcast.strategy.tree.overlay.courier import TIMER
from roamcast.strategy.tree.overlay.evolved import Evolved
from roamcast.strategy.tree.overlay.messages import CODEC
from roamcast.strategy.tree.overlay.original import Original
from roamcast.strategy.tree.overlay.parameters import ProtocolName, TreeOptions
from roamcast.strategy.tree.overlay.protocol import OverlayListener, TreeProtocol
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import Micros, NodeId, micros

DOUBT_INTERVALS = 1.5  # beacon intervals without any frame before the neighbour is gone (R11); ours

__all__ = ["TIMER", "Overlay", "OverlayListener", "make_protocol"]


class Overlay(Layer):
    """Keeps the tree over the neighbours that `underlay` reports, by `on_neighbour_up` and `_down`."""

    def __init__(
        self, host: Host, underlay: Underlay, options: TreeOptions, listener: OverlayListener
    ) -> None:
        self._host = host
        self._underlay = underlay
        self._nearby: set[NodeId] = set()
        self._heard_at: dict[NodeId, Micros] = {}  # of each node in `_nearby`, when any frame last came
        self._doubt = round(micros(options.beacons().interval) * DOUBT_INTERVALS)
        self.protocol = make_protocol(host, options, listener, self._nearby)

    # Inputs.

    def on_start(self) -> None:
        self._nearby.update(self._underlay.neighbours())
        self.protocol.on_start()

    def on_stop(self) -> None:
        self.protocol.leave()

    def on_timer(self, name: TimerName) -> None:
        """A timer whose name begins with `TIMER`."""
        match name:
            case (_, "doubt", int() as neighbour):
                self.on_neighbour_down(neighbour)
            case _:
                self.protocol.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        if sender in self._nearby:
            self._heard_at[sender] = self._host.now()
        receive(self._host, self.protocol, sender, payload)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._host.cancel_timer((TIMER, "doubt", neighbour))
        if neighbour not in self._nearby:
            self._nearby.add(neighbour)
            self.protocol.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """R11: a neighbour whose beacons are lost is kept while other frames of it arrive. A busy radio loses
        beacons, and a tree that breaks because of it makes the radio busier still."""
        now = self._host.now()
        heard_at = self._heard_at.get(neighbour)
        if neighbour in self.protocol.links and heard_at is not None and now - heard_at < self._doubt:
            self._host.set_timer((TIMER, "doubt", neighbour), heard_at + self._doubt)
            return
        self._nearby.discard(neighbour)
        self._heard_at.pop(neighbour, None)
        self.protocol.on_neighbour_down(neighbour)

    # For the layer above.

    def neighbours(self) -> list[NodeId]:
        """The neighbours in the tree, in increasing order."""
        return self.protocol.neighbours()

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
        self.protocol.send(neighbour, payload, kind, message, event, own, on_failure)

    @property
    def is_overheard(self) -> bool:
        """Whether somebody may hear what is spread to nobody."""
        return self.protocol.is_overheard

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
        self.protocol.spread(neighbours, payload, kind, message, event, own)


def make_protocol(
    host: Host,
    options: TreeOptions,
    listener: OverlayListener,
    nearby: set[NodeId] | None,
    url: str = "",
) -> TreeProtocol:
    kind = Evolved if options.protocol is ProtocolName.EVOLVED else Original
    return kind(host, options, listener, nearby, url)


def receive(host: Host, protocol: TreeProtocol, sender: NodeId, payload: bytes) -> None:
    """Decode, then act; octets that are no message of ours are dropped and traced."""
    try:
        message = CODEC.decode(payload)
    except WireError as error:
        host.trace(Dropped(host.now(), host.node, DropReason.WIRE, "tree", detail=str(error)))
        return
    protocol.on_message(sender, message)
