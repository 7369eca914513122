"""REDS on the reactive overlay manager (5.3, 6.2.4): the strategy `reds`.

The content-based router of `tree`, over links of its own in place of the overlay's, as REDS has TCP streams
between brokers. The manager (`ReactiveManager`) carries control messages only and says which link to open.
There are no beacons, and nobody knows who is in range: a link counts as lost when a frame on it was repeated
in vain (REDS: `hardDisconnect`, which calls `signalLostNeighbor`), when the other end says so, or when the
manager misses its group hellos. A scenario names this module (`modules`), and then the strategy, with the
options of `tree`.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, TypeAlias, cast

from roamcast.host import Frame, Host, SendFailure
from roamcast.kit.confirm import Backoff
from roamcast.kit.protocol import Messenger, OnFailure, Timer, WireMessage
from roamcast.strategy import STRATEGIES
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.overlay.manager import ReactiveManager
from roamcast.strategy.tree.overlay.multicast_table import OverlayListener
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.strategy.tree.strategy import Tree
from roamcast.units import MILLISECOND, NodeId
from roamcast.wire import Codec

# Of a stream, after the link layer's own repeats; chosen by us: the least timeout of usual systems, and a
# stream that is given up after 1.4 s. (Theirs were those of Windows, and the text gives no figure.)
RETRANSMISSION = Backoff(200 * MILLISECOND, attempts=3)


class StreamOpened(WireMessage, frozen=True, tag=1):
    name = "open"


class StreamEnded(WireMessage, frozen=True, tag=2):
    name = "end"


class StreamData(WireMessage, frozen=True, tag=3):
    name = "data"

    payload: bytes


StreamMessage: TypeAlias = StreamOpened | StreamEnded | StreamData
STREAMS: Codec[StreamMessage] = Codec("stream", 200, StreamMessage)  # no version of the manager's messages


class Streams:
    """REDS's transport. To the router it is what `Overlay` is, to the manager its `Connector`."""

    is_overheard = False

    def __init__(self, host: Host, options: TreeOptions, listener: OverlayListener) -> None:
        self._host = host
        self._listener = listener
        self._messenger: Messenger[StreamMessage] = Messenger(host, STREAMS)
        self._open: set[NodeId] = set()
        self._manager = ReactiveManager(host, options, self)
        self.on_start = self._manager.on_start
        self.on_stop = self._manager.stop
        self.protocol = self  # of whose questions only this is asked:

    def set_member(self, is_member: bool) -> None:
        """Every dispatcher is on the tree (4.1)."""

    # For the router.

    def neighbours(self) -> list[NodeId]:
        return sorted(self._open)

    def send(self, neighbour: NodeId, data: Frame, on_failure: OnFailure | None = None) -> None:
        if neighbour in self._open:
            payload = STREAMS.encode(StreamData(data.payload))
            self._carry(neighbour, Frame(payload, data.kind, data.message, data.event, data.own))
        elif on_failure is not None:
            Timer(self._host, partial(on_failure, SendFailure.LINK)).after(0)

    def spread(self, neighbours: Iterable[NodeId], data: Frame) -> None:
        for neighbour in neighbours:
            self.send(neighbour, data)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        if not STREAMS.is_of_this_version(payload):
            self._manager.on_receive(sender, payload)
            return
        message = self._messenger.decode(payload)
        is_end = isinstance(message, StreamEnded)
        if isinstance(message, StreamOpened) or sender in self._manager.tree_neighbours():
            self._begin(sender)
        if is_end:
            self._hard_disconnect(sender)
        elif isinstance(message, StreamData):
            if sender in self._open:
                self._listener.on_data(sender, message.payload)
            else:
                self._messenger.send(StreamEnded(), sender, own=False)

    # For the manager (table 5.3, SysConnector).

    def id(self) -> NodeId:
        return self._host.node

    def url(self) -> str:
        return str(self._host.node)

    def open_link(self, url: str) -> None:
        self._begin(int(url))
        self._carry(int(url), self._messenger.frame(StreamOpened()))

    def close_link(self, neighbour: NodeId) -> None:
        if neighbour in self._open:
            self._messenger.send(StreamEnded(), neighbour)
            self._end(neighbour)

    # Streams.

    def _begin(self, peer: NodeId) -> None:
        if peer not in self._open:
            self._open.add(peer)
            self._listener.on_link_up(peer)

    def _end(self, peer: NodeId) -> None:
        if peer in self._open:
            self._open.discard(peer)
            self._listener.on_link_down(peer)

    def _carry(self, peer: NodeId, frame: Frame, repeats: int = 0) -> None:
        def failed(_: SendFailure) -> None:
            if peer not in self._open:
                return
            if RETRANSMISSION.is_over(repeats):
                self._hard_disconnect(peer)
            else:
                again = partial(self._carry, peer, frame, repeats + 1)
                Timer(self._host, again).after(RETRANSMISSION.wait(repeats))

        self._host.unicast(peer, frame, failed)

    def _hard_disconnect(self, peer: NodeId) -> None:
        self._end(peer)
        self._manager.signal_lost_neighbour(peer)


class RedsBroker(Tree):
    def make_overlay(self, context: StrategyContext) -> Overlay:
        return cast(Overlay, Streams(context.host, self.options, self))


class RedsOptions(TreeOptions, frozen=True, kw_only=True):
    def underlay_options(self) -> dict[str, Any]:
        """There are no beacons to tune."""
        return {}


STRATEGIES.add("reds", RedsOptions, RedsBroker)
