"""A host driven by hand, for tests of protocol layers: no runtime, no waiting.

host = FakeHost(node=3)
layer = MyLayer(host)
host.attach(layer)
layer.on_receive(sender=4, payload=...)
host.advance(2 * SECOND)            # timers fire in order, time stands still in each
assert host.sent == [...]
"""

from collections.abc import Callable, MutableMapping
from random import Random
from typing import NamedTuple

from roamcast.host import CoreTimer, Frame, Layer, Position, SendFailure, TimerName
from roamcast.trace import Record
from roamcast.units import Micros, NodeId


class Sent(NamedTuple):
    """One frame that a layer handed to the radio. `to` is None for a broadcast."""

    at: Micros
    to: NodeId | None
    frame: Frame
    on_failure: Callable[[SendFailure], None] | None


class FakeHost:
    def __init__(
        self,
        node: NodeId,
        *,
        seed: int = 1,
        now: Micros = 0,
        stable: MutableMapping[str, bytes] | None = None,
    ) -> None:
        self.node = node
        self.random = Random(seed)
        self.stable: MutableMapping[str, bytes] = {} if stable is None else stable
        self.sent: list[Sent] = []
        self.records: list[Record] = []
        self.place: Position | None = None
        self._now = now
        self._layer: Layer | None = None
        self._timers: dict[TimerName, tuple[Micros, int]] = {}
        self._number = 0

    def attach(self, layer: Layer) -> None:
        self._layer = layer

    def advance(self, by: Micros) -> None:
        """Let time pass; timers that fall due fire in order of time, then of setting."""
        until = self._now + by
        while self._timers:
            name, (at, _) = min(self._timers.items(), key=lambda item: item[1])
            if at > until:
                break
            del self._timers[name]
            self._now = max(self._now, at)
            assert self._layer is not None, "attach a layer before a timer is due"
            if isinstance(name, CoreTimer):
                name.due()
            else:
                self._layer.on_timer(name)
        self._now = until

    def timers(self) -> dict[TimerName, Micros]:
        return {name: at for name, (at, _) in self._timers.items()}

    # The port.

    def now(self) -> Micros:
        return self._now

    def set_timer(self, name: TimerName, at: Micros) -> None:
        self._number += 1
        self._timers[name] = (at, self._number)

    def cancel_timer(self, name: TimerName) -> None:
        self._timers.pop(name, None)

    def broadcast(self, frame: Frame) -> None:
        self.sent.append(Sent(self._now, None, frame, None))

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        self.sent.append(Sent(self._now, to, frame, on_failure))

    def airtime(self, octets: int) -> Micros:
        return 1_000 + 4 * octets  # 2 Mbit/s, and headers

    def position(self) -> Position | None:
        return self.place

    def trace(self, record: Record) -> None:
        self.records.append(record)
