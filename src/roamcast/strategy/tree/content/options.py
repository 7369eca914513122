"""The options of content-based routing, part of the strategy's one flat table of options.

Defaults without a source are chosen by us; docs/protocols/tree-routing.md has measurements with them.
"""

from enum import Enum
from typing import Annotated, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class Forwarding(Enum):
    """How an event goes to the tree neighbours that want it."""

    UNICAST = "unicast"  # a frame for each, acknowledged by the radio
    BROADCAST = "broadcast"  # one frame for all, as MAODV forwards multicast data
    MIXED = "mixed"  # unicast where one wants it, broadcast where several do


class ContentOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Seconds for which the filters behind a lost link stay announced before they are withdrawn. It should
    # outlast a repair: the acyclic-overlay work measures 501-703 ms (table 6.15), several tries included.
    unsubscription_delay: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 3.0
    # Seconds for which an echo is held back after that, while the withdrawal travels (see `tables.py`).
    echo_delay: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 1.0
    table_retry_interval: Seconds = 0.25  # before an unacknowledged table update is repeated; then doubled
    table_refresh_interval: Seconds = 10.0  # between two reminders of the table that a neighbour should hold
    table_bytes_max: Annotated[int, msgspec.Meta(ge=64, le=32_000)] = 1_400  # of filters in one message
    # Filters announced to one neighbour. If there are more, one that matches everything is announced.
    filters_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4_096
    forwarding: Forwarding = Forwarding.BROADCAST  # how an event goes to the tree neighbours that want it
    event_retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 3  # beyond the link layer's own; unicast only
    event_retry_interval: Seconds = 0.05  # a link pauses this long after a failure
    event_pace: Seconds = 0.01  # at least, between two pairs of events that had to wait
    pending_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_000  # events waiting for one link
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 255  # tree links that an event may cross
    # Recovery of lost events: `push`, they are offered to neighbours; `pull`, neighbours are asked for them.
    recovery: Literal["none", "push", "pull"] = "push"
    recovery_interval: Seconds = 0.5  # between two pulls; before an unanswered offer or request is repeated
    # The age in seconds up to which an event is recovered. At most 60: well below the 120 s for which
    # the duplicate filter remembers a real-time event.
    recovery_time: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0
    recovery_events: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # events kept for recovery
    digest_events: Annotated[int, msgspec.Meta(ge=1, le=4_096)] = 128  # events named in one digest
