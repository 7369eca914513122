"""Neighbours from beacons: each node periodically broadcasts whom it hears.

A neighbour is a node that we hear and that says it hears us, so that one-way links (unequal radio
ranges) are not taken for usable ones. A neighbour is lost after `allowed_loss` silent intervals, as
the acyclic-overlay work counts them (ALLOWED_BEACON_LOSS, section 5.4; a neighbour is gone when more
than that many beacons in a row are missing). No routes beyond one hop.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import msgspec

from roamcast.event import Count
from roamcast.kit.protocol import MessageLayer, Timer, WireMessage, random_below
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros
from roamcast.wire import Codec

PROMPT_DELAY: Micros = 10 * MILLISECOND  # a prompt beacon waits once to twice this; chosen by us
ROOM = 20  # beacons in a second at one place; chosen by us, as in `kit/rates.py`: 3% of a radio of 250 kbit/s
RIDER_BYTES_MAX = 4_096  # of a strategy in one beacon; chosen by us
NAMED_EVERY = 4  # beacons; chosen by us: who has lost one does not know the sender's neighbours until then
NEIGHBOURS_MAX = 1_000  # named in one beacon; chosen by us: a node hears more than it can use by then


class BeaconOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interval: Annotated[float, msgspec.Meta(ge=0.01, le=3600)] = 1.0  # seconds
    allowed_loss: Annotated[int, msgspec.Meta(ge=0, le=100)] = 2  # beacons in a row
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25  # share of the interval
    # Send a beacon at once for a node heard for the first time: both know each other in milliseconds
    # instead of up to two intervals. Off: the acyclic-overlay work beacons by the clock alone.
    prompt: bool = False
    # The longest interval: while nobody is heard, for there is no link to watch, and in a crowd, where all
    # beacons heard at one place together should not exceed `ROOM` in a second. None: `interval`.
    lone_interval: Annotated[float, msgspec.Meta(ge=0.01, le=3600)] | None = None  # seconds
    # Name whom this node hears in two beacons when that has changed, then in one of `NAMED_EVERY`.
    brief: bool = False


class Beacon(WireMessage, frozen=True, tag=1):
    """`heard`: the nodes whose beacons the sender hears."""

    name = "beacon"
    heard: Annotated[tuple[Count, ...], msgspec.Meta(max_length=NEIGHBOURS_MAX)]


class LadenBeacon(Beacon, frozen=True, tag=2):
    """`rider`: of the sender's strategy."""

    rider: Annotated[bytes, msgspec.Meta(max_length=RIDER_BYTES_MAX)]


class BriefBeacon(WireMessage, frozen=True, tag=3):
    """From a node that hears the same nodes as in its last beacon."""

    name = "beacon"


class LadenBriefBeacon(BriefBeacon, frozen=True, tag=4):
    """`rider`: of the sender's strategy."""

    rider: Annotated[bytes, msgspec.Meta(max_length=RIDER_BYTES_MAX)]


AnyBeacon = Beacon | LadenBeacon | BriefBeacon | LadenBriefBeacon
CODEC: Codec[AnyBeacon] = Codec("beacon", 2, AnyBeacon)


class HeardNode(msgspec.Struct, eq=False):
    """A node whose beacons we hear."""

    silence: Timer  # until it is lost
    named: tuple[NodeId, ...] = ()  # by its last beacon


class Beacons(MessageLayer, Underlay):
    def __init__(self, context: UnderlayContext, options: BeaconOptions) -> None:
        super().__init__(context.host, CODEC)
        self._options = options
        self._interval: Micros = micros(options.interval)
        self._lone_interval: Micros = micros(options.lone_interval or options.interval)
        self._is_steady = self._lone_interval == self._interval
        # Half an interval of grace, so that a beacon that is merely late is not counted as lost.
        self._intervals_held = options.allowed_loss + 1.5
        self._heard: dict[NodeId, HeardNode] = {}
        self._symmetric: set[NodeId] = set()
        self._named: tuple[NodeId, ...] = ()  # by our last beacon
        self._same_turns = 0
        self._sent_at: Micros = -self._interval
        self._timer = Timer(self.host, self._send)
        self._prompt_timer = Timer(self.host, self._send)

    def on_start(self) -> None:
        self._timer.within(self._interval)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        beacon = self.messenger.decode(payload)
        if beacon is None:
            return
        now, node = self.host.now(), self._heard.get(sender)
        heard = beacon.heard if isinstance(beacon, Beacon) else () if node is None else node.named
        hears_us = self.host.node in heard
        if self._options.prompt and (not hears_us or node is None):
            # It does not know us, or not yet that we hear it. The timer is set once: many new neighbours get
            # one beacon, after a delay in which most have sent theirs.
            self._send_by(now + PROMPT_DELAY + random_below(self.host, PROMPT_DELAY))
        if not self._heard and self._lone_interval > self._interval:
            self._timer.after(self._next_in(self._interval))
        if node is None:
            node = self._heard[sender] = HeardNode(Timer(self.host, partial(self._lose, sender)))
        node.named = heard
        interval = self._interval if self._is_steady else self._interval_among(len(heard))
        node.silence.at(now + int(interval * self._intervals_held))
        if hears_us and sender not in self._symmetric:
            self._symmetric.add(sender)
            self._report_up(sender)
        elif not hears_us and sender in self._symmetric:
            self._symmetric.discard(sender)
            self._report_down(sender)
        self._report_ridden(
            sender, beacon.rider if isinstance(beacon, LadenBeacon | LadenBriefBeacon) else b""
        )

    def take_along(self, passenger: Callable[[], bytes]) -> bool:
        self._passenger = passenger
        return True

    def on_acquainted(self, neighbour: NodeId) -> None:
        """`prompt`: the two did not accept each other's beacons until now, so send one soon."""
        if self._options.prompt:
            self._send_by(self.host.now())

    def neighbours(self) -> list[NodeId]:
        return sorted(self._symmetric)

    def neighbours_of(self, neighbour: NodeId) -> list[NodeId]:
        node = self._heard.get(neighbour)
        return [] if node is None else list(node.named)

    def next_hop(self, to: NodeId) -> NodeId | None:
        return to if to in self._symmetric else None

    def distance(self, to: NodeId) -> int | None:
        return 1 if to in self._symmetric else None

    def _send(self) -> None:
        heard = tuple(sorted(self._heard))[:NEIGHBOURS_MAX]
        rider = b"" if self._passenger is None or not heard else self._passenger()
        self._same_turns = self._same_turns + 1 if heard == self._named else 0
        self._named = heard
        if self._options.brief and self._same_turns > 1 and self._same_turns % NAMED_EVERY:
            self.messenger.send(LadenBriefBeacon(rider) if rider else BriefBeacon())
        else:
            self.messenger.send(LadenBeacon(heard, rider) if rider else Beacon(heard))
        self._sent_at = self.host.now()
        self._prompt_timer.cancel()
        self._timer.after(self._next_in(self._interval_among(len(heard))))

    def _interval_among(self, heard: int) -> Micros:
        """Of a node that hears so many others, this one or a neighbour: its beacon names them."""
        if not heard:
            return self._lone_interval
        return max(self._interval, min(self._lone_interval, (heard + 1) * SECOND // ROOM))

    def _next_in(self, interval: Micros) -> Micros:
        """Jitter keeps neighbours that started together from colliding for ever."""
        return interval - int(self.host.random.random() * self._options.jitter * interval)

    def _send_by(self, wanted: Micros) -> None:
        """A quarter of an interval after the last beacon or later: no stranger can make us send at will."""
        self._prompt_timer.at(max(wanted, self._sent_at + self._interval_among(len(self._heard)) // 4))

    def _lose(self, neighbour: NodeId) -> None:
        del self._heard[neighbour]
        if neighbour in self._symmetric:
            self._symmetric.discard(neighbour)
            self._report_down(neighbour)
