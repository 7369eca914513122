"""How the axes of a sweep become tables and plots: what is compared, what lies along the x-axis.

Strategies are compared: `strategy.name`, with options of a strategy that are words (modes), makes the
series, one line each. A sweep of a single strategy compares the values of its first axis of words, if
there is one. Every other axis gets its own plots.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from roamcast.lab.report.markup import visible
from roamcast.lab.sweep.results import is_number, value_label

UNITS = {
    "area": "m",
    "range": "m",
    "duration": "s",
    "warmup": "s",
    "speed": "m/s",
    "pause": "s",
    "bitrate": "bit/s",
    "rate": "events/s per publisher",
    "size": "octets",
    "lifetime": "s",
    "delay": "s",
    "jitter": "s",
    "nodes": "nodes",
    "publishers": "nodes",
    "subscribers": "nodes",
    "brokers": "nodes",
    "spacing": "m",
    "radius": "m",
    "block": "m",
}
"""By the last word of a scenario key."""
SUFFIX_UNITS = {"_interval": "s", "_timeout": "s", "_time": "s", "_speed": "m/s", "_pause": "s"}


@dataclass(frozen=True)
class Axis:
    key: str
    labels: list[str]
    positions: list[float] | None  # on a number line; None for words
    unit: str
    squares: bool = False  # a position is the side of a square

    @property
    def title(self) -> str:
        return f"{self.key} ({self.unit})" if self.unit else self.key

    @property
    def plot_title(self) -> str:
        return self.title.replace(self.key, f"{self.key}, side", 1) if self.squares else self.title


@dataclass(frozen=True)
class CellLayout:
    """A cell is known by the index of its value on each axis; cells are numbered in that order."""

    axes: dict[str, Axis]
    series_axes: list[str]
    plot_axes: list[str]

    @cached_property
    def cells(self) -> list[dict[str, int]]:
        ranges = [range(len(axis.labels)) for axis in self.axes.values()]
        return [dict(zip(self.axes, indices, strict=True)) for indices in itertools.product(*ranges)]

    def matching(self, chosen: Mapping[str, int]) -> list[int]:
        """The numbers of the cells that have these values, in order. Computed, not searched: a sweep may have
        many thousand cells."""
        numbers = [0]
        for key, axis in self.axes.items():
            indices = [chosen[key]] if key in chosen else range(len(axis.labels))
            numbers = [number * len(axis.labels) + index for number in numbers for index in indices]
        return numbers

    def combinations(self, keys: Sequence[str]) -> list[dict[str, int]]:
        """Every combination of values on some axes; of no axes, the empty one."""
        ranges = [range(len(self.axes[key].labels)) for key in keys]
        return [dict(zip(keys, indices, strict=True)) for indices in itertools.product(*ranges)]

    def series(self) -> list[dict[str, int]]:
        return self.combinations(self.series_axes)

    def others(self, *used: str) -> list[str]:
        """The axes with several values that are neither in `used` nor compared."""
        taken = {*used, *self.series_axes}
        return [key for key, axis in self.axes.items() if key not in taken and len(axis.labels) > 1]

    def label(self, chosen: Mapping[str, int]) -> str:
        """`csma`, or with several axes `flooding, csma`: the values alone."""
        return ", ".join(self.axes[key].labels[index] for key, index in chosen.items())

    def full_label(self, chosen: Mapping[str, int]) -> str:
        """`world.area = 750 × 750, world.nodes = 100`"""
        return ", ".join(f"{key} = {self.axes[key].labels[index]}" for key, index in chosen.items())


def layout(axes: Mapping[str, Sequence[Any]]) -> CellLayout:
    made = {key: axis(key, values) for key, values in axes.items()}
    several = [key for key, made_axis in made.items() if len(made_axis.labels) > 1]
    words = [key for key in several if made[key].positions is None]
    series = [key for key in words if key == "strategy.name" or key.startswith("strategy.options.")]
    series = series or words[:1]
    return CellLayout(made, series, [key for key in several if key not in series] or series[:1])


def axis(key: str, values: Sequence[Any]) -> Axis:
    positions = _positions(values)
    squares = key == "world.area" and positions is not None
    return Axis(
        key, [visible(value_label(value)) for value in values], positions, _unit(key, values), squares
    )


def _positions(values: Sequence[Any]) -> list[float] | None:
    """Numbers are placed by value; squares and single-valued ranges (`[5, 5]`) by the length of a side."""
    if all(is_number(value) for value in values):
        return [float(value) for value in values]
    if all(isinstance(v, list) and len(v) == 2 and is_number(v[0]) and v[0] == v[1] for v in values):
        return [float(value[0]) for value in values]
    return None


def _unit(key: str, values: Sequence[Any]) -> str:
    if any(isinstance(value, str) for value in values):
        return ""
    name = key.rpartition(".")[2]
    suffix = next((unit for ending, unit in SUFFIX_UNITS.items() if name.endswith(ending)), "")
    return UNITS.get(name, suffix)
