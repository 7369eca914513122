"""The base of all mobility models: a table of checked parameters that makes motion from random draws."""

import math
from random import Random
from typing import ClassVar, TypeAlias

import msgspec

from roamcast.errors import ScenarioError
from roamcast.units import Micros
from roamcast.world.contacts import ContactPlan
from roamcast.world.trajectory import Motion
from roamcast.world.walls import Wall

Area: TypeAlias = tuple[float, float]
"""Width and height in metres; nodes stay in `[0, width] × [0, height]`, borders included."""

Range: TypeAlias = tuple[float, float]
"""`[min, max]`; a value is drawn uniformly between the two whenever one is needed."""


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="model"):
    """The `[world.mobility]` table of a scenario. A subclass per model, its tag the model's name."""

    HAS_CONTACTS: ClassVar[bool] = (
        False  # whether `contacts` gives a plan, and `world.range` has no part in it
    )

    def check(self, nodes: int, area: Area) -> None:
        """Raise `ScenarioError` for the first parameter that is not possible, with its dotted key."""

    def motion(self, nodes: int, area: Area, duration: Micros, random: Random) -> Motion:
        """The paths of all nodes over `[0, duration]`; the same arguments give the same paths."""
        raise NotImplementedError

    def contacts(self, nodes: int, area: Area, duration: Micros, random: Random) -> ContactPlan | None:
        """Who hears whom, if the model defines it; None, as in most models: whoever is in range."""
        return None

    def walls(self, area: Area) -> list[Wall]:
        """What blocks the radio. Most models have none."""
        return []


def node_streams(random: Random, nodes: int) -> list[Random]:
    """One random source per node, so that adding a node leaves the paths of the others alone."""
    return [stream(random) for _ in range(nodes)]


def stream(random: Random) -> Random:
    """A random source of its own for one node, or for what the nodes share."""
    return Random(random.getrandbits(64))


# The draws below go through `random()` alone: of all methods of `Random`, it is the one whose values the
# Python documentation promises to keep for a seed. Plain arithmetic and square roots are
# rounded the same way on every machine, so whole paths are too.


def between(random: Random, low_high: Range) -> float:
    low, high = low_high
    return min(low + (high - low) * random.random(), high)


def index(random: Random, count: int) -> int:
    """Uniform in `0 … count - 1`."""
    return int(random.random() * count)


def bad(parameter: str, problem: str) -> ScenarioError:
    return ScenarioError(f"world.mobility.{parameter}", problem)


def check_range(parameter: str, value: Range, unit: str, *, above_zero: bool, why: str = "") -> None:
    """`min <= max`, both finite and not negative; `above_zero` asks for `min > 0`, with the reason."""
    low, high = value
    rule = "0 < min <= max" if above_zero else "0 <= min <= max"
    in_order = 0 <= low <= high and math.isfinite(high) and (low > 0 or not above_zero)
    if not in_order:
        reason = f" ({why})" if why and low == 0 else ""
        raise bad(parameter, f"is [{low:g}, {high:g}]; allowed is [min, max] in {unit} with {rule}{reason}")


WHY_NOT_ZERO = "trips at almost no speed never end, so the motion would slow down for ever"
"""Yoon, Liu, Noble, "Random waypoint considered harmful", INFOCOM 2003: with a minimum of 0 the mean
duration of a trip is infinite, the mean speed falls towards 0, and no stationary distribution exists."""


def check_speed(parameter: str, value: Range) -> None:
    check_range(parameter, value, "m/s", above_zero=True, why=WHY_NOT_ZERO)


def check_seconds(parameter: str, value: Range) -> None:
    check_range(parameter, value, "seconds", above_zero=False)


def check_trips(speed: Range, pause: Range, prefix: str = "") -> None:
    """The parameters `speed` and `pause` of trips, or those with a prefix."""
    check_speed(f"{prefix}speed", speed)
    check_seconds(f"{prefix}pause", pause)


def check_number(parameter: str, value: float, unit: str, least: float, *, open_end: bool = False) -> None:
    """A finite number of at least `least`; above it if `open_end`."""
    if not math.isfinite(value) or value < least or (open_end and value == least):
        sign = ">" if open_end else ">="
        raise bad(parameter, f"is {value:g}; allowed is a number {sign} {least:g} ({unit})")


def check_point(parameter: str, x: float, y: float, area: Area) -> None:
    width, height = area
    if not (0 <= x <= width and 0 <= y <= height):
        raise bad(parameter, f"is [{x:g}, {y:g}]; allowed is a point in the area [{width:g}, {height:g}]")
