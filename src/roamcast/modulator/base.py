"""What a modulator is, its form on the wire, and which functions this node can run."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from roamcast.errors import InputError, RoamcastError, WireError
from roamcast.event import Event, Name, Value
from roamcast.registry import NothingDeclared, Registry
from roamcast.units import Micros

STATE_BYTES_MAX = 48_000  # one message of a handoff, with room for its headers
PARAMETER_BYTES_MAX = 8_192  # chosen by us


class ModulatorError(RoamcastError):
    """A modulator failed: it raised, took too long, or returned no valid event. Its owner is notified."""


class Content(NamedTuple):
    """What a modulator makes of an event. The identity stays the event's own, so order and duplicates are
    judged as before; a modulator gives at most one content for each event it gets."""

    attributes: Mapping[str, Value]
    payload: bytes = b""
    topic: str = ""
    type: str = ""


class Modulator:
    """Override `process`; one that keeps state overrides the other two as well.

    The same events in the same order must give the same contents and the same state in every broker: no
    clock, no random numbers. Time comes with the events, if at all.
    """

    @classmethod
    def made(cls, _: None, parameters: msgspec.Struct) -> "Modulator":
        """How a registry makes one whose parameters are its only argument."""
        return cls(parameters)  # type: ignore[call-arg]

    def process(self, event: Event) -> Content | None:
        """What the consumer gets instead of the event; None for nothing."""
        raise NotImplementedError

    def state(self) -> bytes:
        """All that `restore` needs on another broker; at most `STATE_BYTES_MAX`."""
        return b""

    def restore(self, state: bytes) -> None:
        """Go on where another broker stopped. The octets come from the network: WireError if they are not
        a valid state."""
        if state:
            raise WireError("modulator state", 0, f"has {len(state)} octets, this modulator keeps none")

    def cost(self, event: Event) -> Micros:
        """Processor time for this event on a broker of capacity 1: the model's quantity in `sim`."""
        return 0


class ModulatorSpec(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which function with which parameters (MessagePack): what a subscription carries."""

    name: Name
    parameters: Annotated[bytes, msgspec.Meta(max_length=PARAMETER_BYTES_MAX)] = b"\x80"

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, Any] | None = None) -> "ModulatorSpec":
        encoded = msgspec.msgpack.encode(dict(parameters or {}))
        if len(encoded) > PARAMETER_BYTES_MAX:
            raise InputError(
                f"modulator {name}",
                f"its parameters take {len(encoded)} octets; at most {PARAMETER_BYTES_MAX} are allowed",
            )
        return cls(name, encoded)


def modulated(event: Event, content: Content) -> Event:
    """The event as its consumer sees it."""
    return msgspec.structs.replace(
        event,
        attributes=dict(content.attributes),
        payload=content.payload,
        topic=content.topic,
        type=content.type,
    )


MODULATORS: Registry[None, Modulator, NothingDeclared] = Registry(
    "modulator", "roamcast.modulators", NothingDeclared
)
MODULATORS.declare(
    "condition",
    "roamcast.modulator.built_in:ConditionParameters",
    "roamcast.modulator.built_in:Condition.made",
)
MODULATORS.declare(
    "projection",
    "roamcast.modulator.built_in:ProjectionParameters",
    "roamcast.modulator.built_in:Projection.made",
)
MODULATORS.declare(
    "bounding_box",
    "roamcast.modulator.built_in:BoundingBoxParameters",
    "roamcast.modulator.built_in:BoundingBox.made",
)
MODULATORS.declare(
    "aggregate",
    "roamcast.modulator.built_in:AggregateParameters",
    "roamcast.modulator.built_in:Aggregate.made",
)


def make(spec: ModulatorSpec) -> Modulator:
    """A fresh instance; InputError for a name that is not registered or parameters it does not take."""
    parameters_type = MODULATORS.options_type(spec.name)
    try:
        parameters = msgspec.msgpack.decode(spec.parameters, type=parameters_type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"modulator {spec.name}", f"its parameters cannot be: {error}") from None
    return MODULATORS.make(spec.name, None, parameters)
