"""Mobility models: how nodes move, as the `[world.mobility]` table of a scenario.

Every model is a struct of parameters with `check`, `motion` and `walls` (`model.py`), selected by the
key `model`; `msgspec.convert(table, type=Mobility)` makes the right one. Most follow the seven
scenarios of the acyclic overlay (6.2.1); `docs/study/mobility.md` has them ready to copy.

To read: `model.py`, `path.py` and `waypoints.py` (what models are built from), then the models: `walks.py`
(each node for itself), `groups.py`, `cars.py` on `streets.py`, `graph_walk.py` on the networks of
`world/graph.py`.

Left out: nodes as bodies (collisions, queues of cars), users who move because the reception is bad,
heights.
"""

from typing import TypeAlias

from roamcast.registry import ModelRegistry, NothingDeclared
from roamcast.world.mobility.cars import CityBlock, Pursue
from roamcast.world.mobility.graph_walk import GraphWalk
from roamcast.world.mobility.groups import Column, Nomadic
from roamcast.world.mobility.model import Area, Model, Range
from roamcast.world.mobility.walks import FixedTargets, RandomWalk, RandomWaypoint, Static

Mobility: TypeAlias = (
    Static | RandomWaypoint | FixedTargets | RandomWalk | Nomadic | Column | CityBlock | Pursue | GraphWalk
)

MOBILITY: ModelRegistry[None, Model, NothingDeclared] = ModelRegistry(
    "mobility model", "roamcast.mobility", NothingDeclared
)
for _model in Mobility.__args__:
    MOBILITY.declare(str(_model.__struct_config__.tag), f"{_model.__module__}:{_model.__name__}")

__all__ = [
    "MOBILITY",
    "Area",
    "CityBlock",
    "Column",
    "FixedTargets",
    "GraphWalk",
    "Mobility",
    "Model",
    "Nomadic",
    "Pursue",
    "RandomWalk",
    "RandomWaypoint",
    "Range",
    "Static",
]
