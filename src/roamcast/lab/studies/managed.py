"""Events as objects of the proactive overlay manager (5.2, 6.2.2): the strategy `managed`.

Tables 6.5 to 6.11 of the acyclic-overlay work were measured with the manager itself: an audio stream is sent
as objects to every node, and a client takes those of the source that it listens to. So here: an event is an
object, spread over the tree once, and the broker of each node sorts out who wants it. There is no
content-based routing and no recovery, and nothing is memorized for later. A scenario names this module
(`modules`), and then the strategy, with the options of `tree`.

"Own vs. other control traffic" is counted as table 6.2 has it, by what a node receives: the requests, replies
and activations of its own operations, and those of others. In the work all of them are broadcasts (5.2.3).
Here replies and activations go to one node, and count for all that its sender has in range.
"""

from contextlib import suppress

import msgspec

from roamcast.errors import WireError
from roamcast.event import Event, EventId
from roamcast.host import TimerName
from roamcast.strategy import STRATEGIES
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.tree.overlay.manager import ObjectTree
from roamcast.strategy.tree.overlay.messages import CODEC as OVERLAY
from roamcast.strategy.tree.overlay.messages import OfRequest, RouteRequest
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.units import NodeId
from roamcast.wire import Codec


class ManagedEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    event: Event


CODEC: Codec[ManagedEvent] = Codec("managed event", 1, ManagedEvent)


class Managed(Strategy):
    def __init__(self, context: StrategyContext, options: TreeOptions) -> None:
        self._host = context.host
        self._broker = context.broker
        self._underlay = context.underlay
        self._tree = ObjectTree(context.host, context.underlay, options, self._on_object, _event_in)
        self._overlay = self._tree.overlay

    def publish(self, event: Event) -> None:
        self._tree.send(CODEC.encode(ManagedEvent(event)))

    def on_start(self) -> None:
        self._overlay.on_start()

    def on_stop(self) -> None:
        self._overlay.on_stop()

    def on_timer(self, name: TimerName) -> None:
        self._overlay.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        self._count(sender, payload)
        self._overlay.on_receive(sender, payload)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._overlay.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._overlay.on_neighbour_down(neighbour)

    def _count(self, sender: NodeId, payload: bytes) -> None:
        with suppress(WireError):
            message = OVERLAY.decode(payload)
            if isinstance(message, OfRequest):
                now, node = self._host.now(), self._host.node
                hearers = {node}
                if not isinstance(message, RouteRequest):
                    hearers.update(self._underlay.neighbours_of(sender))
                own = message.requester in hearers
                for whose, receivers in (("own", own), ("others", len(hearers) - own)):
                    octets = len(payload) * receivers
                    self._host.trace(OverlayChanged(now, node, "handled", role=whose, value=octets))

    def _on_object(self, data: bytes, hops: int) -> None:
        try:
            event = CODEC.decode(data).event
        except WireError as error:
            now, node = self._host.now(), self._host.node
            self._host.trace(Dropped(now, node, DropReason.WIRE, "object", detail=str(error)))
            return
        if self._broker.observe((event.publisher, event.sequence), event.lifetime):
            self._broker.deliver(event, hops)


def _event_in(data: bytes) -> EventId | None:
    try:
        return CODEC.decode(data).event.id
    except WireError:
        return None


STRATEGIES.add("managed", TreeOptions, Managed, default_underlay="beacons")
