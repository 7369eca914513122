"""The parameters of `epidemic`; times are in seconds. The defaults are chosen by us."""

from typing import Annotated, Any

import msgspec


class EpidemicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.02  # seconds; a relay waits up to this
    hop_limit: Annotated[int, msgspec.Meta(ge=1, le=255)] = 64  # radio hops
    # Do not pass a copy on if, by the beacons, all neighbours have heard one (Peng and Lu, 2000).
    suppress: bool = True
    digest_interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0  # seconds
    # Seconds for which a real-time event is offered to neighbours that missed it.
    recent_time: Annotated[float, msgspec.Meta(ge=0, le=60)] = 5.0
    recent_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # real-time events kept for that
    request_max: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 64  # events in one request
    request_timeout: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.5  # seconds; then it asks again
    pending_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # copies that wait for their turn
    beacon_interval: Annotated[float, msgspec.Meta(ge=0.01, le=3600)] = 1.0  # seconds
    allowed_beacon_loss: Annotated[int, msgspec.Meta(ge=0, le=100)] = 2  # beacons in a row

    def underlay_options(self) -> dict[str, Any]:
        """For `beacons`, which this strategy runs on."""
        return {"interval": self.beacon_interval, "allowed_loss": self.allowed_beacon_loss, "prompt": True}
