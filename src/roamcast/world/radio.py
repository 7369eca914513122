"""The radio models' parameters, as in `[world.radio]`; the models themselves are in `runtime/sim/`.

Three models, each closer to a real shared medium than the one before:

- `IdealRadio`: who is in range receives at once. Shows what a protocol does with a perfect radio.
- `DiskRadio`: who is in range receives after queueing, transmission and delay; transmissions do not disturb
  each other.
- `CsmaRadio`: one shared medium with carrier sense, backoff and collisions at the receiver.

Range is not here: it belongs to the world, because links follow from motion and range alone.
Times are seconds, as in every file; `loss` is the chance that one reception fails, drawn for each
receiver by itself.
"""

from typing import Annotated, Any, TypeAlias

import msgspec

from roamcast.registry import ModelRegistry, NothingDeclared
from roamcast.units import SECOND, Micros, micros

Bitrate: TypeAlias = Annotated[float, msgspec.Meta(ge=1_000, le=1e12)]  # bit/s
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
Delay: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=60)]  # seconds
# A tuple of any length, with bounds: msgspec 0.22 reads wild memory for a bounded number or `tuple[X, X]`.
Delays: TypeAlias = Annotated[tuple[Delay, ...], msgspec.Meta(min_length=2, max_length=2)]  # [min, max]
Interval: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1)]  # seconds
QueueLength: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]  # frames
Octets: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000)]


class Radio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="model"):
    """One `[world.radio]` table; the key `model` selects the subclass."""

    def problem(self) -> tuple[str, str] | None:
        """A contradiction between keys: the key at fault, and what is wrong with it."""
        return None

    def sensing(self) -> float:
        """How far a node senses others, in reception ranges."""
        return 1.0

    def airtime(self, octets: int) -> Micros:
        """How long a broadcast frame with so many octets of a protocol is on the air."""
        return 0


class IdealRadio(Radio, frozen=True, kw_only=True, tag="ideal"):
    """In range = received, in the same instant; nothing queues and nothing collides."""

    # Not used here; accepted so that one file can be tried on all models by changing `model` alone.
    bitrate: Bitrate = 2_000_000
    loss: Share = 0.0


class DiskRadio(Radio, frozen=True, kw_only=True, tag="disk"):
    """Each sender has a channel of its own: frames queue, take size / bitrate, then `delay`."""

    bitrate: Bitrate = 2_000_000
    # From the end of the transmission to its reception; of `[min, max]`, drawn for each frame.
    delay: Delay | Delays = 0.001
    loss: Share = 0.0
    queue: QueueLength = 50  # frames per node that wait; one more is dropped

    def problem(self) -> tuple[str, str] | None:
        low, high = self.delays()
        if low > high:
            return "delay", f"is [{low:g}, {high:g}]; allowed: [min, max] with min <= max"
        return None

    def delays(self) -> tuple[float, ...]:
        """The shortest and the longest."""
        return self.delay if isinstance(self.delay, tuple) else (self.delay, self.delay)

    def airtime(self, octets: int) -> Micros:
        return round(octets * 8 * SECOND / self.bitrate)


class CsmaRadio(Radio, frozen=True, kw_only=True, tag="csma"):
    """One shared medium: CSMA/CA after IEEE 802.11 DCF, without RTS/CTS.

    The timing defaults are those of the DSSS physical layer (IEEE 802.11b: slot 20 µs, SIFS 10 µs,
    DIFS = SIFS + 2 slots, contention window 31 to 1023, long preamble and PLCP header 192 µs).
    """

    bitrate: Bitrate = 2_000_000  # of data frames, broadcast ones too
    basic_bitrate: Bitrate = 1_000_000  # of acknowledgements
    loss: Share = 0.0
    queue: QueueLength = 50  # frames per node that wait; control goes before data
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 7  # of a unicast frame after its first attempt
    cw_min: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 31  # slots; the backoff is drawn from 0..cw
    cw_max: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 1023  # slots
    slot: Interval = 20e-6
    sifs: Interval = 10e-6  # between a frame and its acknowledgement
    difs: Interval = 50e-6  # the medium must be idle this long before anyone sends or counts down
    preamble: Annotated[float, msgspec.Meta(ge=0, le=1)] = 192e-6  # before each frame, at any bitrate
    # What link, network and transport layers add to each frame: 802.11 header and checksum 28,
    # LLC/SNAP 8, IPv4 20, UDP 8.
    header: Octets = 64
    acknowledgement: Octets = 14  # length of an acknowledgement frame
    # How far a node senses others, in reception ranges. In ns-2's usual set-up 550 m over 250 m, 2.2.
    sense: Annotated[float, msgspec.Meta(ge=1, le=10)] = 1.0

    def problem(self) -> tuple[str, str] | None:
        if self.cw_max < self.cw_min:
            return "cw_max", f"is {self.cw_max}; allowed: at least cw_min, which is {self.cw_min}"
        return None

    def sensing(self) -> float:
        return self.sense

    def airtime(self, octets: int) -> Micros:
        return micros(self.preamble) + round((octets + self.header) * 8 * SECOND / self.bitrate)


RadioModel: TypeAlias = IdealRadio | DiskRadio | CsmaRadio

RADIOS: ModelRegistry[Any, Any, NothingDeclared] = ModelRegistry(
    "radio model", "roamcast.radios", NothingDeclared
)
"""Each model's parameters, and the name of its class in `runtime/sim`; the class is imported there."""
RADIOS.declare("ideal", "roamcast.world.radio:IdealRadio", "roamcast.runtime.sim.medium:IdealMedium")
RADIOS.declare("disk", "roamcast.world.radio:DiskRadio", "roamcast.runtime.sim.medium:DiskMedium")
RADIOS.declare("csma", "roamcast.world.radio:CsmaRadio", "roamcast.runtime.sim.csma:CsmaMedium")
