"""The port that the layers of a live node see (`roamcast.host.Host`)."""

from collections.abc import Callable, MutableMapping
from random import Random

from roamcast.host import Channel, Frame, Layer, Position, SendFailure, TimerName
from roamcast.runtime.live.air.radio import Radio
from roamcast.runtime.live.port.clock import Clock
from roamcast.runtime.live.port.timers import Timers
from roamcast.runtime.live.report.journal import NodeJournal
from roamcast.trace import Record
from roamcast.units import Micros, NodeId


class LiveHost:
    """One layer of one running node."""

    def __init__(
        self,
        node: NodeId,
        channel: Channel,
        clock: Clock,
        timers: Timers,
        radio: Radio,
        journal: NodeJournal,
        random: Random,
        stable: MutableMapping[str, bytes],
    ) -> None:
        self.node = node
        self.random = random
        self.stable = stable
        self._channel = channel
        self._clock = clock
        self._timers = timers.layer()
        self._radio = radio
        self._journal = journal

    def attach(self, layer: Layer) -> None:
        self._timers.handler = layer.on_timer
        self._radio.receivers[self._channel] = layer.on_receive

    def now(self) -> Micros:
        return self._clock.now

    def set_timer(self, name: TimerName, at: Micros) -> None:
        self._timers.set(name, at)

    def cancel_timer(self, name: TimerName) -> None:
        self._timers.cancel(name)

    def broadcast(self, frame: Frame) -> None:
        self._radio.broadcast(self._channel, frame)

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        assert to != self.node, "a node does not send to itself"
        self._radio.unicast(self._channel, to, frame, on_failure)

    def position(self) -> Position | None:
        return None  # no source of positions is connected yet

    def trace(self, record: Record) -> None:
        self._journal.add(record)
