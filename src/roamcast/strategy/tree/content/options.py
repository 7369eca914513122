"""The options of content-based routing, part of the strategy's one flat table of options.

Defaults without a source are chosen by us; docs/protocols/tree-routing.md has measurements with them.
"""

from typing import Annotated, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class ContentOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Seconds for which the filters behind a lost link stay announced before they are withdrawn. It should
    # outlast a repair: the acyclic-overlay work measures 501-703 ms (table 6.15), several tries included.
    unsubscription_delay: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 3.0
    # Seconds for which an echo is held back after that, while the withdrawal travels (see `tables.py`).
    echo_delay: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 1.0
    table_retry_interval: Seconds = 0.25  # before an unacknowledged table update is repeated; then doubled
    table_refresh_interval: Seconds = 10.0  # between two reminders of the table that a neighbour should hold
    table_bytes_max: Annotated[int, msgspec.Meta(ge=64, le=32_000)] = 1_400  # of filters in one message
    # Filters announced to one neighbour. If there are more, fewer and wider ones are announced.
    filters_max: Annotated[int, msgspec.Meta(ge=1, le=4_096)] = 16
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 255  # tree links that an event may cross
    # Recovery of lost events: `push`, they are offered to neighbours. Memorized ones are offered always.
    recovery: Literal["none", "push"] = "push"
    recovery_interval: Seconds = 0.5  # before an unanswered digest or request is repeated
    # The age in seconds up to which an event is recovered. At most 60: well below the 120 s for which
    # the duplicate filter remembers a real-time event.
    recovery_time: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0
    recovery_events: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # events kept for recovery
    digest_events: Annotated[int, msgspec.Meta(ge=1, le=4_096)] = 128  # events named in one digest
