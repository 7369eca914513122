"""Epidemic: flood what is new, and keep comparing what neighbours hold. Our own default for small fleets in
the field.

Not one of the five papers. Flooding reaches every node that is connected at that moment; anti-entropy (Demers
and others, 1987; over radio, Vahdat and Becker's epidemic routing, 2000) carries memorized events across
partitions and repairs losses of the radio. Subscriptions are not sent. The mechanism is `kit/spread.py`:
senders name the relays of their copies (multipoint relays, as S-MPR of SMF, RFC 6621), by the beacons of
their neighbours.
"""

from typing import Annotated, Any

import msgspec

from roamcast.kit.anti_entropy import WANTED_MAX, HadEvents, Handed, HoldingsDigest, WantEvents
from roamcast.kit.repair import RECENT_TIME
from roamcast.kit.spread import FloodedEvent, PassedOn, Spreading
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.units import seconds
from roamcast.wire import Codec


class EpidemicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are in seconds. The defaults are chosen by us."""

    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = (
        0.02  # seconds; a relay that is not named waits so long
    )
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64  # radio hops
    # Do not pass a copy on if, by the beacons, all neighbours have heard one; and name who passes it on.
    suppress: bool = True
    digest_interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0  # seconds
    # Seconds for which a real-time event is offered to neighbours that missed it.
    recent_time: Annotated[float, msgspec.Meta(ge=0, le=60)] = seconds(RECENT_TIME)
    recent_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # real-time events kept for that
    request_max: Annotated[int, msgspec.Meta(ge=1, le=WANTED_MAX)] = 64  # events in one request
    request_timeout: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.5  # seconds; then it asks again
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # copies that wait for their turn
    beacon_interval: Annotated[float, msgspec.Meta(ge=0.01, le=3600)] = 1.0  # seconds
    allowed_beacon_loss: Annotated[int, msgspec.Meta(ge=0, le=100)] = 2  # beacons in a row

    def underlay_options(self) -> dict[str, Any]:
        """For `beacons`, which this strategy runs on."""
        return {"interval": self.beacon_interval, "allowed_loss": self.allowed_beacon_loss, "prompt": True}


EpidemicMessage = FloodedEvent | Handed | PassedOn | HoldingsDigest | WantEvents | HadEvents
CODEC: Codec[EpidemicMessage] = Codec("epidemic", 2, EpidemicMessage)


class Epidemic(Spreading, Strategy):
    def __init__(self, context: StrategyContext, options: EpidemicOptions) -> None:
        super().__init__(context.host, CODEC, context.broker, context.underlay, options)
