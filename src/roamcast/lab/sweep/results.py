"""The results of a sweep, read back: what the report and the published figures are computed from.

A page about a sweep needs its small tables only, so this reads them with Arrow and starts no Spark.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.errors import FileError
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.sweep.experiment import cells
from roamcast.lab.sweep.folder import EXPERIMENT_FILE, OK, SweepFolder


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """`experiment.json`: what was swept."""

    experiment: str
    roamcast: str  # the version that swept it
    scenario: dict[str, Any]
    axes: dict[str, list[Any]]
    seeds: list[int]


@dataclass(frozen=True)
class Run:
    """One row of `runs`."""

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


def read_results(folder: Path) -> Results:
    """The results in a sweep's folder, or a `FileError`."""
    document = SweepFolder(folder).experiment()
    if document is None:
        state = "is no sweep's folder" if folder.is_dir() else "is no folder"
        raise FileError(str(folder), f"{state}; allowed: a folder that `roamcast sweep` wrote")
    try:
        description = msgspec.convert(document, Description)
    except msgspec.ValidationError as error:
        raise FileError(str(folder / EXPERIMENT_FILE), f"is no experiment description: {error}") from None
    runs = _table(folder, "runs", ("run", "cell", "seed", "status", "error"))
    metrics = _table(folder, "metrics", ("cell", "seed"))
    return Results(
        description,
        [Run(**(row | {"error": row["error"] or ""})) for row in _rows(runs)],
        _figures(metrics),
    )


def _table(folder: Path, name: str, needed: Iterable[str]) -> pa.Table:
    if not (folder / name).is_dir():
        raise FileError(
            str(folder / name),
            "is missing: the sweep has not ended; `roamcast sweep --resume` runs what is left of it",
        )
    try:
        table = pq.read_table(folder / name)
    except (OSError, pa.ArrowException) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(str(folder / name), f"is no Parquet table: {problem}") from None
    for column in needed:
        if column not in table.column_names:
            raise FileError(str(folder / name), f"has no column `{column}`")
    return table


def _rows(runs: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = runs.select(["run", "cell", "seed", "status", "error"]).to_pylist()
    return sorted(rows, key=lambda row: (row["cell"], row["seed"]))


def _figures(table: pa.Table) -> dict[str, dict[int, dict[int, float]]]:
    places = list(zip(table["cell"].to_pylist(), table["seed"].to_pylist(), strict=True))
    order = sorted(range(len(places)), key=places.__getitem__)
    figures: dict[str, dict[int, dict[int, float]]] = {}
    described = table.column_names.index("seed") + 1  # then come the figures
    for name in table.column_names[described:]:
        values = table[name].to_pylist()
        for row in order:
            if values[row] is not None and math.isfinite(values[row]):
                cell, seed = places[row]
                figures.setdefault(name, {}).setdefault(cell, {})[seed] = float(values[row])
    return figures
