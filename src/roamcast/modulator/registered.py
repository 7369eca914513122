"""The functions that this node can run."""

import msgspec

from roamcast.errors import InputError
from roamcast.modulator.aggregate import Aggregate, AggregateParameters
from roamcast.modulator.base import Modulator, ModulatorSpec
from roamcast.modulator.bounding_box import BoundingBox, BoundingBoxParameters
from roamcast.modulator.condition import Condition, ConditionParameters
from roamcast.modulator.projection import Projection, ProjectionParameters
from roamcast.registry import Registry

MODULATORS: Registry[None, Modulator] = Registry("modulator")
MODULATORS.add("condition", ConditionParameters, lambda _, parameters: Condition(parameters))
MODULATORS.add("projection", ProjectionParameters, lambda _, parameters: Projection(parameters))
MODULATORS.add("bounding_box", BoundingBoxParameters, lambda _, parameters: BoundingBox(parameters))
MODULATORS.add("aggregate", AggregateParameters, lambda _, parameters: Aggregate(parameters))


def make(spec: ModulatorSpec) -> Modulator:
    """A fresh instance; InputError for a name that is not registered or parameters it does not take."""
    parameters_type = MODULATORS.options_type(spec.name)
    try:
        parameters = msgspec.msgpack.decode(spec.parameters, type=parameters_type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"modulator {spec.name}", f"its parameters cannot be: {error}") from None
    return MODULATORS.make(spec.name, None, parameters)
