"""Chapar's parameters. Seconds, as in the scenario file.

Two named sets. `paper` is what the paper gives, or what was chosen where it gives nothing. `prompt` is for
live nodes on fast links: the same protocol, which acts on what the link layer and its neighbours tell it
instead of waiting for the next interval, with tables of a size that today's devices have.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from roamcast.event import PAYLOAD_BYTES_MAX
from roamcast.strategy.chapar.tables.node_vector import NODES_MAX

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Entries = Annotated[int, msgspec.Meta(ge=1, le=4096)]
Retries = Annotated[int, msgspec.Meta(ge=0, le=16)]
PresetName = Literal["paper", "prompt"]

RELAY_JITTER = 0.02  # seconds that a relayed TC waits with `prompt`, at most


class ChaparPreset(NamedTuple):
    """The options in which the two sets differ, by their names."""

    hello_interval: float
    tc_interval: float
    consistency_interval: float
    meeting_check: bool
    role_interval: float
    met_entries_max: int
    retries: int
    retry_delay: float
    link_hold: float


PRESETS: dict[PresetName, ChaparPreset] = {
    "paper": ChaparPreset(
        hello_interval=2.0,  # figure 4
        tc_interval=5.0,  # likewise
        consistency_interval=30.0,  # the paper gives none; its time slot T is 30 s
        meeting_check=False,
        role_interval=2.0,  # OLSR's own HELLO interval
        met_entries_max=50,  # section 5.2
        retries=4,
        retry_delay=0.5,
        link_hold=6.0,  # as long as OLSR takes to notice by itself, at its default intervals
    ),
    "prompt": ChaparPreset(
        hello_interval=1.0,
        tc_interval=5.0,
        consistency_interval=10.0,
        meeting_check=True,
        role_interval=0.1,
        met_entries_max=4096,
        retries=6,
        retry_delay=0.05,
        link_hold=1.0,
    ),
}


class ChaparOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose. None: as the preset says."""

    preset: PresetName = "paper"
    brokers: Literal["mpr", "all"] = "mpr"  # "all": every node a broker, the baseline of figure 8
    hello_interval: Seconds | None = None  # of OLSR; used where Chapar brings its own underlay
    tc_interval: Seconds | None = None  # likewise
    consistency_interval: Seconds | None = None
    # Two brokers that become neighbours compare their tables at once, not at the next interval.
    meeting_check: bool | None = None
    dismissal_transient_time: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 300.0  # none given
    # Changes of routes never end while nodes move, and each look at them makes the underlay compute.
    role_interval: Seconds | None = None  # at most one look for brokers in this time
    hash_bits: Annotated[int, msgspec.Meta(ge=1, le=64)] = 16  # formula (1): 0.01 false positives
    attribute_slots: Annotated[int, msgspec.Meta(ge=3, le=16)] = 5  # section 5.2 has 5 filter ID fields
    event_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=PAYLOAD_BYTES_MAX)] = 2048  # section 5.2
    met_entries_max: Entries | None = None
    fmt_entries_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20_000  # filter identifiers
    node_vectors: Literal["bitmap", "bloom"] = "bitmap"  # "bloom" where addresses are arbitrary
    nodes_max: Annotated[int, msgspec.Meta(ge=2, le=NODES_MAX)] = 1024  # bits of a node vector
    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # each flooding broker waits up to this
    order_timeout: Seconds = 5.0  # how long an event waits for an earlier one of its publisher
    retries: Retries | None = None  # of a real-time event over broken links
    retry_delay: Seconds | None = None  # before the first; doubled each time, so that routes can be mended
    link_hold: Seconds | None = None  # how long a link that failed is not used, unless it is heard again
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 256  # frames that wait for a way, a broker, a turn

    def in_force(self) -> ChaparPreset:
        """What the options say, and the preset where they say nothing."""
        given = {name: getattr(self, name) for name in ChaparPreset._fields}
        return PRESETS[self.preset]._replace(
            **{name: value for name, value in given.items() if value is not None}
        )

    def underlay_options(self) -> dict[str, Any]:
        """What the strategy's own underlay is to be made with."""
        in_force = self.in_force()
        intervals = {"hello_interval": in_force.hello_interval, "tc_interval": in_force.tc_interval}
        if self.preset == "paper":
            return intervals
        return {
            **intervals,
            "prompt": True,
            "link_layer_notification": True,
            "lost_hold": in_force.link_hold,
            "relay_jitter": RELAY_JITTER,
        }
