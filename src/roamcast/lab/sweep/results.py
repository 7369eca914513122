"""The results of a sweep, read back: what the report and the published figures are computed from.

A page about a sweep needs the figures in its manifests only, so this starts no Spark, and can be done while
the sweep is running.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from roamcast.errors import FileError
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import cells
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, OK, RunRecord, SweepFolder


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """`experiment.json`: what was swept."""

    experiment: str
    roamcast: str  # the version that swept it
    scenario: dict[str, Any]
    axes: dict[str, list[Any]]
    seeds: list[int]


@dataclass(frozen=True)
class Run:
    """How one run ended."""

    run: str
    cell: int
    seed: int
    status: str
    error: str


@dataclass(frozen=True)
class Results:
    """A sweep's description, its runs, and every figure that has a value."""

    description: Description
    runs: list[Run]
    figures: dict[str, dict[int, dict[int, float]]]  # metric → cell → seed → value

    @cached_property
    def cells(self) -> list[dict[str, Any]]:
        """The axis values of each cell, in the order of their numbers."""
        return list(cells(self.description.axes))

    @property
    def missing(self) -> int:
        """How many runs have not ended yet."""
        return len(self.cells) * len(self.description.seeds) - len(self.runs)

    @property
    def failed(self) -> list[Run]:
        return [run for run in self.runs if run.status != OK]

    def values(self, metric: str, cell: int) -> dict[int, float]:
        """By seed, without failed runs and runs in which the metric has no value."""
        return self.figures.get(metric, {}).get(cell, {})

    def means(self, metric: str, over: Sequence[int]) -> dict[int, float]:
        """Per seed, the mean over some cells; only seeds that have a value in all of them."""
        return means([self.values(metric, cell) for cell in over])

    def measured(self) -> list[str]:
        """The metrics that have a value in any run, in the design's order, then those of plug-ins."""
        return [
            name
            for name in [*METRICS, *sorted(self.figures.keys() - METRICS.keys())]
            if self.figures.get(name)
        ]


def means(columns: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Per seed, the mean of its values; only seeds that have one in every column."""
    if not columns:
        return {}
    common = [seed for seed in columns[0] if all(seed in column for column in columns)]
    return {seed: math.fsum(column[seed] for column in columns) / len(columns) for seed in common}


def value_label(value: Any) -> str:
    """An axis value as people write it: `750 × 750` for a pair of numbers, else as it stands in the file."""
    if isinstance(value, str):
        return value
    if is_number(value):
        return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
    if isinstance(value, list | tuple) and len(value) == 2 and all(is_number(item) for item in value):
        return " × ".join(value_label(item) for item in value)
    return json.dumps(value, ensure_ascii=False, default=str)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_results(place: Storage | Path | str) -> Results:
    """The results in a sweep's folder, or a `FileError`. A sweep that is still running has fewer."""
    folder = SweepFolder(place)
    try:
        description = msgspec.convert(folder.description(), Description)
    except msgspec.ValidationError as error:
        name = folder.storage.name(EXPERIMENT_FILE)
        raise FileError(name, f"is no experiment description: {error}") from None
    try:
        records = folder.records()
    except FileError as error:
        advice = "`roamcast sweep --resume` sets it aside and runs again what was in it"
        raise FileError(error.where, f"{error.problem}; {advice}") from error
    return gathered(description, records)


def place_of(run: str) -> tuple[int, int]:
    """Cell and seed: a run's name is `<cell>-<seed>-<digest>`."""
    cell, seed, _ = run.split("-")
    return int(cell), int(seed)


def gathered(description: Description, records: Mapping[str, RunRecord]) -> Results:
    """What the records say of the seeds that the description names."""
    places = {run: place_of(run) for run in records}
    chosen = set(description.seeds)
    figures: dict[str, dict[int, dict[int, float]]] = {}
    runs = []
    for run in sorted(records, key=places.__getitem__):
        record, (cell, seed) = records[run], places[run]
        if seed not in chosen:
            continue
        runs.append(Run(run, cell, seed, record.status, record.error or ""))
        for name, value in record.figures.items():
            if value is not None and math.isfinite(value):
                figures.setdefault(name, {}).setdefault(cell, {})[seed] = float(value)
    return Results(description, runs, figures)
