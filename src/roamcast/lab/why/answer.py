"""What `why` answers: the reasons, the values that hold an explanation, and how both are shown.

`inquest.py` finds them; nothing here looks at a trace.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from roamcast.event import EventId
from roamcast.units import Micros, NodeId, seconds


class LossReason(Enum):
    """Why a pair was not served. The value is what people read."""

    SUBSCRIBER_CRASHED = "subscriber_crashed"
    PUBLISHER_CRASHED = "publisher_crashed"
    RELAY_CRASHED = "relay_crashed"
    NO_PATH = "no_path"
    COLLISION = "collision"
    FADING = "fading"  # lost by the radio's random loss, or out of range before the frame's end
    QUEUE_FULL = "queue_full"
    RETRIES = "retries"  # unicast: no attempt was acknowledged
    LINK_BROKE = "link_broke"  # stood when the event came, not when it was sent on
    EXPIRED = "expired"  # hop limit or lifetime
    STORE_FULL = "store_full"  # pushed out of a bounded store
    SUPERSEDED = "superseded"  # a newer retained event of its topic had taken its place
    STALE_ROUTE = "stale_route"  # arrived by a route that the node had given up, and was refused
    WIRE = "wire"  # arrived, but could not be decoded
    SEAL = "seal"  # heard, but not opened: forged, replayed, or of a node that had not proven itself
    NOT_SENT = "not_sent"  # a holder with a link did not send: its strategy's choice
    LATE_SUBSCRIBER = "late_subscriber"  # memorized, but nobody served it from memory
    IN_ORDER = "in_order"  # arrived, and waited for an earlier one of its producer
    RUN_ENDED = "run_ended"  # still on its way when the run ended
    UNSUBSCRIBED = "unsubscribed"  # meanwhile
    OVERHEARD = "overheard"  # heard in broadcasts for overlay neighbours of their senders, and it was none
    FILTERED = "filtered"  # arrived, stood subscribed, was not handed over: a defect
    # no record tells the reason: usual in live traces, elsewhere a defect of `inquest.py`
    UNKNOWN = "unknown"


class Explanation(NamedTuple):
    """One missing pair. The event got as far as `holder` and did not pass to `missed`, at time `t`."""

    event: EventId
    node: NodeId
    reason: LossReason
    holder: NodeId
    missed: NodeId
    t: Micros
    detail: str


class DeliveryPath(NamedTuple):
    """The path of an event to a node that delivered it: the first copy's relays, publisher first."""

    node: NodeId
    t: Micros  # of the first delivery
    path: tuple[NodeId, ...]


def counts(explanations: Iterable[Explanation]) -> dict[LossReason, int]:
    """How often each reason occurs, the most frequent first."""
    counted = Counter(explanation.reason for explanation in explanations)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0].value)))


def to_text(
    explanations: Sequence[Explanation], ways: Sequence[DeliveryPath] = (), limit: int | None = None
) -> str:
    """Plain lines: how many journeys broke; by reason how many pairs, and of those at most `limit`; then the
    paths."""
    counted = counts(explanations)
    none, down = counted.get(LossReason.NO_PATH, 0), counted.get(LossReason.SUBSCRIBER_CRASHED, 0)
    of_down = f" for {down} the subscriber was down," if down else ""
    lines = [
        f"{len(explanations)} expected deliveries did not happen: for {none} no journey existed,{of_down}"
        f" for {len(explanations) - none - down} one did, and broke"
    ]
    for reason, count in counted.items():
        lines.append(f"{count:8d}  {reason.value}")
        lines += [
            f"          event {event_text(found.event)} to node {found.node}"
            f" at {_place(found)}, {clock(found.t)}: {found.detail}"
            for found in [each for each in explanations if each.reason is reason][:limit]
        ]
        if limit is not None and count > limit:
            lines.append(f"          … and {count - limit} more; --all lists them")
    lines += [f"delivered to node {w.node} at {clock(w.t)} by {' → '.join(map(str, w.path))}" for w in ways]
    return "\n".join(lines)


def to_json(explanations: Sequence[Explanation], ways: Sequence[DeliveryPath] = ()) -> str:
    """One object: the reasons counted, every missing pair, and the paths if an event was asked for."""
    reasons = {reason.value: count for reason, count in counts(explanations).items()}
    answer = {
        "reasons": reasons,
        "missing": [e._asdict() | {"event": event_text(e.event)} for e in explanations],
        "ways": [w._asdict() for w in ways],
    }
    return msgspec.json.encode(answer).decode()


def event_text(event: EventId) -> str:
    """An event's name on the command line: `publisher:sequence`."""
    return f"{event.publisher}:{event.sequence}"


def clock(t: Micros) -> str:
    """A time as people read it."""
    return f"{seconds(t):.6f} s"


def _place(explanation: Explanation) -> str:
    if explanation.holder == explanation.missed:
        return f"node {explanation.missed}"
    return f"hop {explanation.holder} → {explanation.missed}"
