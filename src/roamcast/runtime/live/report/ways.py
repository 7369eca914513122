"""Which way the last events went through this node: for `roamcast trace EVENT` and the node's page.

Always on, so it must cost next to nothing: each step is one entry in a ring, and words are made only for a
question. Who handed an event to us is known while its frame is handled; that a strategy sent it on much later
is known too, because each frame of ours says which event it carries.
"""

from collections import deque
from collections.abc import Mapping

import msgspec

from roamcast.event import Event, EventId
from roamcast.runtime.live.inputs import Clock
from roamcast.units import MILLISECOND, Micros, NodeId, seconds
from roamcast.wire.status import EventWay, PassingEvent, WayStep

STEPS_KEPT = 10_000  # chosen by us; some 2 MB
STEPS_PER_TURN = 200  # in a `TURN`; no more are noted, so that the memory reaches back five seconds or more
TURN: Micros = 100 * MILLISECOND
TELLING = ("published", "arrived", "delivered")  # steps that know the topic
STEPS_SHOWN = 500  # so that an answer fits a message of the local socket


class _Step(msgspec.Struct, gc=False):
    """Unknown to the garbage collector, which would otherwise look at thousands of them again and again."""

    at: Micros
    publisher: NodeId
    sequence: int
    what: str
    peer: NodeId | None
    first: str  # what these are depends on `what`
    second: int
    third: int


class EventWays:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[_Step] = deque(maxlen=STEPS_KEPT)
        self._left = STEPS_PER_TURN
        self._turn_ends: Micros = 0
        self.sender: NodeId | None = None  # whose frame is being handled

    def arrived(self, event: Event, hops: int, age: Micros) -> None:
        """The broker has it: published here, or handed over by a neighbour."""
        # `_turned` begins the same way; here, and below, that saves a call for most events of a busy node.
        if self._left > 0 or (self._clock.now >= self._turn_ends and self._turned()):
            self._add(
                _Step(
                    self._clock.now,
                    event.publisher,
                    event.sequence,
                    "arrived" if hops else "published",
                    self.sender,
                    event.topic,
                    hops,
                    age,
                )
            )

    def sent(self, event: EventId, to: NodeId | None, message: str, size: int, attempt: int) -> None:
        if self._left > 0 or self._turned():
            self._add(_Step(self._clock.now, event[0], event[1], "sent", to, message, size, attempt))

    def dropped(self, publisher: NodeId, sequence: int, to: NodeId | None, reason: str) -> None:
        if self._left > 0 or self._turned():
            self._add(_Step(self._clock.now, publisher, sequence, "dropped", to, reason, 0, 0))

    def delivered(self, event: Event, subscriptions: int) -> None:
        if self._left > 0 or (self._clock.now >= self._turn_ends and self._turned()):
            self._add(
                _Step(
                    self._clock.now,
                    event.publisher,
                    event.sequence,
                    "delivered",
                    None,
                    event.topic,
                    subscriptions,
                    0,
                )
            )

    def _add(self, step: _Step) -> None:
        self._left -= 1
        self._steps.append(step)

    def _turned(self) -> bool:
        """Whether the next turn has begun, after this one's steps are used up."""
        if self._clock.now < self._turn_ends:
            return False
        self._turn_ends = self._clock.now + TURN
        self._left = STEPS_PER_TURN
        return True

    def of(self, publisher: NodeId, sequence: int, is_stored: bool, names: Mapping[NodeId, str]) -> EventWay:
        now = self._clock.now
        found = [step for step in self._steps if step.publisher == publisher and step.sequence == sequence]
        peers = [step.peer for step in found[:STEPS_SHOWN] if step.peer is not None]
        return EventWay(
            publisher=publisher,
            sequence=sequence,
            is_stored=is_stored,
            remembered_for=seconds(now - self._steps[0].at) if self._steps else 0.0,
            steps=tuple(
                WayStep(
                    ago=seconds(now - step.at), what=step.what, peer=step.peer, detail=_detail(step)[:100]
                )
                for step in found[:STEPS_SHOWN]
            ),
            steps_total=len(found),
            names={node: names[node] for node in (publisher, *peers) if node in names},
        )

    def lately(self, most: int) -> list[PassingEvent]:
        """What became of the events that were touched last, the last one first."""
        now = self._clock.now
        steps: dict[EventId, list[_Step]] = {}
        for step in reversed(self._steps):
            event = EventId(step.publisher, step.sequence)
            if event in steps or len(steps) < most:
                steps.setdefault(event, []).append(step)
        return [_passing(event, found, now) for event, found in steps.items()]


def _passing(event: EventId, steps: list[_Step], now: Micros) -> PassingEvent:
    """`steps`: the last one first."""
    return PassingEvent(
        publisher=event.publisher,
        sequence=event.sequence,
        topic=next((step.first for step in steps if step.what in TELLING), None),
        age=seconds(now - steps[0].at),
        is_own=any(step.what == "published" for step in steps),
        delivered=sum(step.what == "delivered" for step in steps),
        frames=sum(step.what == "sent" for step in steps),
        dropped=next((step.first for step in steps if step.what == "dropped"), ""),
    )


def _detail(step: _Step) -> str:
    match step.what:
        case "published":
            return f"topic {step.first}" if step.first else ""
        case "arrived":
            hops = "1 hop" if step.second == 1 else f"{step.second} hops"
            return f"{hops} from its publisher, {seconds(step.third):.3f} s old"
        case "sent":
            again = f", attempt {step.third}" if step.third > 1 else ""
            return f"{step.first}, {step.second} octets{again}"
        case "delivered":
            count = "1 subscription" if step.second == 1 else f"{step.second} subscriptions"
            return count if step.second else "addressed to this node"
        case _:
            return str(step.first)
