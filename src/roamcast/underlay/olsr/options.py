"""The parameters of OLSR, with the defaults of RFC 3626, section 18. The bounds on tables are our own."""

from typing import Annotated, TypeAlias

import msgspec

from roamcast.wire.olsr import WILL_ALWAYS, WILL_DEFAULT

# The largest validity that the format can express is 3968 s, and three intervals must fit.
Interval: TypeAlias = Annotated[float, msgspec.Meta(ge=0.1, le=1_000)]
Length: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class OlsrOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hello_interval: Interval = 2.0  # seconds
    tc_interval: Interval = 5.0  # seconds
    hold_intervals: Annotated[float, msgspec.Meta(ge=1, le=3)] = 3.0  # NEIGHB_HOLD_TIME and TOP_HOLD_TIME
    duplicate_hold: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 30.0  # DUP_HOLD_TIME
    jitter: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.25  # MAXJITTER as a share of hello_interval
    willingness: Annotated[int, msgspec.Meta(ge=0, le=WILL_ALWAYS)] = WILL_DEFAULT
    # Section 15: 0 advertises the nodes that chose us, 1 our own relays too, 2 all neighbours.
    tc_redundancy: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    link_layer_notification: bool = False  # section 13: a strategy's failed unicast counts as a lost link
    # How long a link that the link layer reported stays lost; HELLOs do not count meanwhile.
    # None: for NEIGHB_HOLD_TIME, as section 13 has it.
    lost_hold: Annotated[float, msgspec.Meta(ge=0, le=3_000)] | None = None  # seconds
    # Send HELLOs and TCs ahead of time when what they say has changed (section 9.3 allows it for TCs).
    prompt: bool = False
    relay_jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None  # seconds; None: as `jitter`
    # Ours: the longest validity that is accepted, so that a forged number cannot poison a table for an
    # hour (the format allows 3968 s). It exceeds the hold times of every interval up to 100 s.
    validity_max: Annotated[float, msgspec.Meta(ge=1, le=3_968)] = 300.0
    packet_max: Annotated[int, msgspec.Meta(ge=100, le=65_507)] = (
        1_472  # octets: Ethernet's 1500 less IP and UDP
    )
    forward_max: Length = 256  # messages that wait to be relayed
    links_max: Length = 512
    two_hop_max: Length = 4_096  # addresses per neighbour
    duplicates_max: Length = 8_192
    topology_max: Length = 65_536  # tuples
    associations_max: Length = 4_096
