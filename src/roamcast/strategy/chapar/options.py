"""Chapar's parameters. Seconds, as in the scenario file.

Two named sets. `paper` is the paper's letter: its values, or values of our choice where it gives none, and a
unicast for each receiver. `prompt`, the default, is the same protocol, but it reacts at once to what the link
layer and its neighbours report instead of waiting for the next interval, serves several receivers by one
broadcast, and its tables have a size for today's devices. `docs/protocols/chapar.md` says what
each part is for.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from roamcast.event import PAYLOAD_BYTES_MAX
from roamcast.strategy.chapar.node_vectors import NODES_MAX

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Entries = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Retries = Annotated[int, msgspec.Meta(ge=0, le=16)]
PresetName = Literal["paper", "prompt"]
Notification = Literal["broadcast", "unicast"]
FmtLists = Literal["versions", "hashes"]
AbsentSubscribers = Literal["digest", "pass", "pass_and_purge"]

RELAY_JITTER = 0.02  # seconds that a relayed TC waits with `prompt`, at most; chosen by us


class ChaparPreset(NamedTuple):
    """The options in which the two sets differ, by their names."""

    notification: Notification
    hello_interval: float
    tc_interval: float
    consistency_interval: float
    meeting_check: bool
    absent_subscribers: AbsentSubscribers
    fmt_lists: FmtLists
    role_interval: float
    event_bytes_max: int
    met_entries_max: int
    retries: int
    retry_delay: float
    link_hold: float


PRESETS: dict[PresetName, ChaparPreset] = {
    "paper": ChaparPreset(
        notification="unicast",
        hello_interval=2.0,  # figure 4
        tc_interval=5.0,  # figure 4
        consistency_interval=30.0,  # the paper gives none; its time slot T is 30 s
        meeting_check=False,
        absent_subscribers="pass_and_purge",  # equations (4) to (6)
        fmt_lists="hashes",
        role_interval=2.0,  # OLSR's own HELLO interval
        event_bytes_max=2048,  # section 5.2
        met_entries_max=50,  # section 5.2
        retries=4,  # chosen by us, as is the delay: the last retry comes 7.5 s after the first failure
        retry_delay=0.5,
        link_hold=6.0,  # OLSR's own time to notice a lost link, at its default intervals
    ),
    "prompt": ChaparPreset(
        notification="broadcast",
        hello_interval=1.0,
        tc_interval=5.0,
        consistency_interval=10.0,
        meeting_check=True,
        absent_subscribers="digest",
        fmt_lists="versions",
        role_interval=0.1,
        event_bytes_max=8192,  # a chunk of a large payload; times the next: 64 MiB at most
        met_entries_max=8192,
        retries=6,  # likewise: 3.2 s
        retry_delay=0.05,
        link_hold=1.0,
    ),
}


class ChaparOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose. None: the value of the preset."""

    preset: PresetName = "prompt"  # values of the options that are not given
    # How an event travels from a node to several next hops: as one broadcast, or as a unicast to each one
    # (the paper's letter).
    notification: Notification | None = None
    brokers: Literal["mpr", "all"] = "mpr"  # "all": every node a broker, the baseline of figure 8
    hello_interval: Seconds | None = None  # seconds, of OLSR; used if the scenario names no underlay
    tc_interval: Seconds | None = None  # seconds, of OLSR; used if the scenario names no underlay
    consistency_interval: Seconds | None = None  # seconds between table consistency checks
    # How a broker finds subscribers that were away when a memorized event came: by the digest of what each
    # node has (`Attach`), or by the paper's periodic pass (equation 4), with its purging (6) or without.
    absent_subscribers: AbsentSubscribers | None = None
    # What a consistency check lists of the FMT: the version of each subscriber's register, or the paper's
    # hash of each record. All nodes of a network must agree on it.
    fmt_lists: FmtLists | None = None
    # Two brokers that become neighbours compare their tables at once, not at the next interval.
    meeting_check: bool | None = None
    # Seconds that a dismissed broker keeps its tables. Ours: docs/protocols/chapar.md has what it saves.
    dismissal_transient_time: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 300.0
    # Routes change all the time while nodes move, and each look makes the underlay compute them. So:
    role_interval: Seconds | None = None  # at most one look for brokers in this time (seconds)
    hash_bits: Annotated[int, msgspec.Meta(ge=1, le=64)] = 16  # formula (1): 0.01 false positives
    attribute_slots: Annotated[int, msgspec.Meta(ge=3, le=16)] = 5  # section 5.2 has 5 filter ID fields
    # Payload octets up to which a memorized event is kept; live nodes refuse larger ones.
    event_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=PAYLOAD_BYTES_MAX)] | None = None
    met_entries_max: Entries | None = None  # memorized events that a broker keeps
    fmt_entries_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20_000  # filter identifiers
    node_vectors: Literal["bitmap", "bloom"] = "bitmap"  # "bloom": for arbitrary addresses
    nodes_max: Annotated[int, msgspec.Meta(ge=2, le=NODES_MAX)] = 1024  # bits of a node vector
    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # a flooding broker waits up to this
    order_timeout: Seconds = 5.0  # how long an event waits for an earlier one of its publisher
    retries: Retries | None = None  # of a real-time event over broken links
    retry_delay: Seconds | None = None  # before the first; doubled each time, so that routes can recover
    link_hold: Seconds | None = None  # how long a failed link is not used, unless it is heard again
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64  # radio hops of a real-time event
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 256  # frames that wait for a route, a broker, a turn

    def in_force(self) -> ChaparPreset:
        """The options that are given, and the preset's values for the others."""
        given = {name: getattr(self, name) for name in ChaparPreset._fields}
        return PRESETS[self.preset]._replace(
            **{name: value for name, value in given.items() if value is not None}
        )

    def underlay_needs(self) -> dict[str, str]:
        if self.brokers == "all":
            return {}
        return {"names_relays": 'that names relays, its brokers (or strategy.options.brokers = "all")'}

    def underlay_options(self) -> dict[str, Any]:
        """The options for the strategy's own underlay."""
        in_force = self.in_force()
        intervals = {"hello_interval": in_force.hello_interval, "tc_interval": in_force.tc_interval}
        if self.preset == "paper":
            return intervals
        return {
            **intervals,
            "prompt": True,
            "link_layer_notification": True,
            "lost_hold": in_force.link_hold,
            "failure_silence": in_force.hello_interval,  # a neighbour that is there is heard within this
            "relay_jitter": RELAY_JITTER,
        }
