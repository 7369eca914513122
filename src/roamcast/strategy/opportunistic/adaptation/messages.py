"""What monitors and directories of different nodes say to each other: letters, tags 60 to 79."""

from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import Count, Name
from roamcast.filter.filter import FILTER_BYTES_MAX

VALUES_MAX = 16
PEERS_MAX = 64  # nodes of one question about latencies

Load = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # hundredths of a capacity


class AdaptationWire(
    msgspec.Struct, frozen=True, array_like=True, tag_field="message", forbid_unknown_fields=True
):
    """The form of the strategy's other letters (`messages.py`, which takes these into its union)."""


class Watch(AdaptationWire, frozen=True, tag=60):
    """Tell me of readings of this kind that pass the filter. Must be said again within its lifetime."""

    number: Count
    kind: Name
    filter: Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)]


class Unwatch(AdaptationWire, frozen=True, tag=61):
    number: Count


class Reading(AdaptationWire, frozen=True, tag=62):
    """One reading for the watch of this number; names and values in pairs."""

    number: Count
    kind: Name
    names: Annotated[tuple[Name, ...], msgspec.Meta(max_length=VALUES_MAX)]
    values: Annotated[tuple[float, ...], msgspec.Meta(max_length=VALUES_MAX)]


class Report(AdaptationWire, frozen=True, tag=63):
    """For a central directory: this broker's load, and how far it is to others (broker, hops, …)."""

    load: Load
    accepts: bool
    distances: Annotated[tuple[Count, ...], msgspec.Meta(max_length=510)] = ()


class Volunteer(AdaptationWire, frozen=True, tag=64):
    """A node that is no broker and would be one."""


class Ask(AdaptationWire, frozen=True, tag=65):
    """The nearest broker below this load; without a load, the nearest volunteer; with `near`, the broker
    nearest to that one, itself first."""

    number: Count
    below: Load | None = None
    near: Count | None = None


class Answer(AdaptationWire, frozen=True, tag=66):
    """`load` and `hops` (from `near`) where a broker near another was asked for."""

    number: Count
    node: Count | None = None
    load: Load = 0
    hops: Count = 0


class BecomeBroker(AdaptationWire, frozen=True, tag=67):
    """To a volunteer: be a broker from now on."""


class Ping(AdaptationWire, frozen=True, tag=68):
    """Answer at once."""

    number: Count


class Pong(AdaptationWire, frozen=True, tag=69):
    number: Count


class Measure(AdaptationWire, frozen=True, tag=70):
    """Ping these nodes, and tell how far they are in time."""

    number: Count
    peers: Annotated[tuple[Count, ...], msgspec.Meta(max_length=PEERS_MAX)]


class Latencies(AdaptationWire, frozen=True, tag=71):
    """Node and microseconds of one way, in pairs; who did not answer is not there."""

    number: Count
    pairs: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * PEERS_MAX)] = ()


PingLetter: TypeAlias = Ping | Pong | Measure | Latencies
AdaptationLetter: TypeAlias = (
    Watch | Unwatch | Reading | Report | Volunteer | Ask | Answer | BecomeBroker | PingLetter
)
