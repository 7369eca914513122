"""The functions that this node can run."""

import msgspec

from roamcast.errors import InputError
from roamcast.modulator.base import Modulator, ModulatorSpec
from roamcast.registry import NothingDeclared, Registry

MODULATORS: Registry[None, Modulator, NothingDeclared] = Registry(
    "modulator", "roamcast.modulators", NothingDeclared
)
MODULATORS.declare(
    "condition",
    "roamcast.modulator.condition:ConditionParameters",
    "roamcast.modulator.condition:Condition.made",
)
MODULATORS.declare(
    "projection",
    "roamcast.modulator.projection:ProjectionParameters",
    "roamcast.modulator.projection:Projection.made",
)
MODULATORS.declare(
    "bounding_box",
    "roamcast.modulator.bounding_box:BoundingBoxParameters",
    "roamcast.modulator.bounding_box:BoundingBox.made",
)
MODULATORS.declare(
    "aggregate",
    "roamcast.modulator.aggregate:AggregateParameters",
    "roamcast.modulator.aggregate:Aggregate.made",
)


def make(spec: ModulatorSpec) -> Modulator:
    """A fresh instance; InputError for a name that is not registered or parameters it does not take."""
    parameters_type = MODULATORS.options_type(spec.name)
    try:
        parameters = msgspec.msgpack.decode(spec.parameters, type=parameters_type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"modulator {spec.name}", f"its parameters cannot be: {error}") from None
    return MODULATORS.make(spec.name, None, parameters)
