"""The options of the strategy: one flat table, as scenario files have it.

The overlay has the parameters of section 5.4, by their names, with the three sets of the work as presets, and
one of ours. Content-based routing has options of its own.

A parameter that is not given comes from the preset: table 6.3 (walking users), 6.4 (driving users), the
sample file of appendix B.1 (`sample`), or `prompt`, for live nodes on fast links, where a lost frame is
noticed after milliseconds, not seconds.
Not kept: WAIT_INTERVAL and BYTE_BUFFER_SIZE, which tune the reading of a Java socket.

With `adaptive` (section 7.2) the parameters in which the two tables differ follow the rate at which this
node loses overlay links: at or below `CALM` they are those of the walking users, at or above `RESTLESS`
those of the driving ones, in proportion between.
"""

from collections import deque
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from roamcast.underlay.beacons import BeaconOptions
from roamcast.units import SECOND, Micros, micros

Seconds = Annotated[float, msgspec.Meta(ge=0.01, le=3600)]
AnySeconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1000)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=255)]


BEACON_SECONDS = 1.0  # the source gives none; one second is usual (MAODV: HELLO_INTERVAL)
# Chosen by us: a lost neighbour is noticed after at most 0.7 s (docs/protocols/tree.md). A node without
# neighbours sends a beacon once a second; two nodes that meet both send one at once.
PROMPT_BEACON_SECONDS = 0.2


TreePreset: TypeAlias = Literal["walking", "driving", "prompt", "sample"]


class TreeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose; times in seconds. None: as the preset says. Defaults without a source are
    chosen by us, by runs of `roamcast demo` and of the figure `odmrp/mobility`."""

    # Content-based routing.

    # Seconds for which the filters behind a lost link stay announced before they are withdrawn. It should
    # outlast a repair: the acyclic-overlay work measures 501-703 ms (table 6.15), several tries included.
    unsubscription_delay: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 3.0
    # Seconds for which an echo is held back after that, while the withdrawal travels (see `tables.py`).
    echo_delay: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 1.0
    table_refresh_interval: AnySeconds = 10.0  # between two reminders of the table that a neighbour holds
    table_bytes_max: Annotated[int, msgspec.Meta(ge=64, le=32_000)] = 1_400  # of filters in one message
    # Filters announced to one neighbour. If there are more, fewer and wider ones are announced.
    filters_max: Annotated[int, msgspec.Meta(ge=1, le=4_096)] = 16
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 255  # tree links that an event may cross
    # Recovery of lost events: `push`, they are offered to neighbours. Memorized ones are offered always.
    recovery: Literal["none", "push"] = "push"
    recovery_interval: AnySeconds = 0.5  # before an unanswered digest or request is repeated
    # The age in seconds up to which an event is recovered. At most 60: well below the 120 s for which
    # the duplicate filter remembers a real-time event.
    recovery_time: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0
    recovery_events: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # events kept for recovery
    digest_events: Annotated[int, msgspec.Meta(ge=1, le=4_096)] = 128  # events named in one digest

    # The overlay.

    protocol: Literal["evolved", "original"] = "evolved"  # `original`: MAODV as it was, the baseline
    preset: TreePreset = "walking"  # the values of the parameters that are not given
    discover_timeout: Seconds | None = None  # waiting for replies to a request
    hello_interval: Seconds | None = None  # between two group hellos
    reconnection_trigger: Positive | None = None  # group hellos per search for other partitions
    allowed_hello_loss: Number | None = None  # group hellos missed before the upstream is questioned
    allowed_beacon_loss: Number | None = None  # beacons missed before a neighbour is gone
    group_sequence_tolerance: Number | None = None  # how stale a reply may be to win by fewer hops
    request_retries: Number | None = None  # requests in vain before a partition is declared
    ttl_increment: Positive | None = None  # hops that each further request reaches beyond the last
    ttl_threshold: Positive | None = None  # hops that a request reaches at most
    beacon_interval: Seconds | None = None  # 0.2 with `prompt`, else 1
    adaptive: bool = False  # parameters follow the rate of lost links (section 7.2)
    # How long after the first reply the best one is taken. None waits the whole DISCOVER_TIMEOUT, as the
    # source does.
    reply_wait: Seconds | None = 0.05
    # Beyond the source: overheard data is passed up, leaders ask at once, R13, R14, activations are repeated.
    # False: the evolved protocol with only what the work gives it, and what the proof needs.
    additions: bool = True
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01  # a relayed broadcast waits up to this
    # Beyond the source: an upstream that stops sending in a stream of data is probed (R12).
    quiet_probes: bool = True
    # Who is a member of the group: all nodes (section 4.1), or those whose applications subscribe or have
    # published (A.1, A.2; section 4.5 simulates it); then the others are routers where a path needs them.
    membership: Literal["all", "users"] = "all"
    # Original protocol only. Is an activation repeated until it is confirmed, as the evolved one does, or
    # sent once (A.1)?
    repeat_activation: bool = False
    # Original protocol only. Do nodes on the tree pass requests on (fig. 3.13; Dortmund's ns-2 code), or not
    # (3.2.3; Carleton's, which section 4.5 measured)?
    member_forwarding: bool = False
    # Original protocol only. Does a node without group hellos leave its upstream, as Carleton's ns-2
    # code does (section 4.5), or wait for ever (fig. 3.16)?
    hello_workaround: bool = True

    def beacons(self) -> BeaconOptions:
        """The underlay's options with which ALLOWED_BEACON_LOSS means what section 5.4 says."""
        loss = OverlayParameters.of(self).allowed_beacon_loss
        if self.preset != "prompt":
            return BeaconOptions(interval=self.beacon_interval or BEACON_SECONDS, allowed_loss=loss)
        interval = self.beacon_interval or PROMPT_BEACON_SECONDS
        lone = max(interval, BEACON_SECONDS)
        return BeaconOptions(interval=interval, allowed_loss=loss, prompt=True, lone_interval=lone)

    def underlay_options(self) -> dict[str, Any]:
        """The beacons beneath are part of the protocol (BEACON_INTERVAL, ALLOWED_BEACON_LOSS)."""
        return msgspec.structs.asdict(self.beacons())


class OverlayParameters(NamedTuple):
    """All of them in force, times in microseconds."""

    discover_timeout: Micros
    hello_interval: Micros
    reconnection_trigger: int
    allowed_hello_loss: int
    allowed_beacon_loss: int
    group_sequence_tolerance: int
    request_retries: int
    ttl_increment: int
    ttl_threshold: int

    @classmethod
    def of(cls, options: TreeOptions, preset: "OverlayParameters | None" = None) -> "OverlayParameters":
        """What the options say, and the preset where they say nothing."""
        base = PRESETS[options.preset] if preset is None else preset
        times = {"discover_timeout", "hello_interval"}
        return base._replace(
            **{
                name: micros(value) if name in times else value
                for name in cls._fields
                if (value := getattr(options, name)) is not None
            }
        )


PRESETS: dict[TreePreset, OverlayParameters] = {
    "walking": OverlayParameters(1 * SECOND, 5 * SECOND, 2, 2, 2, 2, 2, 2, 10),  # table 6.3
    "driving": OverlayParameters(1 * SECOND, micros(2.5), 1, 2, 2, 1, 2, 2, 10),  # table 6.4
    "sample": OverlayParameters(micros(1.5), 4 * SECOND, 2, 3, 3, 2, 3, 3, 8),  # appendix B.1
    "prompt": OverlayParameters(micros(0.25), 1 * SECOND, 1, 2, 2, 1, 2, 5, 10),  # chosen by us
}

WINDOW: Micros = 120 * SECOND  # chosen by us; longer reacts later and counts more evenly
# Links lost per node and second. Not from tables 6.5 to 6.11: this tree loses a fifth of the links that the
# work counts in the same scenarios, and where links are lost at all, looking for other partitions more often
# pays among walkers too (`reproduce tree/adaptive`). One loss within the window gives the middle of both.
CALM = 0.0
RESTLESS = 2 / 120


class ParameterAdaptation:
    """Parameters that follow the observed disconnection rate; fixed ones unless `adaptive`."""

    def __init__(self, options: TreeOptions) -> None:
        self._options = options
        self._fixed = OverlayParameters.of(options)
        self._breaks: deque[Micros] = deque(maxlen=1_000)

    def on_break(self, now: Micros) -> None:
        self._breaks.append(now)

    def parameters(self, now: Micros) -> OverlayParameters:
        if not self._options.adaptive:
            return self._fixed
        walking, driving = PRESETS["walking"], PRESETS["driving"]
        # Links lost per second over the last two minutes. A node that started later is divided by the whole
        # two minutes too, so that a single early break does not look like many.
        while self._breaks and self._breaks[0] < now - WINDOW:
            self._breaks.popleft()
        rate = len(self._breaks) * SECOND / WINDOW
        share = min(1.0, max(0.0, (rate - CALM) / (RESTLESS - CALM)))
        nearer = driving if share >= 0.5 else walking
        between = walking._replace(
            hello_interval=round(
                walking.hello_interval + share * (driving.hello_interval - walking.hello_interval)
            ),
            reconnection_trigger=nearer.reconnection_trigger,
            group_sequence_tolerance=nearer.group_sequence_tolerance,
        )
        return OverlayParameters.of(self._options, between)
