"""Chapar's parameters. Seconds, as in the scenario file."""

from typing import Annotated, Any, Literal

import msgspec

from roamcast.event import PAYLOAD_BYTES_MAX
from roamcast.strategy.chapar.node_vector import NODES_MAX

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class ChaparOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    brokers: Literal["mpr", "all"] = "mpr"  # "all": every node a broker, the baseline of figure 8
    hello_interval: Seconds = 2.0  # of OLSR, figure 4; used where Chapar brings its own underlay
    tc_interval: Seconds = 5.0  # likewise
    consistency_interval: Seconds = 30.0  # the paper gives none; its time slot T is 30 s
    dismissal_transient_time: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 300.0  # none given either
    # Changes of routes never end while nodes move, and each look at them makes the underlay compute.
    role_interval: Seconds = 2.0  # at most one look for brokers in this time; OLSR's own HELLO interval
    hash_bits: Annotated[int, msgspec.Meta(ge=1, le=64)] = 16  # formula (1): 0.01 false positives
    attribute_slots: Annotated[int, msgspec.Meta(ge=3, le=16)] = 5  # section 5.2 has 5 filter ID fields
    event_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=PAYLOAD_BYTES_MAX)] = 2048  # section 5.2
    met_entries_max: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 50  # section 5.2
    fmt_entries_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20_000  # filter identifiers
    node_vectors: Literal["bitmap", "bloom"] = "bitmap"  # "bloom" where addresses are arbitrary
    nodes_max: Annotated[int, msgspec.Meta(ge=2, le=NODES_MAX)] = 1024  # bits of a node vector
    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # each flooding broker waits up to this
    order_timeout: Seconds = 5.0  # how long an event waits for an earlier one of its publisher
    retries: Annotated[int, msgspec.Meta(ge=0, le=16)] = 4  # of a real-time event over broken links
    retry_delay: Seconds = (
        0.5  # before the first; doubled each time, so that the underlay can mend its routes
    )
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 256  # frames that wait for a way, a broker, a turn

    def underlay_options(self) -> dict[str, Any]:
        """What the strategy's own underlay is to be made with."""
        return {"hello_interval": self.hello_interval, "tc_interval": self.tc_interval}
