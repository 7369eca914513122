"""The parameters of Pub/Sub ODMRP, by the paper's names where it has one. Times are seconds.

Defaults without a section of the paper are chosen by us. The jitter was tuned on runs like those of Figure 10
(`roamcast reproduce odmrp/figure-10`).
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

from roamcast.strategy.odmrp.summary.geometry import DEFAULT, SummaryOptions
from roamcast.units import SECOND, Micros

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Delay: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=60)]
Bound: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

SETTLE_TIME: Micros = 3 * SECOND
"""How long after its Join Request an event is kept for members that answer; chosen by us."""

Grouping: TypeAlias = Literal["least_constrained", "graph", "k_means", "none"]


class OdmrpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # How the publisher's broker makes channels of the subscriptions it learns (section 3.4). `none` is
    # plain ODMRP: one group for all, no digests, no summaries, data goes to every member.
    grouping: Grouping = "k_means"
    k: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None  # groups of `k_means`; None: by a heuristic
    # Of `k_means`: who is farther from the main group is in no channel, and is served by its own summary
    # (3.4.3). From 0, equal, to 1, nothing in common; None: all are in channels.
    exclude_distance: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    refresh_interval: Seconds = 5.0  # between two Join Requests of an active publisher (section 4.1)
    forwarding_timeout: Seconds = 25.0  # of a forwarder, after the last Join Request (4.1)
    # Join Requests carry what is common to all events of their type, not the digests of events (3.5.1). None:
    # where the events of a publisher differ.
    advertisement: bool | None = None
    # What a relay compares with the digest of a data packet beyond its channel (3.5.2, "optionally"): the
    # subscriptions that came by the branches below it (`branch`), or nothing (`channel`).
    relay_filter: Literal["branch", "channel"] = "branch"
    # Refresh interval and forwarding timeout follow the predicted lifetime of links (3.6). Without
    # positions nothing changes.
    adapt_refresh: bool = False
    refresh_interval_max: Seconds = 30.0  # with `adapt_refresh`
    radio_range: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 250.0  # metres; used by the prediction only
    request_delay: Delay = 0.5  # random delay, at most, of a Join Request of a publisher with members
    jitter: Delay = 0.04  # a relay waits up to this before it relays a Join Request or data
    # Lost events are named to neighbours and asked for; ours, not the paper's. Memorized events are handed
    # over with or without it.
    repair: bool = True
    carry: bool = True  # brokers take memorized events that they do not want, for later subscribers
    table_retries: Annotated[int, msgspec.Meta(ge=0, le=16)] = 2  # before another upstream node is tried
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 32  # radio hops
    summary: SummaryOptions = DEFAULT  # the sizes of summaries; all nodes of a network must agree on them
    # Clients without a broker of their own (section 4). Who is a broker is said by the scenario's roles.
    client_hops: Annotated[int, msgspec.Meta(ge=1, le=32)] = 3  # how far a client looks for a broker
    clients_max: Bound = 256  # that one broker serves
    digests_max: Annotated[int, msgspec.Meta(ge=1, le=64)] = 16  # in one Join Request; if more, all are asked
    channels_max: Annotated[int, msgspec.Meta(ge=1, le=62)] = 32  # of one publisher
    publishers_max: Bound = 1_024  # publishers for which this node keeps a route
    members_max: Bound = 1_024  # members of one publisher, here and at its relays
    recent_max: Bound = 256  # events of this publisher, kept for members that answer later
    pending_max: Bound = 10_000  # data packets that wait for their jitter to end
