"""What the windows need of a segment: its publications, subscriptions and deliveries, and its frames counted.

Most records of a trace are frames. They are summed up here, where segments are read side by side, so that
what travels on is small.

`ClockDelays`: how far the clocks of two machines differ, as far as the events that went between them prove
it. A node stamps its records with its machine's monotonic clock, and a segment's head has the wall clock's
reading of that clock's zero. So nodes of one machine share an axis exactly, and nodes of two machines as well
as their wall clocks agree. An event that is delivered before it was published proves that they do not. Then,
as in NTP, the difference is half of what the shortest delays of the two directions differ by; with one
direction only, the least that makes no delay negative. Where no delay is negative nothing is corrected: the
correction would be within the delays themselves.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec

from roamcast.errors import FileError, RoamcastError
from roamcast.filter import Filter
from roamcast.runtime.live.report.segments import SegmentHead, TraceSegment, parse_segment
from roamcast.trace import Delivered, OverlayChanged, Published, Record, Subscribed
from roamcast.units import MILLISECOND, Micros, NodeId

NUMBER_MAX = 2**50  # of a field; sums of them still fit 63 bits; as microseconds it is 35 years

Delivery = tuple[Micros, NodeId, NodeId, int, int, bool]
"""The fields of `Delivered`, in their order."""


class Extract(msgspec.Struct, frozen=True, kw_only=True):
    """One segment, reduced. Times are of the machine's monotonic clock."""

    file: str
    head: SegmentHead
    closed: Micros
    stopped: bool  # the node stopped in good order
    publications: list[Published]
    subscriptions: list[Subscribed]
    deliveries: list[Delivery]
    overlay: list[OverlayChanged] = []
    # By window of the wall clock: control frames and their octets, data frames and theirs.
    traffic: dict[Micros, list[int]]

    @property
    def base(self) -> Micros:
        """Unix time of the monotonic clock's zero, as the segment has it."""
        return self.head.wall - self.head.epoch


class _Frame(msgspec.Struct):
    t: Annotated[Micros, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
    kind: str
    size: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


_FRAME = b'["transmissions",'
_attributes = msgspec.json.Decoder(dict[str, bool | int | float | str | None]).decode
_frame = msgspec.json.Decoder(tuple[str, _Frame]).decode
_KINDS: dict[bytes, Callable[[bytes], tuple[str, Any]]] = {
    b'["publications",': msgspec.json.Decoder(tuple[str, Published]).decode,
    b'["subscriptions",': msgspec.json.Decoder(tuple[str, Subscribed]).decode,
    b'["deliveries",': msgspec.json.Decoder(tuple[str, Delivered]).decode,
    b'["overlay",': msgspec.json.Decoder(tuple[str, OverlayChanged]).decode,
}


def extract(data: bytes, file: str, window: Micros) -> Extract:
    """Reduce a segment, given by its octets; `FileError` if it is not whole."""
    segment = parse_segment(data, file)
    try:
        return _extract(segment, file, window)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileError(file, f"holds a record that is none: {error}") from None


def check(record: Record, where: str) -> None:
    """`FileError` for what is a record by its form, and would end whoever computes with it."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, int) and abs(value) > NUMBER_MAX:
            raise FileError(where, f"has {name} = {value}; allowed: up to 2**50")
    try:
        if isinstance(record, Published):
            _attributes(record.attributes)
        elif isinstance(record, Subscribed) and record.stands:
            Filter.parse(record.filter)
    except (msgspec.MsgspecError, RoamcastError, UnicodeError) as error:
        raise FileError(where, f"holds an event or a filter that is none: {error}") from None


def with_ends(subscriptions: Iterable[Subscribed], ends: dict[NodeId, list[Micros]]) -> list[Subscribed]:
    """Subscriptions, and their ends where their node stopped or began anew: its clients subscribe again."""
    found = list(subscriptions)
    since: dict[tuple[NodeId, int], Micros] = {}
    for record in found:
        key = (record.node, record.subscription)
        since[key] = min(record.t, since.get(key, record.t))
    for (node, number), first in since.items():
        found += [Subscribed(t, node, number, "", False) for t in ends.get(node, ()) if t > first]
    return found


def _extract(segment: TraceSegment, file: str, window: Micros) -> Extract:
    head = segment.head
    moved, wall = head.epoch, head.wall
    if max(map(abs, (head.epoch, head.opened, segment.end.closed))) > NUMBER_MAX or abs(wall) > 2**53:
        raise FileError(file, "has clocks that no machine has")
    found: dict[type, list[Any]] = {
        Published: [],
        Subscribed: [],
        Delivered: [],
        OverlayChanged: [],
    }
    traffic: dict[Micros, list[int]] = {}
    for line in segment.lines:
        if line.startswith(_FRAME):
            frame = _frame(line)[1]
            sums = traffic.setdefault((frame.t + wall) // window * window, [0, 0, 0, 0])
            at = 2 if frame.kind == "data" else 0
            sums[at] += 1
            sums[at + 1] += frame.size
        elif decode := _KINDS.get(line[: line.find(b",") + 1]):
            record = decode(line)[1]
            check(record, file)
            found[type(record)].append(msgspec.structs.replace(record, t=record.t + moved))
    return Extract(
        file=file,
        head=head,
        closed=segment.end.closed + moved,
        stopped=segment.end.why == "stopped",
        publications=found[Published],
        subscriptions=found[Subscribed],
        deliveries=[msgspec.structs.astuple(record) for record in found[Delivered]],
        overlay=found[OverlayChanged],
        traffic=traffic,
    )


PAIRS_MAX = 10_000  # chosen by us, as is the next
STEP: Micros = 100 * MILLISECOND  # a wall clock that moved by more was set anew


class ClockDelays(msgspec.Struct):
    """The shortest delay seen from each clock to each other one, as their stamps have it."""

    shortest: dict[str, dict[str, Micros]] = {}

    def observe(self, publisher: str, receiver: str, delay: Micros) -> None:
        if publisher == receiver:
            return
        known = self.shortest.setdefault(publisher, {})
        if receiver in known:
            known[receiver] = min(known[receiver], delay)
        elif sum(map(len, self.shortest.values())) < PAIRS_MAX:
            known[receiver] = delay

    def forget(self, clock: str) -> None:
        """The clock was set: what was measured with it says nothing any more."""
        self.shortest.pop(clock, None)
        for known in self.shortest.values():
            known.pop(clock, None)

    def ahead(self, receiver: str, publisher: str) -> Micros:
        """How far the receiver's clock is ahead of the publisher's; 0 where nothing proves a difference."""
        there = self.shortest.get(publisher, {}).get(receiver)
        back = self.shortest.get(receiver, {}).get(publisher)
        if min(0 if there is None else there, 0 if back is None else back) >= 0:
            return 0
        if there is None:
            return -(back or 0)
        return there if back is None else (there - back) // 2
