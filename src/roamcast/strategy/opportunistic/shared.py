"""What every part of one node stands on: its surroundings, its messages and its tables."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from roamcast.kit.protocol import Messenger
from roamcast.kit.spread import Audience
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.opportunistic.adaptation.events import SystemChannel
from roamcast.strategy.opportunistic.board import Board, BoardEntry
from roamcast.strategy.opportunistic.consumers import Consumers
from roamcast.strategy.opportunistic.copies import Copies
from roamcast.strategy.opportunistic.messages import FRAMES, StreamMessage
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.overlay import BrokerOverlay
from roamcast.strategy.opportunistic.stream import PeerStreams
from roamcast.units import Micros, NodeId

StreamHandlers: TypeAlias = Mapping[type[StreamMessage], Callable[[NodeId, Any, Micros], object]]
"""What to do with a message, by its class: called with its sender, the message, and for how long it was held
back on its way."""


class SharedParts(NamedTuple):
    context: StrategyContext
    options: OpportunisticOptions
    messenger: Messenger[Any]  # one hop
    around: Audience
    streams: PeerStreams  # several
    board: Board
    overlay: BrokerOverlay
    consumers: Consumers
    copies: Copies
    channel: SystemChannel

    @classmethod
    def of(
        cls,
        context: StrategyContext,
        options: OpportunisticOptions,
        streams: PeerStreams,
        on_row: Callable[[int, NodeId, BoardEntry | None], None],
    ) -> "SharedParts":
        """`on_row`: see `Board`."""
        channel, messenger = SystemChannel(), Messenger(context.host, FRAMES)
        around = Audience(context.host.node, context.underlay, suppress=True)
        board = Board(messenger, context.underlay, around, options, on_row)
        overlay = BrokerOverlay(context, options, channel, board, streams)
        return cls(
            context,
            options,
            messenger,
            around,
            streams,
            board,
            overlay,
            Consumers(),
            Copies(context.host, options),
            channel,
        )


class NodePart:
    """A part of one node. What it needs beside what is shared it is given by its own constructor."""

    def __init__(self, shared: SharedParts) -> None:
        self._host = shared.context.host
        self._core = shared.context.broker
        self._underlay = shared.context.underlay
        self._options = shared.options
        self._messenger = shared.messenger
        self._around = shared.around
        self._streams = shared.streams
        self._board = shared.board
        self._overlay = shared.overlay
        self._consumers = shared.consumers
        self._copies = shared.copies
        self._channel = shared.channel
